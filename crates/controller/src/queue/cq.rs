//! A completion queue.

use std::sync::Arc;

use memory::{CqRing, DmaView, Iova};
use nvme_spec::Cqe;
use nvme_spec::registers::cq_head_slot;

use super::{
    BadDoorbell, Batch, BellView, Bells, Doorbell, QueueError, Reservation, RingAbsent, distance,
    next,
};
use crate::state::{self, BellState, SlotState, TailPhase};

/// A completion queue as a process that died has left it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqState {
    /// Address of the ring.
    pub base: u64,
    /// Size of the ring.
    pub entries: u32,
    /// The next entry to post to.
    pub tail: TailPhase,
    /// The last head that was accepted.
    pub head: u32,
    /// Identifier.
    pub cqid: u16,
    /// The shadow of its doorbell when that was registered, where that is known.
    pub shadow: u32,
    /// State of its doorbell.
    pub bell: BellState,
}

/// A completion queue: every entry is reserved before it is used, so that fetched commands can
/// always be completed.
#[derive(Debug)]
pub struct Cq {
    id: u16,
    ring: CqRing,
    entries: u32,
    head: u32,
    tail: u32,
    phase: bool,
    /// Places neither posted to nor reserved.
    free: u32,
    frozen: Option<BadDoorbell>,
    doorbell: Doorbell,
}

impl Cq {
    /// The queue `id` of `entries` entries at `base`. Its doorbell slot must be zero. The host has
    /// cleared the ring (Base 2.1, 3.3.1.2.2), so the first phase is 1.
    ///
    /// # Errors
    /// The size cannot be, or the ring cannot be reached.
    pub fn new(
        view: &Arc<DmaView>,
        id: u16,
        base: Iova,
        entries: u32,
        bells: Bells<'_>,
    ) -> Result<Self, QueueError> {
        super::check_entries(entries)?;
        Ok(Cq {
            id,
            ring: CqRing::new(view, base, entries)?,
            entries,
            head: 0,
            tail: 0,
            phase: true,
            free: entries - 1,
            frozen: None,
            doorbell: Doorbell::new(cq_head_slot(id), bells),
        })
    }

    /// The queue of a process that died, whose places are all free except those of posted entries.
    /// The saved state has been checked: its positions are in the ring.
    ///
    /// # Errors
    /// As of [`Cq::new`].
    pub(crate) fn restore(view: &Arc<DmaView>, saved: CqState) -> Result<Self, QueueError> {
        let CqState {
            base,
            entries,
            tail,
            head,
            cqid,
            shadow,
            bell,
        } = saved;
        super::check_entries(entries)?;
        let phase = tail.phase();
        let tail = u32::from(tail.tail());
        Ok(Cq {
            id: cqid,
            ring: CqRing::restore(view, Iova(base), entries)?,
            entries,
            head,
            tail,
            phase,
            free: entries - 1 - distance(head, tail, entries),
            frozen: None,
            doorbell: Doorbell::restore(cq_head_slot(cqid), shadow, bell),
        })
    }

    /// State of its doorbell's shadow, which the caller saves.
    pub(crate) fn saved_bell(&mut self) -> (u32, BellState) {
        self.doorbell.saved()
    }

    /// Whether that has changed since.
    #[inline(always)]
    pub(crate) fn is_bell_unsaved(&self) -> bool {
        self.doorbell.unsaved
    }

    /// Its identifier.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Its size.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// The last head that was accepted.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// The next entry to post to.
    #[inline]
    #[must_use]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// The next entry to post to, and the phase that it gets.
    #[inline]
    #[must_use]
    pub fn tail_and_phase(&self) -> TailPhase {
        const { TailPhase::new() }
            .with_tail(self.tail as u16)
            .with_phase(self.phase)
    }

    /// The same, when one more is posted.
    #[inline]
    fn tail_and_phase_after(&self) -> TailPhase {
        let tail = next(self.tail, self.entries);
        const { TailPhase::new() }
            .with_tail(tail as u16)
            .with_phase(self.phase ^ (tail == 0))
    }

    /// Tells the processor to bring the next entry to post to.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.ring.prefetch(self.tail);
    }

    /// Entries posted and not consumed, as far as the doorbell was looked at.
    #[must_use]
    pub fn posted(&self) -> u32 {
        distance(self.head, self.tail, self.entries)
    }

    /// Places that may be reserved.
    #[inline]
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Places that were reserved and not posted to.
    #[must_use]
    pub fn reserved(&self) -> u32 {
        self.entries - 1 - self.free - self.posted()
    }

    /// Reserves an entry, or none if every entry is reserved or posted.
    #[inline]
    pub fn reserve(&mut self) -> Option<Reservation> {
        self.free = self.free.checked_sub(1)?;
        Some(Reservation::new())
    }

    /// Reserves `wanted` entries, or as many as are free.
    #[inline]
    pub(crate) fn reserve_batch(&mut self, wanted: u32) -> Batch {
        let entries = wanted.min(self.free);
        self.free -= entries;
        Batch::new(entries)
    }

    /// Returns the unused entries of a batch, and their number.
    #[inline]
    pub(crate) fn release_batch(&mut self, batch: Batch) -> u32 {
        let rest = batch.left();
        self.free += rest;
        rest
    }

    /// Returns a reserved entry: its command completes without one.
    #[inline]
    pub fn release(&mut self, reservation: Reservation) {
        debug_assert!(self.free < self.entries - 1);
        reservation.consume();
        self.free += 1;
    }

    /// Posts into a reserved entry, with the phase it must have.
    ///
    /// # Errors
    /// The entry's page is not mapped: the completion is lost, and the entry remains used.
    #[inline]
    pub fn post(&mut self, reservation: Reservation, mut cqe: Cqe) -> Result<(), RingAbsent> {
        reservation.consume();
        let (tail, phase) = (self.tail, self.phase);
        cqe.status.set_phase(phase);
        self.tail = next(tail, self.entries);
        self.phase = phase ^ (self.tail == 0);
        let there = self.ring.store(tail, cqe.to_words());
        if there { Ok(()) } else { Err(RingAbsent) }
    }

    /// Posts the completion of the command in a slot, and saves that. The caller releases the slot,
    /// or makes it a zombie.
    ///
    /// # Errors
    /// As of [`Cq::post`].
    #[inline(always)]
    pub(crate) fn post_from(
        &mut self,
        slot: &mut SlotState,
        saved: &mut TailPhase,
        reservation: Reservation,
        cqe: Cqe,
    ) -> Result<(), RingAbsent> {
        let places = (self.tail as u16, self.tail_and_phase_after());
        state::store_completion(slot, saved, places, || self.post(reservation, cqe))
    }

    /// Checks the doorbell and takes the new head. Returns how many entries the host has consumed
    /// since the last check. A frozen queue is not checked.
    ///
    /// # Errors
    /// The value cannot be: it is outside the ring, or passes what was posted. The queue is frozen
    /// now. Told once.
    #[inline]
    pub fn look(&mut self, bells: Bells<'_>) -> Result<u32, BadDoorbell> {
        if self.frozen.is_some() {
            return Ok(0);
        }
        match self.doorbell.look(bells) {
            Some(value) if value != self.head => self.advance(value),
            _ => Ok(0),
        }
    }

    /// The same for queue 0: see [`super::Sq::look_at_either`].
    pub(crate) fn look_at_either(&mut self, bells: Bells<'_>) -> Result<u32, BadDoorbell> {
        if bells.shadow.is_some()
            && let Some(value) = self.doorbell.look(bells)
            && !self.can_be(value)
        {
            self.doorbell.register(Some(value));
        }
        self.look(bells)
    }

    #[inline]
    fn can_be(&self, value: u32) -> bool {
        let posted = distance(self.head, self.tail, self.entries);
        value < self.entries && distance(self.head, value, self.entries) <= posted
    }

    fn advance(&mut self, value: u32) -> Result<u32, BadDoorbell> {
        if !self.can_be(value) {
            let bad = BadDoorbell { value };
            self.frozen = Some(bad);
            return Err(bad);
        }
        let consumed = distance(self.head, value, self.entries);
        self.head = value;
        self.free += consumed;
        Ok(consumed)
    }

    /// Whether the doorbell has changed. Changes nothing.
    #[must_use]
    pub fn has_news(&self, bells: Bells<'_>) -> bool {
        let mut doorbell = self.doorbell;
        self.frozen.is_none() && doorbell.look(bells).is_some_and(|value| value != self.head)
    }

    /// Whether the host has yet to acknowledge entries, by the current doorbell. Changes nothing.
    /// False for a frozen queue, whose host could never acknowledge them, and for an invalid
    /// doorbell.
    #[inline]
    #[must_use]
    pub fn is_unacknowledged(&self, bells: Bells<'_>) -> bool {
        let mut doorbell = self.doorbell;
        self.frozen.is_none() && doorbell.look(bells).is_none_or(|value| value != self.tail)
    }

    /// Whether the host's head is invalid: it has yet to be detected, and the queue to be frozen.
    #[must_use]
    pub(crate) fn has_bad_head(&self, bells: Bells<'_>) -> bool {
        let mut doorbell = self.doorbell;
        self.frozen.is_none() && doorbell.look(bells).is_some_and(|head| !self.can_be(head))
    }

    /// The host's current head, valid or not. Changes nothing.
    #[must_use]
    pub(crate) fn told_head(&self, bells: Bells<'_>) -> u32 {
        let mut doorbell = self.doorbell;
        doorbell.look(bells).unwrap_or(self.head)
    }

    /// A bad doorbell value was found.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Current values of its doorbells, and the value that has frozen it.
    pub(crate) fn bell(&self, bells: Bells<'_>) -> BellView {
        self.doorbell.show(bells, self.frozen)
    }

    /// The phase that the next entry gets.
    pub(crate) fn phase(&self) -> bool {
        self.phase
    }

    /// The host's memory map changed.
    pub fn resolve(&mut self, view: &Arc<DmaView>) {
        self.ring.resolve(view);
    }

    /// Doorbell Buffer Config began or ended; `initial` has each doorbell's shadow at that time.
    pub(crate) fn register(&mut self, initial: impl Fn(usize) -> Option<u32>) {
        self.doorbell.register(initial(self.doorbell.slot));
    }

    /// Asks the host to ring the doorbell when it consumes the next entry, if it registered
    /// buffers. Only for a queue that delays a command or asserts an interrupt line: the value is
    /// the head we know, so it lags the tail, as a host that rings only past EventIdx needs it to.
    pub fn arm(&self, bells: Bells<'_>) {
        if let Some(shadow) = bells.shadow
            && self.frozen.is_none()
        {
            shadow.store_event_idx(self.doorbell.slot, self.head);
        }
    }
}
