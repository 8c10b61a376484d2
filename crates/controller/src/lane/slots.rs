//! The commands that a lane holds: one slot each, in memory that outlives the process (see
//! [`crate::state`]).

use memory::Area;

use crate::queue::QueueError;
use crate::state::{CommandState, QueueState, SlotState, slots_for};

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

    /// Takes the area of a process that died, which has enough slots; which are free is found later
    /// ([`Slots::find_free`]).
    pub(super) fn restore(area: Area<QueueState, SlotState>) -> Self {
        Slots {
            area,
            free: Vec::new(),
        }
    }

    /// Finds the slots that are free.
    pub(super) fn find_free(&mut self) {
        let free = self
            .iter()
            .filter(|(_, slot)| slot.state() == CommandState::FREE);
        let mut free: Vec<u16> = free.map(|(index, _)| index).collect();
        free.reverse();
        self.free = free;
    }

    #[inline]
    pub(super) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// The slot that is taken next, if there is a free one.
    #[inline]
    pub(super) fn next_free(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// Takes [`Slots::next_free`].
    #[inline]
    pub(super) fn take(&mut self) {
        self.free.pop();
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
        slots
            .map(|slot| u32::from(slot.state().has_reservation()))
            .sum()
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
        (slot.generation() == generation && slot.outstanding > 0).then_some(slot)
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
            .filter(|slot| slot.state().has_reservation())
            .map(SlotState::sqid)
    }
}
