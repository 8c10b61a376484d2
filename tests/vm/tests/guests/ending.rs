//! Guests that end: by a reboot, and by being killed, both while they write.

use guest_rig::Options;

use crate::images::{bytes, check_ext4};
use crate::numbers;
use crate::served::{Served, wait};

/// A file system's namespace and a raw one, of one file.
const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "192MiB"

[[namespace]]
name = "root"
media = "disk"
range = "0MiB..128MiB"

[[namespace]]
name = "raw"
media = "disk"
range = "128MiB..192MiB"

[[controller]]
name = "vm"
namespaces = ["root", "raw"]
listen = "vfio-user:DIR/vm.sock"
"#;

const RAW: u64 = 128 << 20;

#[test]
fn a_guest_that_reboots_finds_its_data() {
    let served = Served::start(CONFIG);
    let options = Options {
        may_reboot: true,
        ..Options::default()
    };
    let report = served.run("vm", include_str!("jobs/reboot.sh"), options);
    let names: Vec<_> = report.steps.iter().map(|step| step.name.as_str()).collect();
    let expected = [
        "root",
        "raw",
        "first",
        "load",
        "root",
        "raw",
        "second",
        "checksums",
        "quiet",
    ];
    assert_eq!(names, expected);
    let stopped = served.stop();
    check_ext4(&stopped.file("disk.img"), 0);
}

#[test]
fn the_next_guest_finds_what_a_killed_one_had_flushed() {
    let mut served = Served::start(CONFIG);
    let mut guest = served.boot("vm", include_str!("jobs/killed.sh"), Options::default());
    wait(&mut guest, "loaded");
    guest.kill();
    served.wait_for_line("host detached");
    served.run("vm", include_str!("jobs/after.sh"), Options::default());
    let stopped = served.stop();
    let image = stopped.file("disk.img");
    check_ext4(&image, 0);
    let numbers = numbers(100_000);
    assert!(
        bytes(&image, RAW, numbers.len()) == numbers,
        "what was flushed is gone"
    );
}
