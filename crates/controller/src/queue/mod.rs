//! Submission and completion queues, the controller's side: positions, doorbells, phases.
//!
//! Invariants:
//! - A doorbell value is checked before it has any effect. An invalid value freezes its queue, is
//!   reported once, and is not checked again: it causes no loop, and slows no other queue.
//! - The head of a submission queue counts fetched commands, and the tail of a completion queue
//!   counts posted ones.
//!
//! They do NOT interpret commands, decide who may take an entry of a completion queue (`lane`
//! shares them out), or know whether the memory behind a ring may come back (the caller raises the
//! fault if an absent ring is used).

mod cq;
mod reservation;
mod sq;

pub use cq::Cq;
pub(crate) use cq::CqState;
use memory::{DoorbellPages, RingError, ShadowDoorbells};
pub use reservation::Reservation;
pub(crate) use reservation::{Batch, Claim, Pool};
pub use sq::Sq;

use crate::state::{BellState, MAX_SQS};

/// Largest queue: MQES is 16 bits, 0's based, so that 16 bits name any entry.
pub const MAX_ENTRIES: u32 = 65_536;

/// Why a queue cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The identifier is 0 or above the supported range.
    #[error("queue identifier {qid} is out of range: expected 1 to {}", MAX_SQS)]
    Identifier {
        /// The identifier.
        qid: u16,
    },
    /// Fewer than 2 or more than 65,536 entries.
    #[error("queue size {entries} is out of range: expected 2 to 65536 entries")]
    Size {
        /// Entries asked for.
        entries: u32,
    },
    /// The ring is not where it can be reached.
    #[error("cannot access the memory of the queue: {0}")]
    Ring(#[from] RingError),
    /// The state area has too few slots: create it with `state::slots_for` slots.
    #[error("the saved state has {have} slots, but {need} are needed")]
    State {
        /// Slots needed.
        need: usize,
        /// Slots there.
        have: usize,
    },
}

/// Checks the size of a queue (Base 2.1, 3.3.1.1: at least two entries).
///
/// # Errors
/// [`QueueError::Size`].
pub fn check_entries(entries: u32) -> Result<(), QueueError> {
    if (2..=MAX_ENTRIES).contains(&entries) {
        Ok(())
    } else {
        Err(QueueError::Size { entries })
    }
}

/// A doorbell value that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadDoorbell {
    /// The value found.
    pub value: u32,
}

/// A ring was used while its page was not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAbsent;

/// Values of a queue's doorbells, for inspection: no decision depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BellView {
    /// The register's slot.
    pub doorbell: u32,
    /// The host's shadow of it, where it registered buffers.
    pub shadow: Option<u32>,
    /// The current EventIdx, from which on the host rings.
    pub event_idx: Option<u32>,
    /// The value that has frozen the queue.
    pub frozen: Option<BadDoorbell>,
}

/// Location of doorbells: the register's slots, and the host's buffers if it registered some.
#[derive(Clone, Copy)]
pub struct Bells<'a> {
    /// Our page: written by the host where it is mapped, by trapped writes where it is not.
    pub pages: &'a DoorbellPages,
    /// Doorbell Buffer Config.
    pub shadow: Option<&'a ShadowDoorbells>,
}

/// One doorbell: which of the two places holds its value.
///
/// Hosts differ in how they use the shadow: some ring the register too, some never write the shadow
/// for some queues, and a trapped write can arrive long after newer values went to the shadow. So:
/// until the shadow has moved since it was registered (or the queue was created), the register
/// counts; once it has moved, the shadow alone does. A late trapped write then is a reason to look,
/// and its value is never taken, as it may be older than what was seen.
#[derive(Clone, Copy, Debug)]
struct Doorbell {
    slot: usize,
    /// The shadow's value when it was registered; `None` until it could be read.
    initial: Option<u32>,
    moved: bool,
    /// One of both has changed since [`Doorbell::saved`].
    unsaved: bool,
}

impl Doorbell {
    fn new(slot: usize, bells: Bells<'_>) -> Self {
        Doorbell {
            slot,
            initial: bells.shadow.and_then(|shadow| shadow.load(slot)),
            moved: false,
            unsaved: false,
        }
    }

    fn show(&self, bells: Bells<'_>, frozen: Option<BadDoorbell>) -> BellView {
        let slot = self.slot;
        BellView {
            doorbell: bells.pages.load(slot),
            shadow: bells.shadow.and_then(|shadow| shadow.load(slot)),
            event_idx: bells.shadow.and_then(|shadow| shadow.event_idx(slot)),
            frozen,
        }
    }

    /// The doorbell of a process that died: its successor goes on from what it knew.
    fn restore(slot: usize, shadow: u32, bell: BellState) -> Self {
        Doorbell {
            slot,
            initial: bell.known().then_some(shadow),
            moved: bell.moved(),
            unsaved: false,
        }
    }

    /// State of the shadow, for [`Doorbell::restore`].
    fn saved(&mut self) -> (u32, BellState) {
        self.unsaved = false;
        let bell = BellState::new()
            .with_known(self.initial.is_some())
            .with_moved(self.moved);
        (self.initial.unwrap_or(0), bell)
    }

    /// The registration of the shadow began or ended; `initial` is its value at that time.
    fn register(&mut self, initial: Option<u32>) {
        self.moved = false;
        self.initial = initial;
    }

    /// The doorbell's value now; `None` where nothing can be said (the shadow's page is not mapped
    /// at the moment).
    #[inline]
    fn look(&mut self, bells: Bells<'_>) -> Option<u32> {
        let Some(shadow) = bells.shadow else {
            return Some(bells.pages.load(self.slot));
        };
        self.look_shadow(shadow, bells.pages)
    }

    fn look_shadow(&mut self, shadow: &ShadowDoorbells, pages: &DoorbellPages) -> Option<u32> {
        let value = shadow.load(self.slot);
        if self.moved {
            return value;
        }
        // The shadow first, then the register: a host writes them in this order, so a register
        // value read now is not older than a shadow that has not moved.
        match (value, self.initial) {
            (Some(now), Some(then)) if now != then => {
                self.moved = true;
                self.unsaved = true;
                Some(now)
            }
            (Some(now), None) => {
                self.initial = Some(now);
                self.unsaved = true;
                Some(pages.load(self.slot))
            }
            _ => Some(pages.load(self.slot)),
        }
    }
}

/// Entries from `from` up to `to` in a ring of `entries`; both are below `entries`.
#[inline]
fn distance(from: u32, to: u32, entries: u32) -> u32 {
    if to >= from {
        to - from
    } else {
        to + entries - from
    }
}

/// The entry after `index`.
#[inline]
fn next(index: u32, entries: u32) -> u32 {
    let next = index + 1;
    if next == entries { 0 } else { next }
}

#[cfg(test)]
mod tests;
