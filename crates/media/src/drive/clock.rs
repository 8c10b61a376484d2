//! A drive's clock, on a thread with no other task.

use std::sync::Weak;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// One tick of a drive's clock. The keeper shares requested memory after one tick, so that it does
/// not share memory that is mapped only for a moment, as firmware does.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// Clock of a drive's keeper and its channels, in [`TICK`]s.
///
/// The keeper itself cannot keep the time: its jobs take seconds (locking gigabytes for a drive,
/// mapping thousands of pages behind a virtual machine's IOMMU), and commands that were young when
/// its clock stopped would be old when it continued. The thread counts ticks that it has seen pass,
/// one at a time, so that after a pause of the whole process its drives do not time out.
pub(super) struct Clock(pub(super) Weak<AtomicU32>);

impl Clock {
    /// Advances the clock as long as the keeper or a channel exists.
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
            // Relaxed: the tick publishes no other data.
            ticks.fetch_add(1, Ordering::Relaxed);
        }
    }
}
