//! The account that a command has with its gate ([`crate::gate`]): opened when a medium takes it,
//! closed when no medium has a part of it any more.
//!
//! It does NOT ask whether a command may go (`issue` does), or keep those that may not (`held`).

use port::time::Time;

use super::outcome::Asked;
use crate::gate::{FlowId, Gate, Work};
use crate::state::{Index, SlotState};

impl SlotState {
    /// The flow of the command while a medium has it.
    pub(super) fn flow(&self) -> Option<FlowId> {
        self.flow.get().map(FlowId)
    }

    /// Notes that a medium has the command since then.
    fn enter(&mut self, flow: FlowId, bytes: u32, since: Time) {
        self.flow = Index::to(flow.0);
        self.charged = bytes;
        self.set_since(since);
    }

    /// Its cost to its gate.
    pub(super) fn work(&self) -> Work {
        Work {
            opcode: self.opcode(),
            bytes: self.charged,
        }
    }
}

/// Reports the outcome of an admitted command to the gate.
#[inline(always)]
pub(super) fn report<G: Gate>(
    gate: &mut G,
    flow: Option<FlowId>,
    slot: &mut SlotState,
    bytes: u32,
    asked: &Asked,
) {
    if !G::HOLDS {
        return;
    }
    let Some(flow) = flow else {
        return;
    };
    let work = Work {
        opcode: slot.opcode(),
        bytes,
    };
    match asked {
        Asked::Done(_) => {
            gate.issued(flow, work, false);
        }
        Asked::Pending => {
            let since = gate.issued(flow, work, true);
            slot.enter(flow, bytes, since);
        }
        Asked::Full => {}
    }
}
