//! Zones on a disk that crashes: every zone comes back as it once was, and not as it was before its last flush.

use std::collections::{BTreeMap, BTreeSet};

use controller::port::ByteRange;
use memory::{Need, Scratch};
use nvme_spec::zoned::ZoneState;
use proptest::prelude::*;

use super::zones::Zone;
use super::*;
use crate::disk::{Disk, Random};
use crate::journal::{Journal, Kind, Layout, Shape, Superblock};

const BLOCK: u64 = 4096;
const SECTOR: u64 = 512;
const ZONES: u32 = 6;
const ZONE: u64 = 8 * BLOCK;
const SIZE: u64 = ZONES as u64 * ZONE;
const SPEC: ZoneSpec = ZoneSpec {
    zone_size: ZONE,
    zone_capacity: 6 * BLOCK,
    max_open: 2,
    max_active: 3,
    descriptor_extension: 64,
    append_limit: 0,
    random: None,
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

/// By sector of a zone, the number of the write that was there last, with the version that it came with; zeros are written by none.
type Content = BTreeMap<u64, (u32, usize)>;

/// A zone as it was once.
#[derive(Clone, Debug)]
struct Version {
    zone: Zone,
    extension: Vec<u8>,
    content: Content,
}

/// All that a zone was, and which of it is known to be durable.
#[derive(Clone, Debug)]
struct Past {
    versions: Vec<Version>,
    /// Versions whose command a flush has covered.
    flushed: BTreeSet<usize>,
}

/// The zone and the version that a command made.
type Made = Vec<(usize, usize)>;

struct Rig {
    channel: ZonedChannel<Disk>,
    past: Vec<Past>,
    /// Commands that are under way: what they have made, or what they flush.
    ongoing: BTreeMap<u64, (Made, Option<Made>)>,
    ended: Made,
    next: u64,
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

fn version(state: &State, zone: u32, content: Content) -> Version {
    let now = state.zones.get(zone).after_restart();
    let at = zone as usize * 64;
    let extension = match now.extended {
        true => state.extensions[at..at + 64].to_vec(),
        false => Vec::new(),
    };
    Version {
        zone: now,
        extension,
        content,
    }
}

impl Rig {
    /// Over an image that was just recovered, whose zones were so before.
    fn new(image: Vec<u8>, seed: u64, before: &[Past]) -> Rig {
        let disk = Disk::new(image, seed);
        let state = recover(&disk).expect("it is whole");
        let bytes = disk.now();
        let past = (0..ZONES).map(|zone| {
            let at = (u64::from(zone) * ZONE) as usize;
            let bytes = &bytes[at..at + ZONE as usize];
            let found = version(&state, zone, Content::new());
            let content = match before.get(zone as usize) {
                Some(past) => past.check(&found, bytes),
                None => Content::new(),
            };
            Past {
                versions: vec![Version { content, ..found }],
                flushed: BTreeSet::from([0]),
            }
        });
        let past = past.collect();
        let (_, active) = state.zones.in_use();
        assert!(active <= SPEC.max_active, "{active} zones are active");
        let medium = Arc::new(ZonedMedium::new(&SPEC, SIZE, false).unwrap());
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
        let id = self.next;
        self.next += 1;
        let flushes = matches!(request, Request::Flush).then(|| self.ended.clone());
        let segments = if bytes > 0 { &[segment][..] } else { &[] };
        let added = self
            .channel
            .add(Ticket::from_bits(id), request, segments, &view);
        match added {
            Added::Full(ticket) => ticket.retire(),
            Added::Pending => {
                let made = self.note(bytes, number);
                self.ongoing.insert(id, (made, flushes));
            }
            Added::Done(ticket, outcome) => {
                ticket.retire();
                if outcome.cause == Outcome::OK.cause {
                    let made = self.note(bytes, number);
                    self.ended.extend(made);
                    self.flushed(flushes);
                }
            }
        }
    }

    /// What zones are other than before, by a command that was taken.
    fn note(&mut self, bytes: u32, number: u32) -> Made {
        let mut made = Vec::new();
        let happened = self.channel.happened.clone();
        let state = self.channel.state.as_ref().unwrap();
        for (zone, past) in (0..ZONES).zip(&mut self.past) {
            let at = past.versions.len();
            let start = u64::from(zone) * ZONE;
            let mut content = past.versions[at - 1].content.clone();
            let mut is_written = false;
            for op in &happened {
                let (offset, len, number) = match *op {
                    Op::Write { offset, len, .. } if bytes > 0 => (offset, len.into(), number),
                    Op::Deallocate { offset, len } => (offset, len, 0),
                    _ => continue,
                };
                if (start..start + ZONE).contains(&offset) {
                    is_written = true;
                    for sector in 0..len / SECTOR {
                        content.insert((offset - start) / SECTOR + sector, (number, at));
                    }
                }
            }
            let found = version(state, zone, content);
            let before = &past.versions[at - 1];
            let is_reset = found.zone.state == ZoneState::EMPTY;
            let same = found.zone == before.zone && found.extension == before.extension;
            if same && !is_written {
                continue;
            }
            let content = if is_reset {
                Content::new()
            } else {
                found.content.clone()
            };
            past.versions.push(Version { content, ..found });
            made.push((zone as usize, at));
        }
        made
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
            let (made, flushes) = self.ongoing.remove(&ticket.into_bits()).expect("once");
            self.ended.extend(made);
            self.flushed(flushes);
        }
    }
}

impl Past {
    /// That a zone was found as it was once, and what is in it then.
    fn check(&self, found: &Version, bytes: &[u8]) -> Content {
        let least = self.flushed.last().copied().unwrap_or(0);
        for version in &self.versions[least..] {
            if let Some(content) = self.content(version, found, bytes) {
                return content;
            }
        }
        let zones: Vec<_> = self.versions[least..].iter().map(|was| was.zone).collect();
        panic!("{:?} is none of {zones:?}", found.zone);
    }

    fn content(&self, version: &Version, found: &Version, bytes: &[u8]) -> Option<Content> {
        let (was, is) = (version.zone, found.zone);
        let is_full = is.state == ZoneState::FULL;
        let same = was.state == is.state && was.extended == is.extended;
        if !same || version.extension != found.extension || (was.written != is.written && !is_full)
        {
            return None;
        }
        let mut content = Content::new();
        for (sector, bytes) in (0..).zip(bytes.as_chunks::<{ SECTOR as usize }>().0) {
            let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let (wrote, by) = version.content.get(&sector).copied().unwrap_or((0, 0));
            let is_durable = self.flushed.contains(&by);
            let is_whole = number == 0 || bytes[4..].iter().all(|byte| *byte == 0x5A);
            if !is_whole || (number != wrote && (number != 0 || is_durable)) {
                return None;
            }
            if number != 0 {
                content.insert(sector, (number, 0));
            }
        }
        Some(content)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        zone: u64,
        blocks: u64,
        fua: bool,
    },
    Zeroes {
        zone: u64,
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
    Extend {
        zone: u64,
    },
    Flush,
    Turns(u8),
    Tend,
}

fn step() -> impl Strategy<Value = Step> {
    let zone = || 0..u64::from(ZONES);
    let rarely = || prop::bool::weighted(0.1);
    prop_oneof![
        6 => (zone(), 1u64..4, rarely()).prop_map(|(zone, blocks, fua)| Step::Write { zone, blocks, fua }),
        1 => (zone(), 1u64..3, rarely()).prop_map(|(zone, blocks, fua)| Step::Zeroes { zone, blocks, fua }),
        6 => (zone(), 1u32..4, rarely()).prop_map(|(zone, blocks, fua)| Step::Append { zone, blocks, fua }),
        // Close, finish, open, reset.
        1 => (zone(), 1u32..4, rarely()).prop_map(|(zone, action, all)| Step::Send { zone, action, all }),
        3 => (zone(), rarely()).prop_map(|(zone, all)| Step::Send { zone, action: 4, all }),
        1 => zone().prop_map(|zone| Step::Extend { zone }),
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
    let place =
        |rig: &mut Rig, zone: u64| zone * ZONE + rig.channel.zones().get(zone as u32).written;
    match *step {
        Step::Write { zone, blocks, fua } => {
            let (offset, len) = (place(rig, zone), (blocks * BLOCK) as u32);
            rig.add(&Request::Write { offset, len, fua }, len);
        }
        Step::Zeroes { zone, blocks, fua } => {
            let request = Request::WriteZeroes {
                offset: place(rig, zone),
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
        Step::Extend { zone } => {
            let send = Sqe {
                cdw13: 0x10,
                ..sqe(0x79, zone)
            };
            command(rig, &send, false, 64);
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
            image = rig.channel.below().crash();
            before = rig.past.clone();
            // It crashes again while it comes back, a few times.
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
