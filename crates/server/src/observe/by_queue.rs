//! Counts of a controller by completion queue.
//!
//! Hosts over NVMe/TCP have queues of their own, thousands of them, and other ones each time they
//! connect. Queues of one number count together, those of hosts that have left included, so a
//! controller has as many samples as its `queues` allows, and their counters never fall.

use std::collections::BTreeMap;

use super::ControllerCounts;

/// Counters of one completion queue, or the sum of all with one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) in_flight: u64,
    pub(super) completions: u64,
    pub(super) errors: u64,
}

impl ControllerCounts {
    /// See the module. Queues of a host over vfio-user that are gone are in no sum.
    pub(super) fn by_queue(&self) -> BTreeMap<u16, Sums> {
        let mut all = BTreeMap::<u16, Sums>::new();
        for queue in self.counted.all_queues() {
            let sums = all.entry(queue.cqid).or_default();
            sums.in_flight += queue.in_flight;
            sums.completions += queue.completions;
            sums.errors += queue.errors;
        }
        let past = self.network.iter().flat_map(|_| self.counted.all_past());
        for (cqid, queue) in past.flat_map(|past| &past.queues) {
            let sums = all.entry(*cqid).or_default();
            sums.completions += queue.completions;
            sums.errors += queue.errors;
        }
        all
    }
}
