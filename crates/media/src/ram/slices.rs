//! Large commands in slices, so that other commands on the reactor do not wait longer than for a
//! batch of small ones.
//!
//! Invariants:
//! - A command that shares bytes with an unfinished one is not begun ([`Slices::meets`]): the two
//!   do not mix.
//! - If several channels use the medium, a command begins when its claim is complete, and later
//!   commands that need not wait overtake it. Small commands that wait for their claims are here,
//!   too.
//! - A command holds the view in which its addresses were found, so that no unmap removes the
//!   memory during the copy.
//!
//! A copy engine would fit here: it would get a slice, and be polled in each turn.
//!
//! Not included: the choice of large commands, which the channel makes.

use std::collections::VecDeque;
use std::sync::Arc;

use memory::{Claim, Claimant, DmaView, Hint, Iova, Need, Segment, Store};
use port::ticket::Ticket;
use port::{Cause, Done, FUSED_BYTES, Outcome, Request};

/// Bytes per slice: those of a batch of 32 commands of 4 KiB.
pub(crate) const SLICE: u32 = 128 << 10;
/// Bytes per slice with timing: copying them takes about 2 us, which is how late a due completion
/// may be found.
pub(crate) const TIMED_SLICE: u32 = 16 << 10;
/// Bytes freed at a time: a huge page.
const DISCARD: u64 = 2 << 20;
/// Maximum number of commands in progress.
const MOST: usize = 64;

/// Operation on the medium's bytes.
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
    /// The operation of a request; `None` if it touches no bytes.
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

    /// Whether the bytes may change.
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
    /// The ranges that it touches, and the first and last byte of all.
    ranges: Vec<(u64, u64)>,
    start: u64,
    end: u64,
    claim: Claim,
    /// Remaining bytes of the medium.
    offset: u64,
    left: u64,
    /// Remaining bytes of the host, the next ones last.
    pieces: Vec<Piece>,
    view: Arc<DmaView>,
    hint: Hint,
}

/// Allocated memory for a command's pieces and ranges.
type Room = (Vec<Piece>, Vec<(u64, u64)>);

/// The commands in progress.
#[derive(Debug)]
pub(super) struct Slices {
    /// Bytes of a slice.
    len: u32,
    going: VecDeque<Large>,
    /// Memory for reuse.
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

    /// Whether this many bytes exceed one slice.
    #[inline]
    pub(super) fn is_large(&self, bytes: u64) -> bool {
        bytes > self.len.into()
    }

    /// Number of commands.
    pub(super) fn len(&self) -> usize {
        self.going.len()
    }

    /// Whether one more may begin.
    pub(super) fn has_room(&self) -> bool {
        self.going.len() < MOST
    }

    /// Whether a command that touches these bytes must wait.
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

    /// Accepts a command that touches these ranges, which must be inside the store and not be
    /// shared with another command; or returns the ticket if there are too many.
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

    /// Performs a slice of the oldest command that need not wait.
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

    /// Claims the bytes of all commands, for a channel that was alone.
    #[cold]
    pub(super) fn claim_at_once(&mut self, claimant: &Claimant) {
        for large in &mut self.going {
            claimant.claim_at_once(&mut large.claim, large.ranges.iter().copied());
        }
    }

    /// Releases all claims, for a channel that ends.
    pub(super) fn release_all(&mut self, claimant: &Claimant) {
        self.going
            .iter_mut()
            .for_each(|large| large.release(claimant));
    }
}

/// Dropping the channel waits for nothing.
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

    /// Performs the next `slice` bytes, or all of a small command.
    fn slice(&mut self, store: &Store, slice: u32) -> Cause {
        match self.op {
            Op::Zero { deallocate } => {
                let most = if deallocate { DISCARD } else { slice.into() };
                // Up to the end of a huge page, because the system frees only whole ones.
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

    /// Compares the first half of the host's bytes, and writes the other half.
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

    /// Calls `with` for `room` of the host's bytes, with their positions in the medium, until it
    /// reports a difference.
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
            // The view is the one in which these addresses were found, and does not change.
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
