//! Logarithms and powers of two in whole numbers, which are the same on every machine, unlike the
//! system's mathematical functions.
//!
//! A logarithm has 32 fractional bits, a power of two 63.

/// Fractional bits of a logarithm.
pub(crate) const LOG_BITS: u32 = 32;

/// The base-2 logarithm of `value`, which must not be 0, rounded down.
pub(crate) fn log2(value: u64) -> u64 {
    let whole = value.ilog2();
    // From 1 to 2, with 63 fractional bits.
    let mut rest = u128::from(value) << (63 - whole);
    let mut log = u64::from(whole);
    for _ in 0..LOG_BITS {
        rest = (rest * rest) >> 63;
        let bit = rest >> 64;
        rest >>= bit;
        log = log << 1 | u64::from(bit == 1);
    }
    log
}

/// Powers of two with fractional exponents.
#[derive(Clone, Debug)]
pub(crate) struct Powers {
    /// 2^(-1/2), 2^(-1/4), ..., with 64 fractional bits.
    roots: [u64; LOG_BITS as usize],
}

impl Powers {
    pub(crate) fn new() -> Self {
        // A half; each further one is the root of the one before.
        let mut last = 1u128 << 63;
        let roots = [(); LOG_BITS as usize].map(|()| {
            last = (last << 64).isqrt();
            u64::try_from(last).expect("below 1, with 64 bits behind the point")
        });
        Self { roots }
    }

    /// 2 to the power of `-exponent`, with an exponent as from [`log2`]; with 63 fractional bits.
    pub(crate) fn negative(&self, exponent: u64) -> u64 {
        let whole = exponent >> LOG_BITS;
        if whole > 63 {
            return 0;
        }
        let mut value = 1u128 << 63;
        for (bit, root) in (0..LOG_BITS).rev().zip(&self.roots) {
            if exponent >> bit & 1 == 1 {
                value = (value * u128::from(*root)) >> 64;
            }
        }
        u64::try_from(value >> whole).expect("at most 1, with 63 bits behind the point")
    }
}

/// `-ln(u)` of `u` = (`draw` + 1) / 2^64, with 32 fractional bits: the interval between independent
/// events, in units of its mean.
pub(crate) fn exponential(draw: u64) -> u64 {
    /// ln 2, with 64 fractional bits.
    const LN_2: u128 = 0xb172_17f7_d1cf_79ab;
    let log = match draw.checked_add(1) {
        Some(value) => (64u64 << LOG_BITS) - log2(value),
        None => 0,
    };
    u64::try_from((u128::from(log) * LN_2) >> 64).expect("at most 64 ln 2")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(value: u64, bits: u32) -> f64 {
        value as f64 / 2f64.powi(bits as i32)
    }

    #[test]
    fn logarithms_are_those_of_the_mathematics() {
        for value in [
            1,
            2,
            3,
            5,
            10,
            1000,
            4097,
            1 << 40,
            12_345_678_901,
            u64::MAX,
        ] {
            let error = float(log2(value), 32) - (value as f64).log2();
            assert!(error.abs() < 1e-9, "{value}: {error}");
        }
    }

    #[test]
    fn powers_are_those_of_the_mathematics() {
        let powers = Powers::new();
        for tenths in 0..300 {
            let exponent = tenths * (1 << 32) / 10;
            let expected = 2f64.powf(-float(exponent, 32));
            let relative = float(powers.negative(exponent), 63) / expected - 1.0;
            assert!(relative.abs() < 1e-8, "{tenths}: {relative}");
        }
        assert_eq!(powers.negative(0), 1 << 63);
        assert_eq!(powers.negative(1 << 32), 1 << 62);
        assert_eq!(powers.negative(u64::MAX), 0);
    }

    #[test]
    fn distances_are_those_of_an_exponential_distribution() {
        for draw in [0, 1, 1 << 20, 1 << 50, 1 << 63, u64::MAX - 5] {
            let expected = -((draw as f64 + 1.0) / 2f64.powi(64)).ln();
            let error = float(exponential(draw), 32) - expected;
            assert!(error.abs() < 1e-8, "{draw}: {error}");
        }
        assert_eq!(exponential(u64::MAX), 0);
    }
}
