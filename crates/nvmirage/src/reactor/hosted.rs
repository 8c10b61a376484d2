//! One controller on its reactor: its host's session, and how one ends and the next begins.
//!
//! A host is attached when it has introduced itself ([`Door`]), and is left in order: nothing of it
//! is in flight any more before its socket is closed, and the socket is closed so that the host
//! sees an end of file ([`Parting`]).

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use controller::flight::WatchSpec;
use controller::{Controller, Interrupt};
use engine::ControllerSlot;
use memory::{ClientMappings, DmaView, DoorbellPages, LostFlag, Pieces};
use port::time::Time;
use transport::vfio_user::{Caller, Listener, Parting, Session, SessionConfig};

use super::door::{Door, Seat};
use super::handle::Answer;
use super::lines::Vectors;
use super::poller::{Poller, Source};
use super::presence::Presence;
use crate::events::{self, What};
use crate::memory_care::{self, Owner};
use crate::nodes::Nodes;

/// Who is there.
#[derive(Debug)]
enum Host {
    /// Nobody.
    None,
    /// A host is attached.
    Attached(Box<Session>),
    /// The last host has gone, or is to go; what it left in flight is drained before its socket is
    /// closed, and that before the next may come.
    Leaving(Parting),
}

/// A controller that is served.
#[derive(Debug)]
pub(super) struct Hosted {
    name: String,
    slot: ControllerSlot,
    door: Door,
    session_config: SessionConfig,
    host: Host,
    presence: Arc<Presence>,
    output_watched: bool,
    /// The files of its host's memory that are looked after, as the session counts them.
    memory_told: u64,
    /// The change of its session's lines that other reactors know of; 0 where they know none.
    lines_told: u64,
    /// Whom to tell when it is no longer served.
    removal: Option<Answer<()>>,
    /// How its commands are watched.
    pub(super) watching: WatchSpec,
}

impl Hosted {
    pub(super) fn new(
        name: String,
        slot: ControllerSlot,
        listener: Listener,
        session_config: SessionConfig,
        presence: Arc<Presence>,
        watching: WatchSpec,
    ) -> Self {
        Hosted {
            name,
            slot,
            door: Door::new(listener, Source::Door(slot.0)),
            session_config,
            host: Host::None,
            presence,
            output_watched: false,
            memory_told: 0,
            lines_told: 0,
            removal: None,
            watching,
        }
    }

    pub(super) fn slot(&self) -> ControllerSlot {
        self.slot
    }

    /// Starts to watch for hosts.
    pub(super) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        self.door.watch(poller)
    }

    fn source(&self) -> Source {
        Source::Controller(self.slot.0)
    }

    /// Whether its host's doorbells are stored without waking anyone.
    pub(super) fn is_unwoken(&self) -> bool {
        matches!(&self.host, Host::Attached(session) if session.doorbells_mapped())
    }

    /// Whether it must be looked at again without being woken: replies wait for a drain, or a host
    /// is leaving.
    pub(super) fn is_in_transition(&self) -> bool {
        match &self.host {
            // or the next host has to wait for a controller that is not quiet
            Host::None => self.removal.is_some() || self.door.has_next(),
            Host::Attached(session) => session.has_pending(),
            // from then on it is for its host to close
            Host::Leaving(parting) => parting.deadline().is_none(),
        }
    }

    fn seat(&self) -> Seat {
        match &self.host {
            Host::Attached(session) => Seat::Taken(session.process()),
            Host::None | Host::Leaving(_) => Seat::Free,
        }
    }

    /// The earliest time at which one of its sockets has something to do.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let of_host = match &self.host {
            Host::Attached(session) => session.next_deadline(),
            Host::Leaving(parting) => parting.deadline(),
            Host::None => None,
        };
        of_host
            .into_iter()
            .chain(self.door.next_deadline(self.seat()))
            .min()
    }

    /// Raises an interrupt of its host.
    #[inline]
    pub(super) fn raise(&mut self, interrupt: Interrupt) {
        if let Host::Attached(session) = &mut self.host {
            session.raise(interrupt);
        }
    }

    /// How a queue on another reactor interrupts its host.
    pub(super) fn lines(&self) -> Vectors {
        match &self.host {
            Host::Attached(session) => session.lines(),
            Host::None | Host::Leaving(_) => Vec::new(),
        }
    }

    /// Whether that has changed since the last call.
    pub(super) fn have_lines_changed(&mut self) -> bool {
        let now = match &self.host {
            Host::Attached(session) => session.line_changes(),
            Host::None | Host::Leaving(_) => 0,
        };
        std::mem::replace(&mut self.lines_told, now) != now
    }

    /// Looks at the session; true when something was done.
    pub(super) fn poll(&mut self, controller: &mut Controller, now: Time, poller: &Poller) -> bool {
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

    /// Looks at the connections that are no hosts yet; true when something was done.
    pub(super) fn poll_door(
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

    /// Lets the next host in, where nobody is there.
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
                self.presence.enter(session.as_fd());
                events::tell(What::HostAttached, "controller", &self.name);
                self.door.host_came();
                self.output_watched = false;
                self.memory_told = 0;
                self.host = Host::Attached(Box::new(session));
            }
            Err(error) => {
                tracing::error!(controller = self.name, "cannot take a host: {error:#}");
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
        // pages of its own: the last host may have kept a mapping of the old ones
        let doorbells = Arc::new(DoorbellPages::new(controller.config().doorbell_slots())?);
        let session = caller.attach(doorbells.clone(), self.session_config.clone())?;
        controller.set_doorbells(doorbells)?;
        controller.expect_messages();
        poller.add(session.as_fd(), self.source())?;
        if let Some(unmasked) = session.unmasked() {
            poller.add(unmasked, self.source())?;
        }
        Ok(session)
    }

    /// Ends the session; the controller goes back to power-on.
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
        self.presence.leave();
        events::tell(What::HostDetached, "controller", &self.name);
        controller.function_reset();
    }

    /// Waits until nothing of the last host is in flight, which the controller bounds, and then for
    /// the end of its socket.
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
            controller.set_view(DmaView::empty(), LostFlag::default());
        }
        if parting.poll(now) {
            if !begins && let Err(error) = poller.remove(parting.as_fd()) {
                tracing::error!(controller = self.name, "cannot forget a socket: {error}");
            }
            self.host = Host::None;
            self.admit(controller, poller);
        } else if begins && let Err(error) = poller.add(parting.as_fd(), source) {
            // its bound is waited for
            tracing::error!(controller = self.name, "cannot watch a socket: {error}");
        }
        true
    }

    /// Begins to end it: its host is detached, no other may come.
    pub(super) fn remove(
        &mut self,
        controller: &mut Controller,
        poller: &Poller,
        answer: Answer<()>,
    ) {
        self.removal = Some(answer);
        self.door.close(&self.name, poller);
        self.detach(controller, poller);
    }

    /// Whether it was told to end and has: it may be dropped.
    pub(super) fn is_removed(&self) -> bool {
        self.removal.is_some() && matches!(self.host, Host::None)
    }

    /// Tells whoever asked that it has ended. Its socket is gone by then.
    pub(super) fn finish(self) {
        let Hosted { door, removal, .. } = self;
        drop(door);
        if let Some(answer) = removal {
            // who asked may have given up waiting
            let _ = answer.try_send(());
        }
    }
}

/// Has a host's memory looked after.
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
