//! One host: its controller, its admin queue and its I/O queues.
//!
//! I/O queues are made and deleted in the controller by commands of the association's own in the
//! admin queue, one at a time:
//!
//! ```text
//! Connect -> Create CQ -> Create SQ -> answered, open -> closed -> Delete SQ -> Delete CQ -> gone
//! ```
//!
//! A reset of the controller ends all I/O queues at once; their memory is free when RDY is 0. The
//! association ends with its admin connection, with the keep alive timer, or by its caller.

mod away;
mod fabrics;
mod making;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use controller::Controller;
use memory::{Access, Buffer, ClientMappings, DmaMap, HostMemory, Iova};
use nvme_spec::Status;
use nvme_spec::registers::ShutdownStatus;
use port::time::Time;

use self::away::Away;
use crate::host::{BASE, PAGE, Step, state};
use crate::nvme_tcp::TargetConfig;
use crate::nvme_tcp::connect::{HOSTID_OFFSET, HOSTNQN_OFFSET, Host, QID_OFFSET, Refusal};
use crate::nvme_tcp::connection::{Connection, End};
use crate::nvme_tcp::counters::Counters;
use crate::nvme_tcp::newcomer::{Arrival, Farewell};
use crate::nvme_tcp::pace::{CHECK_NS, HOT_NS, Polled, SLOT_NS};
use crate::nvme_tcp::proof::Proof;
use crate::nvme_tcp::queue::{Queue, Shared};
use crate::nvme_tcp::remains::Remains;
use crate::nvme_tcp::sizes::memory_len;
use crate::nvme_tcp::slots::LargeSlots;

/// How long a Connect command waits while its queue identifier is in use: a host may open a queue
/// again before the end of its last connection has been seen.
const REUSE_NS: u64 = 100_000_000;
/// A reset that takes less has waited for all media. After 4 s the controller gives commands up; a
/// reset by another host is seen a little later than it began.
const RESET_NS: u64 = 3_000_000_000;
/// How long a host of a controller that has failed is silent at least when its association ends.
const SILENT_NS: u64 = 1_000_000_000;

/// Which connections are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    All,
    /// Those on which something came or was sent a moment ago.
    Hot,
}

/// An I/O queue.
#[derive(Debug)]
enum Io {
    /// The controller does not know all of it.
    Making(Box<Queue>, Step),
    Open(Box<Queue>),
    /// It is served on the reactor of its lane.
    Away(Away),
    /// It has no connection, and the controller still knows it.
    Ending(Box<Remains>, Step),
}

/// One host.
#[derive(Debug)]
pub struct Association {
    config: Arc<TargetConfig>,
    host: Host,
    cntlid: u16,
    memory: HostMemory,
    /// The map whose view the controller has. That view keeps the memory mapped for as long as the
    /// controller or a medium uses it, also behind the end of the association.
    _map: DmaMap,
    _mappings: ClientMappings,
    large: Arc<LargeSlots>,
    /// Small slots that a medium may still have, of queues that are gone.
    lost: Vec<Buffer>,
    admin: Queue,
    /// By queue identifier, from 1 on.
    io: Box<[Option<Io>]>,
    /// Length of the part of `io` that has all queues.
    used: usize,
    /// Arrivals whose queue identifier is in use, and until when they wait.
    waiting: Vec<(Arrival, Time)>,
    leaving: Vec<Farewell>,
    /// The queue that the command of the association's own in flight is about.
    own: Option<u16>,
    /// CC.EN as it was seen last.
    enabled: bool,
    /// CSTS.RDY as it was seen last, without a shutdown.
    ready: bool,
    /// CSTS.CFS as it was seen last.
    failed: bool,
    /// When the last reset began, unless the controller had failed.
    reset_at: Option<Time>,
    kato_ms: u32,
    heard: Time,
    check_at: Time,
    /// When it was polled last.
    polled: Time,
    /// Queues that are away, and those of them that are to come back.
    away: usize,
    recalls: Vec<u16>,
    /// When it is looked at whether something has come on them.
    hear_at: Time,
    changes: u64,
    openings: u64,
    /// Connections that wanted to be polled for writing, one bit each.
    wanting: u128,
    /// Of queues that are gone.
    counters: Counters,
}

impl Association {
    /// A new host: answers its Connect command with the identifier of `controller`, which was just
    /// made and has no other host.
    ///
    /// # Errors
    /// There is no memory, or there are no more descriptors. The arrival is dropped.
    pub fn new(arrival: Arrival, controller: &mut Controller, now: Time) -> io::Result<Self> {
        let Arrival {
            connection,
            config,
            connect,
            exchange,
        } = arrival;
        let queues = usize::from(config.queues);
        let slot = (config.max_transfer as usize).next_multiple_of(PAGE);
        let slots = usize::try_from(config.slots).unwrap_or(usize::MAX) / slot;
        let slots = u16::try_from(slots.max(1)).unwrap_or(u16::MAX);
        let len =
            memory_len(0, &config) + queues * memory_len(1, &config) + usize::from(slots) * slot;
        let memory = HostMemory::new(len)?;
        let none = || io::Error::from(io::ErrorKind::OutOfMemory);
        let large = memory
            .reserve(usize::from(slots) * slot, PAGE)
            .ok_or_else(none)?;
        let large = Arc::new(LargeSlots::new(large, slot, slots, config.queues));
        let admin = Queue::new(connection, &connect, exchange, &memory, &large, &config);
        let mut admin = admin.ok_or_else(none)?;
        let mut mappings = ClientMappings::new();
        let mapping = mappings
            .map(memory.fd().try_clone_to_owned()?)
            .map_err(io::Error::other)?;
        let mut map = DmaMap::new(1);
        map.map(
            Iova(BASE),
            memory.len() as u64,
            Access::READ_WRITE,
            Some((mapping, 0)),
        )
        .map_err(io::Error::other)?;
        controller.set_view(map.view(), mappings.lost());
        controller.name_host(&connect.host.nqn);
        controller.connect(connect.host.id, connect.kato_ms);
        if admin.proof() == Proof::Pending {
            controller.await_proof();
        }
        let cntlid = controller.id().0;
        admin.accept(cntlid);
        Ok(Self {
            host: connect.host,
            cntlid,
            memory,
            _map: map,
            _mappings: mappings,
            large,
            lost: Vec::new(),
            admin,
            io: (0..queues).map(|_| None).collect(),
            used: 0,
            waiting: Vec::new(),
            leaving: Vec::new(),
            own: None,
            enabled: false,
            ready: false,
            failed: false,
            reset_at: None,
            kato_ms: connect.kato_ms,
            heard: now,
            check_at: now + CHECK_NS,
            polled: now,
            away: 0,
            recalls: Vec::new(),
            hear_at: now,
            changes: 0,
            openings: 0,
            wanting: 0,
            counters: Counters::default(),
            config,
        })
    }

    /// The identifier of its controller.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Its host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Proof of its host.
    #[must_use]
    pub fn proof(&self) -> Proof {
        self.admin.proof()
    }

    /// Whether its host came through TLS.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        self.admin.connection.is_secured()
    }

    /// I/O queues that are open.
    #[must_use]
    pub fn queues(&self) -> usize {
        let is_open = |io: &&Option<Io>| matches!(io, Some(Io::Open(_) | Io::Away(_)));
        self.io.iter().filter(is_open).count()
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        let of_io = |io: &Option<Io>| match io {
            Some(Io::Making(queue, _) | Io::Open(queue)) => queue.counts.add_to(&mut counters),
            Some(Io::Away(away)) => away.counts.add_to(&mut counters),
            Some(Io::Ending(remains, _)) => remains.counts.add_to(&mut counters),
            None => {}
        };
        self.io.iter().for_each(of_io);
        self.admin.counts.add_to(&mut counters);
        counters
    }

    /// Takes the connection of an I/O queue that names this controller: it is answered when the
    /// controller has made the queue, or refused.
    pub fn join(&mut self, arrival: Arrival, controller: &mut Controller, now: Time) {
        self.follow(controller, now);
        match self.may_join(&arrival) {
            Err(refusal) => self.leave(arrival.refuse(refusal, now)),
            Ok(()) if self.io[place(arrival.qid())].is_some() => {
                self.changes += 1;
                self.waiting.push((arrival, now + REUSE_NS));
            }
            Ok(()) => self.make(arrival, now),
        }
    }

    /// Whether an arrival may be an I/O queue of this host (Base 2.1, 6.3).
    fn may_join(&self, arrival: &Arrival) -> Result<(), Refusal> {
        if arrival.qid() == 0 || usize::from(arrival.qid()) > self.io.len() {
            return Err(Refusal::Command(QID_OFFSET));
        }
        if arrival.host().nqn != self.host.nqn {
            return Err(Refusal::Data(HOSTNQN_OFFSET));
        }
        if arrival.host().id != self.host.id {
            return Err(Refusal::Data(HOSTID_OFFSET));
        }
        // In clear its host would have less than on its admin queue.
        if self.is_secured() && !arrival.is_secured() {
            return Err(Refusal::Plain);
        }
        if !self.ready {
            return Err(Refusal::Other(Status::COMMAND_SEQUENCE_ERROR));
        }
        let qid = arrival.qid();
        if self.waiting.iter().any(|(other, _)| other.qid() == qid) {
            return Err(Refusal::Other(Status::COMMAND_SEQUENCE_ERROR));
        }
        Ok(())
    }

    /// Reads sockets, gives commands to the controller and answers to the host. Due when a
    /// connection is readable, or writable where that is wanted, at [`Self::next_deadline`], and
    /// after a turn while it works.
    pub fn poll(&mut self, controller: &mut Controller, now: Time) -> Polled {
        self.poll_some(controller, now, Read::All)
    }

    /// As [`Self::poll`], in a turn in which no poller has said that a connection is readable: only
    /// connections are read on which something came or was sent within the last 50 µs, or that have
    /// bytes that came with their Connect command.
    pub fn poll_hot(&mut self, controller: &mut Controller, now: Time) -> Polled {
        self.poll_some(controller, now, Read::Hot)
    }

    fn poll_some(&mut self, controller: &mut Controller, now: Time, read: Read) -> Polled {
        let served = self.serve(controller, now, read);
        self.note_wanting();
        match served {
            Ok(worked) => Polled {
                worked,
                ended: None,
            },
            Err(end) => Polled {
                worked: true,
                ended: Some(end),
            },
        }
    }

    fn serve(&mut self, controller: &mut Controller, now: Time, read: Read) -> Result<bool, End> {
        self.polled = now;
        self.follow(controller, now);
        // Completions leave first: the host waits for them.
        let mut worked = self.has_posted(true) && self.take(controller, now)?;
        worked |= self.read(controller, now, read)?;
        worked |= self.execute_fabrics(controller, now);
        worked |= self.retry(now);
        self.grant(now);
        worked |= self.submit(controller);
        worked |= self.take(controller, now)?;
        self.authenticate(controller, now)?;
        self.hear_away(controller, now);
        if self.large.are_lost() {
            return Err(End::MediumHangs);
        }
        if now >= self.check_at {
            self.check_at = now + CHECK_NS;
            worked |= self.check(now)?;
        }
        Ok(worked)
    }

    /// Takes completions and sends answers, and gives the controller what that makes room for. Due
    /// after each turn of the controller that worked. True where there was something: it is to be
    /// polled again.
    pub fn drain(&mut self, controller: &mut Controller, now: Time) -> bool {
        self.follow(controller, now);
        // An end is found again by the next poll.
        let mut worked = self.take(controller, now).unwrap_or(true);
        self.grant(now);
        worked |= self.submit(controller);
        self.note_wanting();
        worked
    }

    /// Whether [`Self::drain`] would find something, seen without the controller. I/O queues are
    /// looked at only with `io`: of a host without I/O commands in flight they have nothing.
    #[must_use]
    pub fn has_posted(&self, io: bool) -> bool {
        let of_io = |io: &Option<Io>| match io {
            Some(Io::Open(queue)) => queue.rings.has_completion(),
            _ => false,
        };
        self.admin.rings.has_completion() || io && self.io[..self.used].iter().any(of_io)
    }

    /// Whether commands of I/O queues are at the controller.
    #[must_use]
    pub fn has_io_in_flight(&self) -> bool {
        let is_busy = |io: &Option<Io>| match io {
            Some(Io::Open(queue)) => !queue.is_idle(),
            Some(Io::Making(..) | Io::Ending(..)) => true,
            Some(Io::Away(_)) | None => false,
        };
        self.io[..self.used].iter().any(is_busy)
    }

    /// The connections with their queue identifiers, and whether each is to be polled for writing.
    pub fn connections(&self) -> impl Iterator<Item = (u16, BorrowedFd<'_>, bool)> {
        let of = |qid, connection| {
            let connection: &Connection = connection;
            (qid, connection.as_fd(), connection.is_blocked())
        };
        let io = (1..).zip(&self.io[..self.used]);
        let io = io.filter_map(move |(qid, io)| match io {
            Some(Io::Open(queue)) => Some(of(qid, &queue.connection)),
            _ => None,
        });
        std::iter::once(of(0, &self.admin.connection)).chain(io)
    }

    /// Grows whenever [`Self::connections`] has changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Grows whenever [`Self::may_depart`] may have one more queue.
    #[must_use]
    pub fn openings(&self) -> u64 {
        self.openings
    }

    /// When it must be polled although nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let waiting = self.waiting.iter().map(|(_, until)| *until);
        let checks = self.failed || self.open().any(Queue::has_deadline);
        let exchanges = self.open().filter_map(Queue::exchange_deadline);
        let timeout = u64::from(self.kato_ms) * 1_000_000;
        let silent = (timeout > 0).then(|| match self.away {
            0 => self.check_at.max(self.heard + timeout),
            _ => self.hear_at.min(self.check_at),
        });
        let waits_for_slot = self.open().any(Queue::waits_for_slot);
        waiting
            .chain(exchanges)
            .chain(waits_for_slot.then_some(self.polled + SLOT_NS))
            .chain(checks.then_some(self.check_at))
            .chain(silent)
            .min()
    }

    /// Connections that are no queue's any more: the caller polls each until it has closed.
    pub fn take_leaving(&mut self) -> Vec<Farewell> {
        std::mem::take(&mut self.leaving)
    }

    /// Ends it, and returns its connections: the caller polls each until it has closed. The caller
    /// resets the controller, and drops it when it is quiet; media that still have data of it keep
    /// the memory by themselves.
    pub fn end(mut self, end: &End, now: Time) -> Vec<Farewell> {
        let mut admin = self.admin.part().0;
        if let End::Fault(fault) = end {
            admin.terminate(*fault);
        } else if !matches!(end, End::Authentication(_)) {
            admin.forget();
        }
        let io = self.io.iter_mut().filter_map(|io| match io.take() {
            Some(Io::Making(queue, _) | Io::Open(queue)) => Some(queue.part().0),
            _ => None,
        });
        let waiting = self.waiting.into_iter().map(|it| it.0.connection);
        let others = io.chain(waiting).map(|mut connection| {
            connection.forget();
            connection
        });
        let all = std::iter::once(admin).chain(others);
        self.leaving.extend(all.map(|it| Farewell::new(it, now)));
        self.leaving
    }

    fn open(&self) -> impl Iterator<Item = &Queue> {
        let io = self.io[..self.used].iter().filter_map(|io| match io {
            Some(Io::Open(queue)) => Some(&**queue),
            _ => None,
        });
        std::iter::once(&self.admin).chain(io)
    }

    /// Sees what the controller has become.
    fn follow(&mut self, controller: &Controller, now: Time) {
        let (cc, csts) = state(controller);
        if self.enabled && !cc.en() {
            // A controller that has failed may have given commands up.
            self.reset_at = (!self.failed).then_some(now);
            self.reset(now);
        }
        self.enabled = cc.en();
        let shut = csts.shst() != ShutdownStatus::NORMAL_OPERATION;
        self.failed = csts.cfs();
        // A feature may have set it.
        self.kato_ms = controller.keep_alive_ms();
        let was_ready = self.ready;
        self.ready = csts.rdy() && cc.en() && !self.failed && !shut;
        self.openings += u64::from(self.ready && !was_ready);
        if !self.ready {
            self.refuse_making(now);
            self.recall_all();
        }
        if !csts.rdy() && !cc.en() {
            // Nothing completes in a reset.
            let all_ended = self.reset_at.is_some_and(|at| now.since(at) < RESET_NS);
            for at in 0..self.io.len() {
                if let Some(Io::Away(away)) = &mut self.io[at] {
                    away.forgotten(all_ended);
                }
                if matches!(self.io[at], Some(Io::Ending(..)))
                    && let Some(Io::Ending(remains, _)) = self.io[at].take()
                {
                    self.end_remains(*remains, all_ended);
                }
            }
            self.note_used();
        }
    }

    /// The controller is reset: it forgets all commands, and I/O queues end.
    fn reset(&mut self, now: Time) {
        self.own = None;
        self.admin.forget();
        for qid in 1..=self.config.queues {
            match &mut self.io[place(qid)] {
                Some(Io::Making(..) | Io::Open(_)) => self.lose(qid, &End::Reset, now),
                Some(Io::Away(away)) => away.is_reset = true,
                Some(Io::Ending(..)) | None => {}
            }
        }
    }

    /// The controller does not know a queue any more.
    fn end_remains(&mut self, remains: Remains, all_ended: bool) {
        let counts = remains.counts.clone();
        self.lost.extend(remains.end(all_ended));
        counts.add_to(&mut self.counters);
    }

    /// An I/O queue ends. The controller still knows it.
    fn lose(&mut self, qid: u16, end: &End, now: Time) {
        let (queue, step) = match self.io[place(qid)].take() {
            Some(Io::Open(queue)) => (queue, Step::DeleteSq),
            Some(Io::Making(queue, _)) => (queue, Step::DeleteCq),
            other => {
                self.io[place(qid)] = other;
                return;
            }
        };
        tracing::debug!(target = self.config.name, qid, %end, "a queue has ended");
        *self.counters.ended.entry(end.name()).or_default() += 1;
        let (mut connection, remains) = queue.part();
        self.io[place(qid)] = Some(Io::Ending(Box::new(remains), step));
        self.changes += 1;
        match end {
            // There is no one at the other end.
            End::Closed | End::Io(_) | End::Tls(_) => return,
            End::Fault(fault) => connection.terminate(*fault),
            // Bytes that the socket did not take lie in memory that is another queue's soon.
            _ => connection.forget(),
        }
        self.leave(Farewell::new(connection, now));
    }

    fn leave(&mut self, farewell: Farewell) {
        self.leaving.push(farewell);
    }

    /// Reads connections.
    fn read(&mut self, controller: &mut Controller, now: Time, read: Read) -> Result<bool, End> {
        let Self {
            admin,
            io,
            used,
            config,
            ready,
            ..
        } = self;
        let io = &mut io[..*used];
        let shared = Shared {
            namespaces: controller.namespaces(),
            config,
            ready: *ready,
            lane: None,
            now,
        };
        // No poller knows of what came with a Connect command, and of parts of a record.
        let is_due = |queue: &Queue| {
            read == Read::All || now.since(queue.active) <= HOT_NS || queue.connection.has_pending()
        };
        let mut heard = is_due(admin) && admin.read(&shared)?;
        let (mut read_some, mut lost) = (false, None);
        for (qid, io) in (1u16..).zip(io) {
            if let Some(Io::Open(queue)) = io
                && is_due(queue)
            {
                match queue.read(&shared) {
                    // Anyone may send bytes before a proof: they are not the host's.
                    Ok(worked) if queue.proof() == Proof::Pending => read_some |= worked,
                    Ok(worked) => heard |= worked,
                    // Others are read by the next poll.
                    Err(end) => {
                        lost = Some((qid, end));
                        break;
                    }
                }
            }
        }
        let worked = heard || read_some || lost.is_some();
        if let Some((qid, end)) = lost {
            self.lose(qid, &end, now);
        }
        if heard {
            self.heard = now;
            controller.heard();
        }
        Ok(worked)
    }

    /// Gives large slots to commands that wait for them.
    fn grant(&mut self, now: Time) {
        self.admin.grant(now);
        for io in self.io[..self.used].iter_mut().flatten() {
            if let Io::Open(queue) = io {
                queue.grant(now);
            }
        }
    }

    /// Stores commands, and rings doorbells.
    fn submit(&mut self, controller: &mut Controller) -> bool {
        let mut worked = self.submit_own();
        if self.ready {
            worked |= self.admin.submit(controller);
            for io in self.io[..self.used].iter_mut().flatten() {
                if let Io::Open(queue) = io {
                    worked |= queue.submit(controller);
                }
            }
        }
        worked
    }

    /// Takes completions, and sends what waits.
    fn take(&mut self, controller: &mut Controller, now: Time) -> Result<bool, End> {
        let mut own = None;
        let mut worked = false;
        if self.enabled {
            worked |= self.admin.drain(&mut own);
            if let Some(cqe) = own {
                self.own_completed(&cqe, now);
            }
            for io in self.io[..self.used].iter_mut().flatten() {
                worked |= match io {
                    Io::Open(queue) => queue.drain(&mut None),
                    Io::Ending(remains, _) => remains.drain(controller),
                    Io::Making(..) | Io::Away(_) => false,
                };
            }
        }
        worked |= self.admin.send(now)?;
        for qid in (1..).take(self.used) {
            if let Some(Io::Open(queue)) = &mut self.io[place(qid)] {
                match queue.send(now) {
                    Ok(sent) => worked |= sent,
                    Err(end) => {
                        // Its slots are others', and it is to be deleted.
                        worked = true;
                        self.lose(qid, &end, now);
                    }
                }
            }
        }
        let enabled = self.enabled;
        Ok(worked || self.open().any(|queue| queue.has_work(enabled)))
    }

    /// Looks for what has taken too long. True where a queue has ended.
    fn check(&mut self, now: Time) -> Result<bool, End> {
        // A host that is there resets a controller that has failed.
        let silent = now.since(self.heard);
        if self.failed && silent >= SILENT_NS.max(u64::from(self.kato_ms) * 1_000_000) {
            return Err(End::KeepAlive);
        }
        self.admin.check(now)?;
        let mut worked = false;
        for qid in 1..=self.config.queues {
            if let Some(Io::Open(queue)) = &self.io[place(qid)]
                && let Err(end) = queue.check(now)
            {
                worked = true;
                self.lose(qid, &end, now);
            }
        }
        Ok(worked)
    }

    /// Notes which connections are to be polled for writing.
    fn note_wanting(&mut self) {
        let mut wanting = 0;
        for (bit, (_, _, wants)) in self.connections().enumerate().take(128) {
            wanting |= u128::from(wants) << bit;
        }
        if wanting != self.wanting {
            self.wanting = wanting;
            self.changes += 1;
        }
    }
}

/// The place of a queue among the I/O queues.
fn place(qid: u16) -> usize {
    usize::from(qid) - 1
}
