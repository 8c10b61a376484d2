//! Counts of a front end.

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests of the rings.
    pub requests: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests of a former back end or connection that were done again.
    pub resubmitted: u64,
    /// Notifications of the driver (kicks) that were taken.
    pub kicks: u64,
    /// Notifications to the driver (calls).
    pub calls: u64,
    /// Rings that broke a rule.
    pub broken: u64,
}

impl Counters {
    /// Adds what another front end has done.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.resubmitted += other.resubmitted;
        self.kicks += other.kicks;
        self.calls += other.calls;
        self.broken += other.broken;
    }
}
