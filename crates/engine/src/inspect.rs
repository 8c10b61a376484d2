//! Inspection of an engine's queues between two turns ([`controller::inspect`]).

use controller::inspect::{CompletionView, ControllerView, Look};
use controller::lane::Lane;
use port::Channel;

use crate::Engine;
use crate::lanes::{Slot, Whose};
use crate::slot::{ControllerSlot, EngineId};

impl<C: Channel> Engine<C> {
    /// A snapshot of a controller's queues.
    #[must_use]
    pub fn inspect_controller(&self, slot: ControllerSlot, look: Look) -> Option<ControllerView> {
        Some(self.members.get(slot.0)?.inspect(look))
    }

    /// A snapshot of a completion queue, and of the submission queues that complete into it, of
    /// that controller of that engine; `None` if it does not live here.
    #[must_use]
    pub fn inspect_lane(
        &self,
        home: EngineId,
        controller: ControllerSlot,
        cqid: u16,
        look: Look,
    ) -> Option<CompletionView> {
        let is_its = |slot: &&Slot| match slot.whose {
            Whose::Controller(its) => (self.lanes.engine, its) == (home, controller.0),
            Whose::Guest(guest) => (guest.home, guest.controller) == (home, controller.0),
        };
        let mut lanes = self.lanes.slots.iter().filter(is_its);
        let lane = lanes.find_map(|slot| {
            let lane: Option<&Lane> = slot.lane.as_ref();
            lane.filter(|lane| lane.cqid() == cqid)
        })?;
        Some(lane.inspect(self.channels(), look))
    }
}
