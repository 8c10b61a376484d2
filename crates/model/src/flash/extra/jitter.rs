//! Lognormal spread of durations around their nominal value: `ns * exp(sigma * z)` with a standard
//! normal `z`, so that half of them are shorter and half longer.
//!
//! Only whole numbers are used. `z` is the sum of twelve uniform 16-bit numbers minus its mean, in
//! units of 2^-16: its standard deviation is 1 and its range ends at six. Three 64-bit numbers give
//! the twelve, each from its lowest 16 bits up. The exponential is a power of two: whole part and
//! fraction of `sigma * z / ln 2`, the fraction bit by bit from the table of roots of 2.

use super::random::Random;

/// 2^32 / ln 2.
const PER_LN_2: i64 = 6_196_328_019;

/// 2^30 times the 2nd, 4th, 8th … root of 2, to the nearest.
const ROOTS_OF_2: [u64; 24] = [
    1_518_500_250,
    1_276_901_417,
    1_170_923_762,
    1_121_280_436,
    1_097_253_708,
    1_085_434_106,
    1_079_572_136,
    1_076_653_033,
    1_075_196_443,
    1_074_468_888,
    1_074_105_294,
    1_073_923_544,
    1_073_832_680,
    1_073_787_251,
    1_073_764_537,
    1_073_753_181,
    1_073_747_502,
    1_073_744_663,
    1_073_743_244,
    1_073_742_534,
    1_073_742_179,
    1_073_742_001,
    1_073_741_913,
    1_073_741_868,
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    sigma_permille: u32,
}

impl Spread {
    /// Creates a spread with sigma in thousandths, at most 2000: 0 is no spread.
    pub(super) fn new(sigma_permille: u32) -> Self {
        Self { sigma_permille }
    }

    pub(super) fn is_on(self) -> bool {
        self.sigma_permille > 0
    }

    /// The spread duration of `ns`. Takes three random numbers; none if off.
    pub(super) fn apply(self, random: &mut Random, ns: u64) -> u64 {
        if !self.is_on() {
            return ns;
        }
        // In 2^-16, at most 12, towards 0.
        let exponent = i64::from(self.sigma_permille) * normal(random) / 1000;
        scale(ns, exponent)
    }
}

/// A standard normal number in units of 2^-16.
fn normal(random: &mut Random) -> i64 {
    let mut sum = 0;
    for _ in 0..3 {
        let number = random.next();
        for part in 0..4 {
            sum += ((number >> (16 * part)) & 0xffff) as i64;
        }
    }
    sum - 12 * 0xffff / 2
}

/// `ns * exp(exponent / 2^16)`, rounded down.
fn scale(ns: u64, exponent: i64) -> u64 {
    let power = (exponent * PER_LN_2) >> 16; // of two, in 2^-32: below 2^(20 + 33)
    let (whole, fraction) = (power >> 32, power & 0xffff_ffff);
    let mut factor = 1u64 << 30;
    for (bit, root) in ROOTS_OF_2.iter().enumerate() {
        if fraction >> (31 - bit) & 1 == 1 {
            factor = (factor * root) >> 30;
        }
    }
    let scaled = u128::from(ns) * u128::from(factor); // below 2^(64 + 31)
    let scaled = match whole {
        0.. => scaled << whole.min(30),
        _ => scaled >> (-whole).min(100),
    };
    u64::try_from(scaled >> 30).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_that_of_floating_point() {
        for exponent in (-12 * 65_536..12 * 65_536).step_by(997) {
            let exact = 1e9 * (exponent as f64 / 65_536.0).exp();
            let found = scale(1_000_000_000, exponent) as f64;
            assert!(
                (found - exact).abs() <= 1.0 + exact * 1e-6,
                "{exponent}: {found} {exact}"
            );
        }
        assert_eq!(scale(12_345, 0), 12_345);
        assert_eq!(scale(u64::MAX, 12 * 65_536), u64::MAX);
    }

    #[test]
    fn times_are_spread_lognormally() {
        let mut random = Random::new(42);
        let spread = Spread::new(250);
        let mut times: Vec<u64> = (0..200_000)
            .map(|_| spread.apply(&mut random, 1_000_000))
            .collect();
        times.sort_unstable();
        // Quantiles of the standard normal distribution.
        for (share, z) in [
            (0.001, -3.090),
            (0.01, -2.326),
            (0.1587, -1.0),
            (0.5, 0.0),
            (0.8413, 1.0),
            (0.99, 2.326),
            (0.999, 3.090),
        ] {
            let exact = 1e6 * (0.25f64 * z).exp();
            let found = times[(share * times.len() as f64) as usize] as f64;
            let allowed = if z.abs() > 3.0 { 0.05 } else { 0.01 };
            assert!(
                (found / exact - 1.0).abs() < allowed,
                "{share}: {found} {exact}"
            );
        }
    }

    #[test]
    fn no_spread_takes_no_number() {
        let mut random = Random::new(1);
        assert_eq!(Spread::new(0).apply(&mut random, 7), 7);
        assert_eq!(random.next(), Random::new(1).next());
    }
}
