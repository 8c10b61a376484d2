//! A permutation of `0..count` that needs no memory: a Feistel network on the next power of four,
//! iterated until the result is below `count`.

use crate::flash::extra::random::Random;

const ROUNDS: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    count: u32,
    /// Bits of each half.
    half: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// A permutation chosen by `random`.
    pub(super) fn new(count: u32, random: &mut Random) -> Self {
        let bits = u32::BITS - count.saturating_sub(1).leading_zeros();
        Self {
            count,
            half: bits.div_ceil(2).max(1),
            keys: [(); ROUNDS].map(|()| random.next()),
        }
    }

    /// Image of `index`, which must be below `count`.
    pub(super) fn apply(&self, index: u32) -> u32 {
        let mut at = u64::from(index);
        loop {
            at = self.once(at);
            if let Ok(found) = u32::try_from(at)
                && found < self.count
            {
                return found;
            }
        }
    }

    fn once(&self, at: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (at >> self.half, at & mask);
        for key in self.keys {
            let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (left, right) = (right, left ^ ((mixed ^ (mixed >> 29)) >> 13 & mask));
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once_and_in_no_order() {
        let mut random = Random::new(9);
        for count in [1, 2, 3, 4, 5, 100, 4096, 65_537, 300_000] {
            let permutation = Permutation::new(count, &mut random);
            let mut seen = vec![false; count as usize];
            let mut ascents = 0;
            let mut before = 0;
            for index in 0..count {
                let found = permutation.apply(index);
                assert!(
                    !std::mem::replace(&mut seen[found as usize], true),
                    "{count}"
                );
                ascents += u32::from(found > before);
                before = found;
            }
            if count > 1000 {
                assert!(
                    ascents.abs_diff(count / 2) < count / 20,
                    "{count}: {ascents}"
                );
            }
        }
    }
}
