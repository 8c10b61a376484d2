//! Iterators: sixteen places in the keys of a medium.
//!
//! An iterator hands out the keys whose first four bytes are those of its prefix wherever its mask has a bit, in the order of
//! their bytes, each at most once. It is no snapshot: what is stored in front of the place that it has come to is found, what is
//! deleted there is not, and what is stored behind it is not found any more. Keys of fewer than four bytes are in none.
//!
//! A read looks at [`LOOKED_AT`] keys at most, so that one which finds nothing ends: it may return fewer keys than there is room
//! for, and none, without having come to the end.

use nvme_spec::samsung::ITERATORS;

use super::data::Sink;
use super::index::{KEY_MAX, Slot};
use super::pairs::Pairs;

/// Keys that one read looks at.
const LOOKED_AT: u32 = 1 << 16;

/// What a read does with the keys that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// Returns them.
    Keys,
    /// Returns them and their values.
    Pairs,
    /// Returns them, and deletes them.
    Deletes,
}

/// Which keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// What the first bytes are,
    pub(super) prefix: [u8; 4],
    /// as far as these have a bit.
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

    /// What every key that it holds begins with.
    fn start(&self) -> &[u8] {
        let whole = self.mask.iter().take_while(|mask| **mask == 0xff).count();
        &self.prefix[..whole]
    }
}

#[derive(Clone, Copy, Debug)]
struct Iterator {
    filter: Filter,
    reads: Reads,
    /// The key that was looked at last; none at first.
    last: [u8; KEY_MAX],
    last_len: u8,
}

impl Iterator {
    /// Where to go on.
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
    /// One for the same keys is open.
    AlreadyOpen,
    /// All are.
    NoHandle,
}

/// Why a read returned no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// There are no more keys.
    Ended,
    /// The next one does not fit.
    Full,
    /// It has looked at enough of them.
    Looked,
}

/// What a read returned.
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

    /// Closes an iterator; false where there is none.
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

    /// Reads on: the number of keys, 4 bytes; for each its size, 4 bytes, and its bytes, padded to a multiple of 4; and the
    /// value likewise, where those are read. Needs room for 4 bytes. `None` where there is no such iterator.
    pub(super) fn read(
        &mut self,
        handle: u8,
        pairs: &mut Pairs,
        room: u32,
        mut out: impl Sink,
    ) -> Option<ReadOut> {
        let place = self.place(handle)?.as_mut()?;
        let mut head = out.clone();
        out.put(&[0; 4]);
        let mut done = ReadOut {
            len: 4,
            keys: 0,
            stop: Stop::Looked,
        };
        let mut next = place.next(pairs);
        for _ in 0..LOOKED_AT {
            let mut buffer = [0; KEY_MAX];
            let key = next.map(|slot| (slot, pairs.key(slot, &mut buffer)));
            let Some((slot, key)) = key.filter(|(_, key)| key.starts_with(place.filter.start()))
            else {
                done.stop = Stop::Ended;
                break;
            };
            next = pairs.after(slot);
            if place.filter.holds(key) {
                let value_len = (place.reads == Reads::Pairs).then(|| pairs.value_len(slot));
                let size = entry_size(key.len(), value_len);
                if size > u64::from(room - done.len) {
                    done.stop = Stop::Full;
                    break;
                }
                put_padded(&mut out, key.len() as u32, |out| out.put(key));
                if let Some(value_len) = value_len {
                    put_padded(&mut out, value_len, |out| {
                        pairs.copy(slot, 0, value_len, out)
                    });
                }
                done.len += size as u32;
                done.keys += 1;
                if place.reads == Reads::Deletes {
                    pairs.delete(key).expect("it was just found");
                }
            }
            place.last[..key.len()].copy_from_slice(key);
            place.last_len = key.len() as u8;
        }
        head.put(&done.keys.to_le_bytes());
        Some(done)
    }
}

/// Bytes of a key in what a read returns, with those of its value.
fn entry_size(key_len: usize, value_len: Option<u32>) -> u64 {
    let padded = |len: u64| 4 + len.next_multiple_of(4);
    padded(key_len as u64) + value_len.map_or(0, |len| padded(len.into()))
}

fn put_padded<S: Sink>(out: &mut S, len: u32, put: impl FnOnce(&mut S)) {
    out.put(&len.to_le_bytes());
    put(out);
    let padding = len.next_multiple_of(4) - len;
    out.put(&[0; 3][..padding as usize]);
}
