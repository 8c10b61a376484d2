//! Random numbers from a seed: SplitMix64 (Steele, Lea and Flood, *Fast Splittable Pseudorandom
//! Number Generators*, 2014).

#[derive(Clone, Copy, Debug)]
pub(in crate::flash) struct Random {
    state: u64,
}

impl Random {
    pub(in crate::flash) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number, uniform over 64 bits.
    pub(in crate::flash) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Random {
    /// A number below `end`.
    pub(in crate::flash) fn below(&mut self, end: u64) -> u64 {
        let scaled = (u128::from(self.next()) * u128::from(end)) >> 64;
        u64::try_from(scaled).expect("below what was given in 64 bits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        // The reference output for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let numbers = [(); 3].map(|()| random.next());
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }
}
