//! The namespaces that are attached to a controller, as of the subsystem's generation.

use std::sync::Arc;

use port::namespace::NamespaceTable;
use subsystem::{ControllerId, Subsystem};

use super::Controller;

impl Controller {
    /// The namespaces that its host reaches now.
    #[must_use]
    pub fn namespaces(&self) -> &Arc<NamespaceTable> {
        &self.attached.table
    }
}

#[derive(Debug)]
pub(crate) struct Attached {
    /// Those whose command set the host has.
    pub(crate) table: Arc<NamespaceTable>,
    /// The subsystem's generation that the table is of.
    pub(crate) generation: u64,
    /// The host has all command sets (CC.CSS), and not the NVM command set alone.
    all_sets: bool,
    /// The highest namespace id that is valid.
    pub(crate) limit: u32,
}

impl Attached {
    /// Of a controller that is not enabled; `all` is its table of all command sets.
    pub(super) fn new(all: &Arc<NamespaceTable>, subsystem: &Subsystem) -> Self {
        Attached {
            table: NamespaceTable::nvm_only(all),
            generation: subsystem.generation(),
            all_sets: false,
            limit: subsystem.namespace_limit(),
        }
    }

    /// Whether the host has all command sets.
    pub(crate) fn has_all_sets(&self) -> bool {
        self.all_sets
    }

    /// Takes a change of the subsystem, or of the command sets that the host has. False where there
    /// is none.
    pub(super) fn follow(
        &mut self,
        id: ControllerId,
        all_sets: bool,
        subsystem: &mut Subsystem,
    ) -> bool {
        if self.generation == subsystem.generation() && self.all_sets == all_sets {
            return false;
        }
        self.generation = subsystem.generation();
        self.all_sets = all_sets;
        self.table = subsystem.take_table(id);
        if !all_sets {
            self.table = NamespaceTable::nvm_only(&self.table);
        }
        true
    }
}
