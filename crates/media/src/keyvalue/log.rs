//! Log of the changes of a key-value medium on a file.
//!
//! A change is appended when it is made, completely: a store with its value, an append with the
//! added bytes. So the log restores the pairs of one moment, wherever it ends. A checkpoint goes
//! through the keys in order; its position is the last key that it has appended, which may have
//! been deleted meanwhile.
//!
//! A long value is appended in slices, by the command that stores it or by a checkpoint. No other
//! change is made meanwhile, and none before a checkpoint's record is complete. The records of a
//! compound command are in one frame, so that after a crash it has happened completely or not at
//! all.
//!
//! Not included: iterators, which do not persist, and recovery ([`super::records`]).

use std::io;

use memory::Store;

use super::index::{KEY_MAX, Slot};
use super::numbers::{self, Ends, NUMBER_LEN, Numbers};
use super::pairs::Pairs;
use super::space::Place;
use crate::journal::{Journal, Storage};

/// Kinds of records: a key with its value; a key with bytes appended to its value, ignored if the
/// key does not exist; a deleted key; deletion of all keys.
pub(super) const PUT: u8 = 1;
pub(super) const APPEND: u8 = 2;
pub(super) const DELETE: u8 = 3;
pub(super) const CLEAR: u8 = 4;
/// The number of the change in the next record ([`super::numbers`]).
pub(super) const NUMBER: u8 = 5;
/// Bytes that are copied at once.
const PIECE: usize = 4096;
/// Bytes that a key takes in the log in addition to its value and the part of the key beyond 16
/// bytes.
pub(super) const KEY_IN_LOG: u64 = 32;
/// Bytes of a record before its key and value: its head and the key's length.
const HEAD: usize = 5;
/// Maximum number of frames for the changes of one command: it moves no more bytes than a frame
/// holds, a record does not cross frames, and the host was sent every key that it deletes.
const COMMAND_FRAMES: usize = 2;

/// The log of all changes.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) journal: Journal,
    checkpoint: Option<Checkpoint>,
    /// Numbers of changes, of pairs that outlive the process.
    numbers: Option<Numbers>,
}

/// A checkpoint in progress.
#[derive(Debug)]
struct Checkpoint {
    /// The last key that was appended; none at first.
    key: [u8; KEY_MAX],
    len: u8,
    /// Rest of the value that its record lacks.
    value: Place,
    /// End of the log when it began, and bytes appended by it since.
    began: u64,
    told: u64,
}

impl Log {
    pub(super) fn new(journal: Journal) -> Self {
        Log {
            journal,
            checkpoint: None,
            numbers: None,
        }
    }

    /// Has changes be numbered, after those that another process has left.
    pub(super) fn number(&mut self, found: Ends) {
        self.numbers = Some(Numbers::new(self.journal.incarnation(), found));
    }

    /// Numbers of changes, of pairs that outlive the process.
    pub(super) fn numbers(&self) -> Option<&Numbers> {
        self.numbers.as_ref()
    }

    /// Whether the next change is to have a number.
    pub(super) fn want_number(&mut self, is_wanted: bool) {
        if let Some(numbers) = &mut self.numbers {
            numbers.want(is_wanted);
        }
    }

    /// Whether a changing command may run.
    pub(super) fn has_room(&self) -> bool {
        // If a checkpoint falls behind by more than a frame, commands wait for it: the ring has no
        // more room.
        self.journal.is_whole()
            && self.owes() <= self.journal.frame_len() as u64
            && self.journal.has_frames(COMMAND_FRAMES)
    }

    /// Puts all records of a command, with this many bytes of data and keys, into one frame: after
    /// a crash either all of its effects exist or none.
    pub(super) fn reserve(&mut self, bytes: u64, keys: usize) {
        let most = bytes as usize + keys * (2 * HEAD + KEY_MAX);
        self.journal.reserve(most);
    }

    /// Begins a record of a key with `len` more bytes, which [`Log::put`] appends.
    pub(super) fn begin(&mut self, kind: u8, key: &[u8], len: u32) {
        if let Some(number) = self.numbers.as_mut().and_then(Numbers::use_next) {
            // In one frame: after a death both are there, or none.
            self.journal
                .reserve(NUMBER_LEN + HEAD + key.len() + len as usize);
            self.say(number);
        }
        self.journal.begin(kind, 1 + key.len() + len as usize);
        let mut record = self.journal.record();
        record.put(&[key.len() as u8]);
        record.put(key);
    }

    /// Appends a number.
    fn say(&mut self, number: u64) {
        let number = number.to_le_bytes();
        self.journal
            .append(NUMBER, number.len(), |record| record.put(&number));
    }

    /// Appends bytes of the store.
    pub(super) fn put(&mut self, store: &Store, at: u64, len: u32) {
        let mut piece = [0; PIECE];
        let mut record = self.journal.record();
        for done in (0..len).step_by(PIECE) {
            let piece = &mut piece[..(len - done).min(PIECE as u32) as usize];
            store.read_bytes(at + u64::from(done), piece);
            record.put(piece);
        }
    }

    /// Records a key's value.
    pub(super) fn stored(&mut self, pairs: &Pairs, key: &[u8], slot: Slot) {
        let len = pairs.value_len(slot);
        self.begin(PUT, key, len);
        self.put_value(pairs, &mut pairs.place(slot, 0, len), u32::MAX);
    }

    /// Records bytes appended to a key's value.
    pub(super) fn appended(&mut self, pairs: &Pairs, key: &[u8], slot: Slot, len: u32) {
        let from = pairs.value_len(slot) - len;
        self.begin(APPEND, key, len);
        self.put_value(pairs, &mut pairs.place(slot, from, len), u32::MAX);
    }

    /// Records the deletion of a key.
    pub(super) fn deleted(&mut self, key: &[u8]) {
        self.begin(DELETE, key, 0);
    }

    /// Records the deletion of all keys.
    pub(super) fn cleared(&mut self) {
        self.begin(CLEAR, &[], 0);
    }

    /// Appends the next bytes of a value, at most `most`, and returns their number.
    fn put_value(&mut self, pairs: &Pairs, value: &mut Place, most: u32) -> u32 {
        let mut left = most;
        while let Some((at, len)) = pairs.next_piece(value, left as usize) {
            self.put(pairs.bytes(), at, len);
            left -= len;
        }
        most - left
    }

    /// Bytes by which a checkpoint is behind: it must append as many as the commands do.
    pub(super) fn owes(&self) -> u64 {
        let beside = |checkpoint: &Checkpoint| {
            let all = self.journal.reaches() - checkpoint.began;
            all.saturating_sub(2 * checkpoint.told)
        };
        self.checkpoint.as_ref().map_or(0, beside)
    }

    /// Continues a checkpoint by about this many bytes; begins one if the log is long.
    pub(super) fn checkpoint(&mut self, pairs: &Pairs, bytes: u32) {
        if self.checkpoint.is_none() && self.journal.is_long() {
            if !self.journal.has_room(numbers::ALL_LEN) {
                return;
            }
            self.journal.begin_checkpoint();
            // A command whose change is in the part that will be cut off may still be in flight.
            if let Some(numbers) = self.numbers.take() {
                numbers.all().for_each(|number| self.say(number));
                self.numbers = Some(numbers);
            }
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

    /// Begins the record of a checkpoint's next key. Returns false if there is no room for it.
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

    /// Whether a checkpoint is in progress.
    pub(super) fn is_in_checkpoint(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Whether turns have work for it.
    pub(super) fn has_to_do(&self) -> bool {
        let waits = self.is_in_checkpoint() || self.journal.has_to_write();
        waits && self.journal.stalled().is_none()
    }

    /// The channel has ended: completes the checkpoint's current record; the next channel
    /// continues.
    pub(super) fn detach(&mut self, pairs: &Pairs) {
        if let Some(mut checkpoint) = self.checkpoint.take() {
            let put = self.put_value(pairs, &mut checkpoint.value, u32::MAX);
            checkpoint.told += u64::from(put);
            self.checkpoint = Some(checkpoint);
        }
        self.journal.detach();
    }

    /// Makes everything durable, with blocking calls.
    pub(super) fn finish(&mut self, storage: &impl Storage) -> io::Result<()> {
        self.journal.finish(storage)
    }
}
