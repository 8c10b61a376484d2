//! A split ring (VIRTIO 1.3, 2.7).

use std::sync::Arc;

use memory::{DmaView, Hint, SplitRing, full_fence};

use super::ahead::{prefetch, prefetch_of_table};
use super::chain::{INDIRECT, Tables, walk};
use super::fault::RingFault;
use super::ids::Ids;
use super::inflight::{Record, SplitRecord};
use super::request::{Head, Pieces};
use super::setup::Setup;

/// `VIRTQ_AVAIL_F_NO_INTERRUPT` and `VIRTQ_USED_F_NO_NOTIFY`.
const NO_INTERRUPT: u16 = 1;
const NO_NOTIFY: u16 = 1;

/// Requests from the next one on whose descriptors are asked for, among them those whose first
/// pieces or tables are, and among them those whose tables' first pieces are: another processor has
/// just written them.
const CHAINS_AHEAD: u16 = 8;
const PIECES_AHEAD: u16 = 5;
const TABLES_AHEAD: u16 = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct Split {
    ring: SplitRing,
    size: u16,
    has_event_idx: bool,
    has_indirect: bool,
    /// Available index of the next request, and the driver's when it was looked at last.
    next: u16,
    available: u16,
    /// Available indices before which descriptors, first pieces and those of tables were asked for.
    asked: [u16; 3],
    /// Its driver uses tables.
    has_tables: bool,
    /// Used index of the next request, as the driver has it, and as it was when the driver was
    /// notified or did not want to be.
    used: u16,
    shown: u16,
    published: u16,
    /// Requests that the driver has not got back: those in flight, and those to show.
    held: u16,
    /// First descriptors of the requests in flight.
    in_flight: Ids,
    record: Option<SplitRecord>,
    /// Requests of a former back end to take again; the first one is the last here.
    pending: Vec<u16>,
    resubmitted: u64,
    /// A former back end may have died before it notified.
    owes_notification: bool,
    /// Whether the driver is to notify, by the flags; `None`: as a former back end has left it.
    is_armed: Option<bool>,
}

impl Split {
    pub(super) fn new(
        view: &Arc<DmaView>,
        setup: &Setup,
        record: Option<Record>,
    ) -> Result<Self, RingFault> {
        let size = setup.size;
        if !size.is_power_of_two() {
            return Err(RingFault::Size(size));
        }
        let next = u16::try_from(setup.base).map_err(|_| RingFault::Base(setup.base))?;
        let parts = [setup.descriptors, setup.driver, setup.device];
        let ring = SplitRing::new(view, size, parts, setup.has_event_idx)?;
        let used = ring.used_index();
        let mut split = Self {
            ring,
            size,
            has_event_idx: setup.has_event_idx,
            has_indirect: setup.has_indirect,
            next,
            available: next,
            asked: [next; 3],
            has_tables: false,
            used,
            shown: used,
            published: used,
            held: 0,
            in_flight: Ids::new(size.into()),
            record: None,
            pending: Vec::new(),
            resubmitted: 0,
            owes_notification: false,
            is_armed: None,
        };
        if let Some(record) = record {
            let (record, left) = SplitRecord::open(record, size, used)?;
            if left.was_used {
                // At most as many as the ring has entries.
                split.held = left.pending.len() as u16;
                split.next = used.wrapping_add(split.held);
                split.available = split.next;
                split.asked = [split.next; 3];
                split.owes_notification = true;
            }
            split.pending = left.pending;
            split.record = Some(record);
        }
        Ok(split)
    }

    pub(super) fn resolve(&mut self, view: &Arc<DmaView>) -> Result<(), RingFault> {
        Ok(self.ring.resolve(view)?)
    }

    #[inline]
    pub(super) fn take(
        &mut self,
        view: &DmaView,
        hint: &mut Hint,
        pieces: &mut Pieces,
    ) -> Result<Option<Head>, RingFault> {
        pieces.clear();
        let mut tables = Tables {
            view,
            hint,
            are_allowed: self.has_indirect,
        };
        if let Some(&id) = self.pending.last() {
            walk(&self.ring, self.size, id, &mut tables, pieces)?;
            self.pending.pop();
            self.in_flight.insert(id);
            self.resubmitted += 1;
            return Ok(Some(Head {
                is_again: true,
                ..head(id)
            }));
        }
        if self.next == self.available {
            let available = self.ring.available_index();
            let ahead = available.wrapping_sub(self.next);
            if ahead == 0 {
                return Ok(None);
            }
            if ahead > self.size - self.held {
                return Err(RingFault::Ahead);
            }
            self.available = available;
        }
        self.look_ahead(view, tables.hint);
        let id = self.entry(self.next);
        if id >= self.size {
            return Err(RingFault::Index(id));
        }
        if self.in_flight.contains(id) {
            return Err(RingFault::Twice(id));
        }
        walk(&self.ring, self.size, id, &mut tables, pieces)?;
        self.in_flight.insert(id);
        if let Some(record) = &mut self.record {
            record.taken(id);
        }
        let used = self.shown.wrapping_add(self.held);
        self.ring.prefetch_used(used & (self.size - 1));
        self.held += 1;
        self.next = self.next.wrapping_add(1);
        Ok(Some(head(id)))
    }

    /// Asks for what the next requests consist of, so that it comes while those before are taken.
    #[inline]
    fn look_ahead(&mut self, view: &DmaView, hint: &mut Hint) {
        let left = self.available.wrapping_sub(self.next);
        let until = self.next.wrapping_add(left.min(CHAINS_AHEAD));
        while self.asked[0] != until {
            self.ring.prefetch_chain(self.entry(self.asked[0]));
            self.asked[0] = self.asked[0].wrapping_add(1);
        }
        let until = self.next.wrapping_add(left.min(PIECES_AHEAD));
        while self.asked[1] != until {
            let id = self.entry(self.asked[1]);
            self.asked[1] = self.asked[1].wrapping_add(1);
            if id < self.size {
                let first = self.ring.descriptor(id);
                self.has_tables |= first.flags & INDIRECT != 0;
                prefetch(first.addr, view, hint);
            }
        }
        if self.has_tables {
            self.look_into_tables(self.next.wrapping_add(left.min(TABLES_AHEAD)), view, hint);
        }
    }

    fn look_into_tables(&mut self, until: u16, view: &DmaView, hint: &mut Hint) {
        // Before it there were none, or they were taken.
        if until.wrapping_sub(self.asked[2]) > TABLES_AHEAD {
            self.asked[2] = self.next;
        }
        while self.asked[2] != until {
            let id = self.entry(self.asked[2]);
            self.asked[2] = self.asked[2].wrapping_add(1);
            if id < self.size {
                let first = self.ring.descriptor(id);
                if first.flags & INDIRECT != 0 {
                    prefetch_of_table(first.addr, view, hint);
                }
            }
        }
    }

    /// The available entry of an index.
    #[inline]
    fn entry(&self, index: u16) -> u16 {
        self.ring.available_entry(index & (self.size - 1))
    }

    #[inline]
    pub(super) fn give_back(&mut self, head: Head, written: u32) {
        if !self.in_flight.remove(head.id) {
            debug_assert!(false, "{head:?} is not in flight");
            return;
        }
        let slot = self.used & (self.size - 1);
        self.ring.store_used_entry(slot, head.id, written);
        self.used = self.used.wrapping_add(1);
        if let Some(record) = &mut self.record {
            record.given_back(head.id);
        }
    }

    #[inline]
    pub(super) fn show(&mut self) {
        let (old, new) = (self.shown, self.used);
        if old == new {
            return;
        }
        self.ring.store_used_index(new);
        self.shown = new;
        self.held -= new.wrapping_sub(old);
        if let Some(record) = &mut self.record {
            record.published(new);
        }
    }

    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        self.show();
        let owed = std::mem::take(&mut self.owes_notification);
        let (old, new) = (self.published, self.used);
        if old == new {
            return owed;
        }
        self.published = new;
        full_fence();
        let wants = if self.has_event_idx {
            // 2.7.7.2: whether the index went past the event.
            let past = new.wrapping_sub(self.ring.used_event()).wrapping_sub(1);
            past < new.wrapping_sub(old)
        } else {
            self.ring.available_flags() & NO_INTERRUPT == 0
        };
        wants || owed
    }

    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.available != self.next
            || self.ring.available_index() != self.next
            || !self.pending.is_empty()
    }

    #[inline]
    pub(super) fn disarm(&mut self) {
        // With an index of events the last one that was stored stays behind.
        if !self.has_event_idx && self.is_armed != Some(false) {
            self.ring.store_used_flags(NO_NOTIFY);
            self.is_armed = Some(false);
        }
    }

    #[inline]
    pub(super) fn arm(&mut self) -> bool {
        if self.has_event_idx {
            self.ring.store_available_event(self.next);
        } else if self.is_armed != Some(true) {
            self.ring.store_used_flags(0);
            self.is_armed = Some(true);
        }
        full_fence();
        !self.has_more()
    }

    pub(super) fn base(&self) -> u32 {
        self.next.into()
    }

    pub(super) fn resubmitted(&self) -> u64 {
        self.resubmitted
    }
}

/// A request of a split ring.
#[inline]
fn head(id: u16) -> Head {
    Head {
        id,
        count: 1,
        slot: 0,
        is_again: false,
    }
}
