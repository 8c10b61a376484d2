//! A controller behind a target of NVMe over TCP.
//!
//! The driver is a host that writes entries into rings in its own memory and rings doorbells; this
//! bus plays the drive at the near end of the wire. A tail doorbell sends the new entries as
//! command capsules, data of the target go to the memory of their command, and a response becomes
//! an entry of the completion queue. Registers become Property Get and Property Set. Create and
//! Delete of I/O queues are answered here: a submission queue is a connection, a completion queue
//! is only memory.
//!
//! Reading order: `address`, `identity`, `shared` (the driver's memory), `rings`, `commands` (what
//! is in flight), `wire` (bytes in and out, without a socket), `connection`, `talk` (a connection
//! before its queue is connected), `authenticate`, `connect`, `queues` (rings and connections
//! together), `properties`, `fabrics` (commands of tests).
//!
//! Invariants: no command allocates. Nothing that a target sends panics or hangs; every wait has
//! the bus's timeout. When one connection ends, all of them have: [`Bus::reset_function`] connects
//! again, and so does enabling a controller that was disabled. Locks are taken in the order
//! registers, shared memory, Admin Queue, I/O queue, completion queue.
//!
//! Not included: keep alive, and data other than one SGL data block.

mod address;
mod authenticate;
mod commands;
mod connect;
mod connection;
mod fabrics;
mod identity;
mod properties;
mod queues;
mod rings;
mod shared;
mod stream;
mod talk;
#[cfg(test)]
mod tests;
mod wire;

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use memory::{EventFd, HostMemory, Iova};
use nvme_spec::identify::IdentifyController;
use nvme_spec::registers::{DOORBELL_STRIDE, DOORBELLS};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

pub use self::address::TcpAddress;
use self::connection::End;
pub use self::identity::Identity;
use self::properties::Registers;
use self::queues::Queue;
use self::rings::Cq;
use self::shared::Shared;
use self::stream::Channel;
use super::{Bus, Fabrics, MappedDoorbells, NAP, spin_then_nap};
use crate::DriverError;

/// Parts that the fuzz target of this bus uses.
pub mod parts {
    pub use super::shared::Shared;
    pub use super::wire::{Breach, OFFER, Wire, decoder};
}

/// Queues, with the Admin Queue: the driver asks for 256 I/O queues.
const QUEUES: u16 = 257;
/// Connections that one look finds ready at most.
const READY: usize = 32;
/// While only one I/O queue is busy, only its connection is looked at, except every 64th time.
const LOOKS_AT_ALL: u32 = 64;
/// How long a wait for an interrupt lasts while bytes are staged for a socket that takes none.
const BLOCKED: Duration = Duration::from_millis(1);

/// The bus to a controller behind a target.
pub struct NvmeTcp {
    target: TcpAddress,
    host: Box<Identity>,
    timeout: Duration,
    started: Instant,
    registers: Mutex<Registers>,
    queues: Box<[Mutex<Option<Queue>>]>,
    completions: Box<[Mutex<Option<Cq>>]>,
    shared: RwLock<Shared>,
    /// Eventfds by vector.
    vectors: RwLock<Vec<Option<EventFd>>>,
    /// Tells which connections have bytes: a queue's identifier is its data.
    epoll: OwnedFd,
    /// Bytes of data in a capsule of an I/O queue at most (IOCCSZ).
    in_capsule: AtomicU32,
    /// The address of the Admin Queue's connection.
    peer: Mutex<Option<SocketAddr>>,
    /// How the connections of this association are protected.
    channel: Mutex<Channel>,
    /// The controller, as Connect has named it.
    cntlid: AtomicU16,
    /// Queues with bytes that were neither taken nor sent.
    unfinished: AtomicUsize,
    /// Queues with commands in flight, except for Asynchronous Event Requests.
    busy: AtomicUsize,
    /// The I/O queue among them that was served last; 0 if none is known.
    recent: AtomicU16,
    /// Counts looks.
    looks: AtomicU32,
    /// Why all connections have ended.
    end: Mutex<Option<End>>,
    has_ended: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None` while another thread has it.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl NvmeTcp {
    /// Connects to a subsystem's target: the Admin Queue. Each wait is bounded by `timeout`.
    ///
    /// # Errors
    /// [`DriverError::Target`], [`DriverError::Timeout`], [`DriverError::System`].
    pub fn connect(target: &TcpAddress, timeout: Duration) -> Result<Self, DriverError> {
        let host = Identity::of_process().map_err(|source| DriverError::System {
            what: "make a host identifier",
            source,
        })?;
        Self::connect_as(host, target, timeout)
    }

    /// As [`Self::connect`], as another host than that of the process.
    ///
    /// # Errors
    /// Those of [`Self::connect`].
    pub fn connect_as(
        host: &Identity,
        target: &TcpAddress,
        timeout: Duration,
    ) -> Result<Self, DriverError> {
        let bus = Self::unconnected(host, target, timeout)?;
        bus.associate(&mut lock(&bus.registers))?;
        Ok(bus)
    }

    fn unconnected(
        host: &Identity,
        target: &TcpAddress,
        timeout: Duration,
    ) -> Result<Self, DriverError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        let epoll = epoll.map_err(|errno| DriverError::System {
            what: "create an epoll instance",
            source: errno.into(),
        })?;
        Ok(Self {
            target: target.clone(),
            host: Box::new(host.clone()),
            timeout,
            started: Instant::now(),
            registers: Mutex::default(),
            queues: (0..QUEUES).map(|_| Mutex::new(None)).collect(),
            completions: (0..QUEUES).map(|_| Mutex::new(None)).collect(),
            shared: RwLock::default(),
            vectors: RwLock::new(vec![None; usize::from(QUEUES)]),
            epoll,
            in_capsule: AtomicU32::new(0),
            peer: Mutex::new(None),
            channel: Mutex::new(host.channel()),
            cntlid: AtomicU16::new(0),
            unfinished: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            recent: AtomicU16::new(0),
            looks: AtomicU32::new(0),
            end: Mutex::new(None),
            has_ended: AtomicBool::new(false),
        })
    }

    fn read_shared(&self) -> std::sync::RwLockReadGuard<'_, Shared> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error if the connections have ended.
    fn check(&self) -> Result<(), DriverError> {
        // Acquire: with the reason.
        if !self.has_ended.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(lock(&self.end).map_or(DriverError::Gone, DriverError::from))
    }

    /// Ends all connections. The first reason stays.
    fn end(&self, end: End) {
        lock(&self.end).get_or_insert(end);
        self.has_ended.store(true, Ordering::Release);
    }

    fn no_function<T>(&self) -> Result<T, DriverError> {
        Err(DriverError::Unsupported(format!(
            "the drive at nvme-tcp:{} has no PCI function",
            self.target
        )))
    }

    /// The I/O queue that is the only one that is waited for.
    fn sole(&self) -> Option<u16> {
        let recent = self.recent.load(Ordering::Relaxed);
        (recent > 0 && self.busy.load(Ordering::Relaxed) == 1).then_some(recent)
    }

    /// Serves the queues whose sockets have bytes, and those that were not finished.
    fn look(&self) {
        if let Some(qid) = self.sole() {
            // Its socket itself is asked. Looks that two threads count as one are no matter.
            let looks = self.looks.load(Ordering::Relaxed).wrapping_add(1);
            self.looks.store(looks, Ordering::Relaxed);
            let ended = self.has_ended.load(Ordering::Relaxed);
            if !ended && !looks.is_multiple_of(LOOKS_AT_ALL) {
                let shared = self.read_shared();
                self.serve_if_free(qid, &shared);
                return;
            }
        }
        self.look_at_all();
    }

    fn look_at_all(&self) {
        if self.has_ended.load(Ordering::Relaxed) {
            return;
        }
        let mut ready = [const { MaybeUninit::uninit() }; READY];
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let found = match epoll::wait(&self.epoll, &mut ready, Some(&none)) {
            Ok((found, _)) => found,
            Err(_) => return,
        };
        let unfinished = self.unfinished.load(Ordering::Relaxed) > 0;
        if found.is_empty() && !unfinished {
            return;
        }
        let shared = self.read_shared();
        for event in &*found {
            if let Ok(qid) = u16::try_from(event.data.u64()) {
                self.serve_if_free(qid, &shared);
            }
        }
        if unfinished {
            (0..QUEUES).for_each(|qid| self.serve_if_free(qid, &shared));
        }
    }

    fn serve_if_free(&self, qid: u16, shared: &Shared) {
        let Some(queue) = self.queues.get(usize::from(qid)) else {
            return;
        };
        // A thread that has it serves it.
        if let Some(mut queue) = try_lock(queue)
            && let Some(queue) = &mut *queue
        {
            // A command that cannot be sent was completed; its doorbell reports it where it can.
            let _ = match qid {
                // Its doorbell fetches, as Create I/O Submission Queue waits for the target.
                0 => self.answer(queue, shared),
                _ => self.serve(queue, shared),
            };
        }
    }

    /// The queue of a doorbell, and whether it is a completion queue's.
    fn doorbell(&self, offset: u64) -> Result<(u16, bool), DriverError> {
        let at = offset
            .checked_sub(DOORBELLS)
            .filter(|at| at % DOORBELL_STRIDE == 0);
        let index = at.map(|at| at / DOORBELL_STRIDE);
        let qid = index.and_then(|index| u16::try_from(index / 2).ok());
        match (qid, index) {
            (Some(qid), Some(index)) if qid < QUEUES => Ok((qid, index % 2 == 1)),
            _ => Err(DriverError::Unsupported(format!(
                "there is no doorbell at {offset:#x}"
            ))),
        }
    }

    fn set_head(&self, qid: u16, head: u32) -> Result<(), DriverError> {
        let mut cq = lock(&self.completions[usize::from(qid)]);
        let cq = cq.as_mut().ok_or_else(|| no_queue(qid))?;
        if cq.set_head(head) {
            Ok(())
        } else {
            Err(outside(qid, head))
        }
    }

    fn set_tail(
        &self,
        qid: u16,
        tail: u32,
        mut queue: MutexGuard<'_, Option<Queue>>,
        shared: &Shared,
    ) -> Result<(), DriverError> {
        let queue = queue.as_mut().ok_or_else(|| no_queue(qid))?;
        let sq = queue.sq.as_mut().ok_or_else(|| no_queue(qid))?;
        if !sq.set_tail(tail) {
            return Err(outside(qid, tail));
        }
        // Completions are taken by looks.
        self.submit(queue, shared)
    }
}

fn outside(qid: u16, value: u32) -> DriverError {
    DriverError::Unsupported(format!(
        "the doorbell value {value} lies outside queue {qid}"
    ))
}

fn no_queue(qid: u16) -> DriverError {
    DriverError::Unsupported(format!("there is no queue {qid}: create it first"))
}

impl Bus for NvmeTcp {
    fn read32(&self, offset: u64) -> Result<u32, DriverError> {
        self.read_register(offset)
    }

    fn read64(&self, offset: u64) -> Result<u64, DriverError> {
        self.read_long_register(offset)
    }

    fn write32(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.write_register(offset, value)
    }

    fn write64(&self, offset: u64, value: u64) -> Result<(), DriverError> {
        self.write_long_register(offset, value)
    }

    fn ring(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.check()?;
        match self.doorbell(offset)? {
            (qid, true) => self.set_head(qid, value),
            (qid, false) => {
                let shared = self.read_shared();
                let queue = lock(&self.queues[usize::from(qid)]);
                self.set_tail(qid, value, queue, &shared)
            }
        }
    }

    fn try_ring(&self, offset: u64, value: u32) -> Result<bool, DriverError> {
        self.check()?;
        match self.doorbell(offset)? {
            (qid, true) => self.set_head(qid, value)?,
            (qid, false) => {
                let shared = self.read_shared();
                let Some(queue) = try_lock(&self.queues[usize::from(qid)]) else {
                    return Ok(false);
                };
                self.set_tail(qid, value, queue, &shared)?;
            }
        }
        Ok(true)
    }

    fn config_read(&self, _offset: u64, _out: &mut [u8]) -> Result<(), DriverError> {
        self.no_function()
    }

    fn config_write(&self, _offset: u64, _data: &[u8]) -> Result<(), DriverError> {
        self.no_function()
    }

    fn bar_len(&self, _bar: u8) -> Result<u64, DriverError> {
        self.no_function()
    }

    fn bar_read(&self, _bar: u8, _offset: u64, _out: &mut [u8]) -> Result<(), DriverError> {
        self.no_function()
    }

    fn bar_write(&self, _bar: u8, _offset: u64, _data: &[u8]) -> Result<(), DriverError> {
        self.no_function()
    }

    /// There is no function: all connections end, and the Admin Queue is connected again.
    fn reset_function(&self) -> Result<(), DriverError> {
        self.associate(&mut lock(&self.registers))
    }

    fn doorbells(&self) -> Option<MappedDoorbells> {
        None
    }

    fn share(&self, memory: &HostMemory, base: Iova) -> Result<(), DriverError> {
        let shared = self.shared.write();
        shared
            .unwrap_or_else(PoisonError::into_inner)
            .add(base, memory.clone());
        Ok(())
    }

    fn unshare(&self, base: Iova, _len: u64) -> Result<(), DriverError> {
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        if shared.remove(base) {
            return Ok(());
        }
        Err(DriverError::Unsupported(format!(
            "no memory is shared at {:#x}",
            base.0
        )))
    }

    /// The bus copies: a drive never reaches the memory itself.
    fn can_revoke(&self) -> bool {
        true
    }

    fn fabrics(&self) -> Option<&dyn Fabrics> {
        Some(self)
    }

    fn identified(&self, identity: &IdentifyController) {
        let fabrics = &identity.fabrics;
        // IOCCSZ counts the command's 64 bytes, in units of 16. Data that do not begin right behind
        // the command travel by R2T.
        let in_capsule = match fabrics.icdoff {
            0 => fabrics.ioccsz.saturating_mul(16).saturating_sub(64),
            _ => 0,
        };
        self.in_capsule.store(in_capsule, Ordering::Relaxed);
    }

    fn vectors(&self) -> u16 {
        QUEUES
    }

    fn set_interrupt(&self, vector: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        self.assign(vector, Some(eventfd.clone()))
    }

    fn clear_interrupt(&self, vector: u16) -> Result<(), DriverError> {
        self.assign(vector, None)
    }

    fn set_message_interrupt(&self, _message: u16, _eventfd: &EventFd) -> Result<(), DriverError> {
        self.no_function()
    }

    fn turn(&self) {
        self.look();
    }

    fn relax(&self, empty: u32) {
        spin_then_nap(empty);
    }

    fn pause(&self) {
        std::thread::sleep(NAP);
    }

    fn wait(&self, eventfd: &EventFd, timeout: Duration) -> Result<bool, DriverError> {
        let deadline = Instant::now() + timeout;
        loop {
            self.look_at_all();
            if eventfd.drain() {
                return Ok(true);
            }
            self.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let left = match self.unfinished.load(Ordering::Relaxed) {
                0 => left,
                _ => left.min(BLOCKED),
            };
            let left = Timespec::try_from(left).expect("a timeout fits in a timespec");
            let mut fds = [
                PollFd::new(eventfd, PollFlags::IN),
                PollFd::new(&self.epoll, PollFlags::IN),
            ];
            match poll(&mut fds, Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(DriverError::System {
                        what: "wait for an interrupt",
                        source: errno.into(),
                    });
                }
            }
        }
    }

    fn check_alive(&self) -> Result<(), DriverError> {
        self.look_at_all();
        self.check()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
