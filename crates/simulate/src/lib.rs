//! Simulation of hosts, controllers and drives on a virtual clock: the effect of a workload on a
//! drive, at the speed of one processor.
//!
//! Driver, controller and engine are those that serve real hosts, and the drive is a medium with a
//! timing model. Only time differs: it is a number, which [`run`] advances to the next event. The
//! same plan gives the same results, bit for bit, on any machine.
//!
//! Reading order: [`fio`] and [`trace`] (input formats), [`job`] (commands), `host` (a thread with
//! its queue pair), `world` (the clock), [`tally`] (counters), [`output`] (reports); and
//! [`points`], at which drives are compared.
//!
//! Invariants: no clock, no thread, no unordered iteration and no floating point; a turn of the
//! engine takes no time, and everything that can happen at an instant happens before the clock
//! advances.
//!
//! Not included: data (a drive without contents stores none), power loss, and the host's software
//! above the driver, except for a fixed cost.
#![forbid(unsafe_code)]

mod bus;
mod fixed;
mod histogram;
mod host;
mod job;
mod places;
mod tally;
mod world;
mod zones;

pub mod fio;
pub mod output;
pub mod points;
pub mod recording;
pub mod trace;

use std::ops::ControlFlow;

use controller::config::ConfigError;
use driver::DriverError;
pub use histogram::Histogram;
pub use host::HostCost;
pub use job::{Arrivals, Distribution, Extent, Job, Kind, Op, key_of};
use media::MediumError;
use model::Parameters;
pub use tally::{Asked, Commands, Figures, JobTally, Moment, Point};
use world::World;

/// Workload of the hosts.
#[derive(Clone, Debug)]
pub enum Workload {
    /// The sections of a job file.
    Jobs(Vec<Job>),
    /// Recorded arrivals.
    Trace(trace::Trace),
}

/// A simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Workload of the hosts.
    pub workload: Workload,
    /// Maximum virtual duration.
    pub virtual_ns: u64,
    /// Warm-up time, which is excluded from results but not from the series.
    pub warmup_ns: u64,
    /// Length of the intervals of the series.
    pub interval_ns: u64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Cost of a host's software.
    pub cost: HostCost,
    /// Whether arrivals beyond the end of the drive go to their position modulo its size.
    pub wrap: bool,
    /// Commands in flight of each queue of a trace.
    pub trace_depth: u16,
    /// Whether the drive, which must be flash, begins in the steady state of random overwrites of
    /// single pages.
    pub prepared: bool,
}

/// Progress of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Virtual time since the start.
    pub virtual_ns: u64,
    /// Completed commands.
    pub commands: u64,
}

/// Result of a simulation.
#[derive(Debug)]
pub struct Ran {
    /// Measured time: from the end of the warm-up to the end, or until all work was done.
    pub elapsed_ns: u64,
    /// Part of it for each job.
    pub runtime_ns: Vec<u64>,
    /// Counters of jobs.
    pub jobs: Vec<JobTally>,
    /// Series over time, from the start.
    pub points: Vec<Point>,
    /// Internal counters of the drive in the measured time.
    pub drive: Figures,
    /// Total number of commands.
    pub commands: u64,
    /// Turns of the engine.
    pub turns: u64,
    /// Instants at which something happened.
    pub instants: u64,
    /// Whether it was stopped early.
    pub stopped: bool,
}

/// Why a simulation cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Error of the driver.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The controller cannot be created.
    #[error(transparent)]
    Controller(#[from] ConfigError),
    /// The drive cannot be created.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// The drive cannot be opened.
    #[error("cannot use the drive: {0}")]
    Channel(#[source] std::io::Error),
    /// Not enough memory.
    #[error("cannot make memory for doorbells: {0}")]
    Memory(#[source] std::io::Error),
    /// A job does not fit the drive.
    #[error("[{name}]: {why}")]
    Job {
        /// Name of its section.
        name: String,
        /// Reason and remedy.
        why: String,
    },
    /// More workers than queue pairs.
    #[error("{count} workers in all: a controller has 64 queue pairs; lower numjobs")]
    Workers {
        /// Number of workers.
        count: usize,
    },
    /// A command is too large.
    #[error("a command of {len} bytes: the drive takes 2097152 at most")]
    TooLarge {
        /// Size of the command in bytes.
        len: u64,
    },
    /// An arrival is beyond the end of the drive.
    #[error(
        "{len} bytes at {offset} lie beyond the end of a drive of {size} bytes: give a larger --size, or --wrap"
    )]
    BeyondEnd {
        /// Its first byte.
        offset: u64,
        /// Its bytes.
        len: u64,
        /// Size of the drive.
        size: u64,
    },
    /// A trace contains a command that the drive does not support.
    #[error(
        "the workload has a {command}, and a drive of kind {kind} has no such command: take another preset"
    )]
    NoSuchCommand {
        /// The command.
        command: &'static str,
        /// Kind of the drive.
        kind: &'static str,
    },
    /// The drive cannot be preconditioned.
    #[error(transparent)]
    Prepared(#[from] model::ParameterError),
    /// Its kind cannot be preconditioned.
    #[error("only a drive of flash that collects is prepared: this one is of kind {kind}")]
    NotPrepared {
        /// Kind of the drive.
        kind: &'static str,
    },
    /// The state of a preconditioned drive was rejected.
    #[error("cannot begin with a prepared drive: {0}")]
    State(#[from] model::StateError),
    /// Commands are in flight, but no event is pending.
    #[error(
        "after {at_ns} ns nothing happens any more: {told} commands submitted, {fetched} fetched, {posted} done"
    )]
    Stuck {
        /// Time since the start.
        at_ns: u64,
        /// Commands announced to the drive.
        told: u64,
        /// Commands that it fetched.
        fetched: u64,
        /// Commands that it completed.
        posted: u64,
    },
}

/// Runs `plan` on a drive of `size` bytes, described by `parameters`. Reports to `progress`
/// periodically, and stops early if that requests it.
///
/// # Errors
/// See [`Error`].
pub fn run(
    parameters: &Parameters,
    size: u64,
    plan: &Plan,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Ran, Error> {
    World::new(parameters, size, plan)?.run(progress)
}
