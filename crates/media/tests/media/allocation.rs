//! Queries for allocated blocks: an answer says "hole" only of blocks that read as zeroes.

use std::sync::Arc;

use media::{Direct, Medium, MediumKind, MediumSpec};
use port::allocation::{Query, Run};
use port::{ByteRange, Cause, Channel as _, Request};

use crate::common::{Host, Runner, in_memory, on_disk, open_file};
use crate::timed::nvm;

/// Bytes of each medium: some huge pages.
const SIZE: u64 = 16 << 20;
/// Bytes of a huge page.
const HUGE_PAGE: u64 = 2 << 20;
/// The namespace in it.
const EXTENT: ByteRange = ByteRange {
    offset: 1 << 20,
    len: 14 << 20,
};
/// Bytes that a test changes at once.
const MOST: u64 = 256 << 10;

struct Asker {
    host: Host,
    runner: Runner,
    lba_shift: u8,
    now: u64,
}

impl Asker {
    fn new(medium: &Arc<Medium>, lba_shift: u8) -> Self {
        Asker {
            host: Host::new(MOST as usize),
            runner: Runner::new(medium, 8),
            lba_shift,
            now: 0,
        }
    }

    fn ask(&mut self, slba: u64, blocks: u32) -> Result<Run, Cause> {
        let sqe = Query { slba, blocks }.command(1, 1);
        let request = Request::Command {
            sqe: &sqe,
            extent: EXTENT,
            lba_shift: self.lba_shift,
            fua: false,
        };
        let outcome = self.runner.run(&self.host, &request, &[]);
        match outcome.cause {
            Cause::None => {
                let run = Run::of(outcome.result as u32, (outcome.result >> 32) as u32);
                assert!((1..=blocks).contains(&run.blocks), "{run:?} of {blocks}");
                Ok(run)
            }
            cause => Err(cause),
        }
    }

    fn change(&mut self, request: &Request<'_>, len: usize) {
        let pieces: &[_] = if len > 0 { &[(0, len)] } else { &[] };
        let id = self.runner.add(&self.host, request, pieces);
        self.runner.channel.submit();
        let mut ended = Vec::new();
        while ended.is_empty() {
            self.runner.reap();
            self.now += 1_000_000;
            self.runner.set_time(self.now);
            ended = self.runner.take_ended();
        }
        assert_eq!((ended[0].0, ended[0].1.cause), (id, Cause::None));
    }
}

/// Every medium that answers, with the directories that they need.
fn media() -> (Vec<tempfile::TempDir>, Vec<(&'static str, Arc<Medium>)>) {
    let (disk, memory) = (on_disk(), in_memory());
    let ram = || MediumSpec {
        kind: MediumKind::Ram { size: SIZE },
    };
    let file = |directory: &tempfile::TempDir, name, direct| {
        open_file(&directory.path().join(name), Some(SIZE), direct)
    };
    let media = vec![
        ("ram", Medium::open(&ram()).expect("opened")),
        ("timed", Medium::open_timed(&ram(), &nvm()).expect("opened")),
        ("direct", file(&disk, "direct.img", Direct::Auto)),
        ("buffered", file(&disk, "buffered.img", Direct::Off)),
        ("memory", file(&memory, "memory.img", Direct::Auto)),
    ];
    (vec![disk, memory], media)
}

/// Whether a medium's memory is on huge pages that this machine has reserved, which are holes only
/// as a whole.
fn is_on_reserved_pages(medium: &Medium) -> bool {
    medium.describe().contains("on reserved huge pages")
}

/// The bytes of a medium, as a plain array.
struct Oracle {
    bytes: Vec<u8>,
    state: u64,
}

impl Oracle {
    fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005) | 1;
        (self.state >> 33) % limit
    }
}

/// Writes, zeroes and trims at random; runs from anywhere to the end.
#[test]
fn what_is_a_hole_reads_as_zeroes() {
    let (_directories, media) = media();
    for (name, medium) in media {
        assert!(medium.traits().allocation, "{name}");
        for lba_shift in [9, 12] {
            let mut asker = Asker::new(&medium, lba_shift);
            let block = 1_u64 << lba_shift;
            let blocks = EXTENT.len >> lba_shift;
            let mut oracle = Oracle {
                bytes: vec![0; EXTENT.len as usize],
                state: 7 + u64::from(lba_shift),
            };
            asker.host.put(0, &vec![0xa5; MOST as usize]);
            // Bytes of the other size of a block.
            let all = [EXTENT];
            asker.change(&Request::Deallocate { ranges: &all }, 0);
            // Huge pages inside the namespace.
            let mut untouched: u32 = 0b0111_1110;
            for round in 0..60 {
                let len = (1 + oracle.below(MOST / block)) * block;
                let at = oracle.below((EXTENT.len - len) / block) * block;
                let offset = EXTENT.offset + at;
                let kind = oracle.below(4);
                match kind {
                    0 | 1 => {
                        let len = len as u32;
                        let write = Request::Write {
                            offset,
                            len,
                            fua: false,
                        };
                        asker.change(&write, len as usize);
                    }
                    2 => {
                        let zeroes = Request::WriteZeroes {
                            offset,
                            len,
                            deallocate: round % 2 == 0,
                            fua: false,
                        };
                        asker.change(&zeroes, 0);
                    }
                    _ => {
                        let ranges = [ByteRange { offset, len }];
                        asker.change(&Request::Deallocate { ranges: &ranges }, 0);
                    }
                }
                let byte = if kind < 2 { 0xa5 } else { 0 };
                oracle.bytes[at as usize..(at + len) as usize].fill(byte);
                let mut next = oracle.below(blocks);
                let mut holes = 0;
                for _ in 0..40 {
                    let asked = (blocks - next).min(1 + oracle.below(blocks));
                    let run = asker.ask(next, asked as u32).unwrap();
                    let end = next + u64::from(run.blocks);
                    if run.is_hole {
                        holes += u64::from(run.blocks);
                        let bytes = (next << lba_shift) as usize..(end << lba_shift) as usize;
                        let zero = oracle.bytes[bytes].iter().all(|byte| *byte == 0);
                        assert!(zero, "{name}: blocks {next} to {end} are data");
                    }
                    next = if end == blocks { 0 } else { end };
                }
                // Zeroes are written where no whole page can be freed.
                let (first, last) = (offset / HUGE_PAGE, (offset + len - 1) / HUGE_PAGE);
                (first..=last).for_each(|page| untouched &= !(1 << page));
                let has_holes = untouched != 0 || !is_on_reserved_pages(&medium);
                assert!(holes > 0 || !has_holes, "{name}: some of it is a hole");
            }
        }
    }
}

/// A block that was given back is a hole again, and one that was written is none.
#[test]
fn a_hole_is_filled_and_made() {
    let (_directories, media) = media();
    for (name, medium) in media {
        let mut asker = Asker::new(&medium, 9);
        let blocks = (EXTENT.len >> 9) as u32;
        assert!(asker.ask(0, blocks).unwrap().is_hole, "{name}");
        asker.host.put(0, &[7; 4096]);
        // In the middle of the second huge page.
        let at = 3 << 20;
        let write = Request::Write {
            offset: EXTENT.offset + at,
            len: 4096,
            fua: false,
        };
        asker.change(&write, 4096);
        assert!(!asker.ask(at >> 9, 8).unwrap().is_hole, "{name}");
        let before = asker.ask(0, blocks).unwrap();
        assert!(
            before.is_hole && u64::from(before.blocks) <= at >> 9,
            "{name}"
        );
        let ranges = [EXTENT];
        asker.change(&Request::Deallocate { ranges: &ranges }, 0);
        assert!(asker.ask(at >> 9, 8).unwrap().is_hole, "{name}");
    }
}

/// More queries at a time than a channel takes, on the one thread.
#[test]
fn a_channel_takes_a_number_of_queries() {
    let (_directories, media) = media();
    for (name, medium) in media {
        let mut asker = Asker::new(&medium, 9);
        let sqe = Query { slba: 0, blocks: 8 }.command(1, 1);
        let request = Request::Command {
            sqe: &sqe,
            extent: EXTENT,
            lba_shift: 9,
            fua: false,
        };
        let mut taken = 0;
        while asker.runner.try_add(&asker.host, &request, &[]).is_some() {
            taken += 1;
        }
        // Those that ended meanwhile count until they are reaped.
        assert_eq!(taken, 16, "{name}");
        assert_eq!(asker.runner.drain().len(), 16, "{name}");
        assert!(asker.ask(0, 8).is_ok(), "{name}");
    }
}

#[test]
fn a_query_outside_the_namespace_is_refused() {
    let ram = MediumKind::Ram { size: SIZE };
    let medium = Medium::open(&MediumSpec { kind: ram }).unwrap();
    let mut asker = Asker::new(&medium, 9);
    let blocks = EXTENT.len >> 9;
    for (slba, count) in [
        (0, 0),
        (blocks, 1),
        (blocks - 1, 2),
        (u64::MAX, 1),
        (1 << 55, 1),
    ] {
        assert_eq!(asker.ask(slba, count), Err(Cause::Unsupported), "{slba}");
    }
}

#[test]
fn a_medium_without_holes_answers_none() {
    let null = MediumKind::Null { size: SIZE };
    let medium = Medium::open(&MediumSpec { kind: null }).unwrap();
    assert!(!medium.traits().allocation);
}
