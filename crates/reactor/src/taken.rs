//! Time that the system took from a reactor: it ran another task on the processor, or a hypervisor
//! another machine.
//!
//! The thread's processor time tells it apart from a turn that worked for long, as one that faults
//! many pages or copies much. Reading it is a system call, so it is read every
//! [`WINDOW_NS`] and after long turns.

use controller::counters::ReactorCounters;
use port::time::Time;
use rustix::time::{ClockId, clock_gettime};

/// A turn takes tens of microseconds, unless the system runs something else meanwhile, or memory is
/// touched for the first time.
pub(crate) const STALL_NS: u64 = 200_000;
/// Nanoseconds between two readings. The loss of a window's short turns counts for the long turn at
/// its end, so a window is short.
const WINDOW_NS: u64 = 10_000_000;

/// The last reading, and what happened since.
#[derive(Debug)]
pub(crate) struct Taken {
    at: Time,
    cpu_ns: u64,
    slept_ns: u64,
}

impl Taken {
    /// Starts at `now`, on the reactor's thread.
    pub(crate) fn new(now: Time) -> Self {
        Taken {
            at: now,
            cpu_ns: cpu_ns(),
            slept_ns: 0,
        }
    }

    /// The reactor slept.
    #[inline]
    pub(crate) fn slept(&mut self, ns: u64) {
        self.slept_ns += ns;
    }

    /// A turn ended at `now`.
    #[inline]
    pub(crate) fn look(&mut self, now: Time) {
        if now.since(self.at) > WINDOW_NS {
            *self = Taken::new(now);
        }
    }

    /// Counts a turn longer than [`STALL_NS`], by when it ended and how long the reactor was awake.
    #[cold]
    pub(crate) fn count_long_turn(
        &mut self,
        counters: &ReactorCounters,
        (now, awake_ns): (Time, u64),
        worked: bool,
    ) {
        let taken_ns = self.in_long_turn(now, awake_ns);
        counters.stalls.add((taken_ns > STALL_NS).into());
        counters.stalled_ns.add(taken_ns);
        let own = if worked {
            &counters.busy_ns
        } else {
            &counters.spun_ns
        };
        own.add(awake_ns - taken_ns);
    }

    /// A turn ended at `now`, in which the reactor was awake for so long: how much of that the
    /// system took.
    fn in_long_turn(&mut self, now: Time, awake_ns: u64) -> u64 {
        let before = std::mem::replace(self, Taken::new(now));
        let awake = now.since(before.at).saturating_sub(before.slept_ns);
        let ran = self.cpu_ns.saturating_sub(before.cpu_ns);
        awake.saturating_sub(ran).min(awake_ns)
    }
}

/// Processor time of this thread.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let ns = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use machine::clock::Clock;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_the_thread_ran_is_not_taken() {
        let clock = Clock::of_process();
        let (begun, cpu) = (clock.now(), cpu_ns());
        let mut taken = Taken::new(begun);
        while cpu_ns() - cpu < 5 * MS {
            std::hint::spin_loop();
        }
        let end = clock.now();
        let awake = end.since(begun);
        // Whatever else the machine did meanwhile.
        assert!(taken.in_long_turn(end, awake) <= awake - 4 * MS);
    }

    #[test]
    fn what_the_thread_did_not_run_is_taken_unless_it_slept() {
        let clock = Clock::of_process();
        for slept in [false, true] {
            let begun = clock.now();
            let mut taken = Taken::new(begun);
            thread::sleep(Duration::from_millis(20));
            let end = clock.now();
            let awake = end.since(begun);
            if slept {
                taken.slept(awake);
            }
            let found = taken.in_long_turn(end, awake);
            assert_eq!(found == 0, slept, "{found} of {awake} ns");
            assert!(slept || found > 19 * MS, "{found} ns");
        }
    }

    #[test]
    fn a_window_ends_in_time_and_a_turn_loses_no_more_than_itself() {
        let clock = Clock::of_process();
        let begun = clock.now();
        let mut taken = Taken::new(begun);
        thread::sleep(Duration::from_millis(20));
        taken.look(clock.now());
        thread::sleep(Duration::from_millis(2));
        let end = clock.now();
        let found = taken.in_long_turn(end, end.since(begun));
        assert!(found < end.since(begun) - 19 * MS, "{found} ns");
        thread::sleep(Duration::from_millis(5));
        assert_eq!(taken.in_long_turn(clock.now(), MS), MS);
    }
}
