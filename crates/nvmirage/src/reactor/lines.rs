//! How a queue that lives here interrupts a host whose session is on another reactor: by the very
//! eventfds, which that reactor sends, again with each change of them.
//!
//! With a change, interrupts may have gone to where the host no longer listens. So whoever takes
//! new lines tells the controller of every queue with entries that its host has not acknowledged:
//! one interrupt too many, and none too few.

use controller::Interrupt;
use engine::{ControllerSlot, EngineId, Interrupts};
use memory::EventFd;

use super::hosted::Hosted;

/// By vector of MSI-X: what to signal; nothing where only the session can deliver it.
pub(super) type Vectors = Vec<Option<EventFd>>;

/// The lines of sessions on other reactors.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<(EngineId, ControllerSlot, Vectors)>);

impl Lines {
    /// From now on these are the lines of a controller.
    pub(super) fn set(&mut self, home: EngineId, controller: ControllerSlot, vectors: Vectors) {
        self.0
            .retain(|(id, slot, _)| (*id, *slot) != (home, controller));
        if !vectors.is_empty() {
            self.0.push((home, controller, vectors));
        }
    }
}

/// Who delivers interrupts in a turn.
pub(super) struct Raiser<'a> {
    pub(super) hosted: &'a mut [Option<Hosted>],
    pub(super) lines: &'a Lines,
}

impl Interrupts for Raiser<'_> {
    #[inline]
    fn raise(&mut self, controller: ControllerSlot, interrupt: Interrupt) {
        if let Some(Some(hosted)) = self.hosted.get_mut(controller.0) {
            hosted.raise(interrupt);
        }
    }

    fn raise_for(&mut self, home: EngineId, controller: ControllerSlot, vector: u16) -> bool {
        let mut lines = self.lines.0.iter();
        let found = lines.find(|(id, slot, _)| (*id, *slot) == (home, controller));
        let line = found.and_then(|(_, _, vectors)| vectors.get(usize::from(vector))?.as_ref());
        line.is_some_and(|line| line.signal().is_ok())
    }
}
