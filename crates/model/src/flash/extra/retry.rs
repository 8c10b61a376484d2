//! Read retries: after each sense, another one follows with some probability, up to eight.

use super::random::Random;

/// Maximum number of repetitions of a sense.
const MOST: u64 = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    per_million: u32,
}

impl Retry {
    pub(super) fn new(per_million: u32) -> Self {
        Self { per_million }
    }

    pub(super) fn is_on(self) -> bool {
        self.per_million > 0
    }

    /// Number of repetitions of a sense. Each test takes one random number, of which the upper 32
    /// bits count; if off, none.
    pub(super) fn repeats(self, random: &mut Random) -> u64 {
        if !self.is_on() {
            return 0;
        }
        let again = |_: &u64| (random.next() >> 32) * 1_000_000 < u64::from(self.per_million) << 32;
        (0..MOST).take_while(again).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_come_as_often_as_they_should() {
        let mut random = Random::new(3);
        let retry = Retry::new(100_000);
        let mut counts = [0u32; 9];
        for _ in 0..100_000 {
            counts[retry.repeats(&mut random) as usize] += 1;
        }
        let near = |count: u32, expected: u32| count.abs_diff(expected) < expected / 20 + 30;
        assert!(
            near(counts[0], 90_000) && near(counts[1], 9000) && near(counts[2], 900),
            "{counts:?}"
        );
        let always = Retry::new(1_000_000);
        assert_eq!(always.repeats(&mut random), 8);
        assert_eq!(Retry::new(0).repeats(&mut random), 0);
    }
}
