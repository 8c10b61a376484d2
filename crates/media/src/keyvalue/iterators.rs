//! Iterators: up to sixteen positions in the keys of a medium.
//!
//! An iterator returns the keys whose first four bytes equal its prefix in the bits of its mask, in
//! byte order, each at most once. It is not a snapshot: keys stored ahead of its position are
//! found, keys deleted there are not, and keys stored behind it are not found any more. No iterator
//! returns keys of fewer than four bytes.
//!
//! A read examines at most [`LOOKED_AT`] keys, so that a read without matches ends: it may return
//! fewer keys than fit, even none, before the end.

use nvme_spec::samsung::ITERATORS;

use super::answer::HEAD;
use super::budget::Slice;
use super::data::Sink;
use super::index::{KEY_MAX, Slot};
use super::logged::LoggedPairs;
use super::pairs::Pairs;

/// Maximum number of keys that one read examines.
const LOOKED_AT: u32 = 1 << 16;

/// Treatment of the keys that a read finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// Returns them.
    Keys,
    /// Returns them and their values.
    Pairs,
    /// Returns them, and deletes them.
    Deletes,
}

/// Selection of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// Value of the first bytes,
    pub(super) prefix: [u8; 4],
    /// in the bits that are set here.
    pub(super) mask: [u8; 4],
}

impl Filter {
    fn holds(&self, key: &[u8]) -> bool {
        let bytes = self.prefix.iter().zip(&self.mask);
        key.len() >= 4
            && key
                .iter()
                .zip(bytes)
                .all(|(byte, (prefix, mask))| byte & mask == prefix & mask)
    }

    /// Common start of all selected keys.
    fn start(&self) -> &[u8] {
        let whole = self.mask.iter().take_while(|mask| **mask == 0xff).count();
        &self.prefix[..whole]
    }
}

#[derive(Clone, Copy, Debug)]
struct Iterator {
    filter: Filter,
    reads: Reads,
    /// The last examined key; none at first.
    last: [u8; KEY_MAX],
    last_len: u8,
}

impl Iterator {
    /// The next key to examine.
    fn next(&self, pairs: &Pairs) -> Option<Slot> {
        let last = &self.last[..self.last_len.into()];
        let start = self.filter.start();
        if last < start {
            pairs.at_or_after(start)
        } else {
            pairs.after_key(last)
        }
    }
}

/// All iterators of a medium.
#[derive(Debug, Default)]
pub(super) struct Iterators {
    open: [Option<Iterator>; ITERATORS as usize],
}

/// Why an iterator was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotOpened {
    /// An iterator with the same selection is open.
    AlreadyOpen,
    /// All handles are in use.
    NoHandle,
}

/// Why a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// There are no more keys.
    Ended,
    /// The next one does not fit.
    Full,
    /// The limit on examined keys was reached.
    Looked,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadOut {
    /// Bytes.
    pub(super) len: u32,
    /// Keys.
    pub(super) keys: u32,
    /// Why no more.
    pub(super) stop: Stop,
}

impl Iterators {
    /// Opens an iterator. Handles count from 1.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub(super) fn open(&mut self, filter: Filter, reads: Reads) -> Result<u8, NotOpened> {
        let mut open = self.open.iter().flatten();
        if open.any(|there| there.filter == filter && there.reads == reads) {
            return Err(NotOpened::AlreadyOpen);
        }
        for (handle, place) in (1..).zip(&mut self.open) {
            if place.is_none() {
                *place = Some(Iterator {
                    filter,
                    reads,
                    last: [0; KEY_MAX],
                    last_len: 0,
                });
                return Ok(handle);
            }
        }
        Err(NotOpened::NoHandle)
    }

    /// Closes an iterator; returns false if it is not open.
    pub(super) fn close(&mut self, handle: u8) -> bool {
        let place = self.place(handle);
        place.is_some_and(|place| place.take().is_some())
    }

    /// Closes all.
    pub(super) fn clear(&mut self) {
        *self = Iterators::default();
    }

    fn place(&mut self, handle: u8) -> Option<&mut Option<Iterator>> {
        let index = usize::from(handle).checked_sub(1)?;
        self.open.get_mut(index)
    }

    /// Begins a read, for up to `room` bytes, at least 4. `None` if the iterator is not open.
    pub(super) fn begin(&mut self, handle: u8, pairs: &Pairs, room: u32) -> Option<Reading> {
        let place = self.place(handle)?.as_ref()?;
        Some(Reading {
            handle,
            room,
            next: place.next(pairs),
            looked: 0,
            value: None,
            done: ReadOut {
                len: HEAD as u32,
                keys: 0,
                stop: Stop::Looked,
            },
        })
    }

    /// Reads as many keys as fit in a slice: for each its size, 4 bytes, and its bytes, padded to a
    /// multiple of 4; and the same for the value, if values are read. Returns whether the read is
    /// complete.
    pub(super) fn go_on(
        &mut self,
        reading: &mut Reading,
        pairs: &mut LoggedPairs,
        slice: &mut Slice,
        out: &mut impl Sink,
    ) -> bool {
        let Some(Some(place)) = self.place(reading.handle) else {
            return true;
        };
        loop {
            if !reading.copy_value(pairs.read(), slice, out) {
                return false;
            }
            if reading.looked == LOOKED_AT {
                return true;
            }
            if slice.is_spent() {
                return false;
            }
            if !reading.one(place, pairs, slice, out) {
                return true;
            }
        }
    }
}

/// A read that may continue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    handle: u8,
    room: u32,
    next: Option<Slot>,
    /// Number of examined keys.
    looked: u32,
    /// A value to copy: from which byte on, and its size.
    value: Option<(Slot, u32, u32)>,
    pub(super) done: ReadOut,
}

impl Reading {
    /// The data begins with the number of keys.
    pub(super) fn head(&self) -> [u8; HEAD] {
        self.done.keys.to_le_bytes()
    }

    /// Copies as much of the next value as fits in a slice, if there is one. Returns whether it is
    /// complete.
    fn copy_value(&mut self, pairs: &Pairs, slice: &mut Slice, out: &mut impl Sink) -> bool {
        let Some((slot, from, len)) = self.value else {
            return true;
        };
        let part = (len - from).min(slice.left);
        pairs.copy(slot, from, part, out);
        slice.spend(part);
        if from + part < len {
            self.value = Some((slot, from + part, len));
            return false;
        }
        pad(out, len);
        self.value = None;
        true
    }

    /// Examines the next key. Returns false if there is none, or no room for it.
    fn one(
        &mut self,
        place: &mut Iterator,
        pairs: &mut LoggedPairs,
        slice: &mut Slice,
        out: &mut impl Sink,
    ) -> bool {
        let mut buffer = [0; KEY_MAX];
        let key = self
            .next
            .map(|slot| (slot, pairs.read().key(slot, &mut buffer)));
        let key = key.filter(|(_, key)| key.starts_with(place.filter.start()));
        let Some((slot, key)) = key else {
            self.done.stop = Stop::Ended;
            return false;
        };
        slice.spend_key();
        let next = pairs.read().after(slot);
        if place.filter.holds(key) {
            let value_len = (place.reads == Reads::Pairs).then(|| pairs.read().value_len(slot));
            let size = entry_size(key.len(), value_len);
            if size > u64::from(self.room - self.done.len) {
                self.done.stop = Stop::Full;
                return false;
            }
            let len = key.len() as u32;
            out.put(&len.to_le_bytes());
            out.put(key);
            pad(out, len);
            slice.spend(len);
            if let Some(value_len) = value_len {
                out.put(&value_len.to_le_bytes());
                self.value = Some((slot, 0, value_len));
            }
            self.done.len += size as u32;
            self.done.keys += 1;
            if place.reads == Reads::Deletes {
                pairs.delete(key).expect("it was just found");
            }
        }
        place.last[..key.len()].copy_from_slice(key);
        place.last_len = key.len() as u8;
        self.looked += 1;
        self.next = next;
        true
    }
}

/// Size of a returned key, with that of its value if values are read.
fn entry_size(key_len: usize, value_len: Option<u32>) -> u64 {
    let padded = |len: u64| 4 + len.next_multiple_of(4);
    padded(key_len as u64) + value_len.map_or(0, |len| padded(len.into()))
}

/// Padding after `len` bytes, up to a multiple of 4.
fn pad(out: &mut impl Sink, len: u32) {
    let padding = len.next_multiple_of(4) - len;
    out.put(&[0; 3][..padding as usize]);
}
