//! Keys and values in a guest, which passes commands through its own NVMe driver: Linux makes no
//! disk of the Key Value command set, and does not know Samsung's commands. nvme-cli names the
//! statuses.

use guest_rig::{Options, Report};

use crate::served::{Served, finish, text};

pub(crate) const CONFIG: &str = r#"
[[media]]
name = "pairs"
kind = "keyvalue"
size = "64MiB"

[[media]]
name = "ssd"
kind = "keyvalue"
size = "64MiB"
dialect = "samsung"

[[namespace]]
name = "pairs"
media = "pairs"

[[namespace]]
name = "ssd"
media = "ssd"

[[controller]]
name = "pairs"
namespaces = ["pairs"]
listen = "vfio-user:DIR/pairs.sock"

[[controller]]
name = "ssd"
namespaces = ["ssd"]
listen = "vfio-user:DIR/ssd.sock"
"#;

/// What the guest does with `/dev/pairs` and `/dev/ssd`.
pub(crate) const JOB: &str = include_str!("jobs/key_value.sh");
/// The same, in PCI slots.
const JOB_IN_SLOTS: &str = concat!(
    include_str!("jobs/key_value_slots.sh"),
    include_str!("jobs/key_value.sh")
);

#[test]
fn a_guest_stores_and_lists_pairs_in_both_dialects() {
    let mut served = Served::start(CONFIG);
    served.wait_for_line("controller ssd");
    let guest = served.boot_on(&["pairs", "ssd"], JOB_IN_SLOTS, Options::default());
    check(&finish(guest));
    served.stop();
}

/// Checks what the job has told.
pub(crate) fn check(report: &Report) {
    let told = |name: &str| text(report, name).trim().to_owned();

    // The number of keys; each key's length in two bytes, the key, and zeros to a multiple of four
    // (KV 1.1, 3.2.3); in the order of their bytes.
    assert_eq!(
        told("keys"),
        "03 00 00 00 10 00 30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66 00 00 01 00 61 00 04 00 63 6f 6c 6f 00 00"
    );
    assert_eq!(told("keys-from-b"), "01 00 00 00 04 00 63 6f 6c 6f 00 00");
    // An iterator over keys that begin with "usr": u32 count, then a u32 length and the key each,
    // both padded to four bytes.
    assert_eq!(
        told("iterated"),
        "02 00 00 00 05 00 00 00 75 73 72 2d 31 00 00 00 05 00 00 00 75 73 72 2d 32 00 00 00"
    );
    assert_eq!(told("complaints"), "none");
}
