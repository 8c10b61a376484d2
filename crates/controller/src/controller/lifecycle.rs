//! Enable, disable, resets, shutdown and failure (Base 2.1, 3.5 to 3.7 and 9.5).
//!
//! ```text
//! Disabled --CC.EN--> Ready --CC.EN cleared, resets--> Stopping --lanes gone--> Disabled
//!     \                 \---failure--> Stopping --lanes gone--> Failed --resets--> Stopping
//!      \--cannot enable--> Failed
//! ```
//!
//! Shutdown runs in parallel: lanes stop, media are flushed, SHST reports the end. Each stage is
//! bounded by [`DEADLINE_NS`], the flush by [`FLUSH_DEADLINE_NS`].

use memory::LostFlag;
use nvme_spec::cqe::CQE_SIZE_LOG2;
use nvme_spec::registers::{
    ArbitrationMechanism, CommandSetSelected, ShutdownNotification, ShutdownStatus,
};
use nvme_spec::sqe::SQE_SIZE_LOG2;
use port::ticket::Ticket;
use port::time::Time;
use port::{Channel, Channels, Outcome};

use super::admin::{AdminQueue, IoQueues};
use super::failure::{EnableError, Failure};
use super::flush::{Flush, Flushed};
use super::{Controller, DEADLINE_NS, FLUSH_DEADLINE_NS};
use crate::lane::{LaneCommand, LaneTable, QueueName};

/// Phase of a controller's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// RDY is 0.
    Disabled,
    /// RDY is 1 and commands are served.
    Ready,
    /// Lanes are stopping.
    Stopping(Stopping),
    /// CFS is 1; a reset helps.
    Failed,
}

/// Lanes are stopping, and then...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopping {
    then: Then,
    /// The time when hanging commands are aborted; `None` until the lanes were informed.
    deadline: Option<Time>,
}

/// The phase that follows when the lanes are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Disabled,
    Failed,
}

/// Progress of a shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// None was asked for.
    None,
    /// Lanes are stopping.
    Draining(Time),
    /// Media are flushed.
    Flushing(Flush),
    /// SHST reports completion.
    Complete,
}

impl Shutdown {
    pub(super) fn is_complete(&self) -> bool {
        *self == Shutdown::Complete
    }
}

/// Warnings logged in this session: so a host that misbehaves on purpose does not fill the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Warned {
    pub(super) failure: bool,
    pub(super) unshared: bool,
}

/// Where a controller is in its life, and the count of its lives.
#[derive(Debug)]
pub(crate) struct Life {
    /// Counts resets: the answer to a command of an earlier life is dropped.
    pub(crate) number: u32,
    /// The life of which the subsystem knows.
    pub(super) followed: u32,
    pub(super) phase: Phase,
    pub(super) shutdown: Shutdown,
    /// Warnings that were logged in this session.
    pub(super) warned: Warned,
}

impl Life {
    /// As after power-on.
    pub(super) fn new() -> Self {
        Life {
            number: 0,
            followed: 0,
            phase: Phase::Disabled,
            shutdown: Shutdown::None,
            warned: Warned::default(),
        }
    }
}

impl Controller {
    /// Continues register requests; returns whether anything happened.
    pub(super) fn advance<C: Channel>(
        &mut self,
        channels: &mut Channels<C>,
        lanes: &mut impl LaneTable,
    ) -> bool {
        if self.registers.take_subsystem_reset() {
            self.begin_reset(true);
        } else if self.registers.reset_wanted() && !self.is_resetting() {
            self.begin_stop(Then::Disabled);
        }
        if self.is_memory_lost() {
            self.fail(Failure::MemoryLost);
        }
        let before = self.life.phase;
        match self.life.phase {
            Phase::Stopping(stopping) => self.stop_lanes(stopping, lanes),
            Phase::Disabled if self.registers.cc().en() => self.enable(),
            Phase::Disabled | Phase::Ready | Phase::Failed => (),
        }
        let moved = self.life.phase != before;
        let shut = self.advance_shutdown(channels, lanes);
        if moved || shut {
            self.save();
        }
        moved || shut
    }

    /// Of a controller that was restored: a reset that was going on goes on. Of a reset other than
    /// by CC.EN, RDY alone is left.
    pub(super) fn continue_reset(&mut self) {
        let (wanted, enabled) = (self.registers.reset_wanted(), self.registers.cc().en());
        if self.registers.csts().rdy() && (wanted || !enabled) {
            self.begin_stop(Then::Disabled);
        }
    }

    fn is_resetting(&self) -> bool {
        matches!(
            self.life.phase,
            Phase::Stopping(Stopping {
                then: Then::Disabled,
                ..
            })
        )
    }

    #[inline]
    fn is_memory_lost(&self) -> bool {
        matches!(self.life.phase, Phase::Ready) && self.lost.as_ref().is_some_and(LostFlag::is_lost)
    }

    /// A Controller Level Reset other than by CC.EN (Base 2.1, 3.7.2): registers at once, except
    /// RDY, which falls when the lanes are gone.
    pub(super) fn begin_reset(&mut self, subsystem: bool) {
        self.registers.power_on(subsystem);
        self.begin_stop(Then::Disabled);
    }

    fn begin_stop(&mut self, then: Then) {
        self.admin.forget();
        self.bus.forget();
        self.life.number = self.life.number.wrapping_add(1);
        self.arbiter = None;
        self.doorbells.forget();
        self.life.shutdown = Shutdown::None;
        self.flushes.of_cache = None;
        // Lanes that were told to stop need not be told again, and their time goes on.
        let deadline = match self.life.phase {
            Phase::Stopping(stopping) => stopping.deadline,
            _ => None,
        };
        self.life.phase = Phase::Stopping(Stopping { then, deadline });
    }

    fn stop_lanes(&mut self, stopping: Stopping, lanes: &mut impl LaneTable) {
        let deadline = match stopping.deadline {
            None => {
                self.tell_lanes(lanes, || LaneCommand::Stop);
                let deadline = self.now + DEADLINE_NS;
                self.life.phase = Phase::Stopping(Stopping {
                    deadline: Some(deadline),
                    ..stopping
                });
                deadline
            }
            Some(deadline) => deadline,
        };
        if self.now >= deadline {
            self.tell_lanes(lanes, || LaneCommand::AbandonAll);
        }
        self.take_events(lanes);
        if !self.queues.has_lanes() {
            self.finish_stop(stopping.then);
        }
    }

    fn finish_stop(&mut self, then: Then) {
        self.forget_all_queues();
        match then {
            Then::Disabled => {
                self.queues = IoQueues::new();
                // Before RDY falls: from then on the host may write them again.
                self.doorbells.pages.zero_all();
                self.registers.finish_reset();
                self.life.phase = Phase::Disabled;
            }
            Then::Failed => self.life.phase = Phase::Failed,
        }
        self.serve_when_quiet();
    }

    /// Whether its lanes are being stopped.
    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.life.phase, Phase::Stopping(_))
    }

    fn enable(&mut self) {
        if self.lost.as_ref().is_some_and(LostFlag::is_lost) {
            return self.fail(Failure::MemoryLost);
        }
        if self.holds.elsewhere() {
            return self.fail(Failure::Elsewhere);
        }
        // Values that a host wrote there while we were disabled, as one does that does not know of
        // a reset, name no entries of the queues that it has now; it submits the first command
        // after RDY (Base 2.1, 3.5.1).
        self.doorbells.pages.zero_all();
        match self.make_admin_queue() {
            Ok(admin) => {
                self.admin.queue = Some(admin);
                self.doorbells.watch.heed(QueueName::Submission(0));
                self.doorbells.watch.heed(QueueName::Completion(0));
                self.features.reset(self.now);
                self.apply_connect();
                self.arbiter = self.new_arbiter();
                self.restart_keep_alive();
                self.check_health();
                self.life.shutdown = Shutdown::None;
                self.registers.start();
                self.life.phase = Phase::Ready;
                tracing::debug!(controller = self.config.name, "enabled");
            }
            Err(error) => self.fail(error.into()),
        }
    }

    fn make_admin_queue(&self) -> Result<AdminQueue, EnableError> {
        let cc = self.registers.cc();
        if cc.mps() != 0 {
            return Err(EnableError::PageSize(cc.mps()));
        }
        let sets = [CommandSetSelected::NVM, CommandSetSelected::ALL_SUPPORTED];
        if !sets.contains(&cc.css()) {
            return Err(EnableError::CommandSet(cc.css().0));
        }
        let offered = match cc.ams() {
            ArbitrationMechanism::ROUND_ROBIN => true,
            ArbitrationMechanism::WEIGHTED_ROUND_ROBIN => self.registers.cap().ams() != 0,
            _ => false,
        };
        if !offered {
            return Err(EnableError::Arbitration(cc.ams().0));
        }
        // Zero is not set yet: a host may do that until it creates I/O queues (Base 2.1, 3.1.4.5).
        if ![0, SQE_SIZE_LOG2].contains(&cc.iosqes()) {
            return Err(EnableError::SqEntrySize(cc.iosqes()));
        }
        if ![0, CQE_SIZE_LOG2].contains(&cc.iocqes()) {
            return Err(EnableError::CqEntrySize(cc.iocqes()));
        }
        let aqa = self.registers.aqa();
        let sq = (self.registers.asq(), u32::from(aqa.asqs_z()) + 1);
        let cq = (self.registers.acq(), u32::from(aqa.acqs_z()) + 1);
        Ok(AdminQueue::new(&self.view, &self.doorbells.pages, sq, cq)?)
    }

    /// Sets Controller Fatal Status and stops the lanes. The host recovers by a reset.
    pub fn fail(&mut self, cause: Failure) {
        self.registers.set_fatal();
        if !self.life.warned.failure {
            self.life.warned.failure = true;
            if self.config.is_over_fabrics() {
                // A host may connect again and again to have it fail.
                tracing::debug!(controller = self.config.name, %cause, "controller failed");
            } else {
                tracing::warn!(controller = self.config.name, %cause, "controller failed");
            }
        }
        match self.life.phase {
            // The reset that goes on clears it.
            Phase::Stopping(_) | Phase::Failed => (),
            Phase::Disabled | Phase::Ready => self.begin_stop(Then::Failed),
        }
        self.save();
    }

    /// Logs, once in a session, what to do about memory that is not shared.
    pub(crate) fn warn_unshared(&mut self) {
        if !self.life.warned.unshared {
            self.life.warned.unshared = true;
            tracing::warn!(
                controller = self.config.name,
                "a queue or buffer is in memory that the host does not share: start the virtual machine with memory-backend-memfd,share=on"
            );
        }
    }

    /// Whether a host has it enabled and has not shut it down: to lose power now would be unsafe.
    pub(crate) fn is_in_use(&self) -> bool {
        self.life.phase == Phase::Ready && !self.life.shutdown.is_complete()
    }

    /// Whether a shutdown was asked for and no reset came since: no new queues then.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.life.shutdown != Shutdown::None
    }

    fn advance_shutdown<C: Channel>(
        &mut self,
        channels: &mut Channels<C>,
        lanes: &mut impl LaneTable,
    ) -> bool {
        if matches!(self.life.phase, Phase::Stopping(_)) {
            return false;
        }
        match std::mem::replace(&mut self.life.shutdown, Shutdown::None) {
            Shutdown::None => {
                let wanted = self.wants_shutdown();
                if wanted {
                    self.registers
                        .set_shutdown_status(ShutdownStatus::OCCURRING);
                    self.tell_lanes(lanes, || LaneCommand::Stop);
                    self.life.shutdown = Shutdown::Draining(self.now + DEADLINE_NS);
                }
                wanted
            }
            Shutdown::Draining(deadline) => {
                if self.now >= deadline {
                    self.tell_lanes(lanes, || LaneCommand::AbandonAll);
                }
                self.take_events(lanes);
                let drained = !self.queues.has_lanes();
                self.life.shutdown = if drained {
                    Shutdown::Flushing(self.begin_flush())
                } else {
                    Shutdown::Draining(deadline)
                };
                drained
            }
            Shutdown::Flushing(mut flush) => {
                let added = flush.add(self.key, &self.view, channels);
                let ended = flush.ended(self.now);
                match ended {
                    Some(flushed) => self.end_shutdown(flushed),
                    None => self.life.shutdown = Shutdown::Flushing(flush),
                }
                added || ended.is_some()
            }
            Shutdown::Complete => {
                self.life.shutdown = Shutdown::Complete;
                false
            }
        }
    }

    /// Begins to flush every medium with a volatile cache.
    pub(super) fn begin_flush(&mut self) -> Flush {
        let deadline = self.now + FLUSH_DEADLINE_NS;
        self.flushes.begin(&self.attached.table, deadline)
    }

    fn end_shutdown(&mut self, flushed: Flushed) {
        self.life.shutdown = Shutdown::Complete;
        self.registers.set_shutdown_status(ShutdownStatus::COMPLETE);
        if flushed == Flushed::Failed {
            self.fail_flush();
        }
    }

    /// The shutdown is over, but the host learns that it must not rely on it.
    fn fail_flush(&mut self) {
        self.registers.set_fatal();
        let cause = Failure::NotFlushed;
        tracing::warn!(controller = self.config.name, %cause, "controller failed");
    }

    /// A flush of its own has ended.
    pub fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        let (_, generation) = ticket.fulfil();
        let shutdown = match &mut self.life.shutdown {
            Shutdown::Flushing(flush) => Some(flush),
            _ => None,
        };
        for flush in shutdown.into_iter().chain(&mut self.flushes.of_cache) {
            flush.complete(generation, outcome);
        }
    }

    /// Whether the next turn continues a reset, shutdown or start, independently of lanes and
    /// media.
    pub(super) fn is_moving(&self) -> bool {
        let phase = match self.life.phase {
            Phase::Stopping(stopping) => stopping.deadline.is_none() || !self.queues.has_lanes(),
            Phase::Disabled => self.registers.cc().en(),
            Phase::Ready | Phase::Failed => false,
        };
        let shutdown = match &self.life.shutdown {
            Shutdown::None => {
                self.wants_shutdown() && !matches!(self.life.phase, Phase::Stopping(_))
            }
            Shutdown::Draining(_) => !self.queues.has_lanes(),
            Shutdown::Flushing(flush) => flush.is_done(),
            Shutdown::Complete => false,
        };
        let cache = self.flushes.of_cache.as_ref().is_some_and(Flush::is_done);
        phase || shutdown || cache || self.registers.reset_wanted() && !self.is_resetting()
    }

    /// Whether a reset, a start, a shutdown or a flush of its own is in progress.
    pub(super) fn is_transient(&self) -> bool {
        let shuts = matches!(
            self.life.shutdown,
            Shutdown::Draining(_) | Shutdown::Flushing(_)
        );
        matches!(self.life.phase, Phase::Stopping(_))
            || shuts
            || self.flushes.of_cache.is_some()
            || self.is_moving()
    }

    fn wants_shutdown(&self) -> bool {
        let shn = self.registers.cc().shn();
        shn == ShutdownNotification::NORMAL || shn == ShutdownNotification::ABRUPT
    }

    /// Deadline of the current stage.
    pub(super) fn stage_deadline(&self) -> Option<Time> {
        let stopping = match self.life.phase {
            Phase::Stopping(stopping) => stopping.deadline,
            _ => None,
        };
        let shutdown = match &self.life.shutdown {
            Shutdown::Draining(deadline) => Some(*deadline),
            Shutdown::Flushing(flush) => Some(flush.deadline),
            Shutdown::None | Shutdown::Complete => None,
        };
        let cache = self.flushes.of_cache.as_ref().map(|flush| flush.deadline);
        stopping.into_iter().chain(shutdown).chain(cache).min()
    }
}
