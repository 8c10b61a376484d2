//! The queues of a controller, for whoever looks at them.

use super::Supervisor;
use crate::control::Refusal;
use crate::reactor::inspect::{InspectError, Inspection, Inspector};

impl Supervisor {
    /// What stands in a controller's queues now, with at most so many commands of each submission
    /// queue. Changes of what is served go on meanwhile.
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
