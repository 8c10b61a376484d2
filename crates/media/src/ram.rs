//! Memory: everything completes at once, nothing survives the program.
//!
//! Copies run on the reactor that adds them. Overlapping commands of several reactors mix their
//! bytes, as NVMe allows for commands that are in flight together.

use std::sync::Arc;

use controller::port::{Added, Cause, Channel, Done, MediumTraits, Outcome, Request};
use controller::ticket::Ticket;
use memory::{DmaView, Segment, Store};

pub(crate) const TRAITS: MediumTraits = MediumTraits {
    deallocate: true,
    deallocated_reads_zero: true,
    // It has nothing but volatile memory, and a flush changes nothing about that.
    volatile_cache: false,
    optimal_bytes: 4096,
};

/// A reactor's handle on the memory.
#[derive(Debug)]
pub(crate) struct RamChannel {
    store: Arc<Store>,
}

impl RamChannel {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        RamChannel { store }
    }

    fn holds(&self, offset: u64, len: u64) -> bool {
        offset
            .checked_add(len)
            .is_some_and(|end| end <= self.store.len())
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

impl Channel for RamChannel {
    #[inline]
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        _: &Arc<DmaView>,
    ) -> Added {
        Added::Done(ticket, Outcome::of(self.run(request, segments)))
    }

    fn submit(&mut self) {}

    fn reap(&mut self, _: &mut Vec<Done>) {}

    fn in_flight(&self) -> u32 {
        0
    }
}
