//! A simulation's plan, and its results.

use std::sync::Arc;

use model::{Initial, Parameters};

use crate::error::Error;
use crate::host::HostCost;
use crate::job::Job;
use crate::tally::{Figures, JobTally, Point};
use crate::trace::Trace;

/// Work of the hosts.
#[derive(Clone, Debug)]
pub enum Workload {
    /// The sections of a job file.
    Jobs(Vec<Job>),
    /// Arrivals, as they were recorded.
    Trace(Trace),
}

/// A simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Work of the hosts.
    pub workload: Workload,
    /// How long, at most.
    pub virtual_ns: u64,
    /// How long until what is done counts; the series has it all.
    pub warmup_ns: u64,
    /// Length of the intervals of the series.
    pub interval_ns: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Time of a host's software.
    pub cost: HostCost,
    /// Arrivals beyond the end of the drive go to what is left of their place when it is divided by
    /// its size.
    pub wrap: bool,
    /// Commands in flight of each queue of a trace.
    pub trace_depth: u16,
    /// The state that a drive of conventional flash begins with; others begin fresh.
    pub initial: Initial,
    /// Takes precedence: the state that the drive begins with, as [`model::Flash::save`] wrote it.
    pub state: Option<Arc<[u8]>>,
}

/// How far a simulation is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since its start, of its own.
    pub virtual_ns: u64,
    /// Commands that are done.
    pub commands: u64,
}

/// Results of a simulation.
#[derive(Debug)]
pub struct Ran {
    /// The measured time: without the warm-up, and until the end or until all was done.
    pub elapsed_ns: u64,
    /// Part of it that each job took.
    pub runtime_ns: Vec<u64>,
    /// Results of the jobs.
    pub jobs: Vec<JobTally>,
    /// The same over time, from the start on.
    pub points: Vec<Point>,
    /// Work inside of the drive in the measured time.
    pub drive: Figures,
    /// Commands in all.
    pub commands: u64,
    /// Turns of the engine, and instants at which something happened.
    pub turns: u64,
    /// See there.
    pub instants: u64,
    /// Arrivals of a trace that come after the end.
    pub unsubmitted: u64,
    /// It was ended early.
    pub stopped: bool,
}

impl Plan {
    /// The same with the parts of its jobs in bytes.
    pub(crate) fn on(&self, parameters: &Parameters) -> Result<Self, Error> {
        let zone = match parameters {
            Parameters::Zones(zones) => Some(zones.zone_size_bytes),
            _ => None,
        };
        let mut plan = self.clone();
        if let Workload::Jobs(jobs) = &mut plan.workload {
            for job in jobs {
                *job = job.on_zones(zone)?;
            }
        }
        Ok(plan)
    }
}
