//! Rings and connections together: entries become commands, completions become entries.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use memory::EventFd;
use nvme_spec::command::{
    CreateIoCqCdw11, CreateIoQueueCdw10, CreateIoSqCdw11, DeleteIoQueueCdw10,
};
use nvme_spec::cqe::StatusField;
use nvme_spec::opcode::AdminOpcode;
use nvme_spec::{Cqe, Sqe, Status};
use rustix::event::epoll;

use super::commands::data_of;
use super::connect::{self, Wanted, Way};
use super::connection::{Connection, End};
use super::rings::{Cq, Sq};
use super::shared::Shared;
use super::stream::Channel;
use super::{NvmeTcp, QUEUES, lock};
use crate::DriverError;

/// The identifier of the bus's own commands on the Admin Queue: not FFFFh, which stands for no
/// command in the Error Information log (Base 2.1, 5.1.12.1.2).
pub(super) const OWN_CID: u16 = 0xfffe;

/// A submission queue: its ring, and the connection to its other end.
pub(super) struct Queue {
    qid: u16,
    pub(super) connection: Connection,
    /// None of the Admin Queue before the controller is enabled.
    pub(super) sq: Option<Sq>,
    /// The completion of the bus's own command.
    pub(super) answer: Option<Cqe>,
    /// Counted in [`NvmeTcp::unfinished`].
    is_unfinished: bool,
    /// Counted in [`NvmeTcp::busy`].
    is_busy: bool,
}

impl NvmeTcp {
    /// A queue of a new connection.
    pub(super) fn queue(
        &self,
        qid: u16,
        connection: Connection,
        sq: Option<Sq>,
    ) -> Result<Queue, DriverError> {
        let data = epoll::EventData::new_u64(qid.into());
        epoll::add(&self.epoll, &connection, data, epoll::EventFlags::IN).map_err(|errno| {
            DriverError::System {
                what: "poll a connection to the target",
                source: errno.into(),
            }
        })?;
        Ok(Queue {
            qid,
            connection,
            sq,
            answer: None,
            is_unfinished: false,
            is_busy: false,
        })
    }

    /// Drops a queue's connection.
    pub(super) fn close(&self, qid: u16) {
        let Some(queue) = lock(&self.queues[usize::from(qid)]).take() else {
            return;
        };
        if queue.is_unfinished {
            self.unfinished.fetch_sub(1, Ordering::Relaxed);
        }
        self.note_busy(qid, queue.is_busy, false);
    }

    /// Takes completions, fetches entries, and sends.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub(super) fn serve(&self, queue: &mut Queue, shared: &Shared) -> Result<(), DriverError> {
        match self.take_completions(queue, shared) {
            Ok(()) => self.submit(queue, shared),
            Err(end) => {
                self.note(queue);
                Err(end.into())
            }
        }
    }

    /// Takes completions, and sends the rest of what was fetched.
    ///
    /// # Errors
    /// The connections have ended.
    pub(super) fn answer(&self, queue: &mut Queue, shared: &Shared) -> Result<(), DriverError> {
        let taken = self.take_completions(queue, shared);
        let sent = taken.and_then(|()| queue.connection.flush(shared));
        self.note(queue);
        sent.map_err(|end| self.ended(end))
    }

    /// Fetches entries, and sends.
    ///
    /// # Errors
    /// A command could not be sent, and was completed with Invalid Field in Command; or the
    /// connections have ended.
    pub(super) fn submit(&self, queue: &mut Queue, shared: &Shared) -> Result<(), DriverError> {
        let fetched = self.fetch(queue, shared);
        let sent = queue.connection.flush(shared);
        self.note(queue);
        sent.map_err(|end| self.ended(end))?;
        fetched
    }

    /// Counts the queue with those that are unfinished and those that are busy.
    fn note(&self, queue: &mut Queue) {
        let is_unfinished = queue.connection.is_unfinished();
        let was_unfinished = std::mem::replace(&mut queue.is_unfinished, is_unfinished);
        count(&self.unfinished, was_unfinished, is_unfinished);
        // The target answers Asynchronous Event Requests after any time.
        let is_busy = match queue.qid {
            0 => queue
                .connection
                .has_other_than(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST),
            _ => queue.connection.is_busy(),
        };
        let was_busy = std::mem::replace(&mut queue.is_busy, is_busy);
        self.note_busy(queue.qid, was_busy, is_busy);
    }

    fn note_busy(&self, qid: u16, was_busy: bool, is_busy: bool) {
        count(&self.busy, was_busy, is_busy);
        if is_busy {
            self.recent.store(qid, Ordering::Relaxed);
        } else if was_busy {
            // Another one that is busy is not known before it is served.
            self.recent.store(0, Ordering::Relaxed);
        }
    }

    fn ended(&self, end: End) -> DriverError {
        self.end(end);
        end.into()
    }

    fn take_completions(&self, queue: &mut Queue, shared: &Shared) -> Result<(), End> {
        let cqid = queue.sq.as_ref().map_or(0, |sq| sq.cqid);
        let mut completions = lock(&self.completions[usize::from(cqid)]);
        let mut posted = false;
        let taken = loop {
            // A full queue leaves the rest in the socket.
            if completions.as_ref().is_some_and(|cq| !cq.has_room()) {
                break Ok(());
            }
            let mut cqe = match queue.connection.next(shared) {
                Ok(Some(cqe)) => cqe,
                Ok(None) => break Ok(()),
                Err(end) => break Err(end),
            };
            if queue.qid == 0 && cqe.cid == OWN_CID {
                queue.answer = Some(cqe);
                continue;
            }
            (cqe.sq_id, cqe.sq_head) = (queue.qid, queue.sq.as_ref().map_or(0, Sq::head));
            if let Some(cq) = &mut *completions {
                cq.post(shared, cqe);
                posted = true;
            }
        };
        if posted {
            self.interrupt(completions.as_ref());
        }
        drop(completions);
        taken.inspect_err(|end| self.end(*end))
    }

    /// Signals the eventfd of a completion queue's vector.
    fn interrupt(&self, cq: Option<&Cq>) {
        let Some(vector) = cq.and_then(|cq| cq.vector) else {
            return;
        };
        let vectors = self.vectors.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(eventfd)) = vectors.get(usize::from(vector)) {
            // An eventfd whose counter is full is signalled.
            let _ = eventfd.signal();
        }
    }

    pub(super) fn assign(&self, vector: u16, eventfd: Option<EventFd>) -> Result<(), DriverError> {
        let mut vectors = self.vectors.write().unwrap_or_else(PoisonError::into_inner);
        let place = vectors.get_mut(usize::from(vector));
        let place = place.ok_or_else(|| {
            DriverError::Unsupported(format!("the bus has {QUEUES} vectors, and not {vector}"))
        })?;
        *place = eventfd;
        Ok(())
    }

    /// Fetches entries while there is room for commands.
    fn fetch(&self, queue: &mut Queue, shared: &Shared) -> Result<(), DriverError> {
        // The bus's own command always has room.
        let reserved = usize::from(queue.qid == 0);
        let mut first = Ok(());
        while queue.connection.free() > reserved {
            let Some(sqe) = queue.sq.as_mut().and_then(|sq| sq.fetch(shared)) else {
                break;
            };
            let status = match self.local(queue, &sqe, shared) {
                Some(Ok(status)) => status,
                Some(Err(error)) => {
                    first = first.and(Err(error));
                    Status::INTERNAL_ERROR
                }
                None => match send(queue, sqe, shared) {
                    Ok(None) => continue,
                    Ok(Some(status)) => status,
                    Err(error) => {
                        first = first.and(Err(error));
                        Status::INVALID_FIELD_IN_COMMAND
                    }
                },
            };
            self.complete(queue, &sqe, status, shared);
        }
        first
    }

    /// Posts the completion of a command that was not sent. A queue without room loses it, as the
    /// host has done something that no drive could answer.
    fn complete(&self, queue: &Queue, sqe: &Sqe, status: Status, shared: &Shared) {
        let Some(sq) = &queue.sq else { return };
        let mut cq = lock(&self.completions[usize::from(sq.cqid)]);
        if let Some(cq) = cq.as_mut().filter(|cq| cq.has_room()) {
            let cqe = Cqe {
                sq_id: queue.qid,
                sq_head: sq.head(),
                cid: sqe.cid,
                status: StatusField::new().with_status(status),
                ..Cqe::default()
            };
            cq.post(shared, cqe);
        }
        self.interrupt(cq.as_ref());
    }

    /// Executes an admin command that concerns this end only: its status, or none where the command
    /// is for the controller.
    fn local(
        &self,
        queue: &Queue,
        sqe: &Sqe,
        shared: &Shared,
    ) -> Option<Result<Status, DriverError>> {
        if queue.qid != 0 {
            return None;
        }
        Some(match sqe.admin_opcode() {
            AdminOpcode::CREATE_IO_COMPLETION_QUEUE => Ok(self.create_cq(sqe, shared)),
            AdminOpcode::CREATE_IO_SUBMISSION_QUEUE => self.create_sq(sqe, shared),
            AdminOpcode::DELETE_IO_COMPLETION_QUEUE => Ok(self.delete_cq(sqe)),
            AdminOpcode::DELETE_IO_SUBMISSION_QUEUE => Ok(self.delete_sq(sqe)),
            AdminOpcode::DOORBELL_BUFFER_CONFIG => Ok(Status::INVALID_COMMAND_OPCODE),
            _ => return None,
        })
    }

    fn create_cq(&self, sqe: &Sqe, shared: &Shared) -> Status {
        let cdw10 = CreateIoQueueCdw10::from(sqe.cdw10);
        let cdw11 = CreateIoCqCdw11::from(sqe.cdw11);
        let Some(mut place) = self.io_place(&self.completions, cdw10.qid()) else {
            return Status::INVALID_QUEUE_IDENTIFIER;
        };
        if place.is_some() {
            return Status::INVALID_QUEUE_IDENTIFIER;
        }
        if cdw10.qsize_z() == 0 {
            return Status::INVALID_QUEUE_SIZE;
        }
        let vector = cdw11.ien().then_some(cdw11.iv());
        let entries = u32::from(cdw10.qsize_z()) + 1;
        match Cq::new(shared, sqe.prp1, entries, vector) {
            Some(cq) if cdw11.pc() => *place = Some(cq),
            _ => return Status::INVALID_FIELD_IN_COMMAND,
        }
        Status::SUCCESSFUL_COMPLETION
    }

    fn create_sq(&self, sqe: &Sqe, shared: &Shared) -> Result<Status, DriverError> {
        let cdw10 = CreateIoQueueCdw10::from(sqe.cdw10);
        let cdw11 = CreateIoSqCdw11::from(sqe.cdw11);
        let (qid, cqid) = (cdw10.qid(), cdw11.cqid());
        let known = self.io_place(&self.completions, cqid);
        if known.is_none_or(|cq| cq.is_none()) {
            return Ok(Status::COMPLETION_QUEUE_INVALID);
        }
        let Some(mut place) = self
            .io_place(&self.queues, qid)
            .filter(|place| place.is_none())
        else {
            return Ok(Status::INVALID_QUEUE_IDENTIFIER);
        };
        if cdw10.qsize_z() == 0 {
            return Ok(Status::INVALID_QUEUE_SIZE);
        }
        let entries = u32::from(cdw10.qsize_z()) + 1;
        let sq = Sq::new(shared, sqe.prp1, entries, cqid).filter(|_| cdw11.pc());
        let Some(sq) = sq else {
            return Ok(Status::INVALID_FIELD_IN_COMMAND);
        };
        let wanted = Wanted {
            qid,
            entries,
            cntlid: Some(self.cntlid.load(Ordering::Relaxed)),
            in_capsule: self.in_capsule.load(Ordering::Relaxed),
        };
        let connection = self.open(wanted)?;
        *place = Some(self.queue(qid, connection, Some(sq))?);
        Ok(Status::SUCCESSFUL_COMPLETION)
    }

    /// Connects an I/O queue.
    ///
    /// A target has a key that was made for a time only (ours and Linux's for an hour), and a
    /// drive opens queues for as long as it lives. Where the target refuses the key, another one is
    /// made, once. A target that has no second exchange beside an association refuses that:
    /// the error says so, and the queue is not connected.
    fn open(&self, wanted: Wanted) -> Result<Connection, DriverError> {
        let peer = *lock(&self.peer);
        let open = |channel: &Channel| {
            let way = Way {
                target: &self.target,
                peer,
                channel,
            };
            connect::open(way, &self.host, wanted, self.timeout)
        };
        let channel = lock(&self.channel).clone();
        let opened = match open(&channel) {
            Err(error) if self.host.concatenates && error.is_refused_key() => {
                let made = connect::concatenate(&self.target, peer, &self.host, self.timeout);
                let channel = Channel::Generated(Arc::new(made?.0));
                let opened = open(&channel);
                *lock(&self.channel) = channel;
                opened
            }
            opened => opened,
        };
        opened.map(|(connection, _)| connection)
    }

    fn delete_cq(&self, sqe: &Sqe) -> Status {
        let qid = DeleteIoQueueCdw10::from(sqe.cdw10).qid();
        let uses = |queue: &Queue| queue.sq.as_ref().is_some_and(|sq| sq.cqid == qid);
        let is_used = (1..QUEUES).any(|other| {
            let queue = lock(&self.queues[usize::from(other)]);
            queue.as_ref().is_some_and(uses)
        });
        match self.io_place(&self.completions, qid) {
            Some(cq) if cq.is_none() => Status::INVALID_QUEUE_IDENTIFIER,
            None => Status::INVALID_QUEUE_IDENTIFIER,
            Some(_) if is_used => Status::INVALID_QUEUE_DELETION,
            Some(mut cq) => {
                *cq = None;
                Status::SUCCESSFUL_COMPLETION
            }
        }
    }

    fn delete_sq(&self, sqe: &Sqe) -> Status {
        let qid = DeleteIoQueueCdw10::from(sqe.cdw10).qid();
        if self
            .io_place(&self.queues, qid)
            .is_none_or(|queue| queue.is_none())
        {
            return Status::INVALID_QUEUE_IDENTIFIER;
        }
        self.close(qid);
        Status::SUCCESSFUL_COMPLETION
    }

    /// The place of an I/O queue, if it is one that there may be.
    fn io_place<'a, T>(
        &self,
        places: &'a [std::sync::Mutex<Option<T>>],
        qid: u16,
    ) -> Option<std::sync::MutexGuard<'a, Option<T>>> {
        (qid > 0).then(|| places.get(usize::from(qid)))?.map(lock)
    }
}

/// Counts one that was in a state, and is in it or not.
fn count(all: &AtomicUsize, was: bool, is: bool) {
    match (was, is) {
        (false, true) => all.fetch_add(1, Ordering::Relaxed),
        (true, false) => all.fetch_sub(1, Ordering::Relaxed),
        _ => 0,
    };
}

/// Hands a command to the connection; its status where the driver itself is at fault.
fn send(queue: &mut Queue, sqe: Sqe, shared: &Shared) -> Result<Option<Status>, DriverError> {
    let data = data_of(&sqe)?;
    let is_there = data.is_none_or(|data| {
        usize::try_from(data.len).is_ok_and(|len| shared.has(data.address, len))
    });
    if !is_there {
        return Err(DriverError::Unsupported(format!(
            "the data of the command with opcode {:#04x} are not in memory that is shared",
            sqe.opcode
        )));
    }
    if queue.qid == 0 && sqe.cid == OWN_CID {
        return Ok(Some(Status::COMMAND_ID_CONFLICT));
    }
    let added = queue.connection.add(sqe, data);
    Ok(added.err().map(|_| Status::COMMAND_ID_CONFLICT))
}
