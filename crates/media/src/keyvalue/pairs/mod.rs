//! Keys and their values: operations common to all dialects, without the log of changes.
//!
//! Invariants:
//! - A failed operation has changed nothing.
//! - A pair takes exactly the units that its value and the part of its key beyond 16 bytes need:
//!   with the free ones they add up to the size. A value is overwritten in place, so that a full
//!   medium accepts one of the same size.
//! - Nothing is allocated: [`Index`] and [`Space`] have all their memory from the start.

use std::io;

use memory::Store;

use super::data::{Source, Target};
use super::index::{Index, KEY_MAX, Key, Slot, tail_len};
use super::space::{Chain, Place, Space, UNIT, units_of};
use crate::look::PairsLook;

/// Bytes of the largest value.
pub(crate) const VALUE_MAX: u32 = 2 << 20;

/// Keys to which a store applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Any.
    Any,
    /// Only existing ones.
    MustExist,
    /// Only ones that do not exist.
    MustNotExist,
}

/// Why an operation was not performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The key does not exist.
    NotFound,
    /// The key exists.
    Exists,
    /// There is no room, for the bytes or for one more key.
    Full,
    /// The value would be larger than [`VALUE_MAX`].
    TooLarge,
    /// The offset lies behind the end of the value.
    BeyondEnd,
}

/// All pairs of a medium.
#[derive(Debug)]
pub(super) struct Pairs {
    index: Index,
    space: Space,
}

impl Pairs {
    /// Creates room for `bytes` bytes, in units of 512, and for `keys` keys.
    ///
    /// # Errors
    /// The system's: there is not enough memory.
    pub(super) fn new(bytes: u64, keys: u32) -> io::Result<Self> {
        Ok(Pairs {
            index: Index::new(keys)?,
            space: Space::new(bytes)?,
        })
    }

    /// Number of keys.
    pub(super) fn keys(&self) -> u32 {
        self.index.len()
    }

    /// Size in bytes.
    pub(super) fn size(&self) -> u64 {
        u64::from(self.space.units()) * UNIT
    }

    /// Bytes in use, in whole units.
    pub(super) fn used(&self) -> u64 {
        u64::from(self.space.units() - self.space.free_units()) * UNIT
    }

    /// Current state.
    pub(super) fn look(&self) -> PairsLook {
        let (key_bytes, value_bytes) = self.index.bytes();
        PairsLook {
            pairs: self.keys(),
            max_pairs: self.index.max(),
            key_bytes,
            value_bytes,
            used_bytes: self.used(),
            bytes: self.size(),
            unit_bytes: UNIT,
            index_bytes: self.index.entry_bytes(),
        }
    }

    /// Deletes everything.
    pub(super) fn clear(&mut self) {
        self.index.clear();
        self.space.clear();
    }

    /// The memory that holds the values.
    pub(super) fn bytes(&self) -> &Store {
        self.space.store()
    }

    fn find(&self, key: &[u8]) -> Result<Slot, Refusal> {
        let found = self.index.get(&Key::new(key), &self.space);
        found.ok_or(Refusal::NotFound)
    }

    /// Stores the next `len` bytes of `value` under a key; returns the place of the pair.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`], [`Refusal::Full`], and what `rule` forbids.
    pub(super) fn store(
        &mut self,
        key: &[u8],
        rule: Rule,
        len: u32,
        value: &mut impl Source,
    ) -> Result<Slot, Refusal> {
        if len > VALUE_MAX {
            return Err(Refusal::TooLarge);
        }
        let wanted = Key::new(key);
        let place = self.index.find(&wanted, &self.space);
        match (rule, place.found()) {
            (Rule::MustExist, None) => return Err(Refusal::NotFound),
            (Rule::MustNotExist, Some(_)) => return Err(Refusal::Exists),
            _ => {}
        }
        let tail = wanted.tail();
        let units = units_of(tail.len() as u64 + u64::from(len));
        let (slot, chain) = if let Some(slot) = place.found() {
            let mut chain = self.index.chain(slot);
            self.grow(&mut chain, units)?;
            self.index.set(slot, chain, len);
            (slot, chain)
        } else {
            if !self.index.has_room() {
                return Err(Refusal::Full);
            }
            let mut chain = Chain::EMPTY;
            self.grow(&mut chain, units)?;
            self.write_tail(chain, tail);
            let slot = self.index.insert(&wanted, &place, chain, len, &self.space);
            (slot, chain)
        };
        self.fill(chain, tail.len() as u64, len, value);
        Ok(slot)
    }

    /// Appends the next `len` bytes of `value` to a key's value, or stores them if the key does not
    /// exist. Returns the place of the pair, and the size of the value.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`], [`Refusal::Full`], and what `rule` forbids.
    pub(super) fn append(
        &mut self,
        key: &[u8],
        rule: Rule,
        len: u32,
        value: &mut impl Source,
    ) -> Result<(Slot, u32), Refusal> {
        let found = match self.find(key) {
            Ok(slot) if rule != Rule::MustNotExist => slot,
            _ => return self.store(key, rule, len, value).map(|slot| (slot, len)),
        };
        let old = self.index.value_len(found);
        let new = old.checked_add(len).filter(|new| *new <= VALUE_MAX);
        let new = new.ok_or(Refusal::TooLarge)?;
        let start = tail_len(key.len()) as u64;
        let mut chain = self.index.chain(found);
        self.grow(&mut chain, units_of(start + u64::from(new)))?;
        self.index.set(found, chain, new);
        self.fill(chain, start + u64::from(old), len, value);
        Ok((found, new))
    }

    fn grow(&mut self, chain: &mut Chain, units: u64) -> Result<(), Refusal> {
        let done = self.space.resize(chain, units);
        done.then_some(()).ok_or(Refusal::Full)
    }

    fn write_tail(&self, chain: Chain, mut tail: &[u8]) {
        for (at, len) in self.space.pieces(chain, 0, tail.len() as u64) {
            let (piece, rest) = tail.split_at(len as usize);
            self.space.store().write_bytes(at, piece);
            tail = rest;
        }
    }

    fn fill(&self, chain: Chain, at: u64, len: u32, value: &mut impl Source) {
        for (at, len) in self.space.pieces(chain, at, len.into()) {
            value.take_into(self.space.store(), at, len);
        }
    }

    /// Returns up to `room` bytes of a key's value, from byte `offset` on, and the size of the
    /// whole value.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], [`Refusal::BeyondEnd`].
    pub(super) fn retrieve(
        &self,
        key: &[u8],
        offset: u32,
        room: u32,
        out: &mut impl Target,
    ) -> Result<u32, Refusal> {
        let slot = self.find(key)?;
        let len = self.index.value_len(slot);
        let rest = len.checked_sub(offset).ok_or(Refusal::BeyondEnd)?;
        self.copy(slot, offset, rest.min(room), out);
        Ok(len)
    }

    /// Returns `len` bytes of a key's value, which must exist, from byte `offset` on.
    pub(super) fn copy(&self, slot: Slot, offset: u32, len: u32, out: &mut impl Target) {
        self.for_pieces(slot, offset, len, |store, at, len| {
            out.put_from(store, at, len);
        });
    }

    /// Calls `each` with the pieces of `len` bytes of a value, which must exist, from byte `offset`
    /// on: position and length of each.
    pub(super) fn for_pieces(
        &self,
        slot: Slot,
        offset: u32,
        len: u32,
        mut each: impl FnMut(&Store, u64, u32),
    ) {
        let start = tail_len(self.index.key_len(slot)) as u64 + u64::from(offset);
        for (at, len) in self.space.pieces(self.index.chain(slot), start, len.into()) {
            each(self.space.store(), at, len);
        }
    }

    /// Position of `len` bytes of a value, which must exist, from byte `offset` on. Valid while the
    /// pairs do not change.
    pub(super) fn place(&self, slot: Slot, offset: u32, len: u32) -> Place {
        let start = tail_len(self.index.key_len(slot)) as u64 + u64::from(offset);
        self.space.place(self.index.chain(slot), start, len.into())
    }

    /// Advances over the next contiguous bytes, at most `most`: returns position and length.
    pub(super) fn next_piece(&self, place: &mut Place, most: usize) -> Option<(u64, u32)> {
        self.space.next_piece(place, most as u64)
    }

    /// Size of a key's value; `None` if the key does not exist.
    pub(super) fn size_of(&self, key: &[u8]) -> Option<u32> {
        let slot = self.find(key).ok()?;
        Some(self.index.value_len(slot))
    }

    /// Deletes a key and its value.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub(super) fn delete(&mut self, key: &[u8]) -> Result<(), Refusal> {
        let slot = self.find(key)?;
        let mut chain = self.index.remove(&Key::new(key), slot, &self.space);
        self.grow(&mut chain, 0)?;
        Ok(())
    }

    /// The smallest key that is not smaller than this one.
    pub(super) fn at_or_after(&self, key: &[u8]) -> Option<Slot> {
        self.index.find(&Key::new(key), &self.space).at_or_after()
    }

    /// The smallest key that is greater than this one.
    pub(super) fn after_key(&self, key: &[u8]) -> Option<Slot> {
        self.index.find(&Key::new(key), &self.space).after()
    }

    /// The next greater key.
    pub(super) fn after(&self, slot: Slot) -> Option<Slot> {
        self.index.after(slot)
    }

    /// The bytes of a key.
    pub(super) fn key<'b>(&self, slot: Slot, buffer: &'b mut [u8; KEY_MAX]) -> &'b [u8] {
        self.index.key(slot, &self.space, buffer)
    }

    /// Size of a key's value.
    pub(super) fn value_len(&self, slot: Slot) -> u32 {
        self.index.value_len(slot)
    }

    /// Checks that every unit has one owner, and that paths are short: for tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let slots = std::iter::successors(self.at_or_after(&[]), |slot| self.after(*slot));
        let slots: Vec<Slot> = slots.collect();
        assert_eq!(slots.len(), self.keys() as usize);
        let (mut units, mut told) = (0, (0, 0));
        for slot in &slots {
            let mut buffer = [0; KEY_MAX];
            let key = self.key(*slot, &mut buffer);
            assert_eq!(self.find(key), Ok(*slot));
            let bytes =
                tail_len(self.index.key_len(*slot)) as u64 + u64::from(self.value_len(*slot));
            assert_eq!(u64::from(self.index.chain(*slot).units()), units_of(bytes));
            units += units_of(bytes);
            told.0 += self.index.key_len(*slot) as u64;
            told.1 += u64::from(self.value_len(*slot));
        }
        assert_eq!(self.index.bytes(), told);
        assert_eq!(self.used(), units * UNIT);
        self.space
            .check(slots.iter().map(|slot| self.index.chain(*slot)));
        let enough = 8 * (usize::BITS - slots.len().leading_zeros()) as usize;
        assert!(self.index.height() <= enough + 8, "{}", self.index.height());
    }
}

#[cfg(test)]
mod tests;
