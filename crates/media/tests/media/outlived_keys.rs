//! Keys whose process dies at each store of a script of a host, and once more while the next one
//! continues: every command has its effect once, and the status of one execution.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use controller::crash::{self, Death};
use controller::lane::{
    BATCH, Copying, KnownSq, Lane, LaneCommand, LaneConfig, LaneEvent, Quota, SqSpec, Suspects,
};
use controller::state::{FORMAT_VERSION, area_bytes, slots_for};
use media::{Dialect, KeptFiles, Medium, MediumKind, MediumSpec};
use memory::{DoorbellPages, Iova, StateFile};
use nvme_spec::key_value::set_key;
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use nvme_spec::samsung::status as samsung;
use nvme_spec::{Cqe, Sqe, Status};
use port::namespace::{Namespace, NamespaceTable};
use port::{Channel as _, Channels, Done};

use crate::common::{BASE, Host, pattern};
use crate::outlived::{Mortal, Submits};

const ENTRIES: u32 = 32;
const CQ: usize = 0;
const SQ: usize = 4096;
/// Two pages for the data of each command.
const DATA: usize = 65_536;
const SIZE: u64 = 1 << 20;
const OK: Status = Status::SUCCESSFUL_COMPLETION;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    Any,
    MustExist,
    MustNotExist,
}

/// A command of the host, by its key's number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// A store of a value with this length, in bytes.
    Store(u8, Rule, u32),
    Append(u8, u32),
    Delete(u8),
    /// One compound command that stores under both keys, if neither exists.
    Compound(u8, u8),
}

impl Act {
    fn key(self) -> [u8; 7] {
        let (Act::Store(number, ..)
        | Act::Append(number, _)
        | Act::Delete(number)
        | Act::Compound(number, _)) = self;
        let mut key = *b"key-000";
        key[6] += number;
        key
    }

    pub(crate) fn len(self) -> u32 {
        match self {
            Act::Store(_, _, len) | Act::Append(_, len) => len,
            Act::Delete(_) => 0,
            Act::Compound(..) => 512 + 2 * (64 + 64 + 64),
        }
    }

    pub(crate) fn sqe(self, dialect: Dialect, cid: u16) -> Sqe {
        let at = BASE + (DATA + usize::from(cid) * 8192) as u64;
        let mut sqe = Sqe {
            cid,
            nsid: 1,
            prp1: at,
            prp2: at + 4096,
            ..Sqe::default()
        };
        let rule = match self {
            Act::Store(_, rule, _) => rule,
            Act::Append(..) | Act::Delete(_) | Act::Compound(..) => Rule::Any,
        };
        if dialect == Dialect::Nvme {
            sqe.opcode = match self {
                Act::Store(..) => 0x01,
                Act::Append(..) | Act::Compound(..) => panic!("there is none"),
                Act::Delete(_) => 0x10,
            };
            sqe.cdw10 = self.len();
            // KV 1.1, Store: SO in bits 15:8.
            sqe.cdw11 = match rule {
                Rule::Any => 0,
                Rule::MustExist => 1 << 8,
                Rule::MustNotExist => 2 << 8,
            };
            set_key(&mut sqe, &self.key());
            return sqe;
        }
        sqe.opcode = match self {
            Act::Store(..) => 0x81,
            Act::Append(..) => 0x83,
            Act::Delete(_) => 0xa1,
            Act::Compound(..) => 0x85,
        };
        let dwords = self.len().div_ceil(4);
        let option = match rule {
            Rule::Any => 0,
            Rule::MustNotExist => 2,
            Rule::MustExist => 8,
        };
        sqe.cdw10 = dwords;
        sqe.cdw11 = 6 | option << 8 | (dwords * 4 - self.len()) << 16;
        if let Act::Compound(..) = self {
            sqe.cdw11 |= 2 << 24;
        }
        let mut key = [0; 16];
        key[..7].copy_from_slice(&self.key());
        let word = |at: usize| key[at..at + 4].try_into().map(u32::from_le_bytes);
        let word = |at| word(at).expect("4 bytes");
        (sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15) = (word(0), word(4), word(8), word(12));
        sqe
    }
}

/// Actions of the host: the commands of a step are outstanding together. Of two with the same key
/// one fails, whichever it is; appends to a key may be in any order.
fn script(dialect: Dialect) -> Vec<Vec<Act>> {
    use Act::{Append, Compound, Delete, Store};
    use Rule::{Any, MustExist, MustNotExist};
    let mut steps = vec![
        vec![
            Store(0, MustNotExist, 100),
            Store(1, MustNotExist, 5000),
            Store(1, MustNotExist, 70),
            Store(2, Any, 0),
            Delete(3),
            Store(4, MustExist, 9),
        ],
        vec![
            Delete(0),
            Store(1, MustExist, 513),
            Delete(2),
            Delete(2),
            Store(5, MustNotExist, 8000),
            Store(6, Any, 1),
        ],
        vec![
            Store(0, MustNotExist, 40),
            Store(0, MustNotExist, 41),
            Delete(6),
            Store(2, MustNotExist, 600),
        ],
        vec![Delete(0), Store(5, MustExist, 4), Store(6, MustNotExist, 3)],
    ];
    if dialect == Dialect::Samsung {
        steps[1].extend([Append(7, 300), Append(7, 500)]);
        steps[2].extend([Append(7, 11), Compound(3, 4), Append(8, 700)]);
        steps[3].extend([Append(8, 20), Delete(7)]);
    }
    steps
}

/// Where the pairs are.
#[derive(Clone, Copy)]
struct Place<'p> {
    dialect: Dialect,
    path: Option<&'p Path>,
}

/// The host, and all that a death leaves.
struct World {
    host: Host,
    doorbells: Arc<DoorbellPages>,
    file: Arc<StateFile>,
    path: Option<PathBuf>,
    dialect: Dialect,
    kept: KeptFiles,
    lane: Option<Lane>,
    channels: Channels<Mortal>,
    submitted: u32,
    completed: u32,
    /// Commands without a completion.
    outstanding: BTreeMap<u16, Act>,
    /// Those that have completed, in that order.
    done: Vec<(u16, Act, Status)>,
    result: u64,
    step: usize,
    begun: bool,
    replayed: bool,
    /// Whether a process has died.
    continues: bool,
}

impl World {
    fn new(place: Place<'_>) -> World {
        let areas = [area_bytes(ENTRIES)];
        let mut world = World {
            host: Host::new(1 << 20),
            doorbells: Arc::new(DoorbellPages::new(8).expect("doorbells")),
            file: StateFile::create("test", FORMAT_VERSION, &areas).expect("a state file"),
            path: place.path.map(Path::to_owned),
            dialect: place.dialect,
            kept: KeptFiles::default(),
            lane: None,
            channels: Channels::new(),
            submitted: 0,
            completed: 0,
            outstanding: BTreeMap::new(),
            done: Vec::new(),
            result: 0,
            step: 0,
            begun: false,
            replayed: false,
            continues: false,
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
        let (medium, kept) = open(&self.path, self.dialect, std::mem::take(&mut self.kept));
        self.kept = kept;
        let channel = Mortal(medium.channel(16).expect("a channel"), Submits::MayDie);
        let Ok(channel) = self.channels.insert(channel) else {
            panic!("an id")
        };
        let namespace = Namespace {
            nsid: 1,
            channel,
            start: 0,
            blocks: SIZE / 4096,
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
        self.continues = true;
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

    fn submit(&mut self, act: Act, sqe: Sqe) {
        let cid = self.submitted as u16;
        let at = DATA + usize::from(cid) * 8192;
        self.host.put(at, &data(cid, act));
        let words = sqe.to_words();
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
            self.result = u64::from(cqe.dw1) << 32 | u64::from(cqe.dw0);
            self.done.push((cid, act, status));
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
        while let Some(step) = script(self.dialect).get(self.step) {
            if !self.begun {
                self.begun = true;
                for act in step {
                    let sqe = act.sqe(self.dialect, self.submitted as u16);
                    self.submit(*act, sqe);
                }
            }
            self.finish();
            self.step += 1;
            self.begun = false;
        }
    }

    fn finish(&mut self) {
        self.doorbells
            .store(sq_tail_slot(1), self.submitted % ENTRIES);
        for _ in 0..1_000_000_u32 {
            if self.outstanding.is_empty() {
                return;
            }
            self.turn();
            assert_eq!(self.result, 0, "a store and a delete have no result");
        }
        panic!("a command hangs");
    }

    /// Reads the value of a key.
    fn retrieve(&mut self, number: u8) -> Option<Vec<u8>> {
        let cid = self.submitted as u16;
        let act = Act::Store(number, Rule::Any, 8192);
        let mut sqe = act.sqe(self.dialect, cid);
        sqe.opcode = match self.dialect {
            Dialect::Nvme => 0x02,
            Dialect::Samsung => 0x90,
        };
        self.submit(act, sqe);
        self.doorbells
            .store(sq_tail_slot(1), self.submitted % ENTRIES);
        for _ in 0..1_000_000_u32 {
            if self.outstanding.is_empty() {
                break;
            }
            self.turn();
        }
        let len = std::mem::take(&mut self.result) as usize;
        match self.done.pop() {
            Some((_, _, OK)) => Some(self.host.get(DATA + usize::from(cid) * 8192, len)),
            Some((_, _, Status::KV_KEY_DOES_NOT_EXIST | samsung::KEY_DOES_NOT_EXIST)) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Compares the pairs with what the commands say, in the order of their steps: statuses first,
    /// then values.
    fn check(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        done.sort_by_key(|(cid, ..)| *cid);
        let mut pairs: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
        // Keys and values of a command that was interrupted: both, or none.
        let mut either = BTreeMap::new();
        let mut at = 0;
        for step in script(self.dialect) {
            let step = &done[at..at + step.len()];
            at += step.len();
            let before = pairs.clone();
            // Those that succeeded for each key.
            let mut won: BTreeMap<u8, u32> = BTreeMap::new();
            for (cid, act, status) in step {
                if let Act::Compound(first, second) = *act {
                    let values = [first, second].map(|number| (number, vec![value(*cid, *act)]));
                    match *status {
                        OK => pairs.extend(values),
                        Status::COMMAND_INTERRUPTED => either.extend(values),
                        status => panic!("command {cid}: {status:?}"),
                    }
                    continue;
                }
                let (number, refused) = match act {
                    Act::Store(number, rule, _) => {
                        let exists = before.contains_key(number);
                        (
                            *number,
                            match rule {
                                Rule::Any => false,
                                Rule::MustExist => !exists,
                                Rule::MustNotExist => exists,
                            },
                        )
                    }
                    Act::Append(number, _) => (*number, false),
                    Act::Delete(number) => (*number, !before.contains_key(number)),
                    Act::Compound(..) => continue,
                };
                if refused {
                    assert_ne!(*status, OK, "command {cid}: {act:?}");
                    continue;
                }
                if *status != OK {
                    // Another one of the step did it first.
                    let is_known = [
                        Status::KV_KEY_DOES_NOT_EXIST,
                        Status::KEY_EXISTS,
                        samsung::KEY_DOES_NOT_EXIST,
                        samsung::IDEMPOTENT_STORE_FAILED,
                    ]
                    .contains(status);
                    let rivals = step.iter().filter(|(_, act, _)| act.key() == key(number));
                    assert!(is_known && rivals.count() > 1, "command {cid}: {status:?}");
                    continue;
                }
                *won.entry(number).or_default() += 1;
                match act {
                    Act::Store(..) => {
                        pairs.insert(number, vec![value(*cid, *act)]);
                    }
                    Act::Append(..) => pairs.entry(number).or_default().push(value(*cid, *act)),
                    Act::Delete(_) => {
                        pairs.remove(&number);
                    }
                    Act::Compound(..) => {}
                }
            }
            let appends = |act: &Act| matches!(act, Act::Append(..));
            for (number, won) in won {
                let of_key = step.iter().filter(|(_, act, _)| act.key() == key(number));
                let all_append = of_key.map(|(_, act, _)| act).all(appends);
                assert!(won == 1 || all_append, "key {number}: {won} succeeded");
            }
        }
        assert!(self.continues || either.is_empty(), "no process has died");
        if let Some(first) = either.keys().next().copied()
            && self.retrieve(first).is_some()
        {
            pairs.append(&mut either);
        }
        for number in 0..9 {
            let found = self.retrieve(number);
            let Some(parts) = pairs.get(&number) else {
                assert_eq!(found, None, "key {number}");
                continue;
            };
            let found = found.unwrap_or_else(|| panic!("no key {number}"));
            // Parts of one step in any order: the script has two at most.
            let mut orders = vec![parts.concat()];
            if parts.len() > 1 {
                let mut other = parts.clone();
                other.swap(0, 1);
                orders.push(other.concat());
            }
            assert!(orders.contains(&found), "the value of key {number}");
        }
    }
}

fn key(number: u8) -> [u8; 7] {
    Act::Delete(number).key()
}

fn value(cid: u16, act: Act) -> Vec<u8> {
    let len = match act {
        Act::Compound(..) => 60,
        act => act.len() as usize,
    };
    pattern(u64::from(cid) + 1, len)
}

/// The data of a command.
fn data(cid: u16, act: Act) -> Vec<u8> {
    let Act::Compound(first, second) = act else {
        return value(cid, act);
    };
    let mut data = vec![0; 512];
    for (index, number) in [first, second].into_iter().enumerate() {
        // Store, the key's size, the value's size, idempotent
        let head = &mut data[index * 16..][..16];
        (head[0], head[1], head[4], head[8]) = (0x81, 7, 60, 2);
        data.extend([0; 64]);
        data.extend(key(number));
        data.extend([0; 57]);
        data.extend(value(cid, act));
        data.extend([0; 4]);
    }
    data
}

fn open(path: &Option<PathBuf>, dialect: Dialect, files: KeptFiles) -> (Arc<Medium>, KeptFiles) {
    open_sized(path, (dialect, SIZE), files)
}

pub(crate) fn open_sized(
    path: &Option<PathBuf>,
    (dialect, size): (Dialect, u64),
    files: KeptFiles,
) -> (Arc<Medium>, KeptFiles) {
    let spec = MediumSpec {
        kind: MediumKind::KeyValue {
            path: path.clone(),
            size,
            keys: Some(100),
            dialect,
        },
    };
    let medium = Medium::open_kept(&spec, files).expect("opened");
    let copied = |fd: std::os::fd::BorrowedFd<'_>| -> OwnedFd {
        fd.try_clone_to_owned().expect("a descriptor")
    };
    let kept = KeptFiles {
        memory: medium.memory_file().map(copied),
        zones: None,
    };
    (medium, kept)
}

/// Plays the script through a death at each of the points; how many the last process has passed.
fn play(place: Place<'_>, points: &[u64]) -> Option<u64> {
    if let Some(path) = place.path {
        let _ = std::fs::remove_file(path);
    }
    let mut world = World::new(place);
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

const MEMORY: [Place<'static>; 2] = [
    Place {
        dialect: Dialect::Nvme,
        path: None,
    },
    Place {
        dialect: Dialect::Samsung,
        path: None,
    },
];

#[test]
fn a_command_to_a_key_has_one_effect_wherever_the_process_dies() {
    for place in MEMORY {
        let count = play(place, &[]).expect("it plays");
        assert!(count > 150, "{count} points");
        for point in 0..count {
            assert!(play(place, &[point]).is_some());
        }
    }
}

mod slow {
    use super::*;

    #[test]
    fn a_second_death_changes_nothing_for_keys() {
        for place in MEMORY {
            let count = play(place, &[]).expect("it plays");
            for first in (0..count).step_by(7) {
                for second in (0..60).step_by(4) {
                    play(place, &[first, second]);
                }
            }
        }
    }

    #[test]
    fn keys_in_a_file_have_one_effect_wherever_the_process_dies() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys");
        for dialect in [Dialect::Nvme, Dialect::Samsung] {
            let path = Some(path.as_path());
            let place = Place { dialect, path };
            let count = play(place, &[]).expect("it plays");
            for point in (0..count).step_by(41) {
                play(place, &[point]);
            }
        }
    }
}
