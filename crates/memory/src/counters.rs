//! Counters and histograms with one writer and any number of readers, without locks.
//!
//! A counter is written by the one thread that owns it (a lane's reactor) with a plain load and store; readers may see
//! a value that is a few commands old, never a torn one. Two writers would lose counts: the type cannot prevent that,
//! the owner's `&mut` does.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    #[must_use]
    pub const fn new() -> Self {
        Counter(AtomicU64::new(0))
    }

    /// Adds `n`; only its one writer calls this. Wraps past 2^64.
    #[inline]
    pub fn add(&self, n: u64) {
        // no other thread writes, so load and store need not be one operation; readers need no order with other data
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// The count, possibly a moment old.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Buckets of a [`Histogram`]: one for each position of the highest bit.
pub const BUCKETS: usize = 64;

/// A histogram in powers of two: bucket `b` counts values `v` with `2^b <= v < 2^(b+1)`; 0 counts in bucket 0.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: [const { Counter::new() }; BUCKETS],
        }
    }
}

impl Histogram {
    /// Counts `value`; only its one writer calls this.
    #[inline]
    pub fn record(&self, value: u64) {
        self.buckets[(value | 1).ilog2() as usize].add(1);
    }

    /// The counts of all buckets.
    #[must_use]
    pub fn snapshot(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| self.buckets[bucket].get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_bucket_of_its_highest_bit() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 1023, 1024, u64::MAX] {
            histogram.record(value);
        }
        let counts = histogram.snapshot();
        assert_eq!(&counts[..3], &[2, 2, 1]);
        assert_eq!((counts[9], counts[10], counts[63]), (1, 1, 1));
        assert_eq!(counts.iter().sum::<u64>(), 8);
    }

    #[test]
    fn a_counter_adds_and_wraps() {
        let counter = Counter::new();
        counter.add(u64::MAX);
        counter.add(3);
        assert_eq!(counter.get(), 2);
    }
}
