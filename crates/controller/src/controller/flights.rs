//! Sampling of commands ([`crate::flight`]): the settings of every lane of a controller, and the
//! records of lanes that are gone.

use std::sync::Arc;

use port::ticket::OwnerKey;

use super::Controller;
use super::admin::queues::IoCq;
use crate::counters::{Counted, LaneCounters, Past, QueueCounted};
use crate::flight::{FlightRecords, WatchSpec, Watched, Watching};
use crate::lane::{LaneCommand, LaneTable};

/// Sampling state of a controller.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    spec: Option<WatchSpec>,
    /// Counts of deleted queues.
    past: Arc<Past>,
}

impl Controller {
    /// Watches commands of every queue from now on, also of those that its host will make, or none
    /// any more. Counts stay.
    pub fn watch_commands(&mut self, spec: Option<WatchSpec>, lanes: &mut impl LaneTable) {
        self.flights.spec = spec;
        for cqid in 1..=self.config.queues {
            if let Some(key) = self.queues.lane_of_cq(cqid) {
                self.watch_lane(cqid, key, lanes);
            }
        }
    }

    /// Sends a lane its sampling settings.
    pub(crate) fn watch_lane(&mut self, cqid: u16, key: OwnerKey, lanes: &mut impl LaneTable) {
        let spec = self.flights.spec.clone();
        let Some(cq) = self.queues.cq_mut(cqid) else {
            return;
        };
        let watching = spec.and_then(|spec| {
            let trace = spec.trace.and_then(|trace| trace.of_queue(cqid));
            if spec.every == 0 && trace.is_none() {
                return None;
            }
            let watched = cq.watched.take();
            let (flight, records) = watched.map_or_else(Default::default, |watched| {
                (watched.flight, Some(watched.records))
            });
            let records = records.filter(|records| records.room() == spec.records.max(1));
            let records = records.unwrap_or_else(|| Arc::new(FlightRecords::new(spec.records)));
            cq.watched = Some(Watched {
                flight: flight.clone(),
                records: records.clone(),
            });
            Some(Watching {
                every: spec.every,
                clock: spec.clock,
                records,
                flight,
                trace,
            })
        });
        lanes.command(key, LaneCommand::Watch(watching));
    }

    /// Keeps the counts of a deleted completion queue.
    pub(crate) fn keep_flight(&mut self, cqid: u16, cq: &IoCq) {
        let past = &self.flights.past;
        let past = past.with_queue(cqid, &cq.counters, cq.watched.as_ref());
        self.flights.past = Arc::new(past);
    }

    /// Its counts, for monitoring.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let queue = |(cqid, cq): (u16, &IoCq)| {
            let counters: &LaneCounters = &cq.counters;
            // what is fetched and completed in between counts as in flight
            let completions = counters.completions.get();
            let in_flight = counters.fetched.get().saturating_sub(completions);
            QueueCounted {
                cqid,
                // one that has stopped counts its end no more
                in_flight: cq.lane.map_or(0, |_| in_flight),
                completions,
                errors: counters.errors.get(),
                interrupts: counters.interrupts.get(),
                interrupts_spared: counters.interrupts_spared.get(),
                rests: counters.rests.get(),
                replayed: counters.replayed.get(),
                interrupted: counters.interrupted.get(),
                counters: cq.counters.clone(),
                watched: cq.watched.clone(),
            }
        };
        Counted {
            health: self.health().counted,
            queues: self.queues.cqs().map(queue).collect(),
            past: self.flights.past.clone(),
            sample: self.flights.spec.as_ref().map_or(0, |spec| spec.every),
            records: self.flights.spec.as_ref().map_or(0, |spec| spec.records),
            hosts: Vec::new(),
        }
    }
}
