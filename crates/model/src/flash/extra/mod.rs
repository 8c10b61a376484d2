//! Mechanisms that are off unless a parameter enables them. The book defines them, under
//! *Optional*.
//!
//! - [`background`]: collection while the drive is idle.
//! - [`jitter`]: random durations of senses, programs and erases.
//! - [`map_cache`]: a map that is larger than the memory for it.
//! - [`retry`]: random repetitions of senses.
//! - [`slc`]: a cache of single-bit cells.
//! - [`suspend`]: suspension of programs and erases for reads.
//!
//! Planes only need a time for each of them, which is stored with the dies.
//!
//! Random numbers come from a seed, in the order in which dies get operations: the same commands at
//! the same times give the same results.

pub(super) mod background;
mod jitter;
pub(super) mod map_cache;
pub(super) mod random;
mod retry;
pub(super) mod slc;
pub(super) mod suspend;

use self::jitter::Spread;
use self::random::Random;
use self::retry::Retry;
use crate::parameters::FlashExtras;

/// Random effects on the durations of dies.
#[derive(Debug)]
pub(crate) struct Chance {
    seed: u64,
    random: Random,
    read: Spread,
    program: Spread,
    erase: Spread,
    retry: Retry,
}

impl Chance {
    /// From the parameters; `None` if nothing is random.
    pub(crate) fn new(extras: &FlashExtras) -> Option<Self> {
        let chance = Self {
            seed: extras.seed,
            random: Random::new(extras.seed),
            read: Spread::new(extras.read_jitter_permille),
            program: Spread::new(extras.program_jitter_permille),
            erase: Spread::new(extras.erase_jitter_permille),
            retry: Retry::new(extras.read_retry_ppm),
        };
        let spreads = [chance.read, chance.program, chance.erase];
        let any = chance.retry.is_on() || spreads.iter().any(|spread| spread.is_on());
        any.then_some(chance)
    }

    /// Continues the sequence of `before` if the seed is the same.
    pub(crate) fn after(mut self, before: Option<Self>) -> Self {
        if let Some(before) = before.filter(|before| before.seed == self.seed) {
            self.random = before.random;
        }
        self
    }

    /// Random duration of a sense with nominal duration `ns`.
    pub(crate) fn read(&mut self, ns: u64) -> u64 {
        let senses = 1 + self.retry.repeats(&mut self.random);
        self.sum(senses, |chance| chance.read.apply(&mut chance.random, ns))
    }

    /// Random total duration of `count` programs with nominal duration `ns` each.
    pub(crate) fn programs(&mut self, ns: u64, count: u64) -> u64 {
        self.sum(count, |chance| chance.program.apply(&mut chance.random, ns))
    }

    /// Random total duration of `count` erases with nominal duration `ns` each.
    pub(crate) fn erases(&mut self, ns: u64, count: u64) -> u64 {
        self.sum(count, |chance| chance.erase.apply(&mut chance.random, ns))
    }

    fn sum(&mut self, count: u64, one: impl Fn(&mut Self) -> u64) -> u64 {
        (0..count).fold(0, |sum: u64, _| sum.saturating_add(one(self)))
    }
}
