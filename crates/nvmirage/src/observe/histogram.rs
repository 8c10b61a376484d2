//! Histograms of latencies as Prometheus has them: classic ones, with fixed buckets, and native
//! ones, with sparse exponential buckets.
//!
//! Both are computed from what is counted ([`memory::LogHistogram`]): nanoseconds in 16 buckets of
//! equal width in each power of two. A bound of a classic bucket is the last value of one of those,
//! so that its count is exact. A bucket goes as a whole to the native bucket that its middle lies
//! in. Its values are within 1/32 of the middle, and what that native bucket is taken for within a
//! factor of 2^(1/16): see decision 43.

/// Bounds of classic buckets are powers of two of nanoseconds less one, from 1 us to 17 s.
const CLASSIC: std::ops::RangeInclusive<u32> = 10..=34;
/// Native buckets grow by a factor of 2^(2^-4): 16 for each power of two, as what is counted has.
pub(super) const SCHEMA: i32 = 4;
const PER_OCTAVE: f64 = 16.0;

/// Values in nanoseconds, as they are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Histogram {
    /// The largest value of a bucket and how many it has, in ascending order.
    pub(super) buckets: Vec<(u64, u64)>,
    /// All values together.
    pub(super) sum_ns: u64,
}

/// Native buckets that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Buckets that are passed over before it; of the first one, the number of its first bucket.
    pub(super) offset: i32,
    /// How many it has.
    pub(super) length: u32,
}

/// Sparse buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Native {
    /// Values of 0.
    pub(super) zeros: u64,
    pub(super) spans: Vec<Span>,
    /// The count of each bucket less that of the one before.
    pub(super) deltas: Vec<i64>,
}

impl Histogram {
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// The bounds of the classic buckets in nanoseconds, each with how many values are at most as
    /// large. The one of all values is not among them.
    pub(super) fn classic(&self) -> impl Iterator<Item = (u64, u64)> {
        CLASSIC.map(|power| {
            let bound = (1 << power) - 1;
            let below = self.buckets.iter().take_while(|(last, _)| *last <= bound);
            (bound, below.map(|(_, count)| count).sum())
        })
    }

    pub(super) fn native(&self) -> Native {
        let mut native = Native::default();
        // the number of the last bucket, and its count
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

/// The native bucket of what is counted up to a value; `None` of 0. Bucket `i` has what is greater
/// than 2^((i - 1) / 16) seconds, and not greater than 2^(i / 16).
fn index(largest: u64) -> Option<i32> {
    if largest == 0 {
        return None;
    }
    let width: u64 = match largest {
        0..32 => 1,
        _ => 1 << (largest.ilog2() - 4),
    };
    let middle = largest as f64 - (width - 1) as f64 / 2.0;
    // far from the ends of an i32: a middle is 1 to 2^40 ns
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

    /// Sparse buckets written out: their numbers with their counts.
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

    /// By hand: 1 s is the end of bucket 0, as 2^0; 2 s that of bucket 16; 1.5 s lies in bucket 10,
    /// as 2^(9/16) = 1.477 and 2^(10/16) = 1.542.
    #[test]
    fn native_buckets_are_those_of_their_schema() {
        let second = 1_000_000_000;
        // the last value of the bucket that 1.5 s counts in: 16 of them from 2^30 on are 2^26 ns
        // wide each
        let counted = |ns: u64| {
            let width = 1 << (ns.ilog2() - 4);
            ns / width * width + width - 1
        };
        let native = of(&[(counted(3 * second / 2), 5)]).native();
        assert_eq!(written_out(&native), [(10, 5)]);
        // 31 ns is counted exactly: log2(31e-9) * 16 = -399.0..., so that it lies in bucket -399
        let low = of(&[(0, 3), (31, 2)]).native();
        assert_eq!((low.zeros, written_out(&low)), (3, vec![(-399, 2)]));
    }

    /// No value is lost, buckets ascend, and each value is where the two errors together allow:
    /// half a bucket of ours, one of theirs.
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
