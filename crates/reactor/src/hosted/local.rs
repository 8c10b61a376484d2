//! A controller for one host at a time over vfio-user: the session of the host, and the transition
//! to the next one.
//!
//! A host attaches once it has introduced itself ([`Door`]). When it leaves, its commands are
//! drained before its socket is closed, and the socket is closed so that the host sees an end of
//! file ([`Parting`]).

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use controller::{Controller, Interrupt};
use engine::ControllerSlot;
use memory::{ClientMappings, DmaView, DoorbellPages, LostFlag, Pieces};
use port::time::Time;
use transport::vfio_user::{Caller, Entrance, Session, SessionConfig};
use vfio_user::Parting;

use crate::answer::Answer;
use crate::door::{Door, Seat};
use crate::lines::Vectors;
use crate::memory_care::{self, Owner};
use crate::nodes::Nodes;
use crate::poller::{Poller, Source};
use crate::presence::Presence;

/// State of the host.
#[derive(Debug)]
enum Host {
    /// No host.
    None,
    /// A host is attached.
    Attached(Box<Session>),
    /// The last host has left or must leave. Its commands are drained, then its socket is closed;
    /// only then can the next host attach.
    Leaving(Parting),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Local {
    name: String,
    slot: ControllerSlot,
    door: Door,
    session_config: SessionConfig,
    host: Host,
    presence: Arc<Presence>,
    output_watched: bool,
    /// Version of the host's memory map that memory care was given.
    memory_told: u64,
    /// Version of the session's interrupt lines that other reactors have; 0: none.
    lines_told: u64,
    /// Where to report the end of a removal.
    removal: Option<Answer<()>>,
}

impl Local {
    pub(crate) fn new(
        name: String,
        slot: ControllerSlot,
        entrance: Entrance,
        session_config: SessionConfig,
        presence: Arc<Presence>,
    ) -> Self {
        Local {
            name,
            slot,
            door: Door::new(entrance, Source::Door(slot.0)),
            session_config,
            host: Host::None,
            presence,
            output_watched: false,
            memory_told: 0,
            lines_told: 0,
            removal: None,
        }
    }

    /// Whether its host waits for a step of a migration.
    pub(crate) fn migrates(&self) -> bool {
        match &self.host {
            Host::Attached(session) => session.migrates(),
            Host::None | Host::Leaving(_) => false,
        }
    }

    /// The session of its host.
    pub(crate) fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.host {
            Host::Attached(session) => Some(session),
            Host::None | Host::Leaving(_) => None,
        }
    }

    /// Starts to watch for hosts.
    pub(crate) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        self.door.watch(poller)
    }

    fn source(&self) -> Source {
        Source::Controller(self.slot.0)
    }

    /// Whether its host's doorbells are plain stores, which wake no thread.
    pub(crate) fn is_unwoken(&self) -> bool {
        matches!(&self.host, Host::Attached(session) if session.doorbells_mapped())
    }

    /// Whether it must be polled without an event: replies wait for a drain, or a host is leaving.
    pub(crate) fn is_in_transition(&self) -> bool {
        match &self.host {
            // the next host waits until the controller is quiet
            Host::None => self.removal.is_some() || self.door.has_next(),
            Host::Attached(session) => session.has_pending(),
            // once there is a deadline, the host must act
            Host::Leaving(parting) => parting.deadline().is_none(),
        }
    }

    fn seat(&self) -> Seat {
        match &self.host {
            Host::Attached(session) => Seat::Taken(session.process()),
            Host::None | Host::Leaving(_) => Seat::Free,
        }
    }

    /// The next deadline of its sockets.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let of_host = match &self.host {
            Host::Attached(session) => session.next_deadline(),
            Host::Leaving(parting) => parting.deadline().map(Time),
            Host::None => None,
        };
        of_host
            .into_iter()
            .chain(self.door.next_deadline(self.seat()))
            .min()
    }

    /// Raises an interrupt at its host.
    #[inline]
    pub(crate) fn raise(&mut self, interrupt: Interrupt) {
        if let Host::Attached(session) = &mut self.host {
            session.raise(interrupt);
        }
    }

    /// The interrupt lines for its queues on other reactors.
    pub(crate) fn lines(&self) -> Vectors {
        match &self.host {
            Host::Attached(session) => session.lines(),
            Host::None | Host::Leaving(_) => Vec::new(),
        }
    }

    /// Whether these lines have changed since the last call.
    pub(crate) fn have_lines_changed(&mut self) -> bool {
        let now = match &self.host {
            Host::Attached(session) => session.line_changes(),
            Host::None | Host::Leaving(_) => 0,
        };
        std::mem::replace(&mut self.lines_told, now) != now
    }

    /// Polls the session; true if it did something.
    pub(crate) fn poll(&mut self, controller: &mut Controller, now: Time, poller: &Poller) -> bool {
        match &mut self.host {
            Host::None => self.admit(controller, poller),
            Host::Attached(session) => {
                let polled = session.poll(controller, now);
                if let Some(end) = polled.ended {
                    tracing::info!(controller = self.name, "host detached: {end}");
                    self.detach(controller, poller);
                    return true;
                }
                let memory = session.memory();
                if std::mem::replace(&mut self.memory_told, memory.changes()) != memory.changes() {
                    look_after(&self.name, memory);
                }
                let wants_write = session.wants_write();
                if wants_write != self.output_watched {
                    self.output_watched = wants_write;
                    let source = Source::Controller(self.slot.0);
                    if let Err(error) = poller.want_output(session.as_fd(), source, wants_write) {
                        tracing::error!(controller = self.name, "cannot watch a session: {error}");
                    }
                }
                polled.messages > 0
            }
            Host::Leaving(_) => self.leave(controller, now, poller),
        }
    }

    /// Polls the connections that are not hosts yet; true if it did something.
    pub(crate) fn poll_door(
        &mut self,
        controller: &mut Controller,
        now: Time,
        poller: &Poller,
    ) -> bool {
        if self.removal.is_some() {
            return false;
        }
        let seat = self.seat();
        let worked = self.door.poll(&self.name, seat, now, poller);
        worked | self.admit(controller, poller)
    }

    /// Attaches the next host, if there is none.
    fn admit(&mut self, controller: &mut Controller, poller: &Poller) -> bool {
        if self.removal.is_some() || !matches!(self.host, Host::None) || !controller.is_quiet() {
            return false;
        }
        let Some(caller) = self.door.take_next(&self.name, poller) else {
            return false;
        };
        match self.attach(caller, controller, poller) {
            Ok(session) => {
                tracing::info!(controller = self.name, "host attached");
                self.presence.enter(&self.name, session.process());
                self.door.host_came();
                self.output_watched = false;
                self.memory_told = 0;
                self.host = Host::Attached(Box::new(session));
            }
            Err(error) => {
                tracing::warn!(controller = self.name, "cannot take a host: {error:#}");
            }
        }
        true
    }

    fn attach(
        &self,
        caller: Caller,
        controller: &mut Controller,
        poller: &Poller,
    ) -> anyhow::Result<Session> {
        // new pages: the last host may still have the old ones mapped
        let doorbells = Arc::new(DoorbellPages::new(controller.config().doorbell_slots())?);
        let session = caller.attach(doorbells.clone(), self.session_config.clone(), controller)?;
        controller.set_doorbells(doorbells)?;
        controller.expect_messages();
        self.watch_session(&session, poller)?;
        Ok(session)
    }

    /// Goes on with the host of a former process, on its controller.
    pub(crate) fn resume(
        &mut self,
        mut session: Session,
        controller: &mut Controller,
        poller: &Poller,
    ) -> io::Result<()> {
        if let Err(end) = session.continue_with(controller) {
            // Its socket says so again at the next poll.
            tracing::debug!(controller = self.name, "cannot keep the state: {end}");
        }
        controller.expect_messages();
        self.watch_session(&session, poller)?;
        tracing::info!(controller = self.name, "host continues");
        self.presence.enter(&self.name, session.process());
        self.host = Host::Attached(Box::new(session));
        Ok(())
    }

    fn watch_session(&self, session: &Session, poller: &Poller) -> io::Result<()> {
        poller.add(session.as_fd(), self.source())?;
        if let Some(unmasked) = session.unmasked() {
            poller.add(unmasked, self.source())?;
        }
        Ok(())
    }

    /// Ends the session and resets the controller to its power-on state.
    fn detach(&mut self, controller: &mut Controller, poller: &Poller) {
        let Host::Attached(session) = std::mem::replace(&mut self.host, Host::None) else {
            return;
        };
        for fd in [Some(session.as_fd()), session.unmasked()]
            .into_iter()
            .flatten()
        {
            if let Err(error) = poller.remove(fd) {
                tracing::error!(controller = self.name, "cannot forget a session: {error}");
            }
        }
        self.host = Host::Leaving(session.part());
        self.presence.leave(&self.name);
        controller.function_reset();
    }

    /// Waits until no command of the last host is in flight, for a time that the controller limits,
    /// and then until the host closes its socket.
    fn leave(&mut self, controller: &mut Controller, now: Time, poller: &Poller) -> bool {
        let source = self.source();
        let Host::Leaving(parting) = &mut self.host else {
            return false;
        };
        if !controller.is_quiet() {
            return false;
        }
        let begins = parting.deadline().is_none();
        if begins {
            // The next host may use it, wherever a migration has ended.
            controller.halt(false);
            controller.set_view(DmaView::empty(), LostFlag::default());
        }
        if parting.poll(now.0) {
            if !begins && let Err(error) = poller.remove(parting.as_fd()) {
                tracing::error!(controller = self.name, "cannot forget a socket: {error}");
            }
            self.host = Host::None;
            self.admit(controller, poller);
        } else if begins && let Err(error) = poller.add(parting.as_fd(), source) {
            // its deadline applies nevertheless
            tracing::error!(controller = self.name, "cannot watch a socket: {error}");
        }
        true
    }

    /// Begins the removal: the host is detached, and no other can attach.
    pub(crate) fn remove(
        &mut self,
        controller: &mut Controller,
        poller: &Poller,
        answer: Answer<()>,
    ) {
        self.removal = Some(answer);
        self.door.close(&self.name, poller);
        self.detach(controller, poller);
    }

    /// Whether a removal is complete, and this can be dropped.
    pub(crate) fn is_removed(&self) -> bool {
        self.removal.is_some() && matches!(self.host, Host::None)
    }

    /// Reports the end of the removal. The listening socket is closed by then.
    pub(crate) fn finish(self) {
        let Local { door, removal, .. } = self;
        drop(door);
        if let Some(answer) = removal {
            answer.send(());
        }
    }
}

/// Hands a host's memory to memory care.
fn look_after(name: &str, memory: &ClientMappings) {
    let owner = Owner::Host {
        name: name.to_owned(),
        near: Nodes::of_machine().of_this_thread(),
    };
    for mapping in memory.mappings() {
        let pieces: Arc<dyn Pieces> = mapping.clone();
        memory_care::look_after(&owner, &pieces);
    }
}
