//! Fused commands: Compare and Write (Base 2.1, 3.4.2; NVM 1.1, 2.1.3).
//!
//! The two are adjacent in their queue, and one doorbell update submits both: a first command
//! without a second behind it is not part of a pair, and neither is a second one without a first. A
//! pair is fetched, issued and completed together, as one request of the medium, which executes no
//! other command in between. The first command's slot has the ticket and names the second one's.
//!
//! Each command has its own completion, so a pair needs two entries of the completion queue, and
//! its queue waits until they are free. If there can never be two (a completion queue of two
//! entries, or of as many entries as there are submission queues), the pair is aborted like an
//! incomplete one.
//!
//! A pair is at most one logical block long: ACWU is 0.

use memory::Need;
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::sqe::Fuse;
use nvme_spec::{Sqe, Status};
use port::prp::Segments;
use port::{ByteRange, Channel, FUSED_BYTES, Request};

use super::admission;
use super::issue::{Issuer, permit, range, walk};
use super::outcome::{Asked, Went};
use super::queues::Queues;
use crate::command::{self, Command};
use crate::gate::{FlowId, Gate};
use crate::state::{CommandState, Index, SlotState};

/// Statuses of the two commands.
type Statuses = (Status, Status);

impl Queues {
    /// Issues a command whose slot marks it as one of two, for the first time or again.
    #[cold]
    pub(super) fn issue_fused<C: Channel, G: Gate>(
        &mut self,
        index: u16,
        position: usize,
        sqe: &Sqe,
        issuer: &mut Issuer<'_, C, G>,
        flow: Option<FlowId>,
    ) -> Went {
        if sqe.flags.fuse() == Fuse::SECOND {
            self.finish(index, Status::ABORTED_MISSING_FUSED);
            return Went::On;
        }
        if let Some(second) = self.slots.get(index).partner.get() {
            return self.issue_pair(index, second, position, issuer, flow);
        }
        if self.available(position) == 0 || self.share.most() < 2 {
            self.finish(index, Status::ABORTED_MISSING_FUSED);
            return Went::On;
        }
        if self.room(position) == 0 {
            self.wait(index, position);
            self.blocked = true;
            return Went::NoPlace;
        }
        let Some((second, sqe)) = self.fetch_one(position) else {
            // The ring is lost: the controller stops the lane.
            self.wait(index, position);
            return Went::NoPlace;
        };
        if sqe.flags.fuse() == Fuse::SECOND {
            self.slots.slot(index).partner = Index::to(second);
            return self.issue_pair(index, second, position, issuer, flow);
        }
        self.finish(index, Status::ABORTED_MISSING_FUSED);
        if sqe.flags.fuse() == Fuse::FIRST {
            // The next turn looks for its second one: a queue full of first ones is not gone
            // through in one.
            self.wait(second, position);
            self.kicked = true;
            return Went::Full;
        }
        match self.issue(second, position, &sqe, issuer) {
            Went::On => Went::Two,
            other => other,
        }
    }

    pub(super) fn wait(&mut self, index: u16, position: usize) {
        if let Some(member) = self.member(position) {
            member.waiting = Some(index);
        }
    }

    fn issue_pair<C: Channel, G: Gate>(
        &mut self,
        first: u16,
        second: u16,
        position: usize,
        issuer: &mut Issuer<'_, C, G>,
        flow: Option<FlowId>,
    ) -> Went {
        let write = self.slots.get(second).sqe();
        let slot = self.slots.slot(first);
        let compare = slot.sqe();
        match issuer.fuse(first, slot, &compare, &write) {
            Ok(Fused {
                asked,
                bytes,
                write,
            }) => {
                slot.bytes = bytes;
                let partner = self.slots.slot(second);
                partner.bytes = bytes;
                partner.error = write;
                let slot = self.slots.slot(first);
                admission::report(&mut issuer.gate, flow, slot, 2 * bytes, &asked);
                match asked {
                    Asked::Done(status) => self.finish_pair(first, status),
                    Asked::Pending => {
                        self.slots.slot(first).set_state(CommandState::FUSED);
                        self.count_issued(first);
                    }
                    Asked::Full => {
                        self.wait(first, position);
                        return Went::Full;
                    }
                }
            }
            Err((compare, write)) => {
                self.finish(first, compare);
                self.finish(second, write);
            }
        }
        Went::Two
    }

    /// The medium has ended the request of a pair.
    #[cold]
    pub(super) fn finish_pair(&mut self, first: u16, status: Status) {
        let Some(second) = self.slots.get(first).partner.get() else {
            debug_assert!(false, "a pair has two commands");
            return;
        };
        let statuses = match status {
            // The write may have been refused before.
            Status::SUCCESSFUL_COMPLETION => (status, self.slots.get(second).error),
            // The compared data was the same (NVM 1.1, 2.1.3.1: the status of Compare is not
            // affected).
            Status::WRITE_FAULT | Status::CAPACITY_EXCEEDED => {
                (Status::SUCCESSFUL_COMPLETION, status)
            }
            _ => (status, Status::ABORTED_FAILED_FUSED),
        };
        self.finish(first, statuses.0);
        self.finish(second, statuses.1);
    }

    /// The first command of a pair was completed with `status` before its request's end: completes
    /// the second.
    pub(super) fn finish_partner(&mut self, second: Option<u16>, status: Status) {
        let Some(second) = second else {
            return;
        };
        // An abort names one command; the other one fails for it.
        let status = match status {
            Status::COMMAND_ABORT_REQUESTED => Status::ABORTED_FAILED_FUSED,
            other => other,
        };
        self.finish(second, status);
    }
}

/// A pair that was handed to a medium.
struct Fused {
    asked: Asked,
    /// Bytes of each command.
    bytes: u32,
    /// Status of the write if the comparison is successful.
    write: Status,
}

impl<C: Channel, G: Gate> Issuer<'_, C, G> {
    /// Checks a pair and hands it to its medium.
    ///
    /// A mistake in the first command fails both; one in the second does not keep the first from
    /// being done (NVM 1.1, 2.1.3.1). A closed path refuses each of them for itself, so that the
    /// host sends both by another one (Base 2.1, 8.1.1).
    fn fuse(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        compare: &Sqe,
        write: &Sqe,
    ) -> Result<Fused, Statuses> {
        let refused = |status| (status, Status::ABORTED_FAILED_FUSED);
        let both = |status| (status, status);
        let opcodes = (compare.nvm_opcode(), write.nvm_opcode());
        if opcodes != (NvmOpcode::COMPARE, NvmOpcode::WRITE) {
            let status = |sqe| command::parse(sqe).err().unwrap_or(Status::INTERNAL_ERROR);
            return Err((status(compare), status(write)));
        }
        let target = command::blocks(compare);
        if compare.nsid != write.nsid || target != command::blocks(write) {
            return Err(both(Status::INVALID_FIELD_IN_COMMAND));
        }
        let (compare, write) = (alone(compare), alone(write));
        let comparison = command::parse(&compare).map_err(refused)?;
        let namespace = self.named(compare.nsid).map_err(refused)?;
        if let Some(refusal) = namespace.path_refusal() {
            return Err(both(refusal));
        }
        permit(namespace, &comparison).map_err(refused)?;
        let ByteRange { offset, len } = range(namespace, target).map_err(refused)?;
        if target.count > 1 || len > u64::from(FUSED_BYTES) {
            return Err(both(Status::ATOMIC_WRITE_UNIT_EXCEEDED));
        }
        let (channel, len) = (namespace.channel, len as u32);
        let volatile = namespace.traits.volatile_cache;
        let commit = volatile && matches!(comparison, Command::Compare { fua: true, .. });
        let writing = command::parse(&write).and_then(|command| {
            permit(namespace, &command)?;
            Ok(matches!(command, Command::Write { fua: true, .. }) || self.write_through)
        });
        let mut memory = Segments::new();
        let (view, hint) = (self.view, &mut *self.hint);
        walk(view, hint, &compare, len, Need::DeviceReads, &mut memory).map_err(refused)?;
        let writing = writing.and_then(|fua| {
            self.segments.clear();
            walk(
                view,
                hint,
                &write,
                len,
                Need::DeviceReads,
                &mut self.segments,
            )?;
            let pieces = memory.try_extend_from_slice(&self.segments);
            pieces.map_err(|_| Status::INVALID_FIELD_IN_COMMAND)?;
            Ok(fua)
        });
        let (request, write) = match writing {
            Ok(fua) => {
                let request = Request::CompareAndWrite {
                    offset,
                    len,
                    commit,
                    fua,
                };
                (request, Status::SUCCESSFUL_COMPLETION)
            }
            // A comparison alone does not commit what it compares.
            Err(status) if commit => return Err((Status::ABORTED_FAILED_FUSED, status)),
            Err(status) => (Request::Compare { offset, len }, status),
        };
        let asked = self.add_with(index, slot, channel, &request, (&memory, view));
        Ok(Fused {
            asked: asked.map_err(refused)?,
            bytes: len,
            write,
        })
    }
}

/// The command as if it were not fused.
fn alone(sqe: &Sqe) -> Sqe {
    Sqe {
        flags: sqe.flags.with_fuse(Fuse::NORMAL),
        ..*sqe
    }
}
