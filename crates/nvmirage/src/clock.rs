//! The one clock: monotonic nanoseconds from the time stamp counter.

use port::time::Time;

/// Reads time for reactors and load generators.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    counter: quanta::Clock,
    start: quanta::Instant,
}

impl Clock {
    /// A clock that starts at zero now. The first one of a process calibrates the counter, which
    /// takes some milliseconds.
    pub(crate) fn new() -> Self {
        let counter = quanta::Clock::new();
        let start = counter.now();
        Clock { counter, start }
    }

    /// The clock of all reactors of this process: what one of them says, others understand.
    pub(crate) fn of_process() -> Self {
        static CLOCK: std::sync::OnceLock<Clock> = std::sync::OnceLock::new();
        CLOCK.get_or_init(Clock::new).clone()
    }

    /// The time of [`Clock::of_process`], for those that have no clock by them.
    pub(crate) fn now_of_process() -> Time {
        static CLOCK: std::sync::LazyLock<Clock> = std::sync::LazyLock::new(Clock::of_process);
        CLOCK.now()
    }

    /// Nanoseconds since the start.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        let since = self.counter.now().saturating_duration_since(self.start);
        Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}
