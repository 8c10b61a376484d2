//! Disks that our own program serves inside the guest, by the guest's ublk driver.

use std::ffi::OsString;
use std::path::Path;

use guest_rig::{Boot, Guest, Kernel, Options, Report};
use tempfile::TempDir;

use crate::served::{finish, number, rig};

/// Functions of these jobs.
const FUNCTIONS: &str = concat!(
    include_str!("jobs/functions.sh"),
    "\n",
    include_str!("jobs/ublk.sh")
);

/// A disk with zones, what is done with it beside zones of the kernel's own, and the end of its
/// server.
const ZONED: &str = concat!(
    include_str!("jobs/ublk_zoned.sh"),
    include_str!("jobs/same_zones.sh"),
    include_str!("jobs/ublk_zoned_deaths.sh")
);

/// Bytes of the disk for the files of drives.
const SPACE: u64 = 512 << 20;

/// Boots a guest with our program and a raw disk in slot 10h, which runs `job`.
fn boot(dir: &Path, kernel: Kernel, job: &str) -> Guest {
    let disk = dir.join("disk.img");
    let file = std::fs::File::create(&disk).expect("the folder is ours");
    file.set_len(SPACE).expect("the file has a size");
    let drive = format!(
        "if=none,id=space,format=raw,discard=unmap,file={}",
        disk.display()
    );
    let arguments = [
        "-drive",
        &drive,
        "-device",
        "virtio-blk-pci,drive=space,addr=0x10",
    ];
    let options = Options {
        boot: Boot::Kernel(kernel),
        job: Some(format!("{FUNCTIONS}\n{job}")),
        program: true,
        memory_mib: 1280,
        qemu_args: arguments.map(OsString::from).into(),
        ..Options::default()
    };
    Guest::boot(&rig(), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs `job` to its end.
fn run(kernel: Kernel, job: &str) -> Report {
    let dir = TempDir::new().expect("a temporary folder");
    finish(boot(dir.path(), kernel, job))
}

/// Disks of each kind, from the driver that is missing to devices that are gone: attributes,
/// checked I/O, ext4, flushes, FUA, discard, zeroes, growth, a file that cannot be written.
fn uses_disks(kernel: Kernel) {
    run(kernel, include_str!("jobs/ublk_uses.sh"));
}

/// The server is killed again and again under writes that are verified, and ends in order while the
/// disk is mounted and while it is not.
fn outlives_its_server(kernel: Kernel, deaths: u32) {
    let job = include_str!("jobs/ublk_deaths.sh");
    let report = run(kernel, &format!("DEATHS={deaths}\n{job}"));
    assert!(number(&report, "rounds") > 0, "nothing was verified");
    let interrupted = number(&report, "interrupted");
    println!("deaths with requests in flight: {interrupted} of {deaths}");
    assert!(interrupted * 2 > u64::from(deaths));
}

/// How often a server is killed in the tests that always run.
const DEATHS: u32 = 5;

#[test]
fn programs_use_disks_of_ublk() {
    uses_disks(Kernel::Backports);
}

#[test]
fn programs_of_the_release_use_disks_of_ublk() {
    uses_disks(Kernel::Stable);
}

#[test]
fn disks_outlive_their_server() {
    outlives_its_server(Kernel::Backports, DEATHS);
}

#[test]
fn disks_outlive_their_server_on_the_release() {
    outlives_its_server(Kernel::Stable, DEATHS);
}

#[test]
fn zones_are_those_of_the_kernels_own() {
    run(Kernel::Stable, ZONED);
}

#[test]
fn the_end_of_one_disk_ends_no_other() {
    run(Kernel::Backports, include_str!("jobs/ublk_ends.sh"));
}

mod slow {
    use guest_rig::Kernel;

    use super::{ZONED, outlives_its_server, run};
    use crate::served::text;

    /// How often the server is killed.
    const DEATHS: u32 = 20;

    #[test]
    fn disks_outlive_twenty_deaths() {
        outlives_its_server(Kernel::Backports, DEATHS);
    }

    #[test]
    fn disks_outlive_twenty_deaths_on_the_release() {
        outlives_its_server(Kernel::Stable, DEATHS);
    }

    #[test]
    fn zones_on_a_newer_kernel_are_those_of_its_own() {
        run(Kernel::Backports, ZONED);
    }

    #[test]
    fn the_end_of_one_disk_ends_no_other_on_the_release() {
        run(Kernel::Stable, include_str!("jobs/ublk_ends.sh"));
    }
    /// Prints what requests a second there are beside loop and `null_blk`.
    #[test]
    fn a_disk_beside_loop_and_null_blk() {
        let report = run(Kernel::Backports, include_str!("jobs/ublk_speed.sh"));
        let speed = text(&report, "speed");
        println!("{speed}");
        let iops = speed.lines().filter_map(|line| line.rsplit_once(' '));
        let iops: Vec<f64> = iops.filter_map(|(_, iops)| iops.parse().ok()).collect();
        assert_eq!(iops.len(), 12, "three disks, reads and writes, two depths");
        assert!(iops.iter().all(|iops| *iops > 0.0), "{speed}");
    }
}
