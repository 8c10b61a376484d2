//! The entrance of hosts over NVMe/TCP: its listening socket, and the connections that have not
//! sent their Connect yet.
//!
//! At most [`MAX_NEWCOMERS`] connections introduce themselves at the same time. One more takes the
//! place of the oldest: connections that send nothing do not keep hosts out. What a connection asks
//! for with Connect is the reactor's to do, as it needs other controllers than the entrance's own.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use controller::ControllerConfig;
use engine::tenants::TenantId;
use engine::{ControllerSlot, SubsystemSlot};
use nvme_spec::fabrics::CNTLID_MAX;
use port::time::Time;
use transport::nvme_tcp::{
    Arrival, DiscoveryLog, DiscoverySession, Farewell, Newcomer, Progress, TargetConfig,
};

use crate::message::{Answer, Listening};
use crate::poller::{Poller, Source};
use crate::presence::Presence;

/// Connections that may introduce themselves at the same time, and refused ones whose answer is
/// still to be sent.
const MAX_NEWCOMERS: usize = 128;
/// Connections to the discovery subsystem at the same time; one more takes the place of the oldest.
const MAX_DISCOVERIES: usize = 64;
/// Connections that are accepted before those that are there are looked at.
const ACCEPTS_AT_ONCE: usize = 16;
/// Pause after a failed accept, such as with too many open files.
const PAUSE_NS: u64 = 100_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Target {
    name: String,
    slot: ControllerSlot,
    listener: TcpListener,
    config: Arc<TargetConfig>,
    /// Most hosts at the same time.
    hosts: usize,
    /// Configuration of the hosts' controllers, but for their names.
    template: ControllerConfig,
    /// Controllers made so far, which their names count.
    made: u64,
    tenant: Option<TenantId>,
    subsystem: SubsystemSlot,
    /// In order of arrival.
    newcomers: VecDeque<(Newcomer, SocketAddr)>,
    farewells: VecDeque<Farewell>,
    /// Connections whose Connect is there, and where they come from.
    arrivals: VecDeque<(Arrival, SocketAddr)>,
    /// Connections to the discovery subsystem.
    discoveries: VecDeque<DiscoverySession>,
    /// Connections to it so far, which their controllers' identifiers count.
    discovered: u16,
    /// The controllers of the hosts.
    associations: Vec<ControllerSlot>,
    presence: Arc<Presence>,
    is_watched: bool,
    /// Time of the next accept, after a failure.
    accepts_at: Option<Time>,
    /// A failure to accept was logged.
    logged: bool,
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
    ) -> Self {
        let Listening {
            listener,
            config,
            hosts,
        } = listening;
        Target {
            name: template.name.clone(),
            slot,
            listener,
            config,
            hosts,
            template,
            made: 0,
            tenant: None,
            subsystem,
            newcomers: VecDeque::new(),
            farewells: VecDeque::new(),
            arrivals: VecDeque::new(),
            discoveries: VecDeque::new(),
            discovered: 0,
            associations: Vec::new(),
            presence,
            is_watched: false,
            accepts_at: None,
            logged: false,
            removal: None,
        }
    }

    fn source(&self) -> Source {
        Source::Door(self.slot.0)
    }

    /// Watches the listening socket, except after a failure and during a removal.
    pub(crate) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        let watches = self.accepts_at.is_none() && self.removal.is_none();
        if watches && !self.is_watched {
            poller.add(&self.listener, self.source())?;
        } else if !watches && self.is_watched {
            poller.remove(&self.listener)?;
        }
        self.is_watched = watches;
        Ok(())
    }
}

impl Target {
    /// Accepts connections, and reads their introductions; true if it did something.
    pub(crate) fn poll(&mut self, now: Time, poller: &Poller) -> bool {
        let accepted = self.accept(now, poller);
        let heard = self.hear(now, poller);
        self.farewells.retain_mut(|farewell| !farewell.poll(now));
        self.discover(now, poller);
        if let Err(error) = self.watch(poller) {
            tracing::error!(controller = self.name, "cannot wait for hosts: {error}");
        }
        accepted || heard
    }

    fn accept(&mut self, now: Time, poller: &Poller) -> bool {
        if self.removal.is_some() || self.accepts_at.is_some_and(|at| now < at) {
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
            let newcomer = Newcomer::new(OwnedFd::from(stream), self.config.clone(), now)
                .and_then(|new| poller.add(&new, self.source()).map(|()| new));
            match newcomer {
                Ok(newcomer) => {
                    if self.newcomers.len() == MAX_NEWCOMERS {
                        self.newcomers.pop_front();
                    }
                    self.newcomers.push_back((newcomer, from));
                }
                Err(error) => {
                    tracing::debug!(controller = self.name, "cannot take a connection: {error}");
                }
            }
        }
        true
    }

    /// Reads the introductions; what came with a Connect waits for [`Self::take_arrival`].
    fn hear(&mut self, now: Time, poller: &Poller) -> bool {
        let mut heard = false;
        let mut at = 0;
        while let Some((newcomer, from)) = self.newcomers.get_mut(at) {
            match newcomer.poll(now) {
                Progress::Waits => {
                    at += 1;
                    continue;
                }
                Progress::Ended(end) => {
                    tracing::debug!(controller = self.name, %from, "a connection ended: {end}");
                    self.newcomers.remove(at);
                }
                Progress::Connects => {
                    let Some((newcomer, from)) = self.newcomers.remove(at) else {
                        break;
                    };
                    match newcomer.arrive(now) {
                        Ok(arrival) => self.arrivals.push_back((arrival, from)),
                        Err(farewell) => self.see_off(farewell, now, poller),
                    }
                }
            }
            heard = true;
        }
        heard
    }

    /// Takes a connection to the discovery subsystem.
    pub(crate) fn begin_discovery(
        &mut self,
        arrival: Arrival,
        log: &Arc<DiscoveryLog>,
        now: Time,
        poller: &Poller,
    ) {
        // 1 to FFEFh (Base 2.1, 6.3).
        self.discovered = self.discovered % CNTLID_MAX + 1;
        let here = local_address(arrival.as_fd(), &self.listener);
        let (nqn, cntlid) = (&self.config.discovery_nqn, self.discovered);
        let session = here
            .and_then(|here| DiscoverySession::new(arrival, log.clone(), here, nqn, cntlid, now));
        match session {
            Ok(session) => {
                if self.discoveries.len() == MAX_DISCOVERIES
                    && let Some(oldest) = self.discoveries.pop_front()
                {
                    self.see_off(oldest.leave(now), now, poller);
                }
                self.discoveries.push_back(session);
                self.discover(now, poller);
            }
            Err(error) => {
                tracing::error!(controller = self.name, "cannot answer a discovery: {error}");
            }
        }
    }

    /// The server has another list of subsystems.
    pub(crate) fn set_log(&mut self, log: &Arc<DiscoveryLog>, now: Time, poller: &Poller) {
        for session in &mut self.discoveries {
            session.set_log(log.clone());
        }
        self.discover(now, poller);
    }

    /// Serves the connections to the discovery subsystem.
    fn discover(&mut self, now: Time, poller: &Poller) {
        let mut at = 0;
        while let Some(session) = self.discoveries.get_mut(at) {
            let (blocked, polled) = (session.wants_write(), session.poll(now));
            match polled {
                Ok(()) => {
                    let wants_write = session.wants_write();
                    let source = Source::Door(self.slot.0);
                    if wants_write != blocked
                        && let Err(error) = poller.set(&*session, source, wants_write)
                    {
                        tracing::error!(controller = self.name, "cannot watch a host: {error}");
                    }
                    at += 1;
                }
                Err(end) => {
                    tracing::debug!(controller = self.name, "a discovery ended: {end}");
                    if let Some(session) = self.discoveries.remove(at) {
                        self.see_off(session.leave(now), now, poller);
                    }
                }
            }
        }
    }

    /// The next connection that has sent Connect, and where it comes from.
    pub(crate) fn take_arrival(&mut self) -> Option<(Arrival, SocketAddr)> {
        self.arrivals.pop_front()
    }

    /// Sends the last answer of a connection that is to close, and keeps the connection until it
    /// has gone and the host has closed its side.
    pub(crate) fn see_off(&mut self, mut farewell: Farewell, now: Time, poller: &Poller) {
        if farewell.poll(now) {
            return;
        }
        let wants_write = farewell.wants_write();
        if let Err(error) = poller.set(&farewell, self.source(), wants_write) {
            // Its deadline applies nevertheless.
            tracing::debug!(controller = self.name, "cannot watch a connection: {error}");
        }
        if self.farewells.len() == MAX_NEWCOMERS {
            self.farewells.pop_front();
        }
        self.farewells.push_back(farewell);
    }

    /// Whether there is room for one more host.
    pub(crate) fn has_room(&self) -> bool {
        self.removal.is_none() && self.associations.len() < self.hosts
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

    /// The controllers of its hosts.
    pub(crate) fn associations(&self) -> &[ControllerSlot] {
        &self.associations
    }

    /// A host has come.
    pub(crate) fn associated(&mut self, slot: ControllerSlot) {
        self.associations.push(slot);
        self.logged = false;
    }

    /// A host has left, and its controller is gone.
    pub(crate) fn dissociated(&mut self, slot: ControllerSlot) {
        self.associations.retain(|other| *other != slot);
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

    /// The next deadline of its connections.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let newcomers = self
            .newcomers
            .iter()
            .map(|(newcomer, _)| newcomer.deadline());
        let farewells = self.farewells.iter().map(Farewell::deadline);
        let discoveries = self.discoveries.iter().map(DiscoverySession::deadline);
        let connections = newcomers.chain(farewells).chain(discoveries);
        connections.chain(self.accepts_at).min()
    }

    /// Begins the removal: closes the listening socket and all connections that are no hosts yet.
    pub(crate) fn remove(&mut self, poller: &Poller, answer: Answer<()>) {
        self.removal = Some(answer);
        self.newcomers.clear();
        self.farewells.clear();
        self.arrivals.clear();
        self.discoveries.clear();
        if let Err(error) = self.watch(poller) {
            tracing::error!(controller = self.name, "cannot forget a socket: {error}");
        }
    }

    /// Whether the removal is complete: its hosts' controllers are gone.
    pub(crate) fn is_removed(&self) -> bool {
        self.removal.is_some() && self.associations.is_empty()
    }

    /// Reports the end of the removal. The listening socket is closed by then.
    pub(crate) fn finish(self) {
        let Target {
            listener, removal, ..
        } = self;
        drop(listener);
        if let Some(answer) = removal {
            // the caller may have stopped waiting
            let _ = answer.try_send(());
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
