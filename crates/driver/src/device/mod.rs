//! One controller, from its host's side.
//!
//! A device is opened, enabled, identified, and given I/O queue pairs, which then work on their
//! own. The device keeps the admin queue: one command at a time, each bounded by the timeout,
//! beside Asynchronous Event Requests that stay with the controller.
//!
//! Invariant: memory that the controller may still write to is not reused. Queue memory is kept
//! until the queue is deleted or the controller disabled, and so are buffers of admin commands that
//! timed out.

mod admin;
mod bring_up;
mod pci;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use bring_up::Shutdown;
use memory::{Buffer, DoorbellPages, EventFd, HostCq, HostMemory, HostSq, Iova};
use nvme_spec::cqe::CQE_SIZE;
use nvme_spec::event::EventDw0;
use nvme_spec::prp::PAGE_SIZE;
use nvme_spec::registers::{CAP, Cap, DOORBELLS};
use nvme_spec::sqe::SQE_SIZE;

use crate::bus::place::{AnyBus, Place};
use crate::bus::vfio_user::VfioUser;
use crate::bus::{Bus, MappedDoorbells};
use crate::doorbell::{Doorbell, Ringing};
use crate::queue::{CarrierParts, Parts, QueueMemory};
use crate::{Carrier, Doorbells, DriverError, Options, QueuePair, prp};

/// Start of the driver's memory in the device's address space. Not 0, so that an offset used as an
/// address by mistake reaches no memory.
const MEMORY_AT: Iova = Iova(1 << 32);
/// One page, as a length of memory.
const PAGE: usize = 4096;
const _: () = assert!(PAGE as u64 == PAGE_SIZE);

/// State of an enabled controller.
struct Enabled<B: Bus> {
    admin: QueuePair<B>,
    /// Event requests that the controller holds at most, less one.
    aerl_z: u8,
    /// RTD3 Entry Latency, in microseconds.
    rtd3e_us: u32,
    ringing: Ringing,
    /// I/O queue pairs that the controller granted.
    queues_max: u16,
    /// Bytes that one command may move.
    transfer_len: u32,
    /// Identifiers of Asynchronous Event Requests that the controller holds.
    event_requests: Vec<u16>,
    events: VecDeque<EventDw0>,
    /// I/O queue pairs that the controller knows, with their memory.
    queues: Vec<(u16, Arc<QueueMemory>)>,
    /// Buffers of admin commands that timed out.
    given_up: Vec<Buffer>,
    /// True until the controller is disabled; its queues check it.
    current: Arc<AtomicBool>,
}

impl<B: Bus> Drop for Enabled<B> {
    fn drop(&mut self) {
        self.current.store(false, Ordering::Relaxed);
    }
}

/// A controller and the memory shared with it.
pub struct Device<B: Bus> {
    bus: Arc<B>,
    memory: HostMemory,
    options: Options,
    cap: Cap,
    enabled: Option<Enabled<B>>,
}

impl Device<VfioUser> {
    /// Connects to a vfio-user server and shares memory with it. The controller
    /// is not touched until [`Self::enable`].
    ///
    /// # Errors
    /// [`DriverError::Connect`], and those of [`Self::open`].
    pub fn connect(path: impl AsRef<Path>, options: &Options) -> Result<Self, DriverError> {
        let bus = VfioUser::connect(path.as_ref(), options.timeout)?;
        Self::open(bus, options)
    }
}

impl Device<AnyBus> {
    /// As [`Device::connect`], to the drive at any place.
    ///
    /// # Errors
    /// Those of [`Place::open`], and those of [`Self::open`].
    pub fn at(place: &Place, options: &Options) -> Result<Self, DriverError> {
        Self::open(place.open(options.timeout)?, options)
    }
}

impl<B: Bus> Device<B> {
    /// Takes a bus to a controller and shares memory with it.
    ///
    /// # Errors
    /// [`DriverError::System`] without memory, [`DriverError::Unsupported`] for a
    /// controller that is not for this driver, and those of the bus.
    pub fn open(bus: B, options: &Options) -> Result<Self, DriverError> {
        let mut device = Self::new(bus, options)?;
        device.share()?;
        Ok(device)
    }

    /// Takes a bus to a controller that a former process has left as it was, perhaps at work.
    /// `ended` is called when the controller is disabled, and reaches nothing that process had
    /// shared: no command of it has an effect any more. Then as [`Self::open`].
    ///
    /// # Errors
    /// As [`Self::open`]; [`DriverError::Timeout`] for a controller that is not disabled within
    /// its own bound and `bound`, and [`DriverError::Unsupported`] where memory may still be
    /// shared. Memory is unmapped also if the controller does not respond.
    pub fn adopt(
        bus: B,
        options: &Options,
        bound: Duration,
        ended: impl FnOnce(),
    ) -> Result<Self, DriverError> {
        let mut device = Self::new(bus, options)?;
        let stopped = device.stop_former(bound);
        device.bus.clear_former()?;
        stopped?;
        ended();
        device.share()?;
        Ok(device)
    }

    /// With memory that is not shared yet.
    fn new(bus: B, options: &Options) -> Result<Self, DriverError> {
        let memory = HostMemory::new(options.memory_len).map_err(|source| DriverError::System {
            what: "create memory to share with the drive",
            source,
        })?;
        Ok(Self {
            bus: Arc::new(bus),
            memory,
            options: options.clone(),
            cap: Cap::new(),
            enabled: None,
        })
    }

    fn share(&mut self) -> Result<(), DriverError> {
        self.bus.share(&self.memory, MEMORY_AT)?;
        self.read_capabilities()?;
        self.enable_pci_function()
    }

    fn read_capabilities(&mut self) -> Result<(), DriverError> {
        self.cap = Cap::from(self.bus.read64(CAP)?);
        self.check_capabilities()
    }

    fn check_capabilities(&self) -> Result<(), DriverError> {
        let unsupported = |why: &str| Err(DriverError::Unsupported(why.to_owned()));
        if u64::from(self.cap) == u64::MAX {
            return unsupported(
                "all bits of the controller's registers read as 1: the drive was removed or does not respond",
            );
        }
        if !self.cap.css_nvm() {
            return unsupported("the controller does not support the NVM command set");
        }
        if self.cap.mpsmin() > 0 {
            return unsupported("the controller does not support memory pages of 4 KiB");
        }
        if self.cap.mqes_z() == 0 {
            return unsupported(
                "the controller does not support queues of two entries (CAP.MQES is 0)",
            );
        }
        Ok(())
    }

    /// The bus.
    #[must_use]
    pub fn bus(&self) -> &B {
        &self.bus
    }

    /// The bus, for who asks it for something while the device waits.
    #[must_use]
    pub fn shared_bus(&self) -> &Arc<B> {
        &self.bus
    }

    /// The Controller Capabilities property.
    #[must_use]
    pub fn capabilities(&self) -> Cap {
        self.cap
    }

    /// Memory that the drive reaches, `len` bytes from the start of a page.
    ///
    /// # Errors
    /// [`DriverError::NoMemory`].
    pub fn alloc(&self, len: usize) -> Result<Buffer, DriverError> {
        self.memory
            .alloc(len, PAGE)
            .ok_or(DriverError::NoMemory { wanted: len })
    }

    /// The memory shared with the drive.
    #[must_use]
    pub fn memory(&self) -> &HostMemory {
        &self.memory
    }

    /// Address of `buffer`'s first byte for the drive.
    #[must_use]
    pub fn iova(&self, buffer: &Buffer) -> Iova {
        buffer.iova(MEMORY_AT)
    }

    /// The doorbell mode of I/O queues, once the controller is enabled; never [`Doorbells::Auto`].
    #[must_use]
    pub fn doorbells(&self) -> Option<Doorbells> {
        Some(self.enabled.as_ref()?.ringing.mode())
    }

    /// I/O queue pairs that the controller granted.
    #[must_use]
    pub fn queues_max(&self) -> u16 {
        self.enabled
            .as_ref()
            .map_or(0, |enabled| enabled.queues_max)
    }

    /// I/O queue pairs that there are.
    #[must_use]
    pub fn queues_in_use(&self) -> u16 {
        let queues = self.enabled.as_ref().map_or(0, |e| e.queues.len());
        u16::try_from(queues).expect("an identifier has 16 bits")
    }

    /// The largest depth of a queue pair: a ring has one entry more.
    #[must_use]
    pub fn depth_max(&self) -> u16 {
        self.cap.mqes_z()
    }

    /// Bytes that one command may move; 0 until the controller is enabled.
    #[must_use]
    pub fn transfer_len_max(&self) -> u32 {
        self.enabled
            .as_ref()
            .map_or(0, |enabled| enabled.transfer_len)
    }

    fn enabled(&mut self) -> Result<&mut Enabled<B>, DriverError> {
        self.enabled.as_mut().ok_or_else(|| {
            DriverError::Unsupported("the controller is not enabled: call enable first".to_owned())
        })
    }

    /// Creates rings, lists and doorbells of a queue pair, without a command to the controller.
    fn make_queue_pair(
        &self,
        (qid, depth): (u16, u16),
        ringing: &Ringing,
        transfer_len: u32,
        (vector, interrupt): (Option<u16>, Option<EventFd>),
        current: &Arc<AtomicBool>,
        carried: bool,
    ) -> Result<(QueuePair<B>, Option<Carrier<B>>), DriverError> {
        let entries = usize::from(depth) + 1;
        let sq = self.alloc((entries * SQE_SIZE).next_multiple_of(PAGE))?;
        let cq = self.alloc((entries * CQE_SIZE).next_multiple_of(PAGE))?;
        // The phase of an entry that was never posted is 0.
        cq.zero();
        let list_pages = prp::list_pages(u64::from(transfer_len));
        let lists_len = list_pages * PAGE_SIZE * u64::from(depth);
        let lists = match usize::try_from(lists_len).expect("a few pages for each of 65535 slots") {
            0 => None,
            len => Some(self.alloc(len)?),
        };
        // The stride of the registers and of the shadow buffers is one and the
        // same (Base 2.1, 5.2.5): 4 << CAP.DSTRD bytes.
        let stride = 4u64 << self.cap.dstrd();
        let at = stride * 2 * u64::from(qid);
        let doorbell = |at: u64| {
            let shadow_at = usize::try_from(at).expect("2^17 doorbells of 128 KiB at most");
            Doorbell::new(ringing, DOORBELLS + at, shadow_at)
        };
        let mut memory = QueueMemory::new(HostSq::new(sq), HostCq::new(cq), lists, list_pages);
        let mut cq_head = doorbell(at + stride);
        let mut relay = None;
        if carried {
            let posted = self.alloc((entries * CQE_SIZE).next_multiple_of(PAGE))?;
            posted.zero();
            memory = memory.posted_to(HostCq::new(posted));
            // Its reader tells the carrier how far it is as a host tells a controller.
            let heads = DoorbellPages::new(1).map_err(|source| DriverError::System {
                what: "create a doorbell page",
                source,
            })?;
            let heads = Arc::new(heads);
            let start = cq_head.offset();
            let ours = Ringing::Mapped(MappedDoorbells {
                pages: heads.clone(),
                start,
            });
            let told = std::mem::replace(&mut cq_head, Doorbell::new(&ours, start, 0));
            relay = Some((told, heads));
        }
        let memory = Arc::new(memory);
        let carrier = relay.map(|(cq_head, heads)| {
            Carrier::new(CarrierParts {
                bus: self.bus.clone(),
                qid,
                depth,
                memory: memory.clone(),
                cq_head,
                heads,
                current: current.clone(),
            })
        });
        let queue = QueuePair::new(Parts {
            bus: self.bus.clone(),
            qid,
            depth,
            base: MEMORY_AT,
            memory,
            sq_tail: doorbell(at),
            cq_head,
            vector,
            interrupt,
            timeout: self.options.timeout,
            transfer_len,
            current: current.clone(),
        });
        Ok((queue, carrier))
    }

    /// Makes an I/O queue pair in which `depth` commands may be in flight; with
    /// `interrupt` it can wait.
    ///
    /// # Errors
    /// [`DriverError::Unsupported`] for a depth or a number of queue pairs that
    /// the controller does not have, or an interrupt that was not asked for in
    /// [`Options::interrupts`]; [`DriverError::NoMemory`]; and those of the
    /// commands.
    pub fn create_queue_pair(
        &mut self,
        depth: u16,
        interrupt: bool,
    ) -> Result<QueuePair<B>, DriverError> {
        let made = self.create_pair(depth, false, |device, qid| {
            let interrupt = interrupt.then(|| device.make_interrupt(qid)).transpose()?;
            Ok((interrupt.is_some().then_some(qid), interrupt))
        });
        made.map(|(queue, _)| queue)
    }

    /// As [`Self::create_queue_pair`], with an interrupt that signals no eventfd until
    /// [`Self::signal_interrupts`] assigns one; with no interrupt if the drive has no vector for
    /// it, or [`Options::interrupts`] is not set.
    ///
    /// # Errors
    /// As [`Self::create_queue_pair`].
    pub fn create_quiet_queue_pair(&mut self, depth: u16) -> Result<QueuePair<B>, DriverError> {
        let made = self.create_pair(depth, false, Self::quiet_interrupt);
        made.map(|(queue, _)| queue)
    }

    /// As [`Self::create_quiet_queue_pair`], with the completions brought by a
    /// [`Carrier`] that another thread may have. Nothing completes without it;
    /// it must have ended before the queue pair is deleted.
    ///
    /// # Errors
    /// As [`Self::create_queue_pair`].
    pub fn create_carried_queue_pair(
        &mut self,
        depth: u16,
    ) -> Result<(QueuePair<B>, Carrier<B>), DriverError> {
        let (queue, carrier) = self.create_pair(depth, true, Self::quiet_interrupt)?;
        Ok((queue, carrier.expect("it was asked for")))
    }

    /// The vector of a queue whose interrupt signals no eventfd yet.
    fn quiet_interrupt(&self, qid: u16) -> Result<(Option<u16>, Option<EventFd>), DriverError> {
        let has_one = self.options.interrupts && qid < self.bus.vectors();
        Ok((has_one.then_some(qid), None))
    }

    /// Has the interrupts of a vector signal `eventfd` from now on.
    ///
    /// # Errors
    /// Those of the bus.
    pub fn signal_interrupts(&self, vector: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        self.bus.set_interrupt(vector, eventfd)
    }

    /// Removes the eventfd of a vector, until [`Self::signal_interrupts`] assigns one again.
    /// Earlier signals may still arrive.
    ///
    /// # Errors
    /// Those of the bus.
    pub fn silence_interrupts(&self, vector: u16) -> Result<(), DriverError> {
        self.bus.clear_interrupt(vector)
    }

    /// Makes a queue pair of the first identifier that is free, which `interrupt`
    /// gives a vector, and an eventfd that it signals.
    fn create_pair(
        &mut self,
        depth: u16,
        carried: bool,
        interrupt: impl FnOnce(&Self, u16) -> Result<(Option<u16>, Option<EventFd>), DriverError>,
    ) -> Result<(QueuePair<B>, Option<Carrier<B>>), DriverError> {
        let depth_max = self.depth_max();
        if depth == 0 || depth > depth_max {
            return Err(DriverError::Unsupported(format!(
                "a queue of this controller holds 1 to {depth_max} commands, not {depth}"
            )));
        }
        let enabled = self.enabled()?;
        let taken = |qid: &u16| enabled.queues.iter().any(|(other, _)| other == qid);
        let Some(qid) = (1..=enabled.queues_max).find(|qid| !taken(qid)) else {
            return Err(DriverError::Unsupported(format!(
                "the controller has {} I/O queue pairs, and all of them are in use: use fewer queues",
                enabled.queues_max
            )));
        };
        let (ringing, transfer_len) = (enabled.ringing.clone(), enabled.transfer_len);
        let current = enabled.current.clone();
        let interrupt = interrupt(self, qid)?;
        let (queue, carrier) = self.make_queue_pair(
            (qid, depth),
            &ringing,
            transfer_len,
            interrupt,
            &current,
            carried,
        )?;
        // Known from here on: a command that times out may still be done.
        self.enabled()?.queues.push((qid, queue.memory().clone()));
        match self.create_queues(&queue) {
            Ok(()) => Ok((queue, carrier)),
            Err(error) => {
                if error.is_refusal() {
                    self.enabled()?.queues.retain(|(other, _)| *other != qid);
                }
                Err(error)
            }
        }
    }

    /// Deletes an I/O queue pair. The controller aborts the commands in flight in it, and their
    /// completions are lost.
    ///
    /// # Errors
    /// Those of the commands; the queue pair is gone all the same, its
    /// identifier stays taken until the controller is reset.
    pub fn delete_queue_pair(&mut self, queue: QueuePair<B>) -> Result<(), DriverError> {
        let enabled = self.enabled()?;
        let known = |(qid, memory): &(u16, Arc<QueueMemory>)| {
            *qid == queue.qid() && Arc::ptr_eq(memory, queue.memory())
        };
        // A queue pair from before a reset is the controller's no more.
        let Some(at) = enabled.queues.iter().position(known) else {
            return Ok(());
        };
        self.delete_queues(queue.qid())?;
        self.enabled()?.queues.remove(at);
        Ok(())
    }

    fn make_interrupt(&self, vector: u16) -> Result<EventFd, DriverError> {
        if !self.options.interrupts {
            return Err(DriverError::Unsupported(
                "the device was opened without interrupts: set Options::interrupts".to_owned(),
            ));
        }
        if vector >= self.bus.vectors() {
            return Err(DriverError::Unsupported(format!(
                "the drive has {} interrupt vectors: none is left for queue {vector}",
                self.bus.vectors()
            )));
        }
        let eventfd = make_eventfd()?;
        self.bus.set_interrupt(vector, &eventfd)?;
        Ok(eventfd)
    }
}

fn make_eventfd() -> Result<EventFd, DriverError> {
    EventFd::new().map_err(|source| DriverError::System {
        what: "create an eventfd",
        source,
    })
}
