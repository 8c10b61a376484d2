//! The commands that a lane holds: one slot each, in memory that outlives the process (see [`crate::state`]).

use memory::Area;

use super::fetch::NOT_COUNTED;
use crate::queue::{Cq, Parked, QueueError, Reservation};
use crate::state::{QueueState, SlotState, SqState, ordered, slot_state, slots_for};

#[derive(Debug)]
pub(super) struct Slots {
    area: Area<QueueState, SlotState>,
    /// Free slots; the one that was used last is used next, as it is still in the cache.
    free: Vec<u16>,
    /// The completion queue entries that are reserved for the commands.
    reserved: Parked,
}

/// All parts of the slots at once.
#[derive(Debug)]
pub(super) struct Split<'a> {
    /// The queues' saved positions.
    pub(super) queue: &'a mut QueueState,
    pub(super) slots: &'a mut [SlotState],
    /// Free slots, of which the last is used next.
    pub(super) free: &'a mut Vec<u16>,
    pub(super) reserved: &'a mut Parked,
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
            reserved: Parked::new(need),
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

    /// Gives a slot back for another command; tickets of this one are recognised as late from now on.
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

    #[inline]
    pub(super) fn split(&mut self) -> Split<'_> {
        let (queue, slots) = self.area.parts();
        Split {
            queue,
            slots,
            free: &mut self.free,
            reserved: &mut self.reserved,
        }
    }

    /// Keeps the reservation of the command in a slot.
    #[inline]
    pub(super) fn park(&mut self, index: u16, reservation: Reservation) {
        self.reserved.park(index, reservation);
    }

    /// The reservation of the command in a slot; none where it has completed.
    #[inline]
    pub(super) fn claim(&mut self, index: u16) -> Option<Reservation> {
        self.reserved.claim(index)
    }

    /// How many commands have one.
    #[cfg(test)]
    pub(super) fn reserved(&self) -> u32 {
        self.reserved.count()
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

    /// The submission queue of every command that has a place in the completion queue and no entry there yet.
    pub(super) fn placed(&self) -> impl Iterator<Item = u16> {
        let has_place = |slot: &&SlotState| {
            matches!(
                slot.state,
                slot_state::FETCHED
                    | slot_state::IN_FLIGHT
                    | slot_state::STEPPING
                    | slot_state::FUSED
            )
        };
        self.area
            .slots()
            .iter()
            .filter(has_place)
            .map(|slot| slot.sqid)
    }
}

/// A submission queue entry that was fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    pub(super) words: [u64; 8],
    /// Commands fetched from its queue before it, modulo 2^32.
    pub(super) number: u32,
    pub(super) sqid: u16,
    /// When, in ticks of the lane.
    pub(super) ticks: u32,
    /// What the queue's progress is after it ([`crate::queue::Sq::progress`]).
    pub(super) progress: u64,
}

/// Stores a fetched command: steps 1 to 3 of a fetch in [`crate::state`], in their order.
#[inline(always)]
pub(super) fn store_fetched(slot: &mut SlotState, saved: &mut SqState, fetched: &Fetched) {
    slot.hold(fetched);
    ordered();
    slot.state = slot_state::FETCHED;
    ordered();
    saved.fetched = fetched.progress;
}

/// Stores a completion: steps 1 to 3 of a completion in [`crate::state`], in their order. `post` stores the entry. Step 4 is
/// the caller's: the slot becomes free, or a zombie.
#[inline(always)]
pub(super) fn store_completion<T>(
    slot: &mut SlotState,
    cq_tail_phase: &mut u32,
    cq: &mut Cq,
    post: impl FnOnce(&mut Cq) -> T,
) -> T {
    let after = cq.tail_and_phase_after();
    slot.posting = cq.tail();
    ordered();
    slot.state = slot_state::POSTING;
    ordered();
    let posted = post(cq);
    ordered();
    *cq_tail_phase = after;
    ordered();
    posted
}

impl SlotState {
    /// Takes what was fetched. It becomes valid with the state that is stored behind it.
    #[inline(always)]
    fn hold(&mut self, fetched: &Fetched) {
        self.sqe = fetched.words;
        self.number = fetched.number;
        self.posting = fetched.ticks;
        self.sqid = fetched.sqid;
        self.cid = (fetched.words[0] >> 16) as u16;
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
