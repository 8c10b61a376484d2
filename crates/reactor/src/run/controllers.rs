//! The controllers of a reactor: they come, go, and are watched. Some go on from what a former
//! process of the server has left.

use std::sync::Arc;

use anyhow::Context;
use api::config;
use controller::controller::MigrateError;
use controller::flight::{TraceSpec, WatchSpec};
use controller::{Controller, ControllerConfig, Failure};
use engine::{ControllerSlot, SubsystemSlot};
use machine::clock::Clock;
use memory::DoorbellPages;
use subsystem::Subsystem;
use transport::vfio_user::{Entrance, Moving, Resumed, Session, SessionConfig};
use transport::{nbd, ublk, vhost_user};

use super::Reactor;
use crate::answer::Answer;
use crate::hosted::back_end::BackEnd;
use crate::hosted::block_device::BlockDevice;
use crate::hosted::exports::Exports;
use crate::hosted::local::Local;
use crate::hosted::target::Target;
use crate::hosted::{Front, Hosted};
use crate::message::{NewController, Way};

impl Reactor {
    pub(super) fn add_controller(&mut self, new: NewController) -> anyhow::Result<ControllerSlot> {
        let NewController {
            config,
            subsystem,
            mut way,
            presence,
            doorbell_messages,
            keys,
            custody,
        } = new;
        let is_here = custody.as_ref().is_none_or(|custody| custody.is_here());
        let session_config = SessionConfig {
            custody,
            ..SessionConfig::of(&config)
        };
        let resumed = match &mut way {
            Way::VfioUser(entrance) => take_resumed(entrance, &config, &session_config),
            Way::NvmeTcp(_) | Way::Nbd(_) | Way::VhostUserBlk(_) | Way::Ublk => None,
        };
        let template = config.clone();
        let (slot, session) = match resumed {
            Some(resumed) if !is_here => self.is_elsewhere(config, subsystem, resumed)?,
            Some(resumed) => self.go_on(config, subsystem, resumed)?,
            None => (self.begin(config, subsystem)?, None),
        };
        let mut watching = WatchSpec {
            every: 0,
            clock: Clock::now_of_process,
            records: 0,
            trace: None,
        };
        configure(&mut watching, &keys);
        self.engine.watch_commands(slot, Some(watching.clone()));
        let front = match way {
            Way::VfioUser(entrance) => Front::Local(Box::new(Local::new(
                template.name,
                slot,
                entrance,
                session_config,
                presence,
            ))),
            Way::NvmeTcp(listening) => {
                let template = self.template_of(slot, template, listening.config.in_capsule)?;
                let target = Target::new(template, slot, subsystem, listening, presence)?;
                Front::Target(Box::new(target))
            }
            Way::VhostUserBlk(listening) => {
                let template = ControllerConfig {
                    queues: vhost_user::QUEUES,
                    queue_depth: vhost_user::QUEUE_DEPTH,
                    // A front end has no capsules.
                    ..self.template_of(slot, template, 0)?
                };
                let back_end = BackEnd::new(template, slot, subsystem, listening, presence)?;
                Front::BackEnd(Box::new(back_end))
            }
            Way::Ublk => {
                let template = ControllerConfig {
                    queues: ublk::QUEUES,
                    queue_depth: ublk::QUEUE_DEPTH,
                    // The kernel divides requests by the device's limit alone.
                    max_transfer: template.max_transfer.max(ublk::MAX_IO),
                    // A device has no capsules.
                    ..self.template_of(slot, template, 0)?
                };
                Front::BlockDevice(Box::new(BlockDevice::new(template, subsystem, presence)))
            }
            Way::Nbd(listening) => {
                let template = ControllerConfig {
                    queues: nbd::QUEUES,
                    queue_depth: nbd::QUEUE_DEPTH,
                    // A client has no capsules.
                    ..self.template_of(slot, template, 0)?
                };
                let exports = Exports::new(template, slot, subsystem, listening, presence)?;
                Front::Exports(Box::new(exports))
            }
        };
        let mut hosted = Hosted::new(slot, front, watching, doorbell_messages.clone());
        let controller = self.engine.controller_mut(slot);
        let controller = controller.context("it was just added")?;
        controller.set_elsewhere(!is_here);
        controller.set_reactor_counters(self.counters.clone());
        controller.count_doorbell_messages_in(doorbell_messages);
        if self.is_closed {
            hosted.close(self.clock.now(), &self.poller);
        }
        let watched = hosted.watch(&self.poller).and_then(|()| match session {
            Some(session) => hosted.resume(session, controller, &self.poller),
            None => Ok(()),
        });
        if let Err(error) = watched {
            self.engine.remove_controller(slot);
            return Err(error).context("cannot wait for hosts");
        }
        self.place(hosted);
        self.set_ana_states(slot, &keys);
        // A connection that was taken in search of a former host makes no socket readable.
        self.poll_hosted(slot.0, self.clock.now(), Hosted::poll_door);
        self.reports.repeat();
        Ok(slot)
    }

    /// Applies the states of ANA groups for the hosts of an entrance.
    pub(super) fn set_ana_states(&mut self, slot: ControllerSlot, keys: &config::Controller) {
        let Some(subsystem) = self.roster_mut(slot.0).map(|roster| roster.subsystem()) else {
            return;
        };
        let entrance = self
            .engine
            .controller_mut(slot)
            .map(|entrance| entrance.id());
        let subsystem = self.engine.subsystem_mut(subsystem);
        if let (Some(entrance), Some(subsystem)) = (entrance, subsystem) {
            subsystem.set_ana_states(entrance, keys.ana.states());
        }
    }

    /// Keeps a controller's state at its slot.
    pub(super) fn place(&mut self, hosted: Hosted) {
        let at = hosted.slot().0;
        if self.hosted.len() <= at {
            self.hosted.resize_with(at + 1, || None);
        }
        self.hosted[at] = Some(hosted);
    }

    /// A controller without a host.
    pub(super) fn begin(
        &mut self,
        config: ControllerConfig,
        subsystem: SubsystemSlot,
    ) -> anyhow::Result<ControllerSlot> {
        let doorbells = Arc::new(
            DoorbellPages::new(config.doorbell_slots()).context("cannot make doorbell pages")?,
        );
        self.begin_with(config, subsystem, doorbells)
    }

    fn begin_with(
        &mut self,
        config: ControllerConfig,
        subsystem: SubsystemSlot,
        doorbells: Arc<DoorbellPages>,
    ) -> anyhow::Result<ControllerSlot> {
        let its = self.engine.subsystem_mut(subsystem);
        let its = its.context("its subsystem is gone")?;
        let controller = Controller::new(config, doorbells, its)?;
        Ok(self.engine.add_controller(controller, subsystem))
    }

    /// The controller of a former process, with the session of its host. One that cannot go on
    /// reports a fatal status: its host's driver resets it.
    fn go_on(
        &mut self,
        config: ControllerConfig,
        subsystem: SubsystemSlot,
        resumed: Resumed,
    ) -> anyhow::Result<(ControllerSlot, Option<Session>)> {
        let Resumed { session, left } = resumed;
        let doorbells = left.doorbells.clone();
        let restored = self
            .engine
            .restore_controller(config.clone(), left, subsystem);
        let slot = match restored {
            Ok(slot) => slot.context("its subsystem is gone")?,
            Err(error) => {
                tracing::error!(
                    controller = config.name,
                    "cannot go on where the last process ended: {error}; its host finds a fatal status, and must reset it"
                );
                let slot = self.begin_with(config, subsystem, doorbells)?;
                if let Some(controller) = self.engine.controller_mut(slot) {
                    controller.fail(Failure::NotRestored);
                }
                slot
            }
        };
        Ok((slot, Some(session)))
    }

    /// The controller of a host of a former process that has given its medium to another server:
    /// nothing is executed again here. It reports a fatal status.
    fn is_elsewhere(
        &mut self,
        config: ControllerConfig,
        subsystem: SubsystemSlot,
        resumed: Resumed,
    ) -> anyhow::Result<(ControllerSlot, Option<Session>)> {
        let Resumed { session, left } = resumed;
        tracing::error!(
            controller = config.name,
            "another server has its medium: its host finds a fatal status here"
        );
        let slot = self.begin_with(config, subsystem, left.doorbells)?;
        if let Some(controller) = self.engine.controller_mut(slot) {
            controller.fail(Failure::Elsewhere);
        }
        Ok((slot, Some(session)))
    }

    /// The steps of a migration for which a controller and its session are not enough.
    pub(super) fn migrate(&mut self, index: usize) {
        let Some(hosted) = self.hosted.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let slot = hosted.slot();
        let (watching, messages) = (hosted.watching.clone(), hosted.doorbell_messages.clone());
        let Some(session) = hosted.session_mut() else {
            return;
        };
        let subsystem = self.engine.subsystem_of(slot);
        let obstacle = subsystem.and_then(Subsystem::obstacle_to_move);
        let obstacle = obstacle.map_or(Ok(()), |what| Err(MigrateError::Kept(what)));
        let Some(controller) = self.engine.controller_mut(slot) else {
            return;
        };
        if session.asks_to_leave() {
            return session.may_leave(controller, obstacle);
        }
        let Some(moving) = session.take_arrived(controller) else {
            return;
        };
        let taken = obstacle.and_then(|()| {
            let Moving {
                state,
                doorbells,
                view,
            } = moving;
            self.engine.replace_controller(slot, state, doorbells, view)
        });
        let Some(controller) = self.engine.controller_mut(slot) else {
            return;
        };
        controller.set_reactor_counters(self.counters.clone());
        controller.count_doorbell_messages_in(messages);
        if let Err(end) = session.moved(controller, taken) {
            // Its socket says so again at the next poll.
            tracing::debug!(slot = slot.0, "cannot keep a moved state: {end}");
        }
        self.engine.watch_commands(slot, Some(watching));
    }

    /// Whether every controller that goes on has executed again what it may.
    pub(super) fn has_replayed(&mut self) -> bool {
        let mut slots = self.hosted.iter().flatten().map(Hosted::slot);
        slots.all(|slot| {
            let controller = self.engine.controller_mut(slot);
            controller.is_none_or(|controller| controller.has_replayed())
        })
    }

    /// Lets the controllers that go on execute copies again.
    pub(super) fn release_copies(&mut self) {
        for hosted in self.hosted.iter().flatten() {
            self.engine.release_copies(hosted.slot());
        }
    }

    /// Lets the controllers that go on fetch commands. One whose medium hangs reports a fatal
    /// status instead: what it still has to execute again must not follow what a host submits from
    /// now on.
    pub(super) fn release(&mut self) {
        for hosted in self.hosted.iter().flatten() {
            let slot = hosted.slot();
            if let Some(controller) = self.engine.controller_mut(slot)
                && !controller.has_replayed()
            {
                controller.fail(Failure::NotRestored);
            }
            self.engine.release_controller(slot);
        }
    }

    pub(super) fn trace(
        &mut self,
        slot: ControllerSlot,
        trace: Option<TraceSpec>,
        answer: Option<Answer<()>>,
    ) {
        self.watch(slot, |watching| watching.trace = trace);
        if let Some(answer) = answer {
            answer.send(());
        }
    }

    /// Changes tracing or latency sampling of a controller.
    pub(super) fn watch(&mut self, slot: ControllerSlot, change: impl FnOnce(&mut WatchSpec)) {
        let hosted = self.hosted.get_mut(slot.0).and_then(Option::as_mut);
        let Some(hosted) = hosted else {
            return;
        };
        change(&mut hosted.watching);
        let watching = hosted.watching.clone();
        let hosts = self.hosts_of_entrance(slot.0);
        self.engine.watch_commands(slot, Some(watching.clone()));
        // The hosts of an entrance have controllers of their own, which are watched as it is.
        for slot in hosts {
            if let Some(hosted) = self.hosted.get_mut(slot.0).and_then(Option::as_mut) {
                hosted.watching = watching.clone();
            }
            self.engine.watch_commands(slot, Some(watching.clone()));
        }
    }

    pub(super) fn remove_controller(&mut self, slot: ControllerSlot, answer: Answer<()>) {
        let hosted = self.hosted.get_mut(slot.0).and_then(Option::as_mut);
        match (hosted, self.engine.controller_mut(slot)) {
            (Some(hosted), Some(controller)) => {
                hosted.remove(controller, self.clock.now(), &self.poller, answer);
                self.end_associations(slot.0, |_| true);
                self.note_transition(slot.0);
            }
            _ => answer.send(()),
        }
    }
}

/// Applies the live keys of a controller that concern its watch.
pub(super) fn configure(watching: &mut WatchSpec, keys: &config::Controller) {
    watching.every = keys.sample;
    watching.records = keys.records.into();
}

/// The session of the host that a former process had, if there was one. A host that this cannot go
/// on with loses its drive.
fn take_resumed(
    entrance: &mut Entrance,
    config: &ControllerConfig,
    session_config: &SessionConfig,
) -> Option<Resumed> {
    let arrival = entrance.take_resumed();
    let lost = |error: &dyn std::fmt::Display| {
        tracing::error!(
            controller = config.name,
            "the host of the last process cannot be served: {error}; it loses its drive"
        );
    };
    let arrival = arrival.inspect_err(|error| lost(error)).ok()??;
    let read = Resumed::read(arrival, config.doorbell_slots(), session_config.clone());
    read.inspect_err(|error| lost(error)).ok()
}
