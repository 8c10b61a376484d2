//! The entrance of NBD clients: what their connections send before they have chosen an export.
//!
//! An export is a namespace of the entrance's controller. A connection is offered those that are
//! there when it is accepted. Where it has chosen, it needs a controller, which the reactor makes.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use controller::ControllerConfig;
use engine::{ControllerSlot, SubsystemSlot};
use port::time::Time;
use transport::nbd::{Arrival, End, Newcomer, Offers, Progress, Tls};

use super::entrance::{Caller, Callers, Entrance, Roster};
use crate::answer::Answer;
use crate::message::{NbdListener, NbdListening};
use crate::poller::{Interest, Poller};
use crate::presence::Presence;

/// Refusals for a key or a certificate: another key, none of that name, no certificate.
const KEYLESS: [&str; 3] = ["tls-key", "tls-identity", "tls-certificate"];

/// A connection that has chosen no export, and where it comes from.
#[derive(Debug)]
struct Connection {
    newcomer: Newcomer,
    from: Option<SocketAddr>,
}

impl Caller for Connection {
    fn deadline(&self) -> Time {
        self.newcomer.deadline()
    }

    fn interest(&self) -> Interest {
        Interest {
            input: self.newcomer.wants_read(),
            output: self.newcomer.wants_write(),
        }
    }

    fn rank(&self) -> u8 {
        u8::from(!self.newcomer.is_silent()) + u8::from(self.newcomer.is_secured())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.newcomer.as_fd()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Exports {
    entrance: Entrance<NbdListener, Callers<Connection>>,
    /// TLS, where clients come through that.
    tls: Option<Arc<Tls>>,
    /// Connections that are to be offered something.
    accepted: Vec<(OwnedFd, Option<SocketAddr>)>,
    /// Offers to connections, and the generation of the namespaces that they are of.
    offers: (Option<u64>, Arc<Offers>),
    /// Clients that have chosen, and where they come from.
    arrivals: VecDeque<(Arrival, Option<SocketAddr>)>,
}

impl Exports {
    pub(crate) fn new(
        template: ControllerConfig,
        slot: ControllerSlot,
        subsystem: SubsystemSlot,
        listening: NbdListening,
        presence: Arc<Presence>,
    ) -> io::Result<Self> {
        let NbdListening {
            listener,
            clients,
            tls,
        } = listening;
        let (at, socket) = ((slot, subsystem), (listener, clients));
        Ok(Exports {
            entrance: Entrance::new(template, at, socket, presence)?,
            tls,
            accepted: Vec::new(),
            offers: (None, Arc::default()),
            arrivals: VecDeque::new(),
        })
    }

    /// Its clients.
    pub(crate) fn roster(&self) -> &Roster {
        &self.entrance.roster
    }

    pub(crate) fn roster_mut(&mut self) -> &mut Roster {
        &mut self.entrance.roster
    }

    /// Watches the listening socket, unless it accepts none, and the connections.
    pub(crate) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        self.entrance.watch(poller)
    }

    /// Accepts connections, which are to be greeted then, and serves those that were; true if it
    /// did something.
    pub(crate) fn poll(&mut self, now: Time, poller: &Poller) -> bool {
        self.accepted.extend(self.entrance.accept(now));
        let mut worked = !self.accepted.is_empty();
        for number in self.entrance.callers.take_ready(now) {
            worked |= self.serve(number, now);
        }
        self.entrance.settle(now, poller);
        worked
    }

    /// Whether connections were accepted that are to be greeted.
    pub(crate) fn is_to_greet(&self) -> bool {
        !self.accepted.is_empty()
    }

    /// Whether the namespaces of this generation are those of the offers.
    pub(crate) fn has_offers_of(&self, generation: u64) -> bool {
        self.offers.0 == Some(generation)
    }

    /// Offers these to connections that are greeted from now on.
    pub(crate) fn set_offers(&mut self, generation: u64, offers: Offers) {
        self.offers = (Some(generation), Arc::new(offers));
    }

    /// Has connections that are greeted from now on use this TLS. Those that have chosen nothing
    /// were greeted with the former one: they begin again.
    pub(crate) fn set_tls(&mut self, tls: Arc<Tls>) {
        self.tls = Some(tls);
        self.entrance.callers.retain(|_| false);
    }

    /// Offers the namespaces to connections that were accepted.
    pub(crate) fn greet(&mut self, now: Time) {
        for (stream, from) in std::mem::take(&mut self.accepted) {
            let offers = self.offers.1.clone();
            let newcomer = match &self.tls {
                None => Newcomer::new(stream, offers, now),
                Some(tls) => {
                    let address = from.map(|from| from.ip());
                    Newcomer::with_tls(stream, offers, tls.clone(), address, now)
                }
            };
            let newcomer = match newcomer {
                Ok(newcomer) => newcomer,
                Err(error) => {
                    tracing::debug!(
                        controller = self.roster().name(),
                        "cannot take a connection: {error}"
                    );
                    continue;
                }
            };
            let (number, displaced) = self.entrance.callers.add(Connection { newcomer, from });
            if displaced.is_some() {
                self.roster_mut().counts_mut().refuse("displaced");
            }
            // The server speaks first.
            self.serve(number, now);
        }
    }

    /// Serves a connection. True if it has come to something.
    fn serve(&mut self, number: usize, now: Time) -> bool {
        // Those that have chosen have places, though no controllers yet.
        let is_full = self.roster().free() <= self.arrivals.len();
        let Some(caller) = self.entrance.callers.get_mut(number) else {
            return false;
        };
        let before = caller.interest();
        caller.newcomer.set_full(is_full);
        let progress = caller.newcomer.poll(now);
        if caller.newcomer.take_refused() {
            self.refuse(now);
        }
        match progress {
            Progress::Waits => {
                self.entrance.callers.rewatch(number, before);
                return false;
            }
            Progress::Ended(end) => {
                let ended = self.entrance.callers.remove(number);
                self.end(&end, ended.as_ref(), now);
            }
            Progress::Moves => {
                if let Some(Connection { newcomer, from }) = self.entrance.callers.remove(number) {
                    match newcomer.go_on(now) {
                        Ok(newcomer) => {
                            let caller = Connection { newcomer, from };
                            self.entrance.callers.insert(number, caller);
                        }
                        Err(end) => self.end(&end, None, now),
                    }
                }
            }
            Progress::Chosen => {
                let chosen = self.entrance.callers.remove(number);
                let arrived = chosen.map(|it| (it.newcomer.arrive(), it.from));
                self.arrivals.extend(arrived);
            }
        }
        true
    }

    /// A connection has ended that had not chosen. The log tells of those that lack a key.
    fn end(&mut self, end: &End, ended: Option<&Connection>, now: Time) {
        let roster = self.roster_mut();
        tracing::debug!(controller = roster.name(), "a connection ended: {end}");
        // One that asked for the list of exports, or about one of them, was refused nothing.
        if !matches!(end, End::Left) {
            roster.counts_mut().refuse(end.name());
        }
        if KEYLESS.contains(&end.name()) && roster.tells_of_host(now) {
            let from = ended.and_then(|ended| ended.from);
            let offered = ended.and_then(|ended| ended.newcomer.offered());
            tracing::warn!(
                controller = roster.name(),
                user = offered,
                from = from.map(tracing::field::display),
                "an NBD client is refused: {end}"
            );
        }
    }

    /// A client is refused that has chosen: there are too many.
    pub(crate) fn refuse(&mut self, now: Time) {
        let roster = self.roster_mut();
        roster.counts_mut().refuse(End::TooManyClients.name());
        if roster.tells_of_host(now) {
            tracing::warn!(
                controller = roster.name(),
                "an NBD client is refused: there are as many as `nbd = {{ clients }}` allows; raise it, or end one with `nvmirage disconnect`"
            );
        }
    }

    /// The next client that has chosen, and where it comes from.
    pub(crate) fn take_arrival(&mut self) -> Option<(Arrival, Option<SocketAddr>)> {
        self.arrivals.pop_front()
    }

    /// The next deadline of its connections: a time before which there is none.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.entrance.next_deadline()
    }

    /// Accepts no connection until [`Self::open`], and closes those that have not chosen.
    pub(crate) fn close(&mut self, poller: &Poller) {
        self.clear();
        self.entrance.close(poller);
    }

    /// Accepts connections again.
    pub(crate) fn open(&mut self, poller: &Poller) {
        self.entrance.open(poller);
    }

    /// Closes all connections that have not chosen.
    fn clear(&mut self) {
        self.entrance.callers.take_all();
        self.accepted.clear();
        self.arrivals.clear();
    }

    /// Begins the removal: closes the listening socket and all connections that have not chosen.
    pub(crate) fn remove(&mut self, poller: &Poller, answer: Answer<()>) {
        if self.entrance.remove(poller, answer) {
            self.clear();
        }
    }

    /// Reports the end of the removal. The listening socket is closed by then.
    pub(crate) fn finish(self) {
        self.entrance.finish();
    }
}

#[cfg(test)]
mod tests;
