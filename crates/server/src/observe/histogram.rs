//! Prometheus histograms of latencies: classic, with fixed buckets, and native, with sparse
//! exponential buckets.
//!
//! Both are computed from [`memory::LogHistogram`], which counts nanoseconds in 16 buckets of equal
//! width per power of two. The bound of a classic bucket is the last value of such a bucket, so its
//! count is exact. For native histograms, a bucket is assigned as a whole to the native bucket that
//! contains its middle. Its values are within 1/32 of the middle, and the value by which that
//! native bucket is represented is within a factor of 2^(1/16): see decision 43.

/// Upper bounds of classic buckets: powers of two of nanoseconds less one, from 1 us to 17 s.
const CLASSIC: std::ops::RangeInclusive<u32> = 10..=34;
/// Growth of native buckets by a factor of 2^(2^-4), which is 16 per power of two, as in the
/// source.
pub(super) const SCHEMA: i32 = 4;
const PER_OCTAVE: f64 = 16.0;

/// Counts of values in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Histogram {
    /// Largest value and count of each bucket, in ascending order.
    pub(super) buckets: Vec<(u64, u64)>,
    /// Sum of all values.
    pub(super) sum_ns: u64,
}

/// A run of consecutive native buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Buckets skipped before the run; for the first run, the index of its first bucket.
    pub(super) offset: i32,
    /// Number of buckets.
    pub(super) length: u32,
}

/// Sparse buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Native {
    /// Values of 0.
    pub(super) zeros: u64,
    pub(super) spans: Vec<Span>,
    /// Count of each bucket minus that of the previous one.
    pub(super) deltas: Vec<i64>,
}

impl Histogram {
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// The bounds of the classic buckets in nanoseconds, each with the count of values up to it.
    /// The bucket of all values is not included.
    pub(super) fn classic(&self) -> impl Iterator<Item = (u64, u64)> {
        CLASSIC.map(|power| {
            let bound = (1 << power) - 1;
            let below = self.buckets.iter().take_while(|(last, _)| *last <= bound);
            (bound, below.map(|(_, count)| count).sum())
        })
    }

    pub(super) fn native(&self) -> Native {
        let mut native = Native::default();
        // index and count of the last bucket
        let mut last: Option<(i32, i64)> = None;
        let mut before = 0;
        for (largest, count) in &self.buckets {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            let Some(index) = index(*largest) else {
                native.zeros += count.unsigned_abs();
                continue;
            };
            if let (Some((at, sum)), Some(delta)) = (&mut last, native.deltas.last_mut())
                && *at == index
            {
                *sum += count;
                *delta += count;
                continue;
            }
            let gap = last.map(|(at, sum)| {
                before = sum;
                index - at - 1
            });
            match (gap, native.spans.last_mut()) {
                (Some(0), Some(span)) => span.length += 1,
                (gap, _) => native.spans.push(Span {
                    offset: gap.unwrap_or(index),
                    length: 1,
                }),
            }
            native.deltas.push(count - before);
            last = Some((index, count));
        }
        native
    }
}

/// The native bucket for a source bucket with that largest value; `None` for 0. Bucket `i` holds
/// values greater than 2^((i - 1) / 16) seconds and up to 2^(i / 16) seconds.
fn index(largest: u64) -> Option<i32> {
    if largest == 0 {
        return None;
    }
    let width: u64 = match largest {
        0..32 => 1,
        _ => 1 << (largest.ilog2() - 4),
    };
    let middle = largest as f64 - (width - 1) as f64 / 2.0;
    // fits: the middle is between 1 and 2^40 ns
    Some(((middle / 1e9).log2() * PER_OCTAVE).ceil() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(buckets: &[(u64, u64)]) -> Histogram {
        Histogram {
            buckets: buckets.to_vec(),
            sum_ns: 0,
        }
    }

    #[test]
    fn classic_buckets_have_what_is_at_most_their_bound() {
        let counted = of(&[(0, 1), (1023, 2), (1087, 4), (2047, 8), ((1 << 40) - 1, 16)]);
        let classic: Vec<_> = counted.classic().collect();
        assert_eq!(&classic[..3], &[(1023, 3), (2047, 15), (4095, 15)]);
        assert_eq!(classic.last(), Some(&((1 << 34) - 1, 15)));
        assert_eq!(counted.count(), 31);
    }

    /// Sparse buckets as pairs of index and count.
    fn written_out(native: &Native) -> Vec<(i32, i64)> {
        let (mut at, mut count, mut all) = (0, 0, Vec::new());
        let mut deltas = native.deltas.iter();
        for span in &native.spans {
            at += span.offset;
            for _ in 0..span.length {
                count += deltas.next().unwrap();
                all.push((at, count));
                at += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        all
    }

    /// By hand: 1 s ends bucket 0, as 2^0; 2 s ends bucket 16; 1.5 s is in bucket 10, because
    /// 2^(9/16) = 1.477 and 2^(10/16) = 1.542.
    #[test]
    fn native_buckets_are_those_of_their_schema() {
        let second = 1_000_000_000;
        // the last value of the source bucket of 1.5 s: from 2^30 on, each of the 16 is 2^26 ns
        // wide
        let counted = |ns: u64| {
            let width = 1 << (ns.ilog2() - 4);
            ns / width * width + width - 1
        };
        let native = of(&[(counted(3 * second / 2), 5)]).native();
        assert_eq!(written_out(&native), [(10, 5)]);
        // 31 ns is counted exactly: log2(31e-9) * 16 = -399.0..., so its bucket is -399
        let low = of(&[(0, 3), (31, 2)]).native();
        assert_eq!((low.zeros, written_out(&low)), (3, vec![(-399, 2)]));
    }

    /// No value is lost, buckets ascend, and the error of each value is within the sum of both:
    /// half a source bucket and one native bucket.
    #[test]
    fn what_is_counted_is_found_near_where_it_was() {
        let histogram = memory::LogHistogram::default();
        let mut value = 1u64;
        let mut values = Vec::new();
        while value < 1 << 38 {
            histogram.record(value);
            values.push(value);
            value += value / 7 + 1;
        }
        let counted = Histogram {
            buckets: histogram.counts().collect(),
            sum_ns: histogram.sum(),
        };
        let all = written_out(&counted.native());
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let sum: i64 = all.iter().map(|(_, count)| count).sum();
        assert_eq!(sum, values.len() as i64);
        for value in values {
            let seconds = value as f64 / 1e9;
            let near = all.iter().filter(|(_, count)| *count > 0).any(|(at, _)| {
                let end = (f64::from(*at) / PER_OCTAVE).exp2();
                let begin = (f64::from(at - 1) / PER_OCTAVE).exp2();
                let half = 1.0 + 1.0 / 32.0;
                seconds <= end * half && seconds * half >= begin
            });
            assert!(near, "{value} ns");
        }
    }
}
