//! Histogram of latencies, in whole numbers only.
//!
//! Values below 512 have a bucket each; above that each power of two has 256, so that a percentile
//! is too high by at most 1 in 256. Minimum, maximum and sum are exact.

/// Buckets per power of two, as a power of two.
const SUB_BITS: u32 = 8;
/// Number of buckets for 64 bits.
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;

/// A histogram of values.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    least: u64,
    most: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            total: 0,
            sum: 0,
            least: u64::MAX,
            most: 0,
        }
    }
}

fn bucket(value: u64) -> usize {
    let shift = (63 - SUB_BITS).saturating_sub(value.leading_zeros());
    // At most 55 * 256 + 511.
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

/// The greatest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let shift = (bucket >> SUB_BITS).saturating_sub(1) as u32;
    let head = (bucket - ((shift as usize) << SUB_BITS)) as u64;
    // For the last bucket this is 2^64 - 1.
    (u128::from(head + 1) << shift).wrapping_sub(1) as u64
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
        self.sum += u128::from(value);
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The minimum; 0 if there are no values.
    #[must_use]
    pub fn least(&self) -> u64 {
        if self.total == 0 { 0 } else { self.least }
    }

    /// The maximum; 0 if there are no values.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most
    }

    /// The mean, rounded down; 0 if there are no values.
    #[must_use]
    pub fn mean(&self) -> u64 {
        let mean = self.sum.checked_div(self.total.into()).unwrap_or(0);
        u64::try_from(mean).expect("a mean of u64s is one")
    }

    /// Percentile `part` of `whole`: a value that this share of the values, and at least one of
    /// them, do not exceed; 0 if there are no values.
    #[must_use]
    pub fn percentile(&self, part: u64, whole: u64) -> u64 {
        let rank = (u128::from(self.total) * u128::from(part)).div_ceil(whole.into());
        let rank = rank.max(1);
        let mut seen = 0;
        let (from, to) = (bucket(self.least()), bucket(self.most));
        for index in from..=to {
            seen += u128::from(self.counts[index]);
            if seen >= rank {
                return upper(index).min(self.most);
            }
        }
        self.most
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Self) {
        for (here, there) in self.counts.iter_mut().zip(&other.counts) {
            *here += there;
        }
        self.total += other.total;
        self.sum += other.sum;
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        if self.total > 0 {
            let (from, to) = (bucket(self.least), bucket(self.most));
            self.counts[from..=to].fill(0);
        }
        (self.total, self.sum) = (0, 0);
        (self.least, self.most) = (u64::MAX, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_hold_what_falls_into_them() {
        let mut before = None;
        for bits in 0..64 {
            for near in [0, 1, 2, 255, 256, 257] {
                let value = (1u64 << bits).saturating_add(near << bits.max(8) >> 9);
                let index = bucket(value);
                assert!(index < BUCKETS);
                assert!(upper(index) >= value, "{value}");
                assert!(upper(index) - value <= value / 256, "{value}");
                assert!(index == 0 || upper(index - 1) < value, "{value}");
            }
            let first = bucket(1 << bits);
            assert!(before < Some(first));
            before = Some(first);
        }
        assert_eq!(upper(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn percentiles_are_by_rank() {
        let mut histogram = Histogram::default();
        (1..=100).for_each(|value| histogram.record(value));
        assert_eq!(histogram.percentile(50, 100), 50);
        assert_eq!(histogram.percentile(99, 100), 99);
        assert_eq!(histogram.percentile(999, 1000), 100);
        assert_eq!(histogram.percentile(0, 100), 1);
        assert_eq!((histogram.mean(), histogram.least()), (50, 1));
    }

    #[test]
    fn what_is_always_the_same_is_told_exactly() {
        let mut histogram = Histogram::default();
        (0..10).for_each(|_| histogram.record(57_317));
        assert_eq!(histogram.percentile(50, 100), 57_317);
        assert_eq!(histogram.percentile(9999, 10_000), 57_317);
        histogram.clear();
        assert_eq!((histogram.percentile(50, 100), histogram.least()), (0, 0));
        histogram.record(3);
        assert_eq!((histogram.count(), histogram.most()), (1, 3));
    }

    #[test]
    fn sums_of_two_are_what_one_would_have() {
        let (mut a, mut b, mut both) = Default::default();
        for value in [5, 700, 90_000] {
            Histogram::record(&mut a, value);
            Histogram::record(&mut b, value * 3);
            Histogram::record(&mut both, value);
            Histogram::record(&mut both, value * 3);
        }
        a.add(&b);
        for part in 0..=100 {
            assert_eq!(a.percentile(part, 100), both.percentile(part, 100));
        }
        assert_eq!(a.mean(), both.mean());
    }
}
