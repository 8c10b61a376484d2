//! One controller on its reactor: its listening socket, its host's session, and how one ends and the next begins.

use std::{io, os::fd::AsFd, sync::Arc};

use controller::{Controller, Interrupt, flight::WatchSpec, time::Time};
use engine::ControllerSlot;
use memory::{ClientMappings, DmaView, DoorbellPages, LostFlag, Pieces};
use transport::vfio_user::{Listener, Session, SessionConfig};

use super::{
    handle::Answer,
    lines::Vectors,
    poller::{Poller, Source},
    presence::Presence,
};
use crate::{
    events::{self, What},
    memory_care::{self, Owner},
    nodes::Nodes,
};

/// Who is there.
#[derive(Debug)]
enum Host {
    /// Nobody; the listening socket is watched.
    None,
    /// A host is attached.
    Attached(Box<Session>),
    /// The last host has gone; what it left in flight is drained before the next may come.
    Leaving,
}

/// A controller that is served.
#[derive(Debug)]
pub(super) struct Hosted {
    name: String,
    slot: ControllerSlot,
    listener: Listener,
    session_config: SessionConfig,
    host: Host,
    presence: Arc<Presence>,
    output_watched: bool,
    /// The log has said that a host could not be accepted, and none has been since.
    refusal_logged: bool,
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
            listener,
            session_config,
            host: Host::None,
            presence,
            output_watched: false,
            refusal_logged: false,
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
    pub(super) fn watch(&self, poller: &Poller) -> io::Result<()> {
        poller.add(self.listener.as_fd(), self.source())
    }

    fn source(&self) -> Source {
        Source::Controller(self.slot.0)
    }

    /// Whether its host's doorbells are stored without waking anyone.
    pub(super) fn is_unwoken(&self) -> bool {
        matches!(&self.host, Host::Attached(session) if session.doorbells_mapped())
    }

    /// Whether it must be looked at again without being woken: replies wait for a drain, or a host is leaving.
    pub(super) fn is_in_transition(&self) -> bool {
        match &self.host {
            Host::None => self.removal.is_some(),
            Host::Attached(session) => session.has_pending(),
            Host::Leaving => true,
        }
    }

    /// The earliest time at which its session has something to do.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        match &self.host {
            Host::Attached(session) => session.next_deadline(),
            Host::None | Host::Leaving => None,
        }
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
            Host::None | Host::Leaving => Vec::new(),
        }
    }

    /// Whether that has changed since the last call.
    pub(super) fn have_lines_changed(&mut self) -> bool {
        let now = match &self.host {
            Host::Attached(session) => session.line_changes(),
            Host::None | Host::Leaving => 0,
        };
        std::mem::replace(&mut self.lines_told, now) != now
    }

    /// Looks at its sockets; true when something was done.
    pub(super) fn poll(&mut self, controller: &mut Controller, now: Time, poller: &Poller) -> bool {
        match &mut self.host {
            Host::None => self.accept(controller, poller),
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
            Host::Leaving => self.leave(controller, poller),
        }
    }

    fn accept(&mut self, controller: &mut Controller, poller: &Poller) -> bool {
        if self.removal.is_some() || !controller.is_quiet() {
            return false;
        }
        match self.try_accept(controller, poller) {
            Ok(None) => false,
            Ok(Some(session)) => {
                tracing::info!(controller = self.name, "host attached");
                self.presence.enter(session.as_fd());
                events::tell(What::HostAttached, "controller", &self.name);
                self.output_watched = false;
                self.refusal_logged = false;
                self.memory_told = 0;
                self.host = Host::Attached(Box::new(session));
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut self.refusal_logged, true) {
                    tracing::error!(controller = self.name, "cannot accept a host: {error:#}");
                }
                false
            }
        }
    }

    fn try_accept(
        &self,
        controller: &mut Controller,
        poller: &Poller,
    ) -> anyhow::Result<Option<Session>> {
        let Some(stream) = self.listener.accept()? else {
            return Ok(None);
        };
        // pages of its own: the last host may have kept a mapping of the old ones
        let doorbells = Arc::new(DoorbellPages::new(controller.config().doorbell_slots())?);
        let session = Session::new(stream, doorbells.clone(), self.session_config.clone())?;
        controller.set_doorbells(doorbells)?;
        // one host at a time: others wait in the backlog until this one has gone
        poller.remove(self.listener.as_fd())?;
        poller.add(session.as_fd(), self.source())?;
        if let Some(unmasked) = session.unmasked() {
            poller.add(unmasked, self.source())?;
        }
        Ok(Some(session))
    }

    /// Ends the session; the controller goes back to power-on.
    fn detach(&mut self, controller: &mut Controller, poller: &Poller) {
        if let Host::Attached(session) = std::mem::replace(&mut self.host, Host::Leaving) {
            for fd in [Some(session.as_fd()), session.unmasked()]
                .into_iter()
                .flatten()
            {
                if let Err(error) = poller.remove(fd) {
                    tracing::error!(controller = self.name, "cannot forget a session: {error}");
                }
            }
            self.presence.leave();
            events::tell(What::HostDetached, "controller", &self.name);
            controller.function_reset();
        }
    }

    /// Waits until nothing of the last host is in flight; the controller bounds that.
    fn leave(&mut self, controller: &mut Controller, poller: &Poller) -> bool {
        if !controller.is_quiet() {
            return false;
        }
        controller.set_view(DmaView::empty(), LostFlag::default());
        self.host = Host::None;
        if self.removal.is_none()
            && let Err(error) = self.watch(poller)
        {
            tracing::error!(controller = self.name, "cannot wait for hosts: {error}");
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
        match self.host {
            Host::None => {
                if let Err(error) = poller.remove(self.listener.as_fd()) {
                    tracing::error!(controller = self.name, "cannot forget a socket: {error}");
                }
            }
            Host::Attached(_) => self.detach(controller, poller),
            Host::Leaving => {}
        }
    }

    /// Whether it was told to end and has: it may be dropped.
    pub(super) fn is_removed(&self) -> bool {
        self.removal.is_some() && matches!(self.host, Host::None)
    }

    /// Tells whoever asked that it has ended. Its socket is gone by then.
    pub(super) fn finish(self) {
        let Hosted {
            listener, removal, ..
        } = self;
        drop(listener);
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
