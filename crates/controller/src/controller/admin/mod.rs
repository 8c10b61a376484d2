//! Admin commands (Base 2.1, 5): fetched one at a time, completed at once where possible.
//!
//! An entry of the completion queue is reserved before a command is fetched, so that each fetched
//! command can be completed. Asynchronous Event Requests release theirs while they are held;
//! commands that wait for a lane (deletions, aborts) keep it. Invariant: every fetched command is
//! completed once, or held as a request for an event, or dies with a reset. Nothing here blocks: a
//! lane's answer arrives in a later turn.

pub(super) mod access;
mod attached;
mod data;
pub(super) mod drives;
mod effects;
pub(super) mod error_log;
pub(super) mod events;
pub(super) mod features;
mod firmware;
mod format;
mod health;
mod identify;
mod keep_alive;
mod lba_status;
pub(super) mod logs;
mod namespaces;
mod pending;
mod queue;
pub(super) mod queues;
pub(super) mod reservations;
mod sanitize;
mod side;
pub(super) mod temperature;

pub(crate) use health::HealthState;
use memory::{Hint, Iova, Need, TranslateError};
use nvme_spec::command::{AbortCdw10, AbortDw0};
use nvme_spec::event::EventDw0;
use nvme_spec::log::LogPageId;
use nvme_spec::opcode::AdminOpcode;
use nvme_spec::sqe::{Fuse, Psdt};
use nvme_spec::{Cqe, Sqe, Status};
pub(crate) use pending::{Named, OPERATION_LIMIT, Pending, Waiting};
use port::status;
pub(crate) use queue::{AdminLeft, AdminQueue};
pub(crate) use queues::IoQueues;
pub(crate) use side::AdminSide;
use subsystem::{Answer, NSID_NONE, Operation, Plan, Requester, Step, Subsystem, UNNAMED};

use self::error_log::{LoggedCommand, LoggedError};
use crate::controller::{Controller, DEADLINE_NS, Failure};
use crate::lane::{AbortRequest, LaneCommand, LaneTable, QueueName, Registration, ShadowSpec};
use crate::queue::RingAbsent;
use crate::state::AbortState;

/// Admin commands served in one turn, so that a busy host leaves its neighbours their turn.
const BATCH: u32 = 16;

/// Opcodes of queues, which a host over fabrics has no use for: its transport, which plays the host
/// of the controller, creates them when the host connects, and refuses these commands of the host.
const QUEUES: [AdminOpcode; 4] = [
    AdminOpcode::DELETE_IO_SUBMISSION_QUEUE,
    AdminOpcode::CREATE_IO_SUBMISSION_QUEUE,
    AdminOpcode::DELETE_IO_COMPLETION_QUEUE,
    AdminOpcode::CREATE_IO_COMPLETION_QUEUE,
];

/// Every other opcode that is served by every controller.
const SUPPORTED: [AdminOpcode; 12] = [
    AdminOpcode::GET_LOG_PAGE,
    AdminOpcode::IDENTIFY,
    AdminOpcode::ABORT,
    AdminOpcode::SET_FEATURES,
    AdminOpcode::GET_FEATURES,
    AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST,
    AdminOpcode::FIRMWARE_COMMIT,
    AdminOpcode::FIRMWARE_IMAGE_DOWNLOAD,
    AdminOpcode::KEEP_ALIVE,
    AdminOpcode::GET_LBA_STATUS,
    AdminOpcode::FORMAT_NVM,
    AdminOpcode::SANITIZE,
];

/// Outcome of an accepted command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It succeeded, with this Dword 0.
    Done(u32),
    /// It keeps its place and completes when a lane answers.
    Waits,
    /// It waits for an event, without a place.
    Held,
    /// It has completed, or waits, and that is saved.
    Saved,
}

impl Controller {
    /// From now on a transport brings register writes as messages, and calls
    /// [`Self::messages_read`] when it has read all that were sent.
    ///
    /// The race: a host writes a doorbell register and then a doorbell buffer. The write is a
    /// message that waits in a socket, while the buffer's page shows its value at once. A queue
    /// could be deleted and created again before the message arrives, and its new life would begin
    /// with the value of the old one.
    pub fn expect_messages(&mut self) {
        self.doorbells.by_messages = true;
        if let Some(admin) = &mut self.admin.queue {
            admin.expect_messages();
        }
    }

    /// Whether admin commands wait for [`Self::messages_read`].
    #[must_use]
    pub fn waits_for_messages(&self) -> bool {
        let admin = self.admin.queue.as_ref();
        admin.is_some_and(AdminQueue::waits_for_messages)
    }

    /// Every message has been read that the host had sent when the controller looked at its
    /// doorbells the last time.
    pub fn messages_read(&mut self) {
        if let Some(admin) = &mut self.admin.queue {
            admin.messages_read();
        }
    }

    /// Serves the admin queue for a batch; whether it did anything.
    pub(crate) fn serve_admin(
        &mut self,
        lanes: &mut impl LaneTable,
        subsystem: &mut Subsystem,
    ) -> bool {
        if !self.serves_admin() {
            return false;
        }
        if std::mem::take(&mut self.admin.is_restored) {
            self.execute_again(lanes, subsystem);
        }
        let mut worked = self.post_withheld();
        for _ in 0..BATCH {
            self.post_aborted_requests();
            let Some(sqe) = self.fetch_admin() else {
                break;
            };
            worked = true;
            let name = self.admin.new_name();
            self.serve(Named { sqe, name }, lanes, subsystem);
        }
        worked | self.post_events()
    }

    /// Executes a command that has an entry of the completion queue.
    fn serve(&mut self, command: Named, lanes: &mut impl LaneTable, subsystem: &mut Subsystem) {
        let Named { sqe, name } = command;
        self.admin.name = name;
        let reply = self.execute(&sqe, lanes, subsystem);
        if let Some(admin) = &mut self.admin.queue {
            admin.end_execution();
        }
        match reply {
            Ok(Reply::Done(dw0)) => self.post_admin(sqe.cid, dw0, Status::SUCCESSFUL_COMPLETION),
            Err(status) => self.refuse(&sqe, status),
            Ok(Reply::Waits) => {
                self.admin.pending.note(command);
                self.save();
            }
            Ok(Reply::Saved) => (),
            Ok(Reply::Held) => {
                if let Some(admin) = &mut self.admin.queue {
                    admin.release();
                }
            }
        }
    }

    /// Executes commands again that waited for the subsystem or a flush when their process died.
    /// One whose effect is in the subsystem's record completes with the answer that is there. A
    /// command without a name is of a version of the program that kept no answers; it ends as
    /// interrupted, and so does one whose queue is not there.
    #[cold]
    fn execute_again(&mut self, lanes: &mut impl LaneTable, subsystem: &mut Subsystem) {
        for (cid, waiting) in std::mem::take(&mut self.admin.interrupted) {
            self.admin.pending.take_command(cid, waiting);
            let named = self.admin.pending.asked(cid).copied();
            let named = named.filter(|it| it.name != UNNAMED);
            match (waiting, named) {
                (Waiting::Operation | Waiting::FlushCache, Some(command)) => {
                    self.admin.pending.take_asked(cid);
                    if waiting == Waiting::FlushCache {
                        // It has not ended: the cache is as before the command.
                        self.features.write_cache_flushed(false);
                    }
                    self.serve(command, lanes, subsystem);
                }
                _ => self.complete_admin(cid, Err(Status::COMMAND_INTERRUPTED)),
            }
        }
        subsystem.forget_unclaimed_answers(self.id());
    }

    fn fetch_admin(&mut self) -> Option<Sqe> {
        let admin = self.admin.queue.as_mut()?;
        let looked = admin.look(&self.doorbells.pages);
        let fetched = if self.admin.pending.operations() < OPERATION_LIMIT {
            admin.fetch()
        } else {
            Ok(None)
        };
        if looked.is_err() {
            let frozen = [
                (admin.sq.is_frozen(), QueueName::Submission(0)),
                (admin.cq.is_frozen(), QueueName::Completion(0)),
            ];
            for (_, queue) in frozen.into_iter().filter(|(frozen, _)| *frozen) {
                self.doorbells.watch.ignore(queue);
            }
            self.bad_doorbell(0);
        }
        match fetched {
            Ok(sqe) => {
                self.admin.absent_since = None;
                sqe
            }
            Err(RingAbsent) => {
                // Firmware remaps memory under a live queue; what is gone this long does not come
                // back.
                let since = *self.admin.absent_since.get_or_insert(self.now);
                if self.now >= since + DEADLINE_NS {
                    self.fail(Failure::QueueLost);
                }
                None
            }
        }
    }

    fn execute(
        &mut self,
        sqe: &Sqe,
        lanes: &mut impl LaneTable,
        subsystem: &mut Subsystem,
    ) -> Result<Reply, Status> {
        if subsystem.has_answer(self.id(), self.admin.name) {
            let mut operation = self.begin_operation(sqe, NSID_NONE, []);
            operation.name = self.admin.name;
            subsystem.begin(operation);
            return Ok(Reply::Waits);
        }
        let opcode = sqe.admin_opcode();
        let mut executed = QUEUES.into_iter().chain(self.served(subsystem));
        if !executed.any(|executed| executed == opcode) {
            return Err(Status::INVALID_COMMAND_OPCODE);
        }
        self.check_access(sqe, subsystem)?;
        sanitize::check(sqe, self.config.is_over_fabrics(), subsystem)?;
        // Admin commands over PCIe use PRPs (PCIe Transport 1.1, 2.2), and none is fused.
        if sqe.flags.psdt() != Psdt::PRP || sqe.flags.fuse() != Fuse::NORMAL {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        match opcode {
            AdminOpcode::IDENTIFY => self.identify(sqe, subsystem),
            AdminOpcode::GET_LOG_PAGE => self.get_log_page(sqe, subsystem),
            AdminOpcode::GET_FEATURES => self.get_features(sqe, subsystem),
            AdminOpcode::SET_FEATURES => self.set_features(sqe, lanes, subsystem),
            AdminOpcode::CREATE_IO_COMPLETION_QUEUE => self.create_cq(sqe, lanes),
            AdminOpcode::CREATE_IO_SUBMISSION_QUEUE => self.create_sq(sqe, lanes),
            AdminOpcode::DELETE_IO_COMPLETION_QUEUE => self.delete_cq(sqe, lanes),
            AdminOpcode::DELETE_IO_SUBMISSION_QUEUE => self.delete_sq(sqe, lanes),
            AdminOpcode::ABORT => self.abort(sqe, lanes),
            AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST => {
                if !self.admin.events.hold(sqe.cid) {
                    return Err(Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED);
                }
                Ok(Reply::Held)
            }
            AdminOpcode::FIRMWARE_COMMIT => firmware::commit(sqe),
            AdminOpcode::FIRMWARE_IMAGE_DOWNLOAD => firmware::download(),
            AdminOpcode::GET_LBA_STATUS => self.get_lba_status(sqe),
            AdminOpcode::KEEP_ALIVE => Ok(self.keep_alive()),
            AdminOpcode::DOORBELL_BUFFER_CONFIG => self.doorbell_buffer_config(sqe, lanes),
            AdminOpcode::NAMESPACE_MANAGEMENT => self.namespace_management(sqe, subsystem),
            AdminOpcode::NAMESPACE_ATTACHMENT => self.namespace_attachment(sqe, subsystem),
            AdminOpcode::FORMAT_NVM => self.format_nvm(sqe, subsystem),
            AdminOpcode::SANITIZE => self.sanitize(sqe, subsystem),
            _ => Err(Status::INVALID_COMMAND_OPCODE),
        }
    }

    /// The opcodes that are served to the host.
    pub(crate) fn served(
        &self,
        subsystem: &Subsystem,
    ) -> impl Iterator<Item = AdminOpcode> + use<> {
        let buffers = self.config.has_doorbell_buffers();
        let buffers = buffers.then_some(AdminOpcode::DOORBELL_BUFFER_CONFIG);
        let queues = (!self.config.is_over_fabrics()).then_some(QUEUES);
        let management = [
            AdminOpcode::NAMESPACE_MANAGEMENT,
            AdminOpcode::NAMESPACE_ATTACHMENT,
        ];
        let managed = subsystem.has_namespace_management();
        let management = management.into_iter().filter(move |_| managed);
        let queues = queues.into_iter().flatten();
        let all = SUPPORTED.into_iter().chain(queues).chain(buffers);
        all.chain(management)
    }

    /// Begins an operation that the subsystem decides on; the command completes with its answer.
    fn begin_plan(&mut self, sqe: &Sqe, nsid: u32, plan: Plan, subsystem: &mut Subsystem) -> Reply {
        let plan = Step::Plan(Box::new(plan));
        let mut operation = self.begin_operation(sqe, nsid, [plan]);
        operation.name = self.admin.name;
        subsystem.begin(operation);
        Reply::Waits
    }

    /// Begins an operation of the subsystem; the command completes with its answer.
    pub(crate) fn begin_operation(
        &mut self,
        sqe: &Sqe,
        nsid: u32,
        steps: impl IntoIterator<Item = Step>,
    ) -> Operation {
        self.admin
            .pending
            .add(sqe.cid, Waiting::Operation, self.now);
        let by = Requester::Admin {
            controller: self.id(),
            life: self.life.number,
            cid: sqe.cid,
        };
        Operation::new(by, nsid, steps)
    }

    /// Completes the commands whose operations have ended.
    pub(crate) fn take_answers(
        &mut self,
        lanes: &mut impl LaneTable,
        subsystem: &mut Subsystem,
    ) -> bool {
        for name in self.answered.drain(..) {
            subsystem.completed(self.id, name);
        }
        let mut worked = false;
        while let Some(answer) = subsystem.take_answer(self.id()) {
            let Answer {
                to,
                result,
                data,
                information,
                name,
            } = answer;
            worked = true;
            match to {
                Requester::Admin { life, cid, .. } if life == self.life.number => {
                    self.admin.pending.take_command(cid, Waiting::Operation);
                    match result {
                        Ok(_) => self.features.kept(cid),
                        Err(_) => self.feature_not_kept(cid, lanes, subsystem),
                    }
                    self.complete_admin(cid, result);
                    if result.is_err() && information != 0 {
                        self.logs.errors.describe_last(information);
                    }
                    subsystem.completed(self.id(), name);
                }
                Requester::Io { ticket, .. } => lanes.answer(ticket, result.map(|_| data)),
                Requester::Admin { .. } => subsystem.completed(self.id(), name),
                Requester::Operator(_) | Requester::Internal => (),
            }
        }
        worked
    }

    /// Completes a command of the host's that was refused.
    fn refuse(&mut self, sqe: &Sqe, status: Status) {
        tracing::debug!(
            controller = self.config.name, opcode = ?sqe.admin_opcode(), cid = sqe.cid, %status,
            "admin command rejected"
        );
        if status == Status::DATA_TRANSFER_ERROR && self.is_unshared([sqe.prp1, sqe.prp2]) {
            self.warn_unshared();
        }
        self.log_error(sqe.cid, sqe.opcode, sqe.nsid, status);
        self.post_admin(sqe.cid, 0, status);
    }

    /// Adds an admin command that ends with `status` to the error log, where that is an error worth
    /// an entry.
    fn log_error(&mut self, cid: u16, opcode: u8, nsid: u32, status: Status) {
        if is_logged(status) {
            self.logs.errors.add(LoggedError {
                command: Some(LoggedCommand {
                    sqid: 0,
                    cid,
                    opcode,
                }),
                status,
                nsid,
                lba: 0,
            });
        }
    }

    /// Whether a command's data is in memory that came without a descriptor, as far as its own two
    /// entries show.
    pub(crate) fn is_unshared(&self, data: [u64; 2]) -> bool {
        data.into_iter().any(|prp| {
            let found = self
                .view
                .translate(&mut Hint::default(), Iova(prp), 1, Need::DeviceReads);
            matches!(found, Err(TranslateError::NoDescriptor))
        })
    }

    /// Posts the completion of a command that waited, or of a request that was held, and holds a
    /// place.
    pub(crate) fn complete_admin(&mut self, cid: u16, answer: Result<u32, Status>) {
        if self.admin.queue.is_none() {
            return;
        }
        let (dw0, status) = match answer {
            Ok(dw0) => (dw0, Status::SUCCESSFUL_COMPLETION),
            Err(status) => (0, status),
        };
        let (opcode, nsid) = match self.admin.pending.take_asked(cid) {
            Some(Named { sqe, .. }) => (sqe.opcode, sqe.nsid),
            None => (AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST.0, 0),
        };
        self.log_error(cid, opcode, nsid, status);
        self.post_admin(cid, dw0, status);
    }

    fn post_admin(&mut self, cid: u16, dw0: u32, status: Status) {
        self.post_admin_with(cid, [dw0, 0], status);
    }

    pub(crate) fn post_admin_with(&mut self, cid: u16, [dw0, dw1]: [u32; 2], status: Status) {
        if self.admin.queue.is_none() || self.withholds_completion((cid, [dw0, dw1], status)) {
            return;
        }
        let Some(admin) = &self.admin.queue else {
            return;
        };
        // A queue is at most 4096 entries long.
        let sq_head = admin.head() as u16;
        let cqe = Cqe {
            dw0,
            dw1,
            sq_head,
            sq_id: 0,
            cid,
            status: status::field(status).with_more(is_logged(status)),
        };
        // The state that a completion reports must be kept before it is posted.
        self.save_posting(&cqe);
        let Some(admin) = &mut self.admin.queue else {
            return;
        };
        let Some(posted) = admin.post(cqe) else {
            debug_assert!(false, "an admin command completed twice");
            return;
        };
        self.save_posted();
        if posted.is_err() {
            self.fail(Failure::QueueLost);
        }
    }

    /// Completes held requests for which there is an event and a place.
    fn post_events(&mut self) -> bool {
        let mut worked = false;
        while let Some(admin) = &mut self.admin.queue
            && admin.cq.free() > 0
            && let Some((cid, dw0)) = self.admin.events.next()
        {
            admin.reserve();
            self.complete_event(cid, dw0);
            worked = true;
        }
        worked
    }

    /// Completes a held request with an event. A zone event carries its namespace in Dword 1.
    fn complete_event(&mut self, cid: u16, dw0: u32) {
        let zones = EventDw0::from(dw0).lid() == LogPageId::CHANGED_ZONE_LIST;
        let nsid = self.logs.changed_zones.first().filter(|_| zones);
        self.post_admin_with(cid, [dw0, nsid.unwrap_or(0)], Status::SUCCESSFUL_COMPLETION);
    }

    /// Abort (Base 2.1, 5.1.1): always completed; bit 0 of Dword 0 is set if the command was not
    /// aborted.
    fn abort(&mut self, sqe: &Sqe, lanes: &mut impl LaneTable) -> Result<Reply, Status> {
        let (sqid, cid) = {
            let cdw10 = AbortCdw10::from(sqe.cdw10);
            (cdw10.sqid(), cdw10.cid())
        };
        if sqid == 0 {
            // Only a held request can be found waiting. It completes in a place of its own, which
            // may have to become free first.
            let aborted = self.admin.events.release(cid);
            if aborted {
                if let Some(admin) = &mut self.admin.queue {
                    admin.end_execution();
                }
                // The request completes first. This command's own completion is saved with that: a
                // second execution would find no request.
                self.admin.aborted_requests.push(cid);
                let completion = [abort_dw0(true), 0];
                self.bus
                    .withhold((sqe.cid, completion, Status::SUCCESSFUL_COMPLETION));
                self.post_aborted_requests();
                self.post_withheld();
                return Ok(Reply::Saved);
            }
            return Ok(Reply::Done(abort_dw0(aborted)));
        }
        let Some(key) = self.queues.lane_of_sq(sqid) else {
            return Ok(Reply::Done(abort_dw0(false)));
        };
        let Some(number) = self.new_abort() else {
            return Err(Status::ABORT_COMMAND_LIMIT_EXCEEDED);
        };
        let request = AbortRequest { sqid, cid, number };
        let waiting = Waiting::Abort(request);
        self.admin.pending.add(sqe.cid, waiting, self.now);
        let name = self.admin.name;
        self.admin.pending.note(Named { sqe: *sqe, name });
        if let Some(admin) = &mut self.admin.queue {
            admin.end_execution();
        }
        // Before the lane acts: after a death it answers by the number.
        self.save();
        if !lanes.command(key, LaneCommand::Abort(request)) {
            self.admin.pending.take(waiting);
            self.admin.pending.take_asked(sqe.cid);
            return Ok(Reply::Done(abort_dw0(false)));
        }
        Ok(Reply::Saved)
    }

    /// The number of another Abort of a command for I/O; none where as many are outstanding as may
    /// be.
    pub(crate) fn new_abort(&mut self) -> Option<u32> {
        let place = self.admin.pending.place_of_abort()?;
        let number = AbortState::number(self.admin.aborts, place);
        self.admin.aborts = self.admin.aborts.wrapping_add(1);
        Some(number)
    }

    /// Completes the aborted requests for which there is a place. Before the next command is
    /// fetched, which could take it: so there is never more than one that waits.
    #[inline]
    fn post_aborted_requests(&mut self) {
        while let Some(&cid) = self.admin.aborted_requests.first()
            && let Some(admin) = &mut self.admin.queue
            && admin.cq.free() > 0
        {
            admin.reserve();
            self.admin.aborted_requests.remove(0);
            self.complete_admin(cid, Err(Status::COMMAND_ABORT_REQUESTED));
        }
    }

    /// Doorbell Buffer Config (Base 2.1, 5.2.5): two pages, both whole.
    fn doorbell_buffer_config(
        &mut self,
        sqe: &Sqe,
        lanes: &mut impl LaneTable,
    ) -> Result<Reply, Status> {
        let spec = ShadowSpec {
            shadow: Iova(sqe.prp1),
            event_idx: Iova(sqe.prp2),
        };
        if spec.shadow.page_offset() != 0 || spec.event_idx.page_offset() != 0 {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        let count = self.doorbells.registrations.wrapping_add(1).max(1);
        let registration = Registration::new(&self.view, spec, count);
        let registration = registration.map_err(|error| self.lane_status(error))?;
        let shadow = spec
            .find(&self.view)
            .map_err(|error| self.lane_status(error))?;
        self.doorbells.registrations = count;
        self.doorbells.shadow = Some(registration.clone());
        if let Some(admin) = &mut self.admin.queue {
            admin.register(
                shadow,
                &registration,
                &self.doorbells.pages,
                self.doorbells.by_messages,
            );
        }
        self.tell_lanes(lanes, || LaneCommand::Shadow(Some(registration.clone())));
        Ok(Reply::Done(0))
    }
}

/// Whether a status is worth an entry of the error log: a host's probing for supported functions is
/// not.
fn is_logged(status: Status) -> bool {
    !matches!(
        status,
        Status::SUCCESSFUL_COMPLETION
            | Status::INVALID_COMMAND_OPCODE
            | Status::INVALID_FIELD_IN_COMMAND
            | Status::INVALID_LOG_PAGE
    )
}

/// Dword 0 of an Abort's completion.
pub(crate) fn abort_dw0(aborted: bool) -> u32 {
    AbortDw0::new().with_ianp(!aborted).into()
}
