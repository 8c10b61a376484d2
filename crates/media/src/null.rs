//! A medium without contents: writes are discarded, reads leave the host's buffers unchanged.
//!
//! Its purpose is to measure everything except a medium. Because a read "finds" whatever is in the
//! buffer, a Compare always succeeds. Written data cannot be verified.

use std::sync::Arc;

use memory::{DmaView, Segment};
use port::ticket::Ticket;
use port::{Added, Channel, Done, MediumTraits, Outcome, Request};

pub(crate) const TRAITS: MediumTraits = MediumTraits {
    deallocate: true,
    // A deallocated block reads like any other: its contents are undefined.
    deallocated_reads_zero: false,
    volatile_cache: false,
    optimal_bytes: 4096,
    read_only: false,
    notes: false,
    allocation: false,
    erases: false,
};

/// A reactor's handle on the null medium.
#[derive(Debug)]
pub(crate) struct NullChannel;

impl Channel for NullChannel {
    #[inline]
    fn add(
        &mut self,
        ticket: Ticket,
        _: &Request<'_>,
        _: &[Segment<'_>],
        _: &Arc<DmaView>,
    ) -> Added {
        Added::Done(ticket, Outcome::OK)
    }

    fn submit(&mut self) {}

    fn reap(&mut self, _: &mut Vec<Done>) {}

    fn in_flight(&self) -> u32 {
        0
    }
}
