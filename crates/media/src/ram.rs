//! Memory: everything completes at once, nothing survives the program.
//!
//! Copies run on the reactor that adds them, each from start to end, or, where it is a large one, in
//! slices while nobody else touches the bytes (`slices`): commands of one reactor do not mix. Those of
//! several would; but one reactor serves a namespace, and namespaces share no bytes.

mod slices;

use std::sync::Arc;

use controller::port::{Added, Cause, Channel, Done, FUSED_BYTES, MediumTraits, Outcome, Request};
use controller::ticket::Ticket;
use memory::{DmaView, Segment, Store, StorePages};

use self::slices::{Op, SLICE, Slices};
use crate::size::Bytes;

pub(crate) const TRAITS: MediumTraits = MediumTraits {
    deallocate: true,
    deallocated_reads_zero: true,
    // It has nothing but volatile memory, and a flush changes nothing about that.
    volatile_cache: false,
    optimal_bytes: 4096,
};

/// One line for the log.
pub(crate) fn describe(store: &Store) -> String {
    let pages = match store.pages() {
        StorePages::Reserved => "on huge pages that were reserved",
        StorePages::HugeAsWritten => "on huge pages as it is written",
        StorePages::Usual => "on pages of the usual size",
    };
    format!(
        "ram, {} {pages}: gone when the program ends",
        Bytes(store.len())
    )
}

/// A reactor's handle on the memory.
#[derive(Debug)]
pub(crate) struct RamChannel {
    store: Arc<Store>,
    slices: Slices,
}

impl RamChannel {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        RamChannel {
            store,
            slices: Slices::default(),
        }
    }

    fn holds(&self, offset: u64, len: u64) -> bool {
        offset
            .checked_add(len)
            .is_some_and(|end| end <= self.store.len())
    }

    /// Whether the bytes lie in the store, and the segments have as many where some are moved. What does not is refused
    /// as a small request is.
    #[cold]
    fn fits(&self, op: Op, offset: u64, len: u64, segments: &[Segment<'_>]) -> bool {
        let total: u64 = segments.iter().map(|s| u64::from(s.len())).sum();
        self.holds(offset, len) && (matches!(op, Op::Zero { .. }) || total == len)
    }

    /// Where the segments lie in the store; `None` where they do not fit.
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

    /// The first `len` bytes of the segments are compared, the others written.
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
        let (old, new) = data[..2 * len as usize].split_at(len as usize);
        let mut there = [0; FUSED_BYTES as usize];
        self.store.read_bytes(offset, &mut there[..len as usize]);
        if there[..len as usize] != *old {
            return Cause::CompareMismatch;
        }
        self.store.write_bytes(offset, new);
        Cause::None
    }

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
        };
        // What lies outside was the caller's to refuse; it is refused here rather than trusted.
        done.map_or(Cause::Unsupported, |()| Cause::None)
    }
}

/// What a request does in slices, where it is large enough for that: the bytes, and what is done to them.
fn large(request: &Request<'_>) -> Option<((u64, u64), Op)> {
    let (range, op) = match *request {
        Request::Read { offset, len } => ((offset, len.into()), Op::Read),
        Request::Write { offset, len, .. } => ((offset, len.into()), Op::Write),
        Request::Compare { offset, len } => ((offset, len.into()), Op::Compare),
        Request::WriteZeroes {
            offset,
            len,
            deallocate,
            ..
        } => ((offset, len), Op::Zero { deallocate }),
        _ => return None,
    };
    (range.1 > SLICE.into()).then_some((range, op))
}

impl RamChannel {
    /// Whether the request shares bytes with one that is done in slices.
    fn meets(&self, request: &Request<'_>) -> bool {
        match *request {
            Request::Read { offset, len }
            | Request::Write { offset, len, .. }
            | Request::Compare { offset, len }
            | Request::CompareAndWrite { offset, len, .. } => self.slices.meets(offset, len.into()),
            Request::WriteZeroes { offset, len, .. } => self.slices.meets(offset, len),
            Request::Deallocate { ranges } => ranges
                .iter()
                .any(|range| self.slices.meets(range.offset, range.len)),
            Request::Flush => false,
        }
    }
}

impl Channel for RamChannel {
    // Not inline: others pass by here on their way to media that do less.
    #[inline(never)]
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        if self.slices.len() > 0 && self.meets(request) {
            return Added::Full(ticket);
        }
        if let Some(((offset, len), op)) = large(request)
            && self.fits(op, offset, len, segments)
        {
            return match self.slices.add(ticket, op, (offset, len), segments, view) {
                Ok(()) => Added::Pending,
                Err(ticket) => Added::Full(ticket),
            };
        }
        Added::Done(ticket, Outcome::of(self.run(request, segments)))
    }

    fn submit(&mut self) {}

    #[inline]
    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.slices.len() > 0 {
            self.slices.go_on(&self.store, done);
        }
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.slices.len() as u32
    }

    fn is_full(&self, request: &Request<'_>) -> bool {
        self.slices.len() > 0
            && (self.meets(request) || large(request).is_some() && !self.slices.has_room())
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
