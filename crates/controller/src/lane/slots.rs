//! The commands that a lane holds: one slot each, in memory that outlives the process (see
//! [`crate::state`]).

use memory::Area;
use nvme_spec::Cqe;

use super::fetch::NOT_COUNTED;
use crate::queue::{Cq, QueueError, Reservation, RingAbsent};
use crate::state::{QueueState, SlotState, SqState, ordered, slot_state, slots_for};

#[derive(Debug)]
pub(super) struct Slots {
    area: Area<QueueState, SlotState>,
    /// Free slots; the one that was used last is used next, as it is still in the cache.
    free: Vec<u16>,
}

impl Slots {
    /// Takes a zeroed area.
    pub(super) fn new(area: Area<QueueState, SlotState>, entries: u32) -> Result<Self, QueueError> {
        let need = slots_for(entries);
        let have = area.slots().len();
        if have < need {
            return Err(QueueError::State { need, have });
        }
        Ok(Slots {
            area,
            free: (0..need as u16).rev().collect(),
        })
    }

    #[inline]
    pub(super) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Takes a free slot.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// Gives a slot back for another command; tickets of this one are recognised as late from now
    /// on.
    #[inline]
    pub(super) fn put_back(&mut self, index: u16) {
        self.area.parts().1[usize::from(index)].release();
        self.free.push(index);
    }

    /// The queues' saved positions, and the slot.
    #[inline]
    pub(super) fn parts(&mut self, index: u16) -> (&mut QueueState, &mut SlotState) {
        let (queue, slots) = self.area.parts();
        (queue, &mut slots[usize::from(index)])
    }

    /// The queues' saved positions, every slot, and the free ones, of which the last is used next.
    #[inline]
    pub(super) fn split(&mut self) -> (&mut QueueState, &mut [SlotState], &mut Vec<u16>) {
        let (queue, slots) = self.area.parts();
        (queue, slots, &mut self.free)
    }

    /// Number of commands with a reserved completion queue entry.
    #[cfg(test)]
    pub(super) fn reserved(&self) -> u32 {
        let slots = self.area.slots().iter();
        slots.map(|slot| u32::from(slot.has_reservation())).sum()
    }

    /// The slot.
    #[inline]
    pub(super) fn slot(&mut self, index: u16) -> &mut SlotState {
        &mut self.area.parts().1[usize::from(index)]
    }

    /// The slot, to look at.
    #[inline]
    pub(super) fn get(&self, index: u16) -> &SlotState {
        &self.area.slots()[usize::from(index)]
    }

    /// Slots there are.
    pub(super) fn len(&self) -> usize {
        self.area.slots().len()
    }

    /// The slot that a ticket names, if it still holds the ticket's command.
    #[inline]
    pub(super) fn named(&mut self, index: u16, generation: u16) -> Option<&mut SlotState> {
        let slot = self.area.parts().1.get_mut(usize::from(index))?;
        (slot.generation == generation && slot.outstanding > 0).then_some(slot)
    }

    /// The queues' saved positions.
    #[inline]
    pub(super) fn queue(&mut self) -> &mut QueueState {
        self.area.parts().0
    }

    /// Every slot with its index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &SlotState)> {
        (0..=u16::MAX).zip(self.area.slots())
    }

    /// The submission queue of every command that has a place in the completion queue and no entry
    /// there yet.
    pub(super) fn placed(&self) -> impl Iterator<Item = u16> {
        let slots = self.area.slots().iter();
        slots
            .filter(|slot| slot.has_reservation())
            .map(|slot| slot.sqid)
    }
}

/// Stores a command fetched from queue `sqid` as its command `number`, at so many ticks of the
/// lane: steps 1 to 3 of a fetch in [`crate::state`], in their order. `progress` is that of the
/// queue from now on.
#[inline(always)]
pub(super) fn store_fetched(
    slot: &mut SlotState,
    saved: &mut SqState,
    words: [u64; 8],
    (number, progress): (u32, u64),
    sqid: u16,
    ticks: u32,
) {
    slot.hold(words, number, sqid, ticks);
    ordered();
    slot.state = slot_state::FETCHED;
    ordered();
    saved.fetched = progress;
}

/// Stores the completion of a command: steps 1 to 3 of a completion in [`crate::state`], in their
/// order. Step 4 is the caller's: the slot becomes free, or a zombie.
///
/// # Errors
/// As of [`Cq::post`].
#[inline(always)]
pub(super) fn store_completion(
    slot: &mut SlotState,
    cq_tail_phase: &mut u32,
    cq: &mut Cq,
    reservation: Reservation,
    cqe: Cqe,
) -> Result<(), RingAbsent> {
    let after = cq.tail_and_phase_after();
    slot.posting = cq.tail();
    ordered();
    slot.state = slot_state::POSTING;
    ordered();
    let posted = cq.post(reservation, cqe);
    ordered();
    *cq_tail_phase = after;
    ordered();
    posted
}

impl SlotState {
    /// Stores a fetched command. It becomes valid with the state that is stored after it.
    #[inline(always)]
    fn hold(&mut self, words: [u64; 8], number: u32, sqid: u16, ticks: u32) {
        self.sqe = words;
        self.number = number;
        self.posting = ticks;
        self.sqid = sqid;
        self.cid = (words[0] >> 16) as u16;
        self.epoch_index = NOT_COUNTED;
        self.outstanding = 0;
        self.error = 0;
        self.reached = 0;
        self.marks = 0;
        self.bytes = 0;
        self.result = 0;
    }

    /// Is free for another command; tickets of this one are recognised as late from now on.
    #[inline]
    pub(super) fn release(&mut self) {
        self.state = slot_state::FREE;
        self.generation = self.generation.wrapping_add(1);
    }
}
