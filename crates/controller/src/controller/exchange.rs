//! Turns, and the messages between the controller and its lanes in them.

use nvme_spec::Status;
use nvme_spec::features::FeatureId;
use nvme_spec::log::CriticalWarning;
use nvme_spec::registers::CommandSetSelected;
use port::namespace::Namespace;
use port::ticket::OwnerKey;
use port::time::Time;
use port::{Channel, ChannelId, Channels};
use subsystem::Subsystem;

use super::admin::access::AnaLog;
use super::admin::error_log::{LoggedCommand, LoggedError};
use super::admin::events::Event;
use super::admin::{Waiting, abort_dw0};
use super::lifecycle::Phase;
use super::news::Due;
use super::{Controller, DEADLINE_NS, Failure};
use crate::lane::{
    AbortRequest, Copying, FailedCommand, LaneCommand, LaneEvent, LaneFault, LaneTable, QueueName,
};

impl Controller {
    /// One turn: takes the reports of lanes, continues register requests, and serves the admin
    /// queue. Returns whether it did anything.
    ///
    /// Due whenever [`Controller::has_work`], after any call that changed something (register
    /// writes, views, namespaces, completions), when a lane has an event, and at
    /// [`Controller::next_deadline`].
    pub fn turn<C: Channel>(
        &mut self,
        now: Time,
        channels: &mut Channels<C>,
        lanes: &mut impl LaneTable,
        subsystem: &mut Subsystem,
    ) -> bool {
        self.keep_time(now, lanes);
        let mut worked = self.follow(subsystem);
        worked |= self.tell_changes(lanes);
        worked |= self.take_events(lanes);
        worked |= self.take_forwards(lanes, subsystem);
        worked |= self.take_answers(lanes, subsystem);
        worked |= self.take_reservation_notices(subsystem);
        worked |= self.advance(channels, lanes);
        worked |= self.advance_cache_flush(channels, lanes, subsystem);
        self.give_up_late(lanes);
        if self.life.phase == Phase::Ready {
            worked |= self.serve_admin(lanes, subsystem);
            // A lane answers most commands at once.
            worked |= self.take_events(lanes);
            self.arbitrate(lanes);
        }
        self.check_keep_alive();
        self.acknowledge(lanes, subsystem);
        self.keep_health(subsystem);
        self.rewatch();
        worked
    }

    /// Takes changes of the subsystem.
    fn follow(&mut self, subsystem: &mut Subsystem) -> bool {
        if self.life.followed != self.life.number {
            self.life.followed = self.life.number;
            if let Some(last) = subsystem.controller_was_reset(self.id) {
                self.admin.notifications.skip(last);
                self.save();
            }
            self.logs.ana = AnaLog::default();
            self.follow_access(subsystem);
            self.host.stays();
        }
        self.introduce_host(subsystem);
        self.follow_sanitize(subsystem);
        let all_sets = self.registers.cc().css() == CommandSetSelected::ALL_SUPPORTED;
        if !self.attached.follow(self.id, all_sets, subsystem) {
            return false;
        }
        self.news.namespaces_changed();
        self.follow_access(subsystem);
        let exists = |nsid| subsystem.directory().get(nsid).is_some();
        if self.features.forget_namespaces(exists) {
            self.keep_saved_features(subsystem);
        }
        let changed = subsystem.take_changed(self.id);
        // A host that is not there yet looks for itself.
        if changed.is_empty() || self.admin.queue.is_none() {
            return true;
        }
        changed
            .into_iter()
            .for_each(|nsid| self.logs.changed_namespaces.add(nsid));
        self.raise(Event::NamespaceChanged);
        self.save();
        true
    }

    /// Reports to the subsystem the latest table without older commands in flight, and aborts
    /// commands that delay an operation too long.
    fn acknowledge(&mut self, lanes: &mut impl LaneTable, subsystem: &mut Subsystem) {
        let with_lane = self.queues.cqs().filter(|(_, cq)| cq.lane.is_some());
        let oldest = with_lane.map(|(_, cq)| cq.namespaces_drained).min();
        let drained = oldest.unwrap_or(self.attached.generation);
        subsystem.acknowledge(self.id, drained.min(self.attached.generation));
        if subsystem.wants_abandon(self.id) {
            for (_, cq) in self.queues.cqs() {
                let late = cq.namespaces_drained < self.attached.generation;
                if let Some(key) = cq.lane.filter(|_| late) {
                    // The subsystem may have the very command that waits.
                    lanes.command(key, LaneCommand::AbandonIssued);
                }
            }
        }
    }

    /// Whether a turn would find work, as far as the controller can know without its lanes.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let admin = self.admin.queue.as_ref().is_some_and(|admin| {
            let bells = admin.bells(&self.doorbells.pages);
            let submitted = admin.sq.available() > 0 || admin.sq.has_news(bells);
            let to_tell = self.admin.events.has_next() || !self.admin.aborted_requests.is_empty();
            let places = admin.cq.free() > 0 || admin.cq.has_news(bells);
            (submitted || to_tell) && places
        });
        let admin = admin && self.serves_admin();
        admin
            || self.news.is_due()
            || self.bus.has_work()
            || self.is_moving()
            || self.interrupts.has_work()
    }

    /// Whether its lanes have received all of its messages.
    #[must_use]
    pub fn has_told_everything(&self) -> bool {
        !self.news.is_due() && !self.bus.has_work()
    }

    /// When a turn is due because something took too long.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let pending = self.admin.pending.iter().filter(|c| c.waiting.is_bounded());
        let pending = pending.map(|command| command.since + DEADLINE_NS);
        let withheld = self.interrupts_due();
        let absent = self.admin.absent_since.map(|since| since + DEADLINE_NS);
        let stage = self.stage_deadline().into_iter();
        let silent = self.keep_alive_deadline();
        let bus = self.bus.deadline();
        let others = stage.chain(silent).chain(withheld);
        pending.chain(absent).chain(others).chain(bus).min()
    }

    /// Updates the time counters of the health log.
    fn keep_time(&mut self, now: Time, lanes: &mut impl LaneTable) {
        if std::mem::replace(&mut self.health.is_timed, true) {
            let passed_ns = now.since(self.now);
            self.health.history.powered_ns += passed_ns;
            let mut busy = false;
            for cq in self.queues.cqs_mut() {
                let Some(key) = cq.lane else { continue };
                busy |= match lanes.local(key) {
                    Some(lane) => lane.in_flight() > 0,
                    // How much a visitor has in flight is not known here; that it has completed
                    // something is.
                    None => cq.has_completed_more(),
                };
            }
            if busy {
                self.health.history.busy_ns += passed_ns;
            }
        }
        self.now = now;
    }

    /// Sends a command to every lane that lives.
    pub(crate) fn tell_lanes(&self, lanes: &mut impl LaneTable, command: impl Fn() -> LaneCommand) {
        for key in self.queues.lanes() {
            lanes.command(key, command());
        }
    }

    /// Informs lanes of changes since the last turn.
    fn tell_changes(&mut self, lanes: &mut impl LaneTable) -> bool {
        let Due {
            view,
            namespaces,
            abandon_before,
        } = self.news.take();
        if view {
            self.tell_lanes(lanes, || LaneCommand::Map(self.view.clone()));
        }
        if namespaces {
            self.tell_lanes(lanes, || LaneCommand::Namespaces {
                table: self.attached.table.clone(),
                generation: self.attached.generation,
            });
        }
        if let Some(before_epoch) = abandon_before {
            self.tell_lanes(lanes, || LaneCommand::Abandon { before_epoch });
        }
        let bus = self.bus.is_changing() && self.advance_bus(lanes);
        view || namespaces || abandon_before.is_some() || bus
    }

    /// Forwards the lanes' commands to the subsystem. At a reset they end here: the host has no
    /// identifier any more, so that a registration would be another host's.
    fn take_forwards(&mut self, lanes: &mut impl LaneTable, subsystem: &mut Subsystem) -> bool {
        let mut worked = false;
        for key in self.queues.lanes() {
            while let Some(forward) = lanes.take_forward(key) {
                worked = true;
                if self.life.phase != Phase::Ready {
                    lanes.answer(forward.ticket, Err(Status::COMMAND_ABORT_REQUESTED));
                    continue;
                }
                subsystem.forwarded(self.id, forward);
            }
        }
        worked
    }

    /// Takes every event that lanes have.
    pub(super) fn take_events(&mut self, lanes: &mut impl LaneTable) -> bool {
        let mut worked = false;
        for cqid in 1..=self.queues.highest() {
            let Some(key) = self.queues.lane_of_cq(cqid) else {
                continue;
            };
            while let Some(event) = lanes.take_event(key) {
                worked = true;
                if event == LaneEvent::Stopped {
                    self.lane_stopped(cqid, key, lanes);
                    break;
                }
                self.lane_event(cqid, event);
            }
        }
        worked
    }

    fn lane_event(&mut self, cqid: u16, event: LaneEvent) {
        match event {
            LaneEvent::QueueRemoved { sqid } => self.sq_removed(sqid),
            LaneEvent::Replayed { copies } => {
                if let Some(cq) = self.queues.cq_mut(cqid) {
                    (cq.replayed, cq.copies) = (true, copies);
                }
            }
            LaneEvent::AbortDone { request, aborted } => {
                if let Some(by) = self.admin.pending.take(Waiting::Abort(request)) {
                    self.complete_admin(by, Ok(abort_dw0(aborted)));
                }
            }
            LaneEvent::Drained { epoch } => {
                if let Some(cq) = self.queues.cq_mut(cqid) {
                    cq.drained = cq.drained.max(epoch);
                }
            }
            LaneEvent::NamespacesDrained { generation } => {
                if let Some(cq) = self.queues.cq_mut(cqid) {
                    cq.namespaces_drained = cq.namespaces_drained.max(generation);
                }
            }
            LaneEvent::Answered { name } => self.answered.push(name),
            LaneEvent::LeftBus { round } => self.lane_left_bus(cqid, round),
            LaneEvent::CommandFailed(failed) => self.command_failed(&failed),
            LaneEvent::Fault(LaneFault::InvalidDoorbell { queue, .. }) => {
                self.doorbells.watch.ignore(queue);
                let (QueueName::Submission(qid) | QueueName::Completion(qid)) = queue;
                self.bad_doorbell(qid);
            }
            LaneEvent::Fault(LaneFault::RingAbsent { queue }) => tracing::debug!(
                controller = self.config.name,
                ?queue,
                "a doorbell was rung for a queue whose memory is not mapped: nothing is fetched from it until it is mapped again"
            ),
            LaneEvent::Fault(LaneFault::RingLost { .. }) => self.fail(Failure::QueueLost),
            // Taken before: it needs the table of lanes.
            LaneEvent::Stopped => (),
        }
    }

    fn sq_removed(&mut self, sqid: u16) {
        self.queues.remove_sq(sqid);
        if let Some(by) = self.admin.pending.take(Waiting::DeleteSq { sqid }) {
            self.complete_admin(by, Ok(0));
        }
    }

    /// Removes a stopped lane without commands in flight. Deletions of its submission queues were
    /// answered by its earlier reports.
    fn lane_stopped(&mut self, cqid: u16, key: OwnerKey, lanes: &mut impl LaneTable) {
        lanes.remove(key);
        if let Some(cq) = self.queues.cq_mut(cqid) {
            cq.lane = None;
        }
        if let Some(by) = self.admin.pending.take(Waiting::DeleteCq { cqid }) {
            self.forget_cq(cqid);
            self.complete_admin(by, Ok(0));
        }
    }

    /// Whether this command waits for the lane of that completion queue.
    fn waits_for(&self, waiting: Waiting, cqid: u16) -> bool {
        match waiting {
            Waiting::FlushCache | Waiting::Operation => false,
            Waiting::DeleteCq { cqid: waited } => waited == cqid,
            Waiting::DeleteSq { sqid } | Waiting::Abort(AbortRequest { sqid, .. }) => {
                self.queues.cqid_of_sq(sqid) == Some(cqid)
            }
        }
    }

    /// Deletions that waited too long: hanging commands of their lanes are aborted, whichever queue
    /// of the lane they belong to.
    fn give_up_late(&mut self, lanes: &mut impl LaneTable) {
        let now = self.now;
        let late = |since: Time| now >= since + DEADLINE_NS;
        if !self.admin.pending.iter().any(|command| late(command.since)) {
            return;
        }
        for cqid in 1..=self.config.queues {
            let waits = |waiting| self.waits_for(waiting, cqid);
            let is_late = self
                .admin
                .pending
                .iter()
                .any(|c| late(c.since) && waits(c.waiting));
            if let Some(key) = self.queues.lane_of_cq(cqid).filter(|_| is_late) {
                lanes.command(key, LaneCommand::AbandonAll);
            }
        }
    }

    /// Removes a completion queue whose lane is gone; its counts are kept.
    pub(crate) fn forget_cq(&mut self, cqid: u16) {
        if let Some(cq) = self.queues.remove_cq(cqid) {
            cq.counters.add_to(&mut self.health.history);
            self.keep_flight(cqid, &cq);
        }
    }

    /// Forgets every queue.
    pub(super) fn forget_all_queues(&mut self) {
        for qid in 1..=self.config.queues {
            self.forget_cq(qid);
            self.queues.remove_sq(qid);
        }
    }

    /// Limits of Copy commands.
    pub(crate) fn copying(&self) -> Copying {
        Copying {
            across: self.features.copy_formats().cdf2(),
            namespace_limit: self.attached.limit,
        }
    }

    /// Applies the effects of a feature that was set.
    pub(crate) fn apply_features(&mut self, fid: FeatureId, lanes: &mut impl LaneTable) {
        match fid {
            FeatureId::ARBITRATION => {
                self.arbiter = self.new_arbiter();
                self.tell_lanes(lanes, || LaneCommand::Quota(self.quota()));
            }
            FeatureId::HOST_BEHAVIOR_SUPPORT => {
                self.news.count();
                self.tell_lanes(lanes, || LaneCommand::Copying(self.copying()));
            }
            FeatureId::TEMPERATURE_THRESHOLD => {
                let beyond = self.health().critical_warning().ttc();
                self.raise_warnings(CriticalWarning::new().with_ttc(beyond));
            }
            FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION => {
                // Events that are not asked for any more are not reported either.
                self.admin
                    .events
                    .configure(self.features.event_configuration());
                self.check_health();
            }
            FeatureId::KEEP_ALIVE_TIMER => self.restart_keep_alive(),
            _ => (),
        }
    }

    /// Raises an event for every bit that the critical warning has set (Base 2.1, 5.1.2.1).
    pub(super) fn check_health(&mut self) {
        self.raise_warnings(self.health().critical_warning());
    }

    /// A lane has a failure for the error log.
    fn command_failed(&mut self, failed: &FailedCommand) {
        let zone = self.attached.table.get(failed.nsid).and_then(|namespace| {
            let set = namespace.set.as_ref()?;
            set.zone_of(namespace, failed.lba)
        });
        // A zone that cannot be written is read only from here on (ZNS 1.1, 2.1.1.3).
        let not_written = [Status::WRITE_FAULT, Status::CAPACITY_EXCEEDED];
        if let Some(zslba) = zone.filter(|_| not_written.contains(&failed.status)) {
            self.logs.changed_zones.add(failed.nsid, zslba);
            self.raise(Event::ZoneChanged);
            self.save();
        }
        if failed.status == Status::DATA_TRANSFER_ERROR && self.is_unshared(failed.data) {
            self.warn_unshared();
        }
        self.logs.errors.add(LoggedError {
            command: Some(LoggedCommand {
                sqid: failed.sqid,
                cid: failed.cid,
                opcode: failed.opcode,
            }),
            status: failed.status,
            nsid: failed.nsid,
            lba: failed.lba,
        });
    }

    /// A zone of a medium is in another state, and no host has asked for that: the zone that begins
    /// at this byte of it.
    pub fn zone_changed(&mut self, channel: ChannelId, offset: u64) {
        let changed = |namespace: &Namespace| {
            let extent = namespace.extent();
            let at = offset.checked_sub(extent.offset)?;
            let is_inside = namespace.channel == channel && at < extent.len;
            let set = namespace.set.as_ref().filter(|_| is_inside)?;
            let zslba = set.zone_of(namespace, at >> namespace.lba_shift)?;
            Some((namespace.nsid, zslba))
        };
        let found = self.attached.table.iter().find_map(changed);
        if let Some((nsid, zslba)) = found {
            self.logs.changed_zones.add(nsid, zslba);
            self.raise(Event::ZoneChanged);
            self.save();
        }
    }

    /// Raises an event, where the host asked for it.
    pub(crate) fn raise(&mut self, event: Event) {
        self.admin
            .events
            .raise(event, self.features.event_configuration());
    }
}
