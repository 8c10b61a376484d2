//! A server whose worker is killed again and again (`serve --survive`): its guest does not notice.

use std::thread;
use std::time::{Duration, Instant};

use guest_rig::{Guest, Options};

use crate::images::check_ext4;
use crate::served::{Served, finish, number, tell, wait};

const CONFIG: &str = r#"
[[media]]
name = "disk"
size = "384MiB"
MEDIUM

[[namespace]]
name = "root"
media = "disk"
range = "0MiB..320MiB"

[[namespace]]
name = "raw"
media = "disk"
range = "320MiB..384MiB"

[[controller]]
name = "vm"
namespaces = ["root", "raw"]
listen = "vfio-user:DIR/vm.sock"
doorbells = "DOORBELLS"
"#;

const FILE: &str = "kind = \"file\"\npath = \"DIR/disk.img\"";

const RAM: &str = "kind = \"ram\"";

/// How often each guest's server loses its worker, or two workers in a row, or is upgraded.
const DEATHS: u64 = 22;
const MANY_DEATHS: u64 = 200;
/// Those that are upgrades, under the same load.
const UPGRADES: [u64; 2] = [6, 14];
/// A worker that served for a second is no failure of the program, and is always replaced.
const SERVICE: Duration = Duration::from_millis(1050);
/// The bound on the time without a worker. An idle machine needs a fiftieth.
const PAUSE: Duration = Duration::from_secs(10);

#[test]
fn a_guest_does_not_notice_that_workers_die() {
    verifies(FILE, "unmapped", DEATHS);
}

#[test]
fn databases_are_whole_when_workers_have_died() {
    let mut served = start(FILE, "unmapped");
    let mut guest = served.boot(
        "vm",
        include_str!("jobs/survive_database.sh"),
        Options::default(),
    );
    kill_workers(&mut served, &mut guest, DEATHS);
    let report = finish(guest);
    let commits = number(&report, "commits");
    println!("commits: {commits}");
    assert!(commits > DEATHS);
    served.stop();
}

mod slow {
    use super::*;

    #[test]
    fn a_guest_with_trapped_doorbells_does_not_notice_that_workers_die() {
        verifies(FILE, "trapped", DEATHS);
    }

    #[test]
    fn a_guest_of_a_drive_in_memory_does_not_notice_that_workers_die() {
        verifies(RAM, "unmapped", DEATHS);
    }

    #[test]
    fn a_guest_does_not_notice_that_200_workers_die() {
        verifies(FILE, "unmapped", MANY_DEATHS);
    }

    #[test]
    fn a_guest_of_a_drive_in_memory_does_not_notice_that_200_workers_die() {
        verifies(RAM, "unmapped", MANY_DEATHS);
    }

    #[test]
    fn a_reset_succeeds_while_workers_die() {
        resets();
    }
}

fn resets() {
    let mut served = start(FILE, "unmapped");
    let mut guest = served.boot(
        "vm",
        include_str!("jobs/survive_resets.sh"),
        Options::default(),
    );
    kill_workers(&mut served, &mut guest, DEATHS);
    let report = finish(guest);
    // the first start, and each reset
    assert!(number(&report, "resets") > 10);
    served.stop();
}

#[test]
fn files_are_whole_when_workers_have_died() {
    let mut served = start(FILE, "unmapped");
    let mut guest = served.boot(
        "vm",
        include_str!("jobs/survive_files.sh"),
        Options::default(),
    );
    kill_workers(&mut served, &mut guest, DEATHS);
    let report = finish(guest);
    assert!(number(&report, "files") > DEATHS);
    let stopped = served.stop();
    check_ext4(&stopped.file("disk.img"), 0);
}

/// A guest writes and verifies, and sends admin commands, while the server's workers are killed.
fn verifies(medium: &str, doorbells: &str, deaths: u64) {
    let mut served = start(medium, doorbells);
    let mut guest = served.boot("vm", include_str!("jobs/survive.sh"), Options::default());
    kill_workers(&mut served, &mut guest, deaths);
    let report = finish(guest);
    let longest = Duration::from_micros(number(&report, "longest-us"));
    println!("longest command: {longest:?}");
    assert!(number(&report, "rounds") > 0, "nothing was verified");
    served.stop();
}

fn start(medium: &str, doorbells: &str) -> Served {
    let config = CONFIG.replace("MEDIUM", medium);
    Served::start_surviving(&config.replace("DOORBELLS", doorbells))
}

/// Kills workers at random times while the guest's job is at work, and prints for how long there
/// was none. Every other time the next worker is killed as well, perhaps before it serves.
fn kill_workers(served: &mut Served, guest: &mut Guest, deaths: u64) {
    let mut random = Random(1);
    let mut pauses = Vec::new();
    wait(guest, "loaded");
    for death in 0..deaths {
        let since = Instant::now();
        wait(guest, "again");
        let service = SERVICE + random.below(Duration::from_millis(450));
        thread::sleep(service.saturating_sub(since.elapsed()));
        if UPGRADES.contains(&death) {
            served.upgrade();
        } else {
            served.kill_worker();
        }
        if death % 2 == 1 {
            thread::sleep(random.below(Duration::from_millis(400)));
            served.kill_worker();
        }
        let line = served.wait_for_line(CONTINUE);
        if UPGRADES.contains(&death) {
            let before = &served.ask("/v1/process")["before"];
            assert_eq!(before["cause"], "upgrade");
            assert_eq!(before["replayed"], 0, "a command was executed twice");
            assert_eq!(before["interrupted"], 0);
        }
        let pause = pause_of(&line);
        assert!(pause < PAUSE, "hosts waited for {pause:?}");
        pauses.push(pause);
        tell(guest, "killed");
    }
    wait(guest, "again");
    tell(guest, "stop");
    pauses.sort();
    let (median, longest) = (pauses[pauses.len() / 2], pauses[pauses.len() - 1]);
    println!("pauses: {median:?} (median), {longest:?} (maximum)");
}

/// The holder's line when a worker serves again.
const CONTINUE: &str = "hosts continue after ";

fn pause_of(line: &str) -> Duration {
    let (_, after) = line.split_once(CONTINUE).expect("the line has it");
    let (number, _) = after.split_once(" ms").expect("milliseconds");
    Duration::from_millis(number.parse().expect("a number"))
}

/// A sequence of pseudo-random numbers that is always the same (xorshift64).
struct Random(u64);

impl Random {
    /// A time below `bound`, in milliseconds.
    fn below(&mut self, bound: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let bound = bound.as_millis() as u64;
        Duration::from_millis(self.0 % bound)
    }
}
