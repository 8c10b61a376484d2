//! Servers: resources that are occupied by each piece of work.
//!
//! [`Intervals`] is a link or channel: work is reserved not before a given time, in the first gap
//! that is long enough. So a transfer that begins later, though it was reserved before, does not
//! delay one that fits before it. [`Pace`] and [`Free`] form a pipeline: first come, first served,
//! and exact, so that fractions of a nanosecond add up over a million commands.

use std::collections::VecDeque;

use crate::activity::{Busy, Server, Work};
use crate::parameters::Direction;
use crate::units::{PAGE_LEN, SECOND};

/// A server that reserves intervals: sorted, disjoint, and only those that end after the present.
#[derive(Debug, Default)]
pub(crate) struct Intervals {
    busy: VecDeque<(u64, u64)>,
}

impl Intervals {
    /// Reserves `length` nanoseconds as early as they fit, not before `from`, and returns their
    /// end. `now` is the present, at most `from`.
    pub(crate) fn reserve(&mut self, now: u64, from: u64, length: u64) -> u64 {
        while self.busy.front().is_some_and(|&(_, end)| end <= now) {
            self.busy.pop_front();
        }
        if length == 0 {
            return from;
        }
        let mut start = from;
        let mut index = match self.busy.back() {
            Some(&(_, end)) if end > from => self.busy.partition_point(|&(_, end)| end <= from),
            _ => self.busy.len(),
        };
        while let Some(&(begin, end)) = self.busy.get(index) {
            if begin >= start.saturating_add(length) {
                break;
            }
            start = end; // above `start`, as what ends at `from` or before was passed over
            index += 1;
        }
        let end = start.saturating_add(length);
        self.insert(index, start, end);
        end
    }

    /// Inserts `[start, end)` before the interval `index`, merged with intervals that it touches.
    fn insert(&mut self, index: usize, start: u64, end: u64) {
        let before = index
            .checked_sub(1)
            .filter(|&before| self.busy[before].1 == start);
        let after = self.busy.get(index).is_some_and(|next| next.0 == end);
        match (before, after) {
            (Some(before), true) => {
                self.busy[before].1 = self.busy[index].1;
                self.busy.remove(index);
            }
            (Some(before), false) => self.busy[before].1 = end,
            (None, true) => self.busy[index].0 = start,
            (None, false) => self.busy.insert(index, (start, end)),
        }
    }
}

/// A duration or time, as whole nanoseconds and a number of [`Pace::denominator`]ths of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exact {
    whole: u64,
    part: u128,
}

/// Exact cost of a command in a pipeline: the greater of `len / bandwidth` and `1 / rate`.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Fractions per nanosecond: the least common multiple of bandwidth and rate.
    denominator: u128,
    /// Cost of one byte, in those fractions.
    byte: u128,
    /// Minimum cost of a command, in those fractions.
    command: u128,
    /// The last length and its cost: a 128-bit division is slow, and lengths repeat.
    last: (u32, Exact),
}

impl Pace {
    /// The pace of one of `share` equal servers that have `direction` together. Bandwidth and rate
    /// are below 2^50, `share` below 2^12, as checked by
    /// [`Parameters::check`](crate::Parameters::check).
    pub(crate) fn new(direction: &Direction, share: u32) -> Self {
        let bandwidth = u128::from(direction.bandwidth_bytes_per_s);
        let rate = u128::from(direction.rate_per_s);
        let denominator = least_common_multiple(bandwidth.max(1), rate.max(1)); // below 2^100
        let second = u128::from(SECOND) * u128::from(share);
        let parts = |per_second: u128| match per_second {
            0 => 0,
            per_second => second * (denominator / per_second), // below 2^(30 + 12 + 50)
        };
        let mut pace = Self {
            denominator,
            byte: parts(bandwidth),
            command: parts(rate),
            last: (0, Exact::default()),
        };
        pace.last = (0, pace.exact(pace.command));
        pace
    }

    /// Cost of `len` bytes.
    pub(crate) fn cost(&mut self, len: u32) -> Exact {
        if self.last.0 != len {
            let parts = (self.byte * u128::from(len)).max(self.command); // below 2^(92 + 32)
            self.last = (len, self.exact(parts));
        }
        self.last.1
    }

    /// `latency_ns` minus the cost of one page; zero if that is negative.
    pub(crate) fn rest(&mut self, latency_ns: u64) -> Exact {
        let cost = self.cost(PAGE_LEN);
        if latency_ns < self.ceil(cost) {
            return Exact::default();
        }
        match cost.part {
            0 => Exact {
                whole: latency_ns - cost.whole,
                part: 0,
            },
            part => Exact {
                // The ceiling of the cost is one more than its whole part.
                whole: latency_ns - cost.whole - 1,
                part: self.denominator - part,
            },
        }
    }

    /// Sum of two values.
    pub(crate) fn add(&self, left: Exact, right: Exact) -> Exact {
        let part = left.part + right.part;
        let carry = u64::from(part >= self.denominator);
        Exact {
            whole: left.whole.saturating_add(right.whole).saturating_add(carry),
            part: part - u128::from(carry) * self.denominator,
        }
    }

    /// The value rounded up to whole nanoseconds.
    pub(crate) fn ceil(&self, exact: Exact) -> u64 {
        exact.whole.saturating_add(u64::from(exact.part > 0))
    }

    fn exact(&self, parts: u128) -> Exact {
        Exact {
            whole: u64::try_from(parts / self.denominator).unwrap_or(u64::MAX),
            part: parts % self.denominator,
        }
    }
}

/// Time from which on a pipeline is free.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Free(Exact);

impl Free {
    /// Processes `len` bytes that arrive at `now`; returns the exact end.
    pub(crate) fn take(&mut self, pace: &mut Pace, now: u64, len: u32) -> Exact {
        let cost = pace.cost(len);
        let start = if self.0.whole < now {
            Exact {
                whole: now,
                part: 0,
            }
        } else {
            self.0
        };
        self.0 = pace.add(start, cost);
        self.0
    }
}

impl Free {
    /// The same rounded up to the next nanosecond, so that it is valid for any pace.
    pub(crate) fn rounded(self) -> Self {
        Self(Exact {
            whole: self.0.whole.saturating_add(u64::from(self.0.part > 0)),
            part: 0,
        })
    }
}

/// Exact total time of a pipeline's work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    operations: u64,
    time: Exact,
}

impl Spent {
    /// Counts a command of `len` bytes.
    pub(crate) fn take(&mut self, pace: &mut Pace, len: u32) {
        self.operations += 1;
        let cost = pace.cost(len);
        self.time = pace.add(self.time, cost);
    }

    /// The same rounded up to the next nanosecond, so that it is valid for any pace.
    pub(crate) fn rounded(self) -> Self {
        Self {
            time: Free(self.time).rounded().0,
            ..self
        }
    }

    /// The total in whole nanoseconds.
    pub(crate) fn busy(self, server: Server, work: Work) -> Busy {
        Busy {
            server,
            work,
            operations: self.operations,
            busy_ns: self.time.whole,
        }
    }
}

fn least_common_multiple(left: u128, right: u128) -> u128 {
    let (mut a, mut b) = (left, right);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    left / a * right
}

#[cfg(test)]
mod tests;
