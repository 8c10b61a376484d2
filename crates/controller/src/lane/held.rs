//! Commands that wait for their tenant's turn: their list in a lane, and their release
//! ([`crate::gate`]).
//!
//! Such a command was fetched and stays in its slot, in a list of its flow that links the slots.
//! Other commands of its queue continue: a namespace that is held back delays no other. If a lane's
//! controller has only one namespace, there is none to delay, and the commands behind such a
//! command stay in the host's ring.
//!
//! Invariants:
//! - Like any fetched command it has a slot and an entry of the completion queue, and nothing else:
//!   it has no ticket out unless a part of it was issued before, and no address of the host is
//!   kept.
//! - Commands of a flow are issued in the order in which they were fetched.
//! - One of two fused commands waits at the head of its queue, because the next command is its
//!   other half.

use nvme_spec::Status;
use nvme_spec::sqe::Fuse;
use port::Channel;
use port::time::Time;

use super::fetch::{BATCH, Went};
use super::issue::{Asked, COPIED_PER_TURN, Issuer};
use super::message::LaneTurn;
use super::queues::Queues;
use crate::gate::{FlowId, Gate, Pass, Work};
use crate::state::{Index, SlotState};

/// The commands of a lane that wait.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// One for each flow of which something waits: at most as many as there are namespaces.
    lists: Vec<List>,
    count: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    flow: FlowId,
    first: u16,
    last: u16,
}

impl Held {
    /// Commands that wait.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count
    }
}

impl SlotState {
    /// The flow of the command while a medium has it.
    fn flow(&self) -> Option<FlowId> {
        self.flow.get().map(FlowId)
    }

    /// Notes that a medium has the command since then.
    fn enter(&mut self, flow: FlowId, bytes: u32, since: Time) {
        self.flow = Index::to(flow.0);
        self.charged = bytes;
        self.since = since.0;
    }

    /// Its cost to its gate.
    fn work(&self) -> Work {
        Work {
            opcode: self.opcode(),
            bytes: self.charged,
        }
    }
}

impl Queues {
    /// A command of that flow may not go now. What to go on with in its queue.
    #[cold]
    pub(super) fn hold(&mut self, index: u16, position: usize, flow: FlowId) -> Went {
        let sqe = self.slots.get(index).sqe();
        if sqe.flags.fuse() != Fuse::NORMAL {
            self.wait(index, position);
            return Went::Full;
        }
        self.slots.slot(index).behind = Index::NONE;
        self.held.count += 1;
        let lists = &mut self.held.lists;
        match lists.iter_mut().find(|list| list.flow == flow) {
            Some(list) => {
                let before = std::mem::replace(&mut list.last, index);
                self.slots.slot(before).behind = Index::to(index);
            }
            None => lists.push(List {
                flow,
                first: index,
                last: index,
            }),
        }
        Went::Held
    }

    /// Releases commands that may go by now.
    pub(super) fn let_go<C: Channel, G: Gate>(
        &mut self,
        issuer: &mut Issuer<'_, C, G>,
        turn: &mut LaneTurn,
    ) {
        let mut at = 0;
        while let Some(&List { flow, .. }) = self.held.lists.get(at) {
            let mut left = BATCH;
            while left > 0
                && issuer.copied < COPIED_PER_TURN
                && self.service.is_serving()
                && self.goes_on(at, flow)
                && issuer.gate.pass_again(flow)
            {
                if !self.let_first_go(at, flow, issuer) {
                    break;
                }
                left -= 1;
            }
            turn.released += BATCH - left;
            // One that has become empty made room for the last.
            at += usize::from(self.goes_on(at, flow));
        }
        turn.pending += self.held.count;
    }

    /// Whether the list at `at` belongs to this flow.
    fn goes_on(&self, at: usize, flow: FlowId) -> bool {
        matches!(self.held.lists.get(at), Some(list) if list.flow == flow)
    }

    /// Issues the first command of a list. False where its channel was full: it is the first one
    /// still.
    fn let_first_go<C: Channel, G: Gate>(
        &mut self,
        at: usize,
        flow: FlowId,
        issuer: &mut Issuer<'_, C, G>,
    ) -> bool {
        let index = self.held.lists[at].first;
        let (behind, sqe, position) = {
            let slot = self.slots.get(index);
            let position = usize::from(slot.sqid()) - 1;
            (slot.behind, slot.sqe(), position)
        };
        let waits = self
            .member(position)
            .and_then(|member| member.waiting.take());
        let went = self.issue_passed(index, position, &sqe, issuer, Some(flow));
        let is_full = went == Went::Full;
        if let Some(member) = self.member(position) {
            // It keeps its place here, and another one its place at the head of the queue.
            member.waiting = waits;
        }
        if is_full {
            return false;
        }
        self.held.count -= 1;
        match behind.get() {
            None => {
                self.held.lists.swap_remove(at);
            }
            Some(next) => self.held.lists[at].first = next,
        }
        true
    }

    /// Takes a command out of the list that it waits in. True where it did.
    #[cold]
    pub(super) fn forget_held(&mut self, index: u16) -> bool {
        self.take_held(|slot, _| slot == index).is_some()
    }

    /// Completes every command that is `chosen` and waits with `status`.
    #[cold]
    pub(super) fn drop_held(&mut self, status: Status, chosen: impl Fn(&SlotState) -> bool) {
        while self.drop_one_held(status, &chosen) {}
    }

    /// Completes one of them. True where there was one.
    #[cold]
    pub(super) fn drop_one_held(
        &mut self,
        status: Status,
        chosen: impl Fn(&SlotState) -> bool,
    ) -> bool {
        let found = self.take_held(|_, slot| chosen(slot));
        if let Some(index) = found {
            self.drop_waiting(index, status);
        }
        found.is_some()
    }

    /// Takes the first command that is `chosen` out of its list.
    fn take_held(&mut self, chosen: impl Fn(u16, &SlotState) -> bool) -> Option<u16> {
        for at in 0..self.held.lists.len() {
            let List { first, .. } = self.held.lists[at];
            let (mut before, mut next) = (None, Some(first));
            while let Some(index) = next {
                let slot = self.slots.get(index);
                let behind = slot.behind.get();
                if chosen(index, slot) {
                    self.unlink(at, before, behind);
                    return Some(index);
                }
                (before, next) = (Some(index), behind);
            }
        }
        None
    }

    /// Removes the commands between two others from a list.
    fn unlink(&mut self, at: usize, before: Option<u16>, behind: Option<u16>) {
        self.held.count -= 1;
        let list = &mut self.held.lists[at];
        match (before, behind) {
            (None, None) => {
                self.held.lists.swap_remove(at);
            }
            (None, Some(behind)) => list.first = behind,
            (Some(before), None) => {
                list.last = before;
                self.slots.slot(before).behind = Index::NONE;
            }
            (Some(before), Some(behind)) => {
                self.slots.slot(before).behind = Index::to(behind);
            }
        }
    }

    /// A ticket is about to come back: informs the gate if it is the last one of its command.
    #[inline]
    pub(super) fn leave<G: Gate>(&mut self, index: u16, generation: u16, gate: &mut G) {
        if let Some(slot) = self.slots.named(index, generation)
            && slot.outstanding == 1
            && let Some(flow) = slot.flow()
        {
            slot.flow = Index::NONE;
            gate.ended(flow, slot.work(), Time(slot.since));
        }
    }

    /// Tells the gate that no medium has anything of this lane any more, as far as anybody will
    /// hear.
    pub(super) fn leave_all<G: Gate>(&mut self, gate: &mut G) {
        for index in 0..self.slots.len() as u16 {
            let slot = self.slots.slot(index);
            if let Some(flow) = slot.flow() {
                slot.flow = Index::NONE;
                gate.ended(flow, slot.work(), Time(slot.since));
            }
        }
    }
}

impl<C: Channel, G: Gate> Issuer<'_, C, G> {
    /// Whether a fetched command may go, as far as it is known: its flow, if it has one.
    ///
    /// # Errors
    /// The flow that it waits for.
    #[inline]
    pub(super) fn may_pass(&mut self, nsid: u32) -> Result<Option<FlowId>, FlowId> {
        // What names no namespace, or all of them, is no flow's.
        let Some(namespace) = self.namespaces.get(nsid) else {
            return Ok(None);
        };
        match self.gate.pass(namespace) {
            Pass::Free => Ok(None),
            Pass::Go(flow) => Ok(Some(flow)),
            Pass::Wait(flow) => Err(flow),
        }
    }
}

/// Reports the outcome of an admitted command to the gate.
#[inline(always)]
pub(super) fn tell<G: Gate>(
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
