//! A machine without a disk of its own: the firmware's driver finds a boot loader on our drive, that one finds a kernel there,
//! and that kernel lives on it.

use tests_vm::{Boot, Kernel, Options, guest};

use crate::images::check_ext4;
use crate::served::{Served, number, rig, text};

const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "192MiB"

[[namespace]]
name = "disk"
media = "disk"
lba_size = 512

[[controller]]
name = "vm"
namespaces = ["disk"]
listen = "vfio-user:DIR/vm.sock"
model_number = "Drive of a firmware"
"#;

const SIZE: u64 = 192 << 20;
/// The identity of the partition that the firmware boots from.
const PARTITION: &str = "0F2D6A3C-71B5-4C8E-9A40-D1E5B3728F96";

#[test]
fn the_firmware_boots_linux_from_the_drive() {
    let options = Options {
        boot: Boot::Firmware,
        job: Some(String::new()),
        kernel_args: vec!["rig.from=the-drive".into()],
        ..Options::default()
    };
    let rig = rig();
    let served = Served::start_with(CONFIG, |dir| {
        let line = guest::command_line(&options);
        let write = || {
            let system = rig.kernel(Kernel::Backports)?;
            let image = dir.join("disk.img");
            rig.firmware()?
                .write_disk(&image, SIZE, PARTITION, &system, &line)
        };
        write().unwrap_or_else(|error| panic!("{error}"));
    });
    let report = served.run("vm", include_str!("jobs/firmware.sh"), options);

    // QEMU gave it no kernel and no words for one
    assert!(text(&report, "words").contains("rig.from=the-drive"));
    // what the loader says of where it came from, and the firmware of what it started
    let partition = text(&report, "partition").trim();
    assert!(partition.eq_ignore_ascii_case(PARTITION), "{partition}");
    assert!(text(&report, "uevent").to_uppercase().contains(PARTITION));
    let entry = text(&report, "entry");
    assert!(entry.contains("Drive of a firmware"), "{entry}");
    // thousands of 512 bytes that the drive had read before Linux looked at it: kernel and file system are 70 MB
    let read = number(&report, "read-before");
    assert!(read > 100, "the firmware read {read} x 512000 bytes");

    let stopped = served.stop();
    check_ext4(
        &stopped.file("disk.img"),
        number(&report, "second-start") * 512,
    );
}
