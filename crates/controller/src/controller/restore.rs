//! A controller of a process that died: what it left is checked, and its life goes on.
//!
//! Invariants:
//! - Restoring posts nothing but the admin completion that was being posted, with the same
//!   contents: the host may have consumed it.
//! - Every admin command completes once: it was completed, is fetched again, goes on waiting, or is
//!   executed again, with the answer of the subsystem's record if its effect is there. Held
//!   requests stay held.
//! - It is no power cycle: features, registers, configuration space and queues are as they were. A
//!   reset that was going on begins again, and a shutdown too.
//!
//! It does NOT restore what the subsystem did: its record has that, with the commands' answers.

use std::sync::Arc;

use memory::{DmaView, DoorbellPages, Iova, StateFile};
use nvme_spec::Cqe;
use nvme_spec::command::QueuePriority;
use nvme_spec::log::LogPageId;
use nvme_spec::registers::{CommandSetSelected, ShutdownStatus};
use port::namespace::Namespace;
use subsystem::Subsystem;

use super::Controller;
use super::admin::events::{Event, Events};
use super::admin::features::Values;
use super::admin::reservations::Notifications;
use super::admin::{AdminLeft, AdminQueue, Waiting};
use super::failure::{Failure, RestoreError};
use super::lifecycle::{Phase, Shutdown};
use super::saved::{ControllerState, Found, Saved, WaitingKind, WaitingState};
use crate::config::ControllerConfig;
use crate::lane::{
    AbortRequest, KnownSq, LaneCommand, LaneTable, QueueName, Registration, ShadowSpec,
};
use crate::state::TailPhase;

/// State that a process that died has left of a controller.
#[derive(Clone, Debug)]
pub struct Left {
    /// Its state file.
    pub file: Arc<StateFile>,
    /// Its doorbells.
    pub doorbells: Arc<DoorbellPages>,
    /// The memory of its host.
    pub view: Arc<DmaView>,
    /// The process ended by its own fault, and not by a signal that others sent.
    pub crashed: bool,
}

impl Controller {
    /// The controller of a process that died, of which this is left. Its lanes are inserted into
    /// `lanes`. Give neither a turn before the media have ended what the process had asked for.
    /// They execute again what had to be, and fetch nothing before [`Controller::release`].
    ///
    /// # Errors
    /// The file is of another version or another controller, what it says contradicts itself, or a
    /// queue cannot be reached. Neither `subsystem` nor `lanes` has the controller then.
    pub fn restore(
        config: ControllerConfig,
        left: Left,
        subsystem: &mut Subsystem,
        lanes: &mut impl LaneTable,
    ) -> Result<Self, RestoreError> {
        let Left {
            file,
            doorbells,
            view,
            crashed,
        } = left;
        if config.is_over_fabrics() {
            return Err(RestoreError::Dynamic);
        }
        let (saved, found) = Saved::adopt(file, subsystem.namespace_limit())?;
        let mut controller = Self::with_state(config, doorbells, subsystem, saved)?;
        controller.view = view;
        let continued = controller.continue_life(&found, crashed, subsystem, lanes);
        if let Err(error) = continued {
            controller.drop_lanes(lanes);
            subsystem.leave(controller.id);
            return Err(error);
        }
        Ok(controller)
    }

    fn continue_life(
        &mut self,
        found: &Found,
        crashed: bool,
        subsystem: &mut Subsystem,
        lanes: &mut impl LaneTable,
    ) -> Result<(), RestoreError> {
        let record = subsystem.controller_record(self.id);
        let record = record.ok_or(RestoreError::Damaged("its subsystem has no record of it"))?;
        self.health.continue_life(&record.health);
        self.holds.restored();
        self.admin.is_restored = true;
        self.take_over(found);
        match &found.notifications {
            Some(words) => {
                let taken = Notifications::found(words);
                let taken = taken.ok_or(RestoreError::Damaged("too many notifications wait"))?;
                subsystem.continue_notices(self.id, taken.last());
                self.admin.notifications = taken;
            }
            // There is no room to save which it has taken.
            None => {
                subsystem.forget_notices(self.id);
            }
        }
        let identifier = self.features.current.host_identifier();
        subsystem.continue_host(self.id, identifier);
        let was_ready = self.life.phase == Phase::Ready;
        self.continue_reset();
        if self.life.phase == Phase::Ready {
            self.go_on(found, crashed, subsystem, lanes)?;
        } else if was_ready {
            self.finish_writes(found, crashed, subsystem, lanes);
        }
        Ok(())
    }

    /// The file with which another process can go on ([`Self::restore`]).
    #[must_use]
    pub fn state_file(&self) -> &Arc<StateFile> {
        self.saved.file()
    }

    /// Whether every command of the process that died has completed that may go on, as far as its
    /// lanes had them.
    #[must_use]
    pub fn has_replayed(&self) -> bool {
        let mut cqs = self.queues.cqs();
        !self.holds.until_release() || cqs.all(|(_, cq)| cq.replayed || cq.lane.is_none())
    }

    /// Lets a controller that was restored copy: every controller of the process has executed again
    /// what only writes ([`Controller::has_replayed`], which follows again).
    pub fn release_copies(&mut self, lanes: &mut impl LaneTable) {
        for cq in self.queues.cqs_mut() {
            if std::mem::take(&mut cq.copies)
                && let Some(key) = cq.lane
            {
                cq.replayed = !lanes.command(key, LaneCommand::ReleaseCopies);
            }
        }
    }

    /// Lets a controller that was restored fetch commands: every controller of the process has
    /// replayed ([`Controller::has_replayed`]), copies as well.
    pub fn release(&mut self, lanes: &mut impl LaneTable) {
        if self.holds.release() {
            if self.saved.is_old() {
                // Numbers of Aborts that wait are new.
                self.save();
                self.saved.renew_version();
            }
            self.tell_lanes(lanes, || LaneCommand::Release);
        }
    }

    /// Has its lanes fetch no more commands, so that another process can go on with none in flight.
    pub fn pause(&mut self, lanes: &mut impl LaneTable) {
        self.tell_lanes(lanes, || LaneCommand::Pause);
    }

    /// Has its lanes fetch commands again: no other process goes on.
    pub fn resume(&mut self, lanes: &mut impl LaneTable) {
        self.tell_lanes(lanes, || LaneCommand::Resume);
    }

    /// Registers, configuration space and features, and the phase that follows from them.
    fn take_over(&mut self, found: &Found) {
        let state = &found.state;
        self.registers.restore(&state.registers);
        let space = &mut self.function.config_space;
        space.restore(&state.pci, state.mastered != 0);
        self.follow_bus();
        if let Some(table) = &found.msix {
            self.function.msix.restore(table);
        }
        self.features.current = Values {
            controller: state.features,
            error_recovery: found.error_recovery.clone(),
            reservation_masks: found.reservation_masks.clone(),
        };
        self.admin.aborts = found.admin.aborts;
        let csts = self.registers.csts();
        self.life.phase = match (csts.cfs(), csts.rdy()) {
            (true, _) => Phase::Failed,
            (false, true) => Phase::Ready,
            (false, false) => Phase::Disabled,
        };
        if csts.shst() == ShutdownStatus::COMPLETE {
            self.life.shutdown = Shutdown::Complete;
        }
    }

    /// Queues and admin commands of a controller that was serving.
    fn go_on(
        &mut self,
        found: &Found,
        crashed: bool,
        subsystem: &mut Subsystem,
        lanes: &mut impl LaneTable,
    ) -> Result<(), RestoreError> {
        let all_sets = self.registers.cc().css() == CommandSetSelected::ALL_SUPPORTED;
        self.attached.follow(self.id, all_sets, subsystem);
        let [shadow, event_idx] = found.state.doorbell_buffers.map(Iova);
        let spec = ShadowSpec { shadow, event_idx };
        let (count, initial) = found.registration;
        self.doorbells.registrations = count;
        let registration = || Registration::restore(spec, count, initial);
        self.doorbells.shadow = (shadow.0 != 0).then(registration);
        self.restore_admin(found)?;
        if self.life.phase != Phase::Ready {
            // The completion queue is gone.
            return Ok(());
        }
        self.arbiter = self.new_arbiter();
        self.restart_keep_alive();
        if self.life.shutdown == Shutdown::None {
            let sqs = submission_queues(&found.state);
            self.restore_queues(found.state.cqs, &sqs, crashed, lanes)?;
        }
        for waiting in &found.waiting {
            self.wait_again(waiting, lanes)?;
        }
        Ok(())
    }

    /// The queues of a controller that is being reset: what they were writing may be half there,
    /// until it is executed again. Where they cannot be reached, the reset goes on without them.
    fn finish_writes(
        &mut self,
        found: &Found,
        crashed: bool,
        subsystem: &mut Subsystem,
        lanes: &mut impl LaneTable,
    ) {
        // A reset may have cleared what the host had selected.
        self.attached.follow(self.id, true, subsystem);
        let sqs = submission_queues(&found.state);
        if let Err(error) = self.restore_queues(found.state.cqs, &sqs, crashed, lanes) {
            tracing::debug!(controller = self.config.name, %error, "reset without its queues");
            self.drop_lanes(lanes);
            self.forget_all_queues();
        }
    }

    /// Removes its lanes, which have executed nothing: no turn has come.
    fn drop_lanes(&self, lanes: &mut impl LaneTable) {
        let lanes_of: Vec<_> = self.queues.lanes().collect();
        lanes_of.into_iter().for_each(|key| lanes.remove(key));
    }

    /// The admin queue, and the requests that it holds.
    fn restore_admin(&mut self, found: &Found) -> Result<(), RestoreError> {
        let saved = &found.admin;
        let aqa = self.registers.aqa();
        let (sqs, cqs) = (u32::from(aqa.asqs_z()) + 1, u32::from(aqa.acqs_z()) + 1);
        if saved.sq_head >= sqs || u32::from(saved.cq_tail.tail()) >= cqs {
            return Err(RestoreError::Damaged(
                "a position of an admin queue is outside it",
            ));
        }
        if !saved.cq_tail.exists() {
            return Err(RestoreError::Damaged("it is ready without admin queues"));
        }
        let shadow = self.doorbells.shadow.as_ref();
        let shadow = shadow.map(|it| it.spec().find_again(&self.view));
        let shadow = shadow.transpose()?;
        let (asq, acq) = (self.registers.asq(), self.registers.acq());
        let tail = TailPhase::new()
            .with_tail(saved.cq_tail.tail())
            .with_phase(saved.cq_tail.phase());
        let left = AdminLeft {
            sq: (asq, sqs),
            cq: (acq, cqs),
            sq_head: saved.sq_head,
            cq_tail: tail,
            sq_bell: (saved.sq_shadow, saved.sq_bell),
            cq_bell: (saved.cq_shadow, saved.cq_bell),
            posting: saved.cq_tail.posting().then(|| Cqe::from_words(saved.cqe)),
        };
        let (mut admin, posted) = AdminQueue::restore(&self.view, &left, shadow)?;
        // Which entries the host has consumed.
        let looked = admin.look_at_head(&self.doorbells.pages);
        looked.map_err(|_| RestoreError::Damaged("the host has consumed what was not posted"))?;
        self.admin.queue = Some(admin);
        self.doorbells.watch.heed(QueueName::Submission(0));
        self.doorbells.watch.heed(QueueName::Completion(0));
        self.admin.events = Events::restore((saved.events_raised, saved.events_told));
        // Which namespaces have changed was not saved, nor which zones.
        if saved.unread.namespaces() || self.admin.events.has(Event::NamespaceChanged) {
            self.logs.changed_namespaces.add_others();
        }
        if saved.unread.zones() {
            let has_zones = |it: &&Namespace| {
                let set = it.set.as_ref();
                set.is_some_and(|set| set.zone_of(it, 0).is_some())
            };
            for namespace in self.attached.table.iter().filter(has_zones) {
                self.logs.changed_zones.add_others(namespace.nsid);
            }
        } else {
            self.admin.events.clear(LogPageId::CHANGED_ZONE_LIST);
        }
        for (at, cid) in saved.held_cids.iter().enumerate() {
            if at < saved.held as usize {
                self.admin.events.hold(*cid);
            }
            if saved.aborted >> at & 1 == 1 {
                self.admin.aborted_requests.push(saved.aborted_cids[at]);
            }
        }
        if saved.cq_tail.posting() {
            self.save_posted();
        }
        if posted.is_err() {
            self.fail(Failure::QueueLost);
        }
        Ok(())
    }

    /// Reserves an entry of the admin completion queue for a command that has not completed.
    fn keep_place(&mut self) -> Result<(), RestoreError> {
        let admin = self.admin.queue.as_mut();
        if admin.is_some_and(AdminQueue::reserve) {
            Ok(())
        } else {
            Err(RestoreError::Damaged(
                "there are more admin commands than places for completions",
            ))
        }
    }

    /// The number of an Abort that was saved, or a new one: older processes gave none.
    fn number_of_abort(&mut self, saved: u64) -> Result<u32, RestoreError> {
        let number = u32::try_from(saved).ok();
        let number = number.ok_or(RestoreError::Damaged("an Abort has no possible number"))?;
        if number != 0 {
            return Ok(number);
        }
        let new = self.new_abort();
        new.ok_or(RestoreError::Damaged("more Aborts wait than may"))
    }

    /// A command that waited waits again, or is to be executed again.
    fn wait_again(
        &mut self,
        waiting: &WaitingState,
        lanes: &mut impl LaneTable,
    ) -> Result<(), RestoreError> {
        let WaitingState {
            cid,
            kind,
            qid,
            target_cid,
            ..
        } = *waiting;
        self.keep_place()?;
        if kind == WaitingKind::ENDED {
            self.bus.withhold(waiting.completion());
            return Ok(());
        }
        self.admin.pending.note(waiting.command());
        let (waits, request) = match kind {
            WaitingKind::DELETE_SQ => {
                let request = LaneCommand::RemoveQueue { sqid: qid };
                let lane = self.queues.begin_deletion_of_sq(qid);
                (Waiting::DeleteSq { sqid: qid }, lane.zip(Some(request)))
            }
            WaitingKind::DELETE_CQ => {
                let lane = self.queues.begin_deletion_of_cq(qid);
                let waits = Waiting::DeleteCq { cqid: qid };
                (waits, lane.zip(Some(LaneCommand::Stop)))
            }
            WaitingKind::ABORT => {
                let (sqid, cid) = (qid, target_cid);
                let lane = self.queues.lane_of_sq(sqid);
                let number = self.number_of_abort(waiting.name)?;
                let request = AbortRequest { sqid, cid, number };
                let asked = LaneCommand::Abort(request);
                (Waiting::Abort(request), lane.zip(Some(asked)))
            }
            WaitingKind::FLUSH_CACHE => (Waiting::FlushCache, None),
            WaitingKind::OPERATION => (Waiting::Operation, None),
            _ => return Err(RestoreError::Damaged("a command waits for nothing known")),
        };
        self.admin.pending.add(cid, waits, self.now);
        let goes_on = request.is_some_and(|(key, request)| lanes.command(key, request));
        if !goes_on {
            self.admin.interrupted.push((cid, waits));
        }
        Ok(())
    }
}

/// The submission queues that were there, with their completion queues and priorities.
fn submission_queues(state: &ControllerState) -> Vec<(KnownSq, u16, QueuePriority)> {
    let there = (0..).zip(state.sq_cqids).filter(|(_, cqid)| *cqid != 0);
    let queue = |(at, cqid): (usize, u16)| {
        let sq = KnownSq {
            sqid: at as u16 + 1,
            base: Iova(state.sq_bases[at]),
            entries: u32::from(state.sq_sizes[at]) + 1,
        };
        (sq, cqid, QueuePriority(state.sq_priorities[at]))
    };
    there.map(queue).collect()
}
