//! Enable, disable, reset and shut down (Base 2.1, 3.5 and 3.6), each with the
//! controller's own bound.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nvme_spec::cqe::CQE_SIZE_LOG2;
use nvme_spec::registers::{
    ACQ, AQA, ASQ, Aqa, CC, CRTO, CSTS, Cap, Cc, CommandSetSelected, Crto, Csts,
    ShutdownNotification, ShutdownStatus,
};
use nvme_spec::sqe::SQE_SIZE_LOG2;

use super::{Device, Enabled, PAGE};
use crate::bus::Bus;
use crate::doorbell::{Ringing, ShadowBuffers};
use crate::{CommandSets, Doorbells, DriverError};

/// Unit of CAP.TO and CRTO.
const TIMEOUT_UNIT: Duration = Duration::from_millis(500);
/// Transfers beyond this have no use for the driver's own buffers; the
/// controller may allow any size (MDTS 0).
const TRANSFER_LEN_LIMIT: u32 = 32 << 20;

/// How to shut a controller down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// With everything written made durable.
    Normal,
    /// At once, as before a loss of power.
    Abrupt,
}

impl<B: Bus> Device<B> {
    /// Brings the controller up: disables it if it runs, gives it admin queues,
    /// enables it, asks who it is, and sets doorbells up. Queue pairs from
    /// before are of no more use.
    ///
    /// # Errors
    /// [`DriverError::Timeout`] when it is not ready within its own bound
    /// (CAP.TO or CRTO), [`DriverError::ControllerFatal`],
    /// [`DriverError::Unsupported`] for doorbells it does not have, and those
    /// of the bus and of the commands.
    pub fn enable(&mut self) -> Result<(), DriverError> {
        self.disable()?;
        let depth = self
            .options
            .admin_depth
            .clamp(2, 4095)
            .min(self.depth_max());
        let admin_ringing = match (self.options.doorbells, self.bus.doorbells()) {
            (Doorbells::Auto | Doorbells::Mapped, Some(mapped)) => Ringing::Mapped(mapped),
            // The admin queue rings its register also where I/O queues use the
            // shadow: controllers read it nowhere else.
            _ => Ringing::Trapped,
        };
        let current = Arc::new(AtomicBool::new(true));
        let admin = (0, depth);
        let (admin, _) =
            self.make_queue_pair(admin, &admin_ringing, 0, (None, None), &current, false)?;
        self.bus
            .write32(AQA, Aqa::new().with_asqs_z(depth).with_acqs_z(depth).into())?;
        self.bus.write64(ASQ, admin.sq_iova().0)?;
        self.bus.write64(ACQ, admin.cq_iova().0)?;
        let cc = Cc::new()
            .with_en(true)
            .with_css(self.command_sets()?)
            .with_iosqes(SQE_SIZE_LOG2)
            .with_iocqes(CQE_SIZE_LOG2);
        self.bus.write32(CC, cc.into())?;
        self.enabled = Some(Enabled {
            admin,
            aerl_z: 0,
            rtd3e_us: 0,
            ringing: admin_ringing,
            queues_max: 0,
            transfer_len: 0,
            event_requests: Vec::new(),
            events: VecDeque::new(),
            queues: Vec::new(),
            given_up: Vec::new(),
            current,
        });
        self.await_status("enabling the controller", self.ready_bound()?, |csts| {
            csts.rdy()
        })?;
        self.learn()
    }

    /// The command sets to enable.
    fn command_sets(&self) -> Result<CommandSetSelected, DriverError> {
        match self.options.command_sets {
            CommandSets::Supported | CommandSets::All if self.cap.css_iocs() => {
                Ok(CommandSetSelected::ALL_SUPPORTED)
            }
            CommandSets::Nvm | CommandSets::Supported => Ok(CommandSetSelected::NVM),
            CommandSets::All => Err(DriverError::Unsupported(
                "the controller supports only the NVM command set (CAP.CSS)".to_owned(),
            )),
        }
    }

    /// Queries that every enabled controller answers before it is used.
    fn learn(&mut self) -> Result<(), DriverError> {
        let identity = self.identify_controller()?;
        let transfer_len = match identity.mdts {
            0 => TRANSFER_LEN_LIMIT,
            // In units of the smallest memory page, 4 KiB here.
            mdts => 1u32
                .checked_shl(u32::from(mdts).saturating_add(12))
                .unwrap_or(TRANSFER_LEN_LIMIT)
                .min(TRANSFER_LEN_LIMIT),
        };
        self.bus.identified(&identity);
        // Doorbell Buffer Config needs memory that the controller reaches (Base 2.1, 5.2.5).
        let offers_shadow = identity.oacs.dbcs() && !self.bus.is_over_fabrics();
        let transfer_len = transfer_len.min(self.options.transfer_len_max);
        let enabled = self.enabled()?;
        (enabled.aerl_z, enabled.rtd3e_us) = (identity.aerl_z, identity.rtd3e);
        enabled.transfer_len = transfer_len;
        let queues_max = self.request_queues()?;
        self.enabled()?.queues_max = queues_max;
        let ringing = self.choose_doorbells(offers_shadow)?;
        self.enabled()?.ringing = ringing;
        Ok(())
    }

    fn choose_doorbells(&mut self, offers_shadow: bool) -> Result<Ringing, DriverError> {
        let mapped = self.bus.doorbells();
        match (self.options.doorbells, mapped) {
            (Doorbells::Auto | Doorbells::Mapped, Some(mapped)) => Ok(Ringing::Mapped(mapped)),
            (Doorbells::Mapped, None) => Err(DriverError::Unsupported(
                "the server maps no doorbell page: use shadow or trapped doorbells, or serve with doorbells = \"mapped\"".to_owned(),
            )),
            (Doorbells::Auto | Doorbells::Shadow, _) if offers_shadow => self.set_up_shadow(),
            (Doorbells::Shadow, _) => Err(DriverError::Unsupported(
                "the controller does not offer Doorbell Buffer Config: use mapped or trapped doorbells, or serve with doorbells = \"unmapped\"".to_owned(),
            )),
            (Doorbells::Auto | Doorbells::Trapped, _) => Ok(Ringing::Trapped),
        }
    }

    fn set_up_shadow(&mut self) -> Result<Ringing, DriverError> {
        let buffers = ShadowBuffers::new(self.alloc(PAGE)?, self.alloc(PAGE)?);
        self.configure_doorbell_buffer(&buffers)?;
        Ok(Ringing::Shadow(Arc::new(buffers)))
    }

    /// Stops the controller and waits until it has: it then touches no memory,
    /// and every queue is gone.
    ///
    /// # Errors
    /// [`DriverError::Timeout`] beyond the controller's own bound, and those of
    /// the bus. A fatal status is no error here: disabling is the way out of it.
    pub fn disable(&mut self) -> Result<(), DriverError> {
        self.disable_within(Duration::MAX)
    }

    /// Stops a controller that a former process has left, in its own bound and in `bound`.
    pub(super) fn stop_former(&mut self, bound: Duration) -> Result<(), DriverError> {
        self.enable_memory_space()?;
        self.read_capabilities()?;
        self.disable_within(bound)
    }

    fn disable_within(&mut self, bound: Duration) -> Result<(), DriverError> {
        let cc = Cc::from(self.bus.read32(CC)?);
        if cc.en() {
            let off = cc.with_en(false).with_shn(ShutdownNotification::NONE);
            self.bus.write32(CC, off.into())?;
        }
        let bound = self.ready_bound()?.min(bound);
        self.await_register("disabling the controller", bound, |csts| !csts.rdy())?;
        self.enabled = None;
        Ok(())
    }

    /// Disables and enables the controller. Every I/O queue pair is gone.
    ///
    /// # Errors
    /// As [`Self::disable`] and [`Self::enable`].
    pub fn reset(&mut self) -> Result<(), DriverError> {
        self.enable()
    }

    /// Resets the PCI function; the controller is then disabled.
    ///
    /// # Errors
    /// Those of the bus.
    pub fn reset_function(&mut self) -> Result<(), DriverError> {
        self.bus.reset_function()?;
        self.enabled = None;
        self.enable_pci_function()
    }

    /// Recovers a controller that is fatal, does not respond, or cannot be relied on: by a reset of
    /// the controller and, if that fails, once by a reset of its PCI function. Every I/O queue pair
    /// is gone, and the outcome of commands in flight is unknown: their owner may repeat them.
    ///
    /// It takes as long as the controller's own bound for getting ready, twice,
    /// and the driver's for the commands that follow.
    ///
    /// # Errors
    /// [`DriverError::Gone`] at once; else why the controller cannot be enabled
    /// even so.
    pub fn recover(&mut self) -> Result<(), DriverError> {
        match self.enable() {
            Ok(()) => Ok(()),
            Err(DriverError::Gone) => Err(DriverError::Gone),
            Err(_) => {
                self.reset_function()?;
                self.enable()
            }
        }
    }

    /// Tells the controller that the host goes away, and waits until it is
    /// ready for that. It takes no more commands; [`Self::enable`] brings it
    /// back.
    ///
    /// # Errors
    /// [`DriverError::Timeout`] beyond RTD3 Entry Latency and the driver's own
    /// bound, whichever is longer; [`DriverError::ShutDownFatal`] when it has
    /// shut down with CFS set, and [`DriverError::ControllerFatal`] when it has
    /// not; those of the bus.
    pub fn shutdown(&mut self, how: Shutdown) -> Result<(), DriverError> {
        let cc = Cc::from(self.bus.read32(CC)?);
        let shn = match how {
            Shutdown::Normal => ShutdownNotification::NORMAL,
            Shutdown::Abrupt => ShutdownNotification::ABRUPT,
        };
        self.bus.write32(CC, cc.with_shn(shn).into())?;
        let rtd3e_us = self.enabled.as_ref().map_or(0, |known| known.rtd3e_us);
        let bound = Duration::from_micros(rtd3e_us.into()).max(self.options.timeout);
        let is_down = |csts: Csts| csts.shst() == ShutdownStatus::COMPLETE;
        let ended = self.await_status("shutting the controller down", bound, is_down);
        match ended {
            Err(DriverError::ControllerFatal { csts })
                if csts != u32::MAX && is_down(csts.into()) =>
            {
                Err(DriverError::ShutDownFatal { csts })
            }
            ended => ended,
        }
    }

    /// Checks that the server is connected and the controller is not in a fatal state.
    ///
    /// # Errors
    /// [`DriverError::Gone`], [`DriverError::ControllerFatal`].
    pub fn check(&self) -> Result<(), DriverError> {
        self.bus.check_alive()?;
        self.status()?;
        Ok(())
    }

    /// The Controller Status property.
    ///
    /// # Errors
    /// [`DriverError::ControllerFatal`] when CFS is set, or all bits are: a
    /// device that is gone reads so. Those of the bus.
    pub fn status(&self) -> Result<Csts, DriverError> {
        let csts = self.bus.read32(CSTS)?;
        if csts == u32::MAX || Csts::from(csts).cfs() {
            return Err(DriverError::ControllerFatal { csts });
        }
        Ok(Csts::from(csts))
    }

    /// CAP.TO or, where the controller has it, CRTO.CRWMT, whichever is longer;
    /// at least one unit.
    fn ready_bound(&self) -> Result<Duration, DriverError> {
        let cap: Cap = self.cap;
        let mut units = u32::from(cap.to()).max(1);
        if cap.crwms() {
            let crto = Crto::from(self.bus.read32(CRTO)?);
            units = units.max(crto.crwmt().into());
        }
        Ok(TIMEOUT_UNIT * units)
    }

    fn await_status(
        &self,
        what: &'static str,
        bound: Duration,
        reached: impl Fn(Csts) -> bool,
    ) -> Result<(), DriverError> {
        self.await_register(what, bound, |csts| csts.cfs() || reached(csts))?;
        self.status().map(drop)
    }

    fn await_register(
        &self,
        what: &'static str,
        bound: Duration,
        reached: impl Fn(Csts) -> bool,
    ) -> Result<(), DriverError> {
        let bound_ns = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        let deadline = self.bus.now_ns().saturating_add(bound_ns);
        loop {
            self.bus.turn();
            let csts = self.bus.read32(CSTS)?;
            if csts == u32::MAX {
                return Err(DriverError::ControllerFatal { csts });
            }
            if reached(Csts::from(csts)) {
                return Ok(());
            }
            if self.bus.now_ns() > deadline {
                return Err(DriverError::Timeout { what, after: bound });
            }
            self.bus.pause();
        }
    }
}
