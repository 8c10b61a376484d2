//! Work of a plan: every queue pair with its commands, and the groups in which they begin.

use std::rc::Rc;

use model::Parameters;

use super::Group;
use crate::fio::TRANSFER_MAX;
use crate::host::Telling;
use crate::job::{self, Job};
use crate::tally::JobTally;
use crate::trace::{Arrival, Trace};
use crate::{Error, Plan, Workload};

/// Information for hosts of a drive whose hosts choose its model's operations.
pub(super) fn telling(parameters: &Parameters, plan: &Plan) -> Rc<Telling> {
    Rc::new(Telling {
        zone: match parameters {
            Parameters::Zones(zones) => zones.zone_size_bytes,
            _ => 0,
        },
        compounds: match &plan.workload {
            Workload::Trace(trace) => trace.compounds.clone(),
            Workload::Jobs(_) => Vec::new(),
        },
    })
}

/// Work of the world.
pub(super) enum Work<'a> {
    Job(usize, &'a Job, u16),
    Trace(Vec<Arrival>),
}

/// Every queue pair with its depth, the groups that they begin in, and the jobs.
pub(super) type Filling<'a> = (Vec<(u16, Work<'a>)>, Vec<Group>, Vec<JobTally>);

/// Every queue pair with its depth, the groups that they begin in, and the names of the jobs.
pub(super) fn work(plan: &Plan, size: u64) -> Result<Filling<'_>, Error> {
    let mut all = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut names = Vec::new();
    match &plan.workload {
        Workload::Jobs(jobs) => {
            for (number, job) in jobs.iter().enumerate() {
                let first = all.len();
                all.extend(
                    (0..job.workers).map(|worker| (job.depth, Work::Job(number, job, worker))),
                );
                names.push(JobTally::of_job(job));
                match groups.last_mut() {
                    Some(group) if !job.after_others => group.hosts.end = all.len(),
                    _ => groups.push(Group {
                        hosts: first..all.len(),
                    }),
                }
            }
        }
        Workload::Trace(trace) => {
            let queues = by_queue(trace, plan.wrap, size)?;
            all.extend(
                queues
                    .into_iter()
                    .map(|arrivals| (plan.trace_depth, Work::Trace(arrivals))),
            );
            names.push(JobTally::new("trace"));
            groups.push(Group {
                hosts: 0..all.len(),
            });
        }
    }
    Ok((all, groups, names))
}

/// Rejects commands that the kind of drive does not support.
pub(super) fn check_kinds(plan: &Plan, parameters: &Parameters) -> Result<(), Error> {
    let (keys, zones) = match parameters {
        Parameters::Kv(_) => (true, false),
        Parameters::Zones(_) => (false, true),
        Parameters::Nvm(_) | Parameters::Flash(_) => (false, false),
    };
    let unfit = |kind: &job::Kind| match kind {
        job::Kind::Flush => false,
        kind if kind.is_of_zones() => !zones,
        kind => kind.is_of_keys() != keys,
    };
    let found = match &plan.workload {
        Workload::Jobs(jobs) => {
            let job = jobs.iter().find(|job| job.keyed != keys);
            job.and_then(|job| job.kinds.first().copied())
        }
        Workload::Trace(trace) => {
            let mut kinds = trace.arrivals.iter().map(|arrival| arrival.op.kind);
            kinds.find(unfit)
        }
    };
    match found {
        None => Ok(()),
        Some(kind) => Err(Error::NoSuchCommand {
            command: kind.name(),
            kind: parameters.kind().name(),
        }),
    }
}

/// The arrivals of each queue that has any.
fn by_queue(trace: &Trace, wrap: bool, size: u64) -> Result<Vec<Vec<Arrival>>, Error> {
    let mut queues: Vec<(u16, Vec<Arrival>)> = Vec::new();
    for arrival in &trace.arrivals {
        let mut arrival = *arrival;
        let op = &mut arrival.op;
        let keyed = op.kind.is_of_keys();
        let data = matches!(op.kind, job::Kind::Read | job::Kind::Write) || keyed;
        if data && op.kind != job::Kind::Compound && op.len > TRANSFER_MAX {
            return Err(Error::TooLarge { len: op.len });
        }
        if !keyed && op.offset.saturating_add(op.len) > size {
            if !wrap || op.len > size {
                return Err(Error::BeyondEnd {
                    offset: op.offset,
                    len: op.len,
                    size,
                });
            }
            op.offset = (op.offset % size).min(size - op.len);
        }
        match queues.binary_search_by_key(&arrival.queue, |(queue, _)| *queue) {
            Ok(at) => queues[at].1.push(arrival),
            Err(at) => queues.insert(at, (arrival.queue, vec![arrival])),
        }
    }
    Ok(queues.into_iter().map(|(_, arrivals)| arrivals).collect())
}
