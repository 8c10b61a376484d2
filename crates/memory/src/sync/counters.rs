//! Counters and histograms with one writer and any number of readers, without locks.
//!
//! The one thread that owns a counter (a lane's reactor) writes it with a plain load and store.
//! Readers may see a value that is a few commands old, never a torn one. Two writers would lose
//! counts: the type cannot prevent that, the owner's `&mut` does.

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
        // no other thread writes, so load and store need not be one operation; readers need no
        // order with other data
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

/// A histogram in powers of two: bucket `b` counts values `v` with `2^b <= v < 2^(b+1)`; 0 counts
/// in bucket 0.
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

    /// Adds what another one has counted; only its one writer calls this.
    pub fn absorb(&self, other: &Histogram) {
        for (bucket, more) in self.buckets.iter().zip(&other.buckets) {
            bucket.add(more.get());
        }
    }

    /// The counts of all buckets.
    #[must_use]
    pub fn snapshot(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| self.buckets[bucket].get())
    }
}

/// Buckets of a [`LogHistogram`] for each power of two.
const PER_OCTAVE: u64 = 16;
/// Values from 2 to the power of this on count in its last bucket: 18 minutes, of nanoseconds.
const OCTAVES: u64 = 40;
/// Its buckets.
const LOG_BUCKETS: usize = ((OCTAVES - 3) * PER_OCTAVE) as usize;

/// A histogram with [`PER_OCTAVE`] buckets of equal width in each power of two: a value is known to
/// 1/16, values below 32 exactly.
#[derive(Debug)]
pub struct LogHistogram {
    buckets: Box<[Counter]>,
    sum: Counter,
}

impl Default for LogHistogram {
    fn default() -> Self {
        LogHistogram {
            buckets: (0..LOG_BUCKETS).map(|_| Counter::new()).collect(),
            sum: Counter::new(),
        }
    }
}

impl LogHistogram {
    /// Counts `value`; only its one writer calls this.
    pub fn record(&self, value: u64) {
        self.buckets[Self::bucket(value)].add(1);
        self.sum.add(value);
    }

    /// Adds what another one has counted; only its one writer calls this.
    pub fn absorb(&self, other: &LogHistogram) {
        for (bucket, more) in self.buckets.iter().zip(&other.buckets) {
            bucket.add(more.get());
        }
        self.sum.add(other.sum.get());
    }

    /// The sum of all values.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum.get()
    }

    /// Buckets that have counted something: the largest value that counts there, and how many did.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        // Where the sum is 0, only zeroes have come: many histograms are empty.
        let most = if self.sum() == 0 { 1 } else { LOG_BUCKETS };
        let buckets = self.buckets.iter().take(most);
        let all = buckets.map(Counter::get).enumerate();
        all.filter(|(_, count)| *count > 0)
            .map(|(bucket, count)| (Self::last_of(bucket), count))
    }

    fn bucket(value: u64) -> usize {
        if value < PER_OCTAVE {
            return value as usize;
        }
        let octave = u64::from(value.ilog2());
        let within = (value >> (octave - 4)) - PER_OCTAVE;
        (((octave - 3) * PER_OCTAVE + within) as usize).min(LOG_BUCKETS - 1)
    }

    /// The largest value that counts in a bucket.
    fn last_of(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        if bucket < PER_OCTAVE {
            return bucket;
        }
        let octave = bucket / PER_OCTAVE + 3;
        ((PER_OCTAVE + bucket % PER_OCTAVE + 1) << (octave - 4)) - 1
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
    fn a_value_is_known_to_a_sixteenth() {
        // by hand: below 32 exact; 32 and 33 share a bucket, as 1000 is in 992..=1023 and 2^20 in
        // 2^20..2^20 + 2^16
        let known = [(0, 0), (31, 31), (32, 33), (33, 33), (1000, 1023)];
        let more = [
            (1 << 20, (1 << 20) + (1 << 16) - 1),
            (u64::MAX, (1 << 40) - 1),
        ];
        for (value, last) in known.into_iter().chain(more) {
            let histogram = LogHistogram::default();
            histogram.record(value);
            assert_eq!(
                histogram.counts().collect::<Vec<_>>(),
                [(last, 1)],
                "{value}"
            );
        }
        let (one, two) = (LogHistogram::default(), LogHistogram::default());
        [5, 5, 100].iter().for_each(|value| one.record(*value));
        [5, 70].iter().for_each(|value| two.record(*value));
        one.absorb(&two);
        assert_eq!(one.sum(), 185);
        let counts: Vec<_> = one.counts().collect();
        assert_eq!(counts, [(5, 3), (71, 1), (103, 1)]);
    }

    #[test]
    fn a_counter_adds_and_wraps() {
        let counter = Counter::new();
        counter.add(u64::MAX);
        counter.add(3);
        assert_eq!(counter.get(), 2);
    }
}
