//! An entrance: a listening socket, the connections that are no host's yet, and the hosts that have
//! come by it. Each host gets a controller of its own.
//!
//! Many connections may introduce themselves at the same time. Where there are too many, one that
//! has sent nothing gives way first: connections that send nothing do not keep hosts out.
//!
//! A connection of some protocols is a host's as soon as it comes: such an entrance has
//! [`NoCallers`] in the place of its [`Callers`].
//!
//! It knows no protocol: what a connection sends is its owner's to read.

mod callers;
mod listener;
mod roster;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use controller::ControllerConfig;
use engine::{ControllerSlot, SubsystemSlot};
use port::time::Time;

#[cfg(test)]
pub(super) use self::callers::MAX_CONNECTIONS;
pub(super) use self::callers::{Caller, Callers};
pub(crate) use self::listener::ACCEPTS_AT_ONCE;
use self::listener::{Listener, Socket};
pub(crate) use self::roster::Roster;
use crate::answer::Answer;
use crate::poller::{Poller, Source};
use crate::presence::Presence;

/// The connections of an entrance that are no host's.
pub(super) trait Connections: Sized {
    /// None yet.
    fn new() -> io::Result<Self>;

    /// The poller that watches them.
    fn poller(&self) -> Option<&Poller>;

    /// Finds the next deadline, where that has come.
    fn note_deadlines(&mut self, now: Time);

    /// A time before which none is due.
    fn due(&self) -> Option<Time>;
}

impl<C: Caller> Connections for Callers<C> {
    fn new() -> io::Result<Self> {
        Callers::new()
    }

    fn poller(&self) -> Option<&Poller> {
        Some(Callers::poller(self))
    }

    fn note_deadlines(&mut self, now: Time) {
        Callers::note_deadlines(self, now);
    }

    fn due(&self) -> Option<Time> {
        Callers::due(self)
    }
}

/// Every connection is a host's at once.
#[derive(Debug)]
pub(super) struct NoCallers;

impl Connections for NoCallers {
    fn new() -> io::Result<Self> {
        Ok(NoCallers)
    }

    fn poller(&self) -> Option<&Poller> {
        None
    }

    fn note_deadlines(&mut self, _: Time) {}

    fn due(&self) -> Option<Time> {
        None
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Entrance<S, C> {
    slot: ControllerSlot,
    listener: Listener<S>,
    pub(super) callers: C,
    pub(super) roster: Roster,
}

impl<S: Socket, C: Connections> Entrance<S, C> {
    /// No connection yet. `template`: the configuration of the hosts' controllers; `hosts`: the
    /// maximum number of hosts.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(super) fn new(
        template: ControllerConfig,
        (slot, subsystem): (ControllerSlot, SubsystemSlot),
        (socket, hosts): (S, usize),
        presence: Arc<Presence>,
    ) -> io::Result<Self> {
        Ok(Self {
            slot,
            listener: Listener::new(socket),
            callers: C::new()?,
            roster: Roster::new(template, subsystem, hosts, presence),
        })
    }

    /// Its listening socket.
    pub(super) fn socket(&self) -> &S {
        &self.listener.socket
    }

    /// Watches the listening socket, unless it accepts none, and the connections.
    pub(super) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        let source = Source::Door(self.slot.0);
        self.listener.watch(poller, source, self.callers.poller())
    }

    fn look(&mut self, poller: &Poller) {
        if let Err(error) = self.watch(poller) {
            tracing::error!(
                controller = self.roster.name(),
                "cannot wait for hosts: {error}"
            );
        }
    }

    /// After the connections were served: notes their deadlines, and watches what is to be watched.
    pub(super) fn settle(&mut self, now: Time, poller: &Poller) {
        self.callers.note_deadlines(now);
        self.look(poller);
    }

    /// Connections that have come, a bounded number.
    pub(super) fn accept(&mut self, now: Time) -> Vec<(OwnedFd, S::From)> {
        self.listener.accept(&mut self.roster, now, ACCEPTS_AT_ONCE)
    }

    /// The next connection that has come.
    pub(super) fn accept_one(&mut self, now: Time) -> Option<(OwnedFd, S::From)> {
        self.listener.accept(&mut self.roster, now, 1).pop()
    }

    /// Accepts no connection while `is_held`: others wait in the listening socket.
    pub(super) fn hold(&mut self, is_held: bool, poller: &Poller) {
        if self.listener.hold(is_held) {
            self.look(poller);
        }
    }

    /// The next deadline of its connections: a time before which there is none.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let accepts_at = self.listener.accepts_at();
        self.callers.due().into_iter().chain(accepts_at).min()
    }

    /// Accepts no connection until [`Self::open`]. Others wait in the listening socket, for this
    /// process or for the one that takes over.
    pub(super) fn close(&mut self, poller: &Poller) {
        self.listener.close();
        self.look(poller);
    }

    /// Accepts connections again.
    pub(super) fn open(&mut self, poller: &Poller) {
        if self.listener.open() {
            self.look(poller);
        }
    }

    /// Begins the removal: accepts no connection any more. False where it has begun before.
    pub(super) fn remove(&mut self, poller: &Poller, answer: Answer<()>) -> bool {
        if !self.roster.remove(answer) {
            return false;
        }
        self.listener.end();
        let forgotten = self.watch(poller).and_then(|()| {
            let connections = self.callers.poller();
            connections.map_or(Ok(()), |connections| poller.remove(connections))
        });
        if let Err(error) = forgotten {
            tracing::error!(
                controller = self.roster.name(),
                "cannot forget a socket: {error}"
            );
        }
        true
    }

    /// Reports the end of the removal. The listening socket is closed by then.
    pub(super) fn finish(self) {
        drop(self.listener);
        self.roster.finish();
    }
}
