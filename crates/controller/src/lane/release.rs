//! Commands that wait for their tenant's turn ([`crate::gate`]): when one begins to wait, and its
//! release.
//!
//! Other commands of its queue continue: a namespace that is deferred delays no other. If a lane's
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

use super::fetch::BATCH;
use super::issue::{COPIED_PER_TURN, Issuer};
use super::message::LaneTurn;
use super::outcome::Went;
use super::queues::Queues;
use crate::gate::{FlowId, Gate};
use crate::state::{Index, SlotState};

impl Queues {
    /// A command of that flow may not go now. Returns how to continue with its queue.
    #[cold]
    pub(super) fn hold(&mut self, index: u16, position: usize, flow: FlowId) -> Went {
        let sqe = self.slots.get(index).sqe();
        if sqe.flags.fuse() != Fuse::NORMAL {
            self.wait(index, position);
            return Went::Full;
        }
        self.held.push(&mut self.slots, index, flow);
        Went::Held
    }

    /// Releases commands that may go by now.
    pub(super) fn let_go<C: Channel, G: Gate>(
        &mut self,
        issuer: &mut Issuer<'_, C, G>,
        turn: &mut LaneTurn,
    ) {
        let mut at = 0;
        while let Some(flow) = self.held.flow(at) {
            let mut left = BATCH;
            while left > 0
                && issuer.copied < COPIED_PER_TURN
                && self.service.is_serving()
                && self.held.flow(at) == Some(flow)
                && issuer.gate.pass_again(flow)
            {
                if !self.let_first_go(at, flow, issuer) {
                    break;
                }
                left -= 1;
            }
            turn.released += BATCH - left;
            // One that has become empty made room for the last.
            at += usize::from(self.held.flow(at) == Some(flow));
        }
        turn.pending += self.held.count();
    }

    /// Issues the first command of a list. False where its channel was full: it is the first one
    /// still.
    fn let_first_go<C: Channel, G: Gate>(
        &mut self,
        at: usize,
        flow: FlowId,
        issuer: &mut Issuer<'_, C, G>,
    ) -> bool {
        let Some(index) = self.held.first(at) else {
            return false;
        };
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
        self.held.advance(at, behind);
        true
    }

    /// Takes a command out of the list that it waits in. True where it did.
    #[cold]
    pub(super) fn forget_held(&mut self, index: u16) -> bool {
        self.held
            .take(&mut self.slots, |slot, _| slot == index)
            .is_some()
    }

    /// Completes every command that is `chosen` and waits with `status`.
    #[cold]
    pub(super) fn drop_held(&mut self, status: Status, chosen: impl Fn(&SlotState) -> bool) {
        while let Some(index) = self.take_held(&chosen) {
            self.drop_waiting(index, status);
        }
    }

    /// Takes one of them out, which the caller completes.
    #[cold]
    pub(super) fn take_held(&mut self, chosen: impl Fn(&SlotState) -> bool) -> Option<u16> {
        self.held.take(&mut self.slots, |_, slot| chosen(slot))
    }

    /// A ticket is about to come back: informs the gate if it is the last one of its command.
    #[inline]
    pub(super) fn leave<G: Gate>(&mut self, index: u16, generation: u16, gate: &mut G) {
        if let Some(slot) = self.slots.named(index, generation)
            && slot.outstanding == 1
            && let Some(flow) = slot.flow()
        {
            slot.flow = Index::NONE;
            gate.ended(flow, slot.work(), slot.since());
        }
    }

    /// Tells the gate that no medium has anything of this lane any more, as far as anybody will
    /// hear.
    pub(super) fn leave_all<G: Gate>(&mut self, gate: &mut G) {
        for index in 0..self.slots.len() as u16 {
            let slot = self.slots.slot(index);
            if let Some(flow) = slot.flow() {
                slot.flow = Index::NONE;
                gate.ended(flow, slot.work(), slot.since());
            }
        }
    }
}
