//! A controller of our own on the caller's thread: no socket, no thread, no clock.
//!
//! Every poll of a queue gives the controller, its lanes and its channels one turn. Time is a
//! counter that each turn advances, by default by a microsecond, so that a run repeats exactly;
//! [`InProcess::advance`] moves it past a deadline at once. The driver's timeouts use this time,
//! too.
//!
//! On request it sleeps as a reactor does: when idle it arms EventIdx, checks again, and from then
//! on only a register write or a deadline wakes it. A doorbell that should have been a register
//! write and was not then shows as a timeout.
#![forbid(unsafe_code)]

use std::cell::{RefCell, RefMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use controller::lane::{Lane, LaneTable};
use controller::{Controller, Interrupt};
use driver::bus::{Bus, MappedDoorbells};
use driver::{Device, DriverError, Options};
use memory::{
    Access, ClientMappings, DmaMap, DoorbellPages, EventFd, HostMemory, Iova, Lent, full_fence,
};
use nvme_spec::registers::DOORBELLS;
use port::ticket::OwnerKey;
use port::time::Time;
use port::{Channel, Channels, Done};
use subsystem::Subsystem;

/// Drives a controller of our own on the caller's thread. `doorbells` are those that the controller
/// was made with, and `mapped` whether the driver stores into them.
///
/// # Errors
/// Those of [`Device::open`].
pub fn device<C: Channel>(
    controller: Controller,
    subsystem: Subsystem,
    doorbells: Arc<DoorbellPages>,
    mapped: bool,
    channels: Channels<C>,
    options: &Options,
) -> Result<Device<InProcess<C>>, DriverError> {
    let bus = InProcess::new(controller, subsystem, doorbells, mapped, channels);
    Device::open(bus, options)
}

/// By how much a turn moves time on, in nanoseconds.
const TURN_NS: u64 = 1_000;
/// Regions of memory that may be shared.
const REGIONS_MAX: usize = 64;
/// Messages that MSI has at most (PCI 3.0, 6.8.1).
const MESSAGES_MAX: usize = 32;
/// How long an unmap or a function reset waits for hanging commands before they are aborted.
const DRAIN_NS: u64 = 4_000_000_000;

/// The lanes of one controller. Keys are never given twice.
#[derive(Default)]
struct Lanes {
    table: Vec<(OwnerKey, Lane)>,
    made: u32,
}

impl LaneTable for Lanes {
    fn insert(&mut self, mut lane: Lane) -> OwnerKey {
        let key = OwnerKey::lane(self.made);
        self.made += 1;
        lane.settle(key);
        self.table.push((key, lane));
        key
    }

    #[inline]
    fn local(&mut self, key: OwnerKey) -> Option<&mut Lane> {
        let found = self.table.iter_mut().find(|(other, _)| *other == key);
        found.map(|(_, lane)| lane)
    }

    fn remove(&mut self, key: OwnerKey) {
        let at = self.table.iter().position(|(other, _)| *other == key);
        if let Some(at) = at {
            self.table.remove(at).1.end();
        }
    }
}

struct Inner<C> {
    controller: Controller,
    subsystem: Subsystem,
    channels: Channels<C>,
    lanes: Lanes,
    dma: DmaMap,
    mappings: ClientMappings,
    interrupts: Vec<Option<EventFd>>,
    messages: [Option<EventFd>; MESSAGES_MAX],
    done: Vec<Done>,
    now: Time,
    turn_ns: u64,
    /// It sleeps when it has nothing to do.
    sleeps: bool,
    /// Whether commands are to have the form of those over fabrics.
    over_fabrics: bool,
    deletes_near: bool,
    asleep: bool,
    doorbell_writes: u64,
}

impl<C: Channel> Inner<C> {
    fn turn(&mut self) {
        self.now = self.now + self.turn_ns;
        if self.asleep {
            let deadlines = self.controller.next_deadline().into_iter();
            let deadline = deadlines.chain(self.subsystem.next_deadline()).min();
            if deadline.is_none_or(|deadline| deadline > self.now) {
                return;
            }
            self.asleep = false;
        }
        let worked = self.work();
        let held = self
            .channels
            .iter()
            .any(|(_, channel)| channel.in_flight() > 0);
        if self.sleeps && !worked && !held {
            self.fall_asleep();
        }
    }

    /// The arm sequence: EventIdx stored, fence, second look. The host stores
    /// its tail, fence, loads EventIdx: one of the two sees the other's store.
    fn fall_asleep(&mut self) {
        for (_, lane) in &mut self.lanes.table {
            lane.arm();
        }
        full_fence();
        let lanes = &mut self.lanes.table.iter();
        let mut work = lanes.any(|(_, lane)| lane.has_work());
        work |= self.controller.has_work() || self.subsystem.has_work();
        self.asleep = !work;
    }

    /// Whether there was anything to do.
    fn work(&mut self) -> bool {
        let mut worked = self.controller.turn(
            self.now,
            &mut self.channels,
            &mut self.lanes,
            &mut self.subsystem,
        );
        worked |= self.subsystem.turn(self.now, &mut self.channels);
        for key in self.controller.take_kicks() {
            if let Some(lane) = self.lanes.local(key) {
                lane.kick();
            }
        }
        for (_, lane) in &mut self.lanes.table {
            let turn = lane.turn(&mut self.channels);
            worked |= turn.fetched > 0 || turn.pending > 0;
        }
        for (_, channel) in self.channels.iter_mut() {
            channel.submit();
            let held = usize::try_from(channel.in_flight()).expect("u32 fits in usize");
            self.done.reserve(held);
            channel.reap(&mut self.done);
        }
        worked |= !self.done.is_empty();
        for Done { ticket, outcome } in self.done.drain(..) {
            let owner = ticket.owner();
            if owner.is_subsystem() {
                self.subsystem.complete(ticket, outcome);
            } else if owner.is_controller() {
                self.controller.complete(ticket, outcome);
            } else if let Some(lane) = self.lanes.local(owner) {
                lane.complete(ticket, outcome);
            } else {
                ticket.retire();
            }
        }
        self.raise();
        worked
    }

    fn raise(&mut self) {
        let (interrupts, messages) = (&self.interrupts, &self.messages);
        let raise = |interrupt| {
            let eventfd = match interrupt {
                Interrupt::Vector(vector) => interrupts.get(usize::from(vector)),
                Interrupt::Message(message) => messages.get(usize::from(message)),
                // This bus has no pin.
                Interrupt::Pin(_) => None,
            };
            if let Some(Some(eventfd)) = eventfd {
                // A counter at its limit is signalled already.
                let _ = eventfd.signal();
            }
        };
        let controller = &mut self.controller;
        controller.take_interrupts(self.now, &mut self.lanes, raise);
        for (_, lane) in &mut self.lanes.table {
            if let Some(posted) = lane.take_posted()
                && let Some(interrupt) = controller.interrupt(posted, lane, self.now)
            {
                raise(interrupt);
            }
        }
    }

    fn publish_map(&mut self) -> u64 {
        let view = self.dma.view();
        let epoch = view.epoch();
        self.controller.set_view(view, self.mappings.lost());
        epoch
    }
}

/// The bus to a controller on this thread.
pub struct InProcess<C> {
    inner: RefCell<Inner<C>>,
    doorbells: Option<MappedDoorbells>,
}

impl<C: Channel> InProcess<C> {
    /// A bus to `controller` of `subsystem`, which was created with `doorbells`; `mapped` selects
    /// whether the driver stores into them.
    #[must_use]
    pub fn new(
        controller: Controller,
        subsystem: Subsystem,
        doorbells: Arc<DoorbellPages>,
        mapped: bool,
        channels: Channels<C>,
    ) -> Self {
        let interrupts = (0..controller.vectors()).map(|_| None).collect();
        Self {
            inner: RefCell::new(Inner {
                controller,
                subsystem,
                channels,
                lanes: Lanes::default(),
                dma: DmaMap::new(REGIONS_MAX),
                mappings: ClientMappings::new(),
                interrupts,
                messages: [const { None }; MESSAGES_MAX],
                done: Vec::new(),
                now: Time(0),
                turn_ns: TURN_NS,
                sleeps: false,
                over_fabrics: false,
                deletes_near: false,
                asleep: false,
                doorbell_writes: 0,
            }),
            doorbells: mapped.then_some(MappedDoorbells {
                pages: doorbells,
                start: DOORBELLS,
            }),
        }
    }

    /// The inside, for something that wakes the controller.
    fn wake(&self) -> RefMut<'_, Inner<C>> {
        let mut inner = self.inner.borrow_mut();
        inner.asleep = false;
        inner
    }

    /// Whether the controller sleeps when it has nothing to do.
    pub fn set_sleeps(&self, sleeps: bool) {
        self.wake().sleeps = sleeps;
    }

    /// Whether drivers describe data as they do over fabrics: only for tests of what they build.
    pub fn set_over_fabrics(&self, over_fabrics: bool) {
        self.inner.borrow_mut().over_fabrics = over_fabrics;
    }

    /// Whether drivers take a deleted queue for a connection that was closed: only for tests of
    /// what they do about its commands.
    pub fn set_deletes_near(&self, deletes_near: bool) {
        self.inner.borrow_mut().deletes_near = deletes_near;
    }

    /// Doorbells that were rung by a register write so far.
    #[must_use]
    pub fn doorbell_writes(&self) -> u64 {
        self.inner.borrow().doorbell_writes
    }

    /// Moves time on by `by`, past deadlines; what is due happens in the turns
    /// that follow.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let mut inner = self.inner.borrow_mut();
        inner.now = inner.now + by;
    }

    /// Sets by how many nanoseconds a turn moves time on.
    pub fn set_turn_ns(&self, turn_ns: u64) {
        self.inner.borrow_mut().turn_ns = turn_ns;
    }

    /// Looks at the controller, or does something to it that no host could.
    pub fn with_controller<T>(&self, look: impl FnOnce(&mut Controller) -> T) -> T {
        look(&mut self.wake().controller)
    }

    /// Looks at the subsystem, or does something to it as its operator.
    pub fn with_subsystem<T>(&self, look: impl FnOnce(&mut Subsystem) -> T) -> T {
        look(&mut self.wake().subsystem)
    }

    /// Looks at the lane of a completion queue, where there is one.
    pub fn with_lane<T>(&self, cqid: u16, look: impl FnOnce(&mut Lane) -> T) -> Option<T> {
        let mut inner = self.wake();
        let mut lanes = inner.lanes.table.iter_mut();
        let found = lanes.find(|(_, lane)| lane.cqid() == cqid);
        found.map(|(_, lane)| look(lane))
    }

    /// Looks at the channels, or does something to them.
    pub fn with_channels<T>(&self, look: impl FnOnce(&mut Channels<C>) -> T) -> T {
        look(&mut self.wake().channels)
    }

    fn read<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.inner
            .borrow()
            .controller
            .bar_read(0, offset, &mut bytes);
        bytes
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.wake().controller.bar_write(0, offset, bytes);
    }

    /// Lets the controller reach a part of a file.
    fn map(
        &self,
        (fd, offset): (BorrowedFd<'_>, u64),
        base: Iova,
        len: u64,
        access: Access,
    ) -> Result<(), DriverError> {
        let fd = fd.try_clone_to_owned();
        let fd = fd.map_err(|source| DriverError::System {
            what: "duplicate the memory's descriptor",
            source,
        })?;
        let refused =
            |error: String| DriverError::Unsupported(format!("cannot share memory: {error}"));
        let inner = &mut *self.wake();
        let mapping = inner
            .mappings
            .map(fd)
            .map_err(|error| refused(error.to_string()))?;
        inner
            .dma
            .map(base, len, access, Some((mapping, offset)))
            .map_err(|error| refused(error.to_string()))?;
        inner.publish_map();
        Ok(())
    }

    /// Gives turns until `reached`, or until the time for draining is over.
    fn turn_until(&self, reached: impl Fn(&Controller) -> bool) -> bool {
        let mut inner = self.inner.borrow_mut();
        let end = inner.now.0.saturating_add(DRAIN_NS);
        while !reached(&inner.controller) {
            if inner.now.0 > end {
                return false;
            }
            inner.turn();
        }
        true
    }
}

impl<C: Channel> Bus for InProcess<C> {
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

    fn is_over_fabrics(&self) -> bool {
        self.inner.borrow().over_fabrics
    }

    fn deletes_near(&self) -> bool {
        self.inner.borrow().deletes_near
    }

    fn ring(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.write32(offset, value)?;
        self.inner.borrow_mut().doorbell_writes += 1;
        Ok(())
    }

    fn config_read(&self, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        self.inner.borrow().controller.config_read(offset, out);
        Ok(())
    }

    fn config_write(&self, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        self.wake().controller.config_write(offset, data);
        Ok(())
    }

    fn bar_len(&self, bar: u8) -> Result<u64, DriverError> {
        let sizes = self.inner.borrow().controller.bar_sizes();
        Ok(sizes.get(usize::from(bar)).copied().unwrap_or(0))
    }

    fn bar_read(&self, bar: u8, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        self.inner.borrow().controller.bar_read(bar, offset, out);
        Ok(())
    }

    fn bar_write(&self, bar: u8, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        self.wake().controller.bar_write(bar, offset, data);
        Ok(())
    }

    fn reset_function(&self) -> Result<(), DriverError> {
        self.with_controller(Controller::function_reset);
        if self.turn_until(Controller::is_quiet) {
            return Ok(());
        }
        Err(DriverError::Timeout {
            what: "a device reset",
            after: Duration::from_nanos(DRAIN_NS),
        })
    }

    fn doorbells(&self) -> Option<MappedDoorbells> {
        self.doorbells.clone()
    }

    fn share(&self, memory: &HostMemory, base: Iova) -> Result<(), DriverError> {
        let len = u64::try_from(memory.len()).expect("usize fits in 64 bits");
        self.map((memory.fd(), 0), base, len, Access::READ_WRITE)
    }

    fn lend(&self, memory: &Lent, base: Iova) -> Result<(), DriverError> {
        let file = memory.file().ok_or_else(|| {
            DriverError::Unsupported(
                "memory without a file descriptor cannot be shared with a drive".to_owned(),
            )
        })?;
        let access = if memory.is_writable() {
            Access::READ_WRITE
        } else {
            Access::READ
        };
        let (_, len) = memory.as_raw();
        self.map(file, base, len, access)
    }

    fn unshare(&self, base: Iova, len: u64) -> Result<(), DriverError> {
        let epoch = {
            let inner = &mut *self.wake();
            inner.dma.unmap(base, len).map_err(|error| {
                DriverError::Unsupported(format!("cannot unmap memory: {error}"))
            })?;
            inner.publish_map()
        };
        if !self.turn_until(|controller| controller.drained(epoch)) {
            self.with_controller(|controller| controller.abandon(epoch));
            self.turn_until(|controller| controller.drained(epoch));
        }
        Ok(())
    }

    fn can_revoke(&self) -> bool {
        true
    }

    fn clear_former(&self) -> Result<(), DriverError> {
        let inner = &mut *self.wake();
        inner.dma.unmap_all();
        inner.publish_map();
        inner.interrupts.fill(None);
        inner.messages.fill(None);
        Ok(())
    }

    fn vectors(&self) -> u16 {
        self.inner.borrow().controller.vectors()
    }

    fn set_interrupt(&self, vector: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        let eventfd = eventfd.clone();
        let mut inner = self.inner.borrow_mut();
        match inner.interrupts.get_mut(usize::from(vector)) {
            Some(place) => {
                *place = Some(eventfd);
                Ok(())
            }
            None => Err(DriverError::Unsupported(format!(
                "the controller has no interrupt vector {vector}"
            ))),
        }
    }

    fn clear_interrupt(&self, vector: u16) -> Result<(), DriverError> {
        let mut inner = self.inner.borrow_mut();
        if let Some(place) = inner.interrupts.get_mut(usize::from(vector)) {
            *place = None;
        }
        Ok(())
    }

    fn set_message_interrupt(&self, message: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        let eventfd = eventfd.clone();
        let mut inner = self.inner.borrow_mut();
        match inner.messages.get_mut(usize::from(message)) {
            Some(place) => {
                *place = Some(eventfd);
                Ok(())
            }
            None => Err(DriverError::Unsupported(format!(
                "the controller has no MSI message {message}"
            ))),
        }
    }

    fn turn(&self) {
        self.inner.borrow_mut().turn();
    }

    fn wait(&self, eventfd: &EventFd, timeout: Duration) -> Result<bool, DriverError> {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline = self.now_ns().saturating_add(timeout);
        while !eventfd.drain() {
            if self.now_ns() >= deadline {
                return Ok(false);
            }
            self.turn();
        }
        Ok(true)
    }

    fn check_alive(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.inner.borrow().now.0
    }
}
