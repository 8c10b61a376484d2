//! What the hosts of a controller over NVMe/TCP or NBD have done: sums that only grow.

use std::collections::BTreeMap;

use subsystem::HealthRecord;
use transport::nbd;
use transport::nvme_tcp::Counters;

/// See the module. Names are those of [`transport::nvme_tcp::End`],
/// [`transport::nvme_tcp::Refusal`] and [`transport::nbd::End`], so their number is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Hosts that have connected.
    pub hosts: u64,
    /// What all associations have done, also those that have ended.
    pub all: Counters,
    /// What all NBD clients have done, also those that have ended.
    pub nbd: nbd::Counters,
    /// Associations and NBD clients that have ended, by the name of their end.
    pub ended: BTreeMap<&'static str, u64>,
    /// What commands of hosts that have left moved.
    pub(crate) moved: HealthRecord,
    /// Connections that have become no queue or client, by the name of their end or refusal.
    pub refused: BTreeMap<&'static str, u64>,
}

/// What a host has done.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    Tcp(Counters),
    Nbd(nbd::Counters),
}

impl NetworkCounts {
    /// Counts a connection that becomes no queue.
    pub(crate) fn refuse(&mut self, name: &'static str) {
        *self.refused.entry(name).or_default() += 1;
    }

    /// Adds what a host has done.
    pub(crate) fn add(&mut self, done: &Done) {
        match done {
            Done::Tcp(done) => self.all.add(done),
            Done::Nbd(done) => self.nbd.add(done),
        }
    }

    /// Counts the end of a host that has done this.
    pub(crate) fn end(&mut self, done: &Done, name: &'static str) {
        self.add(done);
        *self.ended.entry(name).or_default() += 1;
    }
}
