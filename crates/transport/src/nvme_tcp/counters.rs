//! What an association has done, for metrics.

use std::collections::BTreeMap;

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
