//! A lane's reports to its controller.
//!
//! Invariants:
//! - An epoch and a generation are reported as drained once each, in order.
//! - Failures that wait to be logged are bounded: the controller takes events every turn, and a
//!   medium that fails everything must not fill memory in between.

use std::collections::VecDeque;

use super::epochs::Epochs;
use super::message::{FailedCommand, LaneEvent};

/// Failures that wait to be logged, at most.
const MAX_UNLOGGED_FAILURES: u32 = 16;

#[derive(Debug)]
pub(super) struct Reports {
    events: VecDeque<LaneEvent>,
    /// Failures among the events.
    failures: u32,
    /// The last epoch reported as drained.
    epoch: u64,
    /// The last generation of the table of namespaces reported as drained.
    generation: u64,
    /// A change of the map was not acknowledged yet.
    map_pending: bool,
}

impl Reports {
    /// Of a lane that begins drained up to this epoch and generation.
    pub(super) fn new(epoch: u64, generation: u64) -> Self {
        Reports {
            events: VecDeque::new(),
            failures: 0,
            epoch,
            generation,
            map_pending: false,
        }
    }

    pub(super) fn add(&mut self, event: LaneEvent) {
        self.events.push_back(event);
    }

    /// Whether one more failure has room.
    pub(super) fn has_room_for_failure(&self) -> bool {
        self.failures < MAX_UNLOGGED_FAILURES
    }

    pub(super) fn add_failure(&mut self, failed: FailedCommand) {
        self.failures += 1;
        self.events.push_back(LaneEvent::CommandFailed(failed));
    }

    /// The map has changed: that is reported even where the lane is drained up to it already.
    pub(super) fn expect_map(&mut self) {
        self.map_pending = true;
    }

    /// Whether there is something to report.
    pub(super) fn is_any(&self, epochs: &Epochs) -> bool {
        !self.events.is_empty() || self.is_epoch_new(epochs) || self.is_generation_new(epochs)
    }

    /// Takes the next report.
    pub(super) fn take(&mut self, epochs: &Epochs) -> Option<LaneEvent> {
        if let Some(event) = self.events.pop_front() {
            if matches!(event, LaneEvent::CommandFailed(_)) {
                self.failures -= 1;
            }
            return Some(event);
        }
        if self.is_epoch_new(epochs) {
            let epoch = epochs.drained().epoch;
            self.epoch = epoch;
            self.map_pending &= epoch != epochs.current().epoch;
            return Some(LaneEvent::Drained { epoch });
        }
        if self.is_generation_new(epochs) {
            let generation = epochs.drained().generation;
            self.generation = generation;
            return Some(LaneEvent::NamespacesDrained { generation });
        }
        None
    }

    fn is_epoch_new(&self, epochs: &Epochs) -> bool {
        let (drained, current) = (epochs.drained().epoch, epochs.current().epoch);
        drained > self.epoch || self.map_pending && drained == current
    }

    fn is_generation_new(&self, epochs: &Epochs) -> bool {
        epochs.drained().generation > self.generation
    }
}
