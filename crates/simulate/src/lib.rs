//! Hosts, controllers and drives on a virtual clock: what a workload does to a drive, as fast as
//! one processor computes it.
//!
//! The driver, controller and engine are those that serve real hosts, and so is the drive, a medium
//! with a timing model. Only time is not: it is a number, which [`run`] moves on to whatever
//! happens next. The same plan gives the same results, bit for bit, on any machine.
//!
//! Reading order: [`fio`] and [`trace`] (what workloads are), [`job`] (what they come to), `stream`
//! (what a worker of one does next), `host` (a thread with its queue pair), `world` (the clock),
//! [`tally`] (what is counted), [`output`] (how it is told); beside them [`points`], at which
//! drives are compared.
//!
//! Invariants: no clock, no thread, no unordered iteration and no floating point; a turn of the
//! engine takes no time, and what can happen at an instant happens before the clock moves on.
//!
//! What it does NOT do: move data (a drive that is asked for its bytes has none), lose power, or
//! simulate anything of the host above its driver but a fixed cost.
#![forbid(unsafe_code)]

mod bus;
mod error;
mod fixed;
mod histogram;
mod host;
mod job;
mod places;
mod plan;
mod stream;
mod tally;
mod world;
mod zones;

pub mod fio;
pub mod output;
pub mod points;
pub mod recording;
pub mod trace;

use std::ops::ControlFlow;

pub use error::Error;
pub use histogram::Histogram;
pub use host::HostCost;
pub use job::{Arrivals, Distribution, Extent, Job, Kind, Op, key_of};
use model::Parameters;
pub use plan::{Plan, Progress, Ran, Workload};
pub use tally::{Asked, Commands, Figures, JobTally, Moment, Point};
use world::World;

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
