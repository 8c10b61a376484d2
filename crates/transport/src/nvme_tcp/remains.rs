//! What is left of a queue that has no host any more, until the controller has forgotten it.

use controller::Controller;
use memory::Buffer;

use super::rings::Rings;
use super::slots::Slots;

/// What the controller may still use of a queue that has no host any more.
#[derive(Debug)]
pub(super) struct Remains {
    pub(super) rings: Rings,
    /// Its small slots, kept from other queues.
    pub(super) _region: Buffer,
    /// Large slots of commands that the controller has.
    pub(super) held: Vec<u16>,
}

impl Remains {
    /// Takes completions, so that the controller goes on.
    pub(super) fn drain(&mut self, controller: &mut Controller) -> bool {
        let mut worked = false;
        while self.rings.take().is_some() {
            worked = true;
        }
        self.rings.ring(controller);
        worked
    }

    /// The controller does not know the queue any more. Its memory is another queue's then. Its
    /// pages stay: a medium that has registered or pinned them would not see others in their place.
    pub(super) fn end(self, slots: &mut Slots) {
        self.held.into_iter().for_each(|slot| slots.give_back(slot));
    }
}
