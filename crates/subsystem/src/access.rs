//! Asymmetric Namespace Access: through which entrances hosts reach which namespaces (Base 2.1,
//! 8.1.1).
//!
//! A namespace is in one ANA group. Each entrance has a state for each group, `optimized` where it
//! was not set. States are the operator's and in no record: the program sets them again.
//! Controllers of PCI functions report no groups, and none is set for them.

use std::collections::BTreeMap;

use nvme_spec::Status;
use nvme_spec::ana::AnaState;

use crate::set::ControllerId;

/// Groups are 1 to this (ANAGRPMAX and NANAGRPID).
pub const MAX_ANA_GROUP: u32 = 128;

/// The group of a namespace that has no other.
pub const DEFAULT_ANA_GROUP: u32 = 1;

/// States of groups for the hosts of one entrance; a group that is missing is optimized.
pub type AnaStates = BTreeMap<u32, AnaState>;

/// Status of commands to a namespace in a group of this state; none where they are executed (Base
/// 2.1, 8.1.1.3 to 8.1.1.7).
#[must_use]
pub fn ana_refusal(state: AnaState) -> Option<Status> {
    match state {
        AnaState::OPTIMIZED | AnaState::NON_OPTIMIZED => None,
        AnaState::INACCESSIBLE => Some(Status::ASYMMETRIC_ACCESS_INACCESSIBLE),
        AnaState::PERSISTENT_LOSS => Some(Status::ASYMMETRIC_ACCESS_PERSISTENT_LOSS),
        _ => Some(Status::ASYMMETRIC_ACCESS_TRANSITION),
    }
}

/// The states of all entrances.
#[derive(Debug, Default)]
pub(crate) struct Access(BTreeMap<ControllerId, AnaStates>);

impl Access {
    pub(crate) fn state(&self, entrance: ControllerId, group: u32) -> AnaState {
        let states = self.0.get(&entrance);
        let state = states.and_then(|states| states.get(&group));
        state.copied().unwrap_or(AnaState::OPTIMIZED)
    }

    /// Sets all states of an entrance; false where nothing changes.
    pub(crate) fn set(&mut self, entrance: ControllerId, mut states: AnaStates) -> bool {
        states.retain(|_, state| *state != AnaState::OPTIMIZED);
        let before = self.0.remove(&entrance).unwrap_or_default();
        let is_changed = before != states;
        if !states.is_empty() {
            self.0.insert(entrance, states);
        }
        is_changed
    }
}
