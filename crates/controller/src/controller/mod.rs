//! The controller's home side: registers, configuration space, admin queue, and the lives of its
//! lanes.
//!
//! A transport passes on a host's accesses ([`Controller::config_write`],
//! [`Controller::bar_write`], [`Controller::set_view`], [`Controller::function_reset`]); the engine
//! gives turns. A register write is answered at once; its effect happens in [`Controller::turn`],
//! within [`DEADLINE_NS`] per stage, and 30 s for a flush, even if a medium hangs.
//!
//! Invariants: RDY falls only when no lane of the previous life is left; a lane receives each view
//! once; every admin command that was fetched completes, or dies with a reset. It does NOT deliver
//! interrupts, answer messages, or hold a clock: `now` is an argument of each turn.

mod admin;
mod arbitrate;
mod attached;
mod bus;
mod doorbells;
mod exchange;
mod fabrics;
mod failure;
mod flights;
mod flush;
mod function;
mod holds;
mod inspection;
mod interrupts;
mod lifecycle;
mod migrate;
mod news;
mod restore;
mod saved;
mod watch;

use std::sync::Arc;

use memory::{DmaView, DoorbellPages, LostFlag, StateFile};
use nvme_spec::registers::DOORBELLS;
use port::ticket::OwnerKey;
use port::time::Time;
use subsystem::{ControllerId, DEADLINE_NS, Subsystem};

pub use self::admin::features::FeatureValues;
use self::admin::features::{FeatureContext, Features};
use self::admin::logs::Logs;
pub use self::admin::logs::{REACTOR_LOG, ReactorLog};
use self::admin::{AdminSide, HealthState, IoQueues, temperature};
use self::attached::Attached;
use self::bus::Bus;
use self::doorbells::{Doorbells, check_doorbells};
use self::fabrics::Host;
pub use self::failure::{EnableError, Failure, RestoreError};
use self::flights::Flights;
use self::flush::Flushes;
use self::function::Function;
use self::holds::Holds;
pub use self::interrupts::Interrupt;
use self::interrupts::Interrupts;
use self::lifecycle::{Life, Warned};
pub use self::migrate::{MAX_STREAM_LEN, MigrateError, Moved};
use self::news::News;
pub use self::restore::Left;
use self::saved::Saved;
pub use self::saved::{AdminState, AdminTail, ControllerState, WaitingKind, WaitingState};
use crate::arbitration::Arbiter;
use crate::config::{ConfigError, ControllerConfig, Interface};
use crate::counters::ReactorCounters;
use crate::pci::ConfigEffect;
use crate::registers::Registers;

/// How long a medium's flush may take that a controller makes by itself, at a shutdown say. A disk
/// may have much to write, and a failed flush warns the host of data at risk; Linux waits for a
/// shutdown for up to 60 s.
const FLUSH_DEADLINE_NS: u64 = 30_000_000_000;

/// One NVMe controller: one PCI function, or the target of one association.
#[derive(Debug)]
pub struct Controller {
    pub(crate) config: ControllerConfig,
    key: OwnerKey,
    function: Function,
    interrupts: Interrupts,
    bus: Bus,
    pub(crate) registers: Registers,
    pub(crate) doorbells: Doorbells,
    pub(crate) view: Arc<DmaView>,
    lost: Option<LostFlag>,
    id: ControllerId,
    pub(crate) attached: Attached,
    /// Number of writes when a sanitize operation had erased everything.
    pub(crate) writes_before: Option<u64>,
    pub(crate) now: Time,
    holds: Holds,
    pub(crate) host: Host,
    pub(crate) life: Life,
    flushes: Flushes,
    pub(crate) admin: AdminSide,
    pub(crate) queues: IoQueues,
    /// Names of commands that lanes have completed with answers of the subsystem, which it is to
    /// forget.
    answered: Vec<u64>,
    /// Where the names of the last lane's commands begin; before them are the admin queue's.
    pub(crate) names_of_lanes: u64,
    /// With weighted round robin: who may have commands fetched.
    arbiter: Option<Arbiter>,
    pub(crate) features: Features,
    pub(crate) logs: Logs,
    pub(crate) saved: Saved,
    pub(crate) health: HealthState,
    flights: Flights,
    pub(crate) news: News,
}

impl Controller {
    /// A controller of `subsystem` as after power-on, with `doorbells` of at least
    /// [`ControllerConfig::doorbell_slots`].
    ///
    /// # Errors
    /// A field of the configuration is wrong, the doorbells are too small, the subsystem has its
    /// most controllers, or there is no memory for the state file.
    pub fn new(
        config: ControllerConfig,
        doorbells: Arc<DoorbellPages>,
        subsystem: &mut Subsystem,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let saved = saved::create(&config, subsystem.namespace_limit())?;
        let mut controller = Self::with_state(config, doorbells, subsystem, saved)?;
        subsystem.forget_answers(controller.id);
        subsystem.forget_notices(controller.id);
        controller.follow_access(subsystem);
        controller.save();
        Ok(controller)
    }

    /// A controller as after power-on, with this state file, in which nothing is saved.
    fn with_state(
        config: ControllerConfig,
        doorbells: Arc<DoorbellPages>,
        subsystem: &mut Subsystem,
        saved: Saved,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        check_doorbells(&config, &doorbells)?;
        let vectors = config.vectors();
        let function = Function::new(&config, doorbells.len());
        let namespace_limit = subsystem.namespace_limit();
        let id = match config.interface {
            Interface::Pcie => subsystem.join(&config.name)?,
            Interface::Fabrics(fabrics) => {
                subsystem.join_dynamic(fabrics.entrance, &config.name)?
            }
        };
        let all = subsystem.take_table(id);
        let attached = Attached::new(&all, subsystem);
        let context = FeatureContext {
            queues: config.queues,
            queues_exist: false,
            // Also those that a host has yet to ask for: what was saved for them is kept.
            namespaces: all,
            over_fabrics: config.is_over_fabrics(),
            namespace_limit,
            warning_temperature: temperature::WARNING,
            now: Time(0),
        };
        let kept = subsystem.controller_record(id);
        let kept = kept.expect("it has just joined");
        Ok(Controller {
            key: OwnerKey::controller(0),
            interrupts: Interrupts::new(vectors, function.config_space.mechanism()),
            bus: Bus::default(),
            function,
            registers: Registers::new(&config),
            doorbells: Doorbells::new(doorbells, 1 + usize::from(config.queues)),
            view: DmaView::empty(),
            lost: None,
            id,
            attached,
            writes_before: None,
            now: Time(0),
            holds: Holds::default(),
            host: Host::default(),
            life: Life::new(),
            flushes: Flushes::default(),
            admin: AdminSide::new(subsystem.process()),
            queues: IoQueues::new(),
            answered: Vec::new(),
            names_of_lanes: subsystem.process(),
            arbiter: None,
            features: Features::new(&kept.features, &context),
            logs: Logs::after(kept.health.error_log_entries),
            saved,
            health: HealthState::powered_on(&kept.health),
            flights: Flights::default(),
            news: News::default(),
            config,
        })
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &ControllerConfig {
        &self.config
    }

    /// Its identifier in its subsystem.
    #[must_use]
    pub fn id(&self) -> ControllerId {
        self.id
    }

    /// Whose name the tickets of its own flushes carry.
    #[must_use]
    pub fn key(&self) -> OwnerKey {
        self.key
    }

    /// Gives it its place among the controllers of its reactor. Before its first turn.
    pub fn set_key(&mut self, key: OwnerKey) {
        self.key = key;
    }

    /// Interrupt vectors: the admin queue's and one for each I/O queue pair.
    #[must_use]
    pub fn vectors(&self) -> u16 {
        self.config.vectors()
    }

    /// Sizes of the six BARs in bytes, 0 where there is none. BAR0 is 64-bit and takes BAR1's place
    /// too.
    #[must_use]
    pub fn bar_sizes(&self) -> [u64; 6] {
        self.function.bar_sizes()
    }

    /// The file with state that must outlive the process.
    #[must_use]
    pub fn state(&self) -> &Arc<StateFile> {
        self.saved.file()
    }

    /// Reads configuration space.
    pub fn config_read(&self, offset: u64, out: &mut [u8]) {
        self.function.config_space.read(offset, out);
    }

    /// Writes configuration space. A function level reset begins at once; it is over when
    /// [`Controller::is_quiet`]. Where the function may issue no memory requests any more, that is
    /// so when [`Controller::has_left_bus`].
    pub fn config_write(&mut self, offset: u64, data: &[u8]) {
        if self.function.config_space.write(offset, data) == ConfigEffect::FunctionReset {
            self.begin_function_reset();
        } else {
            self.follow_bus();
            self.save();
        }
    }

    /// Reads a BAR. Doorbells read as zero (PCIe Transport 1.1, 3.1.2).
    pub fn bar_read(&self, bar: u8, offset: u64, out: &mut [u8]) {
        match bar {
            0 if offset < DOORBELLS => self.registers.read(offset, out),
            4 => self.function.msix.read(offset, out),
            _ => out.fill(0),
        }
    }

    /// Writes a BAR.
    pub fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        match bar {
            0 => {
                let registers = DOORBELLS.saturating_sub(offset).min(data.len() as u64) as usize;
                let (registers, doorbells) = data.split_at(registers);
                if !registers.is_empty() && self.registers.write(offset, registers) {
                    self.save();
                }
                self.write_doorbells(offset.max(DOORBELLS) - DOORBELLS, doorbells);
            }
            4 => {
                self.function.msix.write(offset, data);
                self.save();
            }
            _ => (),
        }
    }

    /// Back to power-on, because the client asks for it or is gone: registers, configuration space
    /// and MSI-X table at once, and the lanes in the next turns. It is over when
    /// [`Controller::is_quiet`].
    pub fn function_reset(&mut self) {
        if self.registers.csts().rdy() {
            self.health.history.power_cycles += 1;
            if !self.life.shutdown.is_complete() {
                self.health.history.unsafe_shutdowns += 1;
            }
        }
        self.life.warned = Warned::default();
        self.begin_function_reset();
    }

    fn begin_function_reset(&mut self) {
        self.function.config_space.reset();
        self.follow_bus();
        self.function.msix.reset();
        self.begin_reset(false);
        self.save();
    }

    /// The host's memory map changed. Rings are resolved again, and lanes are informed in the next
    /// turn.
    pub fn set_view(&mut self, view: Arc<DmaView>, lost: LostFlag) {
        if let Some(admin) = &mut self.admin.queue {
            admin.resolve(&view);
        }
        self.view = view;
        if self.function.config_space.has_pin() {
            // An event index may not have been written for want of its page.
            self.interrupts.recheck();
        }
        self.lost = Some(lost);
        self.news.view_changed();
    }

    /// Whether no command that was issued before the view with this epoch is in flight.
    #[must_use]
    pub fn drained(&self, epoch: u64) -> bool {
        self.queues
            .cqs()
            .all(|(_, cq)| cq.lane.is_none() || cq.drained >= epoch)
    }

    /// Aborts, in the next turn, hanging commands that were issued before the view with this epoch.
    pub fn abandon(&mut self, before_epoch: u64) {
        self.news.abandon(before_epoch);
    }

    /// Whether no reset is in progress and no lane is left.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        !self.is_stopping() && !self.queues.has_lanes()
    }

    /// Sets the reactor's counters, for the vendor log page.
    pub fn set_reactor_counters(&mut self, counters: Arc<ReactorCounters>) {
        self.logs.reactor = Some(counters);
    }

    /// Notes whether a vector waits to be delivered: the pending bits of BAR4.
    pub fn set_pending(&mut self, vector: u16, pending: bool) {
        self.function.msix.set_pending(vector, pending);
    }
}

#[cfg(test)]
mod tests;
