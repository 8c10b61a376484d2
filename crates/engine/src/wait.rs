//! When a reactor sleeps, and for how long.
//!
//! A pure function of the times handed in: an adaptive reactor spins for a fixed time after it last found work, then
//! sleeps; a polling one never does; one in interrupt mode sleeps at once. Where a doorbell page is mapped into a host
//! nobody wakes a sleeper, so it looks again after an interval that grows with the time it has been idle.

use controller::time::Time;

/// How a reactor waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Never sleeps.
    Poll,
    /// Spins for so many nanoseconds after the last work, then sleeps.
    Adaptive {
        /// Nanoseconds of spinning.
        spin_ns: u64,
    },
    /// Sleeps as soon as a turn found nothing.
    Interrupt,
}

/// What to do after a turn that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Take another turn.
    Spin,
    /// Arm, look again, and sleep until woken, at most for so many nanoseconds.
    Sleep {
        /// The bound of the sleep in nanoseconds.
        at_most_ns: u64,
    },
}

/// First interval between timed looks at a mapped page.
pub const TIMED_LOOK_MIN_NS: u64 = 50_000;
/// Last interval between timed looks: half of what a first command may wait (1 ms).
pub const TIMED_LOOK_MAX_NS: u64 = 500_000;
/// The bound of every other sleep.
pub const SLEEP_MAX_NS: u64 = 1_000_000_000;

/// The waiting policy of one reactor.
#[derive(Debug)]
pub struct Waiting {
    mode: Mode,
    last_work: Time,
}

impl Waiting {
    /// A policy that counts its idle time from `now`.
    #[must_use]
    pub fn new(mode: Mode, now: Time) -> Self {
        Waiting {
            mode,
            last_work: now,
        }
    }

    /// The mode it was made with.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// A turn at `now` found work.
    pub fn worked(&mut self, now: Time) {
        self.last_work = now;
    }

    /// What to do after a turn at `now` that found nothing. `unwoken`: some doorbells are stored without waking anyone.
    /// `deadline`: the earliest time at which something falls due.
    #[must_use]
    pub fn idle(&self, now: Time, unwoken: bool, deadline: Option<Time>) -> Idle {
        let idle_ns = now.since(self.last_work);
        let spin_ns = match self.mode {
            Mode::Poll => return Idle::Spin,
            Mode::Adaptive { spin_ns } => spin_ns,
            Mode::Interrupt => 0,
        };
        if idle_ns < spin_ns {
            return Idle::Spin;
        }
        let bound_ns = if unwoken {
            (idle_ns / 2).clamp(TIMED_LOOK_MIN_NS, TIMED_LOOK_MAX_NS)
        } else {
            SLEEP_MAX_NS
        };
        match deadline.map(|due| due.since(now)) {
            Some(0) => Idle::Spin,
            Some(due_ns) => Idle::Sleep {
                at_most_ns: bound_ns.min(due_ns),
            },
            None => Idle::Sleep {
                at_most_ns: bound_ns,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADAPTIVE: Mode = Mode::Adaptive { spin_ns: 50_000 };

    #[test]
    fn a_polling_reactor_never_sleeps() {
        let waiting = Waiting::new(Mode::Poll, Time(0));
        assert_eq!(waiting.idle(Time(u64::MAX), false, None), Idle::Spin);
    }

    #[test]
    fn an_adaptive_reactor_spins_first_then_sleeps() {
        let mut waiting = Waiting::new(ADAPTIVE, Time(0));
        waiting.worked(Time(1_000_000));
        assert_eq!(waiting.idle(Time(1_049_999), false, None), Idle::Spin);
        assert_eq!(
            waiting.idle(Time(1_050_000), false, None),
            Idle::Sleep {
                at_most_ns: SLEEP_MAX_NS
            }
        );
    }

    #[test]
    fn interrupt_mode_sleeps_at_once() {
        let waiting = Waiting::new(Mode::Interrupt, Time(5));
        assert!(matches!(
            waiting.idle(Time(5), false, None),
            Idle::Sleep { .. }
        ));
    }

    #[test]
    fn a_sleep_ends_when_something_falls_due() {
        let waiting = Waiting::new(Mode::Interrupt, Time(0));
        let idle = waiting.idle(Time(100), false, Some(Time(350)));
        assert_eq!(idle, Idle::Sleep { at_most_ns: 250 });
        // overdue: the next turn must handle it
        assert_eq!(waiting.idle(Time(400), false, Some(Time(350))), Idle::Spin);
    }

    #[test]
    fn timed_looks_become_rarer_up_to_a_bound() {
        let waiting = Waiting::new(ADAPTIVE, Time(0));
        let interval = |now| match waiting.idle(Time(now), true, None) {
            Idle::Sleep { at_most_ns } => at_most_ns,
            Idle::Spin => 0,
        };
        assert_eq!(interval(50_000), TIMED_LOOK_MIN_NS);
        assert_eq!(interval(400_000), 200_000);
        assert_eq!(interval(60_000_000_000), TIMED_LOOK_MAX_NS);
    }
}
