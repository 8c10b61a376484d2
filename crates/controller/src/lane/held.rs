//! Lists of the commands that wait for their tenant's turn ([`crate::gate`]).
//!
//! Such a command was fetched and stays in its slot, in a list of its flow that links the slots.
//!
//! Invariants:
//! - Commands of a flow stay in the order in which they were fetched.
//! - A list that is there has a command: the last one that leaves it takes it away.
//!
//! It does NOT decide when a command waits or goes on: [`super::release`] does.

use super::slots::Slots;
use crate::gate::FlowId;
use crate::state::{Index, SlotState};

/// The commands of a lane that wait.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// One for each flow of which something waits: at most as many as there are namespaces.
    lists: Vec<List>,
    count: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    flow: FlowId,
    first: u16,
    last: u16,
}

impl Held {
    /// Commands that wait.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The flow of the list at `at`.
    pub(super) fn flow(&self, at: usize) -> Option<FlowId> {
        self.lists.get(at).map(|list| list.flow)
    }

    /// The slot of the first command in the list at `at`.
    pub(super) fn first(&self, at: usize) -> Option<u16> {
        self.lists.get(at).map(|list| list.first)
    }

    /// Appends the command of a slot to the list of its flow.
    pub(super) fn push(&mut self, slots: &mut Slots, index: u16, flow: FlowId) {
        slots.slot(index).behind = Index::NONE;
        self.count += 1;
        match self.lists.iter_mut().find(|list| list.flow == flow) {
            Some(list) => {
                let before = std::mem::replace(&mut list.last, index);
                slots.slot(before).behind = Index::to(index);
            }
            None => self.lists.push(List {
                flow,
                first: index,
                last: index,
            }),
        }
    }

    /// The first command of the list at `at` has left, with `behind` as the next one.
    pub(super) fn advance(&mut self, at: usize, behind: Index) {
        self.count -= 1;
        match behind.get() {
            None => {
                self.lists.swap_remove(at);
            }
            Some(next) => self.lists[at].first = next,
        }
    }

    /// Takes the first command that is `chosen` out of its list.
    pub(super) fn take(
        &mut self,
        slots: &mut Slots,
        chosen: impl Fn(u16, &SlotState) -> bool,
    ) -> Option<u16> {
        for at in 0..self.lists.len() {
            let (mut before, mut next) = (None, Some(self.lists[at].first));
            while let Some(index) = next {
                let slot = slots.get(index);
                let behind = slot.behind.get();
                if chosen(index, slot) {
                    self.unlink(slots, at, before, behind);
                    return Some(index);
                }
                (before, next) = (Some(index), behind);
            }
        }
        None
    }

    /// Removes the commands between two others from a list.
    fn unlink(&mut self, slots: &mut Slots, at: usize, before: Option<u16>, behind: Option<u16>) {
        self.count -= 1;
        let list = &mut self.lists[at];
        match (before, behind) {
            (None, None) => {
                self.lists.swap_remove(at);
            }
            (None, Some(behind)) => list.first = behind,
            (Some(before), None) => {
                list.last = before;
                slots.slot(before).behind = Index::NONE;
            }
            (Some(before), Some(behind)) => slots.slot(before).behind = Index::to(behind),
        }
    }
}
