//! Completion of commands: results from media, and aborted commands.

use nvme_spec::opcode::NvmOpcode;
use nvme_spec::zoned::ZonedOpcode;
use nvme_spec::{Cqe, Status};
use port::ticket::Ticket;
use port::{Outcome, status};

use super::message::{FailedCommand, LaneEvent, QueueName};
use super::queues::Queues;
use crate::command;
use crate::queue::{Claim, RingAbsent};
use crate::state::{CommandState, SqState};

// Commands of zones, among those of blocks.
const APPEND: NvmOpcode = NvmOpcode(ZonedOpcode::ZONE_APPEND.0);
const MANAGEMENT_SEND: NvmOpcode = NvmOpcode(ZonedOpcode::ZONE_MANAGEMENT_SEND.0);
const MANAGEMENT_RECEIVE: NvmOpcode = NvmOpcode(ZonedOpcode::ZONE_MANAGEMENT_RECEIVE.0);

/// State that a command that completes leaves in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// Nothing: the slot is free.
    Nothing,
    /// A zombie, whose tickets are still out.
    Zombie,
}

impl Queues {
    /// The subsystem has answered a command that waits for it.
    pub(super) fn answer(&mut self, ticket: Ticket, status: Status) {
        self.end_request(ticket, status, 0);
    }

    /// A medium has ended a request.
    #[inline]
    pub(super) fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        self.end_request(ticket, status::of(outcome.cause), outcome.result);
    }

    #[inline]
    fn end_request(&mut self, ticket: Ticket, status: Status, result: u64) {
        let (index, generation) = ticket.fulfil();
        let Some(slot) = self.slots.named(index, generation) else {
            debug_assert!(false, "a ticket came back twice");
            return;
        };
        slot.outstanding -= 1;
        slot.note(status);
        if result != 0 {
            slot.take_result(result);
        }
        if slot.outstanding > 0 {
            return;
        }
        let (state, status) = (slot.state(), slot.error);
        match state {
            CommandState::ZOMBIE => {
                self.slots.put_back(index);
                self.forget_step(index);
            }
            CommandState::IN_FLIGHT => {
                self.uncount(index);
                self.finish(index, status);
            }
            CommandState::FUSED => {
                self.uncount(index);
                self.finish_pair(index, status);
            }
            CommandState::STEPPING => {
                self.uncount(index);
                self.stepped(index, status);
            }
            // Issued in part: it waits for a channel, and holds no address of the host meanwhile.
            _ => self.uncount(index),
        }
    }

    /// Completes the command in a slot with `status`, and frees the slot.
    #[inline]
    pub(super) fn finish(&mut self, index: u16, status: Status) {
        self.finish_and(index, status, Leaves::Nothing);
    }

    /// Completes the command in a slot with `status`. The order of the stores is that of
    /// [`crate::state`].
    #[inline]
    fn finish_and(&mut self, index: u16, status: Status, leaves: Leaves) {
        if self.slots.slot(index).marks.is_any() && self.ends_marked(index, status, leaves) {
            return;
        }
        let (queue, slot) = self.slots.parts(index);
        let Some(Claim { slot, entry }) = slot.claim() else {
            debug_assert!(false, "a command completed twice");
            return;
        };
        slot.error = status;
        let position = usize::from(slot.sqid()) - 1;
        if self.service.is_serving() {
            let tail = self.cq.tail();
            let head = match &self.sqs[position] {
                Some(member) => member.sq.head() as u16,
                None => 0,
            };
            let cqe = Cqe {
                dw0: slot.result() as u32,
                dw1: (slot.result() >> 32) as u32,
                sq_head: head,
                sq_id: slot.sqid(),
                cid: slot.cid(),
                status: status::field(status),
            };
            let posted = self.cq.post_from(slot, &mut queue.cq_tail, entry, cqe);
            self.share.posted(position, tail);
            self.unannounced.add(1);
            self.count(index, status);
            if posted == Err(RingAbsent) {
                self.ring_lost(QueueName::Completion(self.cq.id()));
            }
        } else {
            self.cq.release(entry);
            self.share.give(position);
        }
        match leaves {
            Leaves::Nothing => self.slots.put_back(index),
            Leaves::Zombie => self.slots.slot(index).set_state(CommandState::ZOMBIE),
        }
        self.forget_outstanding(position);
    }

    /// A command of the submission queue at a position has completed.
    #[inline]
    pub(super) fn forget_outstanding(&mut self, position: usize) {
        if let Some(member) = self.member(position) {
            member.outstanding -= 1;
            if member.removing && member.outstanding == 0 {
                self.remove(position);
            }
        }
    }

    /// Whether a finished command must have its marks of uncorrectable blocks cleared before it
    /// completes. If not, and it is sampled, its times are recorded.
    #[cold]
    #[inline(never)]
    fn ends_marked(&mut self, index: u16, status: Status, leaves: Leaves) -> bool {
        let marks = &mut self.slots.slot(index).marks;
        if marks.clears()
            && status.is_success()
            && leaves == Leaves::Nothing
            && self.service.is_serving()
        {
            marks.set_clears(false);
            self.clears.push(index);
            return true;
        }
        self.note_end(index, status);
        false
    }

    #[inline]
    fn count(&mut self, index: u16, status: Status) {
        let counters = &self.counters;
        counters.completions.add(1);
        let slot = self.slots.slot(index);
        let bytes = u64::from(slot.bytes);
        let opcode = NvmOpcode(slot.opcode());
        let namespace = counters.namespaces.of(slot.nsid());
        match opcode {
            NvmOpcode::READ if status.is_success() => {
                counters.reads.add(1);
                counters.read_bytes.add(bytes);
                namespace.reads.add(1);
                namespace.read_bytes.add(bytes);
            }
            NvmOpcode::WRITE if status.is_success() => {
                counters.writes.add(1);
                counters.write_bytes.add(bytes);
                namespace.writes.add(1);
                namespace.write_bytes.add(bytes);
            }
            _ => self.count_other(index, opcode, status),
        }
    }

    #[cold]
    fn count_other(&mut self, index: u16, opcode: NvmOpcode, status: Status) {
        let counters = &self.counters;
        let slot = self.slots.slot(index);
        let bytes = u64::from(slot.bytes);
        let namespace = counters.namespaces.of(slot.nsid());
        if status.is_success() {
            match opcode {
                NvmOpcode::COMPARE => {
                    counters.compares.add(1);
                    counters.compare_bytes.add(bytes);
                    namespace.reads.add(1);
                    namespace.read_bytes.add(bytes);
                }
                APPEND => {
                    counters.writes.add(1);
                    counters.write_bytes.add(bytes);
                    namespace.writes.add(1);
                    namespace.write_bytes.add(bytes);
                }
                MANAGEMENT_SEND | MANAGEMENT_RECEIVE | port::allocation::OPCODE => {}
                NvmOpcode::FLUSH => counters.flushes.add(1),
                NvmOpcode::VERIFY => {
                    counters.verifies.add(1);
                    counters.verify_bytes.add(bytes);
                    namespace.read_bytes.add(bytes);
                }
                NvmOpcode::COPY => {
                    counters.copies.add(1);
                    counters.copy_bytes.add(bytes);
                    namespace.reads.add(1);
                    namespace.read_bytes.add(bytes);
                    namespace.writes.add(1);
                    namespace.write_bytes.add(bytes);
                }
                _ => counters.deallocations.add(1),
            }
            return;
        }
        counters.errors.add(1);
        namespace.errors.add(1);
        counters.statuses.count(status);
        self.unannounced.note_failure();
        if status::is_media_error(status) {
            counters.media_errors.add(1);
        }
        if !status::is_logged(status) {
            return;
        }
        if !self.reports.has_room_for_failure() {
            counters.unlogged_errors.add(1);
            return;
        }
        let sqe = slot.sqe();
        self.reports.add_failure(FailedCommand {
            sqid: slot.sqid(),
            cid: slot.cid(),
            opcode: sqe.opcode,
            status,
            nsid: sqe.nsid,
            lba: command::first_block(&sqe),
            data: [sqe.prp1, sqe.prp2],
        });
    }

    /// Completes a command that is with a medium as aborted; its tickets, when they come, complete
    /// nothing.
    pub(super) fn give_up(&mut self, index: u16) {
        let sqid = self.slots.slot(index).sqid();
        self.forget_held(index);
        self.forget_replay(index);
        if let Some(member) = self.member(usize::from(sqid) - 1)
            && member.waiting == Some(index)
        {
            member.waiting = None;
        }
        let partner = self.slots.get(index).partner.get();
        self.uncount(index);
        self.finish_and(index, Status::COMMAND_ABORT_REQUESTED, Leaves::Zombie);
        self.give_up_step(index);
        self.finish_partner(partner, Status::COMMAND_ABORT_REQUESTED);
    }

    /// Completes a command that waits for its channel with `status`: now, or when the tickets that
    /// are out have come back.
    pub(super) fn drop_waiting(&mut self, index: u16, status: Status) {
        let slot = self.slots.slot(index);
        slot.note(status);
        let status = slot.error;
        if slot.outstanding > 0 {
            slot.set_state(CommandState::IN_FLIGHT);
            return;
        }
        let partner = slot.partner.get();
        self.finish(index, status);
        self.finish_partner(partner, status);
    }

    /// Takes a submission queue out that has no command outstanding.
    #[cold]
    pub(super) fn remove(&mut self, position: usize) {
        let Some(member) = self.sqs[position].take() else {
            return;
        };
        self.order.retain(|other| usize::from(*other) != position);
        self.slots.queue().sqs[position] = SqState::default();
        self.recount();
        let sqid = member.sq.id();
        self.reports.add(LaneEvent::QueueRemoved { sqid });
    }
}
