//! Controllers: how they are created in their subsystem, and deleted.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use api::config::{Config, Controller, Doorbells, Listen};
use api::{ControllerChange, ControllerIdentity, Protocol, Refusal, What};
use controller::config::{ControllerConfig, DoorbellMode, Interface};
use engine::{Mode, SubsystemSlot};
use media::Medium;
use reactor::custody::{Locks, Place};
use reactor::message::{NewController, Way};
use reactor::presence::Presence;
use transport::vfio_user::{Custody, Entrance};
use vfio_user::Listener;

use super::mounts::{Mounted, Socket, mount, mount_apart, unmount_dead};
use super::{BlockDevice, Served, State};
use crate::reconcile::inventory::find;
use crate::{events, identity};

/// Reports that a host has attached or left.
fn announce(controller: &str, is_there: bool) {
    let what = if is_there {
        What::HostAttached
    } else {
        What::HostDetached
    };
    events::tell(what, "controller", controller);
}

/// Reports that the files of a controller have been released or taken.
fn announce_media(controller: &str, are_here: bool) {
    let what = if are_here {
        What::MediaClaimed
    } else {
        What::MediaReleased
    };
    events::tell(what, "controller", controller);
}

/// The files of media, for another server on this machine.
fn place_of(media: &[Arc<Medium>]) -> anyhow::Result<Place> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let boot = boot.context("cannot read the identifier of the machine's start")?;
    let mut files = Vec::new();
    for medium in media {
        let id = medium.file_id().context("cannot examine its file")?;
        files.extend(id.map(|(device, inode)| format!("device {device:#x}, inode {inode}")));
    }
    Ok(Place {
        boot: boot.trim().to_owned(),
        files: files.join("; "),
    })
}

/// Identity of a subsystem, as its controllers report it to hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) serial: String,
    pub(super) subnqn: String,
}

impl State {
    /// The identity of a served subsystem, as its hosts see it.
    pub(super) fn identity_of(&self, subsystem: &str) -> Option<ControllerIdentity> {
        let find = |of: fn(&Controller) -> Option<&String>| {
            self.config.controllers_of(subsystem).find_map(of).cloned()
        };
        // derived ones were read when the subsystem was created
        let derived = self.identities.as_ref();
        let lasting = identity::lasting_name(&self.config, subsystem);
        Some(ControllerIdentity {
            serial: find(|c| c.serial.as_ref()).or(derived.map(|ids| ids.serial(&lasting)))?,
            subnqn: find(|c| c.subnqn.as_ref()).or(derived.map(|ids| ids.subnqn(&lasting)))?,
        })
    }

    /// The identity of a subsystem: the values that one of its controllers sets, otherwise derived
    /// ones.
    pub(super) fn words(&mut self, config: &Config, name: &str) -> anyhow::Result<Words> {
        let find = |of: fn(&Controller) -> Option<&String>| {
            config.controllers_of(name).find_map(of).cloned()
        };
        let lasting = identity::lasting_name(config, name);
        let serial = match find(|c| c.serial.as_ref()) {
            Some(serial) => serial,
            None => self.identities()?.serial(&lasting),
        };
        let subnqn = match find(|c| c.subnqn.as_ref()) {
            Some(subnqn) => subnqn,
            None => self.identities()?.subnqn(&lasting),
        };
        Ok(Words { serial, subnqn })
    }

    /// Serves a controller of a running subsystem.
    pub(super) fn serve(&mut self, config: &Controller) -> anyhow::Result<()> {
        let place = || format!("controller {}", config.name);
        let live = self
            .live(config.subsystem())
            .context("its subsystem is gone");
        let live = live.with_context(place)?;
        let (reactor, subsystem) = (live.reactor, live.slot);
        let served = match &config.listen {
            Listen::NvmeTcp(_) => Some(self.serve_over_tcp(config, reactor, subsystem)),
            Listen::Nbd(address) => Some(self.serve_over_nbd(config, address, reactor, subsystem)),
            Listen::VhostUserBlk(path) => {
                Some(self.serve_over_vhost_user_blk(config, path, reactor, subsystem))
            }
            Listen::Ublk(id) => Some(self.serve_over_ublk(config, *id, reactor, subsystem)),
            Listen::VfioUser(_) | Listen::Fuse(_) | Listen::Unix(_) => None,
        };
        if let Some(served) = served {
            // Where a process cannot continue, the next one tries with the same socket.
            if served.is_err() && !self.is_continuing {
                self.forget_listener(&config.name);
            }
            return served.with_context(place);
        }
        let found = self.find_mount(config).with_context(place)?;
        let socket = match &found {
            Some(mount) => Socket::Found(mount.target().to_owned()),
            None => Socket::of(&config.listen).with_context(place)?,
        };
        let entrance = self.entrance(config, &socket.path()).with_context(place)?;
        let new = self
            .prepare(config, Way::VfioUser(entrance), reactor, subsystem)
            .with_context(place)?;
        for other in &config.reactors {
            self.open_media_on(config.subsystem(), *other)
                .with_context(place)?;
        }
        self.add(config, reactor, new)
            .inspect_err(|_| self.close_at_holder(&socket.path()))
            .with_context(place)?;
        let mounted = match (found, &self.holder) {
            (Some(mount), _) => Ok(Some(Mounted::Apart(mount))),
            (None, Some(_)) if self.is_continuing => Ok(None),
            (None, Some(holder)) => mount_apart(config, &socket.path(), holder),
            (None, None) => mount(config, &socket.path()),
        };
        match mounted.with_context(place) {
            Ok(mount) => {
                if matches!(mount, Some(Mounted::Apart(_))) {
                    socket.leave();
                }
                let served = self.controllers.last_mut();
                served.expect("it was just added").mount = mount;
                Ok(())
            }
            Err(error) => {
                if let Some(served) = self.controllers.pop() {
                    self.reactors[reactor].remove_controller(served.slot)?;
                }
                self.close_at_holder(&socket.path());
                Err(error)
            }
        }
    }

    /// Serves a controller whose hosts come over NVMe/TCP.
    fn serve_over_tcp(
        &mut self,
        config: &Controller,
        reactor: usize,
        subsystem: SubsystemSlot,
    ) -> anyhow::Result<()> {
        let address = config.tcp_address().context("it has no TCP address")?;
        let way = self.listening(config, address)?;
        let new = self.prepare(config, way, reactor, subsystem)?;
        for other in &config.reactors {
            self.open_media_on(config.subsystem(), *other)?;
        }
        let listed = self.listed(config, new.config.subnqn.clone());
        self.add(config, reactor, new)?;
        if let Some(served) = self.controllers.last_mut() {
            served.protocol = Some(Protocol::NvmeTcp);
            served.listed = listed;
        }
        self.tell_discovery()
    }

    /// Adds a controller to its reactor.
    pub(super) fn add(
        &mut self,
        config: &Controller,
        reactor: usize,
        new: NewController,
    ) -> anyhow::Result<()> {
        let presence = new.presence.clone();
        let doorbell_messages = new.doorbell_messages.clone();
        let slot = self.reactors[reactor].add_controller(new)?;
        self.reactors[reactor].spread(slot, &config.reactors)?;
        // The keeper of a block device logs when there is one.
        let how = if config.ublk_id().is_some() {
            "making or taking over the block device of"
        } else {
            "listening on"
        };
        tracing::info!(
            controller = config.name,
            subsystem = config.subsystem(),
            reactor,
            "{how} {}",
            config.listen
        );
        self.controllers.push(Served {
            name: config.name.clone(),
            reactor,
            slot,
            presence,
            doorbell_messages,
            visited: BTreeSet::new(),
            mount: None,
            protocol: None,
            listed: None,
            socket: None,
            keeper: None,
        });
        Ok(())
    }

    /// A controller with changes of its keys.
    pub(super) fn controller_with(
        &self,
        name: &str,
        change: &ControllerChange,
    ) -> Result<Controller, Refusal> {
        let controller = find(&self.config.controller, name);
        let controller = controller.ok_or_else(|| Refusal::not_found("controller", name))?;
        api::changed(controller, &change.0, "")
    }

    /// Applies the live keys of a controller, except its tenant.
    pub(super) fn tell_of_controller(&mut self, name: &str) -> Result<(), Refusal> {
        let configured = find(&self.config.controller, name);
        let at = self
            .controllers
            .iter()
            .position(|served| served.name == name);
        let (Some(configured), Some(at)) = (configured, at) else {
            return Ok(());
        };
        let keys = Arc::new(configured.clone());
        let served = &self.controllers[at];
        let told = self.reactors[served.reactor].configure(served.slot, keys);
        let told = told.and_then(|()| self.list_again(at));
        told.map_err(|error| Refusal::failed(&error))
    }

    /// Whether every reactor of a controller is in `poll` mode.
    fn all_poll(&self, home: usize, config: &Controller) -> bool {
        let mut all = config.reactors.iter().chain([&home]);
        all.all(|reactor| self.reactors[*reactor].mode() == Mode::Poll)
    }

    pub(super) fn prepare(
        &mut self,
        config: &Controller,
        way: Way,
        reactor: usize,
        subsystem: SubsystemSlot,
    ) -> anyhow::Result<NewController> {
        let Words { serial, subnqn } = self.words(&self.aim(), config.subsystem())?;
        let doorbells = match config.doorbells {
            Doorbells::Mapped => DoorbellMode::Mapped,
            Doorbells::Unmapped => DoorbellMode::Unmapped,
            Doorbells::Trapped => DoorbellMode::Trapped,
            Doorbells::Auto if self.all_poll(reactor, config) => DoorbellMode::Mapped,
            Doorbells::Auto => DoorbellMode::Unmapped,
        };
        let keys = Arc::new(config.clone());
        let custody = self.custody_of(config)?;
        let config = ControllerConfig {
            name: config.name.clone(),
            vendor_id: config
                .vendor_id
                .unwrap_or(controller::config::DEFAULT_VENDOR_ID),
            device_id: config
                .device_id
                .unwrap_or(controller::config::DEFAULT_DEVICE_ID),
            serial,
            model_number: config.model_number.clone(),
            firmware_revision: config.firmware_revision.clone(),
            subnqn,
            queues: config.queues,
            queue_depth: config.queue_depth,
            max_transfer: u32::try_from(config.max_transfer.0).context("max_transfer")?,
            doorbells,
            msix: config.msix,
            intx: config.intx,
            interface: Interface::Pcie,
        };
        Ok(NewController {
            keys,
            config,
            subsystem,
            way,
            presence: Arc::new(Presence::new(announce)),
            doorbell_messages: Arc::default(),
            custody,
        })
    }

    /// The media of a controller that may move.
    fn custody_of(&self, config: &Controller) -> anyhow::Result<Option<Arc<dyn Custody>>> {
        if !config.migration {
            return Ok(None);
        }
        let aim = self.aim();
        let used = aim.media.iter().filter(|m| config.uses(&aim, &m.name));
        let media: Vec<_> = used
            .map(|m| self.medium(&m.name).cloned())
            .collect::<anyhow::Result<_>>()?;
        anyhow::ensure!(
            media.iter().all(|medium| medium.may_migrate()),
            "migration: a block device cannot be handed to another server: use a file, or remove migration"
        );
        if media.iter().any(|medium| !medium.is_held()) {
            tracing::info!(
                controller = config.name,
                "another server has its media: it waits for its state, or for the other server's end"
            );
        }
        let name = config.name.clone();
        let place = place_of(&media)?;
        Ok(Some(Arc::new(Locks::new(
            name,
            media,
            place,
            announce_media,
        ))))
    }

    /// Where the controller's hosts come from: a socket of this process, or of its holder.
    fn entrance(&self, config: &Controller, socket: &Path) -> anyhow::Result<Entrance> {
        let mode = config.socket_mode.bits();
        if let Some(holder) = &self.holder {
            return Ok(Entrance::relayed(holder.listen(socket, mode)?));
        }
        let listener = Listener::bind(socket)?;
        listener.open_to(mode)?;
        Ok(Entrance::listening(listener))
    }

    /// Has the holder, if there is one, close a controller's socket. Where it fails the path stays
    /// in use until the server ends.
    pub(super) fn close_at_holder(&self, socket: &Path) {
        if let Some(holder) = &self.holder
            && let Err(error) = holder.close(socket)
        {
            tracing::error!("{} cannot be closed: {error}", socket.display());
        }
    }

    /// Checks that a controller agrees with the running subsystem it joins. `before` is the
    /// configuration without it.
    pub(super) fn check_joins(
        &mut self,
        controller: &Controller,
        before: &Config,
    ) -> anyhow::Result<()> {
        let name = controller.subsystem();
        let Some(live) = self.live(name) else {
            return Ok(());
        };
        if let Some(new) = controller.pool.iter().find(|m| !live.pool.contains(m)) {
            anyhow::bail!(
                "pool: subsystem {name} is already served without \"{new}\": a pool cannot change while a controller of its subsystem is served"
            );
        }
        if let Some(reactor) = controller.reactor.filter(|r| *r != live.reactor) {
            anyhow::bail!(
                "reactor = {reactor}: subsystem {name} is on reactor {}: write that, or remove it",
                live.reactor
            );
        }
        let now = self.words(&self.config.clone(), name)?;
        let then = self.words(before, name)?;
        anyhow::ensure!(
            now == then,
            "the served controllers of subsystem {name} have serial = \"{}\" and subnqn = \"{}\": write the same, or remove them",
            then.serial,
            then.subnqn
        );
        Ok(())
    }

    /// Begins to detach the hosts of all controllers, so that their time limits run in parallel.
    /// Hosts of mounts end with their mounts.
    pub(super) fn send_hosts_away(&self) -> anyhow::Result<()> {
        let mut sent = Ok(());
        for served in self.controllers.iter().filter(|c| c.mount.is_none()) {
            sent = sent.and(self.reactors[served.reactor].begin_to_remove(served.slot));
        }
        sent
    }

    /// Deletes a controller, and with the last one its subsystem.
    pub(super) fn end(&mut self, at: usize) -> anyhow::Result<()> {
        let mount = self.controllers[at].mount.take();
        let private = match &mount {
            Some(Mounted::Apart(child)) => Some(child.target().to_owned()),
            _ => None,
        };
        let unmounted = mount.map_or(Ok(()), Mounted::stop);
        let unmounted = unmounted.and(self.end_block_device(at));
        let served = &self.controllers[at];
        self.reactors[served.reactor].remove_controller(served.slot)?;
        let served = self.controllers.remove(at);
        if let Some(socket) = private {
            self.forget_mount(&served.name, &socket);
        }
        self.end_traces_of(&served.name);
        self.tell_discovery()?;
        let gone = self.config.remove_controller(&served.name);
        if let Some(gone) = &gone {
            // Other sockets are this process's.
            if let Listen::VfioUser(path) | Listen::Fuse(path) = &gone.listen {
                self.close_at_holder(path);
            }
            if gone.listen.tcp().is_some() {
                self.forget_listener(&gone.name);
            }
            unmount_dead(&gone.listen);
        }
        tracing::info!(controller = served.name, "stopped serving");
        let ended = match gone {
            Some(gone) => self.end_subsystem_without_controllers(gone.subsystem()),
            None => Ok(()),
        };
        unmounted.and(ended)
    }

    /// Whether a host is attached to a controller. A block device that no one uses is none.
    pub(super) fn has_host(&self, controller: &str) -> bool {
        let mut served = self.controllers.iter();
        let served = served.find(|c| c.name == controller);
        served.is_some_and(|c| {
            let is_used = c.keeper.as_ref().is_none_or(BlockDevice::is_taken);
            c.presence.is_there() && is_used
        })
    }
}
