//! A front end: its connection, its memory, its rings and its controller.
//!
//! It ends with its connection, or with its controller, which no one resets but the operator. A
//! namespace that is formatted otherwise or taken away ends it; of one that grows or shrinks the
//! driver is notified.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use controller::Controller;
use memory::{DmaView, Hint, HostMemory};
use nvme_spec::registers::CommandSetSelected;
use port::namespace::Namespace;
use port::time::Time;
use vhost_user::block::Config;
use vhost_user::{Features, ProtocolFeatures};

use super::config::{config, features};
use super::connection::Connection;
use super::counters::Counters;
use super::disk::Disk;
use super::end::End;
use super::kicks::Kicks;
use super::news::News;
use super::queue::{Inflight, Pieces};
use super::regions::Regions;
use super::ring::Ring;
use super::ring_set::RingSet;
use super::waiting::Waiting;
use super::work::{Completed, Done, SLOTS_LEN, Whose, Work};
use super::zones::characteristics;
use super::{QUEUE_DEPTH, RINGS};
use crate::host::{ADMIN_LEN, Failed, Opening, QID, Rings, rings_len};

/// Requests that one ring may take before the next one has its turn.
const BURST: usize = 32;
/// Requests that are given back before drivers see them: one that polls goes on with them while
/// others are given back.
const GROUP: u32 = 8;
/// Messages in one poll.
const MESSAGES: usize = 64;
/// Rings that broke a rule of which the log tells.
const WARNINGS: u64 = 3;
/// Device status: the driver drives the device (VIRTIO 1.3, 2.1).
const DRIVER_OK: u8 = 4;
/// Device status: driver and device have agreed on features.
const FEATURES_OK: u8 = 8;

/// The outcome of a poll.
#[derive(Debug)]
pub struct Polled {
    /// It did something: there may be more.
    pub worked: bool,
    /// The front end has ended: it is to be dropped, and its controller reset.
    pub ended: Option<End>,
}

/// Whether drivers notify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notified {
    Yes,
    No,
    /// Not of all rings: one has just begun.
    Unknown,
}

/// See the module.
#[derive(Debug)]
pub struct Session {
    /// Name in the log.
    pub(super) name: String,
    pub(super) connection: Connection,
    pub(super) news: News,
    disk: Disk,
    pub(super) regions: Regions,
    pub(super) view: Arc<DmaView>,
    opening: Opening,
    work: Work,
    pub(super) rings: Vec<Ring>,
    pub(super) kicks: Kicks,
    /// Features of the device, its configuration space, and the size of its namespace.
    pub(super) offered: Features,
    pub(super) config: [u8; vhost_user::block::CONFIG_LEN],
    blocks: u64,
    pub(super) features: Features,
    pub(super) protocol: ProtocolFeatures,
    pub(super) status: u8,
    pub(super) inflight: Option<Inflight>,
    /// The event that the reply to the last message waits for: no other message is read before.
    pub(super) waiting: Option<Waiting>,
    pub(super) hint: Hint,
    notified: Notified,
    /// Rings that have queues, as of the last messages.
    running: RingSet,
    /// Rings to which some were given back of which their drivers do not know.
    dirty: RingSet,
    /// The ring that is looked at first.
    first: usize,
    counters: Counters,
    /// Drivers that did not know of zones.
    unaware: u64,
    changes: u64,
    /// The end that the next poll reports.
    end: Option<End>,
}

impl Session {
    /// A front end whose connection was accepted, and its controller, which was just made and has
    /// no other host. The device has `rings` rings, at most [`RINGS`].
    ///
    /// # Errors
    /// There is no memory, or there are no more descriptors. The connection is closed.
    pub fn new(
        fd: OwnedFd,
        mut disk: Disk,
        rings: u16,
        controller: &mut Controller,
        now: Time,
    ) -> io::Result<Self> {
        let none = || io::Error::from(io::ErrorKind::OutOfMemory);
        let entries = u32::from(QUEUE_DEPTH);
        let memory = HostMemory::new(ADMIN_LEN + rings_len(entries) + SLOTS_LEN)?;
        let mut regions = Regions::new(&memory)?;
        regions.publish(controller);
        let max_transfer = controller.config().max_transfer.into();
        let sets = match &mut disk.zones {
            None => CommandSetSelected::NVM,
            Some(zones) => {
                zones.append_len = zones.append_len.min(max_transfer);
                CommandSetSelected::ALL_SUPPORTED
            }
        };
        let opening = Opening::begin(controller, &memory, sets, now).ok_or_else(none)?;
        let queue = Rings::new(QID, entries, entries, &memory).ok_or_else(none)?;
        let rings = rings.clamp(1, RINGS as u16);
        // The controller shows a namespace with zones once it is enabled.
        let zones = disk.zones.as_ref();
        let space = Config {
            num_queues: rings,
            zoned: zones.and_then(|zones| characteristics(zones, disk.lba_shift)),
            ..disk.config
        };
        let (offered, blocks) = (disk.offered.with_mq(rings > 1), disk.blocks);
        let work = Work::new(memory, queue, &disk, max_transfer);
        Ok(Self {
            name: controller.config().name.clone(),
            connection: Connection::new(fd),
            news: News::default(),
            disk,
            view: regions.view(),
            regions,
            opening,
            work: work.ok_or_else(none)?,
            rings: (0..rings).map(|_| Ring::default()).collect(),
            kicks: Kicks::new()?,
            offered,
            config: space.encode(),
            blocks,
            features: Features::new(),
            protocol: ProtocolFeatures::new(),
            status: 0,
            inflight: None,
            waiting: None,
            hint: Hint::default(),
            notified: Notified::Unknown,
            running: RingSet::default(),
            dirty: RingSet::default(),
            first: 0,
            counters: Counters::default(),
            unaware: 0,
            changes: 0,
            end: None,
        })
    }

    /// Reads the socket, looks at the rings, gives commands to the controller and takes
    /// completions. Due when a descriptor of [`Self::descriptors`] is ready, at
    /// [`Self::next_deadline`], and after a turn while it works. A hot poll, which no event has led
    /// to, looks at the rings alone.
    #[inline]
    pub fn poll(&mut self, controller: &mut Controller, now: Time, is_hot: bool) -> Polled {
        let polled = if is_hot && self.is_running() {
            self.run(controller)
        } else {
            self.serve(controller, now)
        };
        match polled {
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

    /// Whether its rings are all that a hot poll looks at.
    #[inline]
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.opening.is_open() && self.waiting.is_none() && self.end.is_none()
    }

    fn serve(&mut self, controller: &mut Controller, now: Time) -> Result<bool, End> {
        if let Some(end) = self.end.take() {
            return Err(end);
        }
        let followed = self.opening.follow(controller, &self.work.rings, now);
        let mut worked = followed.map_err(|Failed| End::Controller)?;
        self.follow_namespace(controller)?;
        self.counters.kicks += self.kicks.take();
        worked |= self.run(controller)?;
        worked |= self.converse(controller, now)?;
        self.news.send(now);
        // No event says that the controller is ready, or that memory is not used any more.
        Ok(worked || !self.opening.is_open() || self.waiting.is_some())
    }

    /// Takes completions and requests.
    #[inline]
    fn run(&mut self, controller: &mut Controller) -> Result<bool, End> {
        if !self.opening.is_open() {
            return Ok(false);
        }
        if self.notified != Notified::No {
            self.notified = Notified::No;
            for index in self.running.iter_from(0) {
                if let Some(queue) = self.rings[index].active() {
                    queue.disarm();
                }
            }
        }
        let mut worked = self.complete()?;
        worked |= self.take();
        self.publish();
        worked |= self.work.rings.ring(controller);
        Ok(worked)
    }

    /// Takes completions.
    fn complete(&mut self) -> Result<bool, End> {
        let mut worked = false;
        let mut unshown = 0;
        while let Some(cqe) = self.work.rings.take() {
            worked = true;
            unshown += 1;
            if unshown > GROUP {
                unshown = 1;
                self.show();
            }
            match self.work.complete(&cqe, &self.view) {
                Some(Completed::Done(done)) => self.give_back(&done),
                Some(Completed::GoesOn) | None => {}
                Some(Completed::Hangs) => return Err(End::MediumHangs),
            }
        }
        Ok(worked)
    }

    /// Takes requests of the rings, as many as there is room for.
    fn take(&mut self) -> bool {
        let mut worked = false;
        let mut pieces = Pieces::new();
        for index in self.running.iter_from(self.first) {
            for taken in 0..BURST {
                let ring = &mut self.rings[index];
                let Some(queue) = ring.active().filter(|queue| queue.has_more()) else {
                    break;
                };
                if !self.work.has_room() {
                    // The next look begins behind the ring that had the last of the room: it would
                    // have all that becomes free, if it always had more.
                    let had_some = usize::from(taken > 0);
                    self.first = (index + had_some) % self.rings.len();
                    return worked;
                }
                match queue.take(&self.view, &mut self.hint, &mut pieces) {
                    Ok(None) => break,
                    Ok(Some(head)) => {
                        worked = true;
                        ring.in_flight += 1;
                        self.counters.requests += 1;
                        let ring = index as u16;
                        let whose = Whose { ring, head };
                        if let Some(done) = self.work.begin(whose, &pieces, &self.view) {
                            self.give_back(&done);
                        }
                    }
                    Err(fault) => {
                        ring.fail();
                        self.broke(index, &fault);
                        break;
                    }
                }
            }
        }
        worked
    }

    /// Gives a request back to its ring.
    #[inline]
    fn give_back(&mut self, done: &Done) {
        self.counters.failed += u64::from(done.has_failed);
        let Some(ring) = self.rings.get_mut(usize::from(done.whose.ring)) else {
            return;
        };
        ring.in_flight -= 1;
        self.dirty.insert(done.whose.ring.into());
        if let Some(queue) = &mut ring.queue {
            queue.give_back(done.whose.head, done.written);
        }
    }

    /// Shows drivers what was given back, without a call.
    fn show(&mut self) {
        for index in self.dirty.iter_from(0) {
            if let Some(queue) = &mut self.rings[index].queue {
                queue.show();
            }
        }
    }

    /// Shows drivers what was given back, and calls those that want it.
    fn publish(&mut self) {
        for index in std::mem::take(&mut self.dirty).iter_from(0) {
            let ring = &mut self.rings[index];
            let wants_call = ring.queue.as_mut().is_some_and(|queue| queue.publish());
            if wants_call && ring.call() {
                self.counters.calls += 1;
            }
        }
    }

    /// A ring cannot be used any more: the device needs a reset, of which the driver is notified
    /// (VIRTIO 1.3, 2.1.2). The log has the first ones.
    pub(super) fn broke(&mut self, index: usize, fault: &dyn std::error::Error) {
        self.counters.broken += 1;
        if self.status & DRIVER_OK != 0 {
            self.news.config_changed();
        }
        if self.counters.broken <= WARNINGS {
            tracing::warn!(
                controller = self.name,
                ring = index,
                "a ring of a front end stops until its driver resets the device: {fault}"
            );
        }
    }

    /// Reads messages and replies to them.
    fn converse(&mut self, controller: &mut Controller, now: Time) -> Result<bool, End> {
        let mut worked = false;
        let wanted = self.wants();
        for _ in 0..MESSAGES {
            self.connection.flush(now)?;
            if self.connection.wants_write() {
                break;
            }
            if let Some(mut waiting) = self.waiting.take() {
                if !self.is_over(&mut waiting, controller, now)? {
                    self.waiting = Some(waiting);
                    break;
                }
                worked = true;
                continue;
            }
            let Some(header) = self.connection.receive(now)? else {
                break;
            };
            worked = true;
            self.handle(&header, controller, now)?;
        }
        self.changes += u64::from(self.wants() != wanted);
        let has_queue = |index: &usize| self.rings[*index].queue.is_some();
        self.running = (0..self.rings.len()).filter(has_queue).collect();
        Ok(worked)
    }

    /// Whether the connection is to be watched for reading and for writing.
    fn wants(&self) -> [bool; 2] {
        let writes = self.connection.wants_write();
        [!writes && self.waiting.is_none(), writes]
    }

    /// Sees what has become of the namespace.
    fn follow_namespace(&mut self, controller: &Controller) -> Result<(), End> {
        if !self.opening.is_open() {
            return Ok(());
        }
        let namespace = self.disk.is.find(controller.namespaces());
        let namespace = namespace.ok_or(End::Changed)?;
        if namespace.blocks != self.blocks {
            self.blocks = namespace.blocks;
            let rings = self.rings.len() as u16;
            self.config = config(namespace, self.disk.zones.as_ref(), rings).encode();
            self.news.config_changed();
        }
        Ok(())
    }

    /// Takes completions. Due after each turn of the controller that worked. True where there was
    /// something: it is to be polled again.
    pub fn drain(&mut self, controller: &mut Controller, _now: Time) -> bool {
        if !self.opening.is_open() {
            return true;
        }
        let worked = self.complete().unwrap_or_else(|end| {
            self.end = Some(end);
            true
        });
        self.publish();
        worked | self.work.rings.ring(controller)
    }

    /// Whether [`Self::drain`] would find something, seen without the controller. The I/O queue is
    /// looked at only with `io`.
    #[must_use]
    pub fn has_posted(&self, io: bool) -> bool {
        self.opening.has_completion() || io && self.work.rings.has_completion()
    }

    /// Whether commands are at the controller.
    #[must_use]
    pub fn has_io_in_flight(&self) -> bool {
        !self.opening.is_open() || !self.work.is_idle()
    }

    /// Before the reactor sleeps: the driver is to notify from now on. False where a ring has
    /// something meanwhile, so that it is to be polled first, or where one cannot be notified of.
    pub fn arm(&mut self) -> bool {
        // A ring without a descriptor for notifications is polled for as long as it runs.
        let mut has_none = !self.rings.iter().any(Ring::is_polled);
        if self.notified == Notified::Yes {
            return has_none;
        }
        self.notified = Notified::Yes;
        let has_room = self.work.has_room();
        for queue in self.rings.iter_mut().filter_map(Ring::active) {
            // Requests for which there is no room begin after the next completion.
            has_none &= queue.arm() || !has_room;
        }
        has_none
    }

    /// The connection, and whether it is to be watched for reading and for writing; and what tells
    /// of notifications of the driver, which is to be watched for reading for as long as the
    /// session lives.
    #[must_use]
    pub fn descriptors(&self) -> ([(BorrowedFd<'_>, [bool; 2]); 1], BorrowedFd<'_>) {
        (
            [(self.connection.as_fd(), self.wants())],
            self.kicks.as_fd(),
        )
    }

    /// Grows where [`Self::descriptors`] have changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// When it must be polled although nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let waiting = self.waiting.as_ref().map(Waiting::deadline);
        let others = [
            self.opening.deadline(),
            self.connection.deadline(),
            self.news.deadline(),
        ];
        others.into_iter().flatten().chain(waiting).min()
    }

    /// Whether its namespace is what it was, and as large. Where not, it is to be polled at once.
    #[inline]
    #[must_use]
    pub fn is_valid(&self, controller: &Controller) -> bool {
        let namespace = self.disk.is.find(controller.namespaces());
        let is_same = |namespace: &Namespace| namespace.blocks == self.blocks;
        // One that begins is polled in any case, and looks once its controller is ready.
        let is_left_alone = self.end.is_some() || !self.opening.is_open();
        is_left_alone || namespace.is_some_and(is_same)
    }

    /// Its counts.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let resubmitted = self.rings.iter().map(Ring::resubmitted).sum();
        Counters {
            resubmitted,
            ..self.counters.clone()
        }
    }

    /// Whether no request of any ring is in flight.
    pub(super) fn has_drained(&self) -> bool {
        self.rings.iter().all(|ring| ring.in_flight == 0)
    }

    /// Stops a ring, of which nothing is in flight. The next entry to take.
    pub(super) fn stop_ring(&mut self, index: usize) -> u32 {
        self.rings[index].stop(&self.kicks)
    }

    /// A ring has begun. The process before may have died before it called the driver.
    pub(super) fn begun(&mut self, index: usize) {
        self.dirty.insert(index);
        self.rearm();
    }

    /// A ring has begun or is enabled, and may be armed or not.
    pub(super) fn rearm(&mut self) {
        self.notified = Notified::Unknown;
    }

    /// Uses features that the driver has agreed on.
    pub(super) fn set_features(&mut self, features: Features) {
        self.features = features;
        self.work.set_writethrough(!features.flush());
        self.work.set_zoned(features.zoned());
    }

    /// The device has zones, and the driver agreed on features without them. The log has the first
    /// such drivers: a firmware may come before the system.
    pub(super) fn note_unaware(&mut self) {
        self.unaware += 1;
        if self.unaware <= WARNINGS {
            tracing::warn!(
                controller = self.name,
                "a driver has not acknowledged VIRTIO_BLK_F_ZONED, so its requests fail: use a front end that passes this feature on, and a driver that has it"
            );
        }
    }

    /// The device status bits of these that cannot be set (VIRTIO 1.3, 5.2.5.2).
    pub(super) fn refused_status(&self) -> u8 {
        if self.work.is_unaware() {
            FEATURES_OK
        } else {
            0
        }
    }

    /// The features that the device has now, if its namespace is there.
    pub(super) fn features_now(&self, controller: &Controller) -> Option<Features> {
        let namespace = self.disk.is.find(controller.namespaces())?;
        let zones = self.disk.zones.as_ref();
        Some(features(namespace, zones, self.rings.len() as u16))
    }
}
