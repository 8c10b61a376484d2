//! Zones, as Linux's `blkzoned.h` has them.

use rustix::io::Errno;
use ublk::{Features, Operation, Zone};
use zerocopy::FromBytes as _;

use super::kernel::Ask;
use super::rig::{CAPACITY, LEN, Rig, Shape, ZONE, ZONES};

/// Sectors of a zone, and of its part that can be written.
const SECTORS: u64 = ZONE / 512;
const WRITABLE: u64 = CAPACITY / 512;
// Conditions.
const EMPTY: u8 = 1;
const IMPLICITLY_OPEN: u8 = 2;
const EXPLICITLY_OPEN: u8 = 3;
const CLOSED: u8 = 4;
const FULL: u8 = 14;

/// The zones of a report, which ends with the first that has no length.
fn report(rig: &mut Rig, start: u64, count: u32) -> Vec<Zone> {
    let done = rig.run(Ask::report(start, count));
    // Fewer bytes than the request has would have the driver ask for the rest.
    assert!(done.result >= (count * 64) as i32, "{done:?}");
    let zones = done.data.chunks(64);
    let zones = zones.map(|bytes| Zone::read_from_bytes(bytes).unwrap());
    zones.take_while(|zone| zone.len > 0).collect()
}

/// Condition of a zone, and its write pointer from its start.
fn zone(rig: &mut Rig, index: u64) -> (u8, u64) {
    let zone = report(rig, index * SECTORS, 1)[0];
    assert_eq!(zone.start, index * SECTORS);
    (zone.cond, zone.wp - zone.start)
}

fn act(rig: &mut Rig, operation: Operation, index: u64) {
    let done = rig.run(Ask::new(operation, index * SECTORS, 0));
    assert_eq!((done.result, done.sector), (0, None), "{operation:?}");
}

#[test]
fn a_zoned_disk_has_the_limits_of_its_namespace() {
    for (append_limit, max_append) in [(0, 512), (16 << 10, 32), (4 << 20, 512)] {
        for shift in [9, 12] {
            let rig = Rig::new(Shape {
                append_limit,
                max_transfer: 4 << 20,
                ..Shape::zoned(shift)
            });
            let parameters = rig.disk.parameters;
            let zoned = parameters.zoned.unwrap();
            assert_eq!((zoned.max_open_zones, zoned.max_active_zones), (3, 4));
            assert_eq!(zoned.max_zone_append_sectors, max_append);
            assert_eq!(u64::from(parameters.basic.chunk_sectors), SECTORS);
            assert_eq!(parameters.basic.dev_sectors, LEN / 512);
            assert_eq!(parameters.discard, None);
            let features = Features::new().with_zoned(true).with_user_copy(true);
            assert_eq!(rig.disk.features(), features);
        }
    }
}

#[test]
fn reports_come_in_parts_and_end_with_the_last_zone() {
    for shift in [9, 12] {
        let mut rig = Rig::new(Shape::zoned(shift));
        let all = report(&mut rig, 0, 100);
        assert_eq!(all.len() as u64, ZONES);
        for (index, zone) in all.iter().enumerate() {
            let start = index as u64 * SECTORS;
            let expected = Zone {
                start,
                len: SECTORS,
                wp: start,
                kind: 2,
                cond: EMPTY,
                capacity: WRITABLE,
                ..Zone::default()
            };
            assert_eq!(*zone, expected, "{index}");
        }
        assert_eq!(report(&mut rig, 5 * SECTORS, 3), all[5..8]);
        assert_eq!(report(&mut rig, 15 * SECTORS, 3), all[15..]);
        // As many as the driver has room for in the buffer of a tag, and one more than that.
        assert_eq!(report(&mut rig, 0, 4095), all);
        assert_eq!(report(&mut rig, SECTORS, 4096), all[1..]);
        assert_eq!(report(&mut rig, 0, 0), []);
    }
}

#[test]
fn a_report_into_a_short_buffer_has_a_part_of_the_zones() {
    let mut rig = Rig::new(Shape {
        buffer_len: 4096,
        ..Shape::zoned(9)
    });
    let all = report(&mut rig, 0, 63);
    assert_eq!(all.len() as u64, ZONES);
    assert_eq!(report(&mut rig, 0, 64), all);
}

#[test]
fn zones_open_close_finish_and_reset() {
    for shift in [9, 12] {
        let mut rig = Rig::new(Shape::zoned(shift));
        act(&mut rig, Operation::ZONE_OPEN, 1);
        assert_eq!(zone(&mut rig, 1), (EXPLICITLY_OPEN, 0));
        rig.succeed(Ask::write(SECTORS, &[1; 8192]));
        assert_eq!(zone(&mut rig, 1), (EXPLICITLY_OPEN, 16));
        act(&mut rig, Operation::ZONE_CLOSE, 1);
        assert_eq!(zone(&mut rig, 1), (CLOSED, 16));
        rig.succeed(Ask::write(3 * SECTORS, &[3; 4096]));
        assert_eq!(zone(&mut rig, 3), (IMPLICITLY_OPEN, 8));
        act(&mut rig, Operation::ZONE_FINISH, 1);
        assert_eq!(zone(&mut rig, 1), (FULL, SECTORS));
        assert_eq!(
            rig.succeed(Ask::read(SECTORS, 24)),
            [vec![1; 8192], vec![0; 4096]].concat()
        );
        act(&mut rig, Operation::ZONE_RESET, 1);
        assert_eq!(zone(&mut rig, 1), (EMPTY, 0));
        assert_eq!(zone(&mut rig, 3), (IMPLICITLY_OPEN, 8));
        assert_eq!(rig.succeed(Ask::read(SECTORS, 16)), [0; 8192]);
        rig.succeed(Ask::write(SECTORS, &[4; 4096]));
        let done = rig.run(Ask::new(Operation::ZONE_RESET_ALL, 0, 0));
        assert_eq!(done.result, 0);
        let all = report(&mut rig, 0, 16);
        assert!(all.iter().all(|it| (it.cond, it.wp) == (EMPTY, it.start)));
        // Zeroes of a new zone move its write pointer.
        let zeroes = Ask::new(Operation::WRITE_ZEROES, 2 * SECTORS, 64);
        assert_eq!(rig.run(zeroes).result, 0);
        assert_eq!(zone(&mut rig, 2), (IMPLICITLY_OPEN, 64));
        assert_eq!(rig.run(Ask::new(Operation::FLUSH, 0, 0)).result, 0);
    }
}

#[test]
fn appends_say_where_their_data_are() {
    for shift in [9, 12] {
        let mut rig = Rig::new(Shape::zoned(shift));
        let unit = 4096;
        // Eight at a time, which the controller puts one behind the other.
        let mut bytes = vec![0; CAPACITY as usize];
        let mut sectors = 0;
        while sectors < WRITABLE {
            let count = (WRITABLE - sectors).div_ceil(8).min(8);
            for at in 0..count {
                let byte = (sectors / 8 + at) as u8;
                rig.give(Ask::append(4 * SECTORS, &vec![byte; unit]));
            }
            rig.settle();
            for done in rig.done() {
                assert_eq!(done.result, unit as i32);
                let at = (done.sector.unwrap() - 4 * SECTORS) as usize * 512;
                assert!(bytes[at..at + unit].iter().all(|byte| *byte == 0));
                bytes[at..at + unit].fill(1);
                let data = rig.succeed(Ask::read(done.sector.unwrap(), 8));
                assert!(data.iter().all(|byte| *byte == data[0]));
            }
            sectors += count * 8;
        }
        assert!(bytes.iter().all(|byte| *byte == 1), "a hole");
        assert_eq!(zone(&mut rig, 4), (FULL, SECTORS));
        let full = rig.run(Ask::append(4 * SECTORS, &[1; 4096]));
        assert_eq!((full.errno(), full.sector), (Errno::IO, None));
        // The last zone, whose sector has the most bits.
        let last = (ZONES - 1) * SECTORS;
        for at in [0, 8] {
            let done = rig.run(Ask::append(last, &[9; 4096]).fua());
            assert_eq!((done.result, done.sector), (4096, Some(last + at)));
        }
    }
}

#[test]
fn what_zones_refuse_has_the_error_numbers_of_the_block_layer() {
    let mut rig = Rig::new(Shape {
        append_limit: 8192,
        ..Shape::zoned(12)
    });
    // Not at the write pointer, behind what can be written, and across zones.
    assert_eq!(rig.run(Ask::write(8, &[1; 4096])).errno(), Errno::IO);
    assert_eq!(rig.run(Ask::write(WRITABLE, &[1; 4096])).errno(), Errno::IO);
    let zeroes = Ask::new(Operation::WRITE_ZEROES, 0, (WRITABLE + 8) as u32);
    assert_eq!(rig.run(zeroes).errno(), Errno::IO);
    assert_eq!(rig.run(Ask::append(0, &[1; 12288])).errno(), Errno::IO);
    assert_eq!(zone(&mut rig, 0), (EMPTY, 0));
    for index in 0..3 {
        act(&mut rig, Operation::ZONE_OPEN, index);
    }
    // BLK_STS_ZONE_OPEN_RESOURCE and BLK_STS_ZONE_ACTIVE_RESOURCE.
    let open = Ask::new(Operation::ZONE_OPEN, 3 * SECTORS, 0);
    assert_eq!(rig.run(open.clone()).errno(), Errno::TOOMANYREFS);
    rig.succeed(Ask::write(0, &[1; 4096]));
    act(&mut rig, Operation::ZONE_CLOSE, 0);
    rig.succeed(Ask::write(3 * SECTORS, &[1; 4096]));
    let more = Ask::write(4 * SECTORS, &[1; 4096]);
    assert_eq!(rig.run(more).errno(), Errno::OVERFLOW);
}

/// Requests that no kernel makes.
#[test]
fn outcomes_of_what_no_zone_can_do() {
    for shift in [9, 12] {
        let mut rig = Rig::new(Shape::zoned(shift));
        let all = LEN / 512;
        rig.succeed(Ask::append(SECTORS, &[1; 4096]));
        let before = report(&mut rig, 0, 16);
        let operations = [
            Operation::ZONE_OPEN,
            Operation::ZONE_CLOSE,
            Operation::ZONE_FINISH,
            Operation::ZONE_RESET,
            Operation::REPORT_ZONES,
        ];
        for start in [8, SECTORS + 8, all, all + SECTORS, 1 << 55, u64::MAX - 7] {
            for operation in operations {
                // A report may begin within a zone.
                let is_whole = start.is_multiple_of(SECTORS) || start > all;
                if is_whole || operation != Operation::REPORT_ZONES {
                    let done = rig.run(Ask::new(operation, start, 1));
                    assert_eq!(done.errno(), Errno::IO, "{operation:?} {start:#x}");
                }
            }
            let append = rig.run(Ask::append(start, &[1; 4096]));
            assert_eq!((append.errno(), append.sector), (Errno::IO, None));
        }
        let mut cases = vec![
            (Ask::new(Operation::ZONE_APPEND, 0, 0), Errno::INVAL),
            (Ask::new(Operation::ZONE_APPEND, 0, 520), Errno::INVAL),
            (
                Ask::new(Operation::ZONE_APPEND, 0, u32::MAX - 7),
                Errno::INVAL,
            ),
        ];
        for operation in [4, 6, 7, 8, 9, 16, 17, 19, 255] {
            cases.push((Ask::new(Operation(operation), 0, 8), Errno::OPNOTSUPP));
        }
        if shift == 12 {
            for operation in operations {
                cases.push((Ask::new(operation, 4, 0), Errno::INVAL));
            }
            cases.push((Ask::append(SECTORS, &[1; 512]), Errno::INVAL));
        }
        for (ask, errno) in cases {
            let what = format!("{ask:?}");
            assert_eq!(rig.run(ask).errno(), errno, "{what}");
        }
        assert_eq!(report(&mut rig, 0, 16), before);
        assert_eq!(rig.end, None);
    }
}

/// Also a report whose data cannot be copied is an error, and the write pointer of an append whose
/// data cannot be copied stays.
#[test]
fn copies_that_fail_are_errors() {
    let mut rig = Rig::new(Shape::zoned(9));
    rig.kernel_mut().fails_copies = true;
    assert_eq!(rig.run(Ask::report(0, 16)).errno(), Errno::IO);
    let append = rig.run(Ask::append(0, &[1; 4096]));
    assert_eq!((append.errno(), append.sector), (Errno::IO, None));
    rig.kernel_mut().fails_copies = false;
    assert_eq!(zone(&mut rig, 0), (EMPTY, 0));
}
