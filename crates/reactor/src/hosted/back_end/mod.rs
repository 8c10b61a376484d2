//! The entrance of front ends of vhost-user-blk: it serves one at a time.
//!
//! A connection is a front end as soon as it is accepted: nothing is negotiated before. It needs a
//! controller, which the reactor makes. Where a front end is there, another one is accepted only to
//! be refused. Where one has left, others wait until its controller is gone: commands of the former
//! front end must not follow those of the next one. That is bounded by the end of the controller.
//! They wait in the listening socket, except one that was accepted before the reactor knew.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use controller::ControllerConfig;
use engine::{ControllerSlot, SubsystemSlot};
use port::time::Time;
use transport::vhost_user::End;

use super::entrance::{Entrance, NoCallers, Roster};
use crate::answer::Answer;
use crate::message::VhostListening;
use crate::poller::Poller;
use crate::presence::Presence;

/// Front ends at the same time.
const FRONT_ENDS: usize = 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct BackEnd {
    entrance: Entrance<UnixListener, NoCallers>,
    rings: u16,
    /// Connections may have come since they were accepted last.
    is_called: bool,
    /// The front end before it has left, and its controller has not gone.
    is_held: bool,
    /// A connection that was accepted and waits for that.
    waiting: Option<OwnedFd>,
}

impl BackEnd {
    /// No front end. `template`: the configuration of the front ends' controllers.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(crate) fn new(
        template: ControllerConfig,
        slot: ControllerSlot,
        subsystem: SubsystemSlot,
        listening: VhostListening,
        presence: Arc<Presence>,
    ) -> io::Result<Self> {
        let VhostListening { listener, rings } = listening;
        let (at, socket) = ((slot, subsystem), (listener, FRONT_ENDS));
        Ok(BackEnd {
            entrance: Entrance::new(template, at, socket, presence)?,
            rings,
            is_called: false,
            is_held: false,
            waiting: None,
        })
    }

    /// Its front end.
    pub(crate) fn roster(&self) -> &Roster {
        &self.entrance.roster
    }

    pub(crate) fn roster_mut(&mut self) -> &mut Roster {
        &mut self.entrance.roster
    }

    /// Rings of the device of a front end.
    pub(crate) fn rings(&self) -> u16 {
        self.rings
    }

    /// Watches the listening socket, unless it accepts none.
    pub(crate) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        self.entrance.watch(poller)
    }

    /// Connections may have come, which the reactor accepts.
    pub(crate) fn poll(&mut self) -> bool {
        self.is_called = true;
        true
    }

    /// Whether connections may have come since the last call.
    pub(crate) fn take_called(&mut self) -> bool {
        std::mem::take(&mut self.is_called)
    }

    /// Whether a connection that has waited is to be served.
    pub(crate) fn is_to_serve(&self) -> bool {
        self.is_called && !self.is_held
    }

    /// The next connection. None while the place is being vacated.
    pub(crate) fn accept(&mut self, now: Time) -> Option<OwnedFd> {
        if self.is_held {
            return None;
        }
        let waiting = self.waiting.take();
        waiting.or_else(|| self.entrance.accept_one(now).map(|(stream, ())| stream))
    }

    /// Keeps an accepted connection while the place is being vacated.
    pub(crate) fn keep(&mut self, stream: OwnedFd) {
        self.waiting = Some(stream);
    }

    /// After connections were accepted: watches the listening socket as is due.
    pub(crate) fn settle(&mut self, now: Time, poller: &Poller) {
        self.entrance.settle(now, poller);
    }

    /// Has other front ends wait: the one that was there has left, and its controller has not.
    pub(crate) fn hold(&mut self, poller: &Poller) {
        self.is_held = true;
        self.entrance.hold(true, poller);
    }

    /// Accepts front ends again: the controller of the former one is gone.
    pub(crate) fn release(&mut self, poller: &Poller) {
        self.is_held = false;
        self.is_called |= self.waiting.is_some();
        self.entrance.hold(false, poller);
    }

    /// A connection closes that came while a front end was there.
    pub(crate) fn refuse(&mut self, now: Time) {
        let roster = self.roster_mut();
        roster.counts_mut().refuse(End::Taken.name());
        if roster.tells_of_host(now) {
            tracing::warn!(
                controller = roster.name(),
                "a second front end is refused: one VM at a time has the disk; end the other with `nvmirage disconnect`"
            );
        }
    }

    /// A connection closes that came where not exactly one namespace can be served.
    pub(crate) fn refuse_without_disk(&mut self, disks: usize, now: Time) {
        let roster = self.roster_mut();
        roster.counts_mut().refuse(End::NoDisk.name());
        if roster.tells_of_host(now) {
            tracing::warn!(
                controller = roster.name(),
                "a front end is refused: the controller has {disks} namespaces of the NVM command set for every host, and vhost-user-blk serves exactly one; attach one, and detach the others"
            );
        }
    }

    /// The next deadline of the listening socket.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.entrance.next_deadline()
    }

    /// Accepts no connection until [`Self::open`], and closes one that was accepted and waits.
    pub(crate) fn close(&mut self, poller: &Poller) {
        self.waiting = None;
        self.entrance.close(poller);
    }

    /// Accepts connections again.
    pub(crate) fn open(&mut self, poller: &Poller) {
        self.entrance.open(poller);
    }

    /// Begins the removal: accepts no connection any more, and closes one that was accepted and
    /// waits.
    pub(crate) fn remove(&mut self, poller: &Poller, answer: Answer<()>) {
        self.waiting = None;
        self.entrance.remove(poller, answer);
    }

    /// Reports the end of the removal. The listening socket is closed by then.
    pub(crate) fn finish(self) {
        self.entrance.finish();
    }
}

#[cfg(test)]
mod tests;
