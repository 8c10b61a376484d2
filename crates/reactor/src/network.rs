//! Counters of the hosts of a controller over NVMe/TCP, NBD or vhost-user-blk: sums that only grow.

use std::collections::BTreeMap;

use subsystem::HealthRecord;
use transport::nvme_tcp::Counters;
use transport::{nbd, ublk, vhost_user};

/// See the module. Names are those of [`transport::nvme_tcp::End`],
/// [`transport::nvme_tcp::Refusal`], [`transport::nbd::End`] and [`transport::vhost_user::End`], so
/// their number is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Hosts that have connected.
    pub hosts: u64,
    /// Counters of all associations, also of those that have ended.
    pub all: Counters,
    /// Counters of all NBD clients, also of those that have ended.
    pub nbd: nbd::Counters,
    /// Counters of all front ends of vhost-user-blk, also of those that have ended.
    pub vhost: vhost_user::Counters,
    /// Counters of all block devices, also of those that have ended.
    pub ublk: ublk::Counters,
    /// Associations, NBD clients, front ends and block devices that have ended, by the name of
    /// their end.
    pub ended: BTreeMap<&'static str, u64>,
    /// Data moved by commands of hosts that have left.
    pub(crate) moved: HealthRecord,
    /// Connections that have become no queue, client or front end, by the name of their end or
    /// refusal.
    pub refused: BTreeMap<&'static str, u64>,
}

/// Counters of a host.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    Tcp(Counters),
    Nbd(nbd::Counters),
    Vhost(vhost_user::Counters),
    Ublk(ublk::Counters),
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
            Done::Vhost(done) => self.vhost.add(done),
            Done::Ublk(done) => self.ublk.add(done),
        }
    }

    /// Counts the end of a host that has done this.
    pub(crate) fn end(&mut self, done: &Done, name: &'static str) {
        self.add(done);
        *self.ended.entry(name).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_ends_that_have_ended_stay_in_the_sums() {
        let mut counts = NetworkCounts::default();
        let done = vhost_user::Counters {
            requests: 7,
            calls: 2,
            ..vhost_user::Counters::default()
        };
        counts.end(&Done::Vhost(done.clone()), "closed");
        // One that is there is added to a copy.
        counts.add(&Done::Vhost(done));
        assert_eq!((counts.vhost.requests, counts.vhost.calls), (14, 4));
        assert_eq!(counts.ended, [("closed", 1)].into());
    }
}
