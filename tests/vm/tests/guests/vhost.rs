//! Guests with disks of vhost-user-blk: virtio's own driver of Linux and of two firmwares, under a
//! new QEMU and an old one.

use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

use guest_rig::{Boot, Disk, Guest, Kernel, Options, Qemu, Report, guest};

use crate::firmware::{PARTITION, SIZE, write_bios_disk};
use crate::images::{allocated, bytes, check_ext4, ext4_file};
use crate::numbers;
use crate::served::{Served, boot_on_all, finish, number, rig, tell, text, wait};

const MIB: u64 = 1 << 20;

/// Disks with blocks of each size, the second of which can grow, and a read-only one.
const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "176MiB"

[[media]]
name = "written-before"
kind = "file"
path = "DIR/fixed.img"
read_only = true

[[namespace]]
name = "small"
media = "disk"
range = "0MiB..128MiB"
lba_size = 512

[[namespace]]
name = "large"
media = "disk"
range = "128MiB..160MiB"
lba_size = 4096

[[namespace]]
name = "fixed"
media = "written-before"
lba_size = 512

[[controller]]
name = "small"
namespaces = ["small"]
listen = "vhost-user-blk:DIR/small.sock"
serial = "20 bytes of a serial"

[[controller]]
name = "large"
namespaces = ["large"]
listen = "vhost-user-blk:DIR/large.sock"
serial = "short"

[[controller]]
name = "fixed"
namespaces = ["fixed"]
listen = "vhost-user-blk:DIR/fixed.sock"
"#;

/// A file, since what was written outlives the server, whose commands take so long that some are
/// always in flight.
const FILE: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "64MiB"

[media.timing]
preset = "optane-p4800x"
as_measured_by = "device"
read_latency = "5ms"
write_latency = "5ms"

[[namespace]]
name = "data"
media = "disk"
lba_size = 512

[[controller]]
name = "vm"
namespaces = ["data"]
listen = "vhost-user-blk:DIR/vm.sock"
"#;

/// A disk to start from.
const FIRST: &str = r#"
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
listen = "vhost-user-blk:DIR/vm.sock"
"#;

/// `VIRTIO_BLK_F_RO`, as VIRTIO 1.3 numbers features (5.2.3 and 6).
const RO: usize = 5;
/// `VIRTIO_BLK_F_SEG_MAX`, `BLK_SIZE`, `FLUSH`, `TOPOLOGY`, `MQ`, `DISCARD`, `WRITE_ZEROES`,
/// `VIRTIO_F_INDIRECT_DESC`, `EVENT_IDX` and `VERSION_1`.
const EXPECTED: [usize; 10] = [2, 6, 9, 10, 12, 13, 14, 28, 29, 32];
/// `VIRTIO_F_RING_PACKED`.
const RING_PACKED: usize = 34;

/// How often the server of a guest is killed.
const DEATHS: u32 = 20;
/// The time for which it serves before it is killed: QEMU connects again within 0.1 s.
const SERVICE: Duration = Duration::from_millis(300);

/// The back end of all guests here. Each controller `NAME` listens at `DIR/NAME.sock`.
fn serve(config: &str, prepare: impl FnOnce(&Path)) -> Served {
    Served::start_with(config, prepare)
}

/// How a guest has its disks.
#[derive(Clone, Copy)]
struct With {
    kernel: Kernel,
    qemu: Qemu,
    packed: bool,
}

/// Queues of each disk, and processors: the kernel uses a queue for each of them.
const QUEUES: u32 = 2;

/// Boots a guest with disks of these controllers, the first of them in PCI slot 10h.
fn boot(served: &Served, names: &[&str], with: With, job: &str) -> Guest {
    let options = Options {
        boot: Boot::Kernel(with.kernel),
        cpus: QUEUES,
        qemu: with.qemu,
        ..Options::default()
    };
    boot_with(served, names, with.packed, job, options)
}

fn boot_with(served: &Served, names: &[&str], packed: bool, job: &str, options: Options) -> Guest {
    let disk = |name: &&str| Disk {
        socket: served.file(&format!("{name}.sock")),
        queues: QUEUES,
        packed,
    };
    let options = Options {
        disks: names.iter().map(disk).collect(),
        ..options
    };
    let functions = include_str!("jobs/vhost.sh");
    let job = format!("QUEUES={QUEUES}\n{functions}\n{job}");
    boot_on_all(Vec::new(), &job, options)
}

/// Whether device and driver agreed on the feature, as the kernel has it.
fn has(features: &str, feature: usize) -> bool {
    features.as_bytes().get(feature) == Some(&b'1')
}

/// A life of disks: features, file systems, both queues, flushes, discard, growth.
fn uses_disks(with: With) {
    let served = serve(CONFIG, |dir| {
        let mut content = numbers(100_000);
        content.resize(1 << 20, 0);
        fs::write(dir.join("fixed.img"), content).expect("the folder is ours");
    });
    let job = include_str!("jobs/vhost_uses.sh");
    let mut guest = boot(&served, &["small", "large", "fixed"], with, job);

    let image = served.file("disk.img");
    for (next, done) in [("discard", "discarded"), ("punch", "punched")] {
        wait(&mut guest, "filled");
        let filled = allocated(&image);
        tell(&mut guest, next);
        wait(&mut guest, done);
        let given_back = filled.saturating_sub(allocated(&image));
        assert!(
            given_back >= 15 * MIB,
            "16 MiB were {done}, and {given_back} bytes given back"
        );
        tell(
            &mut guest,
            if next == "discard" { "punch" } else { "zeroes" },
        );
    }
    wait(&mut guest, "small");
    served.steer(&["resize", "large", "48MiB"]);
    tell(&mut guest, "larger");
    let report = finish(guest);
    check_features(&report, with.packed);
    assert_eq!(text(&report, "small-serial").trim(), "20 bytes of a serial");
    assert_eq!(text(&report, "large-serial").trim(), "short");

    let stopped = served.stop();
    let image = stopped.file("disk.img");
    check_ext4(&image, 0);
    assert!(
        ext4_file(&image, 0, "/numbers") == numbers(100_000),
        "a file changed"
    );
    let zeroed = bytes(&image, 128 * MIB, 16 << 20);
    assert!(zeroed.iter().all(|byte| *byte == 0), "not all is zero");
    // what was written behind the former end
    let behind = bytes(&image, 160 * MIB, 16 << 20);
    assert!(behind.iter().any(|byte| *byte != 0), "nothing is there");
}

fn check_features(report: &Report, packed: bool) {
    let small = text(report, "small-features").trim();
    for feature in EXPECTED {
        assert!(has(small, feature), "feature {feature} is off: {small}");
    }
    assert_eq!(has(small, RING_PACKED), packed, "{small}");
    assert!(!has(small, RO), "{small}");
    let fixed = text(report, "fixed-features").trim();
    assert!(has(fixed, RO), "{fixed}");
}

/// The server is killed again and again under writes that are verified, and the guest does not
/// notice: requests that were in flight are done by the next server.
fn outlives_its_server(with: With, before: &str, deaths: u32) {
    let mut served = serve(FILE, |_| {});
    let deadly = include_str!("jobs/vhost_deaths.sh");
    let job = format!("step data disk 10 data\n{before}\n{deadly}");
    let mut guest = boot(&served, &["vm"], with, &job);
    let mut resubmitted = 0.0;
    wait(&mut guest, "loaded");
    wait(&mut guest, "again");
    for death in 0..deaths {
        // Not always at the same place of the load.
        thread::sleep(SERVICE + Duration::from_millis((death * 37 % 100).into()));
        served = served.kill().start_again();
        tell(&mut guest, "killed");
        wait(&mut guest, "again");
        resubmitted += served.metric(RESUBMITTED);
    }
    tell(&mut guest, "stop");
    let report = finish(guest);
    assert!(number(&report, "rounds") > 0, "nothing was verified");
    assert_eq!(has(text(&report, "features"), RING_PACKED), with.packed);
    println!("requests done again: {resubmitted}");
    // Nearly every death interrupts several requests.
    assert!(
        resubmitted >= f64::from(deaths),
        "{resubmitted} requests were in flight at {deaths} deaths"
    );
    served.stop();
}

/// Requests that a former server had in flight.
const RESUBMITTED: &str = "nvmirage_vhost_requests_resubmitted_total{controller=\"vm\"} ";

const SPLIT: With = With {
    kernel: Kernel::Backports,
    qemu: Qemu::Current,
    packed: false,
};

const PACKED: With = With {
    packed: true,
    ..SPLIT
};

#[test]
fn a_guest_uses_disks_with_split_rings() {
    uses_disks(SPLIT);
}

#[test]
fn a_guest_uses_disks_with_packed_rings() {
    uses_disks(PACKED);
}

#[test]
fn a_guest_with_split_rings_does_not_notice_that_its_server_dies() {
    outlives_its_server(SPLIT, "", DEATHS);
}

#[test]
fn a_guest_with_packed_rings_does_not_notice_that_its_server_dies() {
    outlives_its_server(PACKED, "", DEATHS);
}

#[test]
fn a_guest_of_an_older_qemu_works_and_does_not_notice_that_its_server_dies() {
    let with = With {
        kernel: Kernel::Stable,
        qemu: Qemu::Older,
        packed: false,
    };
    let before = concat!(include_str!("jobs/vhost_older.sh"), "\nstep older older\n");
    outlives_its_server(with, before, 3);
}

#[test]
fn the_firmware_boots_linux_from_the_disk() {
    let options = Options {
        boot: Boot::Firmware,
        job: Some(String::new()),
        kernel_args: vec!["rig.from=the-disk".into()],
        ..Options::default()
    };
    let served = serve(FIRST, |dir| {
        let line = guest::command_line(&options);
        let write = || {
            let system = rig().kernel(Kernel::Backports)?;
            let image = dir.join("disk.img");
            rig()
                .firmware()?
                .write_disk(&image, SIZE, PARTITION, &system, &line)
        };
        write().unwrap_or_else(|error| panic!("{error}"));
    });
    let job = include_str!("jobs/vhost_firmware.sh");
    let report = finish(boot_with(&served, &["vm"], false, job, options));
    // QEMU gave it no kernel and no words for one
    assert!(text(&report, "words").contains("rig.from=the-disk"));
    let partition = text(&report, "partition").trim();
    assert!(partition.eq_ignore_ascii_case(PARTITION), "{partition}");
    assert!(text(&report, "uevent").to_uppercase().contains(PARTITION));
    let stopped = served.stop();
    check_ext4(
        &stopped.file("disk.img"),
        number(&report, "second-start") * 512,
    );
}

#[test]
fn the_bios_boots_the_first_block_of_the_disk() {
    let served = serve(FIRST, |dir| write_bios_disk(&dir.join("disk.img")));
    let options = Options {
        boot: Boot::Bios,
        ..Options::default()
    };
    let report = finish(boot_with(&served, &["vm"], false, "", options));
    assert_eq!(report.steps.len(), 1);
    served.stop();
}

mod slow {
    use guest_rig::Kernel;

    use super::{DEATHS, PACKED, SPLIT, With, outlives_its_server, uses_disks};

    const STABLE: Kernel = Kernel::Stable;

    #[test]
    fn a_guest_of_the_release_uses_disks_with_split_rings() {
        uses_disks(With {
            kernel: STABLE,
            ..SPLIT
        });
    }

    #[test]
    fn a_guest_of_the_release_uses_disks_with_packed_rings() {
        uses_disks(With {
            kernel: STABLE,
            ..PACKED
        });
    }

    #[test]
    fn a_guest_of_the_release_does_not_notice_that_its_server_dies() {
        outlives_its_server(
            With {
                kernel: STABLE,
                ..SPLIT
            },
            "",
            DEATHS,
        );
    }
}
