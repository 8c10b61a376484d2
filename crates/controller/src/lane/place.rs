//! The place of a lane: its controller's reactor, or another, as a visitor.
//!
//! A visitor receives its controller's messages by mail. Before it fetches it makes sure that it
//! has received every change that the host may already know of ([`memory::MailCount`]). It moves
//! when it holds nothing ([`Lane::is_empty`]): media know only the channels of their reactor, and
//! tickets the key that the lane has there.

use std::sync::Arc;

use memory::MailCount;
use port::namespace::NamespaceTable;
use port::ticket::OwnerKey;

use super::Lane;

/// The place of a lane.
#[derive(Debug)]
pub(super) struct Place {
    mail_count: Arc<MailCount>,
    /// How many messages a visitor has received; `None` at home, where it receives them at once.
    taken: Option<usize>,
}

impl Place {
    pub(super) fn at_home(mail_count: Arc<MailCount>) -> Self {
        Place {
            mail_count,
            taken: None,
        }
    }

    pub(super) fn come_home(&mut self) {
        self.taken = None;
    }

    /// Whether there is mail to receive before anything is fetched. After the load of a doorbell.
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        self.taken
            .is_some_and(|taken| taken != self.mail_count.count())
    }
}

impl Lane {
    /// Makes it a visitor, with that key there. Its controller has sent all of its messages.
    pub fn visit(&mut self, key: OwnerKey) {
        self.key = key;
    }

    /// It leaves its controller's reactor, which has sent all of its messages.
    pub fn leave_home(&mut self) {
        let place = &mut self.queues.place;
        place.taken = Some(place.mail_count.count());
    }

    /// A visitor has taken its mail up to that count.
    pub fn has_taken(&mut self, mail_count: usize) {
        self.queues.place.taken = Some(mail_count);
    }

    /// Count of its controller's messages to its lanes.
    #[must_use]
    pub fn mail_count(&self) -> &Arc<MailCount> {
        &self.queues.place.mail_count
    }

    /// Whether its controller has told its lanes something that has not come here yet, and that the
    /// host may know of. After a load that shows what the host has done.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.queues.place.is_behind()
    }

    /// The namespaces, as far as its controller has told it.
    #[must_use]
    pub fn namespaces(&self) -> &NamespaceTable {
        &self.namespaces
    }

    /// Rings the doorbells of a submission queue and of the completion queue, for a host that is
    /// served on the lane's reactor: no message is needed.
    pub fn ring(&mut self, sqid: u16, tail: u32, head: u32) {
        let cqid = self.cqid();
        self.queues.doorbells.store((sqid, tail), (cqid, head));
        self.kick();
    }

    /// Its key on its controller's reactor.
    #[must_use]
    pub fn home_key(&self) -> OwnerKey {
        self.home_key
    }

    /// Whether it is paused and holds nothing: no command in any stage, not even an aborted one,
    /// and no events. Then it may be moved from one reactor's table to another's.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let queues = &self.queues;
        let holds = queues.slots.free() as usize != queues.slots.len();
        queues.service.is_to_move() && !holds && !queues.unannounced.is_any() && !self.has_news()
    }

    /// Ends it after it has stopped: its commands for the subsystem were aborted before.
    pub fn end(mut self) {
        while let Some(forward) = self.take_forward() {
            forward.ticket.retire();
        }
    }
}
