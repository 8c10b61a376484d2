//! Which of two ways to copy long ranges is faster on this machine: whole, or in parts
//! ([`super::stream`]). In parts, 128 KiB take three quarters of the time on one processor, and a
//! third longer on another one of the same maker.
//!
//! The first copies, and some of many later ones, are tried in pairs, one of each way. The way that
//! wins most pairs is used until the next tries. Several threads may try at the same time, and then
//! mix their pairs up: a wrong choice costs time only.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Pairs of copies that are tried.
const PAIRS: u32 = 15;
/// Copies from one round of tries to the next.
const ROUND: u32 = 1 << 16;

/// See the module. It has cache lines of its own: each long copy stores to it, and every copy of
/// every thread reads what lies beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Ways {
    /// Copies since the last round of tries began.
    copies: AtomicU32,
    /// Picoseconds a byte of the last copy that was tried whole.
    whole: AtomicU64,
    /// Pairs of this round that parts have won, less those that they have lost.
    balance: AtomicI32,
    in_parts: AtomicBool,
}

impl Ways {
    /// How the next copy is to be made: whether in parts, and whether its time is to be noted
    /// ([`Self::note`]).
    #[inline]
    pub(super) fn next(&self) -> (bool, bool) {
        let number = self.copies.load(Ordering::Relaxed);
        self.copies.store((number + 1) % ROUND, Ordering::Relaxed);
        if number < 2 * PAIRS {
            (number % 2 == 1, true)
        } else {
            (self.in_parts.load(Ordering::Relaxed), false)
        }
    }

    /// A copy of `len` bytes, more than 0, has taken this long.
    #[cold]
    pub(super) fn note(&self, in_parts: bool, len: usize, took: Duration) {
        let took = took.as_nanos() as u64 * 1000 / len as u64;
        if !in_parts {
            self.whole.store(took, Ordering::Relaxed);
            return;
        }
        let won = match took.cmp(&self.whole.load(Ordering::Relaxed)) {
            std::cmp::Ordering::Less => 1,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => -1,
        };
        let balance = self.balance.load(Ordering::Relaxed) + won;
        if self.copies.load(Ordering::Relaxed) < 2 * PAIRS {
            self.balance.store(balance, Ordering::Relaxed);
        } else {
            self.in_parts.store(balance > 0, Ordering::Relaxed);
            self.balance.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of tries in which copies in parts take this share of the time of others, in percent.
    fn round(ways: &Ways, share: impl Fn(u32) -> u64) {
        for number in 0..ROUND {
            let (in_parts, is_tried) = ways.next();
            assert_eq!(is_tried, number < 30, "{number}");
            if is_tried {
                assert_eq!(in_parts, number % 2 == 1);
                let percent = if in_parts { share(number) } else { 100 };
                // Lengths differ: the time of a byte counts.
                let len = (1 + u64::from(number % 3)) << 16;
                let took = Duration::from_nanos(len * percent / 1000);
                ways.note(in_parts, len as usize, took);
            }
        }
    }

    #[test]
    fn the_faster_way_is_used_until_the_next_tries() {
        let ways = Ways::default();
        for (percent, expected) in [(75, true), (133, false), (100, false), (90, true)] {
            round(&ways, |_| percent);
            let before = ways.in_parts.load(Ordering::Relaxed);
            assert_eq!(before, expected, "{percent} %");
        }
    }

    #[test]
    fn a_few_copies_that_were_held_up_decide_nothing() {
        let ways = Ways::default();
        round(&ways, |number| if number % 5 == 0 { 10_000 } else { 75 });
        assert!(ways.in_parts.load(Ordering::Relaxed));
    }
}
