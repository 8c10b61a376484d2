//! Delivery of the interrupts of a turn: to the sessions of this reactor, and to the lines of
//! others.

use controller::Interrupt;
use engine::{ControllerSlot, EngineId, Interrupts};

use super::hosted::Hosted;
use super::lines::Lines;

/// Delivers the interrupts of a turn.
pub(crate) struct Raiser<'a> {
    pub(crate) hosted: &'a mut [Option<Hosted>],
    pub(crate) lines: &'a Lines,
}

impl Interrupts for Raiser<'_> {
    #[inline]
    fn raise(&mut self, controller: ControllerSlot, interrupt: Interrupt) {
        if let Some(Some(hosted)) = self.hosted.get_mut(controller.0) {
            hosted.raise(interrupt);
        }
    }

    fn raise_for(&mut self, home: EngineId, controller: ControllerSlot, vector: u16) -> bool {
        self.lines.raise(home, controller, vector)
    }
}
