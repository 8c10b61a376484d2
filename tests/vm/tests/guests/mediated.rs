//! Drives that tenants share: by our own program inside a guest, which has a drive through VFIO,
//! behind the guest's IOMMU; and by one outside, for a guest.

use std::ops::Range;
use std::process::Command;

use guest_rig::{Kernel, Options};
use tempfile::TempDir;

use crate::served::{Served, finish, json, tell, text, wait};
use crate::vfio::{BAY, boot, options};

/// Two tenants of one drive, which our program in the guest has through VFIO and an IOMMU: each
/// checks what it writes, both go on after somebody has reset the drive under them, and the drive's
/// file holds each one's bytes in its part and nothing elsewhere.
#[test]
fn two_tenants_of_a_drive_have_their_parts_and_no_more() {
    let dir = TempDir::new().expect("a temporary folder");
    let job = include_str!("jobs/vfio_tenants.sh");
    let report = finish(boot(&dir, Kernel::Stable, job));
    // beside a drive whose server stands still, every two seconds had their commands
    let stopped = text(&report, "stopped");
    let (served, reset) = (text(&report, "served"), text(&report, "reset"));
    println!("{stopped}{served}{reset}");
    assert_eq!(stopped.matches("part ").count(), 6, "{stopped}");
    // a reset that was under load of both: each had commands that were lost, and told so; what came
    // later was verified
    assert_eq!(
        reset
            .matches("a command failed: Command Interrupted")
            .count(),
        2
    );
    assert!(served.contains("a drive is reset"), "{served}");
    let disk = std::fs::read(dir.path().join("disk.img")).expect("the drive's file");
    let part = |mib: std::ops::Range<usize>| &disk[mib.start << 20..mib.end << 20];
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    for (name, first) in [("a", 8), ("b", 32)] {
        let written = part(first..first + 8).chunks(4096);
        let written = written.filter(|block| !is_zero(block)).count();
        assert!(written > 16, "{name} has written {written} blocks");
        assert!(is_zero(part(first + 8..first + 15)), "between, of {name}");
        let known = [name.as_bytes(), b"\n", &crate::numbers(1000)].concat();
        let (marked, rest) = part(first + 15..first + 16).split_at(known.len());
        assert!(marked == known, "what {name} has left");
        assert!(is_zero(rest), "behind what {name} has left");
    }
    for between in [0..8, 24..32, 48..64] {
        assert!(is_zero(part(between.clone())), "nobody has {between:?}");
    }
}

/// Two tenants of a drive which our program in the guest has through VFIO and an IOMMU, while its
/// workers are killed, and once replaced by an upgrade: no command fails, every block is as it was
/// written, and the drive is neither opened again nor left to a process that ends.
#[test]
fn tenants_of_a_drive_behind_an_iommu_do_not_notice_that_workers_die() {
    let dir = TempDir::new().expect("a temporary folder");
    let job = include_str!("jobs/vfio_survive.sh");
    let report = finish(boot(&dir, Kernel::Stable, job));
    let served = text(&report, "served");
    println!("pauses: {:?}", text(&report, "pauses"));
    assert_eq!(
        served
            .matches("a drive of the last process continues")
            .count(),
        11,
        "{served}"
    );
    for wrong in ["a drive is lost", "opened again", "cannot be asked"] {
        assert!(!served.contains(wrong), "{served}");
    }
    // Commands were in flight when workers died.
    let again: Vec<u64> = served
        .lines()
        .filter_map(|line| {
            let (before, _) =
                line.split_once(" commands of the last process are executed again")?;
            before.rsplit(' ').next()?.parse().ok()
        })
        .collect();
    assert!(again.iter().any(|count| *count > 0), "{again:?}");
    let disk = std::fs::read(dir.path().join("disk.img")).expect("the drive's file");
    for between in [0..8, 16..32, 40..64] {
        let bytes = &disk[between.start << 20..between.end << 20];
        assert!(
            bytes.iter().all(|byte| *byte == 0),
            "there is data in {between:?} MiB, which no tenant has"
        );
    }
}

/// A drive of a server outside, whose file shows what the drive holds.
const DRIVE: &str = r#"
[[media]]
name = "drive"
kind = "file"
path = "DIR/disk.img"
size = "64MiB"

[[namespace]]
name = "drive"
media = "drive"

[[controller]]
name = "vm"
namespaces = ["drive"]
listen = "vfio-user:DIR/vm.sock"
"#;

/// Where the driver's own memory lies on the drive's bus, and where hosts' windows do.
const RINGS: Range<u64> = 1 << 32..(1 << 32) + (64 << 20);
const WINDOWS: Range<u64> = 1 << 36..1 << 39;

/// A range of addresses that a line of the server says is mapped (true) or unmapped.
fn change(line: &str) -> Option<(Range<u64>, bool)> {
    let is_mapped = match line {
        _ if line.contains("a host maps memory") => true,
        _ if line.contains("a host unmaps memory") => false,
        _ => return None,
    };
    let field = |name: &str| {
        let rest = line.split(name).nth(1)?;
        rest.split(' ').next()?.parse::<u64>().ok()
    };
    let (iova, bytes) = (field("iova=")?, field("bytes=")?);
    Some((iova..iova.checked_add(bytes)?, is_mapped))
}

/// The drive's server outside sees every address that the drive could use: as long as our program
/// in the guest has the drive, these are those of its rings and of its tenants' memory, and no
/// others. When it has ended, none of them is left.
#[test]
fn a_drive_behind_an_iommu_is_shown_its_tenants_windows_and_our_rings_alone() {
    let served = Served::start_logging(DRIVE, "transport=debug,info");
    let socket = served.file("vm.sock");
    let device = format!(
        r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{}"}},"bus":"bay"}}"#,
        socket.display()
    );
    let arguments = ["-device", BAY, "-device", &device];
    let job = concat!(
        include_str!("jobs/vfio.sh"),
        "\n",
        include_str!("jobs/vfio_windows.sh")
    );
    let report = finish(served.boot_on(&[], job, options(&arguments)));
    println!("{}", text(&report, "served"));
    let reaches: Vec<u64> = text(&report, "reaches")
        .lines()
        .map(|bytes| bytes.parse().expect("a number"))
        .collect();
    assert!(reaches.len() >= 4, "two tenants, twice: {reaches:?}");

    let lines = served.lines();
    let changes: Vec<_> = lines.iter().filter_map(|line| change(line)).collect();
    let is_ours = |range: &Range<u64>| {
        [RINGS, WINDOWS]
            .iter()
            .any(|own| own.start <= range.start && range.end <= own.end)
    };
    let first = changes
        .iter()
        .position(|(range, is_mapped)| *is_mapped && is_ours(range));
    let first = first.expect("our program has the drive");
    let last = changes
        .iter()
        .rposition(|(range, _)| is_ours(range))
        .expect("it is the first one's");
    let mut mapped: Vec<Range<u64>> = Vec::new();
    let (mut most_rings, mut most_windows, mut shown) = (0, 0, 0);
    for (at, (range, is_mapped)) in changes.iter().enumerate() {
        match is_mapped {
            true => mapped.push(range.clone()),
            false => mapped.retain(|other| other.start < range.start || range.end < other.end),
        }
        if !(first..=last).contains(&at) {
            continue;
        }
        let stray: Vec<_> = mapped.iter().filter(|range| !is_ours(range)).collect();
        assert!(stray.is_empty(), "change {at}, {range:x?}: {stray:x?}");
        let bytes = |own: &Range<u64>| -> u64 {
            let inside = mapped.iter().filter(|range| own.contains(&range.start));
            inside.map(|range| range.end - range.start).sum()
        };
        if *is_mapped && WINDOWS.contains(&range.start) {
            shown += range.end - range.start;
        }
        most_windows = most_windows.max(bytes(&WINDOWS));
        most_rings = most_rings.max(bytes(&RINGS));
    }
    assert!(!mapped.iter().any(is_ours), "nothing is left: {mapped:x?}");
    assert_eq!(most_rings, RINGS.end - RINGS.start);
    assert_eq!(
        shown,
        reaches.iter().sum::<u64>(),
        "each tenant's memory, and nothing else"
    );
    let two = reaches.iter().max().expect("some") * 2;
    assert!(most_windows <= two, "{most_windows} bytes at once");

    let stopped = served.stop();
    let disk = std::fs::read(stopped.file("disk.img")).expect("the drive's file");
    for (name, first) in [("a", 8), ("b", 32)] {
        let written = disk[first << 20..(first + 8) << 20].chunks(4096);
        let written = written.filter(|block| block.iter().any(|byte| *byte != 0));
        assert!(written.count() > 16, "{name} has written");
    }
    for between in [0..8, 16..32, 40..64] {
        let bytes = &disk[between.start << 20..between.end << 20];
        assert!(
            bytes.iter().all(|byte| *byte == 0),
            "there is data in {between:?} MiB, which no tenant has"
        );
    }
}

/// A drive that does not exist, with the time of an Optane SSD.
const MODEL: &str = r#"
[[media]]
name = "model"
kind = "ram"
size = "256MiB"

[media.timing]
preset = "optane-p4800x"

[[namespace]]
name = "model"
media = "model"

[[controller]]
name = "model"
namespaces = ["model"]
listen = "vfio-user:DIR/model.sock"
doorbells = "mapped"
"#;

/// A guest's controller is mediated onto a partition of a drive that another one of our servers
/// makes, by a model. The partition grows while the guest has a file system there, which then
/// grows, too.
#[test]
fn a_guest_on_a_partition_of_a_modelled_drive_that_grows() {
    let drive = Served::start(MODEL);
    let target = format!("vfio-user:{}", drive.file("model.sock").display());
    let tenant = TENANT.replace("DRIVE", &target);
    let served = Served::start_with(&tenant, |dir| {
        let program = guest_rig::server::program().unwrap_or_else(|error| panic!("{error}"));
        let made = Command::new(program)
            .args([
                "partition",
                "create",
                &target,
                "part",
                "128MiB",
                "--at",
                "64MiB",
            ])
            .arg("--state-dir")
            .arg(dir.join("state"))
            .status();
        assert!(made.expect("nvmirage starts").success());
    });
    let mut guest = served.boot("vm", include_str!("jobs/stacked.sh"), Options::default());
    wait(&mut guest, "grow");
    served.steer(&["partition", "resize", "drive", "part", "192MiB"]);
    tell(&mut guest, "grown");
    let report = finish(guest);
    println!("{}", text(&report, "times"));
    let list = json(&report, "id-ns");
    assert_eq!(list["nsze"], (128 << 20) / 4096, "its part: {list}");
    let list = json(&report, "id-ns-grown");
    assert_eq!(list["nsze"], (192 << 20) / 4096, "its part: {list}");
    served.stop();
    drive.stop();
}

/// One that has the half of it.
const TENANT: &str = r#"
[[media]]
name = "drive"
kind = "drive"
target = "DRIVE"

[[namespace]]
name = "part"
media = "drive"
partition = "part"
lba_size = 4096

[[controller]]
name = "vm"
namespaces = ["part"]
listen = "vfio-user:DIR/vm.sock"
"#;
