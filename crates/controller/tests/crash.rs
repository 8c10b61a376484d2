//! A lane whose process dies at each store of a script, and once more while it goes on: the lane
//! that continues from its area completes each command once, with the command's own status.
//!
//! The host looks at its completion queue after an interrupt only, so that a lost one shows, and
//! counts what it has submitted itself. What a command reads and leaves is compared with what the
//! host wrote.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use controller::crash::{self, Death};
use controller::lane::{
    BATCH, Copying, KnownSq, Lane, LaneCommand, LaneConfig, LaneEvent, Quota, RestoreError,
    ShadowSpec, SqSpec,
};
use controller::state::{FORMAT_VERSION, QueueState, SlotState, area_bytes, slots_for};
use memory::{Area, DmaView, DoorbellPages, Iova, Segment, StateFile};
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use nvme_spec::{Cqe, Sqe, Status};
use port::testing::{Host, Manner, TestMedium, namespace};
use port::ticket::Ticket;
use port::{Added, Channel, ChannelId, Channels, Done, Request};

const CQ: u32 = 6;
const CQID: u16 = 3;
const SQS: [u32; 2] = [5, 8];
const BLOCK: usize = 512;
const MEDIUM: usize = 1 << 20;
/// The host's pages: rings in the first ones, then doorbell buffers, then a page for each command's
/// data, with its list of pages or ranges in the one before.
const SHADOW: u64 = 60;
const DATA: u64 = 64;
const PAGES: u64 = 512;

/// A medium whose process can die before it acts, and between that and its answer.
struct Mortal(TestMedium);

impl Channel for Mortal {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        crash::point();
        let added = self.0.add(ticket, request, segments, view);
        crash::point();
        added
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut Vec<Done>) {
        self.0.reap(done);
        crash::point();
    }

    fn in_flight(&self) -> u32 {
        self.0.in_flight()
    }
}

/// The statuses that a command may end with.
#[derive(Clone, Copy)]
enum Ends {
    With(Status),
    /// Or as Command Interrupted, where the process has died.
    Or(Status),
    /// Or as aborted, with its queue.
    Deleted,
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
        }
    }
}

/// What the host does. The commands of one step are outstanding together.
enum Act {
    Run(Vec<(u16, Sqe, Ends)>),
    /// Submits one command, and deletes its queue before it looks for the completion.
    DeleteUnder(u16, Sqe),
    Create(u16),
    /// The bytes of the medium from a block on.
    Expect(u64, Vec<u8>),
    /// The bytes of a page of the host.
    Read(u64, Vec<u8>),
}

/// A host, and the device of its memory: all that a death leaves.
struct World {
    host: Host,
    doorbells: Arc<DoorbellPages>,
    file: Arc<StateFile>,
    shadow: Option<ShadowSpec>,
    manner: Manner,
    lane: Option<Lane>,
    channels: Channels<Mortal>,
    /// The submission queues that its controller knows: bit `n` for `n + 1`.
    known: u64,
    tails: BTreeMap<u16, u32>,
    heads: BTreeMap<u16, u32>,
    /// Commands without a completion: number in the script, and what they may end with.
    outstanding: BTreeMap<(u16, u16), Ends>,
    waiting: Vec<(u16, Sqe, Ends)>,
    ended: BTreeSet<u16>,
    interrupted: BTreeSet<u16>,
    cq_head: u32,
    phase: bool,
    deaths: u32,
    /// What the lane has reported.
    events: Vec<LaneEvent>,
    /// Times that the host has told a doorbell.
    rings: u32,
    /// The step of the script, and whether it has begun.
    at: usize,
    begun: bool,
}

impl World {
    fn new(manner: Manner, with_shadow: bool) -> Self {
        let host = Host::new(PAGES);
        let spec = ShadowSpec {
            shadow: host.page(SHADOW),
            event_idx: host.page(SHADOW + 1),
        };
        let mut world = World {
            doorbells: Arc::new(DoorbellPages::new(256).unwrap()),
            file: StateFile::create("test", FORMAT_VERSION, &[area_bytes(CQ)]).unwrap(),
            shadow: with_shadow.then_some(spec),
            host,
            manner,
            lane: None,
            channels: Channels::new(),
            known: 0,
            tails: BTreeMap::new(),
            heads: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            waiting: Vec::new(),
            ended: BTreeSet::new(),
            interrupted: BTreeSet::new(),
            cq_head: 0,
            phase: true,
            deaths: 0,
            events: Vec::new(),
            rings: 0,
            at: 0,
            begun: false,
        };
        let medium = Mortal(TestMedium::new(MEDIUM, manner));
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
            shadow: self.shadow,
            view: self.host.view(),
            namespaces: Arc::new(vec![namespace(1, ChannelId(0), (MEDIUM / BLOCK) as u64)].into()),
            generation: 0,
            state,
            mdts_bytes: 128 << 10,
            write_through: false,
            quota: Quota::Each(BATCH),
            copying: Copying {
                across: true,
                namespace_limit: 32,
            },
            counters: Arc::default(),
            mail_count: Arc::default(),
        }
    }

    fn lane(&mut self) -> &mut Lane {
        self.lane.as_mut().expect("it lives")
    }

    fn medium(&mut self) -> &mut TestMedium {
        &mut self.channels.get_mut(ChannelId(0)).unwrap().0
    }

    fn ring(&mut self, slot: usize, value: u32) {
        match self.shadow {
            Some(spec) => {
                let at = Iova(spec.shadow.0 + 4 * slot as u64);
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
    fn turn(&mut self) {
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
        let raised = lane.take_posted().is_some();
        let events = std::iter::from_fn(|| lane.take_event());
        self.events.extend(events);
        if self.events.contains(&LaneEvent::Replayed) {
            self.events.retain(|event| *event != LaneEvent::Replayed);
            lane.command(LaneCommand::Release);
        }
        self.lane = Some(lane);
        if raised {
            self.consume();
        }
    }

    fn consume(&mut self) {
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
    fn play(&mut self, script: &[Act]) {
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
            self.turn();
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
        // What was not fetched never completes.
        self.consume();
        self.outstanding.retain(|(of, _), _| *of != sqid);
        (0..3).for_each(|_| self.turn());
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
    fn revive(&mut self) {
        self.deaths += 1;
        self.events.clear();
        let bytes = std::mem::take(&mut self.medium().bytes);
        self.channels = Channels::new();
        let mut medium = TestMedium::new(0, self.manner);
        medium.bytes = bytes;
        assert!(self.channels.insert(Mortal(medium)).is_ok());
        self.file = StateFile::open(self.file.fd().try_clone_to_owned().unwrap()).unwrap();
        let area = self.file.adopt(0, slots_for(CQ)).unwrap();
        self.lane = Some(Lane::restore(self.config(area), &self.known()).unwrap());
    }

    /// The same from an area with other bytes. What is said against it, or what the lane then does
    /// to its host is not asked for; it ends.
    fn revive_damaged(&mut self, at: u64, bytes: [u8; 2]) -> Result<(), RestoreError> {
        let first_area = 4096;
        let file = File::from(self.file.fd().try_clone_to_owned().unwrap());
        file.write_all_at(&bytes, first_area + at).unwrap();
        self.channels = Channels::new();
        let medium = TestMedium::new(MEDIUM, self.manner);
        assert!(self.channels.insert(Mortal(medium)).is_ok());
        self.file = StateFile::open(file.into()).unwrap();
        let area = self.file.adopt(0, slots_for(CQ)).unwrap();
        let mut lane = Lane::restore(self.config(area), &self.known())?;
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

const READ: u8 = 0x02;
const WRITE: u8 = 0x01;
const FLUSH: u8 = 0x00;
const COMPARE: u8 = 0x05;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;
const VERIFY: u8 = 0x0C;
const COPY: u8 = 0x19;
const FIRST: u8 = 0b01;
const SECOND: u8 = 0b10;

/// The first of two fused commands.
const PAIR: u16 = 86;

const OK: Ends = Ends::With(Status::SUCCESSFUL_COMPLETION);

/// A command with its data in the page that its identifier names.
fn command(opcode: u8, cid: u16, slba: u64, blocks: u32) -> Sqe {
    let page = Host::BASE + (DATA + u64::from(cid)) * 4096;
    Sqe {
        opcode,
        cid,
        nsid: 1,
        prp1: page,
        prp2: if blocks > 8 { page + 4096 } else { 0 },
        cdw10: slba as u32,
        cdw12: blocks - 1,
        ..Sqe::default()
    }
}

/// Bytes that no two commands share.
fn bytes(of: u16, blocks: u32) -> Vec<u8> {
    let bytes = 0..BLOCK as u32 * blocks;
    bytes
        .map(|at| (at * 7 + at / 251 + u32::from(of) * 31) as u8)
        .collect()
}

/// The host's memory of the script, and what it does: every kind of command and of end, more of
/// them than either ring has entries. The commands of one step do not depend on each other.
fn script(host: &Host) -> Vec<Act> {
    let page = |cid: u16| host.page(DATA + u64::from(cid));
    let fill = |cid, of, blocks| host.write(page(cid), &bytes(of, blocks));
    let mut script = Vec::new();

    let mut writes = Vec::new();
    for cid in 1..=12_u16 {
        let blocks = [1, 8, 9, 2][usize::from(cid) % 4];
        // A command of 9 blocks has a second page.
        let cid = 2 * cid;
        fill(cid, cid, blocks);
        let sqe = command(WRITE, cid, 16 * u64::from(cid), blocks);
        writes.push((1 + cid / 2 % 2, sqe, OK));
    }
    let written = writes.clone();
    writes.insert(3, (1, command(FLUSH, 40, 0, 1), OK));
    let invalid = Ends::With(Status::INVALID_COMMAND_OPCODE);
    writes.insert(5, (2, command(0x7F, 41, 0, 1), invalid));
    let outside = Ends::With(Status::LBA_OUT_OF_RANGE);
    writes.insert(8, (1, command(READ, 42, 1 << 20, 1), outside));
    writes.push((2, command(WRITE_ZEROES, 43, 1000, 4), OK));
    let absent = Sqe {
        nsid: 9,
        ..command(WRITE, 44, 0, 1)
    };
    let no_namespace = Ends::With(Status::INVALID_FIELD_IN_COMMAND);
    writes.push((2, absent, no_namespace));
    script.push(Act::Run(writes));

    let mut reads = Vec::new();
    for (at, (sqid, sqe, _)) in (0..).zip(&written) {
        let (slba, blocks) = (u64::from(sqe.cdw10), sqe.cdw12 + 1);
        let cid = 50 + 2 * at;
        reads.push((*sqid, command(READ, cid, slba, blocks), OK));
    }
    fill(80, 2, 1);
    reads.insert(2, (1, command(COMPARE, 80, 32, 1), OK));
    fill(81, 3, 1);
    let differs = Ends::With(Status::COMPARE_FAILURE);
    reads.insert(4, (2, command(COMPARE, 81, 32, 1), differs));
    reads.insert(6, (2, command(VERIFY, 82, 32, 9), OK));
    // 13 blocks from two places to 1200, and 4 from 1100 to 1102
    let copies = |cid, to: u64, from: &[(u64, u16)]| {
        let mut list = Vec::new();
        for (slba, blocks) in from {
            let mut entry = [0; 32];
            entry[8..16].copy_from_slice(&slba.to_le_bytes());
            entry[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
            list.extend(entry);
        }
        host.write(page(cid), &list);
        command(COPY, cid, to, from.len() as u32)
    };
    reads.insert(7, (1, copies(83, 1200, &[(32, 1), (64, 2)]), OK));
    let overlaps = Ends::Or(Status::SUCCESSFUL_COMPLETION);
    reads.insert(9, (2, copies(84, 1102, &[(1100, 4)]), overlaps));
    host.write(page(85), &[0; 16]);
    reads.push((1, command(DATASET_MANAGEMENT, 85, 0, 1), OK));
    let fused = |fuse: u8, opcode, cid| Sqe {
        flags: fuse.into(),
        ..command(opcode, cid, 1300, 1)
    };
    host.write(page(PAIR), &[0; BLOCK]);
    fill(87, 87, 1);
    let pair = Ends::Or(Status::SUCCESSFUL_COMPLETION);
    reads.push((2, fused(FIRST, COMPARE, PAIR), pair));
    reads.push((2, fused(SECOND, WRITE, 87), pair));
    let missing = Ends::Or(Status::ABORTED_MISSING_FUSED);
    reads.push((1, fused(FIRST, COMPARE, 88), missing));
    reads.push((1, command(READ, 89, 32, 1), OK));
    script.push(Act::Run(reads));

    for (at, (_, sqe, _)) in (0..).zip(&written) {
        let data = bytes(sqe.cid, sqe.cdw12 + 1);
        script.push(Act::Expect(u64::from(sqe.cdw10), data.clone()));
        script.push(Act::Read(DATA + 50 + 2 * at, data));
    }
    script.push(Act::Read(DATA + 89, bytes(2, 1)));
    script.push(Act::Expect(1200, bytes(2, 1)));

    fill(90, 90, 1);
    script.push(Act::DeleteUnder(2, command(WRITE, 90, 1400, 1)));
    script.push(Act::Create(2));
    fill(92, 92, 9);
    let again = vec![
        (2, command(WRITE, 92, 1500, 9), OK),
        (1, command(READ, 94, 32, 1), OK),
    ];
    script.push(Act::Run(again));
    script.push(Act::Expect(1500, bytes(92, 9)));
    script.push(Act::Read(DATA + 94, bytes(2, 1)));
    script
}

/// Plays the script to its end, through a death at each of the points; how many the last process
/// has passed.
fn play(manner: Manner, with_shadow: bool, points: &[u64]) -> Option<u64> {
    let mut world = World::new(manner, with_shadow);
    let script = script(&world.host);
    for point in points {
        match crash::run(*point, || world.play(&script)) {
            Err(Death) => world.revive(),
            // It has ended before it could die.
            Ok(_) => return None,
        }
    }
    let (_, passed) = crash::run(u64::MAX, || world.play(&script)).expect("it dies no more");
    let commands = script.iter().map(|act| match act {
        Act::Run(commands) => commands.len(),
        _ => 0,
    });
    let ended = world.ended.iter().filter(|cid| **cid != 90).count();
    assert_eq!(ended, commands.sum::<usize>());
    assert!(world.interrupted.len() <= 4, "{:?}", world.interrupted);
    Some(passed)
}

const WAYS: [(Manner, bool); 4] = [
    (Manner::Synchronous, false),
    (Manner::Synchronous, true),
    (Manner::Asynchronous, false),
    (Manner::Asynchronous, true),
];

#[test]
fn every_command_completes_once_wherever_the_process_dies() {
    for (manner, with_shadow) in WAYS {
        let count = play(manner, with_shadow, &[]).expect("it plays");
        assert!(count > 300, "{count} points");
        for point in 0..count {
            assert!(play(manner, with_shadow, &[point]).is_some());
        }
    }
}

#[test]
fn a_second_death_while_it_goes_on_changes_nothing() {
    for (manner, with_shadow) in WAYS {
        let count = play(manner, with_shadow, &[]).expect("it plays");
        for point in (0..count).step_by(7) {
            for second in [0, 1, 2, 3, 5, 8, 13, 21] {
                play(manner, with_shadow, &[point, second]);
            }
        }
    }
}

#[test]
fn nothing_is_fetched_before_the_release() {
    let mut world = World::new(Manner::Asynchronous, false);
    let script = script(&world.host);
    assert_eq!(crash::run(40, || world.play(&script)), Err(Death));
    world.revive();
    let fetched = |world: &mut World| world.lane().counters().fetched.get();
    let mut lane = world.lane.take().unwrap();
    let mut done = Vec::new();
    let mut replayed = false;
    for _ in 0..20 {
        lane.turn(&mut world.channels);
        world
            .channels
            .get_mut(ChannelId(0))
            .unwrap()
            .reap(&mut done);
        done.drain(..)
            .for_each(|one| lane.complete(one.ticket, one.outcome));
        replayed |= std::iter::from_fn(|| lane.take_event()).any(|e| e == LaneEvent::Replayed);
    }
    world.lane = Some(lane);
    assert!(replayed);
    assert_eq!(fetched(&mut world), 0, "the host has submitted more");
    world.lane().command(LaneCommand::Release);
    world.consume();
    world.turn();
    assert!(fetched(&mut world) > 0);
}

#[test]
fn a_damaged_area_is_refused_or_goes_on() {
    let mut refused = BTreeSet::new();
    let mut gone_on = 0;
    // The completion queue, both submission queues, and the first slots.
    let queues = (0..128).chain(area_bytes(CQ) as u64 - 128 * slots_for(CQ) as u64..);
    for at in queues.take(128 + 10 * 128) {
        for bytes in [[0xFF, 0xFF], [7, 0x80]] {
            let mut world = World::new(Manner::Asynchronous, false);
            let script = script(&world.host);
            // It dies with commands in every state.
            let died = crash::run(150, || world.play(&script));
            assert_eq!(died, Err(Death));
            match world.revive_damaged(at, bytes) {
                Ok(()) => gone_on += 1,
                Err(error) => drop(refused.insert(error.to_string())),
            }
        }
    }
    assert!(gone_on > 500, "{gone_on}");
    assert!(refused.len() >= 8, "{refused:#?}");
}
