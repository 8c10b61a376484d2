//! Numbered places that several threads take and give back.
//!
//! A taker whose place another thread had sees what that thread wrote there before it gave the
//! place back. The lowest free number is taken first, so that few places are in use.
//!
//! No one is woken: a taker that found none asks again. To keep one that has no place from waiting
//! forever beside others that have some, it says that it is short of one ([`Pool::add_short`]);
//! those that have one then take no other ([`Pool::is_short`]).

use crate::sync::atomics::{AtomicU32, AtomicU64, Ordering};

/// Numbers of a word.
const BITS: u16 = u64::BITS as u16;

/// See the module.
#[derive(Debug)]
pub struct Pool {
    /// A bit for each number that is free.
    free: Box<[AtomicU64]>,
    /// Numbers that are not lost.
    usable: AtomicU32,
    /// Takers without a place that wait for one.
    short: AtomicU32,
}

impl Pool {
    /// The numbers 0 to `count` - 1, all free.
    #[must_use]
    pub fn new(count: u16) -> Self {
        let words = count.div_ceil(BITS);
        let word = |at: u16| match count - at * BITS {
            left if left >= BITS => u64::MAX,
            left => (1 << left) - 1,
        };
        Pool {
            free: (0..words).map(|at| AtomicU64::new(word(at))).collect(),
            usable: AtomicU32::new(count.into()),
            short: AtomicU32::new(0),
        }
    }

    /// Takes a free number. `None`: there is none now.
    #[must_use]
    pub fn take(&self) -> Option<u16> {
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
        let before = word.fetch_or(1 << (number % BITS), Ordering::Release);
        debug_assert!(before >> (number % BITS) & 1 == 0, "it is given back once");
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

    /// One more taker has no place, and waits for one.
    pub fn add_short(&self) {
        self.short.fetch_add(1, Ordering::Relaxed);
    }

    /// It has one, or waits no longer.
    pub fn end_short(&self) {
        self.short.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether one that has a place is to leave others to those that have none.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed) > 0
    }
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
            let pool = Pool::new(count);
            let all: Vec<u16> = std::iter::from_fn(|| pool.take()).collect();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
            pool.give_back(count - 1);
            pool.give_back(0);
            assert_eq!(pool.take(), Some(0));
        }
    }

    #[test]
    fn lost_ones_are_counted() {
        let pool = Pool::new(2);
        assert!(pool.take().is_some() && pool.take().is_some());
        pool.lose();
        assert!(!pool.are_lost());
        pool.lose();
        assert!(pool.are_lost() && pool.take().is_none());
    }

    struct Cells([UnsafeCell<u64>; 3]);

    // SAFETY: a cell is only used by the thread that has its number.
    unsafe impl Sync for Cells {}

    #[test]
    fn a_number_is_one_threads_at_a_time() {
        let pool = Pool::new(3);
        let cells = Cells([0, 0, 0].map(UnsafeCell::new));
        let rounds = if cfg!(miri) { 50 } else { 20_000u64 };
        let cells_ref = &cells;
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut done = 0;
                    while done < rounds {
                        let Some(number) = pool.take() else {
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
