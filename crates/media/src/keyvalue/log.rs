//! What the log of a key-value medium on a file says, and how pairs come back from it.
//!
//! A change is appended when it is made, whole: a store with its value, an append with what was added. So the log, wherever it
//! ends, makes the pairs as they were at one moment. A checkpoint goes through the keys in their order; where it is depends on the last key
//! that it has told, which may be gone meanwhile.
//!
//! It does NOT keep iterators: they are gone with the program.

use std::io;

use crate::journal::{Appending, Journal, StateError, Storage};
use crate::medium::RecordSink;

use super::data::Source;
use super::index::{KEY_MAX, Slot};
use super::pairs::{Pairs, Rule, VALUE_MAX};

/// Kinds of records: key and value; key, and what is behind its value now, which means nothing where there is no such key; key
/// that is gone; all of them are.
const PUT: u8 = 1;
const APPEND: u8 = 2;
const DELETE: u8 = 3;
const CLEAR: u8 = 4;
/// Bytes that are copied at once.
const PIECE: usize = 4096;
/// Bytes of a checkpoint for each turn in which nothing else was appended.
const SLICE: u64 = 64 << 10;
/// Bytes of the log that a key takes beside its value and what it has beyond 16 bytes.
pub(super) const KEY_IN_LOG: u64 = 32;
/// Frames that the changes of one command take at most: it moves no more bytes than a frame has, a record does not cross frames, and
/// a key that is deleted was told its host.
const COMMAND_FRAMES: usize = 2;

/// The log of all changes.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) journal: Journal,
    cursor: Option<Cursor>,
    /// Bytes that were appended, and for which the checkpoint has still to go on.
    owes: u64,
}

/// The last key of a checkpoint that was appended; none at first.
#[derive(Debug)]
struct Cursor {
    key: [u8; KEY_MAX],
    len: u8,
}

impl Log {
    pub(super) fn new(journal: Journal) -> Self {
        Log {
            journal,
            cursor: None,
            owes: 0,
        }
    }

    /// Whether a command may be done that changes something.
    pub(super) fn has_room(&self) -> bool {
        self.journal.has_frames(COMMAND_FRAMES)
    }

    /// Appends a key with so many bytes behind it.
    fn append(&mut self, kind: u8, key: &[u8], len: u32, fill: impl FnOnce(&mut Appending<'_>)) {
        let all = 1 + key.len() + len as usize;
        self.owes += all as u64;
        self.journal.append(kind, all, |record| {
            record.put(&[key.len() as u8]);
            record.put(key);
            fill(record);
        });
    }

    /// A key has this value now.
    pub(super) fn stored(&mut self, pairs: &Pairs, key: &[u8], slot: Slot) {
        let len = pairs.value_len(slot);
        self.append(PUT, key, len, |record| put(pairs, slot, 0, len, record));
    }

    /// A key has so many bytes more.
    pub(super) fn appended(&mut self, pairs: &Pairs, key: &[u8], slot: Slot, len: u32) {
        let from = pairs.value_len(slot) - len;
        self.append(APPEND, key, len, |record| {
            put(pairs, slot, from, len, record)
        });
    }

    /// A key is gone.
    pub(super) fn deleted(&mut self, key: &[u8]) {
        self.append(DELETE, key, 0, |_| {});
    }

    /// All keys are.
    pub(super) fn cleared(&mut self) {
        self.append(CLEAR, &[], 0, |_| {});
    }

    /// Goes on with a checkpoint: as many bytes as were appended, and a few.
    pub(super) fn checkpoint(&mut self, pairs: &Pairs) {
        if self.journal.is_long() && self.cursor.is_none() {
            self.journal.begin_checkpoint();
            self.cursor = Some(Cursor {
                key: [0; KEY_MAX],
                len: 0,
            });
        }
        let mut left = self.owes.max(SLICE);
        while let Some(cursor) = &mut self.cursor
            && left > 0
        {
            let last = &cursor.key[..cursor.len.into()];
            let Some(slot) = pairs.after_key(last) else {
                self.cursor = None;
                self.journal.end_checkpoint();
                break;
            };
            let mut buffer = [0; KEY_MAX];
            let key = pairs.key(slot, &mut buffer);
            let len = pairs.value_len(slot);
            let all = 1 + key.len() + len as usize;
            if !self.journal.has_room(all) {
                return;
            }
            self.journal.append(PUT, all, |record| {
                record.put(&[key.len() as u8]);
                record.put(key);
                put(pairs, slot, 0, len, record);
            });
            cursor.key[..key.len()].copy_from_slice(key);
            cursor.len = key.len() as u8;
            left = left.saturating_sub(all as u64);
        }
        self.owes = 0;
    }

    /// Whether a checkpoint goes on.
    pub(super) fn is_in_checkpoint(&self) -> bool {
        self.cursor.is_some()
    }

    /// Makes everything durable, with calls that wait.
    pub(super) fn finish(&mut self, storage: &impl Storage) -> io::Result<()> {
        self.journal.finish(storage)
    }
}

/// `len` bytes of a value, from byte `from` on.
fn put(pairs: &Pairs, slot: Slot, from: u32, len: u32, record: &mut Appending<'_>) {
    let mut piece = [0; PIECE];
    pairs.for_pieces(slot, from, len, |store, at, len| {
        for done in (0..len).step_by(PIECE) {
            let piece = &mut piece[..(len - done).min(PIECE as u32) as usize];
            store.read_bytes(at + u64::from(done), piece);
            record.put(piece);
        }
    });
}

/// Tells all pairs, in the order of their keys.
pub(super) fn records(pairs: &Pairs, tell: &mut RecordSink<'_>) -> io::Result<()> {
    let mut buffer = [0; KEY_MAX];
    let mut record = Vec::new();
    let mut next = pairs.after_key(&[]);
    while let Some(slot) = next {
        let key = pairs.key(slot, &mut buffer);
        record.clear();
        record.push(key.len() as u8);
        record.extend_from_slice(key);
        pairs.for_pieces(slot, 0, pairs.value_len(slot), |store, at, len| {
            let from = record.len();
            record.resize(from + len as usize, 0);
            store.read_bytes(at, &mut record[from..]);
        });
        tell(PUT, &record)?;
        next = pairs.after_key(key);
    }
    Ok(())
}

/// Bytes of a record, one after another.
struct Bytes<'r>(&'r [u8]);

impl Source for Bytes<'_> {
    fn take_into(&mut self, store: &memory::Store, at: u64, len: u32) {
        let (now, later) = self.0.split_at(len as usize);
        store.write_bytes(at, now);
        self.0 = later;
    }
}

/// Takes a record of the log.
pub(super) fn replay(pairs: &mut Pairs, kind: u8, record: &[u8]) -> Result<(), StateError> {
    const STRANGE: StateError = StateError::Damaged("its log has a pair that cannot be");
    if kind == CLEAR {
        pairs.clear();
        return Ok(());
    }
    let (len, rest) = record.split_first().ok_or(STRANGE)?;
    let (key, value) = rest.split_at_checked(usize::from(*len)).ok_or(STRANGE)?;
    if key.is_empty() || value.len() > VALUE_MAX as usize {
        return Err(STRANGE);
    }
    let len = value.len() as u32;
    let done = match kind {
        PUT => pairs.store(key, Rule::Any, len, &mut Bytes(value)),
        APPEND if pairs.size_of(key).is_none() => Ok(()),
        APPEND => pairs
            .append(key, Rule::Any, len, &mut Bytes(value))
            .map(drop),
        // It may not be there yet, or any more.
        DELETE => pairs.delete(key).or(Ok(())),
        _ => return Err(STRANGE),
    };
    done.map_err(|_| StateError::Damaged("its log has more pairs than it has room for"))
}
