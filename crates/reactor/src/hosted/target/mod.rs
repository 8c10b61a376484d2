//! The entrance of hosts over NVMe/TCP: what its connections send before they are a host's.
//!
//! The reactor does what a connection asks for with Connect, as that needs other controllers than
//! the entrance's own.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use controller::ControllerConfig;
use engine::{ControllerSlot, SubsystemSlot};
use nvme_spec::fabrics::CNTLID_MAX;
use port::time::Time;
use transport::nvme_tcp::{
    Access, Arrival, DiscoveryLog, DiscoverySession, End, Farewell, Greeted, Greeting, Newcomer,
    Next, Progress, TargetConfig, Tls,
};

use super::entrance::{Caller, Callers, Entrance, Roster};
use crate::answer::Answer;
use crate::message::Listening;
use crate::poller::{Interest, Poller};
use crate::presence::{HostView, Presence};

/// Refusals for a key of TLS: another one, none, no TLS, another host's.
const KEYLESS: [&str; 4] = ["tls-key", "tls-identity", "tls-required", "tls-host"];

/// A connection that is no host's.
#[derive(Debug)]
enum Connection {
    /// It has not shown what it speaks, or its handshake is in progress.
    Greeting(Greeting),
    /// It has not sent its Connect yet, and comes from there.
    New(Box<Newcomer>, SocketAddr),
    /// It asks the discovery subsystem.
    Discovery(Box<DiscoverySession>),
}

impl Caller for Connection {
    fn deadline(&self) -> Time {
        match self {
            Connection::Greeting(greeting) => greeting.deadline(),
            Connection::New(newcomer, _) => newcomer.deadline(),
            Connection::Discovery(session) => session.deadline(),
        }
    }

    fn interest(&self) -> Interest {
        let (input, output) = match self {
            Connection::Greeting(greeting) => (greeting.wants_read(), false),
            Connection::New(newcomer, _) => (true, newcomer.wants_write()),
            Connection::Discovery(session) => (session.wants_read(), session.wants_write()),
        };
        Interest { input, output }
    }

    fn rank(&self) -> u8 {
        match self {
            Connection::Greeting(greeting) => u8::from(greeting.is_shaking()),
            Connection::New(newcomer, _) if newcomer.is_silent() => 0,
            Connection::New(..) | Connection::Discovery(_) => 2,
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Connection::Greeting(greeting) => greeting.as_fd(),
            Connection::New(newcomer, _) => newcomer.as_fd(),
            Connection::Discovery(session) => session.as_fd(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Target {
    entrance: Entrance<TcpListener, Callers<Connection>>,
    config: Arc<TargetConfig>,
    /// Connections whose Connect is there, and where they come from.
    arrivals: VecDeque<(Arrival, SocketAddr)>,
    /// Connections that are to close.
    leaving: Vec<Farewell>,
    /// Connections to the discovery subsystem so far, which their controllers' identifiers count.
    discovered: u16,
}

impl Target {
    pub(crate) fn new(
        template: ControllerConfig,
        slot: ControllerSlot,
        subsystem: SubsystemSlot,
        listening: Listening,
        presence: Arc<Presence>,
    ) -> io::Result<Self> {
        let Listening {
            listener,
            config,
            hosts,
        } = listening;
        let (at, socket) = ((slot, subsystem), (listener, hosts));
        Ok(Target {
            entrance: Entrance::new(template, at, socket, presence)?,
            config,
            arrivals: VecDeque::new(),
            leaving: Vec::new(),
            discovered: 0,
        })
    }

    /// Its hosts.
    pub(crate) fn roster(&self) -> &Roster {
        &self.entrance.roster
    }

    pub(crate) fn roster_mut(&mut self) -> &mut Roster {
        &mut self.entrance.roster
    }

    /// Has other hosts be allowed. Those that are about to connect were judged by the former ones:
    /// they begin again.
    pub(crate) fn set_access(&mut self, access: Access, tls: Option<Tls>) {
        let config = TargetConfig::clone(&self.config);
        self.config = Arc::new(TargetConfig {
            access,
            tls,
            ..config
        });
        let stays = |caller: &Connection| matches!(caller, Connection::Discovery(_));
        self.entrance.callers.retain(stays);
        self.arrivals.clear();
    }

    /// One that named itself so has ended without the proof that it was asked for.
    pub(crate) fn tell_of_unproved(&mut self, host: &HostView, end: &str, now: Time) {
        if self.roster_mut().tells_of_host(now) {
            tracing::warn!(
                controller = self.name(),
                host = host.nqn,
                from = host.address.map(tracing::field::display),
                "a host has not authenticated itself: {end}"
            );
        }
    }

    /// A connection is refused that says to be this host's. The log tells of those that lack a key.
    fn tell_of_refused(&mut self, why: &str, host: Option<&str>, from: SocketAddr, now: Time) {
        if KEYLESS.contains(&why) && self.roster_mut().tells_of_host(now) {
            tracing::warn!(controller = self.name(), host, %from, "a host is refused: {why}");
        }
    }

    /// Watches the listening socket, unless it accepts none, and the connections.
    pub(crate) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        self.entrance.watch(poller)
    }

    /// Accepts connections and serves them; true if it did something.
    pub(crate) fn poll(&mut self, now: Time, poller: &Poller) -> bool {
        let accepted = self.entrance.accept(now);
        let mut worked = !accepted.is_empty();
        for (stream, from) in accepted {
            match self.take(stream, from, now) {
                Ok(caller) => {
                    self.add(caller);
                }
                Err(error) => {
                    tracing::debug!(
                        controller = self.name(),
                        "cannot take a connection: {error}"
                    );
                }
            }
        }
        for number in self.entrance.callers.take_ready(now) {
            worked |= self.serve(number, now);
        }
        self.entrance.settle(now, poller);
        worked
    }

    fn take(&self, stream: OwnedFd, from: SocketAddr, now: Time) -> io::Result<Connection> {
        let config = self.config.clone();
        Ok(if config.tls.is_some() {
            Connection::Greeting(Greeting::new(stream, from, config, now)?)
        } else {
            Connection::New(Box::new(Newcomer::new(stream, config, now)?), from)
        })
    }

    /// Adds a connection; its number. Where there are too many, another one gives way.
    fn add(&mut self, caller: Connection) -> usize {
        let (number, displaced) = self.entrance.callers.add(caller);
        if let Some(Connection::New(..) | Connection::Greeting(_)) = displaced {
            self.entrance.roster.counts_mut().refuse("displaced");
        }
        number
    }

    /// Serves a connection. True if it has come to something.
    fn serve(&mut self, number: usize, now: Time) -> bool {
        let Some(caller) = self.entrance.callers.get_mut(number) else {
            return false;
        };
        let before = caller.interest();
        let mut next = None;
        let is_over = match caller {
            Connection::Greeting(greeting) => match greeting.poll(now) {
                Ok(step) => {
                    next = step;
                    next.is_some()
                }
                Err(end) => {
                    let (from, host) = (greeting.from(), greeting.host().map(str::to_owned));
                    self.end(&end, from);
                    self.tell_of_refused(end.name(), host.as_deref(), from, now);
                    true
                }
            },
            Connection::New(newcomer, from) => match newcomer.poll(now) {
                Progress::Waits => false,
                Progress::Ended(end) => {
                    let from = *from;
                    self.end(&end, from);
                    true
                }
                Progress::Connects => true,
            },
            Connection::Discovery(session) => match session.poll(now) {
                Ok(()) => false,
                Err(end) => {
                    tracing::debug!(controller = self.name(), "a discovery ended: {end}");
                    true
                }
            },
        };
        if !is_over {
            self.entrance.callers.rewatch(number, before);
            return false;
        }
        match self.entrance.callers.remove(number) {
            Some(Connection::Greeting(greeting)) => {
                if let Some(next) = next {
                    self.greet(number, greeting, next, now);
                }
            }
            Some(Connection::New(newcomer, from)) => match newcomer.arrive(now) {
                Ok(arrival) => self.arrivals.push_back((arrival, from)),
                Err(farewell) => {
                    if let Some(name) = farewell.refused() {
                        self.entrance.roster.counts_mut().refuse(name);
                        self.tell_of_refused(name, farewell.host(), from, now);
                    }
                    self.leaving.push(farewell);
                }
            },
            Some(Connection::Discovery(session)) => self.leaving.push(session.leave(now)),
            None => {}
        }
        true
    }

    /// Goes on with one that is no newcomer yet, in its place.
    fn greet(&mut self, number: usize, greeting: Greeting, next: Next, now: Time) {
        let from = greeting.from();
        match greeting.go_on(next, now) {
            Ok(Greeted::Greeting(greeting)) => {
                let caller = Connection::Greeting(greeting);
                self.entrance.callers.insert(number, caller);
            }
            Ok(Greeted::Newcomer(newcomer)) => {
                let caller = Connection::New(newcomer, from);
                self.entrance.callers.insert(number, caller);
            }
            Err(end) => self.end(&end, from),
        }
    }

    /// A connection ends that was to become a host's.
    fn end(&mut self, end: &End, from: SocketAddr) {
        tracing::debug!(controller = self.name(), %from, "a connection ended: {end}");
        self.entrance.roster.counts_mut().refuse(end.name());
    }

    /// Takes a connection to the discovery subsystem.
    pub(crate) fn begin_discovery(&mut self, arrival: Arrival, log: &Arc<DiscoveryLog>, now: Time) {
        // 1 to FFEFh (Base 2.1, 6.3).
        self.discovered = self.discovered % CNTLID_MAX + 1;
        let here = local_address(arrival.as_fd(), self.entrance.socket());
        let names = [&*self.config.name, &self.config.discovery_nqn];
        let (log, cntlid) = (log.clone(), self.discovered);
        let session =
            here.and_then(|here| DiscoverySession::new(arrival, log, names, here, cntlid, now));
        match session {
            Ok(session) => {
                let number = self.add(Connection::Discovery(Box::new(session)));
                self.serve(number, now);
            }
            Err(error) => {
                tracing::debug!(
                    controller = self.name(),
                    "cannot answer a discovery: {error}"
                );
            }
        }
    }

    /// The server has another list of subsystems.
    pub(crate) fn set_log(&mut self, log: &Arc<DiscoveryLog>, now: Time) {
        let mut told = Vec::new();
        for (number, caller) in self.entrance.callers.iter_mut() {
            if let Connection::Discovery(session) = caller {
                session.set_log(log.clone());
                told.push(number);
            }
        }
        for number in told {
            self.serve(number, now);
        }
    }

    /// The next connection that has sent Connect, and where it comes from.
    pub(crate) fn take_arrival(&mut self) -> Option<(Arrival, SocketAddr)> {
        self.arrivals.pop_front()
    }

    /// Connections that are to close, which the reactor looks after.
    pub(crate) fn take_leaving(&mut self) -> Vec<Farewell> {
        std::mem::take(&mut self.leaving)
    }

    /// Name of the entrance.
    fn name(&self) -> &str {
        self.roster().name()
    }

    /// The next deadline of its connections: a time before which there is none.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.entrance.next_deadline()
    }

    /// Accepts no connection until [`Self::open`], and closes those that are no hosts.
    pub(crate) fn close(&mut self, now: Time, poller: &Poller) {
        self.clear(now);
        self.entrance.close(poller);
    }

    /// Accepts connections again.
    pub(crate) fn open(&mut self, poller: &Poller) {
        self.entrance.open(poller);
    }

    /// Closes all connections that are no hosts.
    fn clear(&mut self, now: Time) {
        for caller in self.entrance.callers.take_all() {
            if let Connection::Discovery(session) = caller {
                self.leaving.push(session.leave(now));
            }
        }
        self.arrivals.clear();
    }

    /// Begins the removal: closes the listening socket and all connections that are no hosts yet.
    pub(crate) fn remove(&mut self, now: Time, poller: &Poller, answer: Answer<()>) {
        if self.entrance.remove(poller, answer) {
            self.clear(now);
        }
    }

    /// Reports the end of the removal. The listening socket is closed by then.
    pub(crate) fn finish(self) {
        self.entrance.finish();
    }
}

/// The address that a connection has reached.
fn local_address(connection: BorrowedFd<'_>, listener: &TcpListener) -> io::Result<SocketAddr> {
    let address = rustix::net::getsockname(connection)?;
    match SocketAddr::try_from(address) {
        Ok(address) => Ok(address),
        Err(_) => listener.local_addr(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
