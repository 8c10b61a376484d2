//! Zones on a disk that crashes: every zone comes back in one of its earlier states, and not in one
//! before its last flush.
//!
//! A random write area is overwritten in place, in any order: its zone comes back with any contents
//! that its sectors had since they were last durable, and a write pointer moved by some of its
//! writes, including all that a flush has covered.

mod under_way;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use memory::{Need, Scratch};
use nvme_spec::Sqe;
use nvme_spec::zoned::ZoneState;
use port::ByteRange;
use port::set::RandomAreas;
use proptest::prelude::*;

use super::zones::Zone;
use super::*;
use crate::disk::{Disk, Random};
use crate::journal::{Journal, Kind, Layout, Shape, Superblock};
use crate::kept::Kept;

const BLOCK: u64 = 4096;
const SECTOR: u64 = 512;
const ZONES: u32 = 6;
const ZONE: u64 = 8 * BLOCK;
/// Random write areas.
const AREA: u64 = 2 * BLOCK;
const STEP: u64 = BLOCK;
const SIZE: u64 = ZONES as u64 * ZONE;
const SPEC: ZoneSpec = ZoneSpec {
    zone_size: ZONE,
    zone_capacity: 6 * BLOCK,
    max_open: 2,
    max_active: 3,
    descriptor_extension: 64,
    append_limit: 0,
    random: Some(RandomAreas {
        bytes: AREA as u32,
        granularity: STEP as u32,
        zones: 2,
    }),
};
const LAYOUT: Layout = Layout {
    ring: SIZE,
    ring_len: 16 * 4096,
    frame_len: 4096,
};
const SHAPE: Shape = Shape {
    kind: Kind::Zoned,
    words: [SIZE, 0, 0, 0, 0, 0],
};
const EXTENT: ByteRange = ByteRange {
    offset: 0,
    len: SIZE,
};

/// A zone as it was once.
#[derive(Clone, Debug)]
struct Version {
    zone: Zone,
    extension: Vec<u8>,
    /// Sectors of the zone that were written, each with the number that they were given; zeros are
    /// written by none.
    wrote: Vec<(u64, u32)>,
    /// Position to which this version alone moves the write pointer of a zone with a random write
    /// area.
    moves_to: u64,
}

/// All that a zone was, and which of it is known to be durable.
#[derive(Clone, Debug)]
struct Past {
    versions: Vec<Version>,
    /// Versions whose command a flush has covered.
    flushed: BTreeSet<usize>,
    /// Versions of writes in flight.
    under_way: BTreeSet<usize>,
}

/// The zone and the version that a command made.
type Made = Vec<(usize, usize)>;

struct Rig {
    channel: ZonedChannel<Disk>,
    past: Vec<Past>,
    /// Commands in flight: the versions that they have made, and those that they flush.
    ongoing: BTreeMap<TicketId, (Made, Option<Made>)>,
    ended: Made,
    next: u32,
    numbers: u32,
    scratch: Scratch,
}

fn new_image() -> Vec<u8> {
    let disk = Disk::new(vec![0; LAYOUT.file_len() as usize], 0);
    Journal::create(&disk, SHAPE, LAYOUT, 3).unwrap();
    disk.now()
}

fn recover(disk: &Disk) -> Result<State, crate::StateError> {
    let (geometry, set) = SPEC.zones(SIZE).unwrap();
    let mut state = State::new(Zones::new(geometry), &set);
    let superblock = Superblock::read(disk, LAYOUT.file_len())?;
    let journal = Journal::recover(disk, superblock, false, |kind, record| {
        state.replay(kind, record)
    })?;
    state.keeper = Some(Keeper::new(journal, &state.zones));
    open::sweep(&state.zones, disk)?;
    Ok(state)
}

fn version(state: &State, zone: u32, wrote: Vec<(u64, u32)>) -> Version {
    let now = state.zones.get(zone).after_restart();
    let at = zone as usize * 64;
    let extension = if now.extended {
        state.extensions[at..at + 64].to_vec()
    } else {
        Vec::new()
    };
    // Where the area begins that the last byte ends in; what writes nothing has moved it itself.
    let end = wrote.iter().map(|(sector, _)| (sector + 1) * SECTOR).max();
    let moves_to = end.map_or(now.written, |end| {
        end.saturating_sub(AREA).div_ceil(STEP) * STEP
    });
    Version {
        zone: now,
        extension,
        wrote,
        moves_to,
    }
}

impl Rig {
    /// Over an image that was just recovered, whose zones were so before.
    fn new(image: Vec<u8>, seed: u64, before: &[Past]) -> Rig {
        let disk = Disk::new(image, seed);
        let mut state = recover(&disk).expect("it is whole");
        let bytes = disk.now();
        let past = (0..ZONES).map(|zone| {
            let at = (u64::from(zone) * ZONE) as usize;
            let bytes = &bytes[at..at + ZONE as usize];
            let found = version(&state, zone, Vec::new());
            let wrote = match before.get(zone as usize) {
                Some(past) => past.check(&found, bytes),
                None => Vec::new(),
            };
            Past {
                versions: vec![Version { wrote, ..found }],
                flushed: BTreeSet::from([0]),
                under_way: BTreeSet::new(),
            }
        });
        let past = past.collect();
        let (_, active) = state.zones.in_use();
        assert!(active <= SPEC.max_active, "{active} zones are active");
        let random = (0..ZONES).filter(|zone| state.zones.get(*zone).random);
        assert!(
            random.count() <= 2,
            "more random write areas than there are"
        );
        let medium = Arc::new(ZonedMedium::new((&SPEC, Kept::No), SIZE, false).unwrap());
        if let Some(keeper) = &mut state.keeper {
            keeper.journal.set_slice(BLOCK as u32);
        }
        Rig {
            channel: ZonedChannel::new(disk, medium, Box::new(state), 8),
            past,
            ongoing: BTreeMap::new(),
            ended: Vec::new(),
            next: 1,
            numbers: 1 + (seed as u32 & 0xFFFF) * 1000,
            scratch: Scratch::new(1 << 16).unwrap(),
        }
    }

    fn add(&mut self, request: &Request<'_>, bytes: u32) {
        self.numbers += 1;
        let number = self.numbers;
        let segment = self.scratch.segment(bytes, Need::DeviceWrites);
        for sector in 0..bytes / SECTOR as u32 {
            segment.write_from(sector * SECTOR as u32, &[0x5A; SECTOR as usize]);
            segment.write_from(sector * SECTOR as u32, &number.to_le_bytes());
        }
        let view = self.scratch.view().clone();
        let ticket = Ticket::numbered(self.next);
        let id = ticket.id();
        self.next += 1;
        let flushes = matches!(request, Request::Flush).then(|| self.ended.clone());
        let segments = if bytes > 0 { &[segment][..] } else { &[] };
        let added = self.channel.add(ticket, request, segments, &view);
        // A request that is durable when it ends covers itself.
        let covers = |made: &Made| match request {
            Request::Write { fua: true, .. }
            | Request::WriteZeroes { fua: true, .. }
            | Request::Command { fua: true, .. } => Some(made.clone()),
            _ => flushes,
        };
        match added {
            Added::Full(ticket) => ticket.retire(),
            Added::Pending => {
                let made = self.note(bytes, number);
                let covers = covers(&made);
                self.ongoing.insert(id, (made, covers));
            }
            Added::Done(ticket, outcome) => {
                ticket.retire();
                if outcome.cause == Outcome::OK.cause {
                    let made = self.note(bytes, number);
                    self.flushed(covers(&made));
                    self.ended.extend(made);
                }
            }
        }
    }

    /// Records the changes of zones by an accepted command.
    fn note(&mut self, bytes: u32, number: u32) -> Made {
        let mut made = Vec::new();
        let happened = self.channel.happened.clone();
        let state = self.channel.state.as_ref().unwrap();
        for (zone, past) in (0..ZONES).zip(&mut self.past) {
            let at = past.versions.len();
            let start = u64::from(zone) * ZONE;
            let mut wrote = Vec::new();
            for op in &happened {
                let (offset, len, number) = match *op {
                    Op::Write { offset, len, .. } if bytes > 0 => (offset, len.into(), number),
                    Op::Deallocate { offset, len } => (offset, len, 0),
                    _ => continue,
                };
                if (start..start + ZONE).contains(&offset) {
                    let first = (offset - start) / SECTOR;
                    wrote.extend((first..first + len / SECTOR).map(|sector| (sector, number)));
                }
            }
            let found = version(state, zone, wrote);
            let before = &past.versions[at - 1];
            let same = found.zone == before.zone && found.extension == before.extension;
            if same && found.wrote.is_empty() {
                continue;
            }
            past.versions.push(found);
            made.push((zone as usize, at));
        }
        made
    }

    /// Crashes the disk; returns its contents, and the history of the zones.
    fn crash(mut self) -> (Vec<u8>, Vec<Past>) {
        for out in &self.channel.out {
            let made = match out.what {
                Taken::Write { .. } => out.id.and_then(|id| self.ongoing.get(&id)),
                _ => None,
            };
            for (zone, version) in made.into_iter().flat_map(|(made, _)| made) {
                self.past[*zone].under_way.insert(*version);
            }
        }
        (self.channel.below().crash(), self.past)
    }

    fn flushed(&mut self, flushes: Option<Made>) {
        for (zone, version) in flushes.into_iter().flatten() {
            self.past[zone].flushed.insert(version);
        }
    }

    fn turn(&mut self) {
        self.channel.submit();
        let mut done = Vec::new();
        self.channel.reap(&mut done);
        for Done { ticket, outcome } in done {
            assert_eq!(outcome.cause, Outcome::OK.cause);
            let (made, flushes) = self.ongoing.remove(&ticket.id()).expect("once");
            ticket.retire();
            self.ended.extend(made);
            self.flushed(flushes);
        }
    }
}

impl Past {
    /// Checks that a zone was found in one of its versions; returns its contents.
    fn check(&self, found: &Version, bytes: &[u8]) -> Vec<(u64, u32)> {
        let least = self.flushed.last().copied().unwrap_or(0);
        for at in least..self.versions.len() {
            let time = self.time_of(at);
            if self.was(at, &time, found)
                && let Some(wrote) = self.content(&time, found, bytes)
            {
                return wrote;
            }
        }
        let zones: Vec<_> = self.versions[least..].iter().map(|was| was.zone).collect();
        panic!(
            "{:?} is none of {zones:?}, under way {:?}",
            found.zone, self.under_way
        );
    }

    /// The versions of the time between two resets that this one is in.
    fn time_of(&self, at: usize) -> Range<usize> {
        let is_reset = |version: &Version| version.zone.state == ZoneState::EMPTY;
        let first = self.versions[..=at].iter().rposition(is_reset);
        let next = self.versions[at + 1..].iter().position(is_reset);
        first.unwrap_or(0)..next.map_or(self.versions.len(), |next| at + 1 + next)
    }

    /// Whether the zone is as it was at this version, which is one of this time.
    fn was(&self, at: usize, time: &Range<usize>, found: &Version) -> bool {
        let (version, is) = (&self.versions[at], found.zone);
        let was = version.zone;
        let same = (was.state, was.extended, was.random) == (is.state, is.extended, is.random);
        if !same || version.extension != found.extension {
            return false;
        }
        if is.state == ZoneState::FULL {
            return true;
        }
        if is.random {
            // Anywhere that completed writes have moved it, but not before the flushed ones.
            let moved = |at: &usize| self.versions[*at].moves_to;
            let least = self.flushed.range(time.clone()).map(moved).max();
            let mut able = time.clone().filter(|at| !self.under_way.contains(at));
            return is.written >= least.unwrap_or(0)
                && (is.written == 0 || able.any(|at| moved(&at) == is.written));
        }
        was.written == is.written && !self.under_way.contains(&at)
    }

    /// Possible contents of a zone.
    fn content(
        &self,
        time: &Range<usize>,
        found: &Version,
        bytes: &[u8],
    ) -> Option<Vec<(u64, u32)>> {
        let mut content = Vec::new();
        for (sector, bytes) in (0..).zip(bytes.as_chunks::<{ SECTOR as usize }>().0) {
            let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            // Contents written there, starting with the last durable ones.
            let mut able = vec![0];
            for at in time.clone() {
                let wrote = &self.versions[at].wrote;
                for (_, number) in wrote.iter().filter(|(place, _)| *place == sector) {
                    if self.flushed.contains(&at) {
                        able.clear();
                    }
                    able.push(*number);
                }
            }
            let is_behind = sector * SECTOR >= found.zone.reached;
            let is_whole = number == 0 || bytes[4..].iter().all(|byte| *byte == 0x5A);
            if !is_whole || !able.contains(&number) || (is_behind && number != 0) {
                return None;
            }
            if number != 0 {
                content.push((sector, number));
            }
        }
        Some(content)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// `skip`: number of blocks after the write pointer, of a zone with a random write area.
    Write {
        zone: u64,
        skip: u64,
        blocks: u64,
        fua: bool,
    },
    Zeroes {
        zone: u64,
        skip: u64,
        blocks: u64,
        fua: bool,
    },
    Append {
        zone: u64,
        blocks: u32,
        fua: bool,
    },
    /// Zone Management Send: action, of one zone or all.
    Send {
        zone: u64,
        action: u32,
        all: bool,
    },
    /// `random`: it is given a random write area.
    Open {
        zone: u64,
    },
    Extend {
        zone: u64,
        random: bool,
    },
    /// Flush Explicit ZRWA Range of this many blocks.
    Commit {
        zone: u64,
        blocks: u32,
    },
    Flush,
    Turns(u8),
    Tend,
}

fn step() -> impl Strategy<Value = Step> {
    let zone = || 0..u64::from(ZONES);
    let rarely = || prop::bool::weighted(0.1);
    prop_oneof![
        8 => (zone(), 0u64..3, 1u64..4, rarely()).prop_map(|(zone, skip, blocks, fua)| Step::Write { zone, skip, blocks, fua }),
        1 => (zone(), 0u64..3, 1u64..3, rarely()).prop_map(|(zone, skip, blocks, fua)| Step::Zeroes { zone, skip, blocks, fua }),
        6 => (zone(), 1u32..4, rarely()).prop_map(|(zone, blocks, fua)| Step::Append { zone, blocks, fua }),
        // Close, finish, open, reset.
        1 => (zone(), 1u32..4, rarely()).prop_map(|(zone, action, all)| Step::Send { zone, action, all }),
        3 => (zone(), rarely()).prop_map(|(zone, all)| Step::Send { zone, action: 4, all }),
        2 => zone().prop_map(|zone| Step::Open { zone }),
        1 => (zone(), any::<bool>()).prop_map(|(zone, random)| Step::Extend { zone, random }),
        2 => (zone(), 1u32..3).prop_map(|(zone, blocks)| Step::Commit { zone, blocks }),
        2 => Just(Step::Flush),
        6 => (1u8..5).prop_map(Step::Turns),
        1 => Just(Step::Tend),
    ]
}

fn sqe(opcode: u8, zone: u64) -> Sqe {
    Sqe {
        opcode,
        cdw10: (zone * ZONE / BLOCK) as u32,
        ..Sqe::default()
    }
}

/// Zone Send Action Specific Option: allocate a random write area.
const RANDOM: u32 = 1 << 9;

fn take(rig: &mut Rig, step: &Step) {
    let command = |rig: &mut Rig, sqe: &Sqe, fua, bytes| {
        let request = Request::Command {
            sqe,
            extent: EXTENT,
            lba_shift: 12,
            fua,
        };
        rig.add(&request, bytes);
    };
    let place = |rig: &mut Rig, zone: u64, skip: u64| {
        let Zone {
            written, random, ..
        } = rig.channel.zones().get(zone as u32);
        zone * ZONE + written + u64::from(random) * skip * BLOCK
    };
    match *step {
        Step::Write {
            zone,
            skip,
            blocks,
            fua,
        } => {
            let (offset, len) = (place(rig, zone, skip), (blocks * BLOCK) as u32);
            rig.add(&Request::Write { offset, len, fua }, len);
        }
        Step::Zeroes {
            zone,
            skip,
            blocks,
            fua,
        } => {
            let request = Request::WriteZeroes {
                offset: place(rig, zone, skip),
                len: blocks * BLOCK,
                deallocate: true,
                fua,
            };
            rig.add(&request, 0);
        }
        Step::Append { zone, blocks, fua } => {
            let append = Sqe {
                cdw12: blocks - 1,
                ..sqe(0x7d, zone)
            };
            command(rig, &append, fua, blocks * BLOCK as u32);
        }
        Step::Send { zone, action, all } => {
            let send = Sqe {
                cdw13: action | u32::from(all) << 8,
                ..sqe(0x79, zone)
            };
            command(rig, &send, false, 0);
        }
        Step::Open { zone } => {
            let send = Sqe {
                cdw13: 3 | RANDOM,
                ..sqe(0x79, zone)
            };
            command(rig, &send, false, 0);
        }
        Step::Extend { zone, random } => {
            let send = Sqe {
                cdw13: 0x10 | (u32::from(random) * RANDOM),
                ..sqe(0x79, zone)
            };
            command(rig, &send, false, 64);
        }
        Step::Commit { zone, blocks } => {
            let last = place(rig, zone, 0) / BLOCK + u64::from(blocks) - 1;
            let send = Sqe {
                cdw10: last as u32,
                cdw13: 0x11,
                ..sqe(0x79, zone)
            };
            command(rig, &send, false, 0);
        }
        Step::Flush => rig.add(&Request::Flush, 0),
        Step::Turns(count) => (0..count).for_each(|_| rig.turn()),
        Step::Tend => rig.channel.tend(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn zones_come_back_as_they_once_were_and_not_before_their_last_flush(
        lives in prop::collection::vec(prop::collection::vec(step(), 1..120), 1..5),
        seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let mut image = new_image();
        let mut before = Vec::new();
        for steps in &lives {
            let mut rig = Rig::new(image, random.below(u64::MAX), &before);
            steps.iter().for_each(|step| take(&mut rig, step));
            (image, before) = rig.crash();
            // It crashes again during recovery, a few times.
            for calls in 0..random.below(6) {
                let disk = Disk::new(image, random.below(u64::MAX));
                disk.fail_after(calls);
                let _ = recover(&disk);
                image = disk.crash();
            }
        }
        Rig::new(image, 1, &before);
    }
}
