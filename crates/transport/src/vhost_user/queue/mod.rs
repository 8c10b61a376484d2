//! A ring of the driver: what it makes available, and what was used.
//!
//! It knows split and packed rings (VIRTIO 1.3, 2.7 and 2.8), event suppression (by flags and by
//! index), indirect descriptors, and the record of what is in flight ("Inflight I/O tracking").
//!
//! Invariants:
//! - A value of the driver is loaded once, and only the copy is checked and used. Its faults stop
//!   the ring ([`RingFault`]).
//! - Taking, giving back and publishing allocate nothing: what they need is as large as the ring.
//! - A request that was taken is given back once. With a record ([`inflight`]) that holds across
//!   the death of the process.
//!
//! It does NOT know what a request is, or whether its pieces are memory.

mod ahead;
mod chain;
mod fault;
mod ids;
mod inflight;
mod packed;
mod position;
mod request;
mod setup;
mod split;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use memory::{DmaView, Hint};

pub(super) use self::fault::RingFault;
pub(super) use self::inflight::{Inflight, Record};
use self::packed::Packed;
pub(super) use self::request::{Head, MAX_PIECES, Piece, Pieces};
pub(super) use self::setup::Setup;
use self::split::Split;

/// See the module.
#[derive(Debug)]
pub(super) struct Queue(Layout);

#[derive(Debug)]
enum Layout {
    Split(Split),
    Packed(Packed),
}

/// The same for either layout.
macro_rules! either {
    ($queue:expr, $it:ident => $value:expr) => {
        match $queue {
            Layout::Split($it) => $value,
            Layout::Packed($it) => $value,
        }
    };
}

impl Queue {
    /// A ring in this memory. With a record, what was in flight there comes first, in the order in
    /// which it was taken.
    ///
    /// # Errors
    /// The ring cannot lie there, or its numbers are wrong.
    pub(super) fn new(
        view: &Arc<DmaView>,
        setup: &Setup,
        record: Option<Record>,
    ) -> Result<Self, RingFault> {
        if !(1..=setup::MAX_SIZE).contains(&setup.size) {
            return Err(RingFault::Size(setup.size));
        }
        Ok(Self(if setup.is_packed {
            Layout::Packed(Packed::new(view, setup, record)?)
        } else {
            Layout::Split(Split::new(view, setup, record)?)
        }))
    }

    /// The memory has changed.
    ///
    /// # Errors
    /// The ring does not lie in it any more.
    pub(super) fn resolve(&mut self, view: &Arc<DmaView>) -> Result<(), RingFault> {
        either!(&mut self.0, it => it.resolve(view))
    }

    /// Takes the next request, and stores its pieces in `pieces` (emptied first).
    ///
    /// # Errors
    /// The driver has broken a rule: the ring is to be stopped.
    #[inline]
    pub(super) fn take(
        &mut self,
        view: &DmaView,
        hint: &mut Hint,
        pieces: &mut Pieces,
    ) -> Result<Option<Head>, RingFault> {
        either!(&mut self.0, it => it.take(view, hint, pieces))
    }

    /// Gives a request back, into whose pieces `written` bytes were written. The driver sees it by
    /// [`Self::publish`].
    #[inline]
    pub(super) fn give_back(&mut self, head: Head, written: u32) {
        either!(&mut self.0, it => it.give_back(head, written));
    }

    /// Shows the driver what was given back, before [`Self::publish`]: a driver that looks may go
    /// on meanwhile.
    #[inline]
    pub(super) fn show(&mut self) {
        either!(&mut self.0, it => it.show());
    }

    /// Shows the driver what was given back. True where it is to be notified.
    ///
    /// Of a ring that continues from a record the first call is always true: a former back end may
    /// have died before it notified. So call it once when the ring starts.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        either!(&mut self.0, it => it.publish())
    }

    /// Whether there may be a request to take: one load or two.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        either!(&self.0, it => it.has_more())
    }

    /// The driver need not notify from now on.
    pub(super) fn disarm(&mut self) {
        either!(&mut self.0, it => it.disarm());
    }

    /// The driver is to notify of the next request. False where there is one by now.
    pub(super) fn arm(&mut self) -> bool {
        either!(&mut self.0, it => it.arm())
    }

    /// The next entry to take, for `GET_VRING_BASE`. Nothing is in flight.
    pub(super) fn base(&self) -> u32 {
        either!(&self.0, it => it.base())
    }

    /// Requests of a former back end that were taken again.
    pub(super) fn resubmitted(&self) -> u64 {
        either!(&self.0, it => it.resubmitted())
    }
}
