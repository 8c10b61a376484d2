//! A drive's clock, on a thread with no other task.

use std::sync::Weak;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Real-time waits of a drive's threads. All limits in ticks are meant for those of the program,
/// the default; only tests use shorter ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// One tick of the drive's clock, not 0. The keeper shares requested memory after one tick, so
    /// that it does not share memory that is mapped only for a moment, as firmware does.
    pub(super) tick: Duration,
    /// Maximum wait for the end of the commands of a former process.
    pub(super) fence: Duration,
}

impl Default for Pace {
    /// A tick of 250 ms, and a fence that is longer than the 4 s after which our own controller
    /// aborts such commands, and shorter than the 5 s that hosts wait for a reply.
    fn default() -> Self {
        Pace {
            tick: Duration::from_millis(250),
            fence: Duration::from_millis(4500),
        }
    }
}

/// Clock of a drive's keeper and its channels, in ticks.
///
/// The keeper itself cannot keep the time: its jobs take seconds (locking gigabytes for a drive,
/// mapping thousands of pages behind a virtual machine's IOMMU), and commands that were young when
/// its clock stopped would be old when it continued. The thread counts ticks that it has seen pass,
/// one at a time, so that after a pause of the whole process its drives do not time out.
pub(super) struct Clock(pub(super) Weak<AtomicU32>);

impl Clock {
    /// Advances the clock every `tick` as long as the keeper or a channel exists.
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread of its own, which does nothing else"
    )]
    pub(super) fn run(self, tick: Duration) {
        loop {
            std::thread::sleep(tick);
            let Some(ticks) = self.0.upgrade() else {
                return;
            };
            // Relaxed: the tick publishes no other data.
            ticks.fetch_add(1, Ordering::Relaxed);
        }
    }
}
