//! Numbered places that several threads take and give back.
//!
//! A taker whose place another thread had sees what that thread wrote there before it gave the
//! place back. The lowest free number is taken first, so that few places are in use.
//!
//! No one is woken: a taker that found none asks again. So that none waits forever, each taker has
//! a number of its own. One that has no place and found none is short of one: the others know. A
//! taker that has a place takes no other one meanwhile ([`Pool::take_more`]), and those that are
//! short have turns, in the order of their numbers ([`Pool::take_first`]). Only one place waits for
//! the taker whose turn it is: more places are for those behind it.

use crate::sync::atomics::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Numbers of a word.
const BITS: u16 = u64::BITS as u16;

/// See the module.
#[derive(Debug)]
pub struct Pool {
    /// A bit for each number that is free.
    free: Box<[AtomicU64]>,
    /// Numbers that are not lost.
    usable: AtomicU32,
    /// A bit for each taker that is short of a place.
    short: Box<[AtomicU64]>,
    takers: u16,
    /// The taker that had the last turn.
    turn: AtomicU16,
}

impl Pool {
    /// The numbers 0 to `count` - 1, all free, for `takers` takers.
    #[must_use]
    pub fn new(count: u16, takers: u16) -> Self {
        let words = count.div_ceil(BITS);
        let word = |at: u16| match count - at * BITS {
            left if left >= BITS => u64::MAX,
            left => (1 << left) - 1,
        };
        Pool {
            free: (0..words).map(|at| AtomicU64::new(word(at))).collect(),
            usable: AtomicU32::new(count.into()),
            short: (0..takers.div_ceil(BITS))
                .map(|_| AtomicU64::new(0))
                .collect(),
            takers,
            turn: AtomicU16::new(0),
        }
    }

    /// Takes a free number for a taker that has none. `None`: there is none for it now. It is short
    /// of one until it gets one, or says that it waits no longer ([`Self::end_short`]).
    #[must_use]
    pub fn take_first(&self, taker: u16) -> Option<u16> {
        let before = if self.is_short() {
            self.short_before(taker)
        } else {
            0
        };
        let taken = if before == 0 || self.count_free() > before {
            self.take()
        } else {
            None
        };
        if taken.is_none() {
            self.short_word(taker)
                .fetch_or(bit(taker), Ordering::Relaxed);
            return None;
        }
        if before == 0 {
            // Those that had an earlier turn than this one keep it.
            self.turn.store(taker, Ordering::Relaxed);
        }
        self.end_short(taker);
        taken
    }

    /// Takes a free number for a taker that has another one. `None`: there is none for it now.
    #[must_use]
    pub fn take_more(&self) -> Option<u16> {
        if self.is_short() { None } else { self.take() }
    }

    /// A taker waits no longer.
    pub fn end_short(&self, taker: u16) {
        let word = self.short_word(taker);
        // Most are not: a look costs the other threads nothing.
        if word.load(Ordering::Relaxed) & bit(taker) != 0 {
            word.fetch_and(!bit(taker), Ordering::Relaxed);
        }
    }

    fn is_short(&self) -> bool {
        let mut words = self.short.iter();
        words.any(|word| word.load(Ordering::Relaxed) != 0)
    }

    fn short_word(&self, taker: u16) -> &AtomicU64 {
        &self.short[usize::from(taker / BITS)]
    }

    /// Takers that are short and have their turn before this one.
    fn short_before(&self, taker: u16) -> u32 {
        let last = self.turn.load(Ordering::Relaxed);
        let turns = (last + 1..self.takers).chain(0..=last);
        let before = turns.take_while(|other| *other != taker);
        let is_short = |other: &u16| {
            let word = self.short_word(*other).load(Ordering::Relaxed);
            word & bit(*other) != 0
        };
        before.filter(is_short).count() as u32
    }

    fn count_free(&self) -> u32 {
        let words = self.free.iter();
        words
            .map(|word| word.load(Ordering::Relaxed).count_ones())
            .sum()
    }

    fn take(&self) -> Option<u16> {
        for (at, word) in (0u16..).zip(&self.free) {
            let mut seen = word.load(Ordering::Relaxed);
            while seen != 0 {
                let lowest = seen & seen.wrapping_neg();
                // Acquire: what was written to the place is there before it is used again.
                let before = word.fetch_and(!lowest, Ordering::Acquire);
                if before & lowest != 0 {
                    return Some(at * BITS + lowest.trailing_zeros() as u16);
                }
                seen = before;
            }
        }
        None
    }

    /// A number that was taken is free again.
    pub fn give_back(&self, number: u16) {
        let word = &self.free[usize::from(number / BITS)];
        let before = word.fetch_or(bit(number), Ordering::Release);
        debug_assert!(before & bit(number) == 0, "it is given back once");
    }

    /// A number that was taken is never given back.
    pub fn lose(&self) {
        self.usable.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether all are lost.
    #[must_use]
    pub fn are_lost(&self) -> bool {
        self.usable.load(Ordering::Relaxed) == 0
    }
}

/// The bit of a number in its word.
fn bit(number: u16) -> u64 {
    1 << (number % BITS)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::cell::UnsafeCell;
    use std::collections::BTreeSet;
    use std::thread;

    use super::*;

    #[test]
    fn each_number_is_there_once_and_the_lowest_first() {
        for count in [1, 2, 63, 64, 65, 130] {
            let pool = Pool::new(count, 1);
            let all: Vec<u16> = std::iter::from_fn(|| pool.take()).collect();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
            for number in BTreeSet::from([count - 1, 0]) {
                pool.give_back(number);
            }
            assert_eq!(pool.take(), Some(0));
        }
    }

    #[test]
    fn lost_ones_are_counted() {
        let pool = Pool::new(2, 1);
        assert!(pool.take().is_some() && pool.take().is_some());
        pool.lose();
        assert!(!pool.are_lost());
        pool.lose();
        assert!(pool.are_lost() && pool.take().is_none());
    }

    #[test]
    fn takers_that_are_short_have_turns() {
        let pool = Pool::new(1, 66);
        assert_eq!(pool.take_first(3), Some(0));
        for round in 0..3 {
            for [has, next, last] in [[3, 65, 0], [65, 0, 3], [0, 3, 65]] {
                for other in [last, next] {
                    assert_eq!(pool.take_first(other), None);
                }
                pool.give_back(0);
                for other in [has, last] {
                    assert_eq!(pool.take_first(other), None, "{other} in round {round}");
                }
                assert_eq!(pool.take_first(next), Some(0));
            }
        }
    }

    #[test]
    fn one_place_waits_for_the_next_taker_and_none_for_one_that_waits_no_longer() {
        let pool = Pool::new(2, 4);
        assert_eq!((pool.take_first(0), pool.take_more()), (Some(0), Some(1)));
        assert_eq!([1, 2, 3].map(|taker| pool.take_first(taker)), [None; 3]);
        pool.give_back(1);
        assert_eq!(pool.take_more(), None);
        assert_eq!([3, 2].map(|taker| pool.take_first(taker)), [None; 2]);
        pool.give_back(0);
        assert_eq!([3, 2].map(|taker| pool.take_first(taker)), [None, Some(0)]);
        pool.give_back(0);
        assert_eq!([3, 2].map(|taker| pool.take_first(taker)), [Some(0), None]);
        pool.end_short(2);
        pool.end_short(1);
        assert_eq!(pool.take_more(), Some(1));
    }

    struct Cells([UnsafeCell<u64>; 3]);

    // SAFETY: a cell is only used by the thread that has its number.
    unsafe impl Sync for Cells {}

    #[test]
    fn a_number_is_one_threads_at_a_time() {
        let pool = Pool::new(3, 4);
        let cells = Cells([0, 0, 0].map(UnsafeCell::new));
        let rounds = if cfg!(miri) { 50 } else { 20_000u64 };
        let cells_ref = &cells;
        thread::scope(|scope| {
            for taker in 0..4 {
                let pool = &pool;
                scope.spawn(move || {
                    let mut done = 0;
                    while done < rounds {
                        let Some(number) = pool.take_first(taker) else {
                            thread::yield_now();
                            continue;
                        };
                        // SAFETY: the number is this thread's.
                        unsafe { *cells_ref.0[usize::from(number)].get() += 1 };
                        pool.give_back(number);
                        done += 1;
                    }
                });
            }
        });
        let sum: u64 = cells.0.into_iter().map(UnsafeCell::into_inner).sum();
        assert_eq!(sum, 4 * rounds);
        let free: BTreeSet<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(free.len(), 3);
    }
}
