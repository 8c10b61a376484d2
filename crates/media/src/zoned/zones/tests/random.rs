//! Random write areas (TP 4076): an area of 8 KiB, and one of the same size behind it whose writes
//! commit, in steps of 4 KiB.

use nvme_spec::Status;
use nvme_spec::zoned::{ZoneSendAction as Action, ZoneState as State};
use port::set::RandomAreas;
use proptest::prelude::*;

use super::super::{Geometry, Zone, Zones};
use super::{CAPACITY, ZONE, geometry, write};

const KIB: u64 = 1 << 10;
const AREA: u64 = 8 * KIB;
const STEP: u64 = 4 * KIB;

fn zones(max_open: u32, areas: u32) -> Zones {
    let random = RandomAreas {
        bytes: AREA as u32,
        granularity: STEP as u32,
        zones: areas,
    };
    Zones::new(Geometry {
        random: Some(random),
        ..geometry(4, max_open, 0)
    })
}

/// Zone 0, explicitly opened with an area.
fn opened() -> Zones {
    let mut zones = zones(0, 2);
    assert_eq!(zones.open_random(0), Ok(None));
    assert_eq!(zones.get(0).state, State::EXPLICITLY_OPENED);
    assert!(zones.get(0).random);
    zones
}

#[test]
fn an_area_is_written_in_any_order_and_what_is_behind_it_moves_it() {
    let mut zones = opened();
    let mut at = |offset, len, written: Result<u64, Status>, reached| {
        let found = write(&mut zones, offset, len).map(|()| zones.get(0).written);
        assert_eq!(found, written, "{offset} {len}");
        assert_eq!(zones.get(0).reached, reached, "{offset} {len}");
    };
    let refused = Err(Status::ZONE_INVALID_WRITE);
    at(4 * KIB, 4 * KIB, Ok(0), 8 * KIB);
    at(0, 512, Ok(0), 8 * KIB);
    at(0, 8 * KIB, Ok(0), 8 * KIB);
    // A block behind the area: a whole step is committed.
    at(8 * KIB, 512, Ok(4 * KIB), 8 * KIB + 512);
    at(0, 512, refused, 8 * KIB + 512);
    at(4 * KIB, 512, Ok(4 * KIB), 8 * KIB + 512);
    // To the end of the second area, and beyond it.
    at(16 * KIB, 4 * KIB, Ok(12 * KIB), 20 * KIB);
    at(24 * KIB, 4 * KIB + 512, refused, 20 * KIB);
    at(20 * KIB, 4 * KIB, Ok(16 * KIB), 24 * KIB);
    // The last step of the zone stays in the area: only its commit makes the zone full.
    at(28 * KIB, 4 * KIB, Ok(24 * KIB), 32 * KIB);
    at(36 * KIB, 4 * KIB, Ok(32 * KIB), 40 * KIB);
    at(40 * KIB, 8 * KIB, Ok(40 * KIB), CAPACITY);
    at(44 * KIB, 4 * KIB, Ok(40 * KIB), CAPACITY);
    at(
        44 * KIB,
        4 * KIB + 512,
        Err(Status::ZONE_BOUNDARY_ERROR),
        CAPACITY,
    );
    assert_eq!(zones.get(0).state, State::EXPLICITLY_OPENED);
    assert_eq!(zones.commit(0, CAPACITY), Ok(None));
    assert_eq!(zones.get(0).state, State::FULL);
    assert!(!zones.get(0).random);
}

#[test]
fn a_commit_is_by_whole_steps_of_the_area() {
    let mut zones = opened();
    let refused = Err(Status::INVALID_ZONE_OPERATION_REQUEST);
    for to in [512, 2 * KIB, 12 * KIB, 4 * KIB + 512] {
        assert_eq!(zones.commit(0, to), refused, "{to}");
    }
    // Nothing was written there, and it cannot be any more.
    assert_eq!(zones.commit(0, 4 * KIB), Ok(None));
    assert_eq!((zones.get(0).written, zones.get(0).reached), (4096, 4096));
    assert_eq!(write(&mut zones, 0, 512), Err(Status::ZONE_INVALID_WRITE));
    assert_eq!(zones.commit(0, 4 * KIB), refused);
    assert_eq!(zones.commit(0, 12 * KIB), Ok(None));
    // A zone without an area, open or not.
    write(&mut zones, ZONE, 512).unwrap();
    assert_eq!(zones.commit(1, ZONE + 4 * KIB), refused);
    assert_eq!(zones.commit(2, 2 * ZONE + 4 * KIB), refused);
}

#[test]
fn a_commit_opens_a_closed_zone() {
    let mut zones = zones(1, 2);
    zones.open_random(0).unwrap();
    zones.act(Action::CLOSE, 0).unwrap();
    assert!(zones.get(0).random, "it stays while the zone is active");
    write(&mut zones, ZONE, 512).unwrap();
    assert_eq!(zones.commit(0, STEP), Ok(Some(1)));
    assert_eq!(zones.get(0).state, State::IMPLICITLY_OPENED);
    assert_eq!(zones.get(1).state, State::CLOSED);
    zones.act(Action::OPEN, 1).unwrap();
    // Zone 1 was opened explicitly: there is no room.
    assert_eq!(zones.commit(0, 2 * STEP), Err(Status::TOO_MANY_OPEN_ZONES));
    assert_eq!(zones.get(0).written, STEP);
}

#[test]
fn areas_are_given_to_empty_zones_as_long_as_there_are_some() {
    let mut zones = opened();
    let not_empty = Err(Status::INVALID_ZONE_OPERATION_REQUEST);
    assert_eq!(zones.open_random(0), not_empty);
    write(&mut zones, ZONE, 512).unwrap();
    assert_eq!(zones.open_random(1), not_empty);
    assert_eq!(zones.extend(2, true), Ok(()));
    assert_eq!(zones.get(2).state, State::CLOSED);
    assert!(zones.get(2).random && zones.get(2).extended);
    let none_left = Err(Status::ZRWA_RESOURCES_UNAVAILABLE);
    assert_eq!(zones.open_random(3), none_left);
    assert_eq!(zones.extend(3, true), none_left.map(drop));
    assert_eq!(zones.get(3).state, State::EMPTY);
    // The end of a zone's activity frees its area.
    for (end, zone) in [(Action::RESET, 0), (Action::FINISH, 2)] {
        zones.act(end, zone).unwrap();
        assert!(!zones.get(zone).random);
        assert_eq!(zones.open_random(3), Ok(None));
        zones.act(Action::RESET, 3).unwrap();
    }
    zones.open_random(3).unwrap();
    zones.open_random(0).unwrap();
    zones.failed(3);
    zones.act(Action::RESET, 2).unwrap();
    assert_eq!(zones.open_random(2), Ok(None));
    assert_eq!(
        super::super::Zones::new(geometry(1, 0, 0)).open_random(0),
        none_left
    );
}

#[test]
fn appends_have_no_place_in_an_area() {
    let mut zones = opened();
    assert_eq!(
        zones.check_append(0, 512).unwrap_err(),
        Status::INVALID_ZONE_OPERATION_REQUEST
    );
    zones.act(Action::RESET, 0).unwrap();
    assert!(zones.check_append(0, 512).is_ok());
}

#[test]
fn what_was_written_behind_the_write_pointer_is_known() {
    let mut zones = opened();
    write(&mut zones, 4 * KIB, 512).unwrap();
    let over = zones.check_write(4 * KIB, 512).unwrap();
    assert!(!zones.is_new(&over));
    // The gap before it may contain data, and the bytes after it do not.
    assert!(!zones.is_new(&zones.check_write(0, 512).unwrap()));
    assert!(zones.is_new(&zones.check_write(4 * KIB + 512, 512).unwrap()));
    zones.act(Action::FINISH, 0).unwrap();
    assert_eq!(zones.get(0).reached, 4 * KIB + 512, "a reset erases it");
    zones.act(Action::RESET, 0).unwrap();
    assert_eq!(zones.get(0).reached, 0);
}

/// A zone that was written with steps of 512 bytes, and is found again where steps are of 4 KiB.
#[test]
fn a_write_pointer_between_two_steps_stays_in_its_zone() {
    let mut zones = zones(0, 2);
    zones.restore(
        0,
        Zone {
            state: State::CLOSED,
            written: CAPACITY - 8704,
            reached: CAPACITY - 8192,
            extended: false,
            random: true,
        },
    );
    // 512 bytes behind the area, and a whole step would end behind the capacity.
    write(&mut zones, CAPACITY - 512, 512).unwrap();
    assert_eq!(zones.get(0).written, CAPACITY - 4608);
    assert_eq!(zones.commit(0, CAPACITY - 512), Ok(None));
    assert_eq!(
        zones.commit(0, CAPACITY),
        Err(Status::INVALID_ZONE_OPERATION_REQUEST)
    );
    zones.act(Action::FINISH, 0).unwrap();
    assert_eq!(zones.get(0).reached, CAPACITY);
}

#[derive(Clone, Debug)]
enum Step {
    /// Blocks from the write pointer, and how many.
    Write(i64, u64),
    /// Blocks from the write pointer to the last one that is committed.
    Commit(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (-2..34i64, 1..20u64).prop_map(|(from, blocks)| Step::Write(from, blocks)),
        1 => prop_oneof![Just(7), Just(15), -1..20i64].prop_map(Step::Commit),
    ]
}

/// Block after block: the write pointer takes a step for as long as a block that is written is
/// behind the area.
fn write_of_model(wp: &mut u64, first: u64, blocks: u64) -> Result<(), Status> {
    let last = first + blocks - 1;
    if (last + 1) * 512 > CAPACITY {
        return Err(Status::ZONE_BOUNDARY_ERROR);
    }
    if first < *wp || last >= *wp + 2 * AREA / 512 {
        return Err(Status::ZONE_INVALID_WRITE);
    }
    for block in first..=last {
        while block >= *wp + AREA / 512 {
            *wp += STEP / 512;
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_write_pointer_goes_by_steps(steps in prop::collection::vec(step(), 1..60)) {
        let mut zones = opened();
        let mut wp = 0u64;
        for step in steps {
            match step {
                Step::Write(from, blocks) => {
                    let first = wp.saturating_add_signed(from).min(ZONE / 512 - 1);
                    let expected = write_of_model(&mut wp, first, blocks);
                    prop_assert_eq!(write(&mut zones, first * 512, blocks * 512), expected);
                }
                Step::Commit(last) => {
                    let to = wp.saturating_add_signed(last + 1);
                    let steps = [8, 16].contains(&to.wrapping_sub(wp));
                    let expected = if steps && to * 512 <= CAPACITY { wp = to; Ok(None) } else { Err(Status::INVALID_ZONE_OPERATION_REQUEST) };
                    prop_assert_eq!(zones.commit(0, to * 512), expected);
                }
            }
            prop_assert_eq!(zones.get(0).written, wp * 512);
            let full = wp * 512 == CAPACITY;
            prop_assert_eq!(zones.get(0).state == State::FULL, full);
            if full {
                break;
            }
        }
    }
}
