//! What a driver does when it is in trouble, again and again: resets under load, unbinds under
//! load, and new kernels that start without a shutdown of the old one.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::Path;

use guest_rig::{Boot, Kernel, Options};

use crate::images::{bytes, check_ext4};
use crate::numbers;
use crate::served::{Served, finish, number, rig, tell, text, wait};

const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "256MiB"

[[namespace]]
name = "root"
media = "disk"
range = "0MiB..128MiB"

[[namespace]]
name = "raw"
media = "disk"
range = "128MiB..256MiB"

[[controller]]
name = "vm"
namespaces = ["root", "raw"]
listen = "vfio-user:DIR/vm.sock"
"#;

const MIB: u64 = 1 << 20;

#[test]
fn twenty_resets_and_twenty_unbinds_under_load() {
    let served = Served::start(CONFIG);
    let report = served.run("vm", include_str!("jobs/resets.sh"), Options::default());
    // the first start, and each reset
    assert_eq!(number(&report, "resets"), 21);
    assert_eq!(number(&report, "starts"), 41);
    let stopped = served.stop();
    let numbers = numbers(100_000);
    assert!(
        bytes(&stopped.file("disk.img"), 0, numbers.len()) == numbers,
        "blocks that nobody wrote to changed"
    );
}

/// Where the drive has the kernel and its file system for kexec.
const KERNEL_AT: u64 = 128 * MIB;
const INITRAMFS_AT: u64 = 160 * MIB;

mod slow {
    #[test]
    fn kernels_that_start_over_a_live_drive() {
        super::kernels_start_over_a_live_drive();
    }
}

fn kernels_start_over_a_live_drive() {
    let system = rig()
        .kernel(Kernel::Backports)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut sizes = [0; 2];
    let served = Served::start_with(CONFIG, |dir| {
        let image = dir.join("disk.img");
        File::create(&image)
            .and_then(|file| file.set_len(256 * MIB))
            .expect("an image");
        sizes = [
            put(&system.image, &image, KERNEL_AT),
            put(&system.initramfs, &image, INITRAMFS_AT),
        ];
    });
    let options = Options {
        boot: Boot::Kernel(Kernel::Backports),
        may_reboot: true,
        ..Options::default()
    };
    let [kernel, initramfs] = sizes;
    let job = include_str!("jobs/kexec.sh");
    let job = format!("KERNEL_BYTES={kernel}\nINITRAMFS_BYTES={initramfs}\n{job}");
    let mut guest = served.boot("vm", &job, options);
    for word in ["kexec", "reset", "reset"] {
        wait(&mut guest, word);
        tell(&mut guest, word);
    }
    let report = finish(guest);
    let names: Vec<_> = report.steps.iter().map(|step| step.name.as_str()).collect();
    let expected = [
        // the first kernel, which is replaced by one without the driver while it writes
        "root",
        "raw",
        "first",
        "registered",
        "kexec-load",
        "load",
        // that one, which is reset
        "no-driver",
        "untouched",
        // the third, which is reset while it writes
        "root",
        "raw",
        "intact",
        "load",
        // the last
        "root",
        "raw",
        "intact",
        "checksums",
        "quiet",
    ];
    assert_eq!(names, expected);
    assert_eq!(text(&report, "registrations").trim(), "1");
    let stopped = served.stop();
    check_ext4(&stopped.file("disk.img"), 0);
}

/// Puts `file` into the image at `offset`, and returns its length.
fn put(file: &Path, image: &Path, offset: u64) -> u64 {
    let mut from = File::open(file).expect("a part of a guest opens");
    let mut to = File::options()
        .write(true)
        .open(image)
        .expect("the image opens");
    to.seek(SeekFrom::Start(offset)).expect("seek");
    std::io::copy(&mut from, &mut to).expect("the image takes it")
}
