//! Programs of commands on a drive, at the machine's own time: those of `nvmirage fidelity`.

use driver::DriverError;
use driver::bus::place::AnyBus;
use driver::program::{self, Pace, Ran, Rules, Target, Worker};
use machine::clock::Clock;
use terminal::interrupt::Interrupt;

/// Maximum length of a run that can be interrupted.
pub const COURSE_NS: u64 = 30_000_000_000;

/// The machine's clock.
struct Real<'i> {
    clock: &'i Clock,
    /// Ends a run, as [`COURSE_NS`] does; `None` for a run without a bound.
    interrupt: Option<&'i Interrupt>,
}

impl Pace for Real<'_> {
    #[inline]
    fn now_ns(&mut self) -> u64 {
        self.clock.now().0
    }

    #[inline]
    fn pass(&mut self, _: Option<u64>) -> Result<(), DriverError> {
        Ok(())
    }

    #[inline]
    fn is_over(&mut self, since_ns: u64) -> bool {
        let interrupt = self.interrupt;
        interrupt.is_some_and(|interrupt| since_ns > COURSE_NS || interrupt.is_set())
    }
}

/// Runs a program; with `interrupt`, until that is set and no longer than [`COURSE_NS`]. Readings
/// of the clock that are more than `stall_ns` apart are a stall.
///
/// # Errors
/// Those of [`program::run`].
pub fn run(
    clock: &Clock,
    workers: &mut [Worker<'_, AnyBus>],
    target: &Target,
    stall_ns: u64,
    interrupt: Option<&Interrupt>,
) -> Result<Ran, DriverError> {
    let rules = Rules {
        delay_ns: 0,
        stall_ns,
    };
    let mut pace = Real { clock, interrupt };
    program::run(workers, target, rules, &mut pace)
}
