//! Commands of many bytes, done a slice at a time, so that nobody else on the reactor waits longer than for a batch of
//! small ones.
//!
//! Invariants:
//! - What shares bytes with a command that is not done yet is not begun ([`Slices::meets`]): the two do not mix.
//! - A command holds the view that its addresses are found in, so that no unmap takes the memory away under it.
//!
//! A copy engine would have its place here: a slice is what it would be given, and a turn what it would be asked in.
//!
//! This does NOT say which commands are large: the channel does.

use std::collections::VecDeque;
use std::sync::Arc;

use controller::port::{Cause, Done, Outcome};
use controller::ticket::Ticket;
use memory::{DmaView, Hint, Iova, Need, Segment, Store};

/// Bytes that are copied at a time: those of a batch of 32 commands of 4 KiB.
pub(super) const SLICE: u32 = 128 << 10;
/// Bytes that are given back to the system at a time: a huge page.
const DISCARD: u64 = 2 << 20;
/// Commands that go on at a time.
const MOST: usize = 64;

/// What is done to the medium's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Read,
    Write,
    Compare,
    Zero { deallocate: bool },
}

/// Bytes of the host; those without an address are discarded.
#[derive(Clone, Copy, Debug)]
struct Piece {
    at: Option<Iova>,
    len: u32,
}

#[derive(Debug)]
struct Large {
    ticket: Ticket,
    op: Op,
    /// What is left of the medium's bytes.
    offset: u64,
    left: u64,
    /// Where the command ends; it begins at `start`.
    start: u64,
    end: u64,
    /// What is left of the host's bytes, the next ones last.
    pieces: Vec<Piece>,
    view: Arc<DmaView>,
    hint: Hint,
}

/// The commands that go on.
#[derive(Debug, Default)]
pub(super) struct Slices {
    going: VecDeque<Large>,
    /// Room for pieces, to be used again.
    spare: Vec<Vec<Piece>>,
}

impl Slices {
    /// Commands there are.
    pub(super) fn len(&self) -> usize {
        self.going.len()
    }

    /// Whether one more may begin.
    pub(super) fn has_room(&self) -> bool {
        self.going.len() < MOST
    }

    /// Whether a command that touches these bytes has to wait.
    #[inline]
    pub(super) fn meets(&self, offset: u64, len: u64) -> bool {
        !self.going.is_empty() && self.meets_one(offset, len)
    }

    #[cold]
    fn meets_one(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        let mut going = self.going.iter();
        going.any(|large| offset < large.end && large.start < end)
    }

    /// Takes a command for `len` bytes from `offset` on, which lie inside the store and share none with another; or gives
    /// the ticket back where there are too many.
    #[cold]
    pub(super) fn add(
        &mut self,
        ticket: Ticket,
        op: Op,
        (offset, len): (u64, u64),
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Result<(), Ticket> {
        if !self.has_room() {
            return Err(ticket);
        }
        let mut pieces = self.spare.pop().unwrap_or_default();
        pieces.extend(segments.iter().rev().map(|segment| Piece {
            at: (!segment.is_sink()).then(|| segment.iova()),
            len: segment.len(),
        }));
        self.going.push_back(Large {
            ticket,
            op,
            offset,
            left: len,
            start: offset,
            end: offset + len,
            pieces,
            view: Arc::clone(view),
            hint: Hint::default(),
        });
        Ok(())
    }

    /// Does a slice of the oldest command.
    #[cold]
    pub(super) fn go_on(&mut self, store: &Store, done: &mut Vec<Done>) {
        let Some(large) = self.going.front_mut() else {
            return;
        };
        let cause = large.slice(store);
        if cause == Cause::None && large.left > 0 {
            return;
        }
        if let Some(Large {
            ticket, mut pieces, ..
        }) = self.going.pop_front()
        {
            pieces.clear();
            self.spare.push(pieces);
            let outcome = Outcome::of(cause);
            done.push(Done { ticket, outcome });
        }
    }
}

/// Whoever drops the channel waits for nothing.
impl Drop for Slices {
    fn drop(&mut self) {
        self.going.drain(..).for_each(|large| large.ticket.retire());
    }
}

impl Large {
    fn slice(&mut self, store: &Store) -> Cause {
        if let Op::Zero { deallocate } = self.op {
            let most = if deallocate { DISCARD } else { SLICE.into() };
            // Up to a whole one, or the system could give back only a part of it.
            let len = self.left.min(most - self.offset % most);
            store.zero(self.offset, len, deallocate);
            self.went(len);
            return Cause::None;
        }
        let need = match self.op {
            Op::Read => Need::DeviceWrites,
            _ => Need::DeviceReads,
        };
        let mut room = SLICE;
        while room > 0
            && let Some(piece) = self.pieces.pop()
        {
            let len = piece.len.min(room);
            let segment = match piece.at {
                None => Ok(Segment::sink(len)),
                Some(at) => self.view.translate(&mut self.hint, at, len, need),
            };
            // The view is the one that these addresses were found in, and does not change.
            let Ok(segment) = segment else {
                return Cause::Aborted;
            };
            let len = segment.len();
            let same = match self.op {
                Op::Read => {
                    store.copy_to(self.offset, &segment);
                    true
                }
                Op::Compare => store.compare(self.offset, &segment),
                _ => {
                    store.copy_from(self.offset, &segment);
                    true
                }
            };
            if !same {
                return Cause::CompareMismatch;
            }
            if len < piece.len {
                self.pieces.push(Piece {
                    at: piece.at.map(|at| Iova(at.0 + u64::from(len))),
                    len: piece.len - len,
                });
            }
            room -= len;
            self.went(len.into());
        }
        Cause::None
    }

    fn went(&mut self, len: u64) {
        self.offset += len;
        self.left -= len;
    }
}
