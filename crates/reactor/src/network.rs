//! What the hosts of a controller over NVMe/TCP have done: sums that only grow.

use std::collections::BTreeMap;

use subsystem::HealthRecord;
use transport::nvme_tcp::Counters;

/// See the module. Names are those of [`transport::nvme_tcp::End`] and
/// [`transport::nvme_tcp::Refusal`], so their number is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Hosts that have connected.
    pub hosts: u64,
    /// What all associations have done, also those that have ended.
    pub all: Counters,
    /// Associations that have ended, by the name of their end.
    pub ended: BTreeMap<&'static str, u64>,
    /// What commands of hosts that have left moved.
    pub(crate) moved: HealthRecord,
    /// Connections that have become no queue, by the name of their end or refusal.
    pub refused: BTreeMap<&'static str, u64>,
}

impl NetworkCounts {
    /// Counts a connection that becomes no queue.
    pub(crate) fn refuse(&mut self, name: &'static str) {
        *self.refused.entry(name).or_default() += 1;
    }

    /// Counts the end of an association that has done this.
    pub(crate) fn end(&mut self, done: &Counters, name: &'static str) {
        self.all.add(done);
        *self.ended.entry(name).or_default() += 1;
    }
}
