//! Devices with zones. Numbers are those of VIRTIO 1.3, 5.2.4 to 5.2.6.

use tests_vhost_front::{Completion, Disk, Layout, Options, Request, config, feature, status};

use super::Random;
use super::rig::{BOUND, LEN, MAX_ACTIVE, MAX_OPEN, Rig, Shape};

const APPEND: u32 = 15;
const REPORT: u32 = 16;
const OPEN: u32 = 18;
const CLOSE: u32 = 20;
const FINISH: u32 = 22;
const RESET: u32 = 24;
const RESET_ALL: u32 = 26;
/// All requests that only a device with zones has.
const ALL: [u32; 7] = [APPEND, REPORT, OPEN, CLOSE, FINISH, RESET, RESET_ALL];

// VIRTIO_BLK_ZS_*.
const EMPTY: u8 = 1;
const IMPLICITLY_OPEN: u8 = 2;
const EXPLICITLY_OPEN: u8 = 3;
const CLOSED: u8 = 4;
const FULL: u8 = 14;

/// Bytes of a zone, and of its part that can be written.
const ZONE: u64 = 4 << 20;
const CAPACITY: u64 = 3 << 20;
/// The same in sectors, and zones.
const SECTORS: u64 = ZONE / 512;
const WRITABLE: u64 = CAPACITY / 512;
const ZONES: u64 = LEN / ZONE;
/// Device status: features are agreed on.
const FEATURES_OK: u64 = 8;

fn shape(lba_shift: u8) -> Shape {
    Shape {
        lba_shift,
        zones: Some([ZONE, CAPACITY]),
        ..Shape::default()
    }
}

fn other(kind: u32, sector: u64, out: &[u8], in_len: usize) -> Request {
    Request::Other {
        kind,
        sector,
        out: out.to_vec(),
        in_len,
    }
}

fn append(sector: u64, data: &[u8]) -> Request {
    other(APPEND, sector, data, 8)
}

fn run(disk: &mut Disk, request: &Request) -> Completion {
    let layout = Layout::plain(request).indirect(true);
    disk.run(0, request, &layout).unwrap()
}

fn act(disk: &mut Disk, kind: u32, zone: u64) -> u8 {
    run(disk, &other(kind, zone * SECTORS, &[], 0)).status
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Zone {
    capacity: u64,
    start: u64,
    write_pointer: u64,
    state: u8,
}

/// `struct virtio_blk_zone_report`.
fn parse(data: &[u8]) -> Vec<Zone> {
    let word = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
    let zone = |index: usize| {
        let at = 64 * (index + 1);
        // VIRTIO_BLK_ZT_SWR, and nothing behind the state.
        assert_eq!(data[at + 24], 2);
        assert!(data[at + 26..at + 64].iter().all(|byte| *byte == 0));
        Zone {
            capacity: word(at),
            start: word(at + 8),
            write_pointer: word(at + 16),
            state: data[at + 25],
        }
    };
    assert!(data[8..64].iter().all(|byte| *byte == 0));
    (0..word(0) as usize).map(zone).collect()
}

/// The zones that a report has room for.
fn report(disk: &mut Disk, sector: u64, room: usize) -> Vec<Zone> {
    let done = run(disk, &other(REPORT, sector, &[], 64 * (1 + room)));
    assert_eq!(done.status, status::OK);
    parse(&done.data)
}

/// State of a zone, and its write pointer from its start.
fn zone(disk: &mut Disk, index: u64) -> (u8, u64) {
    let zone = report(disk, index * SECTORS, 1)[0];
    assert_eq!(zone.start, index * SECTORS);
    (zone.state, zone.write_pointer.wrapping_sub(zone.start))
}

fn written_at(done: &Completion) -> u64 {
    assert_eq!((done.status, done.written), (status::OK, 9));
    u64::from_le_bytes(done.data[..].try_into().unwrap())
}

#[test]
fn the_configuration_space_has_the_limits_of_the_namespace() {
    for (append_limit, max_transfer, longest) in [
        (0, 256 << 10, 512),
        (16 << 10, 256 << 10, 32),
        (2 << 20, 256 << 10, 512),
        // 1 MiB is the longest command of this back end.
        (0, 4 << 20, 2048),
        (2 << 20, 4 << 20, 2048),
    ] {
        for shift in [9u8, 12] {
            let rig = Rig::new(Shape {
                append_limit,
                max_transfer,
                ..shape(shift)
            });
            let mut disk = rig.connect(Options::default());
            let (offered, space) = (disk.offered(), disk.config());
            assert_ne!(offered & feature::ZONED, 0);
            // 5.2.5.1: a driver must not have discard with host-managed zones.
            let others = feature::DISCARD | feature::WRITE_ZEROES | feature::SECURE_ERASE;
            assert_eq!(offered & others, 0);
            let word = |at: usize| {
                let at = config::ZONED + at * 4;
                u32::from_le_bytes(space[at..at + 4].try_into().unwrap())
            };
            let found: Vec<u32> = (0..5).map(word).collect();
            let granularity = 1 << shift;
            let expected = [SECTORS as u32, MAX_OPEN, MAX_ACTIVE, longest, granularity];
            assert_eq!(found, expected);
            // VIRTIO_BLK_Z_HM, and unused bytes.
            assert_eq!(space[config::ZONED + 20..], [1, 0, 0, 0]);
            assert_eq!(disk.capacity(), LEN / 512);
            assert_eq!(disk.status().unwrap() & FEATURES_OK, FEATURES_OK);
            let (longest, block) = (longest as usize * 512, 1 << shift);
            let done = run(&mut disk, &append(0, &vec![1; longest + block]));
            assert_eq!(done.status, status::ZONE_INVALID_CMD);
            let done = run(&mut disk, &append(0, &vec![1; longest]));
            assert_eq!(written_at(&done), 0);
        }
    }
}

/// 5.2.5.2 and 5.2.6.2: such a driver gets no FEATURES_OK, UNSUPP for requests of zones, and no
/// disk.
#[test]
fn a_driver_that_knows_no_zones_gets_no_disk() {
    for shift in [9u8, 12] {
        let rig = Rig::new(shape(shift));
        let mut disk = rig.connect(Options {
            without: feature::ZONED,
            ..Options::default()
        });
        assert_eq!(disk.status().unwrap() & FEATURES_OK, 0);
        for kind in ALL {
            let request = other(kind, 0, &[], 128);
            assert_eq!(run(&mut disk, &request).status, status::UNSUPP, "{kind}");
        }
        let read = Request::Read {
            sector: 0,
            len: 4096,
        };
        let write = Request::Write {
            sector: 0,
            data: vec![1; 4096],
        };
        for request in [&read, &write, &Request::Flush] {
            assert_eq!(run(&mut disk, request).status, status::IOERR);
        }
        assert!(rig.with(|server| server.medium(|it| it.asked.is_empty())));
        assert_eq!(disk.get_id().unwrap(), *b"serial of a disk\0\0\0\0");
        // A firmware without zones comes before a system with them.
        drop(disk);
        let mut disk = rig.connect(Options::default());
        assert_eq!(disk.status().unwrap() & FEATURES_OK, FEATURES_OK);
        assert_eq!(zone(&mut disk, 0), (EMPTY, 0));
        assert_eq!(run(&mut disk, &write).status, status::OK);
    }
}

#[test]
fn reports_have_the_zones_that_there_is_room_for() {
    for shift in [9, 12] {
        let rig = Rig::new(shape(shift));
        let mut disk = rig.connect(Options::default());
        let all = report(&mut disk, 0, 100);
        assert_eq!(all.len() as u64, ZONES);
        for (index, zone) in all.iter().enumerate() {
            let start = index as u64 * SECTORS;
            let expected = Zone {
                capacity: WRITABLE,
                start,
                write_pointer: start,
                state: EMPTY,
            };
            assert_eq!(*zone, expected);
        }
        assert_eq!(report(&mut disk, 5 * SECTORS, 3), all[5..8]);
        // From the zone that has the sector on.
        assert_eq!(report(&mut disk, 5 * SECTORS + 1, 2), all[5..7]);
        assert_eq!(report(&mut disk, 6 * SECTORS - 1, 2), all[5..7]);
        assert_eq!(report(&mut disk, (ZONES - 1) * SECTORS, 3), all[11..]);
        assert_eq!(report(&mut disk, 0, 0), []);
        // No zone is reported in part.
        for (len, zones) in [(64, 0), (127, 0), (128, 1), (64 * 4 - 1, 2)] {
            let done = run(&mut disk, &other(REPORT, 0, &[], len));
            assert_eq!((done.status, parse(&done.data).len()), (status::OK, zones));
        }
        for (sector, len) in [(0, 0), (0, 63), (LEN / 512, 128), (u64::MAX, 128)] {
            let done = run(&mut disk, &other(REPORT, sector, &[], len));
            assert_eq!(done.status, status::ZONE_INVALID_CMD, "{sector} {len}");
        }
    }
}

/// Of more zones than a command reports, into memory of any pieces.
#[test]
fn long_reports_go_on_in_parts() {
    const SMALL: u64 = 64 << 10;
    for is_packed in [false, true] {
        let rig = Rig::new(Shape {
            zones: Some([SMALL, SMALL / 4 * 3]),
            ..Shape::default()
        });
        let mut disk = rig.connect(Options {
            size: 256,
            is_packed,
            ..Options::default()
        });
        let (zones, sectors) = ((LEN / SMALL) as usize, SMALL / 512);
        for at in [62, 63, 64, 700] {
            disk.write(at * sectors, &[1; 512]).unwrap();
        }
        for (first, room) in [
            (0, zones + 5),
            (0, zones),
            (0, 126),
            (1, 127),
            (700, 63),
            (60, 64),
        ] {
            let request = other(REPORT, first as u64 * sectors, &[], 64 * (room + 1));
            for layout in [
                Layout::plain(&request),
                Layout::merged(),
                Layout::pieces(&request, request.in_len().div_ceil(200).max(77), 3),
            ] {
                let done = disk.run(0, &request, &layout).unwrap();
                assert_eq!(done.status, status::OK);
                let found = parse(&done.data);
                assert_eq!(found.len(), room.min(zones - first));
                for (index, zone) in (first as u64..).zip(found) {
                    let is_written = [62, 63, 64, 700].contains(&index);
                    let expected = Zone {
                        capacity: sectors / 4 * 3,
                        start: index * sectors,
                        write_pointer: index * sectors + u64::from(is_written),
                        state: if is_written { zone.state } else { EMPTY },
                    };
                    assert_eq!(zone, expected, "{first} {room}");
                }
            }
        }
    }
}

#[test]
fn zones_open_close_finish_and_reset() {
    for shift in [9, 12] {
        let rig = Rig::new(shape(shift));
        let mut disk = rig.connect(Options::default());
        let disk = &mut disk;
        assert_eq!(act(disk, OPEN, 1), status::OK);
        assert_eq!(zone(disk, 1), (EXPLICITLY_OPEN, 0));
        disk.write(SECTORS, &[1; 8192]).unwrap();
        assert_eq!(zone(disk, 1), (EXPLICITLY_OPEN, 16));
        assert_eq!(act(disk, CLOSE, 1), status::OK);
        assert_eq!(zone(disk, 1), (CLOSED, 16));
        disk.write(3 * SECTORS, &[3; 4096]).unwrap();
        assert_eq!(zone(disk, 3), (IMPLICITLY_OPEN, 8));
        assert_eq!(act(disk, FINISH, 1), status::OK);
        assert_eq!(zone(disk, 1).0, FULL);
        let read = disk.read(SECTORS, 12288).unwrap();
        assert!(read == [vec![1; 8192], vec![0; 4096]].concat());
        assert_eq!(act(disk, RESET, 1), status::OK);
        assert_eq!(zone(disk, 1), (EMPTY, 0));
        assert_eq!(zone(disk, 3), (IMPLICITLY_OPEN, 8));
        assert_eq!(disk.read(SECTORS, 8192).unwrap(), [0; 8192]);
        disk.write(SECTORS, &[4; 4096]).unwrap();
        // The sector has no meaning here.
        let all = other(RESET_ALL, u64::MAX, &[], 0);
        assert_eq!(run(disk, &all).status, status::OK);
        let zones = report(disk, 0, 100);
        assert!(zones.iter().all(|it| it.state == EMPTY));
        disk.flush().unwrap();
    }
}

#[test]
fn appends_say_where_their_data_are() {
    for (shift, is_packed) in [(9, false), (12, true)] {
        let rig = Rig::new(shape(shift));
        let mut disk = rig.connect(Options {
            is_packed,
            size: 512,
            regions: 3,
            ..Options::default()
        });
        let mut random = Random(7);
        let mut at = 0;
        // The place of the sector may be divided as any other bytes.
        for cuts in [
            vec![],
            vec![8],
            vec![1],
            vec![7],
            vec![3, 4],
            vec![1; 8],
            vec![9],
        ] {
            for len in [4096, 40960, 256 << 10] {
                let data = random.bytes(len);
                let request = append(4 * SECTORS, &data);
                let layout = Layout {
                    readable: vec![5, 11, len / 3, len / 5],
                    writable: cuts.clone(),
                    skew: 1,
                    is_indirect: len == 4096,
                };
                let done = disk.run(0, &request, &layout).unwrap();
                assert_eq!(written_at(&done), 4 * SECTORS + at, "{cuts:?}");
                assert!(disk.read(4 * SECTORS + at, len).unwrap() == data);
                at += len as u64 / 512;
            }
        }
        assert_eq!(zone(&mut disk, 4), (IMPLICITLY_OPEN, at));
        // Linux's driver has 7 bytes behind the sector.
        let done = run(&mut disk, &other(APPEND, 4 * SECTORS, &[1; 4096], 15));
        assert_eq!(done.status, status::OK);
        assert_eq!(done.data[..8], (4 * SECTORS + at).to_le_bytes());
        // Several at a time: none is where another one is.
        for byte in 0..32u8 {
            let request = append((ZONES - 1) * SECTORS, &[byte; 4096]);
            let layout = Layout::plain(&request);
            disk.submit(0, &request, &layout).unwrap().unwrap();
        }
        let mut sectors = Vec::new();
        while sectors.len() < 32 {
            assert!(disk.wait(0, BOUND).unwrap());
            while let Some(done) = disk.poll(0).unwrap() {
                sectors.push(written_at(&done));
            }
        }
        sectors.sort_unstable();
        let expected: Vec<u64> = (0..32).map(|at| (ZONES - 1) * SECTORS + at * 8).collect();
        assert_eq!(sectors, expected);
    }
}

/// Each request that a zone refuses ends with the status that 5.2.6.2 has for it.
#[test]
fn outcomes_of_what_zones_refuse() {
    for shift in [9u8, 12] {
        let rig = Rig::new(Shape {
            append_limit: 64 << 10,
            ..shape(shift)
        });
        let mut disk = rig.connect(Options::default());
        let disk = &mut disk;
        let block = 1usize << shift;
        let per_block = 1u64 << (shift - 9);
        let (ok, ioerr) = (status::OK, status::IOERR);
        let (invalid, unaligned) = (status::ZONE_INVALID_CMD, status::ZONE_UNALIGNED_WP);
        let read = |sector, len| Request::Read { sector, len };
        let write = |sector, len| Request::Write {
            sector,
            data: vec![7; len],
        };
        let data = vec![1; block];
        // Zone 1 has a block, zone 2 is full, and zone 3 is written up to its last block.
        disk.write(SECTORS, &data).unwrap();
        assert_eq!(act(disk, FINISH, 2), ok);
        for part in 0..3 {
            let len = if part < 2 { 1 << 20 } else { (1 << 20) - block };
            disk.write(3 * SECTORS + part * 2048, &vec![1; len])
                .unwrap();
        }
        let before = report(disk, 0, 100);
        let all = LEN / 512;
        let mut cases = vec![
            // Not at the write pointer.
            (write(per_block, block), unaligned),
            (write(SECTORS, block), unaligned),
            (write(SECTORS + 2 * per_block, block), unaligned),
            // Behind what can be written, and of a zone that is full.
            (
                write(3 * SECTORS + WRITABLE - per_block, 2 * block),
                invalid,
            ),
            (write(2 * SECTORS, block), invalid),
            (append(2 * SECTORS, &data), invalid),
            (append(3 * SECTORS, &vec![1; 2 * block]), invalid),
            // In two zones.
            (write(SECTORS - per_block, 2 * block), invalid),
            (read(SECTORS - per_block, 2 * block), invalid),
            (read(SECTORS - per_block, block), ok),
            (read(0, ZONE as usize), ok),
            (read(SECTORS + per_block, ZONE as usize), invalid),
            // Not the first sector of a zone.
            (append(per_block, &data), invalid),
            (append(SECTORS + 1, &data), invalid),
            (append(all, &data), invalid),
            (append(u64::MAX - (u64::MAX % SECTORS), &data), invalid),
            // No data, more than there may be, and a place that holds no sector.
            (append(0, &[]), invalid),
            (append(0, &vec![1; (64 << 10) + block]), invalid),
            (other(APPEND, 0, &data, 0), invalid),
            (other(APPEND, 0, &data, 7), invalid),
            // Half a block.
            (append(0, &[1; 511]), unaligned),
            (write(0, block / 2), unaligned),
            (write(0, 0), ok),
            (read(0, block / 2), ioerr),
            (read(all, block), ioerr),
            (write(all, block), ioerr),
            (write(u64::MAX - per_block + 1, block), ioerr),
            // What a device with zones does not offer.
            (other(11, 0, &[0; 16], 0), status::UNSUPP),
            (other(13, 0, &[0; 16], 0), status::UNSUPP),
            (other(14, 0, &[0; 16], 0), status::UNSUPP),
            (other(17, 0, &[], 0), status::UNSUPP),
            (other(27, 0, &[], 0), status::UNSUPP),
        ];
        for kind in [OPEN, CLOSE, FINISH, RESET] {
            for sector in [1, 8, SECTORS + 8, all, all + SECTORS, 1 << 55, u64::MAX - 7] {
                cases.push((other(kind, sector, &[], 0), invalid));
            }
        }
        // An empty or a full zone is not open.
        cases.push((other(CLOSE, 0, &[], 0), invalid));
        cases.push((other(CLOSE, 2 * SECTORS, &[], 0), invalid));
        cases.push((other(OPEN, 2 * SECTORS, &[], 0), invalid));
        for (request, expected) in cases {
            let what = format!("{shift}: {request:.80?}");
            assert_eq!(run(disk, &request).status, expected, "{what}");
        }
        assert_eq!(report(disk, 0, 100), before);
        disk.write(3 * SECTORS + WRITABLE - per_block, &data)
            .unwrap();
        assert_eq!(zone(disk, 3).0, FULL);
    }
}

#[test]
fn more_zones_than_there_may_be_are_not_opened() {
    let rig = Rig::new(shape(9));
    let mut disk = rig.connect(Options::default());
    let disk = &mut disk;
    let write = |sector| Request::Write {
        sector,
        data: vec![7; 512],
    };
    for index in 0..3 {
        assert_eq!(act(disk, OPEN, index), status::OK);
    }
    let (open, active) = (status::ZONE_OPEN_RESOURCE, status::ZONE_ACTIVE_RESOURCE);
    assert_eq!(act(disk, OPEN, 3), open);
    assert_eq!(run(disk, &write(3 * SECTORS)).status, open);
    assert_eq!(run(disk, &append(3 * SECTORS, &[1; 512])).status, open);
    disk.write(0, &[1; 512]).unwrap();
    assert_eq!(act(disk, CLOSE, 0), status::OK);
    disk.write(3 * SECTORS, &[1; 512]).unwrap();
    assert_eq!(run(disk, &write(4 * SECTORS)).status, active);
    assert_eq!(run(disk, &append(4 * SECTORS, &[1; 512])).status, active);
    assert_eq!(act(disk, OPEN, 4), active);
}

/// A write of several commands has no other write of its zone between them.
#[test]
fn long_writes_keep_their_order() {
    for shift in [9, 12] {
        let rig = Rig::new(Shape {
            max_transfer: 64 << 10,
            ..shape(shift)
        });
        let mut disk = rig.connect(Options::default());
        let mut random = Random(11);
        let data = random.bytes(CAPACITY as usize);
        disk.write(0, &data).unwrap();
        assert!(disk.read(0, CAPACITY as usize).unwrap() == data);
        assert_eq!(zone(&mut disk, 0).0, FULL);
    }
}

/// An append that may have been executed is not executed again. Other requests are: a write that
/// was executed is then not at the write pointer.
#[test]
fn what_was_in_flight_at_a_death_is_not_written_twice() {
    for is_packed in [false, true] {
        let rig = Rig::new(shape(9));
        let mut disk = rig.connect(Options {
            inflight: true,
            is_packed,
            ..Options::default()
        });
        // The medium executes commands, and completes none.
        rig.with(|server| server.medium(|it| it.delays = true));
        let write = |sector, byte| Request::Write {
            sector,
            data: vec![byte; 512],
        };
        let requests = [
            append(0, &[1; 512]),
            append(0, &[2; 512]),
            write(SECTORS, 3),
            other(FINISH, 2 * SECTORS, &[], 0),
            other(REPORT, 0, &[], 128),
        ];
        for request in &requests {
            let layout = Layout::plain(request);
            disk.submit(0, request, &layout).unwrap().unwrap();
        }
        rig.until(|server| server.medium(|it| it.kept() == 5));
        rig.with(|server| server.die());
        disk.reconnect().unwrap();
        let mut done = Vec::new();
        while done.len() < requests.len() {
            assert!(disk.wait(0, BOUND).unwrap());
            while let Some(completion) = disk.poll(0).unwrap() {
                done.push((completion.token, completion.status));
            }
        }
        done.sort_unstable();
        let (ok, ioerr) = (status::OK, status::IOERR);
        let expected = [ioerr, ioerr, status::ZONE_UNALIGNED_WP, ok, ok];
        let expected: Vec<(u64, u8)> = (0..).zip(expected).collect();
        assert_eq!(done, expected);
        assert_eq!(rig.with(|server| server.counters().resubmitted), 5);
        // Both appends were executed once.
        assert_eq!(zone(&mut disk, 0).1, 2);
        assert_eq!(disk.read(0, 1024).unwrap()[..512], [1; 512]);
        assert_eq!(zone(&mut disk, 1).1, 1);
        assert_eq!(zone(&mut disk, 2).0, FULL);
        // One that is new goes on behind them.
        let done = run(&mut disk, &append(0, &[4; 512]));
        assert_eq!(written_at(&done), 2);
    }
}

/// A write that had not reached the medium is written by the next process.
#[test]
fn a_write_that_was_not_executed_at_a_death_is_executed_once() {
    let rig = Rig::new(shape(9));
    let mut disk = rig.connect(Options {
        inflight: true,
        ..Options::default()
    });
    // The medium takes commands, and executes none.
    rig.with(|server| server.medium(|it| it.holds = true));
    let write = Request::Write {
        sector: 0,
        data: vec![9; 4096],
    };
    for request in [&write, &append(SECTORS, &[8; 512])] {
        let layout = Layout::plain(request);
        disk.submit(0, request, &layout).unwrap().unwrap();
    }
    rig.until(|server| server.medium(|it| it.kept() == 2));
    rig.with(|server| server.die());
    disk.reconnect().unwrap();
    let mut done = Vec::new();
    while done.len() < 2 {
        assert!(disk.wait(0, BOUND).unwrap());
        while let Some(completion) = disk.poll(0).unwrap() {
            done.push((completion.token, completion.status));
        }
    }
    done.sort_unstable();
    assert_eq!(done, [(0, status::OK), (1, status::IOERR)]);
    assert_eq!(zone(&mut disk, 0), (IMPLICITLY_OPEN, 8));
    assert_eq!(zone(&mut disk, 1), (EMPTY, 0));
}
