//! The time when a reactor sleeps, and for how long.
//!
//! A pure function of the times passed in. A polling reactor never sleeps; one in interrupt mode
//! sleeps as soon as a turn found nothing. An adaptive one spins for a while after it last found
//! work. How long follows what spinning would have gained (like the halt polling of KVM and the
//! polling of QEMU's IOThreads): if it slept and work came within the maximum spin time, it should
//! have spun, and spins for longer from now on; if work came later, spinning was in vain, and it
//! spins for half as long. Its budget bounds the cost: a share of the time is credited as it
//! passes, every spin is charged, and with nothing left it sleeps at once.
//!
//! A store to a doorbell page that is mapped into a host wakes no sleeper, so the reactor checks
//! again after an interval that grows with the time it has been idle. Work that such a check finds
//! came at an unknown time since the previous one; the earliest counts.

use port::time::Time;

/// How a reactor waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Never sleeps.
    Poll,
    /// Spins after work for as long as that has paid, then sleeps.
    Adaptive {
        /// Most nanoseconds of spinning.
        spin_ns: u64,
        /// The share of the time that may be spun away, in per cent; 100 and more: all of it.
        budget_percent: u32,
    },
    /// Sleeps as soon as a turn found nothing.
    Interrupt,
}

/// The action after a turn that found nothing.
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
/// Last interval between timed checks: half of the maximum wait of a first command (1 ms).
pub const TIMED_LOOK_MAX_NS: u64 = 500_000;
/// The bound of every other sleep.
pub const SLEEP_MAX_NS: u64 = 1_000_000_000;
/// The shortest spin time above 0: about the cost of a sleep and its end.
const SPIN_MIN_NS: u64 = 4_000;
/// How much earlier a reactor wakes for a timed event, spinning the rest of the time in every mode:
/// a system timer is late by its slack (50 µs by default) and by the switch from one process to
/// another.
pub(crate) const EARLY_NS: u64 = 100_000;
/// Credit for spinning is saved up to so much.
const CREDIT_MAX_NS: u64 = 10_000_000;

/// The waiting policy of one reactor.
#[derive(Debug)]
pub struct Waiting {
    mode: Mode,
    last_work: Time,
    /// For how long it spins after that.
    limit_ns: u64,
    /// For how long spinning is worth it, as far as it has learned.
    learned_ns: u64,
    /// Spin budget left, and the time until which it was credited.
    credit_ns: u64,
    credited: Time,
    /// It has slept since there was work last.
    slept: Option<Slept>,
}

#[derive(Clone, Copy, Debug)]
struct Slept {
    /// The last look before it slept.
    last_look: Time,
    unwoken: bool,
}

impl Waiting {
    /// A policy that counts its idle time from `now`.
    #[must_use]
    pub fn new(mode: Mode, now: Time) -> Self {
        let spin_ns = match mode {
            Mode::Adaptive { spin_ns, .. } => spin_ns,
            Mode::Poll | Mode::Interrupt => 0,
        };
        Waiting {
            mode,
            last_work: now,
            limit_ns: spin_ns.min(CREDIT_MAX_NS),
            learned_ns: spin_ns,
            credit_ns: CREDIT_MAX_NS,
            credited: now,
            slept: None,
        }
    }

    /// The mode it was made with.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// For how long it spins now before it sleeps, in nanoseconds; `u64::MAX` for a reactor that
    /// polls.
    #[must_use]
    pub fn spin_ns(&self) -> u64 {
        match self.mode {
            Mode::Poll => u64::MAX,
            Mode::Adaptive { .. } => self.limit_ns,
            Mode::Interrupt => 0,
        }
    }

    /// A turn at `now` found work.
    #[inline]
    pub fn worked(&mut self, now: Time) {
        if let Mode::Adaptive {
            spin_ns,
            budget_percent,
        } = self.mode
        {
            if let Some(slept) = self.slept.take() {
                self.learn(now, slept, spin_ns);
            }
            self.limit_ns = if budget_percent < 100 {
                self.learned_ns.min(self.charge(now, budget_percent))
            } else {
                self.learned_ns
            };
        }
        self.last_work = now;
    }

    /// It has slept, and work has come.
    #[cold]
    fn learn(&mut self, now: Time, slept: Slept, spin_ns: u64) {
        let came = if slept.unwoken { slept.last_look } else { now };
        self.learned_ns = if came.since(self.last_work) <= spin_ns {
            (self.learned_ns * 2).max(SPIN_MIN_NS).min(spin_ns)
        } else if self.learned_ns / 2 < SPIN_MIN_NS {
            0
        } else {
            self.learned_ns / 2
        };
    }

    /// Credits the time that has passed and charges the spinning since there was work last. Returns
    /// the credit that is left to spin away.
    fn charge(&mut self, now: Time, budget_percent: u32) -> u64 {
        let passed_ns = now.since(self.credited);
        let credit_ns = passed_ns.saturating_mul(budget_percent.into()) / 100;
        let spun_ns = now.since(self.last_work).min(self.limit_ns);
        self.credited = now;
        self.credit_ns = (self.credit_ns + credit_ns)
            .min(CREDIT_MAX_NS)
            .saturating_sub(spun_ns);
        self.credit_ns
    }

    /// Whether a turn at `now` that found nothing is to be followed by another one at once.
    #[inline]
    #[must_use]
    pub fn spins(&self, now: Time) -> bool {
        match self.mode {
            Mode::Poll => true,
            Mode::Adaptive { .. } => now.since(self.last_work) < self.limit_ns,
            Mode::Interrupt => false,
        }
    }

    /// The action after a turn at `now` that found nothing. `unwoken`: some doorbells are stored
    /// without waking the reactor. `deadline`: the earliest time at which something falls due.
    pub fn idle(&mut self, now: Time, unwoken: bool, deadline: Option<Time>) -> Idle {
        if self.spins(now) {
            return Idle::Spin;
        }
        let idle_ns = now.since(self.last_work);
        let bound_ns = if unwoken {
            (idle_ns / 2).clamp(TIMED_LOOK_MIN_NS, TIMED_LOOK_MAX_NS)
        } else {
            SLEEP_MAX_NS
        };
        let at_most_ns = match deadline.map(|due| due.since(now)) {
            Some(0) => return Idle::Spin,
            Some(due_ns) => bound_ns.min(due_ns),
            None => bound_ns,
        };
        self.slept = Some(Slept {
            last_look: now,
            unwoken,
        });
        Idle::Sleep { at_most_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADAPTIVE: Mode = Mode::Adaptive {
        spin_ns: 50_000,
        budget_percent: 100,
    };

    #[test]
    fn a_polling_reactor_never_sleeps() {
        let mut waiting = Waiting::new(Mode::Poll, Time(0));
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
        let mut waiting = Waiting::new(Mode::Interrupt, Time(5));
        assert!(matches!(
            waiting.idle(Time(5), false, None),
            Idle::Sleep { .. }
        ));
    }

    #[test]
    fn a_sleep_ends_when_something_falls_due() {
        let mut waiting = Waiting::new(Mode::Interrupt, Time(0));
        let idle = waiting.idle(Time(100), false, Some(Time(350)));
        assert_eq!(idle, Idle::Sleep { at_most_ns: 250 });
        // overdue: the next turn must handle it
        assert_eq!(waiting.idle(Time(400), false, Some(Time(350))), Idle::Spin);
    }

    #[test]
    fn timed_looks_become_rarer_up_to_a_bound() {
        let mut waiting = Waiting::new(ADAPTIVE, Time(0));
        let mut interval = |now| match waiting.idle(Time(now), true, None) {
            Idle::Sleep { at_most_ns } => at_most_ns,
            Idle::Spin => 0,
        };
        assert_eq!(interval(50_000), TIMED_LOOK_MIN_NS);
        assert_eq!(interval(400_000), 200_000);
        assert_eq!(interval(60_000_000_000), TIMED_LOOK_MAX_NS);
    }

    /// A host that sends a command after each `gap_ns` of idleness, in turns of 100 ns and sleeps
    /// that end when it does. How long the reactor has spun, slept, and how often.
    struct Spent {
        spun_ns: u64,
        slept_ns: u64,
        sleeps: u32,
    }

    fn commands(waiting: &mut Waiting, now: &mut Time, gap_ns: u64, count: u32) -> Spent {
        let mut spent = Spent {
            spun_ns: 0,
            slept_ns: 0,
            sleeps: 0,
        };
        for _ in 0..count {
            let next = *now + gap_ns;
            while *now < next {
                match waiting.idle(*now, false, None) {
                    Idle::Spin => {
                        spent.spun_ns += 100;
                        *now = *now + 100;
                    }
                    Idle::Sleep { at_most_ns } => {
                        let slept_ns = at_most_ns.min(next.since(*now));
                        spent.slept_ns += slept_ns;
                        spent.sleeps += 1;
                        *now = *now + slept_ns;
                    }
                }
            }
            waiting.worked(*now);
        }
        spent
    }

    #[test]
    fn spinning_that_never_pays_ends_and_comes_back_where_it_would() {
        let mut waiting = Waiting::new(ADAPTIVE, Time(0));
        let mut now = Time(0);
        // 50, 25, 12.5 and 6.25 us in vain, and then no more.
        let rare = commands(&mut waiting, &mut now, 10_000_000, 100);
        assert!((93_000..95_000).contains(&rare.spun_ns), "{}", rare.spun_ns);
        assert_eq!(rare.sleeps, 100);
        // 4, 8, 16 us, and then the next command is always found spinning.
        let often = commands(&mut waiting, &mut now, 15_000, 100);
        assert_eq!(often.sleeps, 3);
        assert_eq!(waiting.spin_ns(), 16_000);
    }

    #[test]
    fn a_timed_look_that_finds_work_counts_from_the_look_before() {
        let mut waiting = Waiting::new(ADAPTIVE, Time(0));
        let mut now = Time(0);
        commands(&mut waiting, &mut now, 10_000_000, 10);
        assert_eq!(waiting.spin_ns(), 0);
        // No doorbell wakes it: the check that finds work comes 50 us later at the earliest.
        let Idle::Sleep { at_most_ns } = waiting.idle(now + 100, true, None) else {
            panic!("it does not spin");
        };
        waiting.worked(now + 100 + at_most_ns);
        assert_eq!(waiting.spin_ns(), 4_000);
    }

    #[test]
    fn spinning_stays_within_its_budget() {
        for percent in [1, 10, 50] {
            let mode = Mode::Adaptive {
                spin_ns: 50_000,
                budget_percent: percent,
            };
            let mut waiting = Waiting::new(mode, Time(0));
            let mut now = Time(0);
            // The initial credit.
            commands(&mut waiting, &mut now, 40_000, 2000);
            let before = now;
            let spent = commands(&mut waiting, &mut now, 40_000, 10_000);
            let share = spent.spun_ns * 1000 / now.since(before);
            let allowed = u64::from(percent) * 10;
            assert!(
                (allowed * 9 / 10..=allowed).contains(&share),
                "{percent} % is {share}"
            );
        }
        // With all of the time to spend, the same host is always found spinning.
        let mut waiting = Waiting::new(ADAPTIVE, Time(0));
        assert_eq!(commands(&mut waiting, &mut Time(0), 40_000, 1000).sleeps, 0);
    }
}
