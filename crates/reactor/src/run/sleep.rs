//! How often a reactor looks at its sockets, and its sleep.

use std::time::Duration;

use engine::Idle;
use port::time::Time;

use super::Reactor;
use crate::hosted::association::HOT_NS;

/// Nanoseconds between polls of the sockets, while there is work and while the reactor spins
/// without work. A poll is a system call, which delays a host that polls for completions.
const SOCKET_LOOK_BUSY_NS: u64 = 20_000;
const SOCKET_LOOK_IDLE_NS: u64 = 2_000;
/// Time after the last work in which more is likely.
const RECENTLY_NS: u64 = 10_000;
impl Reactor {
    /// Time until the next poll of the sockets.
    pub(super) fn look_interval_ns(&self, idle_ns: u64) -> u64 {
        // The sockets of queues over NVMe/TCP, and of NBD clients, on which something came or was
        // sent a moment ago are read in every turn, without the poller. So are the rings of front
        // ends.
        let is_without =
            self.associations.is_empty() && self.branches.len() == 0 && self.front_ends.is_empty();
        let recently_ns = if is_without { RECENTLY_NS } else { HOT_NS };
        if idle_ns < recently_ns && self.in_transition.is_empty() {
            SOCKET_LOOK_BUSY_NS
        } else {
            SOCKET_LOOK_IDLE_NS
        }
    }

    /// How long to sleep; `None` if there is a reason to spin.
    pub(super) fn may_sleep(&mut self, now: Time) -> Option<Duration> {
        let held_up = !self.in_transition.is_empty()
            || !self.late.is_empty()
            || !self.snapshots.is_empty()
            || !self.looks.is_empty();
        if self.engine.spins(now) || held_up || self.media_are_polled() {
            return None;
        }
        let mut unwoken = self.engine.has_silent_guests();
        let mut deadline = self.leaving.next_deadline();
        deadline = deadline
            .into_iter()
            .chain(self.branches.next_deadline())
            .chain(self.front_ends.next_check())
            .min();
        for hosted in self.hosted.iter().flatten() {
            unwoken |= hosted.is_unwoken();
            deadline = deadline.into_iter().chain(hosted.next_deadline()).min();
        }
        match self.engine.idle(now, unwoken, deadline) {
            Idle::Spin => None,
            Idle::Sleep { at_most_ns } => Some(Duration::from_nanos(at_most_ns)),
        }
    }

    /// Announces the sleep, arms notifications, checks for work again, and only then waits. Returns
    /// the nanoseconds slept.
    pub(super) fn sleep(&mut self, at_most: Duration) -> u64 {
        self.bell.announce();
        let nothing_came = !self.media_are_due()
            && self.engine.arm()
            && self.mailbox.is_empty()
            && !self.subsystems.has_news(&mut self.engine)
            && self.arm_front_ends();
        let wait = if nothing_came {
            at_most
        } else {
            Duration::ZERO
        };
        let before = self.clock.now();
        self.wait_for_events(wait);
        let slept_ns = self.clock.now().since(before);
        self.bell.awake();
        if !wait.is_zero() {
            self.counters.sleeps.add(1);
            self.counters.slept_ns.add(slept_ns);
        }
        self.handle_ready();
        slept_ns
    }

    /// Whether completions are in flight that only polling can find.
    fn media_are_polled(&mut self) -> bool {
        let mut channels = self.engine.channels_mut().iter_mut();
        channels.any(|(_, channel)| channel.is_polled()) || self.relays.are_polled()
    }

    /// Whether a medium has completions that its descriptor will not signal.
    fn media_are_due(&mut self) -> bool {
        let mut channels = self.engine.channels_mut().iter_mut();
        self.relays.are_due() || channels.any(|(_, channel)| channel.is_due())
    }
}
