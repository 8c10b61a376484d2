//! Zones whose process dies at each store of a script of a host, and once more while the next one
//! continues: every command completes once and with success, as if no process had died.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use controller::crash::{self, Death};
use controller::lane::{
    BATCH, Copying, KnownSq, Lane, LaneCommand, LaneConfig, LaneEvent, Quota, SqSpec, Suspects,
};
use controller::state::{FORMAT_VERSION, area_bytes, slots_for};
use media::{Channel, Direct, KeptFiles, Medium, MediumKind, MediumSpec, ZoneSpec};
use memory::{DmaView, DoorbellPages, Iova, Segment, StateFile};
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use nvme_spec::{Cqe, Sqe, Status};
use port::namespace::{Namespace, NamespaceTable};
use port::set::RandomAreas;
use port::ticket::Ticket;
use port::{Added, Channel as Port, Channels, Done, Request};

use crate::common::{BASE, Host, file_spec, pattern};

pub(crate) const BLOCK: u64 = 4096;
pub(crate) const ZONE: u64 = 16 * BLOCK;
pub(crate) const ZONES: u64 = 6;
/// Blocks of a zone's capacity.
const CAPACITY: u64 = 12;
pub(crate) const SPEC: ZoneSpec = ZoneSpec {
    zone_size: ZONE,
    zone_capacity: CAPACITY * BLOCK,
    max_open: 0,
    max_active: 0,
    descriptor_extension: 64,
    append_limit: 0,
    random: Some(RandomAreas {
        bytes: 2 * BLOCK as u32,
        granularity: BLOCK as u32,
        zones: 2,
    }),
};

const ENTRIES: u32 = 16;
const CQ: usize = 0;
const SQ: usize = 4096;
/// A page for the data of each command.
pub(crate) const DATA: usize = 65_536;

/// Where a process can die in addition.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Submits {
    Survives,
    /// Before its requests are submitted, and after that.
    MayDie,
}

/// A channel whose process can die before it acts, after that, and when something has ended.
pub(crate) struct Mortal(pub(crate) Channel, pub(crate) Submits);

impl Port for Mortal {
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

    fn note(&self, request: &Request<'_>) -> Option<u64> {
        self.0.note(request)
    }

    fn uses_note(&self, note: u64) -> bool {
        self.0.uses_note(note)
    }

    fn has_begun(&self, request: &Request<'_>, note: u64) -> bool {
        self.0.has_begun(request, note)
    }

    fn add_again(
        &mut self,
        ticket: Ticket,
        noted: (&Request<'_>, u64),
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        crash::point();
        let added = self.0.add_again(ticket, noted, segments, view);
        crash::point();
        added
    }

    fn submit(&mut self) {
        let dies = self.1 == Submits::MayDie;
        if dies {
            crash::point();
        }
        self.0.submit();
        if dies {
            crash::point();
        }
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        let before = done.len();
        self.0.reap(done);
        if done.len() > before {
            crash::point();
        }
    }

    fn in_flight(&self) -> u32 {
        self.0.in_flight()
    }
}

/// A command of the host, by what it does to a zone.
#[derive(Clone, Copy)]
pub(crate) enum Act {
    /// Blocks from a block of the zone on, which are written durably.
    Write(u64, u64, u32, bool),
    /// Blocks at the write pointer.
    Append(u64, u32),
    Zeroes(u64, u64, u32),
    Send(u64, u8),
    OpenRandom(u64),
    /// To a block of the zone.
    Commit(u64, u64),
    Describe(u64),
}

const FINISH: u8 = 2;
pub(crate) const RESET: u8 = 4;

impl Act {
    pub(crate) fn sqe(self, cid: u16) -> Sqe {
        let (zone, opcode, cdw12, cdw13, at) = match self {
            Act::Write(zone, at, blocks, fua) => {
                (zone, 0x01, (blocks - 1) | (u32::from(fua) << 30), 0, at)
            }
            Act::Append(zone, blocks) => (zone, 0x7d, blocks - 1, 0, 0),
            Act::Zeroes(zone, at, blocks) => (zone, 0x08, blocks - 1, 0, at),
            Act::Send(zone, action) => (zone, 0x79, 0, action.into(), 0),
            Act::OpenRandom(zone) => (zone, 0x79, 0, 0x203, 0),
            Act::Commit(zone, to) => (zone, 0x79, 0, 0x11, to),
            Act::Describe(zone) => (zone, 0x79, 0, 0x10, 0),
        };
        Sqe {
            opcode,
            cid,
            nsid: 1,
            prp1: BASE + (DATA + usize::from(cid) * 8192) as u64,
            prp2: BASE + (DATA + usize::from(cid) * 8192 + 4096) as u64,
            cdw10: (zone * (ZONE / BLOCK) + at) as u32,
            cdw12,
            cdw13,
            ..Sqe::default()
        }
    }
}

/// Actions of the host: the commands of a step are outstanding together, and do not depend on each
/// other's order, except in the order of appends.
fn script() -> Vec<Vec<Act>> {
    vec![
        vec![
            Act::Write(0, 0, 2, false),
            Act::Append(1, 1),
            Act::Append(1, 2),
            Act::Describe(2),
            Act::OpenRandom(3),
            Act::Zeroes(4, 0, 2),
        ],
        vec![
            Act::Write(0, 2, 1, true),
            Act::Append(1, 1),
            Act::Write(2, 0, 1, false),
            Act::Write(3, 1, 1, false),
            Act::Append(4, 2),
            Act::Append(4, 1),
        ],
        vec![
            Act::Zeroes(0, 3, 1),
            Act::Send(1, RESET),
            Act::Commit(3, 0),
            Act::Send(2, FINISH),
            Act::Append(4, 1),
        ],
        vec![
            Act::Append(1, 1),
            Act::Write(3, 1, 2, false),
            Act::Write(0, 4, 1, false),
        ],
        vec![
            Act::Send(4, RESET),
            Act::Write(3, 3, 1, false),
            Act::Append(1, 2),
            Act::Send(0, FINISH),
        ],
        vec![Act::Append(4, 1), Act::Send(2, RESET)],
    ]
}

/// The host, and all that a death leaves.
struct World {
    host: Host,
    doorbells: Arc<DoorbellPages>,
    file: Arc<StateFile>,
    path: Option<PathBuf>,
    kept: KeptFiles,
    lane: Option<Lane>,
    channels: Channels<Mortal>,
    submitted: u32,
    completed: u32,
    /// Commands without a completion.
    outstanding: BTreeMap<u16, Act>,
    /// The first block of each append, in its zone.
    appended: BTreeMap<u16, u64>,
    step: usize,
    begun: bool,
    replayed: bool,
}

impl World {
    fn new(path: Option<&Path>) -> World {
        let areas = [area_bytes(ENTRIES)];
        let mut world = World {
            host: Host::new(1 << 20),
            doorbells: Arc::new(DoorbellPages::new(8).expect("doorbells")),
            file: StateFile::create("test", FORMAT_VERSION, &areas).expect("a state file"),
            path: path.map(Path::to_owned),
            kept: KeptFiles::default(),
            lane: None,
            channels: Channels::new(),
            submitted: 0,
            completed: 0,
            outstanding: BTreeMap::new(),
            appended: BTreeMap::new(),
            step: 0,
            begun: false,
            replayed: false,
        };
        let config = world.open();
        let mut lane = Lane::new(config).expect("a lane");
        let queue = SqSpec::new(&world.host.view, 1, Iova(BASE + SQ as u64), ENTRIES);
        lane.command(LaneCommand::AddQueue(queue.expect("a queue")));
        world.lane = Some(lane);
        world
    }

    /// Opens the medium, from what the last process left if there was one.
    fn open(&mut self) -> LaneConfig {
        self.channels = Channels::new();
        let size = ZONES * ZONE;
        let of = match &self.path {
            Some(path) => file_spec(path, Some(size), Direct::Off).kind,
            None => MediumKind::Ram { size },
        };
        let spec = MediumSpec {
            kind: MediumKind::Zoned {
                of: Box::new(of),
                zones: SPEC,
            },
        };
        let files = std::mem::take(&mut self.kept);
        let medium = Medium::open_kept(&spec, files).expect("opened");
        let copied = |fd: std::os::fd::BorrowedFd<'_>| -> OwnedFd {
            fd.try_clone_to_owned().expect("a descriptor")
        };
        self.kept = KeptFiles {
            memory: medium.memory_file().map(copied),
            zones: medium.zones_file().map(copied),
        };
        let channel = Mortal(medium.channel(16).expect("a channel"), Submits::Survives);
        let Ok(channel) = self.channels.insert(channel) else {
            panic!("an id")
        };
        let namespace = Namespace {
            nsid: 1,
            channel,
            start: 0,
            blocks: size / BLOCK,
            lba_shift: 12,
            nguid: [0; 16],
            eui64: [0; 8],
            traits: medium.traits(),
            restrictions: None,
            set: medium.set(),
        };
        self.file = StateFile::open(self.file.fd().try_clone_to_owned().expect("a descriptor"))
            .expect("a state file");
        LaneConfig {
            cqid: 1,
            entries: ENTRIES,
            base: Iova(BASE + CQ as u64),
            vector: None,
            doorbells: self.doorbells.clone(),
            shadow: None,
            view: self.host.view.clone(),
            namespaces: Arc::new(NamespaceTable::from(vec![namespace])),
            generation: 0,
            state: self.file.adopt(0, slots_for(ENTRIES)).expect("an area"),
            mdts_bytes: 1 << 20,
            write_through: false,
            quota: Quota::Each(BATCH),
            is_inside: false,
            copying: Copying {
                across: true,
                namespace_limit: 8,
            },
            counters: Arc::default(),
            mail_count: Arc::default(),
            first_name: 1,
        }
    }

    fn revive(&mut self) {
        self.lane = None;
        let config = self.open();
        let known = KnownSq {
            sqid: 1,
            base: Iova(BASE + SQ as u64),
            entries: ENTRIES,
        };
        let lane = Lane::restore(config, &[known], Suspects::None);
        self.lane = Some(lane.expect("it continues"));
    }

    fn submit(&mut self, act: Act) {
        let cid = self.submitted as u16;
        let at = DATA + usize::from(cid) * 8192;
        self.host.put(at, &pattern(cid.into(), 2 * BLOCK as usize));
        let words = act.sqe(cid).to_words();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let index = (self.submitted % ENTRIES) as usize;
        self.host.put(SQ + index * 64, &bytes);
        self.submitted += 1;
        self.outstanding.insert(cid, act);
    }

    fn turn(&mut self) {
        let mut lane = self.lane.take().expect("it lives");
        lane.turn(&mut self.channels);
        let mut done = Vec::with_capacity(64);
        for (_, channel) in self.channels.iter_mut() {
            channel.submit();
            channel.reap(&mut done);
        }
        for Done { ticket, outcome } in done {
            lane.complete(ticket, outcome);
        }
        while let Some(event) = lane.take_event() {
            self.replayed |= matches!(event, LaneEvent::Replayed { .. });
        }
        if std::mem::take(&mut self.replayed) {
            lane.command(LaneCommand::Release);
        }
        self.lane = Some(lane);
        while let Some(cqe) = self.next() {
            let (cid, status) = (cqe.cid, cqe.status.status());
            let act = self.outstanding.remove(&cid).expect("completed once");
            assert_eq!(status, Status::SUCCESSFUL_COMPLETION, "command {cid}");
            if let Act::Append(zone, _) = act {
                let at = u64::from(cqe.dw0) - zone * (ZONE / BLOCK);
                self.appended.insert(cid, at);
            }
        }
    }

    fn next(&mut self) -> Option<Cqe> {
        let at = CQ + (self.completed % ENTRIES) as usize * 16;
        let bytes = self.host.get(at, 16);
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes);
        let cqe = Cqe::from_words([word(0).expect("8 bytes"), word(8).expect("8 bytes")]);
        if cqe.status.phase() != (self.completed / ENTRIES).is_multiple_of(2) {
            return None;
        }
        self.completed += 1;
        self.doorbells
            .store(cq_head_slot(1), self.completed % ENTRIES);
        Some(cqe)
    }

    fn play(&mut self) {
        while let Some(step) = script().get(self.step) {
            if !self.begun {
                self.begun = true;
                step.iter().for_each(|act| self.submit(*act));
            }
            self.doorbells
                .store(sq_tail_slot(1), self.submitted % ENTRIES);
            for _ in 0..1_000_000_u32 {
                if self.outstanding.is_empty() {
                    break;
                }
                self.turn();
            }
            assert!(self.outstanding.is_empty(), "a command hangs");
            self.step += 1;
            self.begun = false;
        }
    }

    /// Executes a command that must succeed, and returns its two pages.
    fn ask(&mut self, sqe: Sqe) -> Vec<u8> {
        let cid = self.submitted as u16;
        self.submit(Act::Zeroes(0, 0, 1));
        let words = Sqe {
            cid,
            prp1: Act::Send(0, 0).sqe(cid).prp1,
            prp2: Act::Send(0, 0).sqe(cid).prp2,
            ..sqe
        }
        .to_words();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let index = ((self.submitted - 1) % ENTRIES) as usize;
        self.host.put(SQ + index * 64, &bytes);
        self.doorbells
            .store(sq_tail_slot(1), self.submitted % ENTRIES);
        for _ in 0..1_000_000_u32 {
            if self.outstanding.is_empty() {
                return self.host.get(DATA + usize::from(cid) * 8192, 8192);
            }
            self.turn();
        }
        panic!("a command hangs");
    }

    /// Compares the zones and their bytes with what the commands say, in the order of their steps.
    fn check(&mut self) {
        #[derive(Default)]
        struct Expected {
            blocks: BTreeMap<u64, Vec<u8>>,
            pointer: u64,
            full: bool,
            extended: bool,
        }
        let block = |cid: u16, at: usize| {
            pattern(cid.into(), 2 * BLOCK as usize)[at * BLOCK as usize..][..BLOCK as usize]
                .to_vec()
        };
        let mut zones: Vec<Expected> = (0..ZONES).map(|_| Expected::default()).collect();
        let acts = script().into_iter().flatten();
        for (cid, act) in (0_u16..).zip(acts) {
            let mut write = |zone: u64, at: u64, blocks: u32, zeros: bool| {
                let zone = &mut zones[zone as usize];
                for number in 0..u64::from(blocks) {
                    let bytes = if zeros {
                        vec![0; BLOCK as usize]
                    } else {
                        block(cid, number as usize)
                    };
                    zone.blocks.insert(at + number, bytes);
                }
                zone.pointer = zone.pointer.max(at + u64::from(blocks));
            };
            match act {
                Act::Write(zone, at, blocks, _) => write(zone, at, blocks, false),
                Act::Append(zone, blocks) => write(zone, self.appended[&cid], blocks, false),
                Act::Zeroes(zone, at, blocks) => write(zone, at, blocks, true),
                Act::Send(zone, RESET) => zones[zone as usize] = Expected::default(),
                Act::Send(zone, _) => zones[zone as usize].full = true,
                Act::Describe(zone) => zones[zone as usize].extended = true,
                Act::OpenRandom(_) | Act::Commit(..) => {}
            }
        }
        // 3 has a random write area of two blocks: its last write moved the pointer to the second
        // block, and blocks of it were written beyond.
        zones[3].pointer = 2;
        // Extended report of all zones.
        let report = Sqe {
            opcode: 0x7a,
            nsid: 1,
            cdw12: 2047,
            cdw13: 1,
            ..Sqe::default()
        };
        let report = self.ask(report);
        for (number, zone) in (0_u64..).zip(&zones) {
            let at = 64 + number as usize * 128;
            let (state, attributes) = (report[at + 1] >> 4, report[at + 2]);
            let pointer = u64::from_le_bytes(report[at + 24..at + 32].try_into().expect("8 bytes"));
            let state_name = format!("zone {number} is in state {state:#x}");
            if zone.full {
                assert_eq!(state, 0xe, "{state_name}");
            } else {
                assert_ne!(state, 0xe, "{state_name}");
                assert_eq!(
                    pointer - number * (ZONE / BLOCK),
                    zone.pointer,
                    "{state_name}"
                );
            }
            assert_eq!(attributes & 0x80 != 0, zone.extended, "{state_name}");
        }
        for (number, zone) in (0_u64..).zip(&zones) {
            for at in 0..CAPACITY {
                let read = Sqe {
                    opcode: 0x02,
                    nsid: 1,
                    cdw10: (number * (ZONE / BLOCK) + at) as u32,
                    ..Sqe::default()
                };
                let bytes = self.ask(read);
                let expected = zone.blocks.get(&at);
                let zeros = vec![0; BLOCK as usize];
                assert!(
                    bytes[..BLOCK as usize] == expected.unwrap_or(&zeros)[..],
                    "block {at} of zone {number}"
                );
            }
        }
    }
}

/// Plays the script through a death at each of the points; how many the last process has passed.
fn play(path: Option<&Path>, points: &[u64]) -> Option<u64> {
    if let Some(path) = path {
        let _ = std::fs::remove_file(path);
    }
    let mut world = World::new(path);
    for point in points {
        match crash::run(*point, || world.play()) {
            Err(Death) => world.revive(),
            Ok(_) => return None,
        }
    }
    let (_, passed) = crash::run(u64::MAX, || world.play()).expect("it dies no more");
    world.check();
    Some(passed)
}

#[test]
fn a_command_to_a_zone_has_one_effect_wherever_the_process_dies() {
    let count = play(None, &[]).expect("it plays");
    assert!(count > 300, "{count} points");
    for point in 0..count {
        assert!(play(None, &[point]).is_some());
    }
}

#[test]
fn zones_in_a_file_have_the_last_process_s_write_pointers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("zones");
    let count = play(Some(&path), &[]).expect("it plays");
    for point in (0..count).step_by(7) {
        play(Some(&path), &[point]);
    }
}

mod slow {
    use super::*;

    #[test]
    fn a_second_death_changes_nothing_for_zones() {
        let count = play(None, &[]).expect("it plays");
        for first in (0..count).step_by(5) {
            for second in (0..60).step_by(3) {
                play(None, &[first, second]);
            }
        }
    }
}
