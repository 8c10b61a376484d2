//! The clock of the process: monotonic nanoseconds from the time stamp counter.

use port::time::Time;

/// Reads time for reactors and load generators.
#[derive(Clone, Debug)]
pub struct Clock {
    counter: quanta::Clock,
    start: quanta::Instant,
}

impl Clock {
    /// A clock that starts at zero now. The first clock of a process calibrates the counter, which
    /// takes some milliseconds.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it does more than a default")]
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let start = counter.now();
        Clock { counter, start }
    }

    /// The clock that all reactors of this process share, so that their times are comparable.
    pub fn of_process() -> Self {
        static CLOCK: std::sync::OnceLock<Clock> = std::sync::OnceLock::new();
        CLOCK.get_or_init(Clock::new).clone()
    }

    /// The time of [`Clock::of_process`], for callers without a clock.
    pub fn now_of_process() -> Time {
        static CLOCK: std::sync::LazyLock<Clock> = std::sync::LazyLock::new(Clock::of_process);
        CLOCK.now()
    }

    /// Nanoseconds since the start.
    #[inline]
    pub fn now(&self) -> Time {
        let since = self.counter.now().saturating_duration_since(self.start);
        Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}
