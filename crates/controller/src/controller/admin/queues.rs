//! I/O queues (Base 2.1, 5.2.1 to 5.2.4): which exist, and their creation and deletion.
//!
//! A completion queue is a lane, which does the work; this module keeps only their names. A queue
//! that is being deleted exists until its lane has released it: before that its identifier is not
//! free, and no new queue can refer to it.

use std::sync::Arc;

use memory::{Area, Iova, RingError};
use nvme_spec::command::{
    CreateIoCqCdw11, CreateIoQueueCdw10, CreateIoSqCdw11, DeleteIoQueueCdw10, QueuePriority,
};
use nvme_spec::cqe::CQE_SIZE_LOG2;
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use nvme_spec::sqe::SQE_SIZE_LOG2;
use nvme_spec::{Sqe, Status};
use port::ticket::OwnerKey;

use super::Reply;
use super::pending::Waiting;
use crate::config::MAX_IO_QUEUES;
use crate::controller::{Controller, RestoreError};
use crate::counters::LaneCounters;
use crate::flight::Watched;
use crate::lane::{
    KnownSq, Lane, LaneCommand, LaneConfig, LaneTable, QueueName, SqSpec, Suspects, is_trying,
};
use crate::queue::{QueueError, check_entries};
use crate::state::{self, QueueHead, QueueState, SlotState, slots_for};

/// Queue identifiers, the admin queue's (0) among them.
const IDS: usize = MAX_IO_QUEUES as usize + 1;

/// Names of a lane's commands. The admin queue has as many.
const NAMES_OF_LANE: u64 = 1 << 32;

/// An I/O completion queue.
#[derive(Debug)]
pub(crate) struct IoCq {
    /// Its lane; `None` once that has stopped, at a shutdown.
    pub(crate) lane: Option<OwnerKey>,
    /// Its interrupt vector, where interrupts are enabled.
    vector: Option<u16>,
    pub(crate) counters: Arc<LaneCounters>,
    /// Samples of its commands.
    pub(crate) watched: Option<Watched>,
    /// Nothing issued before the view with this epoch is in flight.
    pub(crate) drained: u64,
    /// Nothing issued with a table of namespaces older than this generation's is in flight.
    pub(crate) namespaces_drained: u64,
    /// The last round of [`crate::controller`]'s bus in which its lane came to have nothing in
    /// flight.
    pub(crate) left_bus: u32,
    /// Its lane was not restored, or has executed again what may go on.
    pub(crate) replayed: bool,
    /// Its lane has copies that do not go on yet.
    pub(crate) copies: bool,
    /// Completions that were there at the last look.
    completions_seen: u64,
    deleting: bool,
}

impl IoCq {
    /// Whether its lane has completed commands since the last call.
    pub(crate) fn has_completed_more(&mut self) -> bool {
        let completions = self.counters.completions.get();
        std::mem::replace(&mut self.completions_seen, completions) != completions
    }
}

/// An I/O submission queue.
#[derive(Clone, Copy, Debug)]
struct IoSq {
    cqid: u16,
    base: u64,
    entries: u32,
    /// Its class under weighted round robin.
    priority: QueuePriority,
    deleting: bool,
}

/// Every I/O queue, by identifier.
#[derive(Debug)]
pub(crate) struct IoQueues {
    cqs: [Option<IoCq>; IDS],
    sqs: [Option<IoSq>; IDS],
    /// The highest identifier of any queue so far.
    highest: u16,
}

impl IoQueues {
    pub(crate) fn new() -> Self {
        IoQueues {
            cqs: [const { None }; IDS],
            sqs: [None; IDS],
            highest: 0,
        }
    }

    /// The highest identifier of any queue since the last reset.
    pub(crate) fn highest(&self) -> u16 {
        self.highest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cqs.iter().all(Option::is_none)
    }

    fn cq(&self, cqid: u16) -> Option<&IoCq> {
        self.cqs.get(usize::from(cqid))?.as_ref()
    }

    fn sq(&self, sqid: u16) -> Option<&IoSq> {
        self.sqs.get(usize::from(sqid))?.as_ref()
    }

    /// The completion queues with their identifiers.
    #[inline]
    pub(crate) fn cqs(&self) -> impl Iterator<Item = (u16, &IoCq)> {
        (0..=self.highest)
            .zip(&self.cqs)
            .filter_map(|(id, cq)| Some((id, cq.as_ref()?)))
    }

    #[inline]
    pub(crate) fn cqs_mut(&mut self) -> impl Iterator<Item = &mut IoCq> {
        let highest = usize::from(self.highest);
        self.cqs[..=highest].iter_mut().flatten()
    }

    pub(crate) fn cq_mut(&mut self, cqid: u16) -> Option<&mut IoCq> {
        self.cqs.get_mut(usize::from(cqid))?.as_mut()
    }

    /// Keys of the lanes that live.
    #[inline]
    pub(crate) fn lanes(&self) -> impl Iterator<Item = OwnerKey> {
        self.cqs().filter_map(|(_, cq)| cq.lane)
    }

    /// The completion queue of a submission queue that exists.
    pub(crate) fn cqid_of_sq(&self, sqid: u16) -> Option<u16> {
        Some(self.sq(sqid)?.cqid)
    }

    /// The interrupt vector of a lane, where interrupts are enabled.
    pub(crate) fn vector_of(&self, key: OwnerKey) -> Option<u16> {
        let mut cqs = self.cqs();
        let (_, cq) = cqs.find(|(_, cq)| cq.lane == Some(key))?;
        cq.vector
    }

    pub(crate) fn has_lanes(&self) -> bool {
        self.lanes().next().is_some()
    }

    pub(crate) fn has_cq(&self, cqid: u16) -> bool {
        self.cq(cqid).is_some()
    }

    /// The lane of a completion queue.
    pub(crate) fn lane_of_cq(&self, cqid: u16) -> Option<OwnerKey> {
        self.cq(cqid)?.lane
    }

    /// The submission queues with their priorities and their lanes.
    pub(crate) fn priorities(&self) -> impl Iterator<Item = (u16, QueuePriority, OwnerKey)> {
        let sqs = (0..=self.highest)
            .zip(&self.sqs)
            .filter_map(|(id, sq)| Some((id, sq.as_ref()?)));
        sqs.filter_map(|(id, sq)| Some((id, sq.priority, self.lane_of_cq(sq.cqid)?)))
    }

    /// The lane that serves a submission queue.
    pub(crate) fn lane_of_sq(&self, sqid: u16) -> Option<OwnerKey> {
        self.lane_of_cq(self.cqid_of_sq(sqid)?)
    }

    /// Whether a submission queue still completes into this completion queue.
    fn is_used(&self, cqid: u16) -> bool {
        self.sqs.iter().flatten().any(|sq| sq.cqid == cqid)
    }

    /// Its deletion has begun; its lane.
    pub(crate) fn begin_deletion_of_sq(&mut self, sqid: u16) -> Option<OwnerKey> {
        let sq = self.sqs.get_mut(usize::from(sqid))?.as_mut()?;
        sq.deleting = true;
        self.lane_of_sq(sqid)
    }

    /// Its deletion has begun; its lane.
    pub(crate) fn begin_deletion_of_cq(&mut self, cqid: u16) -> Option<OwnerKey> {
        let cq = self.cq_mut(cqid)?;
        cq.deleting = true;
        cq.lane
    }

    /// Forgets a submission queue.
    pub(crate) fn remove_sq(&mut self, sqid: u16) {
        if let Some(sq) = self.sqs.get_mut(usize::from(sqid)) {
            *sq = None;
        }
    }

    /// Removes a completion queue; the caller keeps its counters for the sums.
    pub(crate) fn remove_cq(&mut self, cqid: u16) -> Option<IoCq> {
        self.cqs.get_mut(usize::from(cqid))?.take()
    }

    /// Queue Priority of each submission queue from 1 on.
    pub(crate) fn saved_priorities(&self) -> [u8; MAX_IO_QUEUES as usize] {
        std::array::from_fn(|n| self.sqs[n + 1].map_or(0, |sq| sq.priority.0))
    }

    /// Address of each submission queue from 1 on.
    pub(crate) fn saved_bases(&self) -> [u64; MAX_IO_QUEUES as usize] {
        std::array::from_fn(|n| self.sqs[n + 1].map_or(0, |sq| sq.base))
    }

    /// Size of each submission queue from 1 on, 0's based.
    pub(crate) fn saved_sizes(&self) -> [u16; MAX_IO_QUEUES as usize] {
        std::array::from_fn(|n| self.sqs[n + 1].map_or(0, |sq| (sq.entries - 1) as u16))
    }

    /// The completion queues that exist: bit `n` for `n + 1`.
    pub(crate) fn saved_cqs(&self) -> u64 {
        let bits = self.cqs().map(|(cqid, _)| 1 << (cqid - 1));
        bits.fold(0, |all: u64, one: u64| all | one)
    }

    /// Completion queue of each submission queue from 1 on; 0 where there is none.
    pub(crate) fn saved(&self) -> [u16; MAX_IO_QUEUES as usize] {
        std::array::from_fn(|n| self.sqs[n + 1].map_or(0, |sq| sq.cqid))
    }
}

impl Controller {
    /// Checks common to both Create commands: identifier, size, Physically Contiguous, alignment,
    /// and that the host has set the entry sizes.
    fn check_create(
        &self,
        sqe: &Sqe,
        most: u16,
        exists: bool,
        contiguous: bool,
        entry_size: (u8, u8),
    ) -> Result<u32, Status> {
        let cdw10 = CreateIoQueueCdw10::from(sqe.cdw10);
        if cdw10.qid() == 0 || cdw10.qid() > most || exists {
            return Err(Status::INVALID_QUEUE_IDENTIFIER);
        }
        // A host may set CC.IOSQES and CC.IOCQES after enabling, but before it creates the queue.
        if entry_size.0 != entry_size.1 {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        if cdw10.qsize_z() == 0 || cdw10.qsize_z() > self.registers.cap().mqes_z() {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        // CAP.CQR is 1.
        if !contiguous {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        if Iova(sqe.prp1).page_offset() != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        Ok(u32::from(cdw10.qsize_z()) + 1)
    }

    /// Create I/O Completion Queue (Base 2.1, 5.2.1).
    pub(super) fn create_cq(
        &mut self,
        sqe: &Sqe,
        lanes: &mut impl LaneTable,
    ) -> Result<Reply, Status> {
        let cqid = CreateIoQueueCdw10::from(sqe.cdw10).qid();
        let cdw11 = CreateIoCqCdw11::from(sqe.cdw11);
        let (_, most) = self.features.allocated_queues();
        let size = (self.registers.cc().iocqes(), CQE_SIZE_LOG2);
        let exists = self.queues.cq(cqid).is_some();
        let entries = self.check_create(sqe, most, exists, cdw11.pc(), size)?;
        if cdw11.iv() >= self.vectors() {
            return Err(Status::INVALID_INTERRUPT_VECTOR);
        }
        if self.is_shutting_down() {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        self.doorbells.pages.store(cq_head_slot(cqid), 0);
        let area = self
            .saved
            .file()
            .take(1 + usize::from(cqid), slots_for(entries));
        let state = area.map_err(|error| {
            tracing::error!(controller = self.config.name, %error, "cannot create a queue");
            Status::INTERNAL_ERROR
        })?;
        let head = QueueHead {
            base: sqe.prp1,
            entries,
            cqid,
            vector: cdw11.ien().then_some(cdw11.iv()),
        };
        let config = self.lane_config(head, state);
        let lane = Lane::new(config).map_err(|error| self.lane_status(error))?;
        self.insert_lane(lane, lanes);
        Ok(Reply::Done(0))
    }

    /// The configuration of a lane with this area.
    fn lane_config(&self, head: QueueHead, state: Area<QueueState, SlotState>) -> LaneConfig {
        LaneConfig {
            cqid: head.cqid,
            entries: head.entries,
            base: Iova(head.base),
            vector: head.vector,
            doorbells: self.doorbells.pages.clone(),
            shadow: self.doorbells.shadow.clone(),
            view: self.view.clone(),
            namespaces: self.attached.table.clone(),
            generation: self.attached.generation,
            state,
            mdts_bytes: self.config.max_transfer,
            write_through: !self.features.write_cache_enabled(),
            quota: self.quota(),
            copying: self.copying(),
            is_inside: self.host.is_inside(),
            counters: Arc::new(LaneCounters::default()),
            mail_count: self.news.mail_count().clone(),
            first_name: self.names_of_lanes.wrapping_add(NAMES_OF_LANE),
        }
    }

    /// A completion queue exists from now on.
    fn insert_lane(&mut self, lane: Lane, lanes: &mut impl LaneTable) {
        self.names_of_lanes = self.names_of_lanes.wrapping_add(NAMES_OF_LANE);
        let (cqid, vector) = (lane.cqid(), lane.vector());
        let counters = lane.counters().clone();
        self.queues.highest = self.queues.highest.max(cqid);
        let key = lanes.insert(lane);
        self.queues.cqs[usize::from(cqid)] = Some(IoCq {
            lane: Some(key),
            vector,
            counters,
            drained: self.view.epoch(),
            namespaces_drained: self.attached.generation,
            left_bus: 0,
            replayed: !self.holds.until_release(),
            copies: false,
            completions_seen: 0,
            deleting: false,
            watched: None,
        });
        self.watch_lane(cqid, key, lanes);
        self.doorbells.watch.heed(QueueName::Completion(cqid));
    }

    /// The queues of a process that died: bit `n` of `cqs` for completion queue `n + 1`; the
    /// submission queues with their completion queues and priorities.
    pub(crate) fn restore_queues(
        &mut self,
        cqs: u64,
        sqs: &[(KnownSq, u16, QueuePriority)],
        crashed: bool,
        lanes: &mut impl LaneTable,
    ) -> Result<(), RestoreError> {
        let pairs = self.config.queues;
        if pairs < 64 && cqs >> pairs != 0 {
            return Err(RestoreError::Damaged(
                "it has more queues than there can be",
            ));
        }
        let mut heads = Vec::new();
        let mut trying = false;
        for cqid in (1..=pairs).filter(|cqid| cqs >> (cqid - 1) & 1 == 1) {
            let area = self
                .saved
                .file()
                .adopt::<QueueState, SlotState>(1 + usize::from(cqid), 0)?;
            heads.push((cqid, QueueHead::of(area.head())));
            trying |= is_trying(area.head());
        }
        let suspects = if crashed {
            Suspects::after_crash(trying)
        } else {
            Suspects::None
        };
        for (cqid, head) in heads {
            let file = self.saved.file().clone();
            let at = 1 + usize::from(cqid);
            check_entries(head.entries)?;
            if head.cqid != cqid {
                return Err(RestoreError::Damaged("a completion queue is another one"));
            }
            let mut area = file.adopt(at, slots_for(head.entries))?;
            state::update(file.format_version(), area.parts().1);
            let its = sqs.iter().filter(|(_, of, _)| *of == cqid);
            let its: Vec<_> = its.map(|(sq, ..)| *sq).collect();
            let lane = Lane::restore(self.lane_config(head, area), &its, suspects)?;
            for (sqe, status) in lane.accused() {
                tracing::error!(
                    controller = self.config.name,
                    ?sqe,
                    ?status,
                    "the process has died twice with this command in flight: it ends with an error; report it, with the messages before"
                );
            }
            self.insert_lane(lane, lanes);
        }
        for (sq, cqid, priority) in sqs {
            let sqid = sq.sqid;
            if sqid > pairs || self.queues.cq(*cqid).is_none() {
                return Err(RestoreError::Damaged("a submission queue has no other end"));
            }
            self.queues.highest = self.queues.highest.max(sqid);
            self.queues.sqs[usize::from(sqid)] = Some(IoSq {
                cqid: *cqid,
                base: sq.base.0,
                entries: sq.entries,
                priority: *priority,
                deleting: false,
            });
            self.doorbells.watch.heed(QueueName::Submission(sqid));
        }
        Ok(())
    }

    /// Create I/O Submission Queue (Base 2.1, 5.2.2). Queue Priority has no meaning with round
    /// robin.
    pub(super) fn create_sq(
        &mut self,
        sqe: &Sqe,
        lanes: &mut impl LaneTable,
    ) -> Result<Reply, Status> {
        let sqid = CreateIoQueueCdw10::from(sqe.cdw10).qid();
        let cdw11 = CreateIoSqCdw11::from(sqe.cdw11);
        let cqid = cdw11.cqid();
        let (most, most_cqs) = self.features.allocated_queues();
        let size = (self.registers.cc().iosqes(), SQE_SIZE_LOG2);
        let exists = self.queues.sq(sqid).is_some();
        let entries = self.check_create(sqe, most, exists, cdw11.pc(), size)?;
        if cqid == 0 || cqid > most_cqs {
            return Err(Status::INVALID_QUEUE_IDENTIFIER);
        }
        let cq = self.queues.cq(cqid).filter(|cq| !cq.deleting);
        let key = cq
            .and_then(|cq| cq.lane)
            .ok_or(Status::COMPLETION_QUEUE_INVALID)?;
        let spec = SqSpec::new(&self.view, sqid, Iova(sqe.prp1), entries);
        let spec = match &self.doorbells.shadow {
            Some(shadow) => spec.and_then(|spec| spec.with_shadow(&self.view, shadow.spec())),
            None => spec,
        };
        let spec = spec.map_err(|error| self.lane_status(error))?;
        if let Some(registration) = &mut self.doorbells.shadow {
            registration.created(sq_tail_slot(sqid), spec.initial());
        }
        self.doorbells.pages.store(sq_tail_slot(sqid), 0);
        if !lanes.command(key, LaneCommand::AddQueue(spec)) {
            return Err(Status::INTERNAL_ERROR);
        }
        self.queues.highest = self.queues.highest.max(sqid);
        self.queues.sqs[usize::from(sqid)] = Some(IoSq {
            cqid,
            base: sqe.prp1,
            entries,
            priority: cdw11.qprio(),
            deleting: false,
        });
        self.doorbells.watch.heed(QueueName::Submission(sqid));
        Ok(Reply::Done(0))
    }

    /// Delete I/O Submission Queue (Base 2.1, 5.2.4): done when the lane has completed the commands
    /// that it had fetched.
    pub(super) fn delete_sq(
        &mut self,
        sqe: &Sqe,
        lanes: &mut impl LaneTable,
    ) -> Result<Reply, Status> {
        let sqid = DeleteIoQueueCdw10::from(sqe.cdw10).qid();
        let sq = self
            .queues
            .sqs
            .get_mut(usize::from(sqid))
            .and_then(Option::as_mut);
        let sq = sq
            .filter(|sq| !sq.deleting)
            .ok_or(Status::INVALID_QUEUE_IDENTIFIER)?;
        sq.deleting = true;
        let lane = self.queues.lane_of_sq(sqid);
        if !lane.is_some_and(|key| lanes.command(key, LaneCommand::RemoveQueue { sqid })) {
            // The lane has stopped already.
            self.queues.remove_sq(sqid);
            return Ok(Reply::Done(0));
        }
        self.admin
            .pending
            .add(sqe.cid, Waiting::DeleteSq { sqid }, self.now);
        Ok(Reply::Waits)
    }

    /// Delete I/O Completion Queue (Base 2.1, 5.2.3): its submission queues must have been deleted
    /// before.
    pub(super) fn delete_cq(
        &mut self,
        sqe: &Sqe,
        lanes: &mut impl LaneTable,
    ) -> Result<Reply, Status> {
        let cqid = DeleteIoQueueCdw10::from(sqe.cdw10).qid();
        let used = self.queues.is_used(cqid);
        let cq = self.queues.cq_mut(cqid).filter(|cq| !cq.deleting);
        let cq = cq.ok_or(Status::INVALID_QUEUE_IDENTIFIER)?;
        if used {
            return Err(Status::INVALID_QUEUE_DELETION);
        }
        cq.deleting = true;
        let lane = cq.lane;
        if !lane.is_some_and(|key| lanes.command(key, LaneCommand::Stop)) {
            self.forget_cq(cqid);
            return Ok(Reply::Done(0));
        }
        self.admin
            .pending
            .add(sqe.cid, Waiting::DeleteCq { cqid }, self.now);
        Ok(Reply::Waits)
    }

    /// The status for a host when a lane or queue cannot be created; the log reports faults of the
    /// program or of the operator.
    pub(super) fn lane_status(&mut self, error: QueueError) -> Status {
        match error {
            QueueError::Identifier { .. } => Status::INVALID_QUEUE_IDENTIFIER,
            QueueError::Size { .. } => Status::INVALID_QUEUE_SIZE,
            QueueError::Ring(error) => self.ring_status(error),
            error => {
                tracing::error!(controller = self.config.name, %error, "cannot create a queue");
                Status::INTERNAL_ERROR
            }
        }
    }

    /// The status for a queue or doorbell buffer where it cannot be.
    pub(super) fn ring_status(&mut self, error: RingError) -> Status {
        match error {
            RingError::Misaligned => Status::PRP_OFFSET_INVALID,
            RingError::NoDescriptor => {
                self.warn_unshared();
                Status::DATA_TRANSFER_ERROR
            }
            _ => Status::DATA_TRANSFER_ERROR,
        }
    }
}
