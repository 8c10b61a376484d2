//! Commands of many bytes, done a slice at a time, so that nobody else on the reactor waits longer
//! than for a batch of small ones.
//!
//! Invariants:
//! - What shares bytes with a command that is not done yet is not begun ([`Slices::meets`]): the
//!   two do not mix.
//! - Where several channels use the medium, a command begins when its claim is whole, and those
//!   behind it that wait for nobody go first. Small ones are here that wait for their claims.
//! - A command holds the view that its addresses are found in, so that no unmap takes the memory
//!   away under it.
//!
//! A copy engine would have its place here: a slice is what it would be given, and a turn what it
//! would be asked in.
//!
//! This does NOT say which commands are large: the channel does.

use std::collections::VecDeque;
use std::sync::Arc;

use memory::{Claim, Claimant, DmaView, Hint, Iova, Need, Segment, Store};
use port::ticket::Ticket;
use port::{Cause, Done, FUSED_BYTES, Outcome, Request};

/// Bytes that are copied at a time: those of a batch of 32 commands of 4 KiB.
pub(crate) const SLICE: u32 = 128 << 10;
/// The same where commands are done when their drive's time has come: this takes 2 us or so, and is
/// how late one may be found.
pub(crate) const TIMED_SLICE: u32 = 16 << 10;
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
    CompareAndWrite,
    Zero { deallocate: bool },
    Deallocate,
}

impl Op {
    /// What a request does; `None` where it touches no bytes.
    pub(super) fn of(request: &Request<'_>) -> Option<Op> {
        Some(match *request {
            Request::Read { .. } => Op::Read,
            Request::Write { .. } => Op::Write,
            Request::Compare { .. } => Op::Compare,
            Request::CompareAndWrite { .. } => Op::CompareAndWrite,
            Request::WriteZeroes { deallocate, .. } => Op::Zero { deallocate },
            Request::Deallocate { .. } => Op::Deallocate,
            Request::Flush | Request::Command { .. } | Request::Renew { .. } => return None,
        })
    }

    /// Whether the bytes may be others afterwards.
    pub(super) fn changes(self) -> bool {
        !matches!(self, Op::Read | Op::Compare)
    }
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
    /// What it touches, the ranges as they were given, and from the first byte to the last.
    ranges: Vec<(u64, u64)>,
    start: u64,
    end: u64,
    claim: Claim,
    /// What is left of the medium's bytes.
    offset: u64,
    left: u64,
    /// What is left of the host's bytes, the next ones last.
    pieces: Vec<Piece>,
    view: Arc<DmaView>,
    hint: Hint,
}

/// Room for a command's pieces and ranges.
type Room = (Vec<Piece>, Vec<(u64, u64)>);

/// The commands that go on.
#[derive(Debug)]
pub(super) struct Slices {
    /// Bytes of a slice.
    len: u32,
    going: VecDeque<Large>,
    /// To be used again.
    spare: Vec<Room>,
}

impl Slices {
    /// None yet; slices will be of `len` bytes.
    pub(super) fn new(len: u32) -> Self {
        Slices {
            len,
            going: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Whether so many bytes are more than one slice.
    #[inline]
    pub(super) fn is_large(&self, bytes: u64) -> bool {
        bytes > self.len.into()
    }

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

    /// Takes a command that touches these ranges, which lie inside the store and share nothing with
    /// another's; or gives the ticket back where there are too many.
    #[cold]
    pub(super) fn add(
        &mut self,
        ticket: Ticket,
        op: Op,
        ranges: impl Iterator<Item = (u64, u64)>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
        claim: Claim,
    ) -> Result<(), (Ticket, Claim)> {
        if !self.has_room() {
            return Err((ticket, claim));
        }
        let (mut pieces, mut touched) = self.spare.pop().unwrap_or_default();
        touched.extend(ranges);
        pieces.extend(segments.iter().rev().map(|segment| Piece {
            at: (!segment.is_sink()).then(|| segment.iova()),
            len: segment.len(),
        }));
        let start = touched.iter().map(|(offset, _)| *offset).min();
        let end = touched.iter().map(|(offset, len)| offset + len).max();
        let (start, end) = (start.unwrap_or(0), end.unwrap_or(0));
        self.going.push_back(Large {
            ticket,
            op,
            ranges: touched,
            start,
            end,
            claim,
            offset: start,
            left: end - start,
            pieces,
            view: Arc::clone(view),
            hint: Hint::default(),
        });
        Ok(())
    }

    /// Does a slice of the oldest command that nobody is in the way of.
    #[cold]
    pub(super) fn go_on(&mut self, store: &Store, claimant: &Claimant, done: &mut Vec<Done>) {
        let mut going = self.going.iter_mut();
        let Some(at) = going.position(|large| large.may_begin(claimant)) else {
            return;
        };
        let large = &mut self.going[at];
        let cause = large.slice(store, self.len);
        if cause == Cause::None && large.left > 0 {
            return;
        }
        large.release(claimant);
        if let Some(large) = self.going.remove(at) {
            let (mut pieces, mut ranges) = (large.pieces, large.ranges);
            pieces.clear();
            ranges.clear();
            self.spare.push((pieces, ranges));
            done.push(Done {
                ticket: large.ticket,
                outcome: Outcome::of(cause),
            });
        }
    }

    /// Claims all that there is, for a channel that has been alone.
    #[cold]
    pub(super) fn claim_at_once(&mut self, claimant: &Claimant) {
        for large in &mut self.going {
            claimant.claim_at_once(&mut large.claim, large.ranges.iter().copied());
        }
    }

    /// Gives all claims back, for a channel that ends.
    pub(super) fn release_all(&mut self, claimant: &Claimant) {
        self.going
            .iter_mut()
            .for_each(|large| large.release(claimant));
    }
}

/// Whoever drops the channel waits for nothing.
impl Drop for Slices {
    fn drop(&mut self) {
        self.going.drain(..).for_each(|large| large.ticket.retire());
    }
}

impl Large {
    fn may_begin(&mut self, claimant: &Claimant) -> bool {
        let ranges = self.ranges.iter().copied();
        claimant.claim(&mut self.claim, ranges, self.op.changes())
    }

    fn release(&mut self, claimant: &Claimant) {
        claimant.release(&mut self.claim, self.ranges.iter().copied());
    }

    /// Does the next `slice` bytes of it, or all that is small.
    fn slice(&mut self, store: &Store, slice: u32) -> Cause {
        match self.op {
            Op::Zero { deallocate } => {
                let most = if deallocate { DISCARD } else { slice.into() };
                // Up to a whole one, or the system could give back only a part of it.
                let len = self.left.min(most - self.offset % most);
                store.zero(self.offset, len, deallocate);
                self.went(len);
                Cause::None
            }
            Op::Deallocate => {
                for (offset, len) in &self.ranges {
                    store.zero(*offset, *len, true);
                }
                self.left = 0;
                Cause::None
            }
            Op::CompareAndWrite => self.compare_and_write(store),
            Op::Read => self.each_segment(slice, Need::DeviceWrites, |offset, segment| {
                store.copy_to(offset, segment);
                true
            }),
            Op::Write => self.each_segment(slice, Need::DeviceReads, |offset, segment| {
                store.copy_from(offset, segment);
                true
            }),
            Op::Compare => self.each_segment(slice, Need::DeviceReads, |offset, segment| {
                store.compare(offset, segment)
            }),
        }
    }

    /// The first half of the host's bytes is compared, the other one written.
    fn compare_and_write(&mut self, store: &Store) -> Cause {
        let (offset, len) = (self.offset, 2 * self.left as usize);
        let mut data = [0; 2 * FUSED_BYTES as usize];
        let mut rest = &mut data[..len];
        self.left = len as u64;
        let cause = self.each_segment(2 * FUSED_BYTES, Need::DeviceReads, |_, segment| {
            let (here, behind) = std::mem::take(&mut rest).split_at_mut(segment.len() as usize);
            segment.read_into(0, here);
            rest = behind;
            true
        });
        match cause {
            Cause::None => super::compare_and_write(store, offset, &data[..len]),
            cause => cause,
        }
    }

    /// Calls `with` for `room` of the host's bytes, and where in the medium they belong, until it
    /// says that they differ.
    fn each_segment(
        &mut self,
        mut room: u32,
        need: Need,
        mut with: impl FnMut(u64, &Segment<'_>) -> bool,
    ) -> Cause {
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
            if !with(self.offset, &segment) {
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
