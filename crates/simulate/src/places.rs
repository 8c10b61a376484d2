//! Positions of commands: every position once in random order, or by popularity. In whole numbers,
//! from a seed.

use driver::workload::random::{Random, mix};

use crate::fixed::{Powers, log2};

/// Rounds of mixing two halves; four make the order random enough here.
const ROUNDS: u64 = 4;

/// A random permutation of the numbers below a bound, without memory: a Feistel network over the
/// next even number of bits, iterated for results outside.
#[derive(Clone, Debug)]
pub(crate) struct Shuffle {
    count: u64,
    half_bits: u32,
    key: u64,
}

impl Shuffle {
    /// A permutation of `0..count`; `count` must not be 0.
    pub(crate) fn new(count: u64, key: u64) -> Self {
        let bits = 64 - (count - 1).leading_zeros();
        Self {
            count,
            half_bits: bits.div_ceil(2).max(1),
            key,
        }
    }

    /// Number of values.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The number at `index`, which must be below the count.
    pub(crate) fn at(&self, index: u64) -> u64 {
        let mut value = index;
        loop {
            value = self.mixed(value);
            if value < self.count {
                return value;
            }
        }
    }

    fn mixed(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..ROUNDS {
            let new = left ^ mix(right ^ self.key.wrapping_add(round << 60 | round)) & mask;
            (left, right) = (right, new);
        }
        left << self.half_bits | right
    }
}

/// Number of ranks with an individual probability; beyond that each power of two has this many
/// parts.
const EXACT: u64 = 1024;
const PARTS_BITS: u32 = 8;
/// Unit of a distribution's exponent.
pub(crate) const THETA_UNIT: u64 = 1_000_000;

/// Zipf distribution: the probability of the position of rank `r` is proportional to `r^-theta`.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    /// First rank of each part, from 0, and the cumulative weight at its end.
    parts: Vec<(u64, u64)>,
    count: u64,
    total: u64,
    scattered: Shuffle,
}

impl Zipf {
    /// A distribution over `count` positions, not 0; `theta` in millionths.
    pub(crate) fn new(count: u64, theta: u64, key: u64) -> Self {
        let powers = Powers::new();
        let weight = |rank: u64| {
            let exponent = u128::from(log2(rank)) * u128::from(theta) / u128::from(THETA_UNIT);
            powers.negative(u64::try_from(exponent).unwrap_or(u64::MAX))
        };
        let mut sums: Vec<(u64, u128)> = Vec::new();
        let (mut rank, mut sum) = (0, 0u128);
        while rank < count {
            let bits = (rank + 1).ilog2();
            let len = if rank + 1 < EXACT {
                1
            } else {
                1 << (bits - PARTS_BITS)
            };
            let len = len.min(count - rank);
            sum += u128::from(weight(rank + 1 + (len - 1) / 2)) * u128::from(len);
            sums.push((rank, sum));
            rank += len;
        }
        let excess = (128 - sum.leading_zeros()).saturating_sub(63);
        let scaled = |sum: u128| u64::try_from(sum >> excess).expect("shifted to 63 bits");
        let parts: Vec<_> = sums.into_iter().map(|(r, s)| (r, scaled(s))).collect();
        Self {
            total: parts.last().map_or(0, |part| part.1),
            parts,
            count,
            scattered: Shuffle::new(count, key),
        }
    }

    fn rank(&self, random: &mut Random) -> u64 {
        let draw = random.below(self.total);
        let part = self.parts.partition_point(|part| part.1 <= draw);
        let first = self.parts[part].0;
        let next = self.parts.get(part + 1).map_or(self.count, |part| part.0);
        match next - first {
            1 => first,
            len => first + random.below(len),
        }
    }

    /// A random position.
    pub(crate) fn next(&self, random: &mut Random) -> u64 {
        self.scattered.at(self.rank(random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_has_every_number_once() {
        for count in [1, 2, 3, 4, 5, 16, 17, 1000, 4096] {
            let shuffle = Shuffle::new(count, 7);
            let mut all: Vec<_> = (0..count).map(|index| shuffle.at(index)).collect();
            if count >= 1000 {
                let moved = all.iter().zip(0..).filter(|(a, b)| **a != *b).count();
                assert!(moved as u64 > count * 9 / 10, "{moved} of {count}");
                let other = Shuffle::new(count, 8);
                assert!((0..count).any(|index| other.at(index) != all[index as usize]));
            }
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..count), "{count}");
        }
        let large = Shuffle::new(u64::MAX, 3);
        assert!(large.at(u64::MAX - 1) < u64::MAX);
    }

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        for (count, theta) in [(10_u64, 1.2_f64), (100_000, 0.9), (1 << 20, 1.1)] {
            let zipf = Zipf::new(count, (theta * 1e6).round() as u64, 1);
            let mut random = Random::new(5);
            let draws = 400_000;
            let mut seen = vec![0u64; 5000.min(count as usize)];
            for _ in 0..draws {
                let rank = zipf.rank(&mut random);
                assert!(rank < count);
                if let Some(seen) = seen.get_mut(rank as usize) {
                    *seen += 1;
                }
            }
            let harmonic: f64 = (1..=count).map(|r| (r as f64).powf(-theta)).sum();
            let share = |ranks: std::ops::Range<usize>| {
                let expected: f64 = ranks.clone().map(|r| (r as f64 + 1.0).powf(-theta)).sum();
                let seen: u64 = seen[ranks].iter().sum();
                (seen as f64 / draws as f64, expected / harmonic)
            };
            let mut ranges = vec![0..1, 1..2, 2..8];
            if count > 5000 {
                ranges.extend([8..100, 100..1000, 1000..1100, 1100..5000]);
            }
            for range in ranges {
                let (seen, expected) = share(range.clone());
                let tolerance = 0.003 + expected * 0.02;
                assert!(
                    (seen - expected).abs() < tolerance,
                    "{count} {theta} {range:?}: {seen} {expected}"
                );
            }
        }
    }

    #[test]
    fn popular_places_are_scattered() {
        let zipf = Zipf::new(1 << 20, 1_200_000, 9);
        let mut random = Random::new(1);
        let low = (0..1000)
            .filter(|_| zipf.next(&mut random) < 1 << 19)
            .count();
        assert!((1..1000).contains(&low), "{low}");
    }
}
