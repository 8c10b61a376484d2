//! Interrupt lines of sessions on other reactors. The reactor of a session sends the session's
//! eventfds to the reactors that serve its queues, initially and after each change.
//!
//! Interrupts that were raised during a change may have gone to an eventfd on which the host no
//! longer listens. A reactor that receives new lines therefore reports every queue with
//! unacknowledged entries to the controller: one interrupt too many, and none too few.

use engine::{ControllerSlot, EngineId};
use memory::EventFd;

/// Eventfd of each MSI-X vector; `None` where only the session can deliver the interrupt.
pub(crate) type Vectors = Vec<Option<EventFd>>;

/// The lines of sessions on other reactors.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<(EngineId, ControllerSlot, Vectors)>);

impl Lines {
    /// Replaces the lines of a controller.
    pub(crate) fn set(&mut self, home: EngineId, controller: ControllerSlot, vectors: Vectors) {
        self.0
            .retain(|(id, slot, _)| (*id, *slot) != (home, controller));
        if !vectors.is_empty() {
            self.0.push((home, controller, vectors));
        }
    }

    /// Signals a vector of a controller; false where only its session can.
    pub(crate) fn raise(&self, home: EngineId, controller: ControllerSlot, vector: u16) -> bool {
        let mut lines = self.0.iter();
        let found = lines.find(|(id, slot, _)| (*id, *slot) == (home, controller));
        let line = found.and_then(|(_, _, vectors)| vectors.get(usize::from(vector))?.as_ref());
        line.is_some_and(|line| line.signal().is_ok())
    }
}
