//! A packed ring (VIRTIO 1.3, 2.8).

use std::sync::Arc;

use memory::{DmaView, EventSuppression, Hint, PackedDescriptor, PackedRing, full_fence};

use super::ahead::{prefetch, prefetch_of_table};
use super::chain::{Chain, INDIRECT, NEXT, Tables, WRITE};
use super::fault::RingFault;
use super::ids::Ids;
use super::inflight::{PackedRecord, Record};
use super::position::Position;
use super::request::{Head, MAX_PIECES, Pieces};
use super::setup::Setup;

/// `RING_EVENT_FLAGS_*` (2.8.14), and the bits where they are.
const ENABLE: u16 = 0;
const DISABLE: u16 = 1;
const DESC: u16 = 2;
const EVENT_MASK: u16 = 3;
/// Buffer identifiers: a driver may choose any.
const ALL_IDS: usize = 1 << 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Packed {
    ring: PackedRing,
    size: u16,
    has_event_idx: bool,
    has_indirect: bool,
    /// Where the next request is available, and where the next one is used.
    next: Position,
    used: Position,
    /// Descriptors that the driver has not got back.
    held: u16,
    /// Descriptors that it has got back since it was notified, or did not want to be.
    shown: u16,
    /// Identifiers of the requests in flight.
    in_flight: Ids,
    /// Requests to publish, with the bytes written. Its room is the ring's size.
    done: Vec<(Head, u32)>,
    record: Option<PackedRecord>,
    /// The descriptors of the request that is taken, for the record.
    copies: Vec<PackedDescriptor>,
    /// Requests of a former back end to take again, by first entry and descriptors; the first one
    /// is the last here.
    pending: Vec<(u16, u16)>,
    resubmitted: u64,
    /// A former back end may have died before it notified.
    owes_notification: bool,
    /// Whether the driver is to notify; `None`: as a former back end has left it.
    is_armed: Option<bool>,
}

impl Packed {
    pub(super) fn new(
        view: &Arc<DmaView>,
        setup: &Setup,
        record: Option<Record>,
    ) -> Result<Self, RingFault> {
        let size = setup.size;
        let next = Position::from_word(setup.base as u16);
        let used = Position::from_word((setup.base >> 16) as u16);
        if next.index >= size || used.index >= size {
            return Err(RingFault::Base(setup.base));
        }
        let parts = [setup.descriptors, setup.driver, setup.device];
        let ring = PackedRing::new(view, size, parts)?;
        let mut packed = Self {
            ring,
            size,
            has_event_idx: setup.has_event_idx,
            has_indirect: setup.has_indirect,
            next,
            used,
            held: 0,
            shown: 0,
            in_flight: Ids::new(ALL_IDS),
            done: Vec::with_capacity(size.into()),
            record: None,
            copies: Vec::with_capacity(MAX_PIECES + 1),
            pending: Vec::new(),
            resubmitted: 0,
            owes_notification: false,
            is_armed: None,
        };
        if let Some(record) = record {
            let (record, left) = PackedRecord::open(record, &packed.ring, size, used)?;
            if let Some([used, next]) = left.positions {
                (packed.used, packed.next) = (used, next);
                packed.held = left.pending.iter().map(|(_, count)| count).sum();
                packed.owes_notification = true;
            }
            packed.pending = left.pending;
            packed.record = Some(record);
        }
        Ok(packed)
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
        if !self.pending.is_empty() {
            return self.take_again(&mut tables, pieces);
        }
        let mut flags = self.ring.flags(self.next.index);
        if !self.next.is_available(flags) {
            return Ok(None);
        }
        let room = self.size - self.held;
        let (mut chain, mut at, mut count) = (Chain::new(pieces), self.next, 0);
        self.copies.clear();
        let id = loop {
            if count == room {
                return Err(if count == 0 {
                    RingFault::Ahead
                } else {
                    RingFault::Endless
                });
            }
            let descriptor = self.ring.descriptor(at.index, flags);
            count += 1;
            add(&mut chain, &mut tables, &descriptor)?;
            if self.record.is_some() {
                self.copies.push(descriptor);
            }
            if flags & NEXT == 0 {
                break descriptor.id;
            }
            at = at.advanced(1, self.size);
            flags = self.ring.flags(at.index);
        };
        if !self.in_flight.insert(id) {
            return Err(RingFault::Twice(id));
        }
        let slot = match &mut self.record {
            Some(record) => record.taken(&self.copies),
            None => 0,
        };
        self.held += count;
        self.next = self.next.advanced(count, self.size);
        self.look_ahead(count, view, tables.hint);
        let is_again = false;
        Ok(Some(Head {
            id,
            count,
            slot,
            is_again,
        }))
    }

    /// Asks for what the next requests consist of, if they have as many descriptors as the last
    /// one.
    #[inline]
    fn look_ahead(&self, count: u16, view: &DmaView, hint: &mut Hint) {
        if count > self.size / 4 {
            return;
        }
        let ahead = |requests: u16| self.next.advanced(requests * count, self.size);
        let has = |at: Position| at.is_available(self.ring.flags(at.index));
        // One that is not available is the driver's: it would have to get its line back.
        if !has(self.next) || !has(ahead(1)) {
            return;
        }
        let flags = self.ring.flags(ahead(1).index);
        let next = self.ring.descriptor(ahead(1).index, flags).addr;
        if flags & INDIRECT == 0 {
            prefetch(next, view, hint);
        } else {
            prefetch_of_table(next, view, hint);
            if has(ahead(2)) {
                prefetch(self.ring.descriptor(ahead(2).index, 0).addr, view, hint);
            }
        }
        self.ring.prefetch(ahead(3).index);
    }

    /// Takes the next request of a former back end.
    #[cold]
    fn take_again(
        &mut self,
        tables: &mut Tables<'_>,
        pieces: &mut Pieces,
    ) -> Result<Option<Head>, RingFault> {
        let (Some(record), Some(&(slot, count))) = (&self.record, self.pending.last()) else {
            return Ok(None);
        };
        if usize::from(count) > MAX_PIECES + 1 {
            return Err(RingFault::Pieces);
        }
        self.copies.clear();
        record.read(slot, count, &mut self.copies);
        let mut chain = Chain::new(pieces);
        let mut id = 0;
        for (left, descriptor) in (0..count).rev().zip(&self.copies) {
            add(&mut chain, tables, descriptor)?;
            if (descriptor.flags & NEXT != 0) != (left > 0) {
                return Err(RingFault::Record("a request ends elsewhere than it says"));
            }
            id = descriptor.id;
        }
        if !self.in_flight.insert(id) {
            return Err(RingFault::Twice(id));
        }
        self.pending.pop();
        self.resubmitted += 1;
        let is_again = true;
        Ok(Some(Head {
            id,
            count,
            slot,
            is_again,
        }))
    }

    #[inline]
    pub(super) fn give_back(&mut self, head: Head, written: u32) {
        if !self.in_flight.remove(head.id) {
            debug_assert!(false, "{head:?} is not in flight");
            return;
        }
        self.done.push((head, written));
    }

    #[inline]
    pub(super) fn show(&mut self) {
        if self.done.is_empty() {
            return;
        }
        let returned = match &mut self.record {
            Some(record) => {
                let mut returned = 0;
                for (head, written) in self.done.drain(..) {
                    let (at, to) = (self.used, self.used.advanced(head.count, self.size));
                    self.ring.store_used(at.index, head.id, written);
                    record.given_back(head.slot, head.count, to);
                    self.ring.store_flags(at.index, used_flags(at, written));
                    record.published(head.slot, to);
                    self.used = to;
                    returned += head.count;
                }
                returned
            }
            None => self.publish_batch(),
        };
        self.held -= returned;
        self.shown = self.shown.saturating_add(returned);
    }

    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        self.show();
        let owed = std::mem::take(&mut self.owes_notification);
        let returned = std::mem::take(&mut self.shown);
        if returned == 0 {
            return owed;
        }
        full_fence();
        self.wants_event(returned) || owed
    }

    /// Stores the used descriptors, the flags of the first one last: the driver sees all or none.
    /// How many entries it gets back.
    #[inline]
    fn publish_batch(&mut self) -> u16 {
        let first = self.used;
        let (mut first_flags, mut returned) = (0, 0);
        for (head, written) in self.done.drain(..) {
            let at = self.used;
            let flags = used_flags(at, written);
            self.ring.store_used(at.index, head.id, written);
            if returned == 0 {
                first_flags = flags;
            } else {
                self.ring.store_flags(at.index, flags);
            }
            self.used = at.advanced(head.count, self.size);
            returned += head.count;
        }
        self.ring.store_flags(first.index, first_flags);
        returned
    }

    /// Whether the driver wants to be notified of the `returned` entries before the used position.
    #[inline]
    fn wants_event(&self, returned: u16) -> bool {
        let events = self.ring.driver_events();
        match events.flags & EVENT_MASK {
            DISABLE => false,
            DESC if self.has_event_idx => {
                // 2.8.10: whether the position went past the event, which is in the same lap or in
                // the one before.
                let event = Position::from_word(events.descriptor);
                let lap = if event.wrap == self.used.wrap {
                    0
                } else {
                    i32::from(self.size)
                };
                let past = i32::from(self.used.index) + lap - i32::from(event.index);
                (1..=i32::from(returned)).contains(&past)
            }
            _ => true,
        }
    }

    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.next.is_available(self.ring.flags(self.next.index)) || !self.pending.is_empty()
    }

    #[inline]
    pub(super) fn disarm(&mut self) {
        if self.is_armed != Some(false) {
            self.ring.store_device_events(EventSuppression {
                descriptor: 0,
                flags: DISABLE,
            });
            self.is_armed = Some(false);
        }
    }

    #[inline]
    pub(super) fn arm(&mut self) -> bool {
        if self.has_event_idx {
            self.ring.store_device_events(EventSuppression {
                descriptor: self.next.word(),
                flags: DESC,
            });
        } else if self.is_armed != Some(true) {
            self.ring.store_device_events(EventSuppression {
                descriptor: 0,
                flags: ENABLE,
            });
        }
        self.is_armed = Some(true);
        full_fence();
        !self.has_more()
    }

    pub(super) fn base(&self) -> u32 {
        u32::from(self.used.word()) << 16 | u32::from(self.next.word())
    }

    pub(super) fn resubmitted(&self) -> u64 {
        self.resubmitted
    }
}

/// Adds the pieces of a descriptor.
#[inline]
fn add(
    chain: &mut Chain<'_>,
    tables: &mut Tables<'_>,
    descriptor: &PackedDescriptor,
) -> Result<(), RingFault> {
    let (addr, len, flags) = (descriptor.addr, descriptor.len, descriptor.flags);
    if flags & INDIRECT != 0 {
        chain.add_list(tables, addr, len, flags)
    } else {
        chain.add(addr, len, flags)
    }
}

/// The flags of a used descriptor (2.8.4): whether anything was written, too.
#[inline]
fn used_flags(at: Position, written: u32) -> u16 {
    at.used_flags() | if written > 0 { WRITE } else { 0 }
}
