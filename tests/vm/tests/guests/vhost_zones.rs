//! Guests with disks that have zones, by vhost-user-blk.
//!
//! QEMU's device for such disks hides zones. Its device for any kind of vhost-user back end passes
//! all features on.

use std::ffi::OsString;

use guest_rig::{Boot, Guest, Kernel, Options, Report};

use crate::served::{Served, boot_on_all, finish, text};

/// 32 zones of 4 MiB, of which 3 MiB can be written, and 8 may be open and active; and 4 more that
/// a front end hides.
const CONFIG: &str = r#"
[[media]]
name = "zones"
kind = "ram"
size = "128MiB"

[media.zoned]
zone_size = "4MiB"
zone_capacity = "3MiB"
max_open = 8
max_active = 8

[[media]]
name = "hidden"
kind = "ram"
size = "16MiB"

[media.zoned]
zone_size = "4MiB"

[[namespace]]
name = "zones"
media = "zones"
lba_size = 4096

[[namespace]]
name = "hidden"
media = "hidden"

[[controller]]
name = "zones"
namespaces = ["zones"]
listen = "vhost-user-blk:DIR/zones.sock"
queues = 2

[[controller]]
name = "hidden"
namespaces = ["hidden"]
listen = "vhost-user-blk:DIR/hidden.sock"
queues = 1
"#;

/// What a guest does with both.
const JOB: &str = concat!(
    "QUEUES=2\n",
    include_str!("jobs/vhost.sh"),
    include_str!("jobs/vhost_zones.sh"),
    include_str!("jobs/same_zones.sh"),
    include_str!("jobs/vhost_zones_appends.sh"),
);

fn boot(served: &Served, kernel: Kernel) -> Guest {
    let socket = |name: &str| {
        let path = served.file(&format!("{name}.sock"));
        format!("socket,id={name},path={}", path.display())
    };
    let any = "vhost-user-test-device-pci,chardev=zones,virtio-id=2,num_vqs=2,vq_size=256,config_size=96,addr=0x10";
    let blk = "vhost-user-blk-pci,chardev=hidden,num-queues=1,addr=0x11";
    let (zones, hidden) = (socket("zones"), socket("hidden"));
    let arguments = [
        "-chardev", &zones, "-device", any, "-chardev", &hidden, "-device", blk,
    ];
    let options = Options {
        boot: Boot::Kernel(kernel),
        qemu_args: arguments.map(OsString::from).into(),
        ..Options::default()
    };
    boot_on_all(Vec::new(), JOB, options)
}

/// Zones beside those of the guest's own kernel, appends through its NVMe target, and a front end
/// that hides zones.
fn uses_zones(kernel: Kernel) {
    let served = Served::start(CONFIG);
    let report = finish(boot(&served, kernel));
    check_appends(&report);
    let lines = served.lines();
    let is_told = |line: &String| line.contains("VIRTIO_BLK_F_ZONED") && line.contains("hidden");
    assert!(lines.iter().any(is_told), "{lines:?}");
    served.stop();
}

/// Blocks of the tenth zone, hexadecimal.
fn check_appends(report: &Report) {
    for (part, block) in [(0, "2400"), (1, "2402")] {
        assert_eq!(text(report, &format!("append-{part}")).trim(), block);
    }
}

#[test]
fn zones_are_those_of_the_kernels_own() {
    uses_zones(Kernel::Stable);
}

mod slow {
    use guest_rig::Kernel;

    use super::uses_zones;

    #[test]
    fn zones_on_a_newer_kernel_are_those_of_its_own() {
        uses_zones(Kernel::Backports);
    }
}
