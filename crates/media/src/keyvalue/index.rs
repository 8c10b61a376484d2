//! The keys of a key-value medium, in byte order.
//!
//! The order is a zip tree (Tarjan, Levy, Timmel 2018): a binary search tree in which each entry
//! has a random rank that no child exceeds, which keeps paths short whatever keys a host chooses.
//! In addition each entry links to its neighbours, so that a listing takes one step per key, and a
//! `directory` finds an existing key: a path of some twenty entries would take longer than the rest
//! of a small command.
//!
//! The first 16 bytes of a key are in its entry; the rest of a longer key is at the start of its
//! chain, before the value. An entry is one cache line.
//!
//! Invariants:
//! - Nothing is allocated after [`Index::new`], which reserves 64 bytes for each possible key, and
//!   4 to 8 in the directory; the system provides memory as it is first used.
//! - A key is in the tree, in the list, and in its bucket, or in none of them.
//! - No function is recursive: a path of any length needs no stack.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

use super::directory::Directory;
use super::space::{Chain, Space};

/// Bytes of a key in its entry.
pub(super) const PREFIX: usize = 16;
/// Bytes of the longest key.
pub(crate) const KEY_MAX: usize = 255;
/// No entry.
const NONE: u32 = u32::MAX;

/// Entry of a key. Valid until the key is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

/// A key to look for, of [`KEY_MAX`] bytes at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'k> {
    prefix: u128,
    bytes: &'k [u8],
}

impl<'k> Key<'k> {
    pub(super) fn new(bytes: &'k [u8]) -> Self {
        debug_assert!(bytes.len() <= KEY_MAX);
        let mut prefix = [0; PREFIX];
        let len = bytes.len().min(PREFIX);
        prefix[..len].copy_from_slice(&bytes[..len]);
        Key {
            prefix: u128::from_be_bytes(prefix),
            bytes,
        }
    }

    /// The part of the key in the chain.
    pub(super) fn tail(&self) -> &'k [u8] {
        self.bytes.get(PREFIX..).unwrap_or_default()
    }
}

/// Length of the part in the chain, for a key of `len` bytes.
pub(super) fn tail_len(len: usize) -> usize {
    len.saturating_sub(PREFIX)
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The first bytes of the key, padded with zeros; as a number it sorts like the bytes.
    prefix: u128,
    left: u32,
    right: u32,
    before: u32,
    /// The next key, or the next free entry.
    after: u32,
    /// The next entry of its bucket.
    same: u32,
    value_len: u32,
    chain: Chain,
    key_len: u8,
    rank: u8,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// Link to an entry of the tree.
#[derive(Clone, Copy)]
enum Hook {
    Root,
    Left(u32),
    Right(u32),
}

/// Position of a key, or the position at which it would be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    found: Option<Slot>,
    before: u32,
    after: u32,
}

impl Place {
    /// The key's entry, if it exists.
    pub(super) fn found(&self) -> Option<Slot> {
        self.found
    }

    /// The first key that is not smaller.
    pub(super) fn at_or_after(&self) -> Option<Slot> {
        self.found.or_else(|| some(self.after))
    }

    /// The first key that is greater.
    pub(super) fn after(&self) -> Option<Slot> {
        some(self.after)
    }
}

fn some(slot: u32) -> Option<Slot> {
    (slot != NONE).then_some(Slot(slot))
}

/// All keys.
#[derive(Debug)]
pub(super) struct Index {
    entries: Vec<Entry>,
    directory: Directory,
    max: u32,
    count: u32,
    /// Bytes of all keys, and of all values.
    key_bytes: u64,
    value_bytes: u64,
    root: u32,
    free: u32,
    /// State of the generator of ranks (xorshift); never 0.
    random: u64,
}

impl Index {
    /// Creates an index for `max` keys.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(super) fn new(max: u32) -> io::Result<Self> {
        let mut entries = Vec::new();
        entries
            .try_reserve_exact(max as usize)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Index {
            entries,
            directory: Directory::new(max)?,
            max,
            count: 0,
            key_bytes: 0,
            value_bytes: 0,
            root: NONE,
            free: NONE,
            // A host that could predict ranks could choose keys that form one long path.
            random: RandomState::new().build_hasher().finish() | 1,
        })
    }

    /// Number of keys.
    pub(super) fn len(&self) -> u32 {
        self.count
    }

    /// Maximum number of keys.
    pub(super) fn max(&self) -> u32 {
        self.max
    }

    /// Bytes of all keys, and of all values.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.key_bytes, self.value_bytes)
    }

    /// Size of all entries that were ever in use.
    pub(super) fn entry_bytes(&self) -> u64 {
        (self.entries.len() * size_of::<Entry>()) as u64
    }

    /// Removes all keys.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.directory.clear();
        (self.count, self.root, self.free) = (0, NONE, NONE);
        (self.key_bytes, self.value_bytes) = (0, 0);
    }

    /// Bytes of a key's value.
    pub(super) fn value_len(&self, slot: Slot) -> u32 {
        self.entry(slot.0).value_len
    }

    /// Where a key's tail and value are.
    pub(super) fn chain(&self, slot: Slot) -> Chain {
        self.entry(slot.0).chain
    }

    /// Bytes of a key.
    pub(super) fn key_len(&self, slot: Slot) -> usize {
        self.entry(slot.0).key_len.into()
    }

    /// Sets the location of a key's tail and value.
    pub(super) fn set(&mut self, slot: Slot, chain: Chain, value_len: u32) {
        let entry = self.entry_mut(slot.0);
        let before = std::mem::replace(&mut entry.value_len, value_len);
        entry.chain = chain;
        self.value_bytes = self.value_bytes - u64::from(before) + u64::from(value_len);
    }

    /// The next greater key.
    pub(super) fn after(&self, slot: Slot) -> Option<Slot> {
        some(self.entry(slot.0).after)
    }

    /// The bytes of a key.
    pub(super) fn key<'b>(
        &self,
        slot: Slot,
        space: &Space,
        buffer: &'b mut [u8; KEY_MAX],
    ) -> &'b [u8] {
        let entry = self.entry(slot.0);
        let len = usize::from(entry.key_len);
        let head = len.min(PREFIX);
        buffer[..head].copy_from_slice(&entry.prefix.to_be_bytes()[..head]);
        read_tail(entry, space, &mut buffer[head..len]);
        &buffer[..len]
    }

    fn entry(&self, slot: u32) -> &Entry {
        &self.entries[slot as usize]
    }

    fn entry_mut(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    /// A key compared with an entry's.
    fn compare(&self, key: &Key<'_>, slot: u32, space: &Space) -> Ordering {
        let entry = self.entry(slot);
        let by_prefix = key.prefix.cmp(&entry.prefix);
        if by_prefix.is_ne() {
            return by_prefix;
        }
        let len = usize::from(entry.key_len);
        // If one of them ends within the prefix, zeros replaced the missing bytes, so one key is
        // the start of the other.
        if key.bytes.len() <= PREFIX || len <= PREFIX {
            return key.bytes.len().cmp(&len);
        }
        let mut buffer = [0; KEY_MAX - PREFIX];
        let tail = &mut buffer[..len - PREFIX];
        read_tail(entry, space, tail);
        key.tail().cmp(tail)
    }

    /// Finds a key's entry.
    pub(super) fn get(&self, key: &Key<'_>, space: &Space) -> Option<Slot> {
        let mut next = self.directory.first(self.directory.bucket(key.bytes));
        while let Some(slot) = next {
            if self.compare(key, slot, space).is_eq() {
                return Some(Slot(slot));
            }
            next = some(self.entry(slot).same).map(|slot| slot.0);
        }
        None
    }

    /// Finds a key, or its neighbours if it does not exist.
    pub(super) fn find(&self, key: &Key<'_>, space: &Space) -> Place {
        if let Some(slot) = self.get(key, space) {
            return self.place(slot);
        }
        let (mut before, mut after) = (NONE, NONE);
        let mut at = self.root;
        while at != NONE {
            match self.compare(key, at, space) {
                Ordering::Less => {
                    after = at;
                    at = self.entry(at).left;
                }
                Ordering::Greater => {
                    before = at;
                    at = self.entry(at).right;
                }
                Ordering::Equal => return self.place(Slot(at)),
            }
        }
        Place {
            found: None,
            before,
            after,
        }
    }

    /// Where an entry is.
    fn place(&self, slot: Slot) -> Place {
        let entry = self.entry(slot.0);
        Place {
            found: Some(slot),
            before: entry.before,
            after: entry.after,
        }
    }

    /// Whether one more key fits.
    pub(super) fn has_room(&self) -> bool {
        self.count < self.max
    }

    /// Adds a key that does not exist, at the position just returned by [`Index::find`]; there must
    /// be room.
    pub(super) fn insert(
        &mut self,
        key: &Key<'_>,
        place: &Place,
        chain: Chain,
        value_len: u32,
        space: &Space,
    ) -> Slot {
        let bucket = self.directory.bucket(key.bytes);
        let entry = Entry {
            prefix: key.prefix,
            left: NONE,
            right: NONE,
            before: place.before,
            after: place.after,
            same: self.directory.first(bucket).unwrap_or(NONE),
            value_len,
            chain,
            key_len: u8::try_from(key.bytes.len()).expect("a key has 255 bytes at most"),
            rank: self.random_rank(),
        };
        let slot = self.place_entry(entry);
        if place.before != NONE {
            self.entry_mut(place.before).after = slot;
        }
        if place.after != NONE {
            self.entry_mut(place.after).before = slot;
        }
        self.count += 1;
        self.key_bytes += key.bytes.len() as u64;
        self.value_bytes += u64::from(value_len);
        self.directory.set_first(bucket, Some(slot));
        self.hang(key, slot, space);
        Slot(slot)
    }

    /// A free entry, filled.
    fn place_entry(&mut self, entry: Entry) -> u32 {
        if self.free == NONE {
            debug_assert!(self.entries.len() < self.max as usize);
            self.entries.push(entry);
            return u32::try_from(self.entries.len() - 1).expect("fewer than `max` before");
        }
        let slot = self.free;
        self.free = self.entry(slot).after;
        *self.entry_mut(slot) = entry;
        slot
    }

    /// Inserts an entry into the tree at the level of its rank, and splits the subtree there along
    /// the key into its two children.
    fn hang(&mut self, key: &Key<'_>, slot: u32, space: &Space) {
        let rank = self.entry(slot).rank;
        let mut hook = Hook::Root;
        let mut at = self.root;
        while at != NONE {
            let there = self.entry(at).rank;
            let order = self.compare(key, at, space);
            // Among equal ranks the smaller key is above.
            if there < rank || there == rank && order.is_lt() {
                break;
            }
            (hook, at) = self.step(at, order);
        }
        self.set_hook(hook, slot);
        let (mut less, mut greater) = (Hook::Left(slot), Hook::Right(slot));
        while at != NONE {
            let order = self.compare(key, at, space);
            if order.is_gt() {
                self.set_hook(less, at);
                (less, at) = self.step(at, order);
            } else {
                self.set_hook(greater, at);
                (greater, at) = self.step(at, order);
            }
        }
        self.set_hook(less, NONE);
        self.set_hook(greater, NONE);
    }

    /// Descends from an entry, for a key that compares with it as `order`.
    fn step(&self, at: u32, order: Ordering) -> (Hook, u32) {
        if order.is_lt() {
            (Hook::Left(at), self.entry(at).left)
        } else {
            (Hook::Right(at), self.entry(at).right)
        }
    }

    fn set_hook(&mut self, hook: Hook, slot: u32) {
        match hook {
            Hook::Root => self.root = slot,
            Hook::Left(at) => self.entry_mut(at).left = slot,
            Hook::Right(at) => self.entry_mut(at).right = slot,
        }
    }

    /// Removes an existing key, and returns the location of its tail and value.
    pub(super) fn remove(&mut self, key: &Key<'_>, slot: Slot, space: &Space) -> Chain {
        let slot = slot.0;
        let mut hook = Hook::Root;
        let mut at = self.root;
        while at != slot {
            let order = self.compare(key, at, space);
            (hook, at) = self.step(at, order);
        }
        let entry = *self.entry(slot);
        self.zip(hook, entry.left, entry.right);
        self.leave_bucket(key, slot, entry.same);
        if entry.before != NONE {
            self.entry_mut(entry.before).after = entry.after;
        }
        if entry.after != NONE {
            self.entry_mut(entry.after).before = entry.before;
        }
        self.entry_mut(slot).after = self.free;
        self.free = slot;
        self.count -= 1;
        self.key_bytes -= u64::from(entry.key_len);
        self.value_bytes -= u64::from(entry.value_len);
        entry.chain
    }

    /// Removes an entry from its key's bucket; `same` is its successor there.
    fn leave_bucket(&mut self, key: &Key<'_>, slot: u32, same: u32) {
        let bucket = self.directory.bucket(key.bytes);
        let mut before = None;
        let mut at = self.directory.first(bucket);
        while let Some(here) = at.filter(|here| *here != slot) {
            before = Some(here);
            at = some(self.entry(here).same).map(|slot| slot.0);
        }
        match before {
            Some(before) => self.entry_mut(before).same = same,
            None => {
                let first = some(same).map(|slot| slot.0);
                self.directory.set_first(bucket, first);
            }
        }
    }

    /// Merges two trees, with all keys of one smaller than those of the other, at a hook.
    fn zip(&mut self, mut hook: Hook, mut left: u32, mut right: u32) {
        while left != NONE && right != NONE {
            if self.entry(left).rank >= self.entry(right).rank {
                self.set_hook(hook, left);
                (hook, left) = (Hook::Right(left), self.entry(left).right);
            } else {
                self.set_hook(hook, right);
                (hook, right) = (Hook::Left(right), self.entry(right).left);
            }
        }
        self.set_hook(hook, if left == NONE { right } else { left });
    }

    /// 0 with probability 1/2, 1 with probability 1/4, and so on.
    fn random_rank(&mut self) -> u8 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.trailing_zeros().to_le_bytes()[0]
    }

    /// The longest path of the tree: for tests.
    #[cfg(test)]
    pub(super) fn height(&self) -> usize {
        let mut height = 0;
        let mut row = vec![self.root];
        while !row.is_empty() {
            row.retain(|slot| *slot != NONE);
            height += usize::from(!row.is_empty());
            row = row
                .iter()
                .flat_map(|slot| [self.entry(*slot).left, self.entry(*slot).right])
                .collect();
        }
        height
    }
}

/// Reads the part of a key after its prefix: the first bytes of its chain.
fn read_tail(entry: &Entry, space: &Space, tail: &mut [u8]) {
    let mut rest = tail;
    let len = rest.len() as u64;
    for (at, len) in space.pieces(entry.chain, 0, len) {
        let (piece, more) = rest.split_at_mut(len as usize);
        space.store().read_bytes(at, piece);
        rest = more;
    }
}
