//! What is served, as a whole: it opens media, starts reactors, and makes and ends controllers, at the start from a
//! configuration and later on request.
//!
//! The configuration it holds is always one that [`Config::validate`] accepts: a request is tried on a copy first.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use anyhow::Context;
use controller::{
    config::{ControllerConfig, DoorbellMode},
    namespace::Namespace,
    subsystem::SubsystemConfig,
};
use engine::{ControllerSlot, Mode};
use media::{Direct, Medium, MediumKind as Backing, MediumSpec};
use transport::vfio_user::Listener;

use crate::{
    config::{self, Config, Doorbells, MediumKind, Problem, Size},
    control::{ControllerStatus, Inventory, MediumStatus, NamespaceStatus, Refusal},
    identity::{self, Identities},
    reactor::handle::{NewController, ReactorHandle},
};

/// A medium that is open.
#[derive(Debug)]
struct OpenMedium {
    name: String,
    medium: Arc<Medium>,
}

/// A controller that is served.
#[derive(Debug)]
struct Served {
    name: String,
    reactor: usize,
    slot: ControllerSlot,
    attached: Arc<AtomicBool>,
}

#[derive(Debug)]
struct State {
    config: Config,
    identities: Option<Identities>,
    reactors: Vec<ReactorHandle>,
    media: Vec<OpenMedium>,
    controllers: Vec<Served>,
}

/// Everything one process serves.
#[derive(Debug)]
pub(crate) struct Supervisor {
    state: Mutex<State>,
}

impl Supervisor {
    /// Starts to serve a configuration: all of it, or nothing.
    pub(crate) fn start(config: Config) -> anyhow::Result<Self> {
        let mut state = State {
            config: Config {
                state_dir: config.state_dir.clone(),
                control: config.control.clone(),
                reactor: config.reactor.clone(),
                ..Config::default()
            },
            identities: None,
            reactors: Vec::new(),
            media: Vec::new(),
            controllers: Vec::new(),
        };
        if state.config.reactor.is_empty() {
            state.config.reactor.push(config::Reactor::default());
        }
        for (index, reactor) in state.config.reactor.iter().enumerate() {
            let handle = ReactorHandle::start(index, reactor.cpu, mode_of(reactor))?;
            state.reactors.push(handle);
        }
        for medium in config.media {
            state.open_medium(medium)?;
        }
        for namespace in config.namespace {
            state.check_namespace(&namespace)?;
            state.config.namespace.push(namespace);
        }
        for controller in config.controller {
            state.serve(controller)?;
        }
        Ok(Supervisor {
            state: Mutex::new(state),
        })
    }

    /// A request that panicked has left the state as it was before or after one step; later requests may go on.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is served now.
    pub(crate) fn inventory(&self) -> Inventory {
        self.lock().inventory()
    }

    /// Opens a medium.
    pub(crate) fn create_medium(&self, medium: config::Medium) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.config.media.iter().any(|m| m.name == medium.name) {
            return Err(exists("media", &medium.name));
        }
        let mut next = state.config.clone();
        next.media.push(medium.clone());
        refuse_problems(&next)?;
        state
            .open_medium(medium)
            .map_err(|error| Refusal::invalid(format!("{error:#}")))
    }

    /// Makes a namespace, which a controller may then name.
    pub(crate) fn create_namespace(&self, namespace: config::Namespace) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state
            .config
            .namespace
            .iter()
            .any(|n| n.name == namespace.name)
        {
            return Err(exists("namespace", &namespace.name));
        }
        let mut next = state.config.clone();
        next.namespace.push(namespace.clone());
        refuse_problems(&next)?;
        state
            .check_namespace(&namespace)
            .map_err(|error| Refusal::invalid(format!("{error:#}")))?;
        state.config = next;
        Ok(())
    }

    /// Serves a controller.
    pub(crate) fn create_controller(&self, controller: config::Controller) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state
            .config
            .controller
            .iter()
            .any(|c| c.name == controller.name)
        {
            return Err(exists("controller", &controller.name));
        }
        let mut next = state.config.clone();
        next.controller.push(controller.clone());
        refuse_problems(&next)?;
        state
            .serve(controller)
            .map_err(|error| Refusal::invalid(format!("{error:#}")))
    }

    /// Closes a medium that no namespace uses.
    pub(crate) fn delete_medium(&self, name: &str) -> Result<(), Refusal> {
        let mut state = self.lock();
        let at = state.media.iter().position(|m| m.name == name);
        let at = at.ok_or_else(|| Refusal::not_found("media", name))?;
        if let Some(user) = state.config.namespace.iter().find(|n| n.media == name) {
            return Err(Refusal::conflict(format!(
                "media `{name}` holds namespace `{}`: delete that first",
                user.name
            )));
        }
        state
            .close_medium(at)
            .map_err(|error| Refusal::failed(&error))?;
        state.config.media.retain(|m| m.name != name);
        Ok(())
    }

    /// Forgets a namespace that no controller has; its bytes stay in the medium.
    pub(crate) fn delete_namespace(&self, name: &str) -> Result<(), Refusal> {
        let mut state = self.lock();
        if !state.config.namespace.iter().any(|n| n.name == name) {
            return Err(Refusal::not_found("namespace", name));
        }
        if let Some(user) = state.controller_with(name) {
            return Err(Refusal::conflict(format!(
                "namespace `{name}` is in controller `{user}`: delete that first"
            )));
        }
        state.config.namespace.retain(|n| n.name != name);
        Ok(())
    }

    /// Serves a controller no longer; its host loses the drive.
    pub(crate) fn delete_controller(&self, name: &str) -> Result<(), Refusal> {
        let mut state = self.lock();
        let at = state.controllers.iter().position(|c| c.name == name);
        let at = at.ok_or_else(|| Refusal::not_found("controller", name))?;
        state.end(at).map_err(|error| Refusal::failed(&error))
    }

    /// Ends everything in order: controllers, then media, whose bytes are made durable.
    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        let mut state = self.lock();
        let mut result = Ok(());
        while !state.controllers.is_empty() {
            let ended = state.end(0);
            if ended.is_err() {
                state.controllers.remove(0);
                result = result.and(ended);
            }
        }
        while !state.media.is_empty() {
            let closed = state.close_medium(0);
            if closed.is_err() {
                state.media.remove(0);
                result = result.and(closed);
            }
        }
        state.reactors.clear();
        result
    }
}

impl State {
    fn open_medium(&mut self, config: config::Medium) -> anyhow::Result<()> {
        let place = || format!("media {}", config.name);
        let medium = Medium::open(&spec_of(&config)).with_context(place)?;
        tracing::info!(media = config.name, "{}", medium.describe());
        self.media.push(OpenMedium {
            name: config.name.clone(),
            medium,
        });
        self.config.media.push(config);
        Ok(())
    }

    fn close_medium(&mut self, at: usize) -> anyhow::Result<()> {
        let medium = self.media[at].medium.clone();
        for reactor in &mut self.reactors {
            reactor.close_channel(medium.clone())?;
        }
        let name = &self.media[at].name;
        medium.sync().with_context(|| {
            format!("media {name} could not be made durable; what was written since its last flush may be lost")
        })?;
        self.media.remove(at);
        Ok(())
    }

    /// The open medium of a namespace, and its part of it in bytes: start and length.
    fn extent(&self, namespace: &config::Namespace) -> anyhow::Result<(Arc<Medium>, u64, u64)> {
        let place = || format!("namespace {}", namespace.name);
        let open = self.media.iter().find(|m| m.name == namespace.media);
        let medium = open
            .with_context(|| format!("media {} is not open", namespace.media))
            .with_context(place)?
            .medium
            .clone();
        let size = medium.size();
        let (start, len) = match namespace.range {
            Some(range) if range.end.0 > size => {
                return Err(anyhow::anyhow!(
                    "range = \"{range}\" ends behind the medium, which has {}",
                    Size(size)
                ))
                .with_context(place);
            }
            Some(range) => (range.start.0, range.len()),
            None => (0, size),
        };
        Ok((medium, start, len))
    }

    fn check_namespace(&self, namespace: &config::Namespace) -> anyhow::Result<()> {
        let (medium, _, len) = self.extent(namespace)?;
        let least = medium.min_lba_bytes();
        if namespace.lba_size < least {
            anyhow::bail!(
                "namespace {}: lba_size = {}: media {} takes no blocks below {least} with direct = \"on\": write lba_size = {least}, or direct = \"auto\"",
                namespace.name,
                namespace.lba_size,
                namespace.media
            );
        }
        let rest = len % u64::from(namespace.lba_size);
        if rest != 0 {
            tracing::warn!(
                namespace = namespace.name,
                "its size is no multiple of {}: the last {rest} bytes are not used",
                namespace.lba_size
            );
        }
        Ok(())
    }

    /// The controller that has a namespace.
    fn controller_with(&self, namespace: &str) -> Option<&str> {
        let has = |c: &&config::Controller| c.namespaces.iter().any(|n| n == namespace);
        self.config
            .controller
            .iter()
            .find(has)
            .map(|c| c.name.as_str())
    }

    /// The reactor a controller goes to: the one it names, or the one with the fewest.
    fn placement(&self, controller: &config::Controller) -> usize {
        controller.reactor.unwrap_or_else(|| {
            let load = |reactor: &usize| {
                let mine = self.controllers.iter().filter(|c| c.reactor == *reactor);
                mine.count()
            };
            (0..self.reactors.len()).min_by_key(load).unwrap_or(0)
        })
    }

    /// Identities are read or made only when a configuration leaves one out.
    fn identities(&mut self) -> anyhow::Result<&Identities> {
        if self.identities.is_none() {
            let dir = match &self.config.state_dir {
                Some(dir) => dir.clone(),
                None => identity::default_state_dir()?,
            };
            self.identities = Some(Identities::open(&dir)?);
        }
        Ok(self.identities.as_ref().expect("set above"))
    }

    fn serve(&mut self, config: config::Controller) -> anyhow::Result<()> {
        let place = || format!("controller {}", config.name);
        let reactor = self.placement(&config);
        let new = self.prepare(&config, reactor).with_context(place)?;
        let attached = new.attached.clone();
        let slot = self.reactors[reactor]
            .add_controller(new)
            .with_context(place)?;
        tracing::info!(
            controller = config.name,
            reactor,
            "listening on {}",
            config.listen
        );
        self.controllers.push(Served {
            name: config.name.clone(),
            reactor,
            slot,
            attached,
        });
        self.config.controller.push(config);
        Ok(())
    }

    fn prepare(
        &mut self,
        config: &config::Controller,
        reactor: usize,
    ) -> anyhow::Result<NewController> {
        let listener = Listener::bind(config.listen.path())?;
        let mut namespaces = Vec::new();
        for (index, name) in config.namespaces.iter().enumerate() {
            let found = self.config.namespace.iter().find(|n| &n.name == name);
            let namespace = found.context("a namespace is gone")?.clone();
            let nsid = u32::try_from(index + 1).context("too many namespaces")?;
            namespaces.push(self.namespace(&namespace, nsid, reactor)?);
        }
        let serial = match &config.serial {
            Some(serial) => serial.clone(),
            None => self.identities()?.serial(&config.name),
        };
        let subnqn = match &config.subnqn {
            Some(subnqn) => subnqn.clone(),
            None => self.identities()?.subnqn(&config.name),
        };
        let mapped = match config.doorbells {
            Doorbells::Mapped => true,
            Doorbells::Unmapped => false,
            Doorbells::Auto => self.reactors[reactor].mode() == Mode::Poll,
        };
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
            doorbells: if mapped {
                DoorbellMode::Mapped
            } else {
                DoorbellMode::Unmapped
            },
            intx: config.intx,
        };
        let subsystem = SubsystemConfig::with_namespaces(
            controller::config::DEFAULT_NAMESPACE_LIMIT,
            namespaces,
        );
        Ok(NewController {
            config,
            subsystem,
            listener,
            attached: Arc::default(),
        })
    }

    fn namespace(
        &mut self,
        config: &config::Namespace,
        nsid: u32,
        reactor: usize,
    ) -> anyhow::Result<Namespace> {
        let (medium, start, len) = self.extent(config)?;
        let channel = self.reactors[reactor].open_channel(medium.clone())?;
        let (nguid, eui64) = match (&config.nguid, &config.eui64) {
            (Some(nguid), Some(eui64)) => (hex(nguid), hex(eui64)),
            (nguid, eui64) => {
                let (derived_nguid, derived_eui64) = self.identities()?.namespace(&config.name);
                (
                    nguid.as_deref().map_or(derived_nguid, hex),
                    eui64.as_deref().map_or(derived_eui64, hex),
                )
            }
        };
        Ok(Namespace {
            nsid,
            channel,
            start,
            blocks: len / u64::from(config.lba_size),
            lba_shift: u8::try_from(config.lba_size.ilog2()).context("lba_size")?,
            nguid,
            eui64,
            traits: medium.traits(),
            restrictions: None,
        })
    }

    fn end(&mut self, at: usize) -> anyhow::Result<()> {
        let served = &self.controllers[at];
        self.reactors[served.reactor].remove_controller(served.slot)?;
        let served = self.controllers.remove(at);
        self.config.controller.retain(|c| c.name != served.name);
        tracing::info!(controller = served.name, "served no longer");
        Ok(())
    }

    fn inventory(&self) -> Inventory {
        let media = self.config.media.iter().zip(&self.media);
        let attached = |name: &str| {
            let served = self.controllers.iter().find(|c| c.name == name);
            served.is_some_and(|c| c.attached.load(Ordering::Relaxed))
        };
        let blocks = |n: &config::Namespace| {
            let extent = self.extent(n);
            extent.map_or(0, |(_, _, len)| len / u64::from(n.lba_size))
        };
        Inventory {
            media: media
                .map(|(config, open)| MediumStatus {
                    config: config.clone(),
                    bytes: open.medium.size(),
                    description: open.medium.describe(),
                })
                .collect(),
            namespaces: self
                .config
                .namespace
                .iter()
                .map(|config| NamespaceStatus {
                    config: config.clone(),
                    blocks: blocks(config),
                    controller: self.controller_with(&config.name).map(str::to_owned),
                })
                .collect(),
            controllers: self
                .config
                .controller
                .iter()
                .map(|config| ControllerStatus {
                    attached: attached(&config.name),
                    config: config.clone(),
                })
                .collect(),
        }
    }
}

fn mode_of(reactor: &config::Reactor) -> Mode {
    match reactor.mode {
        config::Mode::Poll => Mode::Poll,
        config::Mode::Interrupt => Mode::Interrupt,
        config::Mode::Adaptive => Mode::Adaptive {
            spin_ns: u64::try_from(reactor.spin.0.as_nanos()).unwrap_or(u64::MAX),
        },
    }
}

fn spec_of(config: &config::Medium) -> MediumSpec {
    let size = config.size.map(|size| size.0);
    let kind = match config.kind {
        MediumKind::Null => Backing::Null {
            size: size.unwrap_or_default(),
        },
        MediumKind::Ram => Backing::Ram {
            size: size.unwrap_or_default(),
        },
        MediumKind::File => Backing::File {
            path: config.path.clone().unwrap_or_default(),
            size,
            direct: match config.direct.unwrap_or_default() {
                config::Direct::Auto => Direct::Auto,
                config::Direct::On => Direct::On,
                config::Direct::Off => Direct::Off,
            },
        },
    };
    MediumSpec { kind }
}

/// Bytes of hexadecimal digits that [`Config::validate`] has accepted.
fn hex<const N: usize>(digits: &str) -> [u8; N] {
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        let pair = digits.get(2 * at..2 * at + 2).unwrap_or("00");
        *byte = u8::from_str_radix(pair, 16).unwrap_or_default();
    }
    bytes
}

fn exists(kind: &str, name: &str) -> Refusal {
    Refusal::conflict(format!(
        "there is a {kind} `{name}` already; choose another name"
    ))
}

fn refuse_problems(config: &Config) -> Result<(), Refusal> {
    let problems = config.validate();
    if problems.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    Err(Refusal::invalid(lines.join("\n")))
}
