//! Hosts, controllers and drives on a virtual clock: what a workload does to a drive, as fast as
//! one processor computes it.
//!
//! The driver, controller and engine are those that serve real hosts, and so is the drive, a medium
//! with a timing model. Only time is not: it is a number, which [`run`] moves on to whatever
//! happens next. The same plan gives the same results, bit for bit, on any machine.
//!
//! Reading order: [`fio`] and [`trace`] (what workloads are), [`job`] (what they come to), `host`
//! (a thread with its queue pair), `world` (the clock), [`tally`] (what is counted), [`output`]
//! (how it is told); beside them [`points`], at which drives are compared.
//!
//! Invariants: no clock, no thread, no unordered iteration and no floating point; a turn of the
//! engine takes no time, and what can happen at an instant happens before the clock moves on.
//!
//! What it does NOT do: move data (a drive that is asked for its bytes has none), lose power, or
//! simulate anything of the host above its driver but a fixed cost.
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

/// What hosts do.
#[derive(Clone, Debug)]
pub enum Workload {
    /// The sections of a job file.
    Jobs(Vec<Job>),
    /// Arrivals, as they were recorded.
    Trace(trace::Trace),
}

/// A simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What hosts do.
    pub workload: Workload,
    /// How long, at most.
    pub virtual_ns: u64,
    /// How long until what is done counts; the series has it all.
    pub warmup_ns: u64,
    /// Length of the intervals of the series.
    pub interval_ns: u64,
    /// What everything random is made from.
    pub seed: u64,
    /// What a host's software takes.
    pub cost: HostCost,
    /// Arrivals beyond the end of the drive go to what is left of their place when it is divided by
    /// its size.
    pub wrap: bool,
    /// Commands in flight of each queue of a trace.
    pub trace_depth: u16,
    /// The drive, of flash, begins in the steady state of random overwrites of single pages.
    pub prepared: bool,
}

/// How far a simulation is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since its start, of its own.
    pub virtual_ns: u64,
    /// Commands that are done.
    pub commands: u64,
}

/// What a simulation has come to.
#[derive(Debug)]
pub struct Ran {
    /// The measured time: without the warm-up, and until the end or until all was done.
    pub elapsed_ns: u64,
    /// What of it each job took.
    pub runtime_ns: Vec<u64>,
    /// What jobs did.
    pub jobs: Vec<JobTally>,
    /// The same over time, from the start on.
    pub points: Vec<Point>,
    /// What the drive did inside in the measured time.
    pub drive: Figures,
    /// Commands in all.
    pub commands: u64,
    /// Turns of the engine, and instants at which something happened.
    pub turns: u64,
    /// See there.
    pub instants: u64,
    /// It was ended early.
    pub stopped: bool,
}

/// Why a simulation cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The driver cannot.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The controller cannot be made.
    #[error(transparent)]
    Controller(#[from] ConfigError),
    /// The drive cannot be made.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// It cannot be used.
    #[error("cannot use the drive: {0}")]
    Channel(#[source] std::io::Error),
    /// There is no memory.
    #[error("cannot make memory for doorbells: {0}")]
    Memory(#[source] std::io::Error),
    /// A job does not fit the drive.
    #[error("[{name}]: {why}")]
    Job {
        /// Its section.
        name: String,
        /// Why, and what to do.
        why: String,
    },
    /// More workers than queue pairs.
    #[error("{count} workers in all: a controller has 64 queue pairs; lower numjobs")]
    Workers {
        /// How many.
        count: usize,
    },
    /// A command is too large.
    #[error("a command of {len} bytes: the drive takes 2097152 at most")]
    TooLarge {
        /// Its bytes.
        len: u64,
    },
    /// An arrival lies beyond the end of the drive.
    #[error(
        "{len} bytes at {offset} lie beyond the end of a drive of {size} bytes: give a larger --size, or --wrap"
    )]
    BeyondEnd {
        /// Its first byte.
        offset: u64,
        /// Its bytes.
        len: u64,
        /// The drive's.
        size: u64,
    },
    /// A trace asks for what the drive has not.
    #[error(
        "the workload has a {command}, and a drive of kind {kind} has no such command: take another preset"
    )]
    NoSuchCommand {
        /// Which.
        command: &'static str,
        /// The drive's kind.
        kind: &'static str,
    },
    /// The drive cannot be prepared.
    #[error(transparent)]
    Prepared(#[from] model::ParameterError),
    /// It is of another kind.
    #[error("only a drive of flash that collects is prepared: this one is of kind {kind}")]
    NotPrepared {
        /// Its kind.
        kind: &'static str,
    },
    /// The state of a drive that was prepared is not taken.
    #[error("cannot begin with a prepared drive: {0}")]
    State(#[from] model::StateError),
    /// Commands are in flight, and nothing happens any more.
    #[error(
        "after {at_ns} ns nothing happens any more: {told} commands submitted, {fetched} fetched, {posted} done"
    )]
    Stuck {
        /// When, since the start.
        at_ns: u64,
        /// Commands that the drive was told of.
        told: u64,
        /// Those that it took.
        fetched: u64,
        /// Those that it finished.
        posted: u64,
    },
}

/// Runs `plan` on a drive of `size` bytes, which `parameters` describe. It tells `progress` now and
/// then how far it is, and ends early when that says so.
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
