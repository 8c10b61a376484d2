use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::units::PAGE_LEN;
use crate::{Arithmetic, CollectionPolicy, FlashExtras, FlashParameters};

const LATER: u64 = 1_000_000_000;
const ZONE: u64 = 131_072;

/// Four dies on two channels; flash pages of two pages, wordlines of four, blocks of two wordlines.
/// Sixteen zones of 128 KiB, of which 96 KiB can be written: six wordlines, on two dies. A channel
/// carries a byte per nanosecond, the link four.
fn small() -> ZonesParameters {
    ZonesParameters {
        flash: FlashParameters {
            arithmetic: Arithmetic::Exact,
            size_bytes: 16 * ZONE,
            partitions: 1,
            channels: 2,
            dies_per_channel: 2,
            flash_page_bytes: 8192,
            oneshot_bytes: 16_384,
            block_bytes: 32_768,
            cell_bits: 2,
            overprovisioning_permille: 0,
            read_4k_ns: [10_000, 20_000, 0, 0],
            read_ns: [15_000, 25_000, 0, 0],
            program_ns: 100_000,
            erase_ns: 1_000_000,
            channel_bandwidth_bytes_per_s: 1_000_000_000,
            max_channel_transfer_bytes: 8192,
            firmware_channel_transfer_ns: 0,
            link_bandwidth_bytes_per_s: 4_000_000_000,
            firmware_read_4k_ns: 1000,
            firmware_read_ns: 2000,
            buffer_bytes: 65_536,
            buffer_base_ns: 500,
            buffer_per_page_ns: 100,
            early_completion: true,
            deallocate_ns: 3000,
            collect_below: 2,
            policy: CollectionPolicy::Greedy,
            extras: FlashExtras::default(),
        },
        zone_size_bytes: ZONE,
        zone_capacity_bytes: 98_304,
        dies_per_zone: 2,
        zone_buffer_bytes: 0,
        reset_ns: 50_000,
        finish_ns: 60_000,
        finish_writes: true,
        open_ns: 7000,
    }
}

fn drive(parameters: &ZonesParameters) -> Zones {
    Zones::new(parameters).unwrap()
}

fn read(offset: u64, pages: u32) -> Op<'static> {
    Op::Read {
        offset,
        len: pages * PAGE_LEN,
    }
}

fn write(offset: u64, len: u32) -> Op<'static> {
    Op::Write {
        offset,
        len,
        fua: false,
    }
}

fn forced(offset: u64, len: u32) -> Op<'static> {
    Op::Write {
        offset,
        len,
        fua: true,
    }
}

fn reset(zone: u32) -> Op<'static> {
    Op::Zone(ZoneOp::Reset { zone })
}

fn finish(zone: u32) -> Op<'static> {
    Op::Zone(ZoneOp::Finish { zone })
}

/// Submits operations, all of which are accepted, at their times, and gives how long each takes.
fn durations(zones: &mut Zones, ops: &[(u64, Op<'_>)]) -> Vec<u64> {
    let mut done = Vec::new();
    for (id, (now, op)) in ops.iter().enumerate() {
        zones.advance(*now, &mut done);
        assert!(zones.has_room(op));
        assert_eq!(zones.submit(*now, id as u64, op), Admission::Accepted);
    }
    zones.advance(u64::MAX, &mut done);
    let mut durations = vec![0; ops.len()];
    for due in done {
        durations[due.id as usize] = due.at - ops[due.id as usize].0;
    }
    durations
}

/// From the data's being there to the end of a wordline's program.
const PROGRAM: u64 = 16_384 + 100_000;

#[test]
fn a_write_programs_the_wordlines_that_it_fills() {
    let mut zones = drive(&small());
    // 12 KiB, then 4 KiB that fill the wordline, then one that ends within the next.
    let ops = [
        (0, forced(0, 12_288)),
        (LATER, forced(12_288, 4096)),
        (2 * LATER, forced(16_384, 20_480)),
    ];
    let there = |pages: u64| 500 + pages * 100 + pages * 1024;
    assert_eq!(
        durations(&mut zones, &ops),
        [there(3), there(1) + PROGRAM, there(5) + PROGRAM]
    );
    assert_eq!(zones.buffer_used(0), 4096);
    // Early completion does not wait. A wordline of zone 1 has its own die, 2, which shares the
    // channel with die 0.
    let mut zones = drive(&small());
    assert_eq!(
        durations(
            &mut zones,
            &[(0, write(0, 16_384)), (0, forced(ZONE, 16_384))]
        ),
        [there(4), there(4) + 16_384 + PROGRAM]
    );
}

#[test]
fn zones_go_around_the_dies_and_wordlines_around_those_of_a_zone() {
    let zones = drive(&small());
    let die = |zone, wordline| zones.shape.die(zone, wordline);
    assert_eq!([die(0, 0), die(0, 1), die(0, 2), die(0, 5)], [0, 1, 0, 1]);
    assert_eq!([die(1, 0), die(1, 1), die(2, 0), die(3, 1)], [2, 3, 0, 3]);
    let mut parameters = small();
    parameters.dies_per_zone = 3;
    let zones = drive(&parameters);
    let die = |zone, wordline| zones.shape.die(zone, wordline);
    assert_eq!(
        [die(0, 2), die(1, 0), die(1, 1), die(1, 3), die(2, 0)],
        [2, 3, 0, 3, 2]
    );
    assert_eq!([0, 1, 2].map(|die| zones.shape.on_die(4, die)), [2, 1, 1]);
}

#[test]
fn a_read_goes_over_the_link_when_all_is_sensed() {
    let prepared = || {
        let mut zones = drive(&small());
        durations(&mut zones, &[(0, write(0, 40_960))]);
        zones.pending = Pending::default();
        zones
    };
    let first = [
        (LATER, read(0, 1)),
        (2 * LATER, read(8192, 1)),
        (3 * LATER, read(0, 2)),
    ];
    assert_eq!(
        durations(&mut prepared(), &first),
        [
            1000 + 10_000 + 4096 + 1024,
            1000 + 20_000 + 4096 + 1024,
            2000 + 15_000 + 8192 + 2048
        ]
    );
    // Both flash pages of a wordline, on one die, one after another; those of the second wordline
    // at the same time on the other.
    let wordline = 2000 + (15_000 + 8192) + (25_000 + 8192);
    assert_eq!(
        durations(&mut prepared(), &[(LATER, read(0, 8))]),
        [wordline + 8192]
    );
    // 32768 to 40960 was written and is in no wordline that is full: sensed all the same, in row 1:
    // flash page 2, of the first kind. Bytes beyond it are not sensed, but are sent.
    assert_eq!(
        durations(&mut prepared(), &[(LATER, read(32_768, 4))]),
        [2000 + 15_000 + 8192 + 4096]
    );
    // Nothing there at all; then over the end of a zone, and over that of the drive.
    let nothing = [
        (LATER, read(5 * ZONE, 1)),
        (2 * LATER, read(16 * ZONE - 4096, 2)),
    ];
    assert_eq!(
        durations(&mut prepared(), &nothing),
        [1000 + 1024, 2000 + 2048]
    );
}

#[test]
fn a_read_goes_on_from_zone_to_zone() {
    let mut parameters = small();
    parameters.zone_capacity_bytes = ZONE;
    let mut zones = drive(&parameters);
    let ops = [
        (0, write(0, 49_152)),
        (LATER, write(49_152, 49_152)),
        (2 * LATER, write(98_304, 32_768)),
        (3 * LATER, write(ZONE, 8192)),
        // The last page of zone 0 (row 3 of die 1, the last flash page, kind 1) and the first of
        // zone 1.
        (4 * LATER, read(ZONE - 4096, 2)),
    ];
    assert_eq!(durations(&mut zones, &ops)[4], 2000 + 20_000 + 4096 + 2048);
}

#[test]
fn a_reset_erases_the_blocks_that_were_begun() {
    // Five wordlines: three on die 0, in two blocks, and two on die 1, in one.
    let mut zones = drive(&small());
    let ops = [
        (0, write(0, 65_536)),
        (LATER, write(65_536, 20_480)),
        (2 * LATER, reset(0)),
        (3 * LATER, reset(0)),
        (4 * LATER, reset(9)),
        (5 * LATER, reset(16)),
    ];
    assert_eq!(
        durations(&mut zones, &ops)[2..],
        [2_000_000, 50_000, 50_000, 0]
    );
    assert_eq!(
        zones.buffer_used(0),
        0,
        "what was in no full wordline is dropped"
    );
    // A partly filled wordline causes no erase, and a read then takes only the link.
    let mut zones = drive(&small());
    let ops = [
        (0, write(0, 8192)),
        (LATER, reset(0)),
        (2 * LATER, read(0, 1)),
    ];
    assert_eq!(durations(&mut zones, &ops)[1..], [50_000, 2024]);
    // It waits for the work of the dies.
    let mut zones = drive(&small());
    let ops = [(0, write(0, 16_384)), (0, reset(0))];
    let there = 500 + 400 + 4096;
    assert_eq!(
        durations(&mut zones, &ops),
        [there, there + PROGRAM + 1_000_000]
    );
}

#[test]
fn a_finish_programs_what_is_left_without_data() {
    // One wordline and a quarter: left are the second and four more, three on die 1 and two on
    // die 0.
    let mut zones = drive(&small());
    let ops = [(0, write(0, 20_480)), (LATER, finish(0)), (LATER, reset(0))];
    assert_eq!(
        durations(&mut zones, &ops)[1..],
        [300_000, 300_000 + 2_000_000]
    );
    // The bytes of the second come back when its program ends.
    let mut zones = drive(&small());
    durations(&mut zones, &[(0, write(0, 20_480))]);
    zones.pending = Pending::default();
    zones.submit(LATER, 0, &finish(0));
    assert_eq!(zones.buffer_used(0), 4096);
    assert_eq!(zones.next_event(), Some(LATER + 100_000));
    let mut done = Vec::new();
    zones.advance(LATER + 100_000, &mut done);
    assert_eq!(zones.buffer_used(0), 0);
    // Nothing was written there: not sensed.
    let mut zones = drive(&small());
    let ops = [
        (0, write(0, 16_384)),
        (LATER, finish(0)),
        (2 * LATER, read(16_384, 1)),
        (3 * LATER, finish(0)),
    ];
    assert_eq!(durations(&mut zones, &ops)[2..], [2024, 60_000]);
}

#[test]
fn a_finish_that_writes_nothing_gives_back_at_once() {
    let mut parameters = small();
    parameters.finish_writes = false;
    let mut zones = drive(&parameters);
    let ops = [
        (0, write(0, 20_480)),
        (LATER, finish(0)),
        (2 * LATER, reset(0)),
    ];
    assert_eq!(durations(&mut zones, &ops)[1..], [60_000, 1_000_000]);
    assert_eq!(zones.buffer_used(0), 0);
}

#[test]
fn other_operations_take_what_they_are_given() {
    let mut zones = drive(&small());
    let ops = [
        (0, Op::Zone(ZoneOp::Open { zone: 3 })),
        (0, Op::Zone(ZoneOp::Close { zone: 3 })),
        (
            0,
            Op::Deallocate {
                offset: 0,
                len: ZONE,
            },
        ),
        (0, Op::Flush),
        (0, write(0, 16_384)),
        (0, Op::Flush),
        (0, Op::Compound(&[])),
    ];
    let there = 500 + 400 + 4096;
    assert_eq!(
        durations(&mut zones, &ops),
        [7000, 0, 3000, 0, there, there + PROGRAM, 0]
    );
}

#[test]
fn buffers_are_shared_or_of_each_zone() {
    let mut zones = drive(&small());
    assert_eq!(zones.submit(0, 0, &write(0, 49_152)), Admission::Accepted);
    assert_eq!(zones.submit(0, 1, &write(ZONE, 20_480)), Admission::Stall);
    assert!(!zones.has_room(&write(ZONE, 20_480)));
    assert_eq!(zones.stalls(), 1);
    assert_eq!(
        zones.submit(0, 1, &write(ZONE, 16_384)),
        Admission::Accepted
    );
    let mut parameters = small();
    parameters.zone_buffer_bytes = 49_152;
    let mut zones = drive(&parameters);
    assert_eq!(zones.submit(0, 0, &write(0, 49_152)), Admission::Accepted);
    assert_eq!(
        zones.submit(0, 1, &write(ZONE, 49_152)),
        Admission::Accepted
    );
    assert_eq!(zones.submit(0, 1, &write(49_152, 512)), Admission::Stall);
    assert_eq!(
        (
            zones.buffer_used(0),
            zones.buffer_used(1),
            zones.buffer_used(2)
        ),
        (49_152, 49_152, 0)
    );
}

#[test]
fn a_large_write_does_not_wait_for_what_no_program_frees() {
    // 4096 bytes stay in a partly filled wordline: at most 61440 of the 65536 are available, and
    // the write takes that many.
    let mut zones = drive(&small());
    let ops = [(0, write(0, 4096)), (LATER, forced(ZONE, 81_920))];
    let there = 500 + 2000 + 20_480;
    // Five wordlines: three on die 2, two on die 3, one after another.
    assert_eq!(durations(&mut zones, &ops)[1], there + 3 * PROGRAM);
    assert_eq!(zones.buffer_used(0), 4096);
}

#[test]
fn what_was_written_before_takes_no_buffer_and_programs_nothing() {
    let mut zones = drive(&small());
    let there = |pages: u64| 500 + pages * 100 + pages * 1024;
    let ops = [
        (0, forced(0, 8192)),
        (LATER, forced(0, 8192)),          // again: nothing new
        (2 * LATER, forced(4096, 12_288)), // two new pages fill the wordline
        (3 * LATER, forced(0, 16_384)),    // nothing new
        (4 * LATER, forced(40_960, 4096)), // leaves a gap, in which a wordline ends
        (5 * LATER, forced(94_208, 8192)), // over the capacity
    ];
    let both = there(2) + PROGRAM;
    assert_eq!(
        durations(&mut zones, &ops),
        [
            there(2),
            there(2),
            there(3) + PROGRAM,
            there(4),
            there(1) + PROGRAM,
            both + PROGRAM
        ]
    );
    assert_eq!(zones.buffer_used(0), 0);
}

#[test]
fn bytes_of_the_buffer_belong_to_what_was_brought() {
    // Four kibibytes from 20480 on: the gap before them fills the first wordline, but they are in
    // the second, and stay.
    let mut zones = drive(&small());
    let there = 500 + 100 + 1024;
    assert_eq!(
        durations(&mut zones, &[(0, forced(20_480, 4096))]),
        [there + PROGRAM]
    );
    assert_eq!(zones.buffer_used(0), 4096);
}

#[test]
fn what_was_written_before_is_sensed_and_erased() {
    let mut zones = drive(&small());
    zones.restore_fill(0, 40_960, false);
    zones.restore_fill(1, u64::MAX, false);
    zones.restore_fill(16, 1, false);
    let ops = [
        (0, read(36_864, 1)),
        (LATER, read(40_960, 1)),
        (2 * LATER, forced(40_960, 8192)), // fills the third wordline
        (3 * LATER, reset(0)),             // two wordlines on die 0, one on die 1
        (4 * LATER, reset(1)),             // three on each, in two blocks
    ];
    assert_eq!(
        durations(&mut zones, &ops),
        [
            1000 + 10_000 + 4096 + 1024,
            2024,
            500 + 200 + 2048 + PROGRAM,
            1_000_000,
            2_000_000
        ]
    );
    assert_eq!(zones.buffer_used(0), 0);
}

#[test]
fn other_shapes_are_refused() {
    let mut zones = drive(&small());
    let mut parameters = small();
    parameters.open_ns = 1;
    zones.retune(&parameters).unwrap();
    assert_eq!(
        durations(&mut zones, &[(0, Op::Zone(ZoneOp::Open { zone: 0 }))]),
        [1]
    );
    parameters.dies_per_zone = 4;
    assert!(zones.retune(&parameters).is_err());
    parameters.dies_per_zone = 5;
    assert!(Zones::new(&parameters).is_err());
    parameters = small();
    parameters.zone_capacity_bytes = 90_000;
    assert!(Zones::new(&parameters).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Write { zone: u32, len: u32 },
    Anywhere { offset: u64, len: u32 },
    Read { offset: u64, len: u32 },
    Reset(u32),
    Finish(u32),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u32..6, 1u32..200).prop_map(|(zone, sectors)| Step::Write { zone, len: sectors * 512 }),
        1 => (0..17 * ZONE, 1u32..100_000).prop_map(|(offset, len)| Step::Anywhere { offset, len }),
        2 => (0..17 * ZONE, 1u32..300_000).prop_map(|(offset, len)| Step::Read { offset, len }),
        1 => (0u32..6).prop_map(Step::Reset),
        1 => (0u32..6).prop_map(Step::Finish),
        4 => (0u64..1_000_000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn every_command_ends_and_the_buffer_is_left_as_it_should(
        own_buffers in any::<bool>(),
        finish_writes in any::<bool>(),
        steps in steps(),
    ) {
        let mut parameters = small();
        parameters.zone_buffer_bytes = if own_buffers { 40_000 } else { 0 };
        parameters.finish_writes = finish_writes;
        let mut zones = drive(&parameters);
        let mut fill = [0u64; 6];
        let (mut now, mut submitted, mut done) = (0, 0, Vec::new());
        for step in steps {
            let op = match step {
                Step::Wait(time) => {
                    now += time;
                    zones.advance(now, &mut done);
                    continue;
                }
                Step::Write { zone, len } => {
                    let at = fill[zone as usize];
                    let len = u64::from(len).min(98_304 - at);
                    fill[zone as usize] += len;
                    write(u64::from(zone) * ZONE + at, len as u32)
                }
                Step::Anywhere { offset, len } => write(offset, len),
                Step::Read { offset, len } => Op::Read { offset, len },
                Step::Reset(zone) => {
                    fill[zone as usize] = 0;
                    reset(zone)
                }
                Step::Finish(zone) => finish(zone),
            };
            while zones.submit(now, submitted, &op) == Admission::Stall {
                prop_assert!(!zones.has_room(&op));
                now = zones.next_event().expect("what stalls waits for something");
                zones.advance(now, &mut done);
            }
            submitted += 1;
        }
        zones.advance(u64::MAX, &mut done);
        prop_assert_eq!(zones.next_event(), None);
        let ids: BTreeSet<u64> = done.iter().map(|due| due.id).collect();
        prop_assert_eq!(ids.len() as u64, submitted);
        // The rest in a buffer belongs to partly filled wordlines.
        for (pool, &waiting) in zones.waiting.iter().enumerate() {
            prop_assert_eq!(zones.buffer.used(pool), waiting);
        }
        let held: u64 = zones.zones.iter().map(|zone| zone.held).sum();
        prop_assert_eq!(held, zones.waiting.iter().sum::<u64>());
        // And is given back with the zones.
        for zone in 0..16 {
            zones.submit(u64::MAX, 0, &reset(zone));
        }
        prop_assert!((0..16).all(|zone| zones.buffer_used(zone) == 0));
    }
}

fn suspending() -> ZonesParameters {
    let mut parameters = small();
    parameters.flash.extras.suspend_limit = 1;
    parameters.flash.extras.suspend_ns = 3000;
    parameters.flash.extras.resume_ns = 2000;
    parameters
}

/// The zones 0 and 2 lie on the dies 0 and 1. Two blocks of zone 0 are erased on each, from 0 and
/// from 1000000 on.
#[test]
fn the_last_erase_of_a_reset_and_program_of_a_finish_give_way_to_reads() {
    let full = || {
        let mut zones = drive(&suspending());
        zones.restore_fill(0, ZONE, false);
        zones.restore_fill(2, ZONE, false);
        zones
    };
    // Asked for at 501000, in the first erase: it waits for both.
    let ops = [(0, reset(0)), (500_000, read(2 * ZONE, 1))];
    assert_eq!(
        durations(&mut full(), &ops),
        [2_000_000, 1_500_000 + 15_120]
    );
    // At 1500000: from 1503000, 14096 later off the channel; the erase ends 17096 + 2000 later, and
    // the reset with it.
    let ops = [(0, reset(0)), (1_499_000, read(2 * ZONE, 1))];
    assert_eq!(durations(&mut full(), &ops), [2_019_096, 19_120]);

    let mut zones = drive(&suspending());
    zones.restore_fill(2, ZONE, false);
    // Three programs on each die, the last from 200000 to 300000.
    let ops = [(0, finish(0)), (249_000, read(2 * ZONE, 1))];
    assert_eq!(durations(&mut zones, &ops), [319_096, 19_120]);
}

#[test]
fn the_bytes_of_a_zone_come_back_when_a_program_that_gave_way_ends() {
    let mut parameters = suspending();
    parameters.flash.buffer_bytes = 16_384;
    let mut zones = drive(&parameters);
    zones.restore_fill(2, ZONE, false);
    zones.submit(0, 0, &forced(0, 16_384));
    // 500 + 400 + 4096, and 16384 on the channel: from 21380 to 121380. Asked for at 50000: from
    // 53000 to 67096.
    zones.submit(49_000, 1, &read(2 * ZONE, 1));
    let mut done = Vec::new();
    zones.advance(121_380 + 19_095, &mut done);
    assert_eq!((done.len(), zones.buffer_used(0)), (1, 16_384));
    assert_eq!(zones.next_event(), Some(121_380 + 19_096));
    zones.advance(121_380 + 19_096, &mut done);
    assert_eq!((done.len(), zones.buffer_used(0)), (2, 0));
}

/// Wordlines of two flash pages, in two planes: both sense at the same time, and are of one kind.
#[test]
fn zones_have_planes() {
    let mut parameters = small();
    parameters.flash.extras.planes = 2;
    let mut zones = drive(&parameters);
    zones.restore_fill(0, ZONE, false);
    let ops = [
        (0, read(0, 1)),
        (0, read(8192, 1)),
        // The third wordline: the second row of die 0, of the other kind.
        (LATER, read(32_768, 4)),
    ];
    // In one piece of two pages each: 25000, and the channel twice 8192; 16384 over the link.
    assert_eq!(
        durations(&mut zones, &ops),
        [16_120, 16_120 + 4096, 2000 + 25_000 + 2 * 8192 + 4096]
    );
}

/// A zone that was finished has all its wordlines programmed, where a finish does that: a reset
/// erases all of its blocks.
#[test]
fn a_zone_that_was_finished_before_is_reset_as_a_whole() {
    for finish_writes in [true, false] {
        let parameters = ZonesParameters {
            finish_writes,
            ..small()
        };
        let again = (2 * LATER, reset(0));
        let all = [(0, forced(0, 16_384)), (LATER, finish(0)), again];
        let finished = durations(&mut drive(&parameters), &all);
        let mut restored = drive(&parameters);
        restored.restore_fill(0, 16_384, true);
        let took = durations(&mut restored, &[again]);
        assert_eq!(took, finished[2..]);
        // Three wordlines on each die are two blocks; one wordline is one.
        let blocks = if finish_writes { 2 } else { 1 };
        assert_eq!(took, [blocks * 1_000_000]);
    }
}
