//! Mail between reactors, and the interrupt lines that go with it.

use engine::{ControllerSlot, EngineId, Moved};

use super::Reactor;
use crate::hosted::Hosted;
use crate::message::Message;

impl Reactor {
    /// Handles mail from other reactors, and sends mail to them.
    pub(super) fn exchange_mail(&mut self) -> bool {
        let any = !self.mailbox.is_empty() && self.take_messages();
        self.carry_mail();
        self.place_queues();
        while let Some(Moved {
            controller,
            cqid,
            result,
        }) = self.engine.take_moved()
        {
            let mut asked = self.moves.iter();
            if let Some(at) = asked.position(|m| (m.slot, m.cqid) == (controller, cqid)) {
                self.moves.swap_remove(at).answer.send(result);
            }
        }
        any
    }

    /// Sends mail to other reactors, as far as their mailboxes have room.
    pub(super) fn carry_mail(&mut self) {
        loop {
            while let Some((to, message)) = self.late.pop_front() {
                if let Err(message) = self.peers[usize::from(to.0)].try_send(message) {
                    return self.late.push_front((to, message));
                }
            }
            let Some((to, mail)) = self.engine.take_mail() else {
                return;
            };
            let arrives = mail.brings_lane_of();
            if let Some(slot) = arrives {
                self.introduce(slot, to);
            }
            self.late.push_back((to, Message::Mail(self.id, mail)));
            if let Some(slot) = arrives {
                self.send_lines(slot, to);
                self.note_departure(slot);
            }
        }
    }

    /// Sends a reactor the interrupt lines for its queues of a controller of this reactor.
    pub(super) fn send_lines(&mut self, slot: ControllerSlot, to: EngineId) {
        let hosted = self.hosted.get(slot.0).and_then(Option::as_ref);
        let lines = hosted.map(Hosted::lines).unwrap_or_default();
        self.late
            .push_back((to, Message::Lines(self.id, slot, lines)));
    }
}
