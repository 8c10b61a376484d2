//! Zones in a guest: the same script on a drive of ours and on a zoned null_blk device of the
//! guest's own kernel, which is the reference for what Linux makes of zones.

use guest_rig::{Options, Report};

use crate::served::{Served, finish, tell, text, wait};

/// 32 zones of 4 MiB, of which 3 MiB can be written, and 8 may be open and active; the namespace
/// beside it has blocks.
pub(crate) const CONFIG: &str = r#"
[[media]]
name = "zones"
kind = "ram"
size = "128MiB"

[media.zoned]
zone_size = "4MiB"
zone_capacity = "3MiB"
max_open = 8
max_active = 8
random_area = "64KiB"
random_granularity = "16KiB"
random_zones = 3

[[media]]
name = "blocks"
kind = "ram"
size = "16MiB"

[[namespace]]
name = "zones"
media = "zones"

[[namespace]]
name = "blocks"
media = "blocks"

[[controller]]
name = "vm"
namespaces = ["zones", "blocks"]
listen = "vfio-user:DIR/vm.sock"
"#;

/// What the guest does with the zones.
pub(crate) const JOB: &str = include_str!("jobs/zoned.sh");

#[test]
fn a_guest_uses_zones_as_those_of_its_own_kernel() {
    let served = Served::start(CONFIG);
    let mut guest = served.boot("vm", JOB, Options::default());
    wait(&mut guest, "ready");
    served.steer(&["set", "media", "zones", "zone.9=offline"]);
    tell(&mut guest, "lost");
    check(&finish(guest));
    served.stop();
}

/// Checks what the job has told.
pub(crate) fn check(report: &Report) {
    check_same(report);
    check_appends(report);
    assert!(
        text(report, "id-ns").contains(r#""mar":7"#),
        "MAR, less one"
    );
    for field in [
        r#""numzrwa":2"#,
        r#""zrwafg":4"#,
        r#""zrwasz":16"#,
        r#""zrwacap":1"#,
    ] {
        assert!(text(report, "id-ns").contains(field), "{field}");
    }
    let model = text(report, "model");
    assert_eq!(model.trim(), "host-managed");
}

/// What Linux tells of both devices after each step is the same.
fn check_same(report: &Report) {
    for step in [
        "fresh", "written", "opened", "finished", "reset", "fio", "zonefs", "last",
    ] {
        let ours = text(report, &format!("nvme-{step}"));
        let reference = text(report, &format!("null-{step}"));
        assert!(!ours.trim().is_empty(), "{step}: nothing was reported");
        assert_eq!(ours, reference, "{step}");
    }
}

/// Two appends of a block each went one behind the other, and a report says so.
fn check_appends(report: &Report) {
    // Hexadecimal: the first block of the ninth zone, and the one behind it.
    assert_eq!(text(report, "append-1").trim(), "2000");
    assert_eq!(text(report, "append-2").trim(), "2001");
    let zones = text(report, "report-zones");
    assert!(
        zones.contains("0x2002"),
        "the write pointer of the ninth zone: {zones}"
    );
}
