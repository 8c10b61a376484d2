//! A drive's time, told by a thread that does nothing else.

use std::sync::Weak;
use std::sync::atomic::{AtomicU32, Ordering};

use super::keeper::TICK;

/// The time of a drive's keeper and its channels, in [`TICK`]s.
///
/// The keeper itself cannot tell it: what it is asked for takes seconds (gigabytes that are locked
/// for a drive, thousands of pages behind an IOMMU of a virtual machine's), and commands that were
/// young when the time stood still would be old when it went on. It counts what it has seen pass, a
/// tick at a time, so that a process that stood still has not let its drives hang for as long.
pub(super) struct Clock(pub(super) Weak<AtomicU32>);

impl Clock {
    /// Tells the time as long as there is somebody whom it concerns.
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread of its own, which does nothing else"
    )]
    pub(super) fn run(self) {
        loop {
            std::thread::sleep(TICK);
            let Some(ticks) = self.0.upgrade() else {
                return;
            };
            // Relaxed: nothing else is told by it.
            ticks.fetch_add(1, Ordering::Relaxed);
        }
    }
}
