//! Simulation of hosts, controllers and drives on a virtual clock: the effect of a workload on a
//! drive, at the speed of one processor.
//!
//! Driver, controller and engine are those that serve real hosts, and the drive is a medium with a
//! timing model. Only time differs: it is a number, which [`run`] advances to the next event. The
//! same plan gives the same results, bit for bit, on any machine.
//!
//! Reading order: [`fio`] and [`trace`] (what workloads are), [`job`] (what they come to), `stream`
//! (what a worker of one does next), `host` (a thread with its queue pair), `world` (the clock),
//! [`tally`] (what is counted), [`output`] (how it is printed); beside them [`points`], at which
//! drives are compared, and [`in_flight`], with which they are calibrated.
//!
//! Invariants: no clock, no thread, no unordered iteration and no floating point; a turn of the
//! engine takes no time, and everything that can happen at an instant happens before the clock
//! advances.
//!
//! Not included: data (a drive without contents stores none), power loss, and the host's software
//! above the driver, except for a fixed cost.
#![forbid(unsafe_code)]

mod bus;
mod error;
mod fixed;
mod histogram;
mod host;
mod job;
mod pace;
mod places;
mod plan;
mod stream;
mod tally;
mod world;
mod zones;

pub mod fio;
pub mod in_flight;
pub mod output;
pub mod points;
pub mod recording;
pub mod trace;

use std::ops::ControlFlow;

pub use error::Error;
pub use histogram::Histogram;
pub use host::HostCost;
pub use job::{Arrivals, Distribution, Extent, Job, Kind, Op, Rate, key_of};
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
    let plan = plan.on(parameters)?;
    World::new(parameters, size, &plan)?.run(progress)
}
