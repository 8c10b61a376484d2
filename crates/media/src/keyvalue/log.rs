//! What the log of a key-value medium on a file says, and how pairs come back from it.
//!
//! A change is appended when it is made, whole: a store with its value, an append with what was
//! added. So the log, wherever it ends, makes the pairs as they were at one moment. A checkpoint
//! goes through the keys in their order; where it is depends on the last key that it has told,
//! which may be gone meanwhile.
//!
//! A long value is appended in slices, by the command that stores it or by a checkpoint. No other
//! change is made meanwhile, and none before a checkpoint's record is whole. What a compound
//! command does is in one frame, so that after a crash it was done or was not.
//!
//! It does NOT keep iterators: they are gone with the program.

use std::io;

use memory::Store;

use super::data::Source;
use super::index::{KEY_MAX, Slot};
use super::pairs::{Pairs, Rule, VALUE_MAX};
use super::space::Place;
use crate::journal::{Journal, RecordSink, StateError, Storage};

/// Kinds of records: key and value; key, and what is behind its value now, which means nothing
/// where there is no such key; key that is gone; all of them are.
pub(super) const PUT: u8 = 1;
pub(super) const APPEND: u8 = 2;
const DELETE: u8 = 3;
const CLEAR: u8 = 4;
/// Bytes that are copied at once.
const PIECE: usize = 4096;
/// Bytes of the log that a key takes beside its value and what it has beyond 16 bytes.
pub(super) const KEY_IN_LOG: u64 = 32;
/// Bytes of a record that stand in front of its key and value: its head and the key's length.
const HEAD: usize = 5;
/// Frames that the changes of one command take at most: it moves no more bytes than a frame has, a
/// record does not cross frames, and a key that is deleted was told its host.
const COMMAND_FRAMES: usize = 2;

/// The log of all changes.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) journal: Journal,
    checkpoint: Option<Checkpoint>,
}

/// A checkpoint that goes on.
#[derive(Debug)]
struct Checkpoint {
    /// The last key that was appended; none at first.
    key: [u8; KEY_MAX],
    len: u8,
    /// What its record lacks of its value.
    value: Place,
    /// How far the log reached when it began, and bytes that it has appended since.
    began: u64,
    told: u64,
}

impl Log {
    pub(super) fn new(journal: Journal) -> Self {
        Log {
            journal,
            checkpoint: None,
        }
    }

    /// Whether a command may be done that changes something.
    pub(super) fn has_room(&self) -> bool {
        // A checkpoint that falls behind by more than a frame is waited for: the ring has room for
        // no more.
        self.journal.is_whole()
            && self.owes() <= self.journal.frame_len() as u64
            && self.journal.has_frames(COMMAND_FRAMES)
    }

    /// Has all records of a command be in one frame, which takes so many bytes of data and has so
    /// many keys: after a crash all that it has done is there, or nothing.
    pub(super) fn reserve(&mut self, bytes: u64, keys: usize) {
        let most = bytes as usize + keys * (2 * HEAD + KEY_MAX);
        self.journal.reserve(most);
    }

    /// Begins a record of a key with so many bytes behind it, which are appended with [`Log::put`].
    pub(super) fn begin(&mut self, kind: u8, key: &[u8], len: u32) {
        self.journal.begin(kind, 1 + key.len() + len as usize);
        let mut record = self.journal.record();
        record.put(&[key.len() as u8]);
        record.put(key);
    }

    /// Appends bytes as they stand in the store.
    pub(super) fn put(&mut self, store: &Store, at: u64, len: u32) {
        let mut piece = [0; PIECE];
        let mut record = self.journal.record();
        for done in (0..len).step_by(PIECE) {
            let piece = &mut piece[..(len - done).min(PIECE as u32) as usize];
            store.read_bytes(at + u64::from(done), piece);
            record.put(piece);
        }
    }

    /// A key has this value now.
    pub(super) fn stored(&mut self, pairs: &Pairs, key: &[u8], slot: Slot) {
        let len = pairs.value_len(slot);
        self.begin(PUT, key, len);
        self.put_value(pairs, &mut pairs.place(slot, 0, len), u32::MAX);
    }

    /// A key has so many bytes more.
    pub(super) fn appended(&mut self, pairs: &Pairs, key: &[u8], slot: Slot, len: u32) {
        let from = pairs.value_len(slot) - len;
        self.begin(APPEND, key, len);
        self.put_value(pairs, &mut pairs.place(slot, from, len), u32::MAX);
    }

    /// A key is gone.
    pub(super) fn deleted(&mut self, key: &[u8]) {
        self.begin(DELETE, key, 0);
    }

    /// All keys are.
    pub(super) fn cleared(&mut self) {
        self.begin(CLEAR, &[], 0);
    }

    /// Appends the next bytes of a value, at most `most` of them, and says how many.
    fn put_value(&mut self, pairs: &Pairs, value: &mut Place, most: u32) -> u32 {
        let mut left = most;
        while let Some((at, len)) = pairs.next_piece(value, left as usize) {
            self.put(pairs.bytes(), at, len);
            left -= len;
        }
        most - left
    }

    /// Bytes by which a checkpoint is behind: it has to append as many as are appended beside it.
    pub(super) fn owes(&self) -> u64 {
        let beside = |checkpoint: &Checkpoint| {
            let all = self.journal.reaches() - checkpoint.began;
            all.saturating_sub(2 * checkpoint.told)
        };
        self.checkpoint.as_ref().map_or(0, beside)
    }

    /// Goes on with a checkpoint by so many bytes, and a few; begins one where the log is long.
    pub(super) fn checkpoint(&mut self, pairs: &Pairs, bytes: u32) {
        if self.checkpoint.is_none() && self.journal.is_long() {
            self.journal.begin_checkpoint();
            self.checkpoint = Some(Checkpoint {
                key: [0; KEY_MAX],
                len: 0,
                value: Place::NOWHERE,
                began: self.journal.reaches(),
                told: 0,
            });
        }
        let Some(mut checkpoint) = self.checkpoint.take() else {
            return;
        };
        let mut left = bytes;
        while left > 0 {
            if self.journal.is_whole() {
                let last = &checkpoint.key[..checkpoint.len.into()];
                let Some(slot) = pairs.after_key(last) else {
                    self.journal.end_checkpoint();
                    return;
                };
                if !self.tell(pairs, slot, &mut checkpoint) {
                    break;
                }
                left = left.saturating_sub((HEAD + KEY_MAX) as u32);
            }
            let put = self.put_value(pairs, &mut checkpoint.value, left);
            checkpoint.told += u64::from(put);
            left -= put;
        }
        self.checkpoint = Some(checkpoint);
    }

    /// Begins the record of a checkpoint's next key. False where there is no room for it.
    fn tell(&mut self, pairs: &Pairs, slot: Slot, checkpoint: &mut Checkpoint) -> bool {
        let mut buffer = [0; KEY_MAX];
        let key = pairs.key(slot, &mut buffer);
        let len = pairs.value_len(slot);
        if !self.journal.has_room(1 + key.len() + len as usize) {
            return false;
        }
        self.begin(PUT, key, len);
        checkpoint.key[..key.len()].copy_from_slice(key);
        checkpoint.len = key.len() as u8;
        checkpoint.value = pairs.place(slot, 0, len);
        checkpoint.told += (HEAD + key.len()) as u64;
        true
    }

    /// Whether a checkpoint goes on.
    pub(super) fn is_in_checkpoint(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Whether turns have something to do for it.
    pub(super) fn has_to_do(&self) -> bool {
        let waits = self.is_in_checkpoint() || self.journal.has_to_write();
        waits && self.journal.stalled().is_none()
    }

    /// The channel is gone: the checkpoint's record becomes whole, and goes on with the next
    /// channel.
    pub(super) fn detach(&mut self, pairs: &Pairs) {
        if let Some(mut checkpoint) = self.checkpoint.take() {
            let put = self.put_value(pairs, &mut checkpoint.value, u32::MAX);
            checkpoint.told += u64::from(put);
            self.checkpoint = Some(checkpoint);
        }
        self.journal.detach();
    }

    /// Makes everything durable, with calls that wait.
    pub(super) fn finish(&mut self, storage: &impl Storage) -> io::Result<()> {
        self.journal.finish(storage)
    }
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
    fn take_into(&mut self, store: &Store, at: u64, len: u32) {
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
