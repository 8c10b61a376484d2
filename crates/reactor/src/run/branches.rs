//! Queues of hosts over NVMe/TCP that are served where their lanes live.
//!
//! A queue follows its lane: from the reactor of its controller to that of its lane, and back when
//! the lane is there no more, when the queue has ended, or when its association asks for it. Mail
//! about the lane goes before the queue, so a reactor that gets a queue has its lane.

use engine::{ControllerSlot, EngineId};
use port::time::Time;
use transport::nvme_tcp::{Branch, End};

use super::Reactor;
use crate::branches::Served;
use crate::hosted::Hosted;
use crate::hosted::association::Attached;
use crate::leaving::Whose;
use crate::message::Message;
use crate::poller::{Interest, Source};

impl Reactor {
    fn attached_mut(&mut self, index: usize) -> Option<&mut Attached> {
        let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
        hosted.and_then(Hosted::association_mut)
    }

    /// Whether all mail about lanes goes before a message that is written now.
    fn has_carried_mail(&mut self) -> bool {
        self.carry_mail();
        !self.engine.has_mail()
    }

    /// The lane of some queue of a controller leaves for another reactor.
    pub(super) fn note_departure(&mut self, slot: ControllerSlot) {
        if let Some(attached) = self.attached_mut(slot.0) {
            attached.is_to_place = true;
        }
    }

    /// Sends the queues of all associations after their lanes.
    pub(super) fn place_queues(&mut self) {
        for at in 0..self.associations.len() {
            self.place_queues_of(self.associations[at]);
        }
    }

    /// Sends the queues of an association that are here to the reactors of their lanes.
    #[inline]
    pub(super) fn place_queues_of(&mut self, index: usize) {
        let attached = self.attached_mut(index);
        if attached.is_some_and(|attached| attached.is_to_place) && self.has_carried_mail() {
            self.send_queues_of(index);
        }
    }

    fn send_queues_of(&mut self, index: usize) {
        let slot = ControllerSlot(index);
        let has_lanes_away = self.engine.has_lanes_away();
        let Some(attached) = self.attached_mut(index) else {
            return;
        };
        attached.is_to_place = false;
        if !has_lanes_away {
            return;
        }
        let may = attached.may_depart();
        let mut lanes = self.engine.lanes_away(slot);
        lanes.retain(|(qid, _)| may.contains(qid));
        for (qid, to) in lanes {
            let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
            let attached = hosted.and_then(Hosted::association_mut);
            let branch = attached.and_then(|attached| attached.depart(qid, &self.poller));
            if let Some(branch) = branch {
                self.away.push((slot, qid, to));
                let message = Message::Branch(self.id, slot, Box::new(branch));
                self.late.push_back((to, message));
            }
        }
        self.note_transition(index);
        self.carry_mail();
    }

    /// Asks for queues of an association.
    pub(super) fn recall(&mut self, slot: ControllerSlot, qids: Vec<u16>) {
        for qid in qids {
            // The last one: an earlier one of another host was asked for already.
            let away = self.away.iter().rev();
            let found = away.clone().find(|(of, id, _)| (*of, *id) == (slot, qid));
            if let Some(&(_, _, at)) = found {
                let message = Message::Recall(self.id, slot, qid);
                self.late.push_back((at, message));
            }
        }
    }

    /// A queue of this reactor's controller comes back.
    pub(super) fn take_back(
        &mut self,
        from: EngineId,
        slot: ControllerSlot,
        branch: Branch,
        end: Option<&End>,
    ) {
        let now = self.clock.now();
        let is_it = |away: &(ControllerSlot, u16, EngineId)| *away == (slot, branch.qid(), from);
        if let Some(at) = self.away.iter().position(is_it) {
            self.away.remove(at);
        }
        let hosted = self.hosted.get_mut(slot.0).and_then(Option::as_mut);
        let attached = hosted.and_then(Hosted::association_mut);
        let controller = self.engine.controller_mut(slot);
        let left = match (attached, controller) {
            (Some(attached), Some(controller)) => {
                attached.come_back(branch, end, controller, now).err()
            }
            _ => Some(branch),
        };
        if let Some(branch) = left {
            self.leaving.add(branch.leave(now), Whose::Host, now);
            return;
        }
        self.poll_hosted(slot.0, now, Hosted::poll);
    }

    /// Takes a queue of another reactor's controller.
    pub(super) fn take_branch(
        &mut self,
        home: EngineId,
        slot: ControllerSlot,
        branch: Box<Branch>,
    ) {
        let Some(lane) = self.engine.find_guest(home, slot, branch.qid()) else {
            let message = Message::BranchBack(self.id, slot, branch, None);
            return self.late.push_back((home, message));
        };
        let now = self.clock.now();
        let at = self.branches.add(Served {
            home,
            slot,
            lane,
            branch,
            has_more: true,
            worked: now,
            watched: None,
        });
        self.poll_branch(at, now, false);
    }

    /// Sends a queue back that its association has asked for.
    pub(super) fn return_branch(&mut self, home: EngineId, slot: ControllerSlot, qid: u16) {
        if let Some(at) = self.branches.find(home, slot, qid) {
            self.send_back(at, None);
        }
    }

    fn send_back(&mut self, at: usize, end: Option<End>) {
        let Some(served) = self.branches.remove(at) else {
            return;
        };
        if served.watched.is_some() {
            // An error leaves an event of a connection that is elsewhere, which is not found.
            let _ = self.poller.remove(&*served.branch);
        }
        let message = Message::BranchBack(self.id, served.slot, served.branch, end);
        self.late.push_back((served.home, message));
    }

    /// Serves the queues of other reactors' controllers: what their lanes have completed is sent,
    /// and the sockets of those on which something came or was sent lately are read. True if it
    /// did something.
    #[inline]
    pub(super) fn serve_branches(&mut self, now: Time, posted: bool) -> bool {
        let mut worked = false;
        let has_guest_left = self.engine.take_guest_left();
        for at in 0..self.branches.len() {
            let Some(served) = self.branches.get_mut(at) else {
                continue;
            };
            let is_due = served.is_hot(now) || posted && served.branch.has_posted();
            if is_due || has_guest_left && !self.engine.has_guest(served.lane) {
                worked |= self.poll_branch(at, now, true);
            }
        }
        worked
    }

    /// Polls those whose deadline has come.
    pub(super) fn poll_due_branches(&mut self, now: Time) -> bool {
        let due = self.branches.take_due(now);
        let mut worked = false;
        for at in due {
            worked |= self.poll_branch(at, now, false);
        }
        worked
    }

    /// Polls a queue; a hot poll, which no event has led to, may leave its socket alone. True if it
    /// did something.
    pub(super) fn poll_branch(&mut self, at: usize, now: Time, is_hot: bool) -> bool {
        let Some(served) = self.branches.get_mut(at) else {
            return false;
        };
        let Some(lane) = self.engine.guest_mut(served.lane) else {
            // It is sent behind the mail about its lane.
            served.has_more = true;
            if self.has_carried_mail() {
                self.send_back(at, None);
            }
            return true;
        };
        let polled = if is_hot {
            served.branch.poll_hot(lane, now)
        } else {
            served.branch.poll(lane, now)
        };
        served.has_more = polled.worked;
        if polled.worked {
            served.worked = now;
        }
        if polled.ended.is_some() {
            self.send_back(at, polled.ended);
            return true;
        }
        let deadline = served.branch.next_deadline();
        let output = served.branch.wants_write();
        if served.watched != Some(output) {
            served.watched = Some(output);
            let interest = Interest {
                input: true,
                output,
            };
            if let Err(error) = self
                .poller
                .set(&*served.branch, Source::Branch(at), interest)
            {
                tracing::error!("cannot watch a host: {error}");
            }
        }
        self.branches.note_deadline(deadline);
        polled.worked
    }
}
