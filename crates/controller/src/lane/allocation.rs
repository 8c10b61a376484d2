//! The query for allocated blocks of a host inside the process ([`port::allocation`]).

use nvme_spec::{Sqe, Status};
use port::Channel;
use port::allocation::{OPCODE, Query};
use port::namespace::Namespace;
use port::set::{Access, Asked, Data};

use super::issue::{Issuer, permit, range};
use super::outcome::Issued;
use crate::command::{Blocks, Command};
use crate::gate::Gate;
use crate::state::SlotState;

impl<C: Channel, G: Gate> Issuer<'_, C, G> {
    /// Whether a command is a query that this lane accepts.
    pub(super) fn answers(&self, sqe: &Sqe, namespace: &Namespace) -> bool {
        self.is_inside
            && sqe.nvm_opcode() == OPCODE
            && namespace.set.is_none()
            && namespace.traits.allocation
    }

    /// Hands a query to the medium. It is refused where a read of the blocks would be: a block that
    /// Write Uncorrectable has marked reads as no zeroes.
    #[cold]
    #[inline(never)]
    pub(super) fn allocation(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        sqe: &Sqe,
        namespace: &Namespace,
    ) -> Result<Issued, Status> {
        let Query { slba, blocks } = Query::of(sqe);
        if blocks == 0 {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        let blocks = Blocks {
            slba,
            count: blocks,
        };
        range(namespace, blocks)?;
        permit(namespace, &Command::Read { blocks, fua: false })?;
        let asked = Asked {
            access: Access::Reads,
            data: Data::Nothing,
        };
        self.command(index, slot, sqe, namespace, &asked)
    }
}
