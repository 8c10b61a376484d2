//! The example with a drive of each kind: one process serves all of them to one guest.

use guest_rig::Options;

use crate::served::{Served, finish, number, text};

/// The example, as it lies in the source tree.
const EXAMPLE: &str = include_str!("../../../../examples/one-of-each.toml");
/// Its controllers, in the order of the guest's PCI slots.
const NAMES: [&str; 7] = [
    "nothing", "memory", "disk", "optane", "flash", "zones", "pairs",
];

#[test]
fn a_guest_uses_a_drive_of_each_kind() {
    let example = EXAMPLE
        .replace("\"vfio-user:", "\"vfio-user:DIR/")
        .replace("path = \"", "path = \"DIR/");
    let mut served = Served::start(&example);
    served.wait_for_line("controller pairs");
    let job = include_str!("jobs/every_kind.sh");
    let guest = served.boot_on(&NAMES, job, Options::default());
    let report = finish(guest);

    assert_eq!(number(&report, "controllers"), 7);
    // A namespace of keys and values has no disk.
    assert_eq!(number(&report, "disks"), 6);
    assert_eq!(number(&report, "zones"), 32);
    assert_eq!(text(&report, "model").trim(), "host-managed");
    // Two keys in the order of their bytes, of four and of eight: their number, and before each its
    // length (Key Value 1.1, 3.2.2).
    let listed = "02 00 00 00 04 00 63 6f 6c 6f 00 00 08 00 6b 65 79 2d 30 30 30 31 00 00";
    assert_eq!(text(&report, "keys").trim(), listed);

    let stopped = served.stop();
    for disk in ["disk.img", "flash.img"] {
        crate::images::check_ext4(&stopped.file(disk), 0);
    }
}
