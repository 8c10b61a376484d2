//! What a device has done.

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests of the driver.
    pub requests: u64,
    /// Requests that failed.
    pub failed: u64,
}

impl Counters {
    /// Adds what another device has done.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failed += other.failed;
    }
}
