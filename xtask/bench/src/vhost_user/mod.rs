//! `cargo xtask bench vhost`: back ends of vhost-user-blk, by the polling front end of the tests.
//!
//! A round starts each server again, alone, and measures every case once; the order within a pair
//! alternates. The client is the same for every back end, except that a disk in memory is also
//! compared with the program's own host over vfio-user. A row has medians of its rounds, and a pair
//! the median of the differences or ratios of its rounds.

mod client;
mod idle;
mod report;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use guest_rig::Rig;
use xtask_shared::process::Interrupt;
use xtask_shared::workspace::Workspace;

use self::client::{BackEnd, Ring, measure};
use self::report::{Measured, NullCase, Pair};
use super::ours::{Disks, Ours, Setup, placement};
use super::sample::Sample;
use super::vhost::Export;
use super::{Cpus, SIZE, SIZE_MIB, memory_dir, write_file};

/// Parts, in their order.
const PARTS: [&str; 4] = ["null", "ram", "file", "idle"];

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct VhostArgs {
    /// Only these: a disk of nothing; one of memory, beside vfio-user; one of a file in memory,
    /// beside qemu-storage-daemon; idle front ends
    #[arg(long, value_delimiter = ',', default_values = PARTS, value_parser = PARTS)]
    only: Vec<String>,
    /// Seconds for each figure
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How often everything is measured, except idle front ends
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    cpus: Cpus,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// Rings and requests in flight, of a disk of nothing.
const NULL_CASES: [(Ring, u64); 4] = [
    (Ring::Split, 1),
    (Ring::Split, 32),
    (Ring::Packed, 1),
    (Ring::Packed, 32),
];
/// Requests in flight, of a disk of memory.
const RAM_DEPTH: u64 = 32;
/// Requests in flight, of a file.
const FILE_DEPTHS: [u64; 2] = [1, 32];

/// A run.
struct Bench<'a> {
    workspace: &'a Workspace,
    interrupt: &'a Interrupt,
    args: &'a VhostArgs,
    /// The program of others and its file, where a file is measured.
    daemon: Option<Daemon>,
}

struct Daemon {
    rig: Rig,
    /// In memory.
    dir: tempfile::TempDir,
    file: PathBuf,
}

impl Daemon {
    fn prepare() -> Result<Self> {
        let rig = Rig::prepare(&mut |_| {})?;
        let dir = memory_dir()?;
        let file = dir.path().join("file");
        write_file(&file, SIZE_MIB)?;
        Ok(Self { rig, dir, file })
    }
}

/// Measures, and writes tables.
///
/// # Errors
/// A server cannot be started, cannot be reached or stops, or we are asked to stop.
pub(super) fn run(workspace: &Workspace, interrupt: &Interrupt, args: &VhostArgs) -> Result<()> {
    let wants = |part: &str| args.only.iter().any(|only| only == part);
    let bench = Bench {
        workspace,
        interrupt,
        args,
        daemon: wants("file").then(Daemon::prepare).transpose()?,
    };
    let mut measured = Measured::default();
    let is_more_than_idle = PARTS[..3].iter().any(|part| wants(part));
    let rounds = if is_more_than_idle { args.rounds } else { 0 };
    for round in 0..rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        let is_even = round.is_multiple_of(2);
        if wants("null") {
            bench.null(&mut measured.null).context("null")?;
        }
        if wants("ram") {
            measured.ram.push(bench.ram(is_even).context("ram")?);
        }
        if let Some(daemon) = &bench.daemon {
            let files = bench.files(daemon, is_even).context("file")?;
            measured.files.push(files);
        }
    }
    if wants("idle") {
        eprintln!("idle front ends");
        measured.idle = Some(idle::measure(workspace, interrupt, args.cpus)?);
    }
    report::report(workspace, args.json, &measured)
}

impl Bench<'_> {
    fn start(&self, setup: &Setup) -> Result<Ours<'_>> {
        Ours::start(self.workspace, setup, self.args.cpus.pair())
    }

    /// Every ring and depth of a disk of nothing.
    fn null(&self, cases: &mut Vec<NullCase>) -> Result<()> {
        let setup = Setup {
            disks: Disks::Only,
            ..Setup::new("null", SIZE)
        };
        let ours = self.start(&setup)?;
        for (at, (ring, depth)) in NULL_CASES.into_iter().enumerate() {
            if cases.len() == at {
                cases.push(NullCase::new(ring, depth));
            }
            let sample = self.sample(&BackEnd::ours(&ours), ring, depth)?;
            cases[at].samples.push(sample);
        }
        ours.stop()
    }

    /// A disk of memory, and a drive of the same namespace over vfio-user.
    fn ram(&self, disk_first: bool) -> Result<Pair> {
        let setup = Setup {
            disks: Disks::Beside,
            ..Setup::new("ram", SIZE)
        };
        let ours = self.start(&setup)?;
        ours.fill(SIZE_MIB)?;
        let seconds = self.args.seconds;
        let args = format!("--rw randread --qd {RAM_DEPTH} --time {seconds}s");
        let pair = pair(
            disk_first,
            || self.sample(&BackEnd::ours(&ours), Ring::Split, RAM_DEPTH),
            || {
                ensure!(!self.interrupt.is_set(), "interrupted");
                ours.sample(&args)
            },
        )?;
        ours.stop()?;
        Ok(pair)
    }

    /// A disk of a file by both servers, at each depth.
    fn files(&self, daemon: &Daemon, ours_first: bool) -> Result<[Pair; 2]> {
        let setup = Setup {
            path: Some(daemon.file.clone()),
            disks: Disks::Only,
            // As the daemon, it sleeps where it can.
            mode: "adaptive",
            ..Setup::new("file", SIZE)
        };
        let depths = |back_end: &BackEnd<'_>| {
            let [one, other] = FILE_DEPTHS.map(|depth| self.sample(back_end, Ring::Split, depth));
            anyhow::Ok([one?, other?])
        };
        let ours = || {
            let ours = self.start(&setup)?;
            let samples = depths(&BackEnd::ours(&ours))?;
            ours.stop()?;
            anyhow::Ok(samples)
        };
        let theirs = || {
            let (dir, cpus) = (daemon.dir.path(), self.args.cpus.pair());
            let export = Export::start(&daemon.rig, &daemon.file, dir, cpus)?;
            depths(&BackEnd::export(&export))
        };
        let ([ours_1, ours_32], [theirs_1, theirs_32]) = both(ours_first, ours, theirs)?;
        Ok([Pair::new(ours_1, theirs_1), Pair::new(ours_32, theirs_32)])
    }

    /// A measurement with a look at the placement before and after.
    fn sample(&self, back_end: &BackEnd<'_>, ring: Ring, depth: u64) -> Result<Sample> {
        ensure!(!self.interrupt.is_set(), "interrupted");
        let (_, host_cpu) = self.args.cpus.pair();
        let before = placement(self.workspace, self.args.cpus)?;
        let sample = measure(back_end, ring, depth, self.args.seconds, host_cpu)?;
        let is_same = before == placement(self.workspace, self.args.cpus)?;
        Ok(Sample {
            placement: if is_same { before } else { "mixed".into() },
            ..sample
        })
    }
}

fn pair(
    ours_first: bool,
    ours: impl FnOnce() -> Result<Sample>,
    other: impl FnOnce() -> Result<Sample>,
) -> Result<Pair> {
    both(ours_first, ours, other).map(|(ours, other)| Pair::new(ours, other))
}

/// One after the other: the second one finds other caches.
fn both<T>(
    one_first: bool,
    one: impl FnOnce() -> Result<T>,
    other: impl FnOnce() -> Result<T>,
) -> Result<(T, T)> {
    if one_first {
        let one = one()?;
        Ok((one, other()?))
    } else {
        let other = other()?;
        Ok((one()?, other))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_order_of_a_pair_is_the_callers() {
        let order = RefCell::new(Vec::new());
        for one_first in [true, false] {
            let step = |name| {
                order.borrow_mut().push(name);
                Ok(name)
            };
            let both = both(one_first, || step("one"), || step("other")).unwrap();
            assert_eq!(both, ("one", "other"));
        }
        assert_eq!(order.take(), ["one", "other", "other", "one"]);
    }
}
