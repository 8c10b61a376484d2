//! Programs of requests against a vector of bytes: whatever is asked, in whatever batches and at
//! whatever alignment, a medium holds what the vector holds.

use std::sync::Arc;

use media::{Direct, Medium, MediumKind, MediumSpec};
use port::{ByteRange, Cause, Outcome, Request};
use proptest::prelude::*;

use crate::common::{Host, Runner, file_spec, in_memory, on_disk, pattern};

const SECTOR: usize = 512;
/// The medium's sectors: 512 KiB.
const SECTORS: usize = 1024;
/// The host's memory for one command, the most it moves plus what it is shifted by.
const LANE_BYTES: usize = 256 << 10;
const LANES: usize = 8;

#[derive(Clone, Debug)]
enum Step {
    Read {
        at: Place,
        memory: Layout,
    },
    Write {
        at: Place,
        memory: Layout,
        fua: bool,
        seed: u64,
    },
    /// Compares with what is there; `differs` at this byte, where it is one of them.
    Compare {
        at: Place,
        memory: Layout,
        differs: usize,
    },
    Zero {
        at: Place,
        deallocate: bool,
        fua: bool,
    },
    Deallocate {
        ranges: Vec<Place>,
    },
    Flush,
    /// Wait for everything before going on.
    Drain,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    sector: usize,
    sectors: usize,
}

impl Place {
    fn offset(self) -> usize {
        self.sector * SECTOR
    }
    fn len(self) -> usize {
        self.sectors * SECTOR
    }
    fn end(self) -> usize {
        self.offset() + self.len()
    }
    fn range(self) -> ByteRange {
        ByteRange {
            offset: self.offset() as u64,
            len: self.len() as u64,
        }
    }
}

fn place() -> impl Strategy<Value = Place> {
    // Mostly small; up to 192 KiB, which is several rounds of a bounce buffer.
    let sectors = prop_oneof![4 => 1..=16_usize, 1 => 1..=384_usize];
    (0..SECTORS, sectors).prop_map(|(sector, sectors)| Place {
        sector,
        sectors: sectors.min(SECTORS - sector),
    })
}

/// Where a buffer is in the host's memory.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Where it starts in its first page.
    skew: usize,
    /// Bytes of a piece; `None` where pieces end with pages.
    cut: Option<usize>,
}

impl Layout {
    const ALIGNED: Layout = Layout { skew: 0, cut: None };

    fn pieces(self, start: usize, len: usize) -> Vec<(usize, usize)> {
        let (mut at, mut left, mut pieces) = (start, len, Vec::new());
        while left > 0 {
            let here = match self.cut {
                None => left.min(4096 - at % 4096),
                // No more pieces than a command may have.
                Some(cut) => left.min(cut.max(len.div_ceil(1280))),
            };
            pieces.push((at, here));
            (at, left) = (at + here, left - here);
        }
        pieces
    }
}

/// As PRPs have buffers, at a page, a sector of it, or any dword; and as SGLs have them, at any
/// byte and in any pieces.
fn layout() -> impl Strategy<Value = Layout> {
    let skew = prop_oneof![
        2 => Just(0),
        1 => (0..8_usize).prop_map(|n| n * SECTOR),
        1 => (0..1024_usize).prop_map(|n| n * 4),
        1 => 0..4096_usize,
    ];
    let cut = prop_oneof![
        3 => Just(None),
        1 => (1..16_usize).prop_map(|n| Some(n * SECTOR)),
        1 => (1..9000_usize).prop_map(Some),
        1 => (1..8_usize).prop_map(Some),
    ];
    (skew, cut).prop_map(|(skew, cut)| Layout { skew, cut })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (place(), layout()).prop_map(|(at, memory)| Step::Read { at, memory }),
        6 => (place(), layout(), any::<bool>(), any::<u64>())
            .prop_map(|(at, memory, fua, seed)| Step::Write { at, memory, fua, seed }),
        2 => (place(), layout(), 0..400_000_usize).prop_map(|(at, memory, differs)| Step::Compare { at, memory, differs }),
        2 => (place(), any::<bool>(), any::<bool>())
            .prop_map(|(at, deallocate, fua)| Step::Zero { at, deallocate, fua }),
        1 => prop::collection::vec(place(), 1..5).prop_map(|ranges| Step::Deallocate { ranges }),
        1 => Just(Step::Flush),
        1 => Just(Step::Drain),
    ]
}

struct Expected {
    outcome: Outcome,
    /// Host memory (offset) that must hold these bytes afterwards.
    bytes: Option<(usize, Vec<u8>)>,
}

struct Run {
    host: Host,
    runner: Runner,
    model: Vec<u8>,
    /// By the command's number.
    expected: Vec<(u64, Expected)>,
    /// Ranges of commands in flight. They may not overlap: NVMe defines no order for them.
    busy: Vec<Place>,
}

impl Run {
    fn new(medium: &Arc<Medium>) -> Run {
        let host = Host::new(LANES * LANE_BYTES);
        let runner = Runner::new(medium, LANES as u16);
        Run {
            host,
            runner,
            model: vec![0; SECTORS * SECTOR],
            expected: Vec::new(),
            busy: Vec::new(),
        }
    }

    fn make_room(&mut self, places: &[Place]) {
        let overlaps = |a: &Place, b: &Place| a.offset() < b.end() && b.offset() < a.end();
        let conflict = places
            .iter()
            .any(|new| self.busy.iter().any(|old| overlaps(new, old)));
        if conflict || self.expected.len() == LANES {
            self.drain();
        }
        self.busy.extend_from_slice(places);
    }

    fn drain(&mut self) {
        let ended = self.runner.drain();
        assert_eq!(ended.len(), self.expected.len());
        for ((id, outcome), (expected_id, expected)) in
            ended.into_iter().zip(self.expected.drain(..))
        {
            assert_eq!((id, outcome), (expected_id, expected.outcome));
            if let Some((at, bytes)) = expected.bytes {
                assert!(
                    self.host.get(at, bytes.len()) == bytes,
                    "command {id} left other bytes"
                );
            }
        }
        self.busy.clear();
    }

    /// A buffer for the next command: where it starts.
    fn buffer(&self, memory: Layout) -> usize {
        self.expected.len() * LANE_BYTES + memory.skew
    }

    fn expect(
        &mut self,
        request: &Request<'_>,
        pieces: &[(usize, usize)],
        cause: Cause,
        bytes: Option<(usize, Vec<u8>)>,
    ) {
        let id = self.runner.add(&self.host, request, pieces);
        self.expected.push((
            id,
            Expected {
                outcome: Outcome::of(cause),
                bytes,
            },
        ));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Read { at, memory } => {
                self.make_room(&[*at]);
                let buffer = self.buffer(*memory);
                // A byte before and one after the buffer are not touched.
                let mut around = vec![0xEE; at.len() + 2];
                self.host.put(buffer.saturating_sub(1), &around);
                around[usize::from(buffer > 0)..][..at.len()]
                    .copy_from_slice(&self.model[at.offset()..at.end()]);
                let request = Request::Read {
                    offset: at.offset() as u64,
                    len: at.len() as u32,
                };
                let bytes = Some((buffer.saturating_sub(1), around));
                self.expect(
                    &request,
                    &memory.pieces(buffer, at.len()),
                    Cause::None,
                    bytes,
                );
            }
            Step::Write {
                at,
                memory,
                fua,
                seed,
            } => {
                self.make_room(&[*at]);
                let buffer = self.buffer(*memory);
                let data = pattern(*seed, at.len());
                self.host.put(buffer, &data);
                self.model[at.offset()..at.end()].copy_from_slice(&data);
                let request = Request::Write {
                    offset: at.offset() as u64,
                    len: at.len() as u32,
                    fua: *fua,
                };
                self.expect(
                    &request,
                    &memory.pieces(buffer, at.len()),
                    Cause::None,
                    Some((buffer, data)),
                );
            }
            Step::Compare {
                at,
                memory,
                differs,
            } => {
                self.make_room(&[*at]);
                let buffer = self.buffer(*memory);
                let mut data = self.model[at.offset()..at.end()].to_vec();
                let cause = match data.get_mut(*differs) {
                    Some(byte) => {
                        *byte ^= 0x10;
                        Cause::CompareMismatch
                    }
                    None => Cause::None,
                };
                self.host.put(buffer, &data);
                let request = Request::Compare {
                    offset: at.offset() as u64,
                    len: at.len() as u32,
                };
                self.expect(
                    &request,
                    &memory.pieces(buffer, at.len()),
                    cause,
                    Some((buffer, data)),
                );
            }
            Step::Zero {
                at,
                deallocate,
                fua,
            } => {
                self.make_room(&[*at]);
                self.model[at.offset()..at.end()].fill(0);
                let ByteRange { offset, len } = at.range();
                let request = Request::WriteZeroes {
                    offset,
                    len,
                    deallocate: *deallocate,
                    fua: *fua,
                };
                self.expect(&request, &[], Cause::None, None);
            }
            Step::Deallocate { ranges } => {
                self.make_room(ranges);
                for range in ranges {
                    self.model[range.offset()..range.end()].fill(0);
                }
                let ranges: Vec<_> = ranges.iter().map(|range| range.range()).collect();
                self.expect(
                    &Request::Deallocate { ranges: &ranges },
                    &[],
                    Cause::None,
                    None,
                );
            }
            Step::Flush => {
                self.make_room(&[]);
                self.expect(&Request::Flush, &[], Cause::None, None);
            }
            Step::Drain => self.drain(),
        }
    }

    /// After the last step the whole medium is read, in pieces that fit.
    fn finish(&mut self) {
        self.drain();
        for sector in (0..SECTORS).step_by(128) {
            self.step(&Step::Read {
                at: Place {
                    sector,
                    sectors: 128,
                },
                memory: Layout::ALIGNED,
            });
        }
        self.drain();
    }
}

fn check(spec: &MediumSpec, steps: &[Step]) {
    let medium = Medium::open(spec).expect("the medium opens");
    assert!(
        medium.traits().deallocated_reads_zero && medium.traits().deallocate,
        "{}",
        medium.describe()
    );
    let mut run = Run::new(&medium);
    for step in steps {
        run.step(step);
    }
    run.finish();
    medium.sync().expect("synced");
    assert_eq!(medium.size(), (SECTORS * SECTOR) as u64);
}

fn check_file(directory: &tempfile::TempDir, direct: Direct, steps: &[Step]) {
    let path = directory.path().join("disk.img");
    let size = (SECTORS * SECTOR) as u64;
    check(&file_spec(&path, Some(size), direct), steps);
    assert_eq!(
        std::fs::metadata(&path).expect("it is there").len(),
        size,
        "it never grows"
    );
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ram_is_a_vector(steps in steps()) {
        check(&MediumSpec { kind: MediumKind::Ram { size: (SECTORS * SECTOR) as u64 } }, &steps);
    }

    #[test]
    fn a_file_is_a_vector(steps in steps()) {
        check_file(&on_disk(), Direct::Auto, &steps);
    }

    #[test]
    fn a_buffered_file_is_a_vector(steps in steps()) {
        check_file(&on_disk(), Direct::Off, &steps);
    }

    #[test]
    fn a_file_in_memory_is_a_vector(steps in steps()) {
        check_file(&in_memory(), Direct::Auto, &steps);
    }
}
