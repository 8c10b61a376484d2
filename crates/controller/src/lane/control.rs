//! Requests of the controller to a lane, and the lane's reports.

use std::sync::Arc;

use memory::DmaView;
use nvme_spec::Status;

use super::Lane;
use super::fetch::BATCH;
use super::member::Member;
use super::message::{AbortRequest, Demand, LaneCommand, LaneEvent, QueueName, Quota, SqSpec};
use super::queues::Queues;
use super::restore::{is_write, leaves_half};
use super::service::Awaits;
use super::watch::Watch;
use crate::flight::Watching;
use crate::queue::Sq;
use crate::state::{SlotState, SqLife, SqState, ordered};

impl Quota {
    /// The initial limit of commands to fetch for a submission queue.
    pub(super) fn at_first(self) -> u32 {
        match self {
            Quota::Each(commands) => commands.clamp(1, BATCH),
            Quota::Allotted => 0,
        }
    }
}

impl Lane {
    /// Executes a command of the controller. Answers come from [`Lane::take_event`].
    pub fn command(&mut self, command: LaneCommand) {
        match command {
            LaneCommand::Map(view) => {
                self.queues.resolve(&view);
                self.view = view;
            }
            LaneCommand::Namespaces { table, generation } => {
                self.namespaces = table;
                self.queues.epochs.advance_table(generation);
            }
            LaneCommand::AddQueue(spec) => self.queues.add_queue(spec, &self.view),
            LaneCommand::RemoveQueue { sqid } => self.queues.remove_queue(sqid),
            LaneCommand::Abort(request) => {
                let aborted = self.queues.abort(request);
                let done = LaneEvent::AbortDone { request, aborted };
                self.queues.reports.add(done);
            }
            LaneCommand::Shadow(None) => self.queues.forget_shadow(),
            LaneCommand::Shadow(Some(registration)) => match registration.spec().find(&self.view) {
                Ok(shadow) => self.queues.register(shadow, &registration),
                Err(_) => {
                    let queue = QueueName::Completion(self.cqid());
                    self.queues.ring_lost(queue);
                }
            },
            LaneCommand::WriteThrough(on) => self.write_through = on,
            LaneCommand::Quota(quota) => self.queues.set_quota(quota),
            LaneCommand::Copying(copying) => self.copying = copying,
            LaneCommand::Watch(watching) => self.queues.set_watching(watching),
            LaneCommand::Stop => self.queues.stop(),
            LaneCommand::Abandon { before_epoch } => self
                .queues
                .abandon(|slot| !slot.counted.in_subsystem() && slot.epoch < before_epoch),
            LaneCommand::AbandonIssued => self.queues.abandon(|slot| !slot.counted.in_subsystem()),
            LaneCommand::AbandonAll => self.queues.abandon_all(),
            LaneCommand::LeaveBus { round, idle } => self.queues.service.leave_bus(round, idle),
            LaneCommand::TakeBus => self.queues.service.take_bus(),
            LaneCommand::Pause => self.queues.service.set_to_move(true),
            LaneCommand::Resume => self.queues.service.set_to_move(false),
            LaneCommand::ReleaseCopies => self.queues.release_copies(),
            LaneCommand::Release => self.queues.release(),
        }
    }

    /// Number of commands that a submission queue of the lane has to fetch. For weighted round
    /// robin, before each turn.
    pub fn demand(&mut self, sqid: u16) -> Demand {
        self.queues.demand(sqid)
    }

    /// Sets how many commands of a submission queue may be fetched in the next turn, if quotas are
    /// allotted.
    pub fn allot(&mut self, sqid: u16, commands: u32) {
        if let Some(position) = self.queues.position(sqid)
            && let Some(member) = self.queues.member(position)
        {
            member.quota = commands;
        }
    }

    /// The next thing to tell the controller.
    pub fn take_event(&mut self) -> Option<LaneEvent> {
        self.queues.take_event()
    }
}

impl Queues {
    /// The position of a submission queue that is there.
    fn position(&self, sqid: u16) -> Option<usize> {
        let position = usize::from(sqid).checked_sub(1)?;
        self.sqs.get(position)?.is_some().then_some(position)
    }

    fn set_quota(&mut self, quota: Quota) {
        self.quota = quota;
        for member in self.sqs.iter_mut().flatten() {
            member.quota = quota.at_first();
        }
    }

    fn set_watching(&mut self, watching: Option<Watching>) {
        match (watching, &mut self.watch) {
            (Some(watching), Some(watch)) => watch.set(watching),
            (Some(watching), None) => self.watch = Some(Watch::new(watching, self.slots.len())),
            (None, _) => {
                // what is watched is a place in what ends here
                (0..self.slots.len() as u16)
                    .for_each(|index| self.slots.slot(index).marks.set_sample(None));
                self.watch = None;
            }
        }
    }

    fn demand(&mut self, sqid: u16) -> Demand {
        if self.service.is_still() {
            return Demand::default();
        }
        self.look_at_cq();
        let Some(position) = self.position(sqid) else {
            return Demand::default();
        };
        let Some(available) = self.look_at_sq(position) else {
            return Demand::default();
        };
        let waits = matches!(&self.sqs[position], Some(member) if member.waiting.is_some());
        Demand {
            commands: if waits {
                0
            } else {
                available.min(self.room(position))
            },
            waits,
        }
    }

    fn add_queue(&mut self, spec: SqSpec, view: &Arc<DmaView>) {
        let SqSpec {
            sqid,
            entries,
            base,
            mut ring,
            initial,
        } = spec;
        let position = usize::from(sqid) - 1;
        debug_assert!(
            self.sqs[position].is_none(),
            "the controller knows its queues"
        );
        // The map may have changed since the ring was found.
        ring.resolve(view);
        let mut sq = Sq::from_ring(sqid, ring, entries, self.doorbells.bells(), initial);
        let known = sq.saved_bell();
        if self.sqs[position].is_none() {
            self.order.push(position as u8);
        }
        self.sqs[position] = Some(Member {
            sq,
            outstanding: 0,
            waiting: None,
            removing: false,
            quota: self.quota.at_first(),
        });
        if let Some(watch) = &mut self.watch {
            watch.forget(position);
        }
        let saved = &mut self.slots.queue().sqs[position];
        *saved = SqState {
            base: base.0,
            entries,
            sqid,
            shadow: known.0,
            bell: known.1,
            ..SqState::default()
        };
        ordered();
        saved.life = SqLife::LIVE;
        ordered();
        self.recount();
    }

    fn remove_queue(&mut self, sqid: u16) {
        let Some(position) = self.position(sqid) else {
            self.reports.add(LaneEvent::QueueRemoved { sqid });
            return;
        };
        self.slots.queue().sqs[position].life = SqLife::REMOVING;
        let Some(member) = self.member(position) else {
            return;
        };
        member.removing = true;
        let waiting = member.waiting.take();
        if member.outstanding == 0 {
            return self.remove(position);
        }
        self.drop_replays(Status::ABORTED_SQ_DELETION, |slot| {
            slot.sqid() == sqid && !leaves_half(slot)
        });
        self.drop_steps(Status::ABORTED_SQ_DELETION, |slot| slot.sqid() == sqid);
        self.drop_held(Status::ABORTED_SQ_DELETION, |slot| slot.sqid() == sqid);
        if let Some(slot) = waiting {
            self.drop_waiting(slot, Status::ABORTED_SQ_DELETION);
        }
    }

    /// Aborts a command that waits for its channel, or for its next step. True where it was found,
    /// by this process or by the one before it.
    fn abort(&mut self, request: AbortRequest) -> bool {
        let AbortRequest { sqid, cid, number } = request;
        if self.slots.queue().aborts.has(number) {
            return true;
        }
        let named = |slot: &SlotState| (slot.sqid(), slot.cid()) == (sqid, cid);
        if let Some(index) = self.take_step(named) {
            self.note_abort(index, number);
            self.finish(index, Status::COMMAND_ABORT_REQUESTED);
            return true;
        }
        let found = self.take_held(named).or_else(|| {
            let position = self.position(sqid)?;
            let index = self.sqs[position].as_ref()?.waiting?;
            named(self.slots.get(index)).then_some(index)
        });
        let Some(index) = found else {
            return false;
        };
        if let Some(member) = self.member(usize::from(sqid) - 1)
            && member.waiting == Some(index)
        {
            member.waiting = None;
        }
        self.note_abort(index, number);
        self.drop_waiting(index, Status::COMMAND_ABORT_REQUESTED);
        true
    }

    /// From now on the command in a slot ends as aborted, and the Abort with this number says so.
    #[cold]
    fn note_abort(&mut self, index: u16, number: u32) {
        let (queue, slot) = self.slots.parts(index);
        queue.aborts.store(number, index, slot);
    }

    fn stop(&mut self) {
        if self.service.stop() {
            self.drop_what_waits();
            self.drop_replays(Status::COMMAND_ABORT_REQUESTED, |slot| !is_write(slot));
            // Copies would wait for other lanes.
            self.drop_late();
        }
    }

    /// Completes everything that waits here for a medium, a step or a turn as aborted, except for
    /// commands of a process that died.
    fn drop_what_waits(&mut self) {
        for position in 0..self.sqs.len() {
            let waiting = self.member(position).and_then(|m| m.waiting.take());
            if let Some(index) = waiting {
                self.drop_waiting(index, Status::COMMAND_ABORT_REQUESTED);
            }
        }
        self.drop_steps(Status::COMMAND_ABORT_REQUESTED, |_| true);
        self.drop_held(Status::COMMAND_ABORT_REQUESTED, |_| true);
    }

    /// Aborts everything that has not ended; if the bus is left, also commands that wait here.
    fn abandon_all(&mut self) {
        if self.service.is_leaving() {
            self.drop_what_waits();
        }
        let all = self.service.is_leaving() || !self.service.is_serving();
        let members = self.sqs.iter().map(Option::as_ref);
        let removing = members.map(|it| it.is_some_and(|member| member.removing));
        let removing: Vec<bool> = removing.collect();
        self.drop_replays(Status::COMMAND_ABORT_REQUESTED, |slot| {
            all || removing[usize::from(slot.sqid()) - 1]
        });
        self.abandon(|_| true);
    }

    /// Aborts `chosen` commands with tickets out.
    fn abandon(&mut self, chosen: impl Fn(&SlotState) -> bool) {
        let hangs = |slot: &SlotState| {
            slot.state().has_reservation() && slot.outstanding > 0 && chosen(slot)
        };
        let hanging: Vec<u16> = self
            .slots
            .iter()
            .filter(|(_, slot)| hangs(slot))
            .map(|(index, _)| index)
            .collect();
        for index in hanging {
            self.give_up(index);
        }
    }

    /// True where [`Queues::take_event`] has something.
    #[inline]
    pub(super) fn has_event(&self) -> bool {
        self.reports.is_any(&self.epochs) || self.service.is_ending() && self.comes_to_rest()
    }

    /// Whether the last command that a stop or the bus waits for has just ended. Asked only where
    /// the service is ending, so that the turn of any other lane is inlined whole.
    #[cold]
    fn comes_to_rest(&self) -> bool {
        match self.service.awaits() {
            None => false,
            Some(Awaits::Media) => self.in_flight == 0 && self.replays.left.is_empty(),
            Some(Awaits::Commands) => self.outstanding() == 0,
            Some(Awaits::Replays) => self.outstanding() == self.replays.late.len(),
            Some(Awaits::Idle) => self.slots.free() as usize == self.slots.len(),
        }
    }

    /// Commands without a completion.
    fn outstanding(&self) -> usize {
        let members = self.sqs.iter().flatten();
        members.map(|member| member.outstanding as usize).sum()
    }

    fn take_event(&mut self) -> Option<LaneEvent> {
        let report = self.reports.take(&self.epochs);
        if report.is_some() || !self.service.is_ending() || !self.comes_to_rest() {
            return report;
        }
        let copies = self.replays.late.iter().any(|one| self.copies(one));
        self.service.come_to_rest(copies)
    }

    /// True where a turn would find something to do.
    pub(super) fn has_work(&self) -> bool {
        if self.service.is_still() {
            return self.service.replays();
        }
        let bells = self.doorbells.bells();
        let busy = |position: &u8| {
            let position = usize::from(*position);
            let Some(member) = &self.sqs[position] else {
                return false;
            };
            if member.removing || member.waiting.is_some() || self.service.is_paused() {
                return false;
            }
            let known = member.sq.available() > 0 && self.room(position) > 0;
            known || member.sq.has_news(bells)
        };
        let stepping = self.steps.as_ref().is_some_and(|steps| steps.is_due());
        self.kicked
            || stepping
            || self.order.iter().any(busy)
            || self.blocked && self.cq.has_news(bells)
    }
}
