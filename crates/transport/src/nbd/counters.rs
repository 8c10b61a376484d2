//! Counters of clients.

/// Sums that only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests.
    pub requests: u64,
    /// Requests that were answered with an error.
    pub failed: u64,
    /// Bytes that came, with heads.
    pub received: u64,
    /// Bytes that were sent, with heads.
    pub sent: u64,
    /// Writes of a part of a block: each reads the block first.
    pub partial: u64,
    /// Such writes that were tried again, as another one had changed the block.
    pub retried: u64,
}

impl Counters {
    /// Adds those of another client.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.received += other.received;
        self.sent += other.sent;
        self.partial += other.partial;
        self.retried += other.retried;
    }
}
