//! A count of the messages from a controller to its lanes on other threads.
//!
//! A host learns from a reply that something has changed (memory was mapped, a namespace attached),
//! and may rely on it at once, in a command to a lane on another thread. That lane learns of the
//! change by mail, which may still be in transit. So every such change is counted here before the
//! host can learn of it. A lane that has found a new command compares the count before it executes
//! the command: if it has received fewer messages, it waits for them.
//!
//! The count is stored before the reply is sent, the host stores its doorbell after the reply, and
//! the lane loads the doorbell before the count: so the lane sees the count.

use crate::sync::atomics::{AtomicUsize, Ordering};

/// A count of changes, with one writer.
#[derive(Debug)]
pub struct MailCount(AtomicUsize);

impl Default for MailCount {
    fn default() -> Self {
        MailCount::new()
    }
}

impl MailCount {
    /// No message was sent yet.
    #[must_use]
    pub fn new() -> Self {
        MailCount(AtomicUsize::new(0))
    }

    /// One more message will be sent. Only its one writer calls this, before the host can know of
    /// it.
    pub fn add(&self) {
        let count = self.0.load(Ordering::Relaxed);
        // Release: a reader that sees the host's reaction to the reply that follows sees this, too.
        self.0.store(count.wrapping_add(1), Ordering::Release);
    }

    /// The number of messages sent. Acquire, after the load of a doorbell.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}
