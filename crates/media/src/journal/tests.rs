//! The log compared with a list of the appended records: after any crash it contains a prefix of
//! them, including all that were flushed.

use std::collections::{BTreeMap, VecDeque};

use memory::DmaView;
use port::ticket::Ticket;
use port::{Cause, Channel as _, Done, Outcome, Request, testing};
use proptest::prelude::*;

use super::*;
use crate::disk::{Disk, Random};

const SHAPE: Shape = Shape {
    kind: Kind::Zoned,
    words: [1, 2, 3, 4, 5, 6],
};
const LAYOUT: Layout = Layout {
    ring: 8192,
    ring_len: 14 * 8192,
    frame_len: 8192,
};
const KEYS: u32 = 24;
const PUT: u8 = 1;

type Map = BTreeMap<u32, Vec<u8>>;

fn blank() -> Vec<u8> {
    vec![0; LAYOUT.file_len() as usize]
}

fn new_image() -> Vec<u8> {
    let disk = Disk::new(blank(), 0);
    Journal::create(&disk, SHAPE, LAYOUT, 77).unwrap();
    disk.now()
}

fn open(disk: &Disk) -> Result<(Journal, Map), StateError> {
    let superblock = Superblock::read(disk, LAYOUT.file_len())?;
    assert_eq!((superblock.shape, superblock.layout), (SHAPE, LAYOUT));
    let mut map = Map::new();
    let journal = Journal::recover(disk, superblock, true, |kind, record| {
        assert_eq!(kind, PUT);
        let (key, value) = record.split_at(4);
        map.insert(u32::from_le_bytes(key.try_into().unwrap()), value.to_vec());
        Ok(())
    })?;
    Ok((journal, map))
}

/// An owner of a map, with the map after each of its changes since it was opened.
struct Owner {
    disk: Disk,
    journal: Journal,
    history: Vec<Map>,
    /// Changes that a flush has covered.
    flushed: usize,
    cursor: Option<u32>,
    /// Flushes: the position that they wait for, and the changes that they cover.
    waiting: VecDeque<(u64, usize)>,
    flushing: BTreeMap<u64, usize>,
    next: u64,
    done: Vec<Done>,
}

impl Owner {
    fn open(image: Vec<u8>, seed: u64) -> Owner {
        let disk = Disk::new(image, seed);
        let (mut journal, map) = open(&disk).expect("it is whole");
        // Frames have two blocks at most.
        journal.set_slice(BLOCK as u32);
        Owner {
            disk,
            journal,
            history: vec![map],
            flushed: 0,
            cursor: None,
            waiting: VecDeque::new(),
            flushing: BTreeMap::new(),
            next: 0,
            done: Vec::new(),
        }
    }

    fn put(&mut self, key: u32, value: Vec<u8>) {
        if !self.journal.has_room(4 + value.len()) {
            return self.turn();
        }
        append(&mut self.journal, key, &value);
        let mut map = self.history[self.history.len() - 1].clone();
        let size = 4 + value.len();
        map.insert(key, value);
        self.history.push(map);
        self.checkpoint(size);
    }

    /// As many bytes of the state as were appended beside it.
    fn checkpoint(&mut self, mut bytes: usize) {
        if self.journal.is_long() {
            self.journal.begin_checkpoint();
            self.cursor = Some(0);
        }
        while let Some(key) = self.cursor
            && bytes > 0
        {
            let map = &self.history[self.history.len() - 1];
            let Some((key, value)) = map.range(key..).next() else {
                self.journal.end_checkpoint();
                self.cursor = None;
                return;
            };
            if !self.journal.has_room(4 + value.len()) {
                return;
            }
            append(&mut self.journal, *key, value);
            bytes = bytes.saturating_sub(4 + value.len());
            self.cursor = Some(key + 1);
        }
    }

    fn flush(&mut self) {
        self.journal.retry();
        self.journal.seal();
        self.waiting
            .push_back((self.journal.end(), self.history.len() - 1));
        self.turn();
    }

    fn turn(&mut self) {
        self.journal.begin_turn();
        self.journal.drive(&mut self.disk);
        while let Some((end, covers)) = self.waiting.front().copied()
            && self.journal.settled() >= end
        {
            let ticket = Ticket::numbered(self.next as u32);
            let view = DmaView::empty();
            match self.disk.add(ticket, &Request::Flush, &[], &view) {
                Added::Full(ticket) => {
                    ticket.retire();
                    break;
                }
                _ => {
                    self.waiting.pop_front();
                    self.flushing.insert(self.next, covers);
                    self.next += 1;
                }
            }
        }
        self.disk.reap(&mut self.done);
        for Done { ticket, outcome } in self.done.drain(..) {
            if Journal::owns(&ticket) {
                self.journal.complete(ticket, outcome);
            } else {
                let covers = self
                    .flushing
                    .remove(&u64::from(testing::number(ticket)))
                    .unwrap();
                self.flushed = self.flushed.max(covers);
            }
        }
        if self.journal.stalled().is_some() {
            let settled = self.journal.settled();
            self.waiting.retain(|(end, _)| *end <= settled);
        }
        self.checkpoint(2000);
        if self.journal.is_settled() {
            return;
        }
        if self.journal.in_flight() == 0 {
            self.journal.seal();
        }
    }
}

fn append(journal: &mut Journal, key: u32, value: &[u8]) {
    journal.append(PUT, 4 + value.len(), |record| {
        record.put(&key.to_le_bytes());
        record.put(value);
    });
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32, usize, u8),
    Flush,
    Turns(u8),
    Detach,
    /// One in this many writes finds no space; 0: none.
    NoSpace(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..KEYS, 0usize..900, any::<u8>()).prop_map(|(key, len, byte)| Step::Put(key, len, byte)),
        2 => Just(Step::Flush),
        4 => (1u8..6).prop_map(Step::Turns),
        1 => Just(Step::Detach),
        1 => (0u64..4).prop_map(Step::NoSpace),
    ]
}

/// Crashes while a log is taken up, again and again, until that goes through.
fn recover_with_crashes(mut image: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for calls in 0..4 {
        let disk = Disk::new(image, random.below(u64::MAX));
        disk.fail_after(calls);
        let opened = open(&disk);
        assert!(matches!(opened, Err(StateError::Io(_))) || calls >= 3);
        image = disk.crash();
    }
    image
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_was_flushed_is_there_and_nothing_is_out_of_order(
        lives in prop::collection::vec(prop::collection::vec(step(), 1..150), 1..5),
        seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let mut image = new_image();
        let mut before = vec![Map::new()];
        for steps in lives {
            let mut owner = Owner::open(image, random.below(u64::MAX));
            let found = &owner.history[0];
            prop_assert!(before.contains(found), "the map as it once was, and not before its last flush");
            for step in steps {
                match step {
                    Step::Put(key, len, byte) => owner.put(key, vec![byte; len]),
                    Step::Flush => owner.flush(),
                    Step::NoSpace(one_in) => owner.disk.no_space(one_in),
                    Step::Turns(count) => (0..count).for_each(|_| owner.turn()),
                    Step::Detach => {
                        // The channel goes when the medium has ended all that it has.
                        while owner.disk.in_flight() > 0 {
                            owner.disk.reap(&mut owner.done);
                        }
                        for done in owner.done.drain(..) {
                            done.ticket.retire();
                        }
                        owner.flushing.clear();
                        owner.journal.detach();
                    }
                }
            }
            before = owner.history.split_off(owner.flushed);
            image = recover_with_crashes(owner.disk.crash(), &mut random);
        }
        let owner = Owner::open(image, 1);
        prop_assert!(before.contains(&owner.history[0]));
    }
}

#[test]
fn a_log_goes_round_its_ring_and_stays_short() {
    let mut owner = Owner::open(new_image(), 5);
    let mut longest = 0;
    for count in 0..3000u32 {
        owner.put(count % KEYS, vec![count as u8; 500]);
        owner.turn();
        longest = longest.max(owner.journal.len());
    }
    assert!(owner.history.len() > 1000, "{}", owner.history.len());
    assert!(owner.journal.end() > 10 * LAYOUT.ring_len);
    assert!(longest <= LAYOUT.ring_len);
    // The space behind the log's start was freed, except for the part still pending.
    owner.journal.finish(&owner.disk).unwrap();
    let (_, map) = open(&Disk::new(owner.disk.now(), 1)).unwrap();
    assert_eq!(map, owner.history[owner.history.len() - 1]);
}

#[test]
fn a_clean_stop_needs_no_flush() {
    let mut owner = Owner::open(new_image(), 9);
    owner.put(1, vec![1; 100]);
    owner.journal.finish(&owner.disk).unwrap();
    owner.put(2, vec![2; 3000]);
    owner.journal.finish(&owner.disk).unwrap();
    let (_, map) = open(&Disk::new(owner.disk.crash(), 1)).unwrap();
    assert_eq!(map, Map::from([(1, vec![1; 100]), (2, vec![2; 3000])]));
}

#[test]
fn what_finds_no_space_is_written_when_there_is_some_again() {
    for seed in 0..50 {
        let mut owner = Owner::open(new_image(), seed);
        owner.put(1, vec![1; 100]);
        owner.flush();
        (0..50).for_each(|_| owner.turn());
        assert_eq!(owner.flushed, 1);
        owner.disk.no_space(1);
        for key in 2..5 {
            owner.put(key, vec![1; 700]);
            owner.flush();
            (0..50).for_each(|_| owner.turn());
            let full = Outcome::of(Cause::NoSpace);
            assert_eq!(owner.journal.stalled(), Some(full));
            assert_eq!((owner.flushed, owner.waiting.len()), (1, 0));
            assert_eq!(owner.journal.in_flight(), 0, "it waits, and does nothing");
        }
        let crashed = Owner::open(owner.disk.crash(), seed);
        // A part may be all of a frame that counts.
        let wholes = &owner.history[1..];
        assert!(wholes.contains(&crashed.history[0]), "no half of a frame");
        owner.disk.no_space(0);
        owner.flush();
        (0..50).for_each(|_| owner.turn());
        assert_eq!((owner.journal.stalled(), owner.flushed), (None, 4));
        let after = Owner::open(owner.disk.crash(), seed);
        assert_eq!(after.history[0], owner.history[4]);
    }
}

#[test]
fn who_needs_the_log_waits_for_an_attempt_and_learns_how_it_ended() {
    let mut owner = Owner::open(new_image(), 9);
    assert_eq!(owner.journal.writable(), Writable::Yes);
    owner.disk.no_space(1);
    owner.put(1, vec![1; 100]);
    owner.flush();
    (0..50).for_each(|_| owner.turn());
    // An earlier failure does not affect later attempts.
    for _ in 0..2 {
        assert_eq!(owner.journal.writable(), Writable::Later);
        while !owner.journal.has_verdict() {
            assert_eq!(owner.journal.writable(), Writable::Later);
            owner.turn();
        }
        let full = Outcome::of(Cause::NoSpace);
        assert_eq!(owner.journal.writable(), Writable::No(full));
    }
    owner.disk.no_space(0);
    assert_eq!(owner.journal.writable(), Writable::Later);
    while owner.journal.writable() == Writable::Later {
        owner.turn();
    }
    assert_eq!(owner.journal.writable(), Writable::Yes);
}

#[test]
fn a_stop_on_a_full_disk_fails_and_a_later_one_loses_nothing() {
    let mut owner = Owner::open(new_image(), 9);
    owner.put(1, vec![1; 100]);
    owner.put(2, vec![2; 100]);
    owner.disk.fail_after(0);
    assert!(owner.journal.finish(&owner.disk).is_err());
    owner.disk.fail_after(u64::MAX);
    owner.journal.finish(&owner.disk).unwrap();
    let (_, map) = open(&Disk::new(owner.disk.crash(), 1)).unwrap();
    assert_eq!(map.len(), 2);
}

/// A log with some records, cleanly stopped.
fn written() -> Vec<u8> {
    let mut owner = Owner::open(new_image(), 3);
    for key in 0..KEYS {
        owner.put(key, vec![7; 400]);
    }
    owner.journal.finish(&owner.disk).unwrap();
    owner.disk.now()
}

fn refused(image: Vec<u8>) -> String {
    let before = image.clone();
    let disk = Disk::new(image, 0);
    let error = open(&disk).map(drop).expect_err("it is refused");
    assert_eq!(disk.now(), before, "and left as it is");
    error.to_string()
}

#[test]
fn what_is_damaged_is_refused_and_left_as_it_is() {
    let whole = written();
    assert_eq!(
        open(&Disk::new(whole.clone(), 0)).unwrap().1.len(),
        KEYS as usize
    );
    // Any byte of the frames that were there at the stop.
    for at in [0, 8, 16, 24, 28, 40, 5000, 9000] {
        let mut image = whole.clone();
        image[LAYOUT.ring as usize + at] ^= 1;
        assert!(
            refused(image).contains("damaged (its log ends too early)"),
            "{at}"
        );
    }
    let ends = LAYOUT.file_len() as usize;
    let mut image = whole.clone();
    for at in [ends - 1, ends - 4097] {
        image[at] ^= 1;
    }
    assert!(refused(image).contains("both of its superblocks"));
    let mut image = whole.clone();
    image[ends - 8192..].fill(0);
    assert!(refused(image).contains("was not created for such a medium"));
    // A newer format, with a checksum that is right.
    let mut image = whole;
    for at in [ends - 8192, ends - 4096] {
        let block = &mut image[at..at + 4096];
        block[8] = 2;
        block[12..16].fill(0);
        let crc = crc::of(block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    assert!(refused(image).contains("unsupported format 2; this program reads format 1"));
}

#[test]
fn one_superblock_is_enough() {
    let whole = written();
    let ends = LAYOUT.file_len() as usize;
    let newer = match Superblock::read(&Disk::new(whole.clone(), 0), ends as u64)
        .unwrap()
        .sequence
        % 2
    {
        0 => ends - 8192,
        _ => ends - 4096,
    };
    let older = 2 * ends - 12288 - newer;
    for (at, keys) in [(older, KEYS as usize), (newer, KEYS as usize)] {
        let mut image = whole.clone();
        image[at + 100] ^= 0x10;
        assert_eq!(open(&Disk::new(image, 0)).unwrap().1.len(), keys);
    }
}

/// Records flushed under a newer superblock exist without it, and stay.
#[test]
fn frames_of_a_lost_superblock_count() {
    let mut owner = Owner::open(written(), 3);
    let newer = owner.journal.superblock.sequence % 2;
    owner.put(1, vec![1; 10]);
    owner.flush();
    while owner.flushed == 0 {
        owner.turn();
    }
    let mut image = owner.disk.now();
    let at = image.len() - 8192 + newer as usize * 4096;
    image[at + 100] ^= 0x10;
    for _ in 0..2 {
        let owner = Owner::open(image, 3);
        assert_eq!(owner.history[0][&1], [1; 10]);
        image = owner.disk.now();
    }
}

/// An incarnation has no number behind the last one: the file is refused, and left as it is.
#[test]
fn a_log_that_was_opened_too_often_is_refused() {
    let mut image = written();
    for at in [image.len() - 8192, image.len() - 4096] {
        let block = &mut image[at..at + 4096];
        block[24..28].fill(0xFF);
        block[12..16].fill(0);
        let crc = crc::of(block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    assert!(refused(image).contains("opened too often"));
}

#[test]
fn a_frame_of_an_earlier_time_is_no_continuation() {
    // Two frames, of which the first gets lost; the log is taken up, and writes one like it.
    let mut owner = Owner::open(new_image(), 3);
    owner.put(1, vec![1; 10]);
    owner.journal.seal();
    owner.put(2, vec![2; 10]);
    owner.journal.seal();
    (0..20).for_each(|_| owner.turn());
    let mut image = owner.disk.now();
    let first = LAYOUT.ring as usize;
    image[first..first + 4096].fill(0);
    let mut owner = Owner::open(image, 3);
    assert_eq!(owner.history[0], Map::new());
    owner.put(1, vec![1; 10]);
    owner.journal.finish(&owner.disk).unwrap();
    let (_, map) = open(&Disk::new(owner.disk.now(), 0)).unwrap();
    assert_eq!(map, Map::from([(1, vec![1; 10])]));
}

/// A frame that a crash tore becomes whole when sectors of a later one, which equal its lost ones,
/// reach the disk and the others do not.
#[test]
fn a_torn_frame_that_becomes_whole_stays_lost() {
    let records = |owner: &mut Owner| {
        owner.put(1, vec![1; 10]);
        owner.put(2, vec![2; 800]);
        owner.journal.seal();
        (0..20).for_each(|_| owner.turn());
        owner.disk.now()
    };
    let whole = records(&mut Owner::open(new_image(), 3));
    let second = LAYOUT.ring as usize + 512..LAYOUT.ring as usize + 1024;
    let mut image = whole.clone();
    image[second.clone()].fill(0);
    let mut owner = Owner::open(image, 3);
    assert_eq!(owner.history[0], Map::new());
    let mut image = owner.disk.now();
    let later = records(&mut owner);
    assert_eq!(later[second.clone()], whole[second.clone()]);
    image[second.clone()].copy_from_slice(&later[second]);
    let (_, map) = open(&Disk::new(image, 0)).unwrap();
    assert_eq!(map, Map::new());
}

proptest! {
    /// Any contents of the state area are read or rejected, and reading ends.
    #[test]
    fn any_bytes_are_read_or_refused(
        changes in prop::collection::vec((0..LAYOUT.file_len() as usize, any::<u8>()), 0..20),
        heals in any::<bool>(),
    ) {
        let mut image = written();
        for (at, byte) in changes {
            image[at] = byte;
        }
        if heals {
            for at in [image.len() - 8192, image.len() - 4096] {
                let block = &mut image[at..at + 4096];
                block[12..16].fill(0);
                let crc = crc::of(block);
                block[12..16].copy_from_slice(&crc.to_le_bytes());
            }
        }
        let disk = Disk::new(image, 0);
        if let Ok(superblock) = Superblock::read(&disk, LAYOUT.file_len()) {
            let _ = Journal::recover(&disk, superblock, false, |_, _| Ok(()));
        }
    }
}
