//! Completion of commands: results from media, and aborted commands.

use nvme_spec::opcode::NvmOpcode;
use nvme_spec::zoned::ZonedOpcode;
use nvme_spec::{Cqe, Sqe, Status};
use port::ticket::Ticket;
use port::{Outcome, status};

use super::message::{FailedCommand, LaneEvent, QueueName};
use super::queues::{MAX_UNLOGGED_FAILURES, Queues};
use super::slots::store_completion;
use super::watch::OTHER_MARKS;
use crate::command;
use crate::queue::RingAbsent;
use crate::state::{SlotState, SqState, slot_state, sq_state};

// Commands of zones, among those of blocks.
const APPEND: NvmOpcode = NvmOpcode(ZonedOpcode::ZONE_APPEND.0);
const MANAGEMENT_SEND: NvmOpcode = NvmOpcode(ZonedOpcode::ZONE_MANAGEMENT_SEND.0);
const MANAGEMENT_RECEIVE: NvmOpcode = NvmOpcode(ZonedOpcode::ZONE_MANAGEMENT_RECEIVE.0);

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
            slot.result = result;
        }
        if slot.outstanding > 0 {
            return;
        }
        let (state, status) = (slot.state, Status(slot.error));
        match state {
            slot_state::ZOMBIE => {
                self.slots.put_back(index);
                self.forget_step(index);
            }
            slot_state::IN_FLIGHT => {
                self.uncount(index);
                self.finish(index, status, slot_state::FREE);
            }
            slot_state::FUSED => {
                self.uncount(index);
                self.finish_pair(index, status);
            }
            slot_state::STEPPING => {
                self.uncount(index);
                self.stepped(index, status);
            }
            // Issued in part: it waits for a channel, and holds nothing of the host meanwhile.
            _ => self.uncount(index),
        }
    }

    /// Completes the command in a slot with `status`, and leaves the slot `next`: free, or a zombie
    /// whose tickets are still out. The order of the stores is that of [`crate::state`].
    #[inline]
    pub(super) fn finish(&mut self, index: u16, status: Status, next: u8) {
        if self.slots.slot(index).marks != 0 && self.ends_marked(index, status, next) {
            return;
        }
        let (queue, slot) = self.slots.parts(index);
        let Some(entry) = slot.claim() else {
            debug_assert!(false, "a command completed twice");
            return;
        };
        let position = usize::from(slot.sqid) - 1;
        if self.serving {
            let tail = self.cq.tail();
            let head = match &self.sqs[position] {
                Some(member) => member.sq.head() as u16,
                None => 0,
            };
            let cqe = Cqe {
                dw0: slot.result as u32,
                dw1: (slot.result >> 32) as u32,
                sq_head: head,
                sq_id: slot.sqid,
                cid: slot.cid,
                status: status::field(status),
            };
            let tail_phase = &mut queue.cq_tail_phase;
            let posted = store_completion(slot, tail_phase, &mut self.cq, entry, cqe);
            self.share.posted(position, tail);
            self.posted += 1;
            self.count(index, status);
            if posted == Err(RingAbsent) {
                self.ring_lost(QueueName::Completion(self.cq.id()));
            }
        } else {
            self.cq.release(entry);
            self.share.give(position);
        }
        if next == slot_state::FREE {
            self.slots.put_back(index);
        } else {
            self.slots.slot(index).state = next;
        }
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
    fn ends_marked(&mut self, index: u16, status: Status, next: u8) -> bool {
        let writes = self.slots.slot(index).marks & OTHER_MARKS != 0;
        if writes && status.is_success() && next == slot_state::FREE && self.serving {
            self.slots.slot(index).marks &= !OTHER_MARKS;
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
        let opcode = NvmOpcode(slot.sqe[0] as u8);
        let namespace = counters.namespaces.of(nsid(slot));
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
        let namespace = counters.namespaces.of(nsid(slot));
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
                MANAGEMENT_SEND | MANAGEMENT_RECEIVE => {}
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
        self.failed = true;
        if status::is_media_error(status) {
            counters.media_errors.add(1);
        }
        if !status::is_logged(status) {
            return;
        }
        if self.unlogged_failures >= MAX_UNLOGGED_FAILURES {
            counters.unlogged_errors.add(1);
            return;
        }
        let sqe = Sqe::from_words(slot.sqe);
        self.unlogged_failures += 1;
        self.events
            .push_back(LaneEvent::CommandFailed(FailedCommand {
                sqid: slot.sqid,
                cid: slot.cid,
                opcode: sqe.opcode,
                status,
                nsid: sqe.nsid,
                lba: command::first_block(&sqe),
                data: [sqe.prp1, sqe.prp2],
            }));
    }

    /// Completes a command that is with a medium as aborted; its tickets, when they come, complete
    /// nothing.
    pub(super) fn give_up(&mut self, index: u16) {
        let sqid = self.slots.slot(index).sqid;
        self.forget_held(index);
        if let Some(member) = self.member(usize::from(sqid) - 1)
            && member.waiting == Some(index)
        {
            member.waiting = None;
        }
        let partner = self.slots.get(index).partner();
        self.uncount(index);
        self.finish(index, Status::COMMAND_ABORT_REQUESTED, slot_state::ZOMBIE);
        self.give_up_step(index);
        self.finish_partner(partner, Status::COMMAND_ABORT_REQUESTED);
    }

    /// Completes a command that waits for its channel with `status`: now, or when the tickets that
    /// are out have come back.
    pub(super) fn drop_waiting(&mut self, index: u16, status: Status) {
        let slot = self.slots.slot(index);
        slot.note(status);
        let status = Status(slot.error);
        if slot.outstanding > 0 {
            slot.state = slot_state::IN_FLIGHT;
            return;
        }
        let partner = slot.partner();
        self.finish(index, status, slot_state::FREE);
        self.finish_partner(partner, status);
    }

    /// Takes a submission queue out that has no command outstanding.
    #[cold]
    pub(super) fn remove(&mut self, position: usize) {
        let Some(member) = self.sqs[position].take() else {
            return;
        };
        self.order.retain(|other| usize::from(*other) != position);
        self.slots.queue().sqs[position] = SqState {
            state: sq_state::NONE,
            ..SqState::default()
        };
        self.recount();
        let sqid = member.sq.id();
        self.events.push_back(LaneEvent::QueueRemoved { sqid });
    }
}

/// The namespace that the command in a slot names (Base 2.1, figure 92: bytes 4 to 7 of its entry).
#[inline]
fn nsid(slot: &SlotState) -> u32 {
    (slot.sqe[0] >> 32) as u32
}
