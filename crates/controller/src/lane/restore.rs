//! A lane of a process that died: what it left in its area is checked, and its commands go on.
//!
//! A lane begins with the positions of its queues and the commands in its slots. Its first turns
//! execute those commands again, in the order in which they were fetched ([`Queues::replay`]). The
//! caller gives no turn before the media have ended the I/O of the process that died, and releases
//! the lanes when all of them have reported that their commands have completed: a write that is
//! executed again must not follow one that the host has submitted since.
//!
//! Commands that read the blocks of a medium must not see one that the process was writing when it
//! died. Copies go on when all lanes have executed what only writes ([`Queues::release_copies`]),
//! and commands that only read when all lanes have copied: when the lane is released, before it
//! fetches.
//!
//! Invariants:
//! - Restoring writes nothing that the host sees, and nothing by which a second restart would
//!   decide otherwise: the process may die again at any store.
//! - Each command completes once: its completion was posted, or is posted again with the same
//!   contents, or the command is executed again, or it ends as Command Interrupted.
//! - A command by which the process died a second time is not executed a third time.
//! - Nothing in the area is trusted: what cannot be is an error, and no position is outside its
//!   ring.

use std::collections::VecDeque;
use std::sync::Arc;

use memory::{Area, DmaView};
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use nvme_spec::sqe::Fuse;
use nvme_spec::{Cqe, Status};
use port::namespace::NamespaceTable;
use port::{Channel, status};

use super::LaneTurn;
use super::fetch::BATCH;
use super::issue::{COPIED_PER_TURN, Issuer};
use super::member::Member;
use super::message::{KnownSq, QueueName, Registration};
use super::outcome::Went;
use super::queues::Queues;
use super::replays::{Replay, Replays, Way};
use crate::command;
use crate::gate::Gate;
use crate::queue::{Claim, Cq, CqState, QueueError, RingAbsent, Sq};
use crate::state::{
    BellState, CommandState, Index, MAX_SQS, QueueHead, QueueState, SlotState, SqLife, SqState,
    ordered, slots_for,
};

/// Why a lane cannot go on from what was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A queue cannot be made.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// What was saved contradicts itself.
    #[error("the saved state of completion queue {cqid} is damaged: {what}")]
    Damaged {
        /// The completion queue.
        cqid: u16,
        /// What cannot be.
        what: &'static str,
    },
}

/// Which commands are not executed again, although they could be, because a process has died by its
/// own fault twice: while it executed them, and while it executed them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Suspects {
    /// None: it was ended by others, or has died once.
    #[default]
    None,
    /// Those that were being executed just then: they end with Internal Error.
    Named,
    /// No lane was executing one just then: all that it had begun again are interrupted, so that
    /// the host decides.
    All,
}

impl Suspects {
    /// Of a process that has ended by its own fault. `trying`: some lane's [`is_trying`] says so.
    #[must_use]
    pub fn after_crash(trying: bool) -> Self {
        if trying {
            Suspects::Named
        } else {
            Suspects::All
        }
    }
}

/// Whether the process was executing a command again when it died.
#[must_use]
pub fn is_trying(saved: &QueueState) -> bool {
    saved.trying != Index::NONE
}

/// The completion queue as it was saved, checked against what the controller knows of it.
pub(super) fn completion_queue(
    area: &Area<QueueState, SlotState>,
    view: &Arc<DmaView>,
    expected: QueueHead,
) -> Result<Cq, RestoreError> {
    let saved = area.head();
    let damaged = |what| RestoreError::Damaged {
        cqid: expected.cqid,
        what,
    };
    if QueueHead::of(saved) != expected {
        return Err(damaged("it is another queue"));
    }
    let entries = saved.cq_entries;
    if u32::from(saved.cq_tail.tail()) >= entries || saved.cq_head >= entries {
        return Err(damaged("a position of the completion queue is outside it"));
    }
    if area.slots().len() < slots_for(entries) {
        let (have, need) = (area.slots().len(), slots_for(entries));
        return Err(QueueError::State { need, have }.into());
    }
    let state = CqState {
        base: saved.cq_base,
        entries,
        tail: saved.cq_tail,
        head: saved.cq_head,
        cqid: saved.cqid,
        shadow: saved.shadow,
        bell: saved.bell,
    };
    Ok(Cq::restore(view, state)?)
}

/// The lane had not heard of the doorbell buffers, or only of those before them: its doorbells are
/// as they were when the host registered these.
pub(super) fn register(saved: &mut QueueState, registration: &Registration) {
    // An older process has kept none.
    if saved.registration == registration.count() || registration.count() == 0 {
        return;
    }
    let bell = |slot| known_bell(registration.initial(slot));
    (saved.shadow, saved.bell) = bell(cq_head_slot(saved.cqid));
    for sq in saved.sqs.iter_mut().filter(|sq| sq.life != SqLife::NONE) {
        (sq.shadow, sq.bell) = bell(sq_tail_slot(sq.sqid));
    }
    ordered();
    saved.registration = registration.count();
}

/// What a doorbell's state says that has not moved since its shadow was `initial`.
fn known_bell(initial: Option<u32>) -> (u32, BellState) {
    let bell = BellState::new().with_known(initial.is_some());
    (initial.unwrap_or(0), bell)
}

/// Commands of the NVM command set that change nothing.
const READS: [NvmOpcode; 4] = [
    NvmOpcode::READ,
    NvmOpcode::FLUSH,
    NvmOpcode::COMPARE,
    NvmOpcode::VERIFY,
];

/// Those that change the same bytes in the same way a second time.
const WRITES: [NvmOpcode; 3] = [
    NvmOpcode::WRITE,
    NvmOpcode::WRITE_ZEROES,
    NvmOpcode::DATASET_MANAGEMENT,
];

/// Whether a command writes. A process that died while it copied into memory has left half of a
/// block, which only a second execution makes whole.
pub(super) fn is_write(slot: &SlotState) -> bool {
    WRITES.contains(&NvmOpcode(slot.opcode()))
}

/// The same, or it copies.
pub(super) fn leaves_half(slot: &SlotState) -> bool {
    is_write(slot) || NvmOpcode(slot.opcode()) == NvmOpcode::COPY
}

/// Those for the subsystem that have the same effect and result a second time.
const FORWARDED: [NvmOpcode; 2] = [
    NvmOpcode::RESERVATION_REPORT,
    NvmOpcode::WRITE_UNCORRECTABLE,
];

/// Those that read the blocks of a medium, and may see half of a write.
const LATE: [NvmOpcode; 4] = [
    NvmOpcode::READ,
    NvmOpcode::COMPARE,
    NvmOpcode::VERIFY,
    NvmOpcode::COPY,
];

/// Statuses of commands that do not go on because the host has asked for that.
const ABORTED: [Status; 2] = [Status::ABORTED_SQ_DELETION, Status::COMMAND_ABORT_REQUESTED];

/// When a command goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    /// What was being posted comes first.
    Posted,
    Usual,
    /// When the lane may copy, or is released.
    Late,
}

/// How a command goes on that has no completion yet.
///
/// A fetched command may have been handed to its medium: plain ones complete without another state
/// in between. Only those that the lane marks before it hands them over (`acted`) are known not to
/// have been: the commands of a namespace's set, and copies that cannot be repeated. A medium with
/// notes ([`port::MediumTraits::notes`]) executes its commands once by them. `is_last`: nothing was
/// fetched from its queue after it.
fn way(slot: &SlotState, is_last: bool, namespaces: &NamespaceTable) -> Way {
    let sqe = slot.sqe();
    let interrupted = Way::End(Status::COMMAND_INTERRUPTED);
    let is_untouched = slot.state() == CommandState::FETCHED && !slot.marks.acted();
    if sqe.flags.fuse() != Fuse::NORMAL {
        // A first one whose second one was not fetched: nothing was asked for.
        let is_alone = is_untouched && is_last && sqe.flags.fuse() == Fuse::FIRST;
        return if is_alone { Way::Again } else { interrupted };
    }
    let Some(namespace) = namespaces.get(sqe.nsid) else {
        // It ends as before; Flush may name all namespaces.
        return Way::Again;
    };
    let opcode = NvmOpcode(sqe.opcode);
    let notes = namespace.traits.notes;
    let writes = WRITES.contains(&opcode);
    // The subsystem knows by its name whether it has done a command.
    let is_forwarded = FORWARDED.contains(&opcode) || command::is_named(&sqe) && slot.marks.noted();
    let is_plain = writes || READS.contains(&opcode) || is_forwarded;
    let repeats = match &namespace.set {
        Some(set) => match set.command(&sqe, namespace) {
            // A write to a zone, say, which is not marked.
            Ok(None) if writes && !set.keeps_bytes() && !notes => return interrupted,
            Ok(None) => is_plain,
            Ok(Some(_)) => set.repeats(&sqe) || (notes && set.is_noted(&sqe)),
            Err(_) => true,
        },
        None => is_plain,
    };
    let copies = opcode == NvmOpcode::COPY && !slot.marks.acted();
    if repeats || copies || is_untouched {
        Way::Again
    } else {
        interrupted
    }
}

/// How a command ends by which the process may have died twice; `None` where it is no suspect.
fn verdict(slot: &SlotState, is_tried: bool, suspects: Suspects) -> Option<Status> {
    match suspects {
        _ if !slot.marks.suspected() => None,
        Suspects::Named if is_tried => Some(Status::INTERNAL_ERROR),
        Suspects::All => Some(Status::COMMAND_INTERRUPTED),
        Suspects::None | Suspects::Named => None,
    }
}

impl Queues {
    /// Takes over the submission queues of `sqs` and the commands that were saved.
    pub(super) fn restore(
        &mut self,
        sqs: &[KnownSq],
        view: &Arc<DmaView>,
        namespaces: &NamespaceTable,
        suspects: Suspects,
        registration: Option<&Registration>,
    ) -> Result<(), RestoreError> {
        let cqid = self.cq.id();
        let damaged = |what| RestoreError::Damaged { cqid, what };
        for (position, saved) in self.slots.queue().sqs.iter_mut().enumerate() {
            match sqs.iter().find(|sq| usize::from(sq.sqid) == position + 1) {
                // The process died before the controller had it, so it has no command.
                None => *saved = SqState::default(),
                Some(sq) if saved.life == SqLife::NONE => {
                    // The host may have rung since it was created.
                    let initial = registration.and_then(|it| it.initial(sq_tail_slot(sq.sqid)));
                    let (shadow, bell) = known_bell(initial);
                    *saved = SqState {
                        base: sq.base.0,
                        entries: sq.entries,
                        sqid: sq.sqid,
                        life: SqLife::LIVE,
                        shadow,
                        bell,
                        ..SqState::default()
                    };
                }
                Some(_) => {}
            }
            check(position, saved).map_err(damaged)?;
        }
        self.count_fetched_ones().map_err(damaged)?;
        self.finish_abort().map_err(damaged)?;
        for position in 0..MAX_SQS {
            let saved = self.slots.queue().sqs[position];
            if saved.life == SqLife::NONE {
                continue;
            }
            self.order.push(position as u8);
            self.sqs[position] = Some(Member {
                sq: Sq::restore(view, &saved)?,
                outstanding: 0,
                waiting: None,
                removing: saved.life == SqLife::REMOVING,
                quota: self.quota.at_first(),
            });
        }
        let replays = self.collect(namespaces, suspects).map_err(damaged)?;
        let are = |way: fn(Way) -> bool| {
            let all = replays.left.iter().chain(&replays.late);
            let those = all.filter(|one| way(one.way));
            those.count() as u64
        };
        let replayed = are(|way| way == Way::Again);
        let interrupted = are(|way| matches!(way, Way::End(status) if !ABORTED.contains(&status)));
        self.counters.replayed.add(replayed);
        self.counters.interrupted.add(interrupted);
        self.slots.find_free();
        self.recount();
        for position in 0..MAX_SQS {
            if self.sqs[position]
                .as_ref()
                .is_some_and(|member| member.removing && member.outstanding == 0)
            {
                self.remove(position);
            }
        }
        // Interrupts of the last completions may have been lost.
        self.unannounced.add(self.cq.posted());
        self.kicked = true;
        self.service.set_replaying(!replays.left.is_empty());
        self.service.restore();
        self.replays = replays;
        Ok(())
    }

    /// All lanes have executed what only writes: copies go on, and their end is reported.
    pub(super) fn release_copies(&mut self) {
        self.service.replay_more();
        let late = std::mem::take(&mut self.replays.late);
        let (copies, late): (VecDeque<_>, _) = late.into_iter().partition(|one| self.copies(one));
        self.replays.late = late;
        self.go_on_with(copies);
    }

    /// All lanes have executed what writes: those that read go on, and then what the host submits.
    pub(super) fn release(&mut self) {
        self.service.release();
        let late = std::mem::take(&mut self.replays.late);
        self.go_on_with(late);
    }

    /// Whether a command reads and writes.
    pub(super) fn copies(&self, one: &Replay) -> bool {
        self.slots.get(one.slot).sqe().opcode == NvmOpcode::COPY.0
    }

    fn go_on_with(&mut self, replays: VecDeque<Replay>) {
        if !replays.is_empty() {
            self.replays.left.extend(replays);
            self.service.set_replaying(true);
        }
    }

    /// Completes the third step of a fetch that the process died in: the head of the queue goes
    /// past the command.
    fn count_fetched_ones(&mut self) -> Result<(), &'static str> {
        let (queue, slots, _) = self.slots.split();
        for slot in slots.iter() {
            if slot.state() != CommandState::FETCHED {
                continue;
            }
            let position = usize::from(slot.sqid()).checked_sub(1);
            let saved = position.and_then(|position| queue.sqs.get_mut(position));
            let saved = saved.ok_or("a command is of a queue that cannot be")?;
            let progress = saved.progress;
            if slot.number() == progress.fetched() {
                let head = progress.head() + 1;
                saved.progress = progress
                    .with_head(if head >= saved.entries { 0 } else { head })
                    .with_fetched(progress.fetched().wrapping_add(1));
            }
        }
        Ok(())
    }

    /// Completes the steps of an abort that the process died in.
    fn finish_abort(&mut self) -> Result<(), &'static str> {
        let (queue, slots, _) = self.slots.split();
        let Some(index) = queue.aborts.begun() else {
            return Ok(());
        };
        let slot = slots.get_mut(usize::from(index));
        let slot = slot.filter(|slot| slot.state().has_reservation());
        let slot = slot.ok_or("a command was being aborted that is not there")?;
        queue.aborts.finish(slot);
        Ok(())
    }

    /// The commands that have to go on, in the order in which each queue was fetched from. Each has
    /// a place in the completion queue from now on.
    fn collect(
        &mut self,
        namespaces: &NamespaceTable,
        suspects: Suspects,
    ) -> Result<Replays, &'static str> {
        let trying = self.slots.queue().trying.get();
        let tail = self.cq.tail() as u16;
        let (mut found, mut accused) = (Vec::new(), Vec::new());
        for index in 0..self.slots.len() as u16 {
            let slot = self.slots.slot(index);
            let found_as = match slot.state() {
                CommandState::FREE => continue,
                CommandState::POSTING if slot.posting() == tail => Way::Post,
                CommandState::POSTING | CommandState::ZOMBIE => {
                    slot.release();
                    continue;
                }
                state if state.has_reservation() => Way::Again,
                _ => return Err("a command has no known state"),
            };
            let (sqid, number) = (slot.sqid(), slot.number());
            let position = usize::from(sqid).wrapping_sub(1);
            let member = self.sqs.get_mut(position).and_then(Option::as_mut);
            let member = member.ok_or("a command is of a queue that is not there")?;
            member.outstanding += 1;
            let age = member.sq.fetched().wrapping_sub(number);
            let way = match found_as {
                Way::Again if slot.error == Status::COMMAND_ABORT_REQUESTED => Way::End(slot.error),
                Way::Again if member.removing && !leaves_half(slot) => {
                    Way::End(Status::ABORTED_SQ_DELETION)
                }
                Way::Again => match verdict(slot, trying == Some(index), suspects) {
                    Some(status) => {
                        accused.push((slot.sqe(), status));
                        Way::End(status)
                    }
                    None => way(slot, age == 1, namespaces),
                },
                as_before => as_before,
            };
            let opcode = NvmOpcode(slot.sqe().opcode);
            let order = match way {
                Way::Post => Order::Posted,
                Way::Again if LATE.contains(&opcode) => Order::Late,
                _ => Order::Usual,
            };
            slot.outlive();
            let place = self.cq.reserve();
            let place = place.ok_or("there are more commands than places for completions")?;
            self.slots.slot(index).keep(place);
            let of_queue = (sqid, std::cmp::Reverse(age));
            found.push((order, of_queue, Replay { slot: index, way }));
        }
        let posting = found.iter().filter(|(.., one)| one.way == Way::Post);
        if posting.count() > 1 {
            return Err("two completions were being written at a time");
        }
        // Of each queue the oldest comes first.
        found.sort_by_key(|(order, of_queue, _)| (*order, *of_queue));
        let late = found.partition_point(|(order, ..)| *order < Order::Late);
        let late = found.split_off(late).into_iter().map(|(.., one)| one);
        Ok(Replays {
            late: late.collect(),
            left: found.into_iter().map(|(.., one)| one).collect(),
            suspected: suspects != Suspects::None,
            accused,
        })
    }

    /// Goes on with commands of the process that died, up to a batch of them.
    #[cold]
    #[inline(never)]
    pub(super) fn replay<C: Channel, G: Gate>(
        &mut self,
        issuer: &mut Issuer<'_, C, G>,
        turn: &mut LaneTurn,
    ) {
        // The host may have consumed what was being posted: it is posted before the doorbell says
        // so.
        if let Some(&Replay {
            slot,
            way: Way::Post,
        }) = self.replays.left.front()
        {
            self.replays.left.pop_front();
            self.post_again(slot);
        }
        if self.service.is_serving() {
            self.look_at_cq();
        }
        let mut left = BATCH;
        while left > 0
            && issuer.copied < COPIED_PER_TURN
            && self.service.replays()
            && let Some(Replay { slot, way }) = self.replays.left.pop_front()
        {
            left -= 1;
            turn.steps += 1;
            match way {
                Way::Post => self.post_again(slot),
                Way::End(status) => {
                    self.finish(slot, status);
                    self.slots.queue().trying = Index::NONE;
                }
                Way::Again | Way::Begun => {
                    let suspected = self.replays.suspected;
                    if way == Way::Again {
                        self.slots.slot(slot).begin_again(suspected);
                    }
                    if suspected {
                        ordered();
                        self.slots.queue().trying = Index::to(slot);
                        ordered();
                    }
                    let went = self.execute_again(slot, issuer);
                    ordered();
                    self.slots.queue().trying = Index::NONE;
                    if went == Went::Full {
                        let way = Way::Begun;
                        self.replays.left.push_front(Replay { slot, way });
                        break;
                    }
                }
            }
        }
        turn.pending += self.replays.left.len() as u32;
        if self.replays.left.is_empty() {
            self.service.set_replaying(false);
            // It looks at the doorbells next.
            self.kicked = true;
        }
    }

    /// Writes a completion again that the process died in.
    fn post_again(&mut self, index: u16) {
        let (queue, slot) = self.slots.parts(index);
        let position = usize::from(slot.sqid()) - 1;
        let status = slot.error;
        let Some(Claim { slot, entry }) = slot.claim_posting() else {
            debug_assert!(false, "a completion was written twice");
            return;
        };
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
        let tail = self.cq.tail();
        let posted = self.cq.post_from(slot, &mut queue.cq_tail, entry, cqe);
        self.share.take(position);
        self.share.posted(position, tail);
        self.unannounced.add(1);
        if posted == Err(RingAbsent) {
            self.ring_lost(QueueName::Completion(self.cq.id()));
        }
        self.slots.put_back(index);
        self.forget_outstanding(position);
    }

    /// Issues a command that is executed a second time.
    fn execute_again<C: Channel, G: Gate>(
        &mut self,
        index: u16,
        issuer: &mut Issuer<'_, C, G>,
    ) -> Went {
        let slot = self.slots.slot(index);
        let sqe = slot.sqe();
        let position = usize::from(slot.sqid()) - 1;
        let went = self.issue(index, position, &sqe, issuer);
        if went == Went::Full
            && let Some(member) = self.member(position)
            && member.waiting == Some(index)
        {
            // It keeps its place among those that go on.
            member.waiting = None;
        }
        went
    }

    /// Completes every command that is `chosen` and has not gone on with `status`. What was being
    /// posted keeps the status that it had.
    #[cold]
    pub(super) fn drop_replays(&mut self, status: Status, chosen: impl Fn(&SlotState) -> bool) {
        let late = std::mem::take(&mut self.replays.late);
        let (dropped, late): (VecDeque<_>, _) = late
            .into_iter()
            .partition(|one| chosen(self.slots.get(one.slot)));
        self.replays.late = late;
        let left = std::mem::take(&mut self.replays.left);
        let mut kept = VecDeque::new();
        for one in left.into_iter().chain(dropped) {
            if !chosen(self.slots.get(one.slot)) {
                kept.push_back(one);
                continue;
            }
            match one.way {
                Way::Post if self.service.is_serving() => self.post_again(one.slot),
                Way::Post => self.release_posting(one.slot),
                // Parts of it may be with media.
                Way::Begun => self.drop_waiting(one.slot, status),
                Way::Again | Way::End(_) => self.finish(one.slot, status),
            }
        }
        self.replays.left = kept;
        if self.replays.left.is_empty() {
            self.service.set_replaying(false);
        }
    }

    /// Drops the commands that read or copy: the lane stops.
    pub(super) fn drop_late(&mut self) {
        for one in std::mem::take(&mut self.replays.late) {
            self.finish(one.slot, Status::COMMAND_ABORT_REQUESTED);
        }
    }

    /// A command was aborted, parts of which are with media: it does not go on.
    #[cold]
    pub(super) fn forget_replay(&mut self, index: u16) {
        self.replays.left.retain(|one| one.slot != index);
        self.replays.late.retain(|one| one.slot != index);
        if self.replays.left.is_empty() {
            self.service.set_replaying(false);
        }
    }

    /// Gives up a completion that was being written: the lane posts nothing any more.
    fn release_posting(&mut self, index: u16) {
        let slot = self.slots.slot(index);
        let position = usize::from(slot.sqid()) - 1;
        if let Some(Claim { entry, .. }) = slot.claim_posting() {
            self.cq.release(entry);
        }
        self.slots.put_back(index);
        self.forget_outstanding(position);
    }
}

/// Checks what was saved of the submission queue at a position.
fn check(position: usize, saved: &SqState) -> Result<(), &'static str> {
    if saved.life == SqLife::NONE {
        return Ok(());
    }
    if saved.life != SqLife::LIVE && saved.life != SqLife::REMOVING {
        return Err("a submission queue has no known state");
    }
    if usize::from(saved.sqid) != position + 1 {
        return Err("a submission queue has the identifier of another one");
    }
    if saved.tail >= saved.entries || saved.progress.head() >= saved.entries {
        return Err("a position of a submission queue is outside it");
    }
    Ok(())
}
