//! Pairs on a disk that crashes: recovery gives the state after one of the commands, not before the
//! last flush.

use std::collections::BTreeMap;

use memory::Scratch;
use port::ticket::Ticket;
use port::{Added, ByteRange, Cause, Channel as _, Done, Outcome, Request, testing};
use proptest::prelude::*;

use super::super::channel::{KeyValueChannel, KeyValueMedium};
use super::super::durable::Durable;
use super::super::index::KEY_MAX;
use super::super::log::Log;
use super::super::logged::LoggedPairs;
use super::super::pairs::Pairs;
use super::super::records::replay;
use super::{compound, samsung, *};
use crate::StateError;
use crate::disk::{Disk, Random};
use crate::journal::{Journal, Kind, Layout, Shape, Superblock};

const SIZE: u64 = 64 << 10;
const KEYS: u32 = 40;
const LAYOUT: Layout = Layout {
    ring: 0,
    ring_len: 48 * 16384,
    frame_len: 16384,
};
/// The longest value that fits in a frame.
const LONGEST: usize = 15 << 10;
const SHAPE: Shape = Shape {
    kind: Kind::KeyValue,
    words: [SIZE, 0, 0, 0, 0, 0],
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn new_image() -> Vec<u8> {
    let disk = Disk::new(vec![0; LAYOUT.file_len() as usize], 0);
    Journal::create(&disk, SHAPE, LAYOUT, 9).unwrap();
    disk.now()
}

fn recover(disk: &Disk) -> Result<LoggedPairs, StateError> {
    let mut pairs = LoggedPairs::new(SIZE, KEYS).unwrap();
    let superblock = Superblock::read(disk, LAYOUT.file_len())?;
    let journal = Journal::recover(disk, superblock, true, |kind, record| {
        replay(&mut pairs, kind, record)
    })?;
    pairs.set_log(Log::new(journal));
    Ok(pairs)
}

fn map_of(pairs: &Pairs) -> Map {
    let slots = std::iter::successors(pairs.at_or_after(&[]), |slot| pairs.after(*slot));
    let pair = |slot| {
        let mut buffer = [0; KEY_MAX];
        let key = pairs.key(slot, &mut buffer).to_vec();
        let mut value = Vec::new();
        pairs.for_pieces(slot, 0, pairs.value_len(slot), |store, at, len| {
            let mut piece = vec![0; len as usize];
            store.read_bytes(at, &mut piece);
            value.extend(piece);
        });
        (key, value)
    };
    slots.map(pair).collect()
}

struct Life {
    channel: KeyValueChannel<Disk>,
    /// Contents after each command.
    history: Vec<Map>,
    flushed: usize,
    /// Number of changes that are durable when a ticket comes back.
    ongoing: BTreeMap<u64, usize>,
    /// A command that is done in slices, and whether it is to be durable.
    sliced: Option<(u64, bool)>,
    next: u64,
    scratch: Scratch,
}

impl Life {
    fn new(image: Vec<u8>, seed: u64) -> Life {
        let disk = Disk::new(image, seed);
        let pairs = recover(&disk).expect("it is whole");
        let history = vec![map_of(pairs.read())];
        let pairs = KeyValue::of(pairs, Dialect::Samsung);
        let medium = Arc::new(KeyValueMedium::of(pairs, (SIZE, KEYS), None));
        // Everything at once, or in many turns.
        let slice = [16384, 2048, 600][seed as usize % 3];
        let channel = KeyValueChannel::new(&medium, Some(Durable::new(disk, 8)), slice).unwrap();
        Life {
            channel,
            history,
            flushed: 0,
            ongoing: BTreeMap::new(),
            sliced: None,
            next: 1,
            scratch: Scratch::new(1 << 16).unwrap(),
        }
    }

    fn disk(&self) -> &Disk {
        self.channel.below().expect("it has one")
    }

    fn add(&mut self, request: &Request<'_>, data: &[u8], durable: bool) {
        let segment = self.scratch.segment(data.len() as u32, Need::DeviceWrites);
        segment.write_from(0, data);
        let segments = if data.is_empty() { &[] } else { &[segment][..] };
        let view = self.scratch.view().clone();
        let ticket = Ticket::numbered(self.next as u32);
        match self.channel.add(ticket, request, segments, &view) {
            Added::Full(ticket) => ticket.retire(),
            Added::Pending if self.channel.is_slicing() => {
                self.sliced = Some((self.next, durable));
            }
            Added::Pending => {
                assert!(durable);
                self.changed();
                self.ongoing.insert(self.next, self.history.len() - 1);
            }
            Added::Done(ticket, _) => {
                self.changed();
                ticket.retire();
            }
        }
        self.next += 1;
    }

    /// A flush, and how it ended.
    fn flush(&mut self) -> Outcome {
        let ticket = Ticket::numbered(self.next as u32);
        self.next += 1;
        let view = self.scratch.view().clone();
        match self.channel.add(ticket, &Request::Flush, &[], &view) {
            Added::Done(ticket, outcome) => {
                ticket.retire();
                return outcome;
            }
            Added::Full(_) => panic!("there is room"),
            Added::Pending => {}
        }
        let mut done = Vec::new();
        while done.is_empty() {
            self.channel.submit();
            self.channel.reap(&mut done);
        }
        let Done { ticket, outcome } = done.remove(0);
        ticket.retire();
        outcome
    }

    /// A command that need not be durable, retried until it is accepted.
    fn until_done(&mut self, bytes: [u8; 64], data: &[u8]) -> Outcome {
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        let extent = ByteRange {
            offset: 0,
            len: SIZE,
        };
        let request = Request::Command {
            sqe: &sqe,
            extent,
            lba_shift: 9,
            fua: false,
        };
        let view = self.scratch.view().clone();
        for _ in 0..10_000 {
            let segment = self.scratch.segment(data.len() as u32, Need::DeviceWrites);
            segment.write_from(0, data);
            let segments = if data.is_empty() { &[] } else { &[segment][..] };
            let ticket = Ticket::numbered(self.next as u32);
            match self.channel.add(ticket, &request, segments, &view) {
                Added::Done(ticket, outcome) => {
                    ticket.retire();
                    return outcome;
                }
                Added::Full(ticket) => ticket.retire(),
                Added::Pending => panic!("it is short, and need not be durable"),
            }
            self.turn();
        }
        panic!("it waits without end");
    }

    /// A command has been done.
    fn changed(&mut self) {
        let map = map_of(self.channel.pairs().read());
        if map != self.history[self.history.len() - 1] {
            self.history.push(map);
        }
    }

    fn command(&mut self, bytes: [u8; 64], data: &[u8], fua: bool) {
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        let request = Request::Command {
            sqe: &sqe,
            extent: ByteRange {
                offset: 0,
                len: SIZE,
            },
            lba_shift: 9,
            fua,
        };
        self.add(&request, data, fua);
    }

    fn value_len(&self, key: &[u8]) -> usize {
        let map = self.history.last().expect("it begins with one");
        map.get(key).map_or(0, Vec::len)
    }

    fn turn(&mut self) {
        self.channel.submit();
        let mut done = Vec::new();
        self.channel.reap(&mut done);
        let ended = self.sliced.take_if(|_| !self.channel.is_slicing());
        if let Some((bits, durable)) = ended {
            self.changed();
            if durable {
                self.ongoing.insert(bits, self.history.len() - 1);
            }
        }
        for Done { ticket, .. } in done {
            let bits = u64::from(testing::number(ticket));
            let Some(covers) = self.ongoing.remove(&bits) else {
                assert_eq!(ended, Some((bits, false)), "once");
                continue;
            };
            self.flushed = self.flushed.max(covers);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Store(u8, usize, bool),
    Append(u8, usize, bool),
    Delete(u8, bool),
    /// A long key and a short one in one command, and one that goes.
    Batch(u8, usize),
    Clear,
    Flush,
    Turns(u8),
    Tend,
}

fn step() -> impl Strategy<Value = Step> {
    let rarely = || prop::bool::weighted(0.1);
    let len = || prop_oneof![3 => 0usize..600, 1 => 600usize..6000];
    prop_oneof![
        6 => (0u8..24, len(), rarely()).prop_map(|(key, len, fua)| Step::Store(key, len, fua)),
        3 => (0u8..24, len(), rarely()).prop_map(|(key, len, fua)| Step::Append(key, len, fua)),
        3 => (0u8..24, rarely()).prop_map(|(key, fua)| Step::Delete(key, fua)),
        2 => (0u8..24, len()).prop_map(|(key, len)| Step::Batch(key, len)),
        1 => prop::bool::weighted(0.1).prop_map(|clears| if clears { Step::Clear } else { Step::Flush }),
        2 => Just(Step::Flush),
        6 => (1u8..5).prop_map(Step::Turns),
        1 => Just(Step::Tend),
    ]
}

fn key(number: u8) -> [u8; 5] {
    [b'k', b'e', b'y', b'0', number]
}

fn take(life: &mut Life, step: &Step, byte: u8) {
    match *step {
        Step::Store(number, len, fua) => {
            let value = vec![byte; len];
            life.command(samsung::sqe(0x81, &key(number), len, 0), &value, fua);
        }
        Step::Append(number, len, fua) => {
            // A record does not cross frames, which are as long as the longest value, except here.
            let there = life.value_len(&key(number));
            let value = vec![byte; len.min(LONGEST.saturating_sub(there))];
            let len = value.len();
            life.command(samsung::sqe(0x83, &key(number), len, 0), &value, fua);
        }
        Step::Delete(number, fua) => {
            life.command(samsung::sqe(0xa1, &key(number), 0, 0), &[], fua);
        }
        Step::Batch(number, len) => {
            let long = [number; 100];
            let value = vec![byte; len];
            let gone = key(number + 1);
            let data = compound::payload(&[
                (0x81, &long, &value, 0),
                (0x81, &key(number), &value, 0),
                (0xa1, &gone, &[], 0),
            ]);
            life.command(compound::batch(3, data.len()), &data, false);
        }
        Step::Clear => {
            let extent = ByteRange {
                offset: 0,
                len: SIZE,
            };
            life.add(&Request::Renew { extent }, &[], true);
        }
        Step::Flush => life.add(&Request::Flush, &[], true),
        Step::Turns(count) => (0..count).for_each(|_| life.turn()),
        Step::Tend => drop(life.channel.tend().is_some()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn pairs_come_back_as_they_once_were_and_not_before_their_last_flush(
        lives in prop::collection::vec(prop::collection::vec(step(), 1..150), 1..4),
        seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let mut image = new_image();
        let mut before = vec![Map::new()];
        for steps in &lives {
            let mut life = Life::new(image, random.below(u64::MAX));
            prop_assert!(before.contains(&life.history[0]), "as after one of the commands");
            for (byte, step) in (random.below(250) as u8..=255).cycle().zip(steps) {
                take(&mut life, step, byte);
            }
            image = life.disk().crash();
            before = life.history.split_off(life.flushed);
            for calls in 0..random.below(5) {
                let disk = Disk::new(image, random.below(u64::MAX));
                disk.fail_after(calls);
                drop(recover(&disk));
                image = disk.crash();
            }
        }
        let life = Life::new(image, 1);
        prop_assert!(before.contains(&life.history[0]));
    }
}

#[test]
fn a_full_medium_is_overwritten_for_ever() {
    let mut life = Life::new(new_image(), 4);
    for round in 0..60u8 {
        for number in 0..8 {
            let value = vec![round; 7000];
            let before = life.next;
            life.command(samsung::sqe(0x81, &key(number), 7000, 0), &value, false);
            assert_eq!(life.next, before + 1);
            (0..12).for_each(|_| life.turn());
        }
    }
    let map = life.history[life.history.len() - 1].clone();
    assert!(map.values().all(|value| *value == vec![59; 7000]) && map.len() == 8);
    life.add(&Request::Flush, &[], true);
    (0..30).for_each(|_| life.turn());
    assert!(life.ongoing.is_empty());
    let pairs = recover(&Disk::new(life.disk().crash(), 1)).unwrap();
    assert_eq!(map_of(pairs.read()), map);
}

#[test]
fn a_compound_command_is_there_after_a_crash_or_it_is_not() {
    // More and less than its first store has room beside, in a frame that another value has nearly
    // filled.
    for len in [100, 1000, 1400, 1800, 2200] {
        for seed in 0..9 {
            let mut life = Life::new(new_image(), seed);
            take(&mut life, &Step::Store(7, 14 << 10, false), 1);
            while life.channel.is_slicing() {
                life.turn();
            }
            take(&mut life, &Step::Batch(0, len), 2);
            (0..40).for_each(|_| life.turn());
            // All that was written has reached the disk, and no more was.
            let found = map_of(recover(&Disk::new(life.disk().now(), 1)).unwrap().read());
            let there = [&[0; 100][..], &key(0)].map(|key| found.contains_key(key));
            assert_eq!(there[0], there[1], "{len} bytes, seed {seed}");
        }
    }
}

/// Bytes that one turn copies into the log, and hands to the disk.
fn turn(channel: &mut KeyValueChannel<Disk>, done: &mut Vec<Done>) -> (u64, u64) {
    let reaches =
        |channel: &KeyValueChannel<Disk>| channel.pairs().log().unwrap().journal.reaches();
    let written = |channel: &KeyValueChannel<Disk>| channel.below().unwrap().written();
    let before = (reaches(channel), written(channel));
    channel.submit();
    channel.reap(done);
    (reaches(channel) - before.0, written(channel) - before.1)
}

#[test]
fn no_turn_copies_more_than_a_slice_into_the_log_or_to_the_disk() {
    const SLICE: u32 = 16384;
    const LEN: usize = 200_000;
    // Bytes for the end of a frame, and the head of a record.
    const BESIDE: u64 = 4096 + 512;
    let layout = Layout {
        ring: 0,
        ring_len: 24 * (256 << 10),
        frame_len: 256 << 10,
    };
    let disk = Disk::new(vec![0; layout.file_len() as usize], 5);
    let superblock = Journal::create(&disk, SHAPE, layout, 9).unwrap();
    let mut pairs = LoggedPairs::new(1 << 20, KEYS).unwrap();
    let journal = Journal::recover(&disk, superblock, true, |_, _| Ok(())).unwrap();
    pairs.set_log(Log::new(journal));
    let pairs = KeyValue::of(pairs, Dialect::Samsung);
    let medium = Arc::new(KeyValueMedium::of(pairs, (1 << 20, KEYS), None));
    let durable = Some(Durable::new(disk, 8));
    let mut channel = KeyValueChannel::new(&medium, durable, SLICE).unwrap();
    let scratch = Scratch::new(256 << 10).unwrap();
    let segments = [scratch.segment(LEN as u32, Need::DeviceReads)];
    let (mut done, mut told) = (Vec::new(), 0);
    for round in 0..60u8 {
        let sqe = samsung::sqe(0x81, &key(round % 4), LEN, 0);
        let sqe = Sqe::read_from_bytes(&sqe).unwrap();
        let request = Request::Command {
            sqe: &sqe,
            extent: ByteRange {
                offset: 0,
                len: 1 << 20,
            },
            lba_shift: 9,
            fua: round % 7 == 0,
        };
        let mut turns = 0;
        loop {
            let ticket = Ticket::numbered(round.into());
            match channel.add(ticket, &request, &segments, scratch.view()) {
                Added::Pending => break,
                Added::Full(ticket) => ticket.retire(),
                Added::Done(..) => panic!("it is long"),
            }
            turn(&mut channel, &mut done);
        }
        assert!(channel.is_slicing());
        while done.is_empty() || channel.in_flight() > 0 {
            let slicing = channel.is_slicing();
            let (copied, written) = turn(&mut channel, &mut done);
            turns += u32::from(slicing);
            // At the end of the ring the log continues at its start.
            let jumps = copied > 100 << 10;
            let most = u64::from(if slicing { SLICE / 2 } else { SLICE });
            assert!(
                jumps || copied <= most + BESIDE,
                "{copied} bytes, {slicing}"
            );
            assert!(
                written <= u64::from(SLICE) + 4096,
                "{written} bytes written"
            );
            let log = channel.pairs().log().unwrap();
            told += u32::from(log.is_in_checkpoint());
        }
        // Half of each slice goes into the store, and half into the log.
        assert_eq!(turns, LEN.div_ceil(SLICE as usize / 2) as u32);
        done.drain(..).for_each(|done| done.ticket.retire());
    }
    assert!(told > 100, "{told} turns of checkpoints");
}

#[test]
fn a_disk_that_is_full_refuses_stores_and_takes_deletes_until_it_has_room() {
    let mut life = Life::new(new_image(), 4);
    life.command(samsung::sqe(0x81, &key(1), 5, 0), b"value", false);
    life.command(samsung::sqe(0x81, &key(2), 5, 0), b"value", false);
    let full = Outcome::of(Cause::NoSpace);
    life.disk().no_space(1);
    assert_eq!(life.flush(), full);
    for _ in 0..3 {
        let refused = life.until_done(samsung::sqe(0x81, &key(3), 5, 0), b"other");
        assert_eq!(refused, full);
        assert_eq!(life.flush(), full);
    }
    let deleted = life.until_done(samsung::sqe(0xa1, &key(1), 0, 0), b"");
    assert_eq!(deleted.cause, Cause::None, "it takes no space");
    (0..1000).for_each(|_| life.turn());
    assert_eq!(life.channel.in_flight(), 0, "it tries once, and waits");
    life.disk().no_space(0);
    let stored = life.until_done(samsung::sqe(0x81, &key(3), 5, 0), b"other");
    assert_eq!(stored, Outcome::OK);
    assert_eq!(life.flush(), Outcome::OK);
    assert_eq!(
        map_of(life.channel.pairs().read()).len(),
        2,
        "what was refused is not there"
    );
    let found = Life::new(life.disk().crash(), 4);
    let keys: Vec<_> = found.history[0].keys().cloned().collect();
    assert_eq!(keys, [key(2), key(3)]);
}
