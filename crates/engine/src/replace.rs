//! A controller in the place of another one: its state came from another server.

use std::sync::Arc;

use controller::Controller;
use controller::controller::{MigrateError, Moved};
use memory::{DmaView, DoorbellPages};
use port::Channel;
use port::ticket::OwnerKey;
use subsystem::Subsystem;

use crate::lanes::{LanesOf, number_of};
use crate::members::Member;
use crate::slot::ControllerSlot;
use crate::turn::Engine;

impl<C: Channel> Engine<C> {
    /// The subsystem of a controller.
    #[must_use]
    pub fn subsystem_of(&self, slot: ControllerSlot) -> Option<&Subsystem> {
        self.members.subsystem_of(slot)
    }

    /// Puts a controller with a moved state into the place of one that is quiet
    /// ([`Controller::take`]). Where that fails, a controller as after power-on is there.
    ///
    /// # Errors
    /// [`MigrateError`].
    ///
    /// # Panics
    /// If there is no such controller, or its subsystem has not room for one.
    pub fn replace_controller(
        &mut self,
        slot: ControllerSlot,
        moved: Moved,
        doorbells: Arc<DoorbellPages>,
        view: Arc<DmaView>,
    ) -> Result<(), MigrateError> {
        let old = self.members.get(slot.0);
        if !old.is_some_and(Controller::is_quiet) {
            return Err(MigrateError::Busy);
        }
        let Some(Member {
            controller: old,
            subsystem,
            places,
            ..
        }) = self.members.take_controller(slot)
        else {
            return Err(MigrateError::Busy);
        };
        let config = old.config().clone();
        let its = self.members.subsystem_mut(subsystem);
        let its = its.expect("a controller's subsystem is there as long as it");
        its.leave(old.id());
        drop(old);
        let mut lanes = LanesOf {
            lanes: &mut self.lanes,
            controller: slot.0,
        };
        let taken = Controller::take(
            config.clone(),
            moved,
            doorbells.clone(),
            view,
            its,
            &mut lanes,
        );
        let (mut controller, result) = match taken {
            Ok(controller) => (controller, Ok(())),
            Err(error) => {
                doorbells.zero_all();
                let fresh = Controller::new(config, doorbells, its);
                (fresh.expect("there was room for the last one"), Err(error))
            }
        };
        self.taken = self.taken.wrapping_add(1);
        controller.set_key(OwnerKey::controller(number_of(slot.0, self.taken)));
        self.members.add_controller(controller, subsystem, slot.0);
        self.members.set_spread(slot, places.spread);
        self.turns_to_look = 0;
        result
    }
}
