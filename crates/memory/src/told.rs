//! How much a controller has had to tell its lanes, for those that live on other threads.
//!
//! A host learns from a reply that something has changed (memory was mapped, a namespace attached),
//! and may use it at once, in a command to a lane on another thread. That lane hears of the change
//! by mail, which may still be on its way. So whatever a host may rely on is counted here before
//! the host can learn of it, and a lane that has seen a new command looks here before it does
//! anything with it: where it has not taken as many messages, it waits for them.
//!
//! The count is stored before the reply goes out, the host's store of its doorbell comes after the
//! reply, and the lane loads the doorbell before the count: so it sees the count.

use crate::sync::{AtomicUsize, Ordering};

/// A count of changes, with one writer.
#[derive(Debug)]
pub struct Told(AtomicUsize);

impl Default for Told {
    fn default() -> Self {
        Told::new()
    }
}

impl Told {
    /// Nothing was told yet.
    #[must_use]
    pub fn new() -> Self {
        Told(AtomicUsize::new(0))
    }

    /// There is one more thing to tell. Only its one writer calls this, before the host can know of
    /// it.
    pub fn add(&self) {
        let told = self.0.load(Ordering::Relaxed);
        // Release: whoever sees what the host did because of the reply that follows sees this.
        self.0.store(told.wrapping_add(1), Ordering::Release);
    }

    /// How much there was to tell. Acquire, after the load of a doorbell.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}
