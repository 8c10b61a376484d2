//! The reactor's thread: turns, periodic polls of the sockets, and sleep.

mod block_devices;
mod branches;
mod channels;
mod controllers;
mod exports;
mod front_ends;
mod mail;
mod sleep;
mod targets;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use controller::Controller;
use controller::counters::{Counted, HostCounted, ReactorCounters};
use controller::inspect::Look;
use engine::{ControllerSlot, Engine, EngineId, Mode, MoveError};
use machine::clock::Clock;
use media::{Medium, ZoneLoss, ZoneLossError};
use memory::sync::mailbox::Receiver;
use memory::{Bell, EventFd};
use port::ChannelId;
use port::time::Time;
use transport::nvme_tcp::DiscoveryLog;

use self::controllers::configure;
use self::front_ends::FrontEnds;
use super::answer::Answer;
use super::branches::Branches;
use super::hosted::Hosted;
use super::hosted::association::Attached;
use super::leaving::{Leaving, Whose};
use super::lines::Lines;
use super::looks::Looks;
use super::message::{Address, Message, Movable};
use super::poller::{Poller, Source, source_of};
use super::raiser::Raiser;
use super::relays::Relays;
use super::reports::Reports;
use super::snapshots::Snapshots;
use super::subsystems::Subsystems;
use super::taken::{STALL_NS, Taken};

/// A completion that falls due within the length of a turn is waited for with the clock alone, at
/// most for this time.
const DUE_WAIT_MAX_NS: u64 = 1_000;

/// A move in progress.
#[derive(Debug)]
struct AskedMove {
    slot: ControllerSlot,
    cqid: u16,
    answer: Answer<Result<(), MoveError>>,
}

/// State of a reactor.
#[derive(Debug)]
pub(crate) struct Reactor {
    engine: Engine<media::Channel>,
    hosted: Vec<Option<Hosted>>,
    subsystems: Subsystems,
    channels: Vec<(Arc<Medium>, ChannelId)>,
    relays: Relays,
    clock: Clock,
    poller: Poller,
    mailbox: Receiver<Message>,
    bell: Arc<Bell>,
    wake: EventFd,
    counters: Arc<ReactorCounters>,
    ready: Vec<Source>,
    /// Controllers that must be polled without an event.
    in_transition: Vec<usize>,
    /// Controllers with a deadline.
    timed: Vec<usize>,
    /// Controllers of hosts over NVMe/TCP and of NBD clients.
    associations: Vec<usize>,
    /// Front ends of vhost-user-blk.
    front_ends: FrontEnds,
    /// Queues of such hosts whose controllers are on other reactors.
    branches: Branches,
    /// Queues of this reactor's controllers that are served elsewhere, and where.
    away: Vec<(ControllerSlot, u16, EngineId)>,
    /// Reactors that know the tenants of this reactor's associations.
    told: Vec<(ControllerSlot, EngineId)>,
    /// Connections over NVMe/TCP that are to close.
    leaving: Leaving,
    /// Another process is about to take over: no host over NVMe/TCP, NBD client or front end is
    /// accepted.
    is_closed: bool,
    /// Subsystems that hosts can reach over a network.
    discovery: Arc<DiscoveryLog>,
    id: EngineId,
    mode: Mode,
    /// Addresses of the other reactors, and messages that did not fit into their mailboxes.
    peers: Vec<Address>,
    late: VecDeque<(EngineId, Message)>,
    /// Mail has come since the queues of other reactors' controllers were served last: an answer of
    /// a subsystem is a completion outside of a turn.
    has_mail_come: bool,
    /// Interrupt lines of other reactors' hosts, for queues that live here.
    lines: Lines,
    /// Moves in progress.
    moves: Vec<AskedMove>,
    /// Snapshots in progress.
    snapshots: Snapshots,
    /// Inspections of media in progress.
    looks: Looks,
    /// Reports of drives that controllers have.
    reports: Reports,
    stopped: bool,
}

impl Reactor {
    #[expect(
        clippy::too_many_arguments,
        reason = "what a thread is handed when it starts"
    )]
    pub(crate) fn new(
        id: EngineId,
        mode: Mode,
        clock: Clock,
        mailbox: Receiver<Message>,
        address: Address,
        bell: Arc<Bell>,
        wake: EventFd,
        counters: Arc<ReactorCounters>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&wake, Source::Mailbox)?;
        let leaving = Leaving::new()?;
        poller.add(&leaving, Source::Leaving)?;
        let mut engine = Engine::new(mode, clock.now());
        engine.set_id(id);
        Ok(Reactor {
            engine,
            hosted: Vec::new(),
            subsystems: Subsystems::new(address),
            channels: Vec::new(),
            relays: Relays::default(),
            clock,
            poller,
            mailbox,
            bell,
            wake,
            counters,
            ready: Vec::new(),
            in_transition: Vec::new(),
            timed: Vec::new(),
            associations: Vec::new(),
            front_ends: FrontEnds::default(),
            branches: Branches::default(),
            away: Vec::new(),
            told: Vec::new(),
            leaving,
            is_closed: false,
            discovery: Arc::default(),
            id,
            mode,
            peers: Vec::new(),
            late: VecDeque::new(),
            has_mail_come: false,
            lines: Lines::default(),
            moves: Vec::new(),
            snapshots: Snapshots::default(),
            looks: Looks::default(),
            reports: Reports::default(),
            stopped: false,
        })
    }

    /// Serves until told to stop.
    pub(crate) fn run(&mut self) {
        let mut next_look = Time(0);
        let mut now = self.clock.now();
        let mut last_work = now;
        let mut turn_ns = 0;
        let mut taken = Taken::new(now);
        while !self.stopped {
            let mut raiser = Raiser {
                hosted: &mut self.hosted,
                lines: &self.lines,
            };
            let turn = command_path::turn(&mut self.engine, now, &mut raiser);
            let turn_worked = self.relays.carry() | turn.worked;
            // Commands that a controller aborts are posted in a turn without work, too.
            let posted = turn_worked || turn.completions > 0;
            let has_mail_come = std::mem::take(&mut self.has_mail_come);
            let turn_worked = turn_worked
                | self.serve_associations(now, posted)
                | self.serve_branches(now, posted || has_mail_come)
                | self.serve_front_ends(now, posted);
            let mut worked = turn_worked;
            if self.engine.expects_mail() || !self.late.is_empty() {
                worked |= self.exchange_mail();
            }
            if worked {
                last_work = now;
                self.front_ends.note_work();
            }
            let looks = now >= next_look;
            if looks {
                worked |= self.look_around(Duration::ZERO);
                next_look = now + self.look_interval_ns(now.since(last_work));
            }
            let mut slept_ns = 0;
            if !worked && let Some(at_most) = self.may_sleep(now) {
                slept_ns = self.sleep(at_most);
                next_look = Time(0);
            }
            let mut after = self.clock.now();
            self.counters.turns.add(1);
            let awake_ns = after.since(now).saturating_sub(slept_ns);
            if turn_worked {
                self.counters.turns_with_work.add(1);
                self.counters.completions.add(turn.completions);
            }
            taken.slept(slept_ns);
            if awake_ns > STALL_NS {
                taken.count_long_turn(&self.counters, (after, awake_ns), turn_worked);
                now = after;
                continue;
            }
            taken.look(after);
            if turn_worked {
                self.counters.busy_ns.add(awake_ns);
            } else {
                if !looks {
                    turn_ns = awake_ns.min(DUE_WAIT_MAX_NS);
                }
                after = self.wait_for_due(after, turn_ns);
                let spun_ns = after.since(now).saturating_sub(slept_ns);
                self.counters.spun_ns.add(spun_ns);
            }
            now = after;
        }
        let now = self.clock.now();
        for branch in self.branches.take_all() {
            let _ = self.poller.remove(&*branch);
            self.leaving.add(branch.leave(now), Whose::Host, now);
        }
        self.leaving.finish(|| self.clock.now());
    }

    /// The start time of the turn after an idle turn that ended at `now`. If something falls due
    /// before that turn would end, waits for it with the clock alone: found in the turn after, it
    /// would be late by half a turn on average.
    fn wait_for_due(&self, now: Time, turn_ns: u64) -> Time {
        let due = self.engine.next_due();
        let Some(due) = due.filter(|due| due.since(now) <= turn_ns) else {
            std::hint::spin_loop();
            return now;
        };
        let mut now = now;
        while now < due {
            now = self.clock.now();
        }
        now
    }

    /// Polls sockets, mailbox and channels; true if something was done.
    fn look_around(&mut self, wait: Duration) -> bool {
        self.wait_for_events(wait);
        let now = self.clock.now();
        self.handle_ready() | self.look_at_front_ends(now)
    }

    fn wait_for_events(&mut self, wait: Duration) {
        self.ready.clear();
        match self.poller.wait(wait) {
            Ok(events) => self.ready.extend(events.iter().map(source_of)),
            Err(error) => tracing::error!("a reactor cannot wait for its sockets: {error}"),
        }
        if self.ready.contains(&Source::Mailbox) {
            self.wake.drain();
        }
    }

    fn handle_ready(&mut self) -> bool {
        let mut worked = false;
        let now = self.clock.now();
        worked |= self.take_messages();
        if worked {
            self.front_ends.note_work();
        }
        worked |= self.subsystems.look(&mut self.engine);
        for (_, channel) in self.engine.channels_mut().iter_mut() {
            channel.tend();
        }
        self.relays.tend();
        self.reports.carry(&mut self.engine, &self.hosted);
        self.snapshots.look(self.engine.channels_mut());
        self.looks.look(self.engine.channels_mut());
        for at in 0..self.ready.len() {
            // A controller has a socket for each queue of its host over NVMe/TCP.
            if self.ready[..at].contains(&self.ready[at]) {
                continue;
            }
            match self.ready[at] {
                Source::Controller(index) => worked |= self.poll_hosted(index, now, Hosted::poll),
                Source::Door(index) => worked |= self.poll_hosted(index, now, Hosted::poll_door),
                Source::Branch(at) => worked |= self.poll_branch(at, now, false),
                Source::Leaving => worked |= self.leaving.poll(now),
                Source::Mailbox | Source::Channel => {}
            }
        }
        for index in std::mem::take(&mut self.in_transition) {
            if let Some(hosted) = self.hosted.get_mut(index).and_then(Option::as_mut) {
                hosted.is_polled = false;
            }
            worked |= self.poll_hosted(index, now, Hosted::poll);
        }
        if self.leaving.next_deadline().is_some_and(|due| due <= now) {
            worked |= self.leaving.poll(now);
        }
        worked |= self.poll_due_branches(now);
        for slot in self.engine.take_messages_wanted() {
            worked |= self.poll_hosted(slot.0, now, Hosted::poll);
        }
        for index in std::mem::take(&mut self.timed) {
            let Some(hosted) = self.hosted.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            hosted.is_timed = false;
            let deadline = hosted.next_deadline();
            if deadline.is_some_and(|deadline| deadline <= now) {
                worked |= self.poll_hosted(index, now, Hosted::poll);
                worked |= self.poll_hosted(index, now, Hosted::poll_door);
            }
            self.note_transition(index);
        }
        worked
    }

    fn take_messages(&mut self) -> bool {
        let mut any = false;
        while let Some(message) = self.mailbox.try_recv() {
            // An inspection takes some time: serve the hosts before the next one.
            let is_look = matches!(
                message,
                Message::InspectController(..) | Message::InspectLane(..)
            );
            self.handle(message);
            any = true;
            if is_look {
                break;
            }
        }
        self.carry_mail();
        any
    }

    /// Notes a controller that must be polled without an event, or that has a deadline.
    fn note_transition(&mut self, index: usize) {
        let Some(hosted) = self.hosted.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if !hosted.is_polled && hosted.is_in_transition() {
            hosted.is_polled = true;
            self.in_transition.push(index);
        }
        if !hosted.is_timed && hosted.next_deadline().is_some() {
            hosted.is_timed = true;
            self.timed.push(index);
        }
        let attached = hosted.association_mut();
        if attached.is_some_and(Attached::is_to_list) {
            self.front_ends.list(index);
        }
    }

    /// Polls a controller's session or its door.
    fn poll_hosted(
        &mut self,
        index: usize,
        now: Time,
        poll: fn(&mut Hosted, &mut Controller, Time, &Poller) -> bool,
    ) -> bool {
        let Some(hosted) = self.hosted.get_mut(index).and_then(Option::as_mut) else {
            return false;
        };
        let slot = hosted.slot();
        let Some(controller) = self.engine.controller_mut(slot) else {
            return false;
        };
        let worked = poll(hosted, controller, now, &self.poller);
        if hosted.migrates() {
            self.migrate(index);
        }
        self.follow_poll(index, now);
        worked
    }

    /// Does what the poll of a controller's session or door has led to.
    fn follow_poll(&mut self, index: usize, now: Time) {
        let slot = ControllerSlot(index);
        self.take_arrivals(index);
        self.admit(index, now);
        self.take_leaving(index);
        self.place_queues_of(index);
        let hosted = self.hosted[index].as_ref();
        if hosted.is_some_and(Hosted::is_removed)
            && let Some(controller) = self.engine.controller_mut(slot)
            && controller.is_quiet()
        {
            let counted = controller.counted();
            self.engine.remove_controller(slot);
            if let Some(hosted) = self.hosted[index].take() {
                let target = hosted.target();
                hosted.finish();
                if let Some(target) = target {
                    self.dissociated(slot, target, &counted);
                }
            }
        }
        self.note_transition(index);
        let mut hosted = self.hosted[index].iter_mut();
        if hosted.any(Hosted::have_lines_changed) {
            for to in self.engine.hosts_of(slot) {
                self.send_lines(slot, to);
            }
            self.carry_mail();
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Peers(peers) => self.peers = peers,
            Message::Mail(from, mail) => {
                self.has_mail_come = true;
                self.engine.deliver(from, mail);
            }
            Message::Lines(home, controller, vectors) => {
                self.lines.set(home, controller, vectors);
                self.engine.post_again(home, controller);
            }
            Message::Branch(home, slot, branch) => self.take_branch(home, slot, branch),
            Message::Recall(home, slot, qid) => self.return_branch(home, slot, qid),
            Message::BranchBack(from, slot, branch, end) => {
                self.take_back(from, slot, *branch, end.as_ref());
            }
            Message::OpenChannel(medium, id, answer) => {
                answer.send(self.open_channel(medium, id));
            }
            Message::Retune(id, timing, answer) => {
                let channel = self.engine.channels_mut().get_mut(id);
                answer.send(channel.map_or(Ok(()), |channel| channel.retune(&timing)));
            }
            Message::LoseZone(id, zone, to, answer) => {
                answer.send(self.lose_zone(id, zone, to));
            }
            Message::Snapshot(id, asked) => {
                self.snapshots.begin(self.engine.channels_mut(), id, asked);
            }
            Message::Spread(slot, over, answer) => {
                self.spread(slot, over);
                answer.send(());
            }
            Message::Move(queue, to, answer) => self.move_queue(queue, to, answer),
            Message::Residences(slot, answer) => answer.send(self.engine.residences(slot)),
            Message::CloseChannel(medium, answer) => {
                self.close_channel(&medium);
                answer.send(());
            }
            Message::OpenRelay(medium, duty, answer) => {
                answer.send(self.relays.open(medium, duty, &self.poller));
            }
            Message::CloseRelays(medium, answer) => {
                self.relays.close(&medium, &self.poller);
                answer.send(());
            }
            Message::AddSubsystem(new, answer) => {
                answer.send(self.subsystems.add(&mut self.engine, *new));
            }
            Message::EndSubsystem(slot, answer) => self.subsystems.end(slot, answer),
            Message::AddController(new, answer) => answer.send(self.add_controller(*new)),
            Message::RemoveController(slot, answer) => self.remove_controller(slot, answer),
            Message::Disconnect(slot, cntlids, answer) => {
                let is_named = |host: &Attached| cntlids.contains(&host.cntlid());
                answer.send(self.end_associations(slot.0, is_named));
            }
            Message::OnlyNamespace(slot, answer) => {
                answer.send(self.only_block_namespace(slot.0));
            }
            Message::AttachDevice(slot, new, answer) => {
                answer.send(self.attach_device(slot, *new));
            }
            Message::DisconnectAll(answer) => {
                self.disconnect_all();
                answer.send(());
            }
            Message::HasParted(answer) => {
                answer.send(!self.leaving.has_hosts() && self.away.is_empty());
            }
            Message::SetAccess(slot, access, tls, answer) => {
                self.set_access(slot.0, access, tls);
                answer.send(());
            }
            Message::SetNbdTls(slot, tls, answer) => {
                self.set_nbd_tls(slot.0, tls);
                answer.send(());
            }
            Message::Request(slot, request, answer) => {
                let engine = &mut self.engine;
                self.subsystems.request(engine, slot, request, answer);
            }
            Message::View(slot, answer) => {
                answer.send(Subsystems::view(&mut self.engine, slot));
            }
            Message::Kept(slot, version, is_kept) => {
                let engine = &mut self.engine;
                self.subsystems.ended(engine, slot, version, is_kept);
            }
            Message::Tenants(news, answer) => {
                news.into_iter().for_each(|one| self.tell_tenants(one));
                answer.send(());
            }
            Message::InspectController(slot, commands, answer) => {
                let look = self.look(commands);
                answer.send(self.engine.inspect_controller(slot, look));
            }
            Message::Associations(slot, answer) => answer.send(self.associations_of(slot)),
            Message::InspectLane(home, slot, cqid, commands, answer) => {
                let look = self.look(commands);
                answer.send(self.engine.inspect_lane(home, slot, cqid, look));
            }
            Message::Look(asked) => self.looks.begin(asked),
            Message::Counts(answer) => answer.send(self.counts()),
            Message::NetworkCounts(answer) => answer.send(self.network_counts()),
            Message::Trace(slot, trace, answer) => self.trace(slot, trace, answer),
            Message::Configure(slot, keys, answer) => {
                self.watch(slot, |watching| configure(watching, &keys));
                self.set_ana_states(slot, &keys);
                answer.send(());
            }
            Message::HasReplayed(answer) => answer.send(self.has_replayed()),
            Message::ReleaseCopies(answer) => {
                self.release_copies();
                answer.send(());
            }
            Message::Release(answer) => {
                self.release();
                answer.send(());
            }
            Message::SetPaused(paused, answer) => {
                self.engine.set_paused(paused);
                if !paused {
                    self.open_targets();
                }
                answer.send(());
            }
            Message::IsDrained(answer) => answer.send(self.engine.is_drained()),
            Message::Discovery(log) => self.set_discovery(log),
            Message::Answer(answer) => answer.send(()),
            Message::Stop => self.stopped = true,
        }
    }

    fn look(&self, commands: usize) -> Look {
        let now = self.clock.now();
        Look { now, commands }
    }

    /// The counters of every controller.
    fn counts(&mut self) -> Vec<(ControllerSlot, Counted)> {
        let (mut all, mut hosts) = (Vec::new(), Vec::new());
        for hosted in self.hosted.iter_mut().flatten() {
            let slot = hosted.slot();
            let Some(controller) = self.engine.controller_mut(slot) else {
                continue;
            };
            let mut counted = controller.counted();
            if let Some(attached) = hosted.association_mut() {
                hosts.push((attached.target(), attached.cntlid(), counted));
                continue;
            }
            if let Some(roster) = hosted.roster() {
                counted.health.add_moved(&roster.counts().moved);
                counted.past = roster.past().clone();
            }
            all.push((slot, counted));
        }
        // Hosts over a network use the controller that is configured for them.
        for (slot, cntlid, host) in hosts {
            let Some((_, counted)) = all.iter_mut().find(|(target, _)| *target == slot) else {
                continue;
            };
            counted.health.add_moved(&host.health);
            counted.hosts.push(HostCounted {
                cntlid,
                queues: host.queues,
                past: host.past,
            });
        }
        all
    }

    /// Changes the state of a lost zone. All controllers that can have it are on this reactor, as
    /// is the medium.
    fn lose_zone(&mut self, id: ChannelId, zone: u32, to: ZoneLoss) -> Result<(), ZoneLossError> {
        let channel = self.engine.channels_mut().get_mut(id);
        let channel = channel.ok_or(ZoneLossError::NoZones)?;
        let offset = channel.lose_zone(zone, to)?;
        for hosted in self.hosted.iter().flatten() {
            if let Some(controller) = self.engine.controller_mut(hosted.slot()) {
                controller.zone_changed(id, offset);
            }
        }
        Ok(())
    }

    fn move_queue(&mut self, queue: Movable, to: EngineId, answer: Answer<Result<(), MoveError>>) {
        let Movable {
            controller,
            slot,
            cqid,
        } = queue;
        if slot != controller {
            if !self.hosts_of_entrance(controller.0).contains(&slot) {
                return answer.send(Err(MoveError::Gone(cqid)));
            }
            if self.target_mut(controller.0).is_none() {
                return answer.send(Err(MoveError::MustStay(cqid)));
            }
        }
        match self.engine.move_lane(slot, cqid, to, self.clock.now()) {
            Ok(true) => self.moves.push(AskedMove { slot, cqid, answer }),
            Ok(false) => answer.send(Ok(())),
            Err(error) => answer.send(Err(error)),
        }
    }
}
