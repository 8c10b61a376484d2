//! The bytes of a key-value medium: units of 512 bytes, in chains.
//!
//! A chain has as many units as its bytes need, at any positions. So free space is never unusable:
//! while there are free units, a chain can have them. Unused units are taken in order; released
//! ones are taken in the order of their release, whole chains first, so that values of the same
//! size stay contiguous.
//!
//! Invariants:
//! - Each unit belongs to one chain, or is free: all chains and the free units add up to the total.
//! - Nothing is allocated after [`Space::new`], which reserves four bytes for each unit; the system
//!   provides memory as units are first used, and it is kept.
//!
//! Not included: keys and values.

use std::io;

use memory::Store;

/// Bytes of a unit.
pub(super) const UNIT: u64 = 512;
/// No unit.
const NONE: u32 = u32::MAX;

/// Units of one value, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    first: u32,
    last: u32,
    units: u32,
}

impl Chain {
    /// A chain without units.
    pub(super) const EMPTY: Chain = Chain {
        first: NONE,
        last: NONE,
        units: 0,
    };

    /// Number of its units: for tests.
    #[cfg(test)]
    pub(super) fn units(&self) -> u32 {
        self.units
    }
}

/// Units for `bytes` bytes.
pub(super) fn units_of(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT)
}

/// All units.
#[derive(Debug)]
pub(super) struct Space {
    store: Store,
    units: u32,
    /// For every unit that was ever taken, the next one in its chain or in the free list.
    next: Vec<u32>,
    /// Released units.
    free: Chain,
}

impl Space {
    /// Maximum size in bytes.
    pub(super) const MAX_BYTES: u64 = (NONE as u64 - 1) * UNIT;

    /// Creates a space of `bytes` bytes, a multiple of [`UNIT`] and at most [`Space::MAX_BYTES`].
    ///
    /// # Errors
    /// The system's: there is no room for that many addresses.
    pub(super) fn new(bytes: u64) -> io::Result<Self> {
        let units = u32::try_from(bytes / UNIT).ok().filter(|n| *n < NONE);
        let units = units.ok_or(io::ErrorKind::OutOfMemory)?;
        let mut next = Vec::new();
        next.try_reserve_exact(units as usize)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Space {
            store: Store::new(bytes)?,
            units,
            next,
            free: Chain::EMPTY,
        })
    }

    /// The memory that holds the bytes.
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Total number of units.
    pub(super) fn units(&self) -> u32 {
        self.units
    }

    /// Number of free units.
    pub(super) fn free_units(&self) -> u32 {
        self.free.units + self.fresh_units()
    }

    /// Number of units that were never taken.
    fn fresh_units(&self) -> u32 {
        self.units - self.taken_ever()
    }

    fn taken_ever(&self) -> u32 {
        u32::try_from(self.next.len())
            .expect("as many as units at most, which are counted in 32 bits")
    }

    /// Resizes a chain to `units` units: it keeps its first ones, and gets more, or releases the
    /// others.
    ///
    /// Returns false, without any change, if there are not enough.
    #[must_use]
    pub(super) fn resize(&mut self, chain: &mut Chain, units: u64) -> bool {
        let has = u64::from(chain.units);
        if units <= has {
            self.truncate(chain, units as u32);
            return true;
        }
        let more = units - has;
        if more > u64::from(self.free_units()) {
            return false;
        }
        let again = more.min(self.free.units.into()) as u32;
        let reused = self.take_free(again);
        self.join(chain, reused);
        let fresh = self.take_fresh(more as u32 - again);
        self.join(chain, fresh);
        true
    }

    /// Releases every chain.
    pub(super) fn clear(&mut self) {
        self.next.clear();
        self.free = Chain::EMPTY;
        self.store.zero(0, self.store.len(), true);
    }

    /// Cuts a chain after its first `keep` units, which must not exceed its length.
    fn truncate(&mut self, chain: &mut Chain, keep: u32) {
        if keep == chain.units {
            return;
        }
        let mut rest = *chain;
        *chain = self.split(&mut rest, keep);
        self.join(&mut rest, self.free);
        self.free = rest;
    }

    /// Splits off the first `count` units of a chain, which must have as many.
    fn split(&mut self, chain: &mut Chain, count: u32) -> Chain {
        if count == 0 {
            return Chain::EMPTY;
        }
        let mut last = chain.first;
        for _ in 1..count {
            last = self.next[last as usize];
        }
        let head = Chain {
            first: chain.first,
            last,
            units: count,
        };
        chain.first = std::mem::replace(&mut self.next[last as usize], NONE);
        chain.units -= count;
        if chain.units == 0 {
            *chain = Chain::EMPTY;
        }
        head
    }

    fn take_free(&mut self, count: u32) -> Chain {
        let mut free = self.free;
        let taken = self.split(&mut free, count);
        self.free = free;
        taken
    }

    /// Takes `count` units that were never taken; there must be as many.
    fn take_fresh(&mut self, count: u32) -> Chain {
        if count == 0 {
            return Chain::EMPTY;
        }
        let first = self.taken_ever();
        let last = first + count - 1;
        self.next.extend(first + 1..=last);
        self.next.push(NONE);
        Chain {
            first,
            last,
            units: count,
        }
    }

    /// Appends `tail` to `chain`.
    fn join(&mut self, chain: &mut Chain, tail: Chain) {
        if chain.units == 0 {
            *chain = tail;
        } else if tail.units > 0 {
            self.next[chain.last as usize] = tail.first;
            chain.last = tail.last;
            chain.units += tail.units;
        }
    }

    /// The pieces of `len` bytes of a chain, which must exist, from byte `at` on: offset in the
    /// store, and length.
    pub(super) fn pieces(&self, chain: Chain, at: u64, len: u64) -> Pieces<'_> {
        Pieces {
            next: &self.next,
            place: self.place(chain, at, len),
        }
    }

    /// Position of `len` bytes of a chain, which must exist, from byte `at` on.
    pub(super) fn place(&self, chain: Chain, at: u64, len: u64) -> Place {
        debug_assert!(at + len <= u64::from(chain.units) * UNIT);
        let mut unit = chain.first;
        if len > 0 {
            for _ in 0..at / UNIT {
                unit = self.next[unit as usize];
            }
        }
        Place {
            unit,
            skip: at % UNIT,
            left: len,
        }
    }

    /// Advances over the next contiguous bytes of a chain, at most `most`: returns offset in the
    /// store, and length.
    pub(super) fn next_piece(&self, place: &mut Place, most: u64) -> Option<(u64, u32)> {
        place.next(&self.next, most)
    }

    /// Checks that all chains and the free units contain each unit once: for tests.
    #[cfg(test)]
    pub(super) fn check(&self, chains: impl Iterator<Item = Chain>) {
        let mut seen = vec![false; self.units as usize];
        let mut counted = 0;
        for chain in chains.chain([self.free]) {
            let mut unit = chain.first;
            for left in (0..chain.units).rev() {
                assert!(!std::mem::replace(&mut seen[unit as usize], true));
                counted += 1;
                if left == 0 {
                    assert_eq!(unit, chain.last);
                    assert_eq!(self.next[unit as usize], NONE);
                }
                unit = self.next[unit as usize];
            }
            assert_eq!(unit, NONE, "a chain of no units, or its end");
        }
        assert_eq!(counted, self.taken_ever());
    }
}

/// Position in a chain, advanced piece by piece while the chain does not change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    unit: u32,
    /// Bytes of the first unit to skip.
    skip: u64,
    left: u64,
}

impl Place {
    /// An empty range.
    pub(super) const NOWHERE: Place = Place {
        unit: NONE,
        skip: 0,
        left: 0,
    };

    /// Consecutive units form one piece.
    fn next(&mut self, next: &[u32], most: u64) -> Option<(u64, u32)> {
        let most = most.min(self.left);
        if most == 0 {
            return None;
        }
        let start = u64::from(self.unit) * UNIT + self.skip;
        let mut len = UNIT - self.skip;
        while len < most && next[self.unit as usize] == self.unit + 1 {
            self.unit += 1;
            len += UNIT;
        }
        let now = len.min(most);
        self.left -= now;
        self.skip = 0;
        if now < len {
            self.skip = UNIT - (len - now);
        } else {
            self.unit = next[self.unit as usize];
        }
        Some((start, now as u32))
    }
}

/// Pieces of a chain: see [`Space::pieces`].
#[derive(Debug)]
pub(super) struct Pieces<'s> {
    next: &'s [u32],
    place: Place,
}

impl Iterator for Pieces<'_> {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<(u64, u32)> {
        self.place.next(self.next, u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_grow_and_shrink_and_lose_nothing() {
        let mut space = Space::new(16 * UNIT).unwrap();
        let mut a = Chain::EMPTY;
        let mut b = Chain::EMPTY;
        assert!(space.resize(&mut a, 6) && space.resize(&mut b, 10));
        assert_eq!(space.free_units(), 0);
        assert!(!space.resize(&mut a, 7));
        space.check([a, b].into_iter());
        assert!(space.resize(&mut b, 3) && space.resize(&mut a, 12));
        assert_eq!((space.free_units(), a.units(), b.units()), (1, 12, 3));
        space.check([a, b].into_iter());
        assert!(space.resize(&mut a, 0));
        assert_eq!(a, Chain::EMPTY);
        assert!(space.resize(&mut b, 16));
        space.check([b].into_iter());
        space.clear();
        assert_eq!(space.free_units(), 16);
        space.check([].into_iter());
    }

    #[test]
    fn what_follows_in_order_is_one_piece() {
        let mut space = Space::new(64 * UNIT).unwrap();
        let mut chains = [Chain::EMPTY; 3];
        for chain in &mut chains {
            assert!(space.resize(chain, 4));
        }
        let all = |space: &Space, chain, at, len| space.pieces(chain, at, len).collect::<Vec<_>>();
        assert_eq!(all(&space, chains[1], 0, 2048), [(2048, 2048)]);
        assert_eq!(all(&space, chains[1], 700, 1000), [(2748, 1000)]);
        assert_eq!(all(&space, chains[1], 2048, 0), []);
        // Given back as a whole, it is taken as a whole.
        let mut gone = chains[1];
        assert!(space.resize(&mut gone, 0));
        let mut again = Chain::EMPTY;
        assert!(space.resize(&mut again, 4));
        assert_eq!(all(&space, again, 0, 2048), [(2048, 2048)]);
        // And what does not follow is in pieces.
        let mut longer = chains[0];
        assert!(space.resize(&mut longer, 6));
        assert_eq!(
            all(&space, longer, 100, 2500),
            [(100, 1948), (12 * 512, 552)]
        );
    }
}
