//! Memory: everything completes at once, and nothing persists.
//!
//! Copies run on the reactor that adds them, each from start to end, or, if it is large, in slices
//! while no other command touches the bytes (`slices`): commands of one reactor do not mix. With
//! several reactors, commands first claim their bytes ([`memory::sync::claims`]), and if that fails
//! wait among the slices.

mod preallocation;
mod slices;

use std::sync::Arc;

use memory::{Claim, Claimant, DmaView, Segment, Store, StorePages};
use port::ticket::Ticket;
use port::{Added, ByteRange, Cause, Channel, Done, FUSED_BYTES, MediumTraits, Outcome, Request};

pub(crate) use self::preallocation::Preallocation;
use self::slices::{Op, Slices};
pub(crate) use self::slices::{SLICE, TIMED_SLICE};
use crate::size::Bytes;

const TRAITS: MediumTraits = MediumTraits {
    deallocate: true,
    deallocated_reads_zero: true,
    // All memory is volatile, so a flush has no effect.
    volatile_cache: false,
    optimal_bytes: 4096,
    read_only: false,
    notes: false,
    allocation: true,
    erases: false,
};

/// Capabilities of memory in this store.
pub(crate) fn traits(store: &Store) -> MediumTraits {
    MediumTraits {
        // The kernel writes other pages to swap space, where zeroes do not reach a copy.
        erases: store.pages() == StorePages::Reserved,
        ..TRAITS
    }
}

/// Description in one line. `preallocated`: bytes that were allocated in advance.
pub(crate) fn describe(store: &Store, preallocated: Option<u64>) -> String {
    let pages = match store.pages() {
        StorePages::Reserved => "on reserved huge pages",
        StorePages::HugeAsWritten | StorePages::HugeOnceUsed => "on transparent huge pages",
        StorePages::Usual => "on pages of the default size",
    };
    let text = format!("ram, {} {pages}, not persistent", Bytes(store.len()));
    match preallocated {
        None => text,
        Some(bytes) if bytes < store.len() => {
            format!("{text}, {} allocated in advance so far", Bytes(bytes))
        }
        Some(_) => format!("{text}, all allocated in advance"),
    }
}

/// A reactor's handle on the memory.
#[derive(Debug)]
pub(crate) struct RamChannel {
    store: Arc<Store>,
    slices: Slices,
    claimant: Claimant,
}

impl RamChannel {
    /// Creates a handle; commands of more than `slice` bytes run in slices.
    pub(crate) fn new(store: Arc<Store>, claimant: Claimant, slice: u32) -> Self {
        RamChannel {
            store,
            slices: Slices::new(slice),
            claimant,
        }
    }

    /// See [`crate::Channel::tend`].
    #[inline]
    pub(crate) fn tend(&mut self) {
        self.must_claim();
    }

    /// See [`crate::Channel::is_due`].
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.slices.len() > 0;
        if !due {
            self.claimant.rest();
        }
        due
    }

    /// Whether another channel may access the same bytes, so that commands must claim theirs.
    #[inline]
    fn must_claim(&mut self) -> bool {
        let slices = &mut self.slices;
        self.claimant
            .must_claim(|claimant| slices.claim_at_once(claimant))
    }

    fn holds(&self, offset: u64, len: u64) -> bool {
        offset
            .checked_add(len)
            .is_some_and(|end| end <= self.store.len())
    }

    /// Whether the bytes are inside the store, and the segments are long enough for the data. Other
    /// requests are rejected by [`RamChannel::run`], without any access.
    #[cold]
    fn fits(&self, request: &Request<'_>, segments: &[Segment<'_>]) -> bool {
        let total: u64 = segments.iter().map(|s| u64::from(s.len())).sum();
        let moved = match *request {
            Request::Read { len, .. }
            | Request::Write { len, .. }
            | Request::Compare { len, .. } => total == u64::from(len),
            Request::CompareAndWrite { len, .. } => {
                len <= FUSED_BYTES && total == 2 * u64::from(len)
            }
            _ => true,
        };
        moved && ranges(request).all(|(offset, len)| self.holds(offset, len))
    }

    /// Positions of the segments in the store; `None` if they do not fit.
    fn places<'s>(
        &self,
        offset: u64,
        len: u32,
        segments: &'s [Segment<'s>],
    ) -> Option<impl Iterator<Item = (u64, &'s Segment<'s>)>> {
        let total: u64 = segments
            .iter()
            .map(|segment| u64::from(segment.len()))
            .sum();
        if total != u64::from(len) || !self.holds(offset, total) {
            return None;
        }
        Some(segments.iter().scan(offset, |next, segment| {
            let here = *next;
            *next += u64::from(segment.len());
            Some((here, segment))
        }))
    }

    /// Compares the first `len` bytes of the segments, and writes the others.
    #[cold]
    #[inline(never)]
    fn compare_and_write(&self, offset: u64, len: u32, segments: &[Segment<'_>]) -> Cause {
        let total: u64 = segments
            .iter()
            .map(|segment| u64::from(segment.len()))
            .sum();
        if len > FUSED_BYTES || total != 2 * u64::from(len) || !self.holds(offset, len.into()) {
            return Cause::Unsupported;
        }
        let mut data = [0; 2 * FUSED_BYTES as usize];
        let mut rest = &mut data[..2 * len as usize];
        for segment in segments {
            let (here, behind) = rest.split_at_mut(segment.len() as usize);
            segment.read_into(0, here);
            rest = behind;
        }
        compare_and_write(&self.store, offset, &data[..2 * len as usize])
    }

    // Inlined: for a single channel, a call would cost more than the rest of `add`.
    #[inline(always)]
    fn run(&self, request: &Request<'_>, segments: &[Segment<'_>]) -> Cause {
        let done = match *request {
            Request::Read { offset, len } => self
                .places(offset, len, segments)
                .map(|places| places.for_each(|(at, segment)| self.store.copy_to(at, segment))),
            Request::Write {
                offset,
                len,
                fua: _,
            } => self
                .places(offset, len, segments)
                .map(|places| places.for_each(|(at, segment)| self.store.copy_from(at, segment))),
            Request::Compare { offset, len } => {
                let Some(mut places) = self.places(offset, len, segments) else {
                    return Cause::Unsupported;
                };
                if !places.all(|(at, segment)| self.store.compare(at, segment)) {
                    return Cause::CompareMismatch;
                }
                Some(())
            }
            Request::CompareAndWrite { offset, len, .. } => {
                return self.compare_and_write(offset, len, segments);
            }
            Request::WriteZeroes {
                offset,
                len,
                deallocate,
                fua: _,
            } => self
                .holds(offset, len)
                .then(|| self.store.zero(offset, len, deallocate)),
            Request::Deallocate { ranges } => ranges
                .iter()
                .all(|range| self.holds(range.offset, range.len))
                .then(|| {
                    ranges
                        .iter()
                        .for_each(|range| self.store.zero(range.offset, range.len, true))
                }),
            Request::Flush => Some(()),
            Request::Command { .. } | Request::Renew { .. } => None,
        };
        // The caller should have rejected accesses outside; they are rejected here rather than
        // trusted.
        done.map_or(Cause::Unsupported, |()| Cause::None)
    }
}

/// Compares the first half of `data`, at most [`FUSED_BYTES`], and writes the other half.
fn compare_and_write(store: &Store, offset: u64, data: &[u8]) -> Cause {
    let (old, new) = data.split_at(data.len() / 2);
    let mut there = [0; FUSED_BYTES as usize];
    let there = &mut there[..old.len()];
    store.read_bytes(offset, there);
    if there != old {
        return Cause::CompareMismatch;
    }
    store.write_bytes(offset, new);
    Cause::None
}

/// The ranges that a request touches: offset and length.
fn ranges<'r>(request: &Request<'r>) -> impl Iterator<Item = (u64, u64)> + use<'r> {
    let (one, several): (_, &[ByteRange]) = match *request {
        Request::Read { offset, len }
        | Request::Write { offset, len, .. }
        | Request::Compare { offset, len }
        | Request::CompareAndWrite { offset, len, .. } => (Some((offset, len.into())), &[]),
        Request::WriteZeroes { offset, len, .. } => (Some((offset, len)), &[]),
        Request::Deallocate { ranges } => (None, ranges),
        Request::Flush | Request::Command { .. } | Request::Renew { .. } => (None, &[]),
    };
    let several = several.iter().map(|range| (range.offset, range.len));
    one.into_iter().chain(several)
}

impl RamChannel {
    /// Whether a request is large enough for slices.
    #[inline]
    fn is_large(&self, request: &Request<'_>) -> bool {
        match *request {
            Request::Read { len, .. }
            | Request::Write { len, .. }
            | Request::Compare { len, .. } => self.slices.is_large(len.into()),
            Request::WriteZeroes { len, .. } => self.slices.is_large(len),
            _ => false,
        }
    }

    /// Whether the request shares bytes with one that runs in slices.
    fn meets(&self, request: &Request<'_>) -> bool {
        ranges(request).any(|(offset, len)| self.slices.meets(offset, len))
    }

    /// Accepts a valid request for later.
    #[inline(never)]
    fn add_later(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
        claim: Claim,
    ) -> Added {
        let Some(op) = Op::of(request) else {
            return Added::Done(ticket, Outcome::OK);
        };
        match self
            .slices
            .add(ticket, op, ranges(request), segments, view, claim)
        {
            Ok(()) => Added::Pending,
            Err((ticket, mut claim)) => {
                self.claimant.release(&mut claim, ranges(request));
                Added::Full(ticket)
            }
        }
    }

    /// Like [`Channel::add`], if other channels may conflict.
    #[inline(never)]
    fn add_beside(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        if self.slices.len() > 0 && self.meets(request) {
            return Added::Full(ticket);
        }
        let fits = self.fits(request, segments);
        let mut later = self.is_large(request) && fits;
        let mut claim = Claim::NEEDLESS;
        if self.must_claim() {
            claim = Claim::default();
            let changes = Op::of(request).is_some_and(Op::changes);
            let whole = self.claimant.claim(&mut claim, ranges(request), changes);
            // An invalid request is rejected without any access.
            later |= !whole && fits;
        }
        if later {
            return self.add_later(ticket, request, segments, view, claim);
        }
        let cause = self.run(request, segments);
        self.claimant.release(&mut claim, ranges(request));
        Added::Done(ticket, Outcome::of(cause))
    }
}

/// Dropping the channel waits for no command, and completes none.
impl Drop for RamChannel {
    fn drop(&mut self) {
        self.slices.release_all(&self.claimant);
    }
}

impl Channel for RamChannel {
    // Not inlined: this is on the path of calls to faster media.
    #[inline(never)]
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        if self.slices.len() > 0 || !self.claimant.is_alone() {
            return self.add_beside(ticket, request, segments, view);
        }
        if self.is_large(request) && self.fits(request, segments) {
            return self.add_later(ticket, request, segments, view, Claim::NEEDLESS);
        }
        Added::Done(ticket, Outcome::of(self.run(request, segments)))
    }

    fn submit(&mut self) {}

    #[inline]
    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.slices.len() > 0 {
            self.slices.go_on(&self.store, &self.claimant, done);
        }
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.slices.len() as u32
    }

    fn is_full(&self, request: &Request<'_>) -> bool {
        self.slices.len() > 0
            && (self.meets(request) || self.is_large(request) && !self.slices.has_room())
    }

    #[inline]
    fn copies(&self) -> bool {
        true
    }

    #[inline]
    fn expect(&self, offset: u64, len: u64) {
        self.store.prefetch(offset, len);
    }
}

#[cfg(test)]
mod tests;
