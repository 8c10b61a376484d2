//! A link or channel with the selected rules.

use super::slots::Slots;
use crate::Arithmetic;
use crate::server::Intervals;

/// A path for transfers, one after another.
#[derive(Debug)]
pub(crate) enum Way {
    /// The book's.
    Exact(Intervals),
    /// The published program's.
    Code(Slots),
}

impl Way {
    pub(crate) fn new(arithmetic: Arithmetic) -> Self {
        match arithmetic {
            Arithmetic::Exact => Way::Exact(Intervals::default()),
            Arithmetic::Code => Way::Code(Slots::default()),
        }
    }

    /// Sets the bandwidth, and an additional time for each 4096 bytes. With the book's rules the
    /// caller of [`Way::reserve`] provides the duration.
    pub(crate) fn retune(&mut self, bytes_per_s: u64, per_page_ns: u64) {
        match self {
            Way::Exact(_) => {}
            Way::Code(slots) => slots.retune(bytes_per_s, per_page_ns),
        }
    }

    /// Reserves `bytes`, which take `length` nanoseconds by the book's rules, not before `from`,
    /// and returns their end. `now` is the present, at most `from`.
    pub(crate) fn reserve(&mut self, now: u64, from: u64, bytes: u32, length: u64) -> u64 {
        match self {
            Way::Exact(intervals) => intervals.reserve(now, from, length),
            Way::Code(slots) => slots.reserve(now, from, bytes),
        }
    }
}
