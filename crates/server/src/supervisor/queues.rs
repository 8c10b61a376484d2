//! Queues of a controller, for the control API.

use api::Refusal;
use reactor::inspect::{InspectError, Inspection, Inspector};

use super::Supervisor;

impl Supervisor {
    /// The current state of a controller's queues, with at most `commands` commands of each
    /// submission queue. The supervisor is not locked meanwhile.
    pub(crate) fn inspect(&self, name: &str, commands: usize) -> Result<Inspection, Refusal> {
        let not_found = || Refusal::not_found("controller", name);
        let inspector = {
            let state = self.lock();
            let served = state.controllers.iter().find(|c| c.name == name);
            let served = served.ok_or_else(not_found)?;
            Inspector::new(&state.reactors, served.reactor, served.slot)
        };
        inspector.look(commands).map_err(|error| match error {
            InspectError::Gone => not_found(),
            InspectError::NoAnswer(_) => Refusal::no_answer(error.to_string()),
        })
    }
}
