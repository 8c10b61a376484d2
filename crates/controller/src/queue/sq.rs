//! A submission queue.

use std::sync::Arc;

use memory::{DmaView, Iova, SqRing};
use nvme_spec::registers::sq_tail_slot;

use super::{BadDoorbell, BellView, Bells, Doorbell, QueueError, RingAbsent, distance, next};
use crate::state::{self, BellState, Fetched, Progress, SlotState, SqState};

/// A submission queue: fetches the host's entries, in order, each once.
#[derive(Debug)]
pub struct Sq {
    id: u16,
    ring: SqRing,
    entries: u32,
    head: u32,
    tail: u32,
    fetched: u32,
    /// Why its doorbell is not checked, where it is not.
    still: Option<Still>,
    doorbell: Doorbell,
}

/// Why a queue's doorbell is not checked.
#[derive(Clone, Copy, Debug)]
enum Still {
    /// A value that cannot be was found.
    Frozen(BadDoorbell),
    /// An entry could not be fetched, because its page is not mapped. Until the map changes the
    /// queue is as if nothing were submitted.
    Absent,
}

impl Sq {
    /// The queue `id` of `entries` entries at `base`. Its doorbell slot must be zero.
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
        let ring = SqRing::new(view, base, entries)?;
        Ok(Self::from_ring(id, ring, entries, bells, None))
    }

    /// The queue `id` on a resolved ring of `entries` entries. `initial`: the value of its
    /// doorbell's shadow when it was created, if that is not now.
    pub(crate) fn from_ring(
        id: u16,
        ring: SqRing,
        entries: u32,
        bells: Bells<'_>,
        initial: Option<u32>,
    ) -> Self {
        let mut doorbell = Doorbell::new(sq_tail_slot(id), bells);
        if bells.shadow.is_some() && initial.is_some() {
            doorbell.register(initial);
        }
        Sq {
            id,
            ring,
            entries,
            head: 0,
            tail: 0,
            fetched: 0,
            still: None,
            doorbell,
        }
    }

    /// The queue of a process that died. The saved state has been checked: its positions are in the
    /// ring.
    ///
    /// # Errors
    /// As of [`Sq::new`].
    pub(crate) fn restore(view: &Arc<DmaView>, saved: &SqState) -> Result<Self, QueueError> {
        super::check_entries(saved.entries)?;
        Ok(Sq {
            id: saved.sqid,
            ring: SqRing::restore(view, Iova(saved.base), saved.entries)?,
            entries: saved.entries,
            head: saved.progress.head(),
            tail: saved.tail,
            fetched: saved.progress.fetched(),
            still: None,
            doorbell: Doorbell::restore(sq_tail_slot(saved.sqid), saved.shadow, saved.bell),
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

    /// The next entry to fetch: the SQ head pointer of completions.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// The last tail that was accepted.
    #[inline]
    #[must_use]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// Entries submitted and not fetched, as far as the doorbell was looked at.
    #[inline]
    #[must_use]
    pub fn available(&self) -> u32 {
        distance(self.head, self.tail, self.entries)
    }

    /// Checks the doorbell and takes the new tail. A queue that is frozen or absent is not checked.
    ///
    /// # Errors
    /// The value cannot be: it is outside the ring, or passes the free entries. The queue is frozen
    /// now, what was submitted before included. Told once.
    #[inline]
    pub fn look(&mut self, bells: Bells<'_>) -> Result<(), BadDoorbell> {
        if self.is_still() {
            return Ok(());
        }
        match self.doorbell.look(bells) {
            Some(value) if value != self.tail => self.advance(value),
            _ => Ok(()),
        }
    }

    /// The same for queue 0, whose buffer many hosts never write: where it holds a value that
    /// cannot be, the register counts until the buffer moves again.
    pub(crate) fn look_at_either(&mut self, bells: Bells<'_>) -> Result<(), BadDoorbell> {
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
        // One entry stays empty, so that a full queue is not an empty one (Base 2.1, 3.3.1.3).
        let free = self.entries - 1 - self.available();
        value < self.entries && distance(self.tail, value, self.entries) <= free
    }

    fn advance(&mut self, value: u32) -> Result<(), BadDoorbell> {
        if !self.can_be(value) {
            let bad = BadDoorbell { value };
            self.still = Some(Still::Frozen(bad));
            self.tail = self.head;
            return Err(bad);
        }
        self.tail = value;
        Ok(())
    }

    /// Whether the doorbell has changed. Changes nothing.
    #[must_use]
    pub fn has_news(&self, bells: Bells<'_>) -> bool {
        let mut doorbell = self.doorbell;
        !self.is_still() && doorbell.look(bells).is_some_and(|value| value != self.tail)
    }

    /// Tells the processor to bring the entry `ahead` of the head.
    #[inline]
    pub fn prefetch(&self, ahead: u32) {
        self.ring.prefetch(self.ahead(ahead));
    }

    /// Some words of the entry `ahead` of the head, which is [`Sq::available`]; the others are 0.
    /// Only a hint: the entry may change before it is fetched.
    #[inline]
    #[must_use]
    pub fn glance(&self, ahead: u32, words: &[usize]) -> Option<[u64; 8]> {
        debug_assert!(ahead < self.available());
        let index = self.ahead(ahead);
        let mut entry = [0; 8];
        for &word in words {
            entry[word] = self.ring.glance(index, word)?;
        }
        Some(entry)
    }

    #[inline]
    fn ahead(&self, ahead: u32) -> u32 {
        let index = self.head + ahead;
        if index >= self.entries {
            index - self.entries
        } else {
            index
        }
    }

    /// Commands fetched since it was created, and the head.
    #[inline]
    #[must_use]
    pub fn progress(&self) -> Progress {
        const { Progress::new() }
            .with_head(self.head)
            .with_fetched(self.fetched)
    }

    /// Fetches the next entry: its words, and how many were fetched before it, modulo 2^32. The
    /// caller knows that one is [`Sq::available`].
    ///
    /// # Errors
    /// The entry's page is not mapped; nothing was fetched.
    #[inline]
    pub fn fetch(&mut self) -> Result<([u64; 8], u32), RingAbsent> {
        debug_assert!(self.available() > 0);
        let Some(words) = self.ring.load(self.head) else {
            self.still = Some(Still::Absent);
            return Err(RingAbsent);
        };
        self.head = next(self.head, self.entries);
        let number = self.fetched;
        self.fetched = number.wrapping_add(1);
        Ok((words, number))
    }

    /// Fetches the next entry at `tick` into a slot, and saves that. Its words.
    ///
    /// # Errors
    /// As of [`Sq::fetch`].
    #[inline(always)]
    pub(crate) fn fetch_into(
        &mut self,
        slot: &mut SlotState,
        saved: &mut SqState,
        tick: u32,
    ) -> Result<[u64; 8], RingAbsent> {
        let (words, number) = self.fetch()?;
        let fetched = Fetched {
            words,
            number,
            sqid: self.id,
            progress: self.progress(),
        };
        state::store_fetched(slot, saved, &fetched, tick);
        Ok(words)
    }

    /// Its doorbell is not checked.
    #[inline]
    fn is_still(&self) -> bool {
        self.still.is_some()
    }

    /// An entry could not be fetched, and the map has not changed since.
    #[inline]
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.still, Some(Still::Absent))
    }

    /// Drops the tail of an absent queue: once the map changes, the doorbell tells it again.
    pub(crate) fn forget_tail(&mut self) {
        self.tail = self.head;
    }

    /// A bad doorbell value was found, and nothing more is fetched.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen().is_some()
    }

    fn frozen(&self) -> Option<BadDoorbell> {
        match self.still {
            Some(Still::Frozen(bad)) => Some(bad),
            Some(Still::Absent) | None => None,
        }
    }

    /// Current values of its doorbells, and the value that has frozen it.
    pub(crate) fn bell(&self, bells: Bells<'_>) -> BellView {
        self.doorbell.show(bells, self.frozen())
    }

    /// Commands fetched since it was created, modulo 2^32.
    #[inline]
    pub(crate) fn fetched(&self) -> u32 {
        self.fetched
    }

    /// The host's memory map changed.
    pub fn resolve(&mut self, view: &Arc<DmaView>) {
        if self.is_absent() {
            self.still = None;
        }
        self.ring.resolve(view);
    }

    /// Doorbell Buffer Config began or ended; `initial` has each doorbell's shadow at that time.
    pub(crate) fn register(&mut self, initial: impl Fn(usize) -> Option<u32>) {
        self.doorbell.register(initial(self.doorbell.slot));
    }

    /// Asks the host to ring the doorbell from the next submission on, where it registered buffers.
    pub fn arm(&self, bells: Bells<'_>) {
        if let Some(shadow) = bells.shadow
            && !self.is_still()
        {
            shadow.store_event_idx(self.doorbell.slot, self.tail);
        }
    }
}
