//! The rest of a queue that has no host any more, until the controller has forgotten it.

use std::sync::Arc;

use controller::Controller;
use memory::Buffer;

use super::commands::{Commands, Place, State};
use super::counters::Counts;
use super::slots::Slots;
use crate::host::Rings;

/// Memory that the controller may still use of a queue that has no host any more.
#[derive(Debug)]
pub(super) struct Remains {
    pub(super) rings: Rings,
    /// Its small slots.
    pub(super) region: Buffer,
    /// Commands that the controller has, or has abandoned.
    pub(super) commands: Commands,
    pub(super) slots: Slots,
    pub(super) counts: Arc<Counts>,
}

impl Remains {
    /// Takes completions, so that the controller goes on.
    pub(super) fn drain(&mut self, controller: &mut Controller) -> bool {
        let worked = self.take();
        self.rings.ring_head(controller);
        worked
    }

    fn take(&mut self) -> bool {
        let mut worked = false;
        while let Some(cqe) = self.rings.take() {
            worked = true;
            let Some(index) = self.commands.completed(cqe.cid) else {
                continue;
            };
            if self.commands.note_end(index, cqe.status.status()) {
                self.lose(index);
            } else if let Place::Large(slot) = self.commands.release(index) {
                self.slots.give_back(slot);
            }
        }
        worked
    }

    fn lose(&mut self, index: u16) {
        self.counts.lost.add(1);
        if let Place::Large(_) = self.commands.lose(index) {
            self.slots.lose();
        }
    }

    /// The controller does not know the queue any more. `all_ended` says that it has abandoned none
    /// of the commands that it did not complete. The small slots that a medium may still have: they
    /// are to be kept.
    ///
    /// Other memory is another queue's then. Its pages stay: a medium that has registered or pinned
    /// them would not see others in their place.
    pub(super) fn end(mut self, all_ended: bool) -> Option<Buffer> {
        self.take();
        for index in 0..self.commands.capacity() as u16 {
            let command = self.commands.get(index);
            if command.state != State::Stored {
                continue;
            }
            if !all_ended && command.place != Place::None {
                self.lose(index);
            } else if let Place::Large(slot) = self.commands.release(index) {
                self.slots.give_back(slot);
            }
        }
        let mut left = self.commands.taken();
        let is_lost = left.any(|(_, command)| command.place == Place::Small);
        is_lost.then_some(self.region)
    }
}
