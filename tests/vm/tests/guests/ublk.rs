//! Disks that our own program serves inside the guest, by the guest's ublk driver.

use std::ffi::OsString;
use std::path::Path;

use guest_rig::{Boot, Guest, Kernel, Options, Report, debian};
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

/// Boots a guest with our program and a raw disk in slot 10h, which runs `job`; and one with the
/// bytes of a file in slot 11h.
fn boot(dir: &Path, kernel: Kernel, job: &str, file: Option<&Path>) -> Guest {
    let disk = dir.join("disk.img");
    let created = std::fs::File::create(&disk).expect("the folder is ours");
    created.set_len(SPACE).expect("the file has a size");
    let drive = format!(
        "if=none,id=space,format=raw,discard=unmap,file={}",
        disk.display()
    );
    let mut arguments = vec![
        "-drive".to_owned(),
        drive,
        "-device".to_owned(),
        "virtio-blk-pci,drive=space,addr=0x10".to_owned(),
    ];
    if let Some(file) = file {
        let drive = format!(
            "if=none,id=file,format=raw,readonly=on,file={}",
            file.display()
        );
        let device = "virtio-blk-pci,drive=file,addr=0x11".to_owned();
        arguments.extend(["-drive".to_owned(), drive, "-device".to_owned(), device]);
    }
    let options = Options {
        boot: Boot::Kernel(kernel),
        job: Some(format!("{FUNCTIONS}\n{job}")),
        program: true,
        memory_mib: 1280,
        qemu_args: arguments.into_iter().map(OsString::from).collect(),
        ..Options::default()
    };
    Guest::boot(&rig(), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs `job` to its end.
fn run(kernel: Kernel, job: &str) -> Report {
    let dir = TempDir::new().expect("a temporary folder");
    finish(boot(dir.path(), kernel, job, None))
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

/// The server is replaced again and again under writes that are verified. Requests that two servers
/// got: servers count what they get, and the kernel what completes. With `failures` programs then
/// do not take over: each gets a signal within the quarter of a second after the disks are quiet.
fn is_upgraded(kernel: Kernel, failures: &str) -> u64 {
    let job = include_str!("jobs/ublk_upgrades.sh");
    let head = format!("UPGRADES={UPGRADES}\nFAILURES={failures}\n");
    let report = run(kernel, &format!("{head}{job}"));
    assert!(number(&report, "rounds") > 0, "nothing was verified");
    let in_flight = number(&report, "in-flight");
    let given = number(&report, "given");
    let completed = number(&report, "completed");
    println!("{UPGRADES} upgrades, {in_flight} in flight, {given} given, {completed} completed");
    let again = given.checked_sub(completed);
    let again = again.expect("servers get what completes");
    assert!(in_flight > u64::from(UPGRADES));
    again
}

/// An exerciser of file systems finds what it has written, while the server is killed.
fn is_exercised(kernel: Kernel, operations: u32) {
    let fsx = debian::on_path("fsx");
    let fsx =
        fsx.expect("no fsx: cargo xtask setup fetches it, cargo xtask test has it on its PATH");
    let mut program = std::fs::read(fsx).expect("it can be read");
    let len = program.len();
    // A disk has whole sectors.
    program.resize(len.next_multiple_of(512), 0);
    let dir = TempDir::new().expect("a temporary folder");
    let file = dir.path().join("fsx");
    std::fs::write(&file, program).expect("the folder is ours");
    let job = include_str!("jobs/ublk_fsx.sh");
    let job = format!("FSX_LEN={len}\nOPERATIONS={operations}\n{job}");
    finish(boot(dir.path(), kernel, &job, Some(&file)));
}

/// How often a server is replaced.
const UPGRADES: u32 = 3;
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
fn an_upgrade_executes_no_request_of_a_disk_again() {
    assert_eq!(is_upgraded(Kernel::Backports, ""), 0);
}

/// Linux 6.12 cannot quiesce a device.
#[test]
fn an_upgrade_loses_no_request_of_a_disk_on_the_release() {
    is_upgraded(Kernel::Stable, "");
}

#[test]
fn a_user_without_privileges_serves_disks() {
    run(Kernel::Backports, include_str!("jobs/ublk_unprivileged.sh"));
}

#[test]
fn a_user_without_privileges_serves_disks_on_the_release() {
    run(Kernel::Stable, include_str!("jobs/ublk_unprivileged.sh"));
}

#[test]
fn zones_are_those_of_the_kernels_own() {
    run(Kernel::Stable, ZONED);
}

#[test]
fn an_exerciser_of_file_systems_finds_what_it_wrote() {
    is_exercised(Kernel::Backports, 1500);
}

#[test]
fn a_disk_of_memory_waits_for_no_other_server() {
    run(Kernel::Backports, include_str!("jobs/ublk_memory.sh"));
}

#[test]
fn a_full_file_system_below_a_disk_is_an_error_until_it_has_room() {
    run(Kernel::Stable, include_str!("jobs/ublk_full.sh"));
}

#[test]
fn a_flush_at_the_end_of_a_disk_has_a_bound() {
    run(Kernel::Backports, include_str!("jobs/ublk_flush.sh"));
}

#[test]
fn the_end_of_one_disk_ends_no_other() {
    run(Kernel::Backports, include_str!("jobs/ublk_ends.sh"));
}

mod slow {
    use guest_rig::Kernel;

    use super::{ZONED, is_exercised, is_upgraded, outlives_its_server, run};
    use crate::served::text;

    /// How often the server is killed.
    const DEATHS: u32 = 20;

    /// These need a machine that does nothing else.
    #[test]
    fn a_program_that_does_not_take_over_changes_nothing() {
        assert_eq!(is_upgraded(Kernel::Backports, "yes"), 0);
    }

    #[test]
    fn a_program_that_does_not_take_over_changes_nothing_on_the_release() {
        is_upgraded(Kernel::Stable, "yes");
    }

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
    fn an_exerciser_of_file_systems_finds_what_it_wrote_on_the_release() {
        is_exercised(Kernel::Stable, 1500);
    }

    #[test]
    fn a_disk_of_memory_waits_for_no_other_server_on_the_release() {
        run(Kernel::Stable, include_str!("jobs/ublk_memory.sh"));
    }

    #[test]
    fn a_full_file_system_below_a_disk_on_a_newer_kernel() {
        run(Kernel::Backports, include_str!("jobs/ublk_full.sh"));
    }

    #[test]
    fn a_flush_at_the_end_of_a_disk_has_a_bound_on_the_release() {
        run(Kernel::Stable, include_str!("jobs/ublk_flush.sh"));
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
