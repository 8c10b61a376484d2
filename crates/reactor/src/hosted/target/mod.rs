//! The entrance of hosts over NVMe/TCP: its listening socket, and the connections that are no
//! host's yet.
//!
//! Many connections may introduce themselves at the same time. Where there are too many, one that
//! has sent nothing gives way first: connections that send nothing do not keep hosts out. What a
//! connection asks for with Connect is the reactor's to do, as it needs other controllers than the
//! entrance's own.
//!
//! These connections have a poller of their own, which the reactor's poller watches: each is looked
//! at when it has something, or at its deadline, whatever the others do.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use controller::ControllerConfig;
use controller::counters::{Counted, Past};
use engine::tenants::TenantId;
use engine::{ControllerSlot, SubsystemSlot};
use nvme_spec::fabrics::CNTLID_MAX;
use port::time::Time;
use transport::nvme_tcp::{
    Access, Arrival, DiscoveryLog, DiscoverySession, End, Farewell, Greeted, Greeting, Newcomer,
    Next, Progress, TargetConfig, Tls,
};

use super::places::Places;
use crate::answer::Answer;
use crate::message::Listening;
use crate::network::NetworkCounts;
use crate::poller::{Interest, Poller, Source, source_of};
use crate::presence::{HostView, Presence};

/// Connections at the same time that are no host's. A host opens all of its connections before it
/// connects the first I/O queue (Linux), so this is several hosts that connect at once.
const MAX_CONNECTIONS: usize = 512;
/// Connections that are accepted before those that are there are looked at.
const ACCEPTS_AT_ONCE: usize = 16;
/// Hosts of which the log tells in each [`TOLD_NS`]: hosts that connect again and again do not fill
/// it.
const TOLD_MAX: u32 = 30;
const TOLD_NS: u64 = 60_000_000_000;
/// Refusals for a key of TLS: another one, none, no TLS, another host's.
const KEYLESS: [&str; 4] = ["tls-key", "tls-identity", "tls-required", "tls-host"];
/// Pause after a failed accept, such as with too many open files.
const PAUSE_NS: u64 = 100_000_000;

/// A connection that is no host's.
#[derive(Debug)]
enum Caller {
    /// It has not shown what it speaks, or its handshake is in progress.
    Greeting(Greeting),
    /// It has not sent its Connect yet, and comes from there.
    New(Box<Newcomer>, SocketAddr),
    /// It asks the discovery subsystem.
    Discovery(Box<DiscoverySession>),
}

impl Caller {
    fn deadline(&self) -> Time {
        match self {
            Caller::Greeting(greeting) => greeting.deadline(),
            Caller::New(newcomer, _) => newcomer.deadline(),
            Caller::Discovery(session) => session.deadline(),
        }
    }

    fn interest(&self) -> Interest {
        let (input, output) = match self {
            Caller::Greeting(greeting) => (greeting.wants_read(), false),
            Caller::New(newcomer, _) => (true, newcomer.wants_write()),
            Caller::Discovery(session) => (session.wants_read(), session.wants_write()),
        };
        Interest { input, output }
    }

    /// Which gives way first where there are too many: low before high.
    fn rank(&self) -> u8 {
        match self {
            Caller::Greeting(greeting) => u8::from(greeting.is_shaking()),
            Caller::New(newcomer, _) if newcomer.is_silent() => 0,
            Caller::New(..) | Caller::Discovery(_) => 2,
        }
    }
}

impl AsFd for Caller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Caller::Greeting(greeting) => greeting.as_fd(),
            Caller::New(newcomer, _) => newcomer.as_fd(),
            Caller::Discovery(session) => session.as_fd(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Target {
    name: String,
    slot: ControllerSlot,
    listener: TcpListener,
    config: Arc<TargetConfig>,
    /// Configuration of the hosts' controllers; each has another name.
    template: ControllerConfig,
    /// Controllers made so far, which their names count.
    made: u64,
    tenant: Option<TenantId>,
    subsystem: SubsystemSlot,
    /// By number, in order of arrival.
    callers: BTreeMap<usize, Caller>,
    /// Connections so far.
    called: usize,
    poller: Poller,
    /// No deadline of a connection is before.
    due: Option<Time>,
    /// Connections whose Connect is there, and where they come from.
    arrivals: VecDeque<(Arrival, SocketAddr)>,
    /// Connections that are to close.
    leaving: Vec<Farewell>,
    /// Connections to the discovery subsystem so far, which their controllers' identifiers count.
    discovered: u16,
    /// The controllers of its hosts.
    places: Places,
    /// Of associations that have ended, and of connections that became none.
    counts: NetworkCounts,
    /// What the queues of hosts have counted that have left.
    past: Arc<Past>,
    presence: Arc<Presence>,
    is_watched: bool,
    /// It accepts no connection: another process is about to take over.
    is_closed: bool,
    /// Time of the next accept, after a failure.
    accepts_at: Option<Time>,
    /// A failure to accept was logged.
    logged: bool,
    /// Hosts that attached since then.
    recent: (Time, u32),
    /// Where to report the end of the removal.
    removal: Option<Answer<()>>,
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
        Ok(Target {
            name: template.name.clone(),
            slot,
            listener,
            config,
            template,
            made: 0,
            tenant: None,
            subsystem,
            callers: BTreeMap::new(),
            called: 0,
            poller: Poller::new()?,
            due: None,
            arrivals: VecDeque::new(),
            leaving: Vec::new(),
            discovered: 0,
            places: Places::new(hosts),
            counts: NetworkCounts::default(),
            past: Arc::default(),
            presence,
            is_watched: false,
            is_closed: false,
            accepts_at: None,
            logged: false,
            recent: (Time(0), 0),
            removal: None,
        })
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
        let poller = &self.poller;
        self.callers.retain(|_, caller| match caller {
            Caller::Greeting(_) | Caller::New(..) => {
                // Its socket is closed here.
                let _ = poller.remove(&*caller);
                false
            }
            Caller::Discovery(_) => true,
        });
        self.arrivals.clear();
    }

    /// One that named itself so has ended without the proof that it was asked for.
    pub(crate) fn tell_of_unproved(&mut self, host: &HostView, end: &str, now: Time) {
        if self.tells_of_host(now) {
            tracing::warn!(
                controller = self.name,
                host = host.nqn,
                from = %host.address,
                "a host has not authenticated itself: {end}"
            );
        }
    }

    /// A connection is refused that says to be this host's. The log tells of those that lack a key.
    fn tell_of_refused(&mut self, why: &str, host: Option<&str>, from: SocketAddr, now: Time) {
        if KEYLESS.contains(&why) && self.tells_of_host(now) {
            tracing::warn!(controller = self.name, host, %from, "a host is refused: {why}");
        }
    }

    /// A host attaches. Whether the log tells of it.
    pub(crate) fn tells_of_host(&mut self, now: Time) -> bool {
        let (since, count) = &mut self.recent;
        if now.since(*since) >= TOLD_NS {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        if *count == TOLD_MAX + 1 {
            tracing::warn!(
                controller = self.name,
                "more than {TOLD_MAX} hosts attached within a minute: the log leaves others out until the minute is over"
            );
        }
        *count <= TOLD_MAX
    }

    /// Watches the listening socket, except after a failure, during a removal and where it is
    /// closed, and the connections.
    pub(crate) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        let watches = self.accepts_at.is_none() && self.removal.is_none() && !self.is_closed;
        let source = Source::Door(self.slot.0);
        if watches && !self.is_watched {
            poller.set(&self.listener, source, Interest::INPUT)?;
            poller.set(&self.poller, source, Interest::INPUT)?;
        } else if !watches && self.is_watched {
            poller.remove(&self.listener)?;
        }
        self.is_watched = watches;
        Ok(())
    }

    /// Accepts connections and serves them; true if it did something.
    pub(crate) fn poll(&mut self, now: Time, poller: &Poller) -> bool {
        let accepted = self.accept(now);
        let mut ready = Vec::new();
        match self.poller.wait(Duration::ZERO) {
            Ok(events) => ready.extend(events.iter().map(source_of)),
            Err(error) => {
                tracing::error!(
                    controller = self.name,
                    "cannot wait for connections: {error}"
                );
            }
        }
        let mut heard = false;
        for source in ready {
            if let Source::Controller(number) = source {
                heard |= self.serve(number, now);
            }
        }
        if self.due.is_some_and(|due| now >= due) {
            let late =
                |(number, caller): (&usize, &Caller)| (now >= caller.deadline()).then_some(*number);
            let late: Vec<usize> = self.callers.iter().filter_map(late).collect();
            for number in late {
                heard |= self.serve(number, now);
            }
            self.due = self.callers.values().map(Caller::deadline).min();
        }
        self.look(poller);
        accepted || heard
    }

    fn accept(&mut self, now: Time) -> bool {
        let is_closed = self.is_closed || self.removal.is_some();
        if is_closed || self.accepts_at.is_some_and(|at| now < at) {
            return false;
        }
        self.accepts_at = None;
        for accepted in 0..ACCEPTS_AT_ONCE {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return accepted > 0,
                Err(error) => {
                    self.accepts_at = Some(now + PAUSE_NS);
                    if !std::mem::replace(&mut self.logged, true) {
                        tracing::error!(controller = self.name, "cannot accept a host: {error}");
                    }
                    return accepted > 0;
                }
            };
            match self.take(stream.into(), from, now) {
                Ok(caller) => self.add(caller),
                Err(error) => {
                    tracing::debug!(controller = self.name, "cannot take a connection: {error}");
                }
            }
        }
        true
    }

    fn take(&self, stream: OwnedFd, from: SocketAddr, now: Time) -> io::Result<Caller> {
        let config = self.config.clone();
        Ok(if config.tls.is_some() {
            Caller::Greeting(Greeting::new(stream, from, config, now)?)
        } else {
            Caller::New(Box::new(Newcomer::new(stream, config, now)?), from)
        })
    }

    /// Adds a connection. Where there are too many, one gives way: of the lowest rank the oldest.
    fn add(&mut self, caller: Caller) {
        if self.callers.len() >= MAX_CONNECTIONS {
            let first = self.callers.iter().min_by_key(|(_, caller)| caller.rank());
            let first = first.map(|(number, _)| *number);
            let displaced = first.and_then(|number| self.callers.remove(&number));
            if let Some(Caller::New(..) | Caller::Greeting(_)) = displaced {
                self.counts.refuse("displaced");
            }
        }
        let number = self.called;
        self.called += 1;
        self.insert(number, caller);
    }

    /// Watches and keeps a connection by this number.
    fn insert(&mut self, number: usize, caller: Caller) {
        let source = Source::Controller(number);
        if let Err(error) = self.poller.set(&caller, source, caller.interest()) {
            // Its deadline applies nevertheless.
            tracing::debug!(controller = self.name, "cannot watch a connection: {error}");
        }
        self.look_at(caller.deadline());
        self.callers.insert(number, caller);
    }

    /// A connection has this deadline.
    fn look_at(&mut self, deadline: Time) {
        self.due = Some(self.due.map_or(deadline, |due| due.min(deadline)));
    }

    /// Serves a connection. True if it has come to something.
    fn serve(&mut self, number: usize, now: Time) -> bool {
        let Some(caller) = self.callers.get_mut(&number) else {
            return false;
        };
        let before = caller.interest();
        let mut next = None;
        let is_over = match caller {
            Caller::Greeting(greeting) => match greeting.poll(now) {
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
            Caller::New(newcomer, from) => match newcomer.poll(now) {
                Progress::Waits => false,
                Progress::Ended(end) => {
                    let from = *from;
                    self.end(&end, from);
                    true
                }
                Progress::Connects => true,
            },
            Caller::Discovery(session) => match session.poll(now) {
                Ok(()) => false,
                Err(end) => {
                    tracing::debug!(controller = self.name, "a discovery ended: {end}");
                    true
                }
            },
        };
        if !is_over {
            self.rewatch(number, before);
            return false;
        }
        let caller = self.callers.remove(&number);
        // Its socket may live on as a host's, which another poller watches. One that could not be
        // watched is not to be found.
        if let Some(caller) = &caller {
            let _ = self.poller.remove(caller);
        }
        match caller {
            Some(Caller::Greeting(greeting)) => {
                if let Some(next) = next {
                    self.greet(number, greeting, next, now);
                }
            }
            Some(Caller::New(newcomer, from)) => match newcomer.arrive(now) {
                Ok(arrival) => self.arrivals.push_back((arrival, from)),
                Err(farewell) => {
                    if let Some(name) = farewell.refused() {
                        self.counts.refuse(name);
                        self.tell_of_refused(name, farewell.host(), from, now);
                    }
                    self.leaving.push(farewell);
                }
            },
            Some(Caller::Discovery(session)) => self.leaving.push(session.leave(now)),
            None => {}
        }
        true
    }

    /// Goes on with one that is no newcomer yet, in its place.
    fn greet(&mut self, number: usize, greeting: Greeting, next: Next, now: Time) {
        let from = greeting.from();
        match greeting.go_on(next, now) {
            Ok(Greeted::Greeting(greeting)) => self.insert(number, Caller::Greeting(greeting)),
            Ok(Greeted::Newcomer(newcomer)) => self.insert(number, Caller::New(newcomer, from)),
            Err(end) => self.end(&end, from),
        }
    }

    /// A connection ends that was to become a host's.
    fn end(&mut self, end: &End, from: SocketAddr) {
        tracing::debug!(controller = self.name, %from, "a connection ended: {end}");
        self.counts.refuse(end.name());
    }

    /// Watches a connection for what it waits for now.
    fn rewatch(&mut self, number: usize, before: Interest) {
        let Some(caller) = self.callers.get(&number) else {
            return;
        };
        let (interest, source) = (caller.interest(), Source::Controller(number));
        let deadline = caller.deadline();
        if interest != before {
            // A poller finds the end of a connection, whatever it is watched for.
            let watched = if interest == Interest::NONE {
                self.poller.remove(caller)
            } else {
                self.poller.set(caller, source, interest)
            };
            if let Err(error) = watched {
                tracing::debug!(controller = self.name, "cannot watch a connection: {error}");
            }
        }
        self.look_at(deadline);
    }

    /// Takes a connection to the discovery subsystem.
    pub(crate) fn begin_discovery(&mut self, arrival: Arrival, log: &Arc<DiscoveryLog>, now: Time) {
        // 1 to FFEFh (Base 2.1, 6.3).
        self.discovered = self.discovered % CNTLID_MAX + 1;
        let here = local_address(arrival.as_fd(), &self.listener);
        let names = [&*self.config.name, &self.config.discovery_nqn];
        let (log, cntlid) = (log.clone(), self.discovered);
        let session =
            here.and_then(|here| DiscoverySession::new(arrival, log, names, here, cntlid, now));
        match session {
            Ok(session) => {
                self.add(Caller::Discovery(Box::new(session)));
                self.serve(self.called - 1, now);
            }
            Err(error) => {
                tracing::debug!(controller = self.name, "cannot answer a discovery: {error}");
            }
        }
    }

    /// The server has another list of subsystems.
    pub(crate) fn set_log(&mut self, log: &Arc<DiscoveryLog>, now: Time) {
        let mut told = Vec::new();
        for (number, caller) in &mut self.callers {
            if let Caller::Discovery(session) = caller {
                session.set_log(log.clone());
                told.push(*number);
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

    /// Whether there is room for one more host, which is to prove who it is or not.
    pub(crate) fn has_room(&self, is_asked: bool) -> bool {
        self.removal.is_none() && self.places.has_room(is_asked)
    }

    /// The configuration of the next host's controller.
    pub(crate) fn next_controller(&mut self) -> ControllerConfig {
        self.made += 1;
        ControllerConfig {
            name: format!("{}/{}", self.name, self.made),
            ..self.template.clone()
        }
    }

    /// The tenant that the commands of its hosts count for.
    pub(crate) fn tenant(&self) -> Option<TenantId> {
        self.tenant
    }

    pub(crate) fn set_tenant(&mut self, tenant: Option<TenantId>) {
        self.tenant = tenant;
    }

    /// The subsystem of all of them.
    pub(crate) fn subsystem(&self) -> SubsystemSlot {
        self.subsystem
    }

    /// The controllers of its hosts, and of those that have proved nothing yet.
    pub(crate) fn associations(&self) -> &[ControllerSlot] {
        self.places.all()
    }

    /// What ended associations and refused connections have counted.
    pub(crate) fn counts(&self) -> &NetworkCounts {
        &self.counts
    }

    /// What the queues of hosts have counted that have left.
    pub(crate) fn past(&self) -> &Arc<Past> {
        &self.past
    }

    pub(crate) fn counts_mut(&mut self) -> &mut NetworkCounts {
        &mut self.counts
    }

    /// One has come that is no host yet.
    pub(crate) fn associated(&mut self, slot: ControllerSlot) {
        self.places.add(slot);
        self.logged = false;
    }

    /// It has proved what it had to: it is a host. False where the hosts are too many by now.
    pub(crate) fn admit(&mut self, slot: ControllerSlot) -> bool {
        let is_admitted = self.places.admit(slot);
        self.counts.hosts += u64::from(is_admitted);
        is_admitted
    }

    /// A host has left, and its controller is gone.
    pub(crate) fn dissociated(&mut self, slot: ControllerSlot, counted: &Counted) {
        self.counts.moved.add_moved(&counted.health);
        self.past = Arc::new(self.past.with(counted));
        self.places.remove(slot);
    }

    /// Where any thread sees its hosts.
    pub(crate) fn presence(&self) -> &Arc<Presence> {
        &self.presence
    }

    /// Name of the entrance.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it must be polled without an event: its hosts leave.
    pub(crate) fn is_in_transition(&self) -> bool {
        self.removal.is_some()
    }

    /// The next deadline of its connections: a time before which there is none.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.into_iter().chain(self.accepts_at).min()
    }

    /// Accepts no connection until [`Self::open`], and closes those that are no hosts. Others wait
    /// in the listening socket, for this process or for the one that takes over.
    pub(crate) fn close(&mut self, now: Time, poller: &Poller) {
        self.is_closed = true;
        self.clear(now);
        self.look(poller);
    }

    /// Accepts connections again.
    pub(crate) fn open(&mut self, poller: &Poller) {
        if std::mem::take(&mut self.is_closed) {
            self.look(poller);
        }
    }

    fn look(&mut self, poller: &Poller) {
        if let Err(error) = self.watch(poller) {
            tracing::error!(controller = self.name, "cannot wait for hosts: {error}");
        }
    }

    /// Closes all connections that are no hosts.
    fn clear(&mut self, now: Time) {
        for caller in std::mem::take(&mut self.callers).into_values() {
            if let Caller::Discovery(session) = caller {
                let _ = self.poller.remove(&*session);
                self.leaving.push(session.leave(now));
            }
        }
        self.arrivals.clear();
        self.due = None;
    }

    /// Begins the removal: closes the listening socket and all connections that are no hosts yet.
    pub(crate) fn remove(&mut self, now: Time, poller: &Poller, answer: Answer<()>) {
        if self.removal.replace(answer).is_some() {
            return;
        }
        self.clear(now);
        let forgotten = self
            .watch(poller)
            .and_then(|()| poller.remove(&self.poller));
        if let Err(error) = forgotten {
            tracing::error!(controller = self.name, "cannot forget a socket: {error}");
        }
    }

    /// Whether the removal is complete: its hosts' controllers are gone.
    pub(crate) fn is_removed(&self) -> bool {
        self.removal.is_some() && self.places.all().is_empty()
    }

    /// Reports the end of the removal. The listening socket is closed by then.
    pub(crate) fn finish(self) {
        let Target {
            listener, removal, ..
        } = self;
        drop(listener);
        if let Some(answer) = removal {
            answer.send(());
        }
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
