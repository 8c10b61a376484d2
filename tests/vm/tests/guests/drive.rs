//! The life of a drive in one guest: identity, file system, checksums, flush and FUA, discard and
//! write zeroes, resets under load, and a clean end; then its image, seen from outside.

use guest_rig::{Boot, Kernel, Options, Report};

use crate::images::{allocated, bytes, check_ext4, ext4_file};
use crate::numbers;
use crate::served::{Served, finish, json, number, tell, text, wait};

const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "512MiB"

[[media]]
name = "memory"
kind = "ram"
size = "64MiB"

[[namespace]]
name = "root"
media = "disk"
range = "256MiB..512MiB"
lba_size = 4096

[[namespace]]
name = "raw"
media = "disk"
range = "0MiB..256MiB"
lba_size = 512

[[namespace]]
name = "fast"
media = "memory"

[[controller]]
name = "vm"
namespaces = ["root", "raw", "fast"]
listen = "vfio-user:DIR/vm.sock"
serial = "GUEST-1"
model_number = "Drive of a guest"
"#;

const MIB: u64 = 1 << 20;

#[test]
fn a_guest_lives_on_a_drive() {
    lives_on_a_drive(Kernel::Stable);
}

mod slow {
    #[test]
    fn a_guest_with_a_newer_kernel_lives_on_a_drive() {
        super::lives_on_a_drive(guest_rig::Kernel::Backports);
    }
}

fn lives_on_a_drive(kernel: Kernel) {
    let served = Served::start(CONFIG);
    let image = served.file("disk.img");
    let options = Options {
        boot: Boot::Kernel(kernel),
        ..Options::default()
    };
    let mut guest = served.boot("vm", include_str!("jobs/drive.sh"), options);

    wait(&mut guest, "filled");
    let filled = allocated(&image);
    tell(&mut guest, "discard");
    wait(&mut guest, "discarded");
    let given_back = filled.saturating_sub(allocated(&image));
    assert!(
        given_back >= 31 * MIB,
        "a discard of 32 MiB gave {given_back} bytes back"
    );
    tell(&mut guest, "zeroes");
    let report = finish(guest);

    check_identity(&report);
    check_commands(&report);
    check_logs(&report);

    let stopped = served.stop();
    let image = stopped.file("disk.img");
    check_ext4(&image, 256 * MIB);
    let numbers = numbers(100_000);
    assert!(
        ext4_file(&image, 256 * MIB, "/numbers") == numbers,
        "a file changed"
    );
    assert!(
        bytes(&image, 200 * MIB, numbers.len()) == numbers,
        "raw blocks changed"
    );
}

fn check_identity(report: &Report) {
    let list = json(report, "list").to_string();
    for part in [
        "/dev/nvme0n1",
        "/dev/nvme0n2",
        "/dev/nvme0n3",
        "GUEST-1",
        "Drive of a guest",
    ] {
        assert!(list.contains(part), "nvme list has no {part}: {list}");
    }
    let controller = json(report, "id-ctrl");
    assert_eq!(controller["sn"].as_str().map(str::trim), Some("GUEST-1"));
    assert_eq!(controller["ver"], 0x0002_0100, "version 2.1");
    assert_eq!(controller["mdts"], 8, "1 MiB");
    assert_eq!(
        controller["vwc"].as_u64().map(|vwc| vwc & 1),
        Some(1),
        "a volatile write cache"
    );
    assert_eq!(text(report, "cache").trim(), "write back");
    for (nsid, blocks, shift) in [(1, 65536, 12), (2, 524_288, 9), (3, 16384, 12)] {
        let namespace = json(report, &format!("id-ns-{nsid}"));
        assert_eq!(namespace["nsze"], blocks, "namespace {nsid}");
        let format = usize::try_from(namespace["flbas"].as_u64().expect("a number") & 0xf);
        let format = &namespace["lbafs"][format.expect("four bits")];
        assert_eq!(format["ds"], shift, "namespace {nsid}");
    }
}

fn check_commands(report: &Report) {
    for (name, least, what) in [
        // 16 blocks of 1 MiB written, and read to verify them: none was cut into smaller ones
        ("largest", 32, "transfers of 1 MiB"),
        // 64 blocks of 4 KiB, flushed one by one, then forced through the cache one by one
        ("flushes", 60, "flushes for fsync"),
        ("fua", 60, "writes with FUA for O_SYNC"),
        ("discards", 1, "Dataset Management for blkdiscard"),
        ("write-zeroes", 1, "Write Zeroes for blkdiscard -z"),
    ] {
        let count = number(report, name);
        assert!(count >= least, "the guest sent {count} {what}");
    }
    assert_eq!(
        number(report, "writes-beside"),
        0,
        "zeroes are written as data"
    );
    // the first start, and five resets
    assert_eq!(number(report, "resets"), 6);
    for queue in [1, 2] {
        let count = number(report, &format!("interrupts-{queue}"));
        assert!(
            count >= 100,
            "queue {queue} was hardly used: {count} interrupts"
        );
    }
}

fn check_logs(report: &Report) {
    let [before, after] = ["smart-before", "smart-after"].map(|name| json(report, name));
    let grown = |key: &str| after[key].as_u64().unwrap_or(0) - before[key].as_u64().unwrap_or(0);
    assert!(grown("host_write_commands") > 5_000, "{after}");
    assert!(grown("host_read_commands") > 5_000, "{after}");
    // thousands of 512 bytes: more than 100 MiB were written
    assert!(grown("data_units_written") > 200, "{after}");
    for log in [&before, &after] {
        assert_eq!(log["critical_warning"], 0);
        assert_eq!(log["media_errors"], 0);
        assert_eq!(log["unsafe_shutdowns"], 0);
    }
    for name in ["error-log", "error-log-after"] {
        for entry in json(report, name)["errors"].as_array().expect("entries") {
            assert_eq!(
                entry["error_count"], 0,
                "an error of the controller: {entry}"
            );
        }
    }
}
