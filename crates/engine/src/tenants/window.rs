//! The window: how much a medium may have in flight for tenants that share it, enough to keep it
//! busy and no more.
//!
//! Commands in a medium can no longer be ordered: weights and classes act only on those that wait
//! outside. So while two tenants or more use a medium, their commands in it are bounded, and the
//! bound follows load. By Little's law a medium is busy with the work that it completes in the
//! minimum latency of a command. The window is [`DEPTH`] times that, recomputed every [`EPOCH_NS`]
//! from the commands that have ended. The minimum latencies are those of commands of the same
//! direction and size, and they are measured without a queue: at first, and every
//! [`PROBE_EVERY_NS`], the window is [`PROBE`] for a moment.
//!
//! Beside a tenant of the latency class, the window of the others is the largest at which its
//! commands are late (they take longer than their goal) no more often than one in [`RARE`]. A late
//! command shrinks the window by a sixteenth, and one in time grows it by a small part, so that
//! both balance at that rate.
//!
//! Cost is [`COMMAND`] plus the bytes of a command: the rates of small and large commands that a
//! drive sustains differ by that much.

use std::collections::BTreeMap;

use controller::gate::Work;
use port::time::Time;

/// Cost of a command beside its bytes.
pub(super) const COMMAND: u64 = 4096;
/// Multiple of the amount that keeps a medium busy without queues inside: some of its parts are
/// always idle while others have a queue.
const DEPTH: u128 = 4;
/// The least window: a few small commands.
const PROBE: u64 = 4 * 2 * COMMAND;
/// The largest.
const WIDEST: u64 = 256 << 20;
/// Interval at which the window is recomputed from commands that have ended.
const EPOCH_NS: u64 = 1_000_000;
/// Commands that must have ended by then.
const EPOCH_COMMANDS: u64 = 32;
/// Interval between measurements of the minimum latencies.
const PROBE_EVERY_NS: u64 = 2_000_000_000;
/// Duration of a measurement, its number of commands, and its maximum duration.
const PROBE_NS: u64 = 2_000_000;
const PROBE_COMMANDS: u64 = 8;
const PROBE_MOST_NS: u64 = 100_000_000;
/// Late commands of the latency class: one in this many, half of what a 99th percentile may have.
const RARE: u64 = 200;
/// The part of the window that a late one takes.
const LATE_PART: u64 = 16;
/// Bits of the fraction of that window.
const FRACTION_BITS: u32 = 12;
/// Nothing has ended for so long although there is something: there is no load to follow.
const STALLED_NS: u64 = 1_000_000_000;

/// Cost of a command to a medium, including its data.
#[inline]
pub(super) fn cost(work: Work) -> u64 {
    COMMAND + u64::from(work.bytes)
}

/// Commands that should take the same time: the direction of the data and the size, as a power of
/// two.
fn kind(work: Work) -> (u8, u32) {
    (work.opcode & 3, u32::BITS - work.bytes.leading_zeros())
}

/// The least time that a kind of command took: since the last look, and before.
#[derive(Clone, Copy, Debug)]
struct Least {
    now_ns: u64,
    before_ns: u64,
}

/// The window of one medium.
#[derive(Debug)]
pub(super) struct Window {
    /// For all tenants.
    open: u64,
    /// For the others beside the class `latency`, with a fraction.
    beside: u64,
    least: BTreeMap<(u8, u32), Least>,
    /// Since when it follows, and what has ended since: by cost and least time, and how many.
    since: Time,
    busy: u128,
    ended: u64,
    last_ended: Time,
    /// When the least times are looked for next; while they are, since when, and how many have
    /// ended of those sent since.
    next_probe: Time,
    probe: Option<(Time, u64)>,
}

impl Window {
    pub(super) fn new() -> Self {
        Window {
            open: PROBE,
            beside: PROBE << FRACTION_BITS,
            least: BTreeMap::new(),
            since: Time(0),
            busy: 0,
            ended: 0,
            last_ended: Time(0),
            next_probe: Time(0),
            probe: None,
        }
    }

    /// Several tenants use the medium from `now` on.
    pub(super) fn begin(&mut self, now: Time) {
        self.next_probe = now;
        self.last_ended = now;
        self.restart(now);
    }

    fn restart(&mut self, now: Time) {
        (self.since, self.busy, self.ended) = (now, 0, 0);
    }

    /// A turn begins in which several tenants use the medium.
    pub(super) fn turn(&mut self, now: Time) {
        match self.probe {
            None if now >= self.next_probe => {
                self.probe = Some((now, 0));
                for least in self.least.values_mut() {
                    least.before_ns = std::mem::replace(&mut least.now_ns, u64::MAX);
                }
            }
            Some((since, count)) => {
                let passed = now.since(since);
                let enough = passed >= PROBE_NS && count >= PROBE_COMMANDS;
                if enough || passed >= PROBE_MOST_NS {
                    self.probe = None;
                    self.next_probe = now + PROBE_EVERY_NS;
                    self.restart(now);
                }
            }
            None => {}
        }
        let passed = now.since(self.since);
        if self.probe.is_none() && passed >= EPOCH_NS && self.ended >= EPOCH_COMMANDS {
            let busy = self.busy / u128::from(passed) * DEPTH;
            let open = u64::try_from(busy).unwrap_or(WIDEST);
            self.open = open.clamp(PROBE, WIDEST);
            self.restart(now);
        }
    }

    /// Maximum cost in flight of tenants that are not of the latency class.
    pub(super) fn width(&self, now: Time, beside_latency: bool) -> u64 {
        if now.since(self.last_ended) > STALLED_NS {
            return WIDEST;
        }
        if self.probe.is_some() {
            return PROBE;
        }
        if beside_latency {
            self.open.min(self.beside >> FRACTION_BITS)
        } else {
            self.open
        }
    }

    /// A command has ended that was sent at `since`. The least time that such a command took
    /// lately.
    pub(super) fn ended(&mut self, work: Work, since: Time, now: Time) -> u64 {
        let took_ns = now.since(since);
        let least = self.least.entry(kind(work)).or_insert(Least {
            now_ns: took_ns,
            before_ns: u64::MAX,
        });
        least.now_ns = least.now_ns.min(took_ns);
        let least_ns = least.now_ns.min(least.before_ns);
        self.busy += u128::from(cost(work)) * u128::from(least_ns);
        self.ended += 1;
        self.last_ended = now;
        if let Some((probing, count)) = &mut self.probe
            && since >= *probing
        {
            *count += 1;
        }
        least_ns
    }

    /// A command of the latency class has ended that had priority over the others, late or not.
    pub(super) fn heard(&mut self, late: bool) {
        let beside = self.beside;
        let narrowest = (2 * COMMAND) << FRACTION_BITS;
        let changed = if late {
            beside - beside / LATE_PART
        } else {
            beside + beside / (LATE_PART * RARE)
        };
        self.beside = changed.clamp(narrowest, self.open.max(PROBE) << FRACTION_BITS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Work = Work {
        opcode: 2,
        bytes: 4096,
    };

    /// A medium that does one command in so many nanoseconds, and each takes at least so long; as
    /// much in flight as the window lets through. The width in commands after so long, and commands
    /// done meanwhile.
    fn run(window: &mut Window, each_ns: u64, least_ns: u64, from: u64, until: u64) -> (u64, u64) {
        let mut in_flight = std::collections::VecDeque::new();
        let (mut free, mut done) = (from, 0);
        for now in (from..until).step_by(500) {
            let now = Time(now);
            while in_flight.front().is_some_and(|(due, _)| *due <= now.0) {
                let (_, since) = in_flight.pop_front().expect("it was looked at");
                window.ended(READ, since, now);
                done += 1;
            }
            window.turn(now);
            while (in_flight.len() as u64) * cost(READ) < window.width(now, false) {
                free = free.max(now.0) + each_ns;
                in_flight.push_back((free.max(now.0 + least_ns), now));
            }
        }
        (window.width(Time(until), false) / cost(READ), done)
    }

    #[test]
    fn the_window_is_some_times_what_keeps_a_medium_busy() {
        let mut window = Window::new();
        window.begin(Time(0));
        // 10 us at the least and one in 2 us: five keep it busy.
        let (width, done) = run(&mut window, 2_000, 10_000, 0, 1_000_000_000);
        assert!((15..=25).contains(&width), "{width}");
        assert!(done >= 498_000, "{done} of 500,000");
    }

    #[test]
    fn it_does_not_grow_with_the_queue_that_it_makes() {
        let mut window = Window::new();
        window.begin(Time(0));
        let (width, done) = run(&mut window, 2_000, 10_000, 0, 20_000_000_000);
        assert!((15..=25).contains(&width), "{width}");
        assert!(done >= 9_950_000, "{done} of 10,000,000");
        // A drive that has become slower is followed.
        let (width, _) = run(&mut window, 20_000, 400_000, 20_000_000_000, 26_000_000_000);
        assert!((60..=100).contains(&width), "{width}");
    }

    #[test]
    fn late_commands_are_as_rare_as_they_may_be() {
        let mut window = Window::new();
        window.begin(Time(0));
        window.open = 1 << 20;
        // The chance to be late grows with the window: at 64 KiB one in 200 is.
        let mut random = 1_u64;
        let mut late = 0;
        for number in 0..200_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let width = window.beside >> FRACTION_BITS;
            let is_late = (random >> 33) % ((64 << 10) * RARE) < width;
            window.heard(is_late);
            late += u64::from(is_late && number >= 100_000);
        }
        assert!((400..=600).contains(&late), "{late} of 100,000");
    }
}
