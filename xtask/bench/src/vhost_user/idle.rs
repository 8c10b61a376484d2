//! Processor time of a server whose front ends are connected and idle.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use xtask_shared::process::Interrupt;
use xtask_shared::workspace::Workspace;

use super::client::{Ring, connect};
use crate::Cpus;
use crate::ours::{Disks, Ours, Setup};
use crate::process::cpu_time;

/// Back ends of the server, each with a front end of one ring.
pub(super) const FRONT_ENDS: usize = 100;
/// How long the server has had to become idle, and is watched.
const SETTLED: Duration = Duration::from_secs(2);
pub(super) const WATCHED: Duration = Duration::from_secs(10);
/// Memory of each guest, in bytes.
const MEMORY: usize = 1 << 20;
/// Bytes of a read.
const BLOCK: usize = 4096;

/// Connects all front ends, has each read once before and after, and watches the server between:
/// the part of a processor that it takes.
///
/// # Errors
/// The server cannot be started or serves a front end no longer, or we are asked to stop.
pub(super) fn measure(workspace: &Workspace, interrupt: &Interrupt, cpus: Cpus) -> Result<f64> {
    let setup = Setup {
        mode: "adaptive",
        controllers: FRONT_ENDS,
        queues: 1,
        disks: Disks::Only,
        ..Setup::new("null", super::SIZE)
    };
    allow_open_files()?;
    let ours = Ours::start(workspace, &setup, cpus.pair())?;
    let mut disks = Vec::with_capacity(FRONT_ENDS);
    for number in 0..FRONT_ENDS {
        ensure!(!interrupt.is_set(), "interrupted");
        let mut disk = connect(&ours.disk(number), Ring::Split, MEMORY)?;
        disk.read(0, BLOCK).context("a front end that connected")?;
        disks.push(disk);
    }
    thread::sleep(SETTLED);
    let (spent, since) = (cpu_time(ours.pid())?, Instant::now());
    thread::sleep(WATCHED);
    let spent = cpu_time(ours.pid())?.saturating_sub(spent);
    let part = spent.as_secs_f64() / since.elapsed().as_secs_f64();
    ensure!(!interrupt.is_set(), "interrupted");
    for disk in &mut disks {
        disk.read(0, BLOCK).context("a front end that was idle")?;
    }
    drop(disks);
    ours.stop()?;
    Ok(part)
}

/// Raises the limit of open files of this process and its children to the most that it may be: a
/// front end has ten here and its back end 17 in the server, and a usual limit is 1024.
fn allow_open_files() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_the_most_that_it_may_be() {
        allow_open_files().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
