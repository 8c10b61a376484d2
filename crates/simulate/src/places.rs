//! Positions of commands: every position once in random order, or by popularity. In whole numbers,
//! from a seed.

use driver::workload::random::{Random, mix};

use crate::fixed::{LOG_BITS, Powers, log2};

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
    scattered: Scattered,
}

/// Where the ranks of a distribution are.
#[derive(Clone, Debug)]
pub(crate) enum Scattered {
    /// At random.
    Random(Shuffle),
    /// From here on, to the end and on from the beginning.
    From(u64),
}

impl Scattered {
    /// Over `count` positions; `center` in millionths of them.
    pub(crate) fn new(count: u64, center: Option<u64>, key: u64) -> Self {
        match center {
            None => Scattered::Random(Shuffle::new(count, key)),
            Some(center) => Scattered::From(part(count, center).min(count - 1)),
        }
    }

    fn at(&self, rank: u64, count: u64) -> u64 {
        match self {
            Scattered::Random(shuffle) => shuffle.at(rank),
            Scattered::From(first) => (rank + first) % count,
        }
    }
}

/// So many millionths of a number.
fn part(count: u64, millionths: u64) -> u64 {
    let part = u128::from(count) * u128::from(millionths) / u128::from(THETA_UNIT);
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// Pareto distribution: the first part `h` of the ranks gets all but the part `h` of the draws, and
/// so on within it. The position of a uniform `u` is `u` to the power of `log(h) / log(1 - h)`, as
/// in fio's `pareto_next` (lib/zipf.c).
#[derive(Clone, Debug)]
pub(crate) struct Pareto {
    powers: Powers,
    /// The exponent, in the form of [`log2`].
    exponent: u64,
    count: u64,
    scattered: Scattered,
}

impl Pareto {
    /// A distribution over `count` positions, not 0; `h` in millionths, between 0 and 1.
    pub(crate) fn new(count: u64, h: u64, scattered: Scattered) -> Self {
        let one = log2(THETA_UNIT);
        let (own, others) = (one - log2(h.max(1)), one - log2((THETA_UNIT - h).max(1)));
        let exponent = (u128::from(own) << LOG_BITS) / u128::from(others.max(1));
        Self {
            powers: Powers::new(),
            exponent: u64::try_from(exponent).unwrap_or(u64::MAX),
            count,
            scattered,
        }
    }

    fn rank(&self, random: &mut Random) -> u64 {
        let log = match random.next_u64().checked_add(1) {
            Some(draw) => (64u64 << LOG_BITS) - log2(draw),
            None => 0,
        };
        let exponent = (u128::from(log) * u128::from(self.exponent)) >> LOG_BITS;
        let power = self
            .powers
            .negative(u64::try_from(exponent).unwrap_or(u64::MAX));
        let rank = (u128::from(self.count) * u128::from(power)) >> 63;
        u64::try_from(rank).unwrap_or(u64::MAX).min(self.count - 1)
    }

    /// A random position.
    pub(crate) fn next(&self, random: &mut Random) -> u64 {
        self.scattered.at(self.rank(random), self.count)
    }
}

/// Normal distribution around a position. The sum of twelve uniform numbers has a variance of one;
/// positions outside are drawn again.
#[derive(Clone, Debug)]
pub(crate) struct Normal {
    count: u64,
    center: u64,
    deviation: u64,
}

impl Normal {
    /// A distribution over `count` positions, not 0; deviation and center in millionths of them.
    pub(crate) fn new(count: u64, deviation: u64, center: u64) -> Self {
        Self {
            count,
            center: part(count, center),
            deviation: part(count, deviation),
        }
    }

    /// A random position.
    pub(crate) fn next(&self, random: &mut Random) -> u64 {
        loop {
            let sum: i128 = (0..12).map(|_| i128::from(random.next_u64() >> 32)).sum();
            let z = sum - (6 << 32);
            let at = i128::from(self.center) + ((z * i128::from(self.deviation)) >> 32);
            if let Ok(at) = u64::try_from(at)
                && at < self.count
            {
                return at;
            }
        }
    }
}

/// Ranges with shares of the draws in per cent, 100 in all.
#[derive(Clone, Debug)]
pub(crate) struct Ranges(Vec<(u8, std::ops::Range<u64>)>);

impl Ranges {
    /// `None`: a range with draws has no position.
    pub(crate) fn new(ranges: Vec<(u8, std::ops::Range<u64>)>) -> Option<Self> {
        let fits = ranges
            .iter()
            .all(|(share, range)| *share == 0 || !range.is_empty());
        fits.then_some(Self(ranges))
    }

    /// A random position.
    pub(crate) fn next(&self, random: &mut Random) -> u64 {
        let mut draw = random.below(100);
        for (share, range) in &self.0 {
            match draw.checked_sub(u64::from(*share)) {
                Some(left) => draw = left,
                None => return range.start + random.below(range.end - range.start),
            }
        }
        0
    }
}

impl Zipf {
    /// A distribution over `count` positions, not 0; `theta` in millionths.
    pub(crate) fn new(count: u64, theta: u64, scattered: Scattered) -> Self {
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
            scattered,
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
        self.scattered.at(self.rank(random), self.count)
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
            let zipf = Zipf::new(
                count,
                (theta * 1e6).round() as u64,
                Scattered::new(count, None, 1),
            );
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
        let zipf = Zipf::new(1 << 20, 1_200_000, Scattered::new(1 << 20, None, 9));
        let mut random = Random::new(1);
        let low = (0..1000)
            .filter(|_| zipf.next(&mut random) < 1 << 19)
            .count();
        assert!((1..1000).contains(&low), "{low}");
    }

    /// Draws below each bound, as a share of all.
    fn below(bounds: &[u64], mut draw: impl FnMut(&mut Random) -> u64) -> Vec<f64> {
        let mut random = Random::new(11);
        let draws = 200_000;
        let mut seen = vec![0; bounds.len()];
        for _ in 0..draws {
            let at = draw(&mut random);
            for (seen, bound) in seen.iter_mut().zip(bounds) {
                *seen += u64::from(at < *bound);
            }
        }
        seen.iter()
            .map(|seen| *seen as f64 / draws as f64)
            .collect()
    }

    /// Of Pareto's law with 0.2, a fifth of the places has four fifths of the commands, and a fifth
    /// of that fifth four fifths of these.
    #[test]
    fn a_part_of_the_places_has_the_rest_of_the_commands() {
        for h in [0.2_f64, 0.3, 0.05] {
            let count = 1_000_000;
            let millionths = (h * 1e6).round() as u64;
            let pareto = Pareto::new(count, millionths, Scattered::new(count, Some(0), 1));
            let bounds = [millionths, (h * h * 1e6) as u64, count];
            let shares = below(&bounds, |random| pareto.next(random));
            for (share, expected) in shares.iter().zip([1.0 - h, (1.0 - h) * (1.0 - h), 1.0]) {
                assert!((share - expected).abs() < 0.005, "{h}: {share} {expected}");
            }
        }
        let elsewhere = Pareto::new(1000, 200_000, Scattered::new(1000, Some(250_000), 1));
        let shares = below(&[250, 450], |random| elsewhere.next(random));
        assert!((shares[1] - shares[0] - 0.8).abs() < 0.01, "{shares:?}");
    }

    /// Shares within one and two standard deviations: 68.27 and 95.45 per cent.
    #[test]
    fn most_places_are_near_the_center() {
        let normal = Normal::new(1_000_000, 100_000, 500_000);
        let bounds = [300_000, 400_000, 500_000, 600_000, 700_000, 1_000_000];
        let seen = below(&bounds, |random| normal.next(random));
        let one = seen[3] - seen[1];
        let two = seen[4] - seen[0];
        assert!((one - 0.6827).abs() < 0.006, "{one}");
        assert!((two - 0.9545).abs() < 0.006, "{two}");
        assert!((seen[2] - 0.5).abs() < 0.006, "{}", seen[2]);
        assert!((seen[5] - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn ranges_have_their_shares() {
        let ranges = Ranges::new(vec![(60, 0..10), (30, 10..30), (0, 30..30), (10, 30..100)]);
        let ranges = ranges.unwrap();
        let shares = below(&[5, 10, 30, 100], |random| ranges.next(random));
        for (share, expected) in shares.iter().zip([0.3, 0.6, 0.9, 1.0]) {
            assert!((share - expected).abs() < 0.005, "{share} {expected}");
        }
        assert!(Ranges::new(vec![(100, 0..0)]).is_none());
    }
}
