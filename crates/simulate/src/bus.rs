//! The bus of a simulation: an engine on the host's own thread, with an external clock.
//!
//! While a controller is brought up, each access is a turn of a microsecond, so that code that
//! waits for time sees it pass. From [`Virtual::start`] on a turn takes no time and happens only
//! when the world requests it.
//!
//! There are no interrupts: hosts are notified when to poll. Not included: function resets, and
//! unmapping of memory while commands are in flight.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use controller::{Controller, Interrupt};
use driver::DriverError;
use driver::bus::{Bus, MappedDoorbells};
use engine::{ControllerSlot, Engine, Turn};
use media::Channel;
use memory::{Access, ClientMappings, DmaMap, DoorbellPages, EventFd, HostMemory, Iova};
use nvme_spec::registers::DOORBELLS;
use port::ChannelId;
use port::time::Time;

/// Duration of a turn while a controller is brought up.
const TURN_NS: u64 = 1_000;
/// Maximum number of memory regions: the driver's.
const REGIONS_MAX: usize = 4;

struct Inner {
    engine: Engine<Channel>,
    slot: ControllerSlot,
    dma: DmaMap,
    mappings: ClientMappings,
}

impl Inner {
    fn controller(&mut self) -> &mut Controller {
        let controller = self.engine.controller_mut(self.slot);
        controller.expect("it was added and is never removed")
    }
}

/// The bus to the controller of a simulation.
pub(crate) struct Virtual {
    inner: RefCell<Inner>,
    doorbells: Arc<DoorbellPages>,
    now: Cell<u64>,
    started: Cell<bool>,
}

fn nobody(_: ControllerSlot, _: Interrupt) {}

fn unsupported(what: &str) -> DriverError {
    DriverError::Unsupported(format!("{what} in a simulation"))
}

impl Virtual {
    /// The bus to the controller at `slot`, which was created with `doorbells`.
    pub(crate) fn new(
        engine: Engine<Channel>,
        slot: ControllerSlot,
        doorbells: Arc<DoorbellPages>,
    ) -> Self {
        Self {
            inner: RefCell::new(Inner {
                engine,
                slot,
                dma: DmaMap::new(REGIONS_MAX),
                mappings: ClientMappings::new(),
            }),
            doorbells,
            now: Cell::new(0),
            started: Cell::new(false),
        }
    }

    /// Hands the clock over to the world.
    pub(crate) fn start(&self) {
        self.started.set(true);
    }

    /// Performs one turn at `now`.
    #[inline]
    pub(crate) fn turn_at(&self, now: u64) -> Turn {
        self.now.set(now);
        self.inner.borrow_mut().engine.turn(Time(now), nobody)
    }

    /// Time of the drive's next own event.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.inner.borrow().engine.next_due().map(|due| due.0)
    }

    /// Makes the engine check all doorbells, also those of queues that were idle for long. Returns
    /// whether it found something; the next turn handles it.
    pub(crate) fn look_at_doorbells(&self) -> bool {
        !self.inner.borrow_mut().engine.arm()
    }

    /// Passes the drive to `look`.
    #[inline]
    pub(crate) fn drive<T>(&self, look: impl FnOnce(&Channel) -> T) -> T {
        let mut inner = self.inner.borrow_mut();
        let channel = inner.engine.channels_mut().get(ChannelId(0));
        look(channel.expect("it was added and is never removed"))
    }

    fn read<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        let mut inner = self.inner.borrow_mut();
        inner.controller().bar_read(0, offset, &mut bytes);
        bytes
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let mut inner = self.inner.borrow_mut();
        inner.controller().bar_write(0, offset, bytes);
    }
}

impl Bus for Virtual {
    fn read32(&self, offset: u64) -> Result<u32, DriverError> {
        Ok(u32::from_le_bytes(self.read(offset)))
    }

    fn read64(&self, offset: u64) -> Result<u64, DriverError> {
        Ok(u64::from_le_bytes(self.read(offset)))
    }

    fn write32(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.write(offset, &value.to_le_bytes());
        Ok(())
    }

    fn write64(&self, offset: u64, value: u64) -> Result<(), DriverError> {
        self.write(offset, &value.to_le_bytes());
        Ok(())
    }

    fn ring(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.write32(offset, value)
    }

    fn config_read(&self, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        let mut inner = self.inner.borrow_mut();
        inner.controller().config_read(offset, out);
        Ok(())
    }

    fn config_write(&self, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        let mut inner = self.inner.borrow_mut();
        inner.controller().config_write(offset, data);
        Ok(())
    }

    fn bar_len(&self, bar: u8) -> Result<u64, DriverError> {
        let sizes = self.inner.borrow_mut().controller().bar_sizes();
        Ok(sizes.get(usize::from(bar)).copied().unwrap_or(0))
    }

    fn bar_read(&self, bar: u8, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        let mut inner = self.inner.borrow_mut();
        inner.controller().bar_read(bar, offset, out);
        Ok(())
    }

    fn bar_write(&self, bar: u8, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        let mut inner = self.inner.borrow_mut();
        inner.controller().bar_write(bar, offset, data);
        Ok(())
    }

    fn reset_function(&self) -> Result<(), DriverError> {
        Err(unsupported("functions are not reset"))
    }

    fn doorbells(&self) -> Option<MappedDoorbells> {
        Some(MappedDoorbells {
            pages: self.doorbells.clone(),
            start: DOORBELLS,
        })
    }

    fn share(&self, memory: &HostMemory, base: Iova) -> Result<(), DriverError> {
        let fd = memory.fd().as_fd().try_clone_to_owned();
        let fd = fd.map_err(|source| DriverError::System {
            what: "duplicate the memory's descriptor",
            source,
        })?;
        let refused = |error: String| DriverError::Unsupported(format!("shared memory: {error}"));
        let inner = &mut *self.inner.borrow_mut();
        let mapping = inner.mappings.map(fd);
        let mapping = mapping.map_err(|error| refused(error.to_string()))?;
        let len = u64::try_from(memory.len()).expect("usize fits in 64 bits");
        let access = Access {
            read: true,
            write: true,
        };
        let mapped = inner.dma.map(base, len, access, Some((mapping, 0)));
        mapped.map_err(|error| refused(error.to_string()))?;
        let (view, lost) = (inner.dma.view(), inner.mappings.lost());
        inner.controller().set_view(view, lost);
        Ok(())
    }

    fn unshare(&self, _: Iova, _: u64) -> Result<(), DriverError> {
        Err(unsupported("memory is not unmapped"))
    }

    fn vectors(&self) -> u16 {
        0
    }

    fn set_interrupt(&self, _: u16, _: &EventFd) -> Result<(), DriverError> {
        Err(unsupported("there are no interrupts"))
    }

    fn set_message_interrupt(&self, _: u16, _: &EventFd) -> Result<(), DriverError> {
        Err(unsupported("there are no interrupts"))
    }

    #[inline]
    fn turn(&self) {
        if !self.started.get() {
            self.turn_at(self.now.get() + TURN_NS);
        }
    }

    fn wait(&self, _: &EventFd, _: Duration) -> Result<bool, DriverError> {
        Err(unsupported("there are no interrupts"))
    }

    fn check_alive(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.now.get()
    }
}
