//! The host, the lane and its medium, and deaths of their process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use controller::crash;
use controller::lane::{
    BATCH, Copying, KnownSq, Lane, LaneCommand, LaneConfig, LaneEvent, Quota, Registration,
    RestoreError, ShadowSpec, SqSpec, Suspects, is_trying,
};
use controller::state::{self, FORMAT_VERSION, QueueState, SlotState, area_bytes, slots_for};
use memory::{Area, DmaView, DoorbellPages, Iova, Segment, StateFile};
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use nvme_spec::{Cqe, Sqe, Status};
use port::namespace::Namespace;
use port::testing::{Host, Manner, TestMedium, namespace};
use port::ticket::Ticket;
use port::time::Time;
use port::{Added, Channel, ChannelId, Channels, Done, Request};
use subsystem::{Allocated, ControllerId, Record, Requester, Subsystem, SubsystemConfig};

/// The first of two fused commands.
pub(crate) const PAIR: u16 = 86;

pub(crate) const CQ: u32 = 6;
const CQID: u16 = 3;
const SQS: [u32; 2] = [5, 8];
pub(crate) const BLOCK: usize = 512;
pub(crate) const MEDIUM: usize = 1 << 20;
/// The host's pages: rings in the first ones, then doorbell buffers, then a page for each command's
/// data, with its list of pages or ranges in the one before.
const SHADOW: u64 = 60;
pub(crate) const DATA: u64 = 64;
const PAGES: u64 = 512;

/// A medium whose process can die before it acts, and between that and its answer.
pub(crate) struct Mortal {
    medium: TestMedium,
    pub(crate) poison: Option<Poison>,
    /// It has the command that ends its process.
    poisoned: bool,
}

/// A command by which its process dies.
#[derive(Clone, Copy)]
pub(crate) enum Poison {
    /// When a medium gets one that begins at this byte.
    AtOnce(u64),
    /// When it looks for what has ended after that.
    Later(u64),
}

impl Mortal {
    fn new(medium: TestMedium, poison: Option<Poison>) -> Self {
        Mortal {
            medium,
            poison,
            poisoned: false,
        }
    }
}

impl Channel for Mortal {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        crash::point();
        let begins = |at| matches!(request, Request::Write { offset, .. } if *offset == at);
        match self.poison {
            Some(Poison::AtOnce(at)) if begins(at) => crash::die(),
            Some(Poison::Later(at)) if begins(at) => self.poisoned = true,
            _ => {}
        }
        if let Request::Write { offset, .. } = request
            && self.medium.capacity > 0
        {
            // It dies in the middle of a block.
            let half = BLOCK / 2;
            let mut bytes = [0; BLOCK / 2];
            segments[0].read_into(0, &mut bytes);
            self.medium.bytes[*offset as usize..][..half].copy_from_slice(&bytes);
            crash::point();
        }
        let added = self.medium.add(ticket, request, segments, view);
        crash::point();
        added
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.poisoned {
            crash::die();
        }
        self.medium.reap(done);
        crash::point();
    }

    fn in_flight(&self) -> u32 {
        self.medium.in_flight()
    }
}

/// The statuses that a command may end with.
#[derive(Clone, Copy)]
pub(crate) enum Ends {
    With(Status),
    /// Or as Command Interrupted, where the process has died.
    Or(Status),
    /// Or as aborted, with its queue.
    Deleted,
    /// The test looks.
    Any,
}

impl Ends {
    fn allow(self, status: Status, deaths: u32) -> bool {
        match self {
            Ends::With(expected) => status == expected,
            Ends::Or(expected) => {
                status == expected || deaths > 0 && status == Status::COMMAND_INTERRUPTED
            }
            Ends::Deleted => {
                [Status::SUCCESSFUL_COMPLETION, Status::ABORTED_SQ_DELETION].contains(&status)
            }
            Ends::Any => true,
        }
    }
}

/// Actions of the host. The commands of one step are outstanding together.
pub(crate) enum Act {
    Run(Vec<(u16, Sqe, Ends)>),
    /// Submits one command, and deletes its queue before it looks for the completion.
    DeleteUnder(u16, Sqe),
    Create(u16),
    /// The bytes of the medium from a block on.
    Expect(u64, Vec<u8>),
    /// The bytes of a page of the host.
    Read(u64, Vec<u8>),
}

fn first_namespace() -> Namespace {
    namespace(1, ChannelId(0), (MEDIUM / BLOCK) as u64)
}

/// The subsystem of a process that goes on with a record, and its controller.
fn subsystem_after(record: &Record, deaths: u32) -> (Subsystem, ControllerId) {
    let mut allocated = Allocated::everywhere(first_namespace());
    let mut answers = record.answers.clone();
    let mut notices = Vec::new();
    for kept in record.reservations.clone() {
        allocated.reservation = kept.reservation;
        answers.extend(kept.answers);
        notices.extend(kept.notices);
    }
    let config = SubsystemConfig {
        namespaces: vec![allocated],
        controllers: record.controllers.clone(),
        keeping: true,
        answers,
        notices,
        process: u64::from(deaths),
        ..SubsystemConfig::with_namespaces(32, [])
    };
    let mut subsystem = Subsystem::new(config).unwrap();
    let id = subsystem.join("test").unwrap();
    subsystem.take_table(id);
    if let Some((version, _)) = subsystem.take_record() {
        subsystem.kept(version);
    }
    (subsystem, id)
}

/// A host, and the device of its memory: all that a death leaves.
pub(crate) struct World {
    pub(crate) host: Host,
    doorbells: Arc<DoorbellPages>,
    file: Arc<StateFile>,
    shadow: Option<Registration>,
    manner: Manner,
    pub(crate) poison: Option<Poison>,
    pub(crate) lane: Option<Lane>,
    pub(crate) channels: Channels<Mortal>,
    pub(crate) subsystem: Subsystem,
    controller: ControllerId,
    /// The subsystem's record: what is kept of it, and what is about to be.
    kept: Record,
    taken: Option<(u64, Record)>,
    /// The submission queues that its controller knows: bit `n` for `n + 1`.
    known: u64,
    tails: BTreeMap<u16, u32>,
    heads: BTreeMap<u16, u32>,
    /// Commands without a completion: number in the script, and what they may end with.
    outstanding: BTreeMap<(u16, u16), Ends>,
    waiting: Vec<(u16, Sqe, Ends)>,
    pub(crate) ended: BTreeSet<u16>,
    pub(crate) statuses: BTreeMap<u16, Status>,
    pub(crate) interrupted: BTreeSet<u16>,
    cq_head: u32,
    phase: bool,
    pub(crate) deaths: u32,
    /// Reports of the lane.
    events: Vec<LaneEvent>,
    /// Times that the host has told a doorbell.
    rings: u32,
    /// The step of the script, and whether it has begun.
    at: usize,
    begun: bool,
}

impl World {
    pub(crate) fn new(manner: Manner, with_shadow: bool) -> Self {
        let host = Host::new(PAGES);
        let spec = ShadowSpec {
            shadow: host.page(SHADOW),
            event_idx: host.page(SHADOW + 1),
        };
        let (subsystem, controller) = subsystem_after(&Record::default(), 0);
        let registered = || Registration::new(&host.view(), spec, 1).unwrap();
        let mut world = World {
            doorbells: Arc::new(DoorbellPages::new(256).unwrap()),
            file: StateFile::create("test", FORMAT_VERSION, &[area_bytes(CQ)]).unwrap(),
            shadow: with_shadow.then(registered),
            host,
            manner,
            poison: None,
            lane: None,
            channels: Channels::new(),
            kept: subsystem.record(),
            subsystem,
            controller,
            taken: None,
            known: 0,
            tails: BTreeMap::new(),
            heads: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            waiting: Vec::new(),
            ended: BTreeSet::new(),
            statuses: BTreeMap::new(),
            interrupted: BTreeSet::new(),
            cq_head: 0,
            phase: true,
            deaths: 0,
            events: Vec::new(),
            rings: 0,
            at: 0,
            begun: false,
        };
        let medium = Mortal::new(TestMedium::new(MEDIUM, manner), None);
        assert!(world.channels.insert(medium).is_ok());
        let area = world.file.take(0, slots_for(CQ)).unwrap();
        world.lane = Some(Lane::new(world.config(area)).unwrap());
        for (sqid, _) in (1..).zip(SQS) {
            world.create(sqid);
        }
        world
    }

    fn config(&self, state: Area<QueueState, SlotState>) -> LaneConfig {
        LaneConfig {
            cqid: CQID,
            entries: CQ,
            base: self.host.page(0),
            vector: Some(1),
            doorbells: self.doorbells.clone(),
            shadow: self.shadow.clone(),
            view: self.host.view(),
            namespaces: Arc::new(vec![first_namespace()].into()),
            generation: 0,
            state,
            mdts_bytes: 128 << 10,
            write_through: false,
            quota: Quota::Each(BATCH),
            is_inside: false,
            copying: Copying {
                across: true,
                namespace_limit: 32,
            },
            counters: Arc::default(),
            mail_count: Arc::default(),
            first_name: u64::from(self.deaths + 1) << 32,
        }
    }

    pub(crate) fn lane(&mut self) -> &mut Lane {
        self.lane.as_mut().expect("it lives")
    }

    fn medium(&mut self) -> &mut TestMedium {
        &mut self.channels.get_mut(ChannelId(0)).unwrap().medium
    }

    fn ring(&mut self, slot: usize, value: u32) {
        match &self.shadow {
            Some(registration) => {
                let at = Iova(registration.spec().shadow.0 + 4 * slot as u64);
                self.host.write_u32(at, value);
                // A host rings the register, too, where it is asked to.
                self.rings += 1;
                if self.rings.is_multiple_of(3) {
                    self.doorbells.store(slot, value);
                }
            }
            None => self.doorbells.store(slot, value),
        }
    }

    fn base(&self, sqid: u16) -> Iova {
        self.host.page(16 * u64::from(sqid))
    }

    /// The controller adds a queue: it knows the queue once its lane has it.
    fn create(&mut self, sqid: u16) {
        self.ring(sq_tail_slot(sqid), 0);
        self.tails.insert(sqid, 0);
        self.heads.insert(sqid, 0);
        let entries = SQS[usize::from(sqid) - 1];
        let spec = SqSpec::new(&self.host.view(), sqid, self.base(sqid), entries).unwrap();
        self.lane().command(LaneCommand::AddQueue(spec));
        self.known |= 1 << (sqid - 1);
    }

    /// Submits as many of the waiting commands as their queues have room for.
    fn submit(&mut self) {
        let mut left: Vec<(u16, Sqe, Ends)> = Vec::new();
        for (sqid, sqe, ends) in std::mem::take(&mut self.waiting) {
            let entries = SQS[usize::from(sqid) - 1];
            let (tail, head) = (self.tails[&sqid], self.heads[&sqid]);
            // One doorbell update submits both of two fused commands.
            let needs = if sqe.cid == PAIR { 2 } else { 1 };
            let room = (head + entries - tail - 1) % entries;
            if room < needs || left.iter().any(|(other, ..)| *other == sqid) {
                left.push((sqid, sqe, ends));
                continue;
            }
            let at = Iova(self.base(sqid).0 + u64::from(tail) * 64);
            let words = sqe.to_words();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.host.write(at, &bytes);
            self.tails.insert(sqid, (tail + 1) % entries);
            assert!(self.outstanding.insert((sqid, sqe.cid), ends).is_none());
        }
        self.waiting = left;
        for (sqid, tail) in self.tails.clone() {
            if self.known >> (sqid - 1) & 1 == 1 {
                self.ring(sq_tail_slot(sqid), tail);
            }
        }
    }

    /// One turn of the lane; the host looks at its queue if that has raised an interrupt.
    pub(crate) fn turn(&mut self) {
        let mut lane = self.lane.take().expect("it lives");
        lane.turn(&mut self.channels);
        let mut done = Vec::new();
        for (_, channel) in self.channels.iter_mut() {
            channel.reap(&mut done);
        }
        for one in done {
            lane.complete(one.ticket, one.outcome);
        }
        crash::point();
        self.turn_subsystem(&mut lane);
        let raised = lane.take_posted().is_some();
        for event in std::iter::from_fn(|| lane.take_event()) {
            match event {
                LaneEvent::Answered { name } => self.subsystem.completed(self.controller, name),
                event => self.events.push(event),
            }
        }
        let replayed = |event: &LaneEvent| matches!(event, LaneEvent::Replayed { .. });
        if let Some(at) = self.events.iter().position(replayed) {
            let copies = LaneEvent::Replayed { copies: true };
            lane.command(if self.events.remove(at) == copies {
                LaneCommand::ReleaseCopies
            } else {
                LaneCommand::Release
            });
        }
        self.lane = Some(lane);
        if raised {
            self.consume();
        }
    }

    /// One turn of the subsystem, whose record is kept in the turn after it has changed.
    fn turn_subsystem(&mut self, lane: &mut Lane) {
        let Self {
            subsystem,
            controller,
            kept,
            taken,
            ..
        } = self;
        let controller = *controller;
        while let Some(forward) = lane.take_forward() {
            subsystem.forwarded(controller, forward);
        }
        // No other command depends on it.
        subsystem.acknowledge(controller, subsystem.generation());
        subsystem.turn(Time(1), &mut Channels::<TestMedium>::new());
        if let Some((version, record)) = taken.take() {
            crash::point();
            *kept = record;
            crash::point();
            subsystem.kept(version);
        }
        *taken = subsystem.take_record();
        while let Some(answer) = subsystem.take_answer(controller) {
            let Requester::Io { ticket, .. } = answer.to else {
                panic!("a lane has commands for I/O alone");
            };
            let result = answer.result.map(|_| answer.data);
            lane.answer(ticket, result.as_deref().map_err(|status| *status));
        }
    }

    pub(crate) fn consume(&mut self) {
        while let Some(cqe) = self.peek() {
            self.cq_head = (self.cq_head + 1) % CQ;
            self.phase ^= self.cq_head == 0;
            let ends = self.outstanding.remove(&(cqe.sq_id, cqe.cid));
            let ends =
                ends.unwrap_or_else(|| panic!("completed twice, or never submitted: {cqe:?}"));
            let status = cqe.status.status();
            assert!(
                ends.allow(status, self.deaths),
                "{} ended as {status:?}",
                cqe.cid
            );
            if status == Status::COMMAND_INTERRUPTED {
                self.interrupted.insert(cqe.cid);
            }
            self.ended.insert(cqe.cid);
            self.statuses.insert(cqe.cid, status);
            let (entries, tail) = (SQS[usize::from(cqe.sq_id) - 1], self.tails[&cqe.sq_id]);
            let head = self.heads.insert(cqe.sq_id, cqe.sq_head.into()).unwrap();
            let ahead = |to: u32| (to + entries - head) % entries;
            assert!(
                ahead(cqe.sq_head.into()) <= ahead(tail),
                "a head that cannot be"
            );
        }
        self.ring(cq_head_slot(CQID), self.cq_head);
    }

    fn peek(&self) -> Option<Cqe> {
        let at = Iova(self.host.page(0).0 + u64::from(self.cq_head) * 16);
        let bytes = self.host.read(at, 16);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let cqe = Cqe::from_words([word(0), word(8)]);
        (cqe.status.phase() == self.phase).then_some(cqe)
    }

    /// Does what the script says from where it is, to its end.
    pub(crate) fn play(&mut self, script: &[Act]) {
        while let Some(act) = script.get(self.at) {
            match act {
                Act::Run(commands) => {
                    if !self.begun {
                        self.begun = true;
                        self.waiting.clone_from(commands);
                    }
                    self.settle();
                }
                Act::DeleteUnder(sqid, sqe) => self.delete_under(*sqid, *sqe),
                Act::Create(sqid) => self.create(*sqid),
                Act::Expect(slba, bytes) => {
                    let at = *slba as usize * BLOCK;
                    assert_eq!(&self.medium().bytes[at..][..bytes.len()], &bytes[..]);
                }
                Act::Read(page, bytes) => {
                    assert_eq!(&self.host.read(self.host.page(*page), bytes.len()), bytes);
                }
            }
            self.at += 1;
            self.begun = false;
        }
    }

    /// Until every command has ended, and a little longer.
    fn settle(&mut self) {
        for _ in 0..400 {
            if self.waiting.is_empty() && self.outstanding.is_empty() {
                (0..3).for_each(|_| self.turn());
                assert_eq!(self.peek(), None, "a completion of nothing");
                return;
            }
            self.submit();
            self.turn();
        }
        panic!("these never end: {:?}", self.outstanding.keys());
    }

    fn delete_under(&mut self, sqid: u16, sqe: Sqe) {
        if !self.begun {
            self.begun = true;
            self.waiting.push((sqid, sqe, Ends::Deleted));
            self.submit();
        }
        if self.known >> (sqid - 1) & 1 == 1 {
            // A deletion that waits is the first thing that a lane gets from the next process.
            if self.deaths == 0 {
                self.turn();
            }
            self.lane().command(LaneCommand::RemoveQueue { sqid });
            for turn in 0.. {
                assert!(turn < 100, "the queue is never removed");
                self.turn();
                let removed = LaneEvent::QueueRemoved { sqid };
                if std::mem::take(&mut self.events).contains(&removed) {
                    break;
                }
            }
            self.known &= !(1 << (sqid - 1));
        }
        // A command that was not fetched never completes.
        self.consume();
        self.outstanding.retain(|(of, _), _| *of != sqid);
        (0..3).for_each(|_| self.turn());
    }

    /// One command is submitted, and the lane is stopped while a medium may write; returns when it
    /// has stopped. The process may die at any point; the next call goes on.
    pub(crate) fn stop_under(&mut self, sqid: u16, sqe: Sqe) {
        if !self.begun {
            self.begun = true;
            self.waiting.push((sqid, sqe, Ends::Any));
            self.submit();
            self.turn();
        }
        self.lane().command(LaneCommand::Stop);
        for turn in 0.. {
            assert!(turn < 100, "it never stops");
            self.turn();
            if std::mem::take(&mut self.events).contains(&LaneEvent::Stopped) {
                break;
            }
        }
    }

    /// The bytes of the medium from a block on.
    pub(crate) fn bytes_at(&mut self, slba: u64, len: usize) -> Vec<u8> {
        self.medium().bytes[slba as usize * BLOCK..][..len].to_vec()
    }

    /// The submission queues that its controller knows.
    fn known(&self) -> Vec<KnownSq> {
        let known = (1..)
            .zip(SQS)
            .filter(|(sqid, _)| self.known >> (sqid - 1) & 1 == 1);
        let queue = |(sqid, entries)| KnownSq {
            sqid,
            base: self.base(sqid),
            entries,
        };
        known.map(queue).collect()
    }

    /// The process has died: another one goes on from what it left.
    pub(crate) fn revive(&mut self) {
        self.revive_after(false);
    }

    /// As [`Self::revive`]; `crashed`: it has ended by its own fault.
    pub(crate) fn revive_after(&mut self, crashed: bool) {
        self.deaths += 1;
        self.events.clear();
        let (next, controller) = subsystem_after(&self.kept, self.deaths);
        // A process that dies drops nothing.
        std::mem::forget(std::mem::replace(&mut self.subsystem, next));
        assert_eq!(controller, self.controller);
        self.taken = None;
        let bytes = std::mem::take(&mut self.medium().bytes);
        self.channels = Channels::new();
        let mut medium = TestMedium::new(0, self.manner);
        medium.bytes = bytes;
        let medium = Mortal::new(medium, self.poison);
        assert!(self.channels.insert(medium).is_ok());
        self.file = StateFile::open(self.file.fd().try_clone_to_owned().unwrap()).unwrap();
        let mut area: Area<QueueState, SlotState> = self.file.adopt(0, slots_for(CQ)).unwrap();
        state::update(self.file.format_version(), area.parts().1);
        let suspects = if crashed {
            Suspects::after_crash(is_trying(area.head()))
        } else {
            Suspects::None
        };
        let lane = Lane::restore(self.config(area), &self.known(), suspects);
        self.lane = Some(lane.unwrap());
    }

    /// Replaces what the process that died has left by the file of another version.
    pub(crate) fn replace_file(&mut self, bytes: &[u8]) {
        let file = File::from(self.file.fd().try_clone_to_owned().unwrap());
        file.write_all_at(bytes, 0).unwrap();
    }

    /// State that the process that died has left.
    pub(crate) fn file_bytes(&self, len: usize) -> Vec<u8> {
        let file = File::from(self.file.fd().try_clone_to_owned().unwrap());
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// The same from an area with other bytes. The error, and the lane's effects on its host, do
    /// not matter; it ends.
    pub(crate) fn revive_damaged(&mut self, at: u64, bytes: [u8; 2]) -> Result<(), RestoreError> {
        let first_area = 4096;
        let file = File::from(self.file.fd().try_clone_to_owned().unwrap());
        file.write_all_at(&bytes, first_area + at).unwrap();
        self.channels = Channels::new();
        let medium = Mortal::new(TestMedium::new(MEDIUM, self.manner), None);
        assert!(self.channels.insert(medium).is_ok());
        self.file = StateFile::open(file.into()).unwrap();
        let area = self.file.adopt(0, slots_for(CQ)).unwrap();
        let mut lane = Lane::restore(self.config(area), &self.known(), Suspects::None)?;
        for _ in 0..20 {
            lane.turn(&mut self.channels);
            let mut done = Vec::new();
            self.channels.get_mut(ChannelId(0)).unwrap().reap(&mut done);
            for one in done {
                lane.complete(one.ticket, one.outcome);
            }
        }
        Ok(())
    }
}
