//! The supervisor: it opens media, starts reactors, and creates and deletes subsystems and
//! controllers, at the start from a configuration and later on request.
//!
//! Its configuration always passes [`Config::validate`]: each change is tried on a copy first.
//! Later changes by hosts and operators are part of the subsystems' state, which lives on their
//! reactors.

mod access;
mod channels;
mod controllers;
mod exports;
mod hosts;
mod inventory;
mod looks;
mod media;
mod mounts;
mod moves;
mod network;
mod operate;
mod partitions;
mod places;
mod preallocation;
mod protection;
mod queues;
mod recording;
mod reload;
mod steps;
mod stores;
mod subsystems;
mod tenants;
mod timing;
mod traces;
mod ublk;
mod upgrade;
mod vhost_user_blk;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::port::ChannelId;
use anyhow::Context;
use api::config::tenant::Tenant;
use api::config::{self, Config, HugePages};
use api::{
    ControllerChange, EndedProcess, MediumChange, Protocol, Refusal, TenantChange, What, noun,
};
use engine::{ControllerSlot, Mode};
use holder::Holder;
use machine::files::read_text;
use reactor::handle::ReactorHandle;
use reactor::presence::Presence;
use reactor::{Pulse, memory_care};
use tokio::sync::Notify;
use transport::nvme_tcp::{DiscoveryLog, GeneratedKeys, Listed, Powers};
use transport::secure::Handshakes;

pub use self::channels::check_tls;
pub(crate) use self::hosts::absent;
pub use self::media::spec_of;
use self::mounts::Mounted;
use self::places::Resting;
pub use self::reload::Source;
use self::subsystems::Live;
use self::timing::TimingState;
use self::ublk::{Keeper as BlockDevice, Leave};
use crate::identity::Identities;
use crate::keep::keeper::Keeper;
use crate::keep::memory::Image;
use crate::keep::timing::checkpoints::Checkpoints;
use crate::partition::Store;
use crate::reconcile::id::{ControllerId, MediumId, NamespaceId, TenantId};
use crate::reconcile::inventory::Objects;
use crate::reconcile::step::Step;
use crate::reconcile::unfinished::Unfinished;
use crate::saved::Saved;
use crate::trace::Reason;
use crate::trouble::Reporter;

/// A medium that is open.
#[derive(Debug)]
struct OpenMedium {
    name: String,
    medium: Arc<::media::Medium>,
    /// Identifier of its channel, the same on every reactor.
    channel: ChannelId,
    /// The reactor that opened it, where only one may.
    home: Cell<Option<usize>>,
    /// File of its timing model's state.
    state: Option<TimingState>,
    /// File of its contents between clean stops, for a medium in memory.
    image: Option<Image>,
    /// Its partitions, if it can have some.
    partitions: Option<Store>,
    /// File of the recorded model operations, written when the medium is closed.
    recording: Option<recording::RecordingFile>,
}

/// A controller that is served.
#[derive(Debug)]
struct Served {
    name: String,
    reactor: usize,
    slot: ControllerSlot,
    presence: Arc<Presence>,
    doorbell_messages: Arc<memory::Counter>,
    /// Reactors outside of the configuration that one of its queues was moved to.
    visited: BTreeSet<usize>,
    /// Its mount, if it is a mount.
    mount: Option<Mounted>,
    /// The protocol of its hosts, if they have controllers of their own.
    protocol: Option<Protocol>,
    /// Its subsystem and address, if hosts reach it over NVMe/TCP.
    listed: Option<Listed>,
    /// Its UNIX socket, if NBD clients or a vhost-user-blk front end come there: the file goes with
    /// it.
    socket: Option<vfio_user::Listener>,
    /// Its block device, if it has one.
    keeper: Option<BlockDevice>,
}

#[derive(Debug)]
struct State {
    config: Config,
    identities: Option<Identities>,
    /// Dropped before the keeper.
    reactors: Vec<ReactorHandle>,
    keeper: Keeper,
    checkpoints: Checkpoints,
    troubles: Reporter,
    media: Vec<OpenMedium>,
    subsystems: Vec<Live>,
    /// Namespaces that hosts created in subsystems that are not served now. They return with their
    /// subsystem.
    resting: Vec<Resting>,
    controllers: Vec<Served>,
    /// State of tenants as sent to reactors.
    tenants: tenants::SentTenants,
    /// Running traces, and ended ones that were not deleted.
    traces: Vec<traces::Known>,
    /// Reason with which traces end when their controller is deleted.
    traces_end: Reason,
    /// File of run-time changes.
    saved: Option<Saved>,
    /// The configuration file, if there is one.
    source: Option<Source>,
    /// Subsystems that hosts can reach over NVMe/TCP, as the reactors know them.
    discovery: Arc<DiscoveryLog>,
    /// The thread that computes powers for the authentication of hosts, once one needs it.
    powers: Option<Powers>,
    /// Keys of TLS that hosts have made.
    generated: GeneratedKeys,
    /// The thread that does handshakes of TLS, once one may come.
    handshakes: Option<Handshakes>,
    /// The process that replaces this one when it dies.
    holder: Option<Arc<Holder>>,
    /// When the hosts of the process before went on: the time of CLOCK_MONOTONIC.
    before: Option<EndedProcess>,
    /// The media of the process before are being opened.
    is_continuing: bool,
    /// Subsystems that this process has served.
    continued: BTreeSet<String>,
    /// The wanted objects. They differ from `config`, the served ones, while a plan is carried out,
    /// and after one that did not end.
    desired: Objects,
    /// Objects that the last plan has taken away and not given back.
    unfinished: Unfinished,
    /// A plan is being carried out.
    is_reconciling: bool,
    /// The server is stopping: changes are refused.
    is_ending: bool,
}

/// All objects of one server process.
#[derive(Debug)]
pub(crate) struct Supervisor {
    state: Mutex<State>,
    /// Held by the one change in progress; locked before `state`.
    turn: Mutex<()>,
    /// Notified when the server is asked to stop.
    stop_asked: Notify,
}

/// The exclusive right to change objects, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Turn<'a> {
    _guard: MutexGuard<'a, ()>,
}

impl Supervisor {
    /// Starts to serve a configuration, all of it or nothing. `saved` records later changes;
    /// `source` is the file that a reload reads; `holder` has the sockets, if it is there.
    pub(crate) fn start(
        config: Config,
        saved: Option<Saved>,
        source: Option<Source>,
        holder: Option<Arc<Holder>>,
    ) -> anyhow::Result<Self> {
        let mut nothing = config.clone();
        Objects::default().put_into(&mut nothing);
        let mut state = State {
            config: nothing,
            identities: None,
            reactors: Vec::new(),
            keeper: Keeper::start().context("cannot start a thread")?,
            checkpoints: Checkpoints::start().context("cannot start a thread")?,
            troubles: Reporter::start().context("cannot start a thread")?,
            media: Vec::new(),
            subsystems: Vec::new(),
            resting: Vec::new(),
            controllers: Vec::new(),
            tenants: tenants::SentTenants::default(),
            traces: Vec::new(),
            traces_end: Reason::Deleted,
            saved: None,
            source,
            before: holder.as_ref().and_then(|holder| upgrade::ended(holder)),
            is_continuing: holder.as_ref().is_some_and(|it| it.generation() > 1),
            discovery: network::no_subsystems(),
            powers: None,
            generated: GeneratedKeys::default(),
            handshakes: None,
            holder,
            continued: BTreeSet::new(),
            desired: Objects::default(),
            unfinished: Unfinished::default(),
            is_reconciling: false,
            is_ending: false,
        };
        let collapse = config.huge_pages == HugePages::Collapse;
        // Media in memory are in memfds then.
        memory_care::start(collapse, state.holder.is_some()).context("cannot start a thread")?;
        if state.config.reactor.is_empty() {
            state.config.reactor.push(config::Reactor::default());
        }
        for (index, reactor) in state.config.reactor.iter().enumerate() {
            let handle = ReactorHandle::start(index, reactor.cpu, mode_of(reactor))?;
            state.reactors.push(handle);
        }
        for reactor in &state.reactors {
            reactor.meet(&state.reactors)?;
        }
        let supervisor = Supervisor {
            state: Mutex::new(state),
            turn: Mutex::new(()),
            stop_asked: Notify::new(),
        };
        let unfinished = saved.as_ref().map(Saved::unfinished);
        let unfinished = unfinished.cloned().unwrap_or_default();
        let served = supervisor.lock().serve_all(&config, unfinished);
        let is_continuing = std::mem::take(&mut supervisor.lock().is_continuing);
        if let Err(error) = served {
            if is_continuing {
                // Another process tries, with the same hosts and memory: this one closes none of
                // them, but ends.
                std::mem::forget(supervisor);
                return Err(error);
            }
            supervisor.lock().forget_new_files();
            // Close everything as usual: media in memory have consumed their files and must write
            // them again.
            if let Err(error) = supervisor.stop() {
                tracing::error!("{error:#}");
            }
            return Err(error);
        }
        if let Some(mut saved) = saved {
            if let Err(error) = saved.begin() {
                tracing::error!(
                    "run-time changes are not saved yet; the next change tries again: {error:#}"
                );
            }
            supervisor.lock().saved = Some(saved);
        }
        Ok(supervisor)
    }

    /// Whether every command that a former process had in flight has ended, of those that may go
    /// on.
    pub(crate) fn has_replayed(&self) -> anyhow::Result<bool> {
        let state = self.lock();
        for reactor in &state.reactors {
            if !reactor.has_replayed()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Asks the main thread to stop the server.
    pub(crate) fn ask_to_stop(&self) {
        self.stop_asked.notify_one();
    }

    /// Waits until the server is asked to stop.
    pub(crate) async fn asked_to_stop(&self) {
        self.stop_asked.notified().await;
    }

    /// A request that panicked left the state as it was before or after one step, so later requests
    /// may proceed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A probe of each reactor that works from any thread, without waiting for a request in
    /// progress.
    pub(crate) fn pulses(&self) -> Vec<Pulse> {
        self.lock()
            .reactors
            .iter()
            .map(ReactorHandle::pulse)
            .collect()
    }

    /// Waits for the exclusive right to change objects. A caller whose change depends on what it
    /// reads holds this from the read to the change: an operator's request, and a reload.
    pub(crate) fn steer(&self) -> Turn<'_> {
        Turn {
            _guard: self.turn.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The running configuration.
    pub(crate) fn configuration(&self) -> Result<Config, Refusal> {
        let configuration = self.lock().configuration();
        configuration.map_err(|error| Refusal::failed(&error))
    }

    /// Opens a medium.
    pub(crate) fn create_medium(&self, medium: config::Medium) -> Result<(), Refusal> {
        medium.read_preset(read_text);
        self.request(&Step::Create(medium.into()), false)
    }

    /// Creates a namespace, which can then be attached to controllers.
    pub(crate) fn create_namespace(&self, namespace: config::Namespace) -> Result<(), Refusal> {
        self.request(&Step::Create(namespace.into()), false)
    }

    /// Serves a controller.
    pub(crate) fn create_controller(&self, controller: config::Controller) -> Result<(), Refusal> {
        self.request(&Step::Create(controller.into()), false)
    }

    /// Creates a tenant.
    pub(crate) fn create_tenant(&self, tenant: Tenant) -> Result<(), Refusal> {
        self.request(&Step::Create(tenant.into()), false)
    }

    /// Closes a medium that no namespace uses.
    pub(crate) fn delete_medium(&self, name: &str) -> Result<(), Refusal> {
        self.request(&Step::Delete(MediumId::new(name).into()), false)
    }

    /// Deletes a namespace that no controller has; its data stays on the medium.
    pub(crate) fn delete_namespace(&self, name: &str) -> Result<(), Refusal> {
        self.request(&Step::Delete(NamespaceId::new(name).into()), false)
    }

    /// Deletes a controller. An attached host loses the drive only with `consent`.
    pub(crate) fn delete_controller(&self, name: &str, consent: bool) -> Result<(), Refusal> {
        self.request(&Step::Delete(ControllerId::new(name).into()), consent)
    }

    /// Deletes a tenant that no controller and no namespace names.
    pub(crate) fn delete_tenant(&self, name: &str) -> Result<(), Refusal> {
        self.request(&Step::Delete(TenantId::new(name).into()), false)
    }

    /// Attaches a namespace to a controller.
    pub(crate) fn attach(&self, namespace: &str, controller: &str) -> Result<(), Refusal> {
        let (namespace, controller) = (NamespaceId::new(namespace), ControllerId::new(controller));
        self.request(&Step::Attach(namespace, controller), false)
    }

    /// Detaches a namespace from a controller, and from an attached host only with `consent`.
    pub(crate) fn detach(
        &self,
        namespace: &str,
        controller: &str,
        consent: bool,
    ) -> Result<(), Refusal> {
        let (namespace, controller) = (NamespaceId::new(namespace), ControllerId::new(controller));
        self.request(&Step::Detach(namespace, controller), consent)
    }

    /// Resizes a namespace; it shrinks only with `shrink`.
    pub(crate) fn resize(
        &self,
        namespace: &str,
        size: config::Size,
        shrink: bool,
    ) -> Result<(), Refusal> {
        self.request(&Step::Resize(NamespaceId::new(namespace), size), shrink)
    }

    /// Changes a medium at run time: timing parameters, and states of zones.
    pub(crate) fn change_medium(&self, medium: &str, change: &MediumChange) -> Result<(), Refusal> {
        self.change(What::Changed, ("media", medium), |state| {
            if !change.timing.is_empty() || change.zones.is_empty() {
                let timing = state.timing_with(medium, &change.timing)?;
                let step = Step::Retune(MediumId::new(medium), Box::new(timing));
                state.request(&step, false)?;
            }
            state.lose_zones(medium, &change.zones)
        })
    }

    /// Changes a tenant at run time.
    pub(crate) fn change_tenant(&self, name: &str, change: &TenantChange) -> Result<(), Refusal> {
        self.change(What::Changed, ("tenant", name), |state| {
            let changed = state.tenant_with(name, change)?;
            state.request(&Step::Assign(changed.into()), false)
        })
    }

    /// Changes a controller at run time.
    pub(crate) fn change_controller(
        &self,
        name: &str,
        change: &ControllerChange,
    ) -> Result<(), Refusal> {
        self.change(What::Changed, ("controller", name), |state| {
            let changed = state.controller_with(name, change)?;
            state.request(&Step::Assign(changed.into()), false)
        })
    }

    /// Moves queues of a controller to other reactors: a single queue, or all queues including
    /// those that hosts create later.
    pub(crate) fn move_queues(
        &self,
        controller: &str,
        reactors: &[usize],
        queue: Option<u16>,
    ) -> Result<(), Refusal> {
        self.change(What::QueuesMoved, ("controller", controller), |state| {
            state.move_queues(controller, reactors, queue)
        })
    }

    /// Stops everything in order: mounts and controllers, then media, which are made durable.
    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        let mut state = self.lock();
        // a reload in progress must not save the half-stopped state
        state.is_ending = true;
        state.saved = None;
        state.traces_end = Reason::ServerEnds;
        let mut result = state.end_block_devices(Leave::Keep);
        result = result.and(state.send_hosts_away());
        while !state.controllers.is_empty() {
            let count = state.controllers.len();
            let ended = state.end(0);
            if state.controllers.len() == count {
                let served = state.controllers.remove(0);
                state.end_traces_of(&served.name);
            }
            result = result.and(ended);
        }
        while !state.media.is_empty() {
            let count = state.media.len();
            let closed = state.close_medium(0);
            if state.media.len() == count {
                state.media.remove(0);
            }
            result = result.and(closed);
        }
        state.reactors.clear();
        result
    }
}

fn mode_of(reactor: &config::Reactor) -> Mode {
    match reactor.mode {
        config::Mode::Poll => Mode::Poll,
        config::Mode::Interrupt => Mode::Interrupt,
        config::Mode::Adaptive => Mode::Adaptive {
            spin_ns: u64::try_from(reactor.spin.0.as_nanos()).unwrap_or(u64::MAX),
            budget_percent: reactor.budget,
        },
    }
}

fn exists(kind: &str, name: &str) -> Refusal {
    Refusal::conflict(format!(
        "there is a {} `{name}` already; choose another name",
        noun(kind)
    ))
}

fn refused(error: anyhow::Error) -> Refusal {
    Refusal::invalid(api::in_a_line(&error))
}

fn refuse_problems(config: &Config) -> Result<(), Refusal> {
    let problems = config.validate();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Refusal::of_problems(&problems))
}
