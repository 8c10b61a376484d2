//! Zones over memory, asked as a lane asks: what is written where, what is refused, and what is
//! reported.

use std::sync::Arc;

use media::{Medium, MediumError, MediumKind, MediumSpec, ZoneSpec};
use nvme_spec::{Sqe, Status};
use port::set::RandomAreas;
use port::{ByteRange, Cause, Outcome, Request};

use crate::common::{Host, Runner};

const ZONE: u64 = 1 << 20;
const CAPACITY: u64 = 768 << 10;
const ZONES: u64 = 8;
/// Blocks of 4 KiB of a zone.
const BLOCKS: u64 = ZONE / 4096;
const EXTENT: ByteRange = ByteRange {
    offset: 0,
    len: ZONES * ZONE,
};

const SPEC: ZoneSpec = ZoneSpec {
    zone_size: ZONE,
    zone_capacity: CAPACITY,
    max_open: 3,
    max_active: 4,
    descriptor_extension: 64,
    append_limit: 0,
    random: None,
};

fn open(zones: ZoneSpec) -> Result<Arc<Medium>, MediumError> {
    Medium::open(&MediumSpec {
        kind: MediumKind::Zoned {
            of: Box::new(MediumKind::Ram { size: EXTENT.len }),
            zones,
        },
    })
}

struct Rig {
    host: Host,
    runner: Runner,
}

impl Rig {
    fn new() -> Rig {
        Rig::of(SPEC)
    }

    fn of(zones: ZoneSpec) -> Rig {
        Rig {
            host: Host::new(2 << 20),
            runner: Runner::new(&open(zones).expect("zones"), 16),
        }
    }

    fn run(&mut self, request: &Request<'_>, pieces: &[(usize, usize)]) -> Result<u64, Status> {
        ended(self.runner.run(&self.host, request, pieces))
    }

    fn command(&mut self, sqe: &Sqe, pieces: &[(usize, usize)]) -> Result<u64, Status> {
        let request = Request::Command {
            sqe,
            extent: EXTENT,
            lba_shift: 12,
            fua: false,
        };
        self.run(&request, pieces)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<u64, Status> {
        self.host.put(0, bytes);
        let request = Request::Write {
            offset,
            len: bytes.len() as u32,
            fua: false,
        };
        self.run(&request, &[(0, bytes.len())])
    }

    fn append(&mut self, zone: u64, bytes: &[u8]) -> Result<u64, Status> {
        self.host.put(0, bytes);
        let mut sqe = command(0x7d, zone * BLOCKS);
        sqe.cdw12 = bytes.len() as u32 / 4096 - 1;
        self.command(&sqe, &[(0, bytes.len())])
    }

    /// Zone Management Send.
    fn send(&mut self, zone: u64, cdw13: u32) -> Result<u64, Status> {
        let mut sqe = command(0x79, zone * BLOCKS);
        sqe.cdw13 = cdw13;
        self.command(&sqe, &[])
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Status> {
        let at = 1 << 20;
        self.host.put(at, &vec![0xee; len]);
        let request = Request::Read {
            offset,
            len: len as u32,
        };
        self.run(&request, &[(at, len)])?;
        Ok(self.host.get(at, len))
    }

    /// Zone Management Receive: `len` bytes of a report, in pieces that fit nothing.
    fn report(&mut self, zone: u64, cdw13: u32, len: usize) -> Result<Vec<u8>, Status> {
        let mut sqe = command(0x7a, zone * BLOCKS);
        (sqe.cdw12, sqe.cdw13) = (len as u32 / 4 - 1, cdw13);
        self.host.put(0, &vec![0xee; len]);
        let first = len.min(100);
        self.command(&sqe, &[(0, first), (first, len - first)])?;
        Ok(self.host.get(0, len))
    }

    /// The states of all zones, and where each write pointer is behind its zone's start, in blocks.
    fn zones(&mut self) -> Vec<(u8, u64)> {
        let report = self
            .report(0, 0, 64 + 64 * ZONES as usize)
            .expect("a report");
        assert_eq!(u64_at(&report, 0), ZONES);
        let zone = |n: u64| {
            let at = 64 + 64 * n as usize;
            let (zcap, zslba, wp) = (
                u64_at(&report, at + 8),
                u64_at(&report, at + 16),
                u64_at(&report, at + 24),
            );
            assert_eq!((report[at], zcap, zslba), (2, CAPACITY / 4096, n * BLOCKS));
            (report[at + 1] >> 4, wp.wrapping_sub(zslba))
        };
        (0..ZONES).map(zone).collect()
    }
}

fn command(opcode: u8, lba: u64) -> Sqe {
    Sqe {
        opcode,
        nsid: 1,
        cdw10: lba as u32,
        cdw11: (lba >> 32) as u32,
        ..Sqe::default()
    }
}

fn ended(outcome: Outcome) -> Result<u64, Status> {
    match outcome.cause {
        Cause::None => Ok(outcome.result),
        Cause::Status(status) => Err(status),
        cause => panic!("{cause:?}"),
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n / 5) as u8 ^ n as u8 ^ seed).collect()
}

const CLOSE: u32 = 1;
const FINISH: u32 = 2;
const OPEN: u32 = 3;
const RESET: u32 = 4;
const OFFLINE: u32 = 5;
const EXTEND: u32 = 0x10;
const COMMIT: u32 = 0x11;
const ALL: u32 = 1 << 8;
const ALLOCATE: u32 = 1 << 9;

const EMPTY: u8 = 1;
const IMPLICIT: u8 = 2;
const EXPLICIT: u8 = 3;
const CLOSED: u8 = 4;
const FULL: u8 = 0xe;

#[test]
fn what_is_written_in_order_is_read_and_the_rest_is_zeros() {
    let mut rig = Rig::new();
    let (first, second) = (pattern(8192, 1), pattern(300 << 10, 2));
    rig.write(2 * ZONE, &first).unwrap();
    // Large enough to be copied in slices, so that it ends later.
    rig.write(2 * ZONE + 8192, &second).unwrap();
    assert_eq!(rig.read(2 * ZONE, 8192).unwrap(), first);
    assert_eq!(rig.read(2 * ZONE + 8192, 300 << 10).unwrap(), second);
    // Behind the write pointer, behind the capacity, in another zone.
    for offset in [2 * ZONE + (400 << 10), 2 * ZONE + CAPACITY, 3 * ZONE] {
        assert!(rig.read(offset, 8192).unwrap().iter().all(|b| *b == 0));
    }
    assert_eq!(rig.zones()[2], (IMPLICIT, 77));
    assert_eq!(rig.write(2 * ZONE, &first), Err(Status::ZONE_INVALID_WRITE));
    assert_eq!(
        rig.read(2 * ZONE, 8192).unwrap(),
        first,
        "nothing was written"
    );
}

#[test]
fn appends_tell_where_they_went() {
    let mut rig = Rig::new();
    let data = [pattern(4096, 1), pattern(200 << 10, 2), pattern(8192, 3)];
    let mut lba = 5 * BLOCKS;
    for bytes in &data {
        assert_eq!(rig.append(5, bytes), Ok(lba));
        assert_eq!(&rig.read(lba * 4096, bytes.len()).unwrap(), bytes);
        lba += bytes.len() as u64 / 4096;
    }
    let into_it = Sqe {
        cdw10: (5 * BLOCKS + 1) as u32,
        ..command(0x7d, 0)
    };
    let refused = rig.command(&into_it, &[(0, 4096)]);
    assert_eq!(refused, Err(Status::INVALID_FIELD_IN_COMMAND));
    let behind = command(0x7d, ZONES * BLOCKS);
    assert_eq!(
        rig.command(&behind, &[(0, 4096)]),
        Err(Status::LBA_OUT_OF_RANGE)
    );
}

#[test]
fn a_reset_gives_zeros_and_room() {
    let mut rig = Rig::new();
    rig.write(0, &pattern(CAPACITY as usize, 7)).unwrap();
    assert_eq!(rig.zones()[0].0, FULL);
    assert_eq!(rig.append(0, &[1; 4096]), Err(Status::ZONE_IS_FULL));
    rig.send(0, RESET).unwrap();
    assert_eq!(rig.zones()[0], (EMPTY, 0));
    assert!(
        rig.read(0, CAPACITY as usize)
            .unwrap()
            .iter()
            .all(|b| *b == 0)
    );
    rig.write(0, &pattern(4096, 9)).unwrap();
    // Another zone's are untouched.
    rig.write(ZONE, &pattern(4096, 8)).unwrap();
    rig.send(0, RESET).unwrap();
    assert_eq!(rig.read(ZONE, 4096).unwrap(), pattern(4096, 8));
}

#[test]
fn all_zones_at_once() {
    let mut rig = Rig::new();
    for zone in 0..4 {
        rig.write(zone * ZONE, &pattern(4096, zone as u8)).unwrap();
    }
    // The one that was opened first was closed for the fourth.
    let states = |rig: &mut Rig| rig.zones().iter().map(|z| z.0).collect::<Vec<_>>();
    assert_eq!(
        states(&mut rig)[..5],
        [CLOSED, IMPLICIT, IMPLICIT, IMPLICIT, EMPTY]
    );
    assert_eq!(
        rig.append(4, &[0; 4096]),
        Err(Status::TOO_MANY_ACTIVE_ZONES)
    );
    rig.send(0, CLOSE | ALL).unwrap();
    assert_eq!(
        states(&mut rig)[..5],
        [CLOSED, CLOSED, CLOSED, CLOSED, EMPTY]
    );
    assert_eq!(rig.send(0, OPEN | ALL), Err(Status::TOO_MANY_OPEN_ZONES));
    rig.send(3, FINISH).unwrap();
    rig.send(0, OPEN | ALL).unwrap();
    assert_eq!(
        states(&mut rig)[..5],
        [EXPLICIT, EXPLICIT, EXPLICIT, FULL, EMPTY]
    );
    rig.send(0, OFFLINE | ALL).unwrap();
    rig.send(0, FINISH | ALL).unwrap();
    assert_eq!(states(&mut rig)[..5], [FULL, FULL, FULL, FULL, EMPTY]);
    // SLBA says nothing here.
    rig.send(ZONES + 9, RESET | ALL).unwrap();
    assert_eq!(states(&mut rig), [EMPTY; 8]);
    assert!(rig.read(0, 1 << 20).unwrap().iter().all(|b| *b == 0));
}

/// Areas of 16 KiB, of which any byte may be written, with steps of 8 KiB.
#[test]
fn a_random_write_area_is_written_over_committed_and_erased() {
    let mut rig = Rig::of(ZoneSpec {
        random: Some(RandomAreas {
            bytes: 16 << 10,
            granularity: 8 << 10,
            zones: 1,
        }),
        ..SPEC
    });
    rig.send(1, OPEN | ALLOCATE).unwrap();
    let none_left = Err(Status::ZRWA_RESOURCES_UNAVAILABLE);
    assert_eq!(rig.send(2, OPEN | ALLOCATE), none_left);
    rig.write(ZONE + 4096, &pattern(8192, 1)).unwrap();
    rig.write(ZONE + 4096, &pattern(4096, 2)).unwrap();
    assert_eq!(rig.zones()[1], (EXPLICIT, 0));
    let report = rig.report(1, 0, 128).unwrap();
    assert_eq!(report[66], 1 << 3, "Zone Random Write Area Valid");
    let area = |rig: &mut Rig| rig.read(ZONE, 16 << 10).unwrap();
    let mut expected = vec![0; 16 << 10];
    expected[4096..12288].copy_from_slice(&pattern(8192, 1));
    expected[4096..8192].copy_from_slice(&pattern(4096, 2));
    assert_eq!(area(&mut rig), expected);
    // Zeros over what was written.
    let zeroes = Request::WriteZeroes {
        offset: ZONE + 8192,
        len: 4096,
        deallocate: false,
        fua: false,
    };
    rig.run(&zeroes, &[]).unwrap();
    expected[8192..12288].fill(0);
    assert_eq!(area(&mut rig), expected);
    // Up to block 1, and with it; then to one that is no whole step.
    let commit = |rig: &mut Rig, block: u64| {
        let mut sqe = command(0x79, BLOCKS + block);
        sqe.cdw13 = COMMIT;
        rig.command(&sqe, &[])
    };
    assert_eq!(commit(&mut rig, 1), Ok(0));
    assert_eq!(rig.zones()[1], (EXPLICIT, 2));
    let refused = Err(Status::INVALID_ZONE_OPERATION_REQUEST);
    assert_eq!(commit(&mut rig, 2), refused);
    assert_eq!(rig.append(1, &[1; 4096]), refused);
    assert_eq!(
        rig.write(ZONE + 4096, &pattern(4096, 3)),
        Err(Status::ZONE_INVALID_WRITE)
    );
    // Behind the area: the write pointer moves by itself.
    rig.write(ZONE + (24 << 10), &pattern(4096, 4)).unwrap();
    assert_eq!(rig.zones()[1], (EXPLICIT, 4));
    assert_eq!(area(&mut rig), expected);
    // Data behind the write pointer is gone with a reset, too.
    rig.send(1, RESET).unwrap();
    assert!(rig.read(ZONE, 64 << 10).unwrap().iter().all(|b| *b == 0));
    assert_eq!(rig.report(1, 0, 128).unwrap()[66], 0);
    rig.send(2, OPEN | ALLOCATE).unwrap();
    // As with others that are erased in one piece with it.
    rig.write(ZONE, &pattern(4096, 5)).unwrap();
    rig.write(2 * ZONE + 4096, &pattern(4096, 6)).unwrap();
    rig.send(0, RESET | ALL).unwrap();
    for zone in [1, 2] {
        let bytes = rig.read(zone * ZONE, 64 << 10).unwrap();
        assert!(bytes.iter().all(|b| *b == 0), "{zone}");
    }
}

#[test]
fn write_zeroes_moves_the_write_pointer() {
    let mut rig = Rig::new();
    let zeroes = |offset, len| Request::WriteZeroes {
        offset,
        len,
        deallocate: true,
        fua: false,
    };
    rig.run(&zeroes(ZONE, 12 << 10), &[]).unwrap();
    assert_eq!(rig.zones()[1], (IMPLICIT, 3));
    assert_eq!(
        rig.run(&zeroes(ZONE, 4096), &[]),
        Err(Status::ZONE_INVALID_WRITE)
    );
    let over = rig.run(&zeroes(ZONE + (12 << 10), ZONE), &[]);
    assert_eq!(over, Err(Status::ZONE_BOUNDARY_ERROR));
    rig.write(ZONE + (12 << 10), &pattern(4096, 1)).unwrap();
    // Data that Deallocate names stays: a host that wants it gone resets the zone.
    let ranges = [ByteRange {
        offset: ZONE + (12 << 10),
        len: 4096,
    }];
    rig.run(&Request::Deallocate { ranges: &ranges }, &[])
        .unwrap();
    assert_eq!(rig.read(ZONE + (12 << 10), 4096).unwrap(), pattern(4096, 1));
}

#[test]
fn reports_begin_and_are_chosen_and_cut_as_asked() {
    let mut rig = Rig::new();
    rig.write(ZONE, &pattern(4096, 1)).unwrap();
    rig.send(3, OPEN).unwrap();
    rig.send(4, FINISH).unwrap();
    let count = |report: &[u8]| u64_at(report, 0);
    let first = |report: &[u8]| u64_at(report, 64 + 16) / BLOCKS;
    // From the zone that has the block on; all there are, whatever there is room for.
    let report = rig.report(2, 0, 128).unwrap();
    assert_eq!((count(&report), first(&report)), (6, 2));
    let partial = rig.report(2, 1 << 16, 64 + 64 + 60).unwrap();
    assert_eq!((count(&partial), first(&partial)), (1, 2));
    assert!(
        partial[128..].iter().all(|b| *b == 0xee),
        "nothing behind what was asked for"
    );
    // By state: empty, implicitly and explicitly opened, closed, full, read only, offline.
    for (option, expected) in [(1, 5), (2, 1), (3, 1), (4, 0), (5, 1), (6, 0), (7, 0)] {
        let report = rig.report(0, option << 8, 640).unwrap();
        assert_eq!(count(&report), expected, "{option}");
    }
    let full = rig.report(0, 5 << 8, 128).unwrap();
    assert_eq!(
        (first(&full), u64_at(&full, 64 + 24)),
        (4, u64::MAX),
        "no write pointer"
    );
    assert_eq!(
        rig.report(0, 8 << 8, 128),
        Err(Status::INVALID_FIELD_IN_COMMAND)
    );
    assert_eq!(rig.report(ZONES, 0, 128), Err(Status::LBA_OUT_OF_RANGE));
    assert_eq!(
        rig.report(0, 0, 8).unwrap(),
        8_u64.to_le_bytes(),
        "the count alone"
    );
}

#[test]
fn extensions_come_back_in_extended_reports() {
    let mut rig = Rig::new();
    let mut sqe = command(0x79, BLOCKS);
    sqe.cdw13 = EXTEND;
    rig.host.put(0, &[0x5a; 64]);
    rig.command(&sqe, &[(0, 10), (10, 54)]).unwrap();
    assert_eq!(rig.zones()[1], (CLOSED, 0));
    let report = rig.report(1, 1, 64 + 2 * 128).unwrap();
    assert_eq!(report[66], 0x80, "Zone Descriptor Extension Valid");
    assert_eq!(report[128..192], [0x5a; 64]);
    assert_eq!(report[192 + 2], 0, "the next zone has none");
    assert_eq!(
        rig.command(&sqe, &[(0, 64)]),
        Err(Status::INVALID_ZONE_STATE_TRANSITION)
    );
    rig.send(1, RESET).unwrap();
    assert_eq!(rig.report(1, 1, 192).unwrap()[66], 0);
}

#[test]
fn what_is_asked_for_together_is_done_in_order() {
    // Writes that go on while others come, and a reset that has to wait for them.
    let mut rig = Rig::new();
    let bytes = pattern(600 << 10, 1);
    rig.host.put(0, &bytes);
    let write = |at: usize, len: usize| Request::Write {
        offset: at as u64,
        len: len as u32,
        fua: false,
    };
    let half = 300 << 10;
    let add = |rig: &mut Rig, request: &Request<'_>, pieces: &[(usize, usize)]| {
        rig.runner.try_add(&rig.host, request, pieces)
    };
    assert!(add(&mut rig, &write(0, half), &[(0, half)]).is_some());
    assert!(add(&mut rig, &write(half, half), &[(half, half)]).is_some());
    let mut sqe = command(0x79, 0);
    sqe.cdw13 = RESET;
    let reset = Request::Command {
        sqe: &sqe,
        extent: EXTENT,
        lba_shift: 12,
        fua: false,
    };
    assert!(
        add(&mut rig, &reset, &[]).is_none(),
        "bytes are still moving"
    );
    let ended = rig.runner.drain();
    assert_eq!(ended.len(), 2);
    assert_eq!(rig.read(0, 600 << 10).unwrap(), bytes);
    rig.send(0, RESET).unwrap();
    assert!(rig.read(0, 600 << 10).unwrap().iter().all(|b| *b == 0));
}

#[test]
fn zones_outlive_their_channel_and_have_one_at_a_time() {
    let medium = open(SPEC).unwrap();
    let mut rig = Rig {
        host: Host::new(2 << 20),
        runner: Runner::new(&medium, 4),
    };
    rig.write(0, &pattern(4096, 1)).unwrap();
    let error = medium.channel(4).expect_err("it has one").to_string();
    assert!(error.contains("one reactor"), "{error}");
    drop(rig.runner);
    rig.runner = Runner::new(&medium, 4);
    assert_eq!(rig.zones()[0], (IMPLICIT, 1));
    assert_eq!(rig.read(0, 4096).unwrap(), pattern(4096, 1));
}

#[test]
fn a_medium_is_renewed_as_a_whole() {
    let mut rig = Rig::new();
    for zone in 0..3 {
        rig.write(zone * ZONE, &pattern(4096, 1)).unwrap();
    }
    rig.send(1, FINISH).unwrap();
    rig.run(&Request::Renew { extent: EXTENT }, &[]).unwrap();
    assert_eq!(rig.zones(), [(EMPTY, 0); 8]);
    assert!(rig.read(0, 4096).unwrap().iter().all(|b| *b == 0));
}

#[test]
fn zones_that_cannot_be_are_refused() {
    for (what, spec) in [
        (
            "no size",
            ZoneSpec {
                zone_size: 0,
                ..SPEC
            },
        ),
        (
            "not whole blocks",
            ZoneSpec {
                zone_size: ZONE + 512,
                ..SPEC
            },
        ),
        (
            "not whole zones",
            ZoneSpec {
                zone_size: 3 * ZONE,
                ..SPEC
            },
        ),
        (
            "no capacity",
            ZoneSpec {
                zone_capacity: 0,
                ..SPEC
            },
        ),
        (
            "too much capacity",
            ZoneSpec {
                zone_capacity: ZONE + 4096,
                ..SPEC
            },
        ),
        (
            "capacity not of whole blocks",
            ZoneSpec {
                zone_capacity: 512,
                ..SPEC
            },
        ),
        (
            "more open than active",
            ZoneSpec {
                max_open: 5,
                ..SPEC
            },
        ),
        (
            "any number open, few active",
            ZoneSpec {
                max_open: 0,
                ..SPEC
            },
        ),
        (
            "half a unit of extension",
            ZoneSpec {
                descriptor_extension: 32,
                ..SPEC
            },
        ),
        (
            "a large extension",
            ZoneSpec {
                descriptor_extension: 256 * 64,
                ..SPEC
            },
        ),
        (
            "an odd limit of appends",
            ZoneSpec {
                append_limit: 12 << 10,
                ..SPEC
            },
        ),
    ] {
        let error = open(spec).expect_err(what);
        assert!(matches!(error, MediumError::Zones { .. }), "{what}");
    }
    for (what, bytes, granularity, zones) in [
        ("no area", 0, 4096, 1),
        ("no granularity", 8192, 0, 1),
        ("less than a block", 8192, 512, 1),
        ("not whole steps", 12 << 10, 8192, 1),
        ("a zone of no whole steps", 1 << 19, 1 << 19, 1),
        ("larger than a zone", 1 << 20, 4096, 1),
        ("more than may be active", 8192, 4096, 5),
        ("for no zone", 8192, 4096, 0),
    ] {
        let random = Some(RandomAreas {
            bytes,
            granularity,
            zones,
        });
        let error = open(ZoneSpec { random, ..SPEC }).expect_err(what);
        assert!(matches!(error, MediumError::Zones { .. }), "{what}");
    }
    assert!(
        open(ZoneSpec {
            zone_capacity: ZONE,
            max_open: 0,
            max_active: 0,
            ..SPEC
        })
        .is_ok()
    );
}
