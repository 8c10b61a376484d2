//! Counters of an association, for metrics.

use std::collections::BTreeMap;

use memory::Counter;

use super::connection::Connection;

/// Sums since the association began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Commands that arrived.
    pub commands: u64,
    /// Commands that ended here with an error, and did not reach the controller.
    pub refused: u64,
    /// Data that came with a wrong digest.
    pub digest_errors: u64,
    /// Commands that had to wait for a large slot.
    pub waited: u64,
    /// Commands that the controller abandoned while a medium had their data, whose memory is out of
    /// use since then.
    pub lost: u64,
    /// Connections of queues that ended, by the name of their end.
    pub ended: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// Adds those of another association.
    pub fn add(&mut self, other: &Self) {
        let Self {
            received,
            sent,
            commands,
            refused,
            digest_errors,
            waited,
            lost,
            ended,
        } = other;
        self.received += received;
        self.sent += sent;
        self.commands += commands;
        self.refused += refused;
        self.digest_errors += digest_errors;
        self.waited += waited;
        self.lost += lost;
        for (name, count) in ended {
            *self.ended.entry(name).or_default() += count;
        }
    }
}

/// Counters of one queue. Only the thread that serves the queue counts; its association may read
/// them on another one.
#[derive(Debug, Default)]
pub(super) struct Counts {
    received: Counter,
    sent: Counter,
    pub(super) commands: Counter,
    pub(super) refused: Counter,
    pub(super) digest_errors: Counter,
    pub(super) waited: Counter,
    pub(super) lost: Counter,
}

impl Counts {
    /// Notes what its connection has received and sent.
    pub(super) fn note(&self, connection: &Connection) {
        self.received.add(connection.received - self.received.get());
        self.sent.add(connection.sent - self.sent.get());
    }

    /// Bytes received.
    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Adds them to those of an association.
    pub(super) fn add_to(&self, counters: &mut Counters) {
        counters.received += self.received.get();
        counters.sent += self.sent.get();
        counters.commands += self.commands.get();
        counters.refused += self.refused.get();
        counters.digest_errors += self.digest_errors.get();
        counters.waited += self.waited.get();
        counters.lost += self.lost.get();
    }
}
