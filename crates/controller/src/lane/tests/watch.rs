//! Commands that are watched: which ones, and the times that are noted of them.

use std::cell::Cell;
use std::sync::Arc;

use nvme_spec::Status;
use port::testing::Manner;
use port::time::Time;
use proptest::prelude::*;

use super::rig::{Rig, command, read};
use crate::flight::{
    FlightRecord, FlightRecords, LaneFlight, Operation, Stage, TraceRings, TraceSpec, Tracing,
    Watching,
};
use crate::lane::LaneCommand;

/// Each look at the clock comes so many nanoseconds after the one before.
const TICK: u64 = 10;

fn clock() -> Time {
    thread_local!(static NOW: Cell<u64> = const { Cell::new(1_000) });
    NOW.set(NOW.get() + TICK);
    Time(NOW.get())
}

pub(super) fn watching(every: u32, records: usize) -> Watching {
    Watching {
        every,
        clock,
        records: Arc::new(FlightRecords::new(records)),
        flight: Arc::new(LaneFlight::default()),
        trace: None,
    }
}

fn rig(manner: Manner, every: u32, records: usize) -> (Rig, Watching) {
    let mut rig = Rig::new(64, &[64, 64], manner);
    let watching = watching(every, records);
    rig.lane.command(LaneCommand::Watch(Some(watching.clone())));
    (rig, watching)
}

/// A turn to its end, as an engine takes it.
fn turn(rig: &mut Rig) {
    rig.turn();
    rig.lane.take_posted();
}

fn count(watching: &Watching, operation: Operation) -> u64 {
    let counts = watching.flight.latency[operation as usize].counts();
    counts.map(|(_, count)| count).sum()
}

#[test]
fn the_times_of_a_command_are_those_of_its_stages() {
    let (mut rig, watching) = rig(Manner::Asynchronous, 1, 16);
    rig.submit(1, read(5));
    turn(&mut rig);
    // Seen, fetched, let go, handed over, had by the medium, ended, raised: a tick lies between
    // each and the next.
    let [record] = watching.records.last(16).try_into().unwrap();
    let medium = 2 * TICK as u32;
    let tick = TICK as u32;
    assert_eq!(record.stages, [tick, tick, tick, medium, 0, tick]);
    assert_eq!(record.latency_ns(), 5 * TICK);
    assert_eq!((record.sqid, record.cid, record.opcode), (1, 5, 2));
    assert_eq!((record.nsid, record.slba, record.bytes), (1, 0, 512));
    assert_eq!((record.fua, record.depth), (false, 1));
    assert_eq!(record.status, Status::SUCCESSFUL_COMPLETION);
    assert_eq!(
        watching.flight.stages[Stage::Medium as usize].sum.get(),
        2 * TICK
    );
}

#[test]
fn what_a_command_asked_for_stands_in_its_record() {
    let (mut rig, watching) = rig(Manner::Synchronous, 1, 16);
    let mut write = command(1, 7);
    write.cdw10 = 40;
    write.cdw12 = 1 << 30;
    assert!(rig.run(write).is_success());
    let beyond = nvme_spec::Sqe {
        cdw11: 1,
        ..read(8)
    };
    assert_eq!(rig.run(beyond), Status::LBA_OUT_OF_RANGE);
    rig.lane.take_posted();
    let records = watching.records.last(16);
    let asked = |r: &FlightRecord| (r.cid, r.opcode, r.slba, r.bytes, r.fua, r.status);
    let all: Vec<_> = records.iter().map(asked).collect();
    let ok = Status::SUCCESSFUL_COMPLETION;
    assert_eq!(all[0], (7, 1, 40, 512, true, ok));
    let (cid, opcode, slba, _, fua, status) = all[1];
    assert_eq!(
        (cid, opcode, slba, fua, status),
        (8, 2, 1 << 32, false, Status::LBA_OUT_OF_RANGE)
    );
    // It never came to a medium: all of its time after its turn is the check's.
    assert_eq!(records[1].stages[Stage::Medium as usize], 0);
    assert_eq!(count(&watching, Operation::Write), 1);
    assert_eq!(count(&watching, Operation::Read), 1);
    assert_eq!(count(&watching, Operation::Other), 0);
}

#[test]
fn one_of_so_many_is_watched_and_no_pattern_hides() {
    let (mut rig, watching) = rig(Manner::Synchronous, 4, 4096);
    // A host that writes with each fourth command.
    let mut cid = 0u16;
    for _ in 0..1000 {
        for _ in 0..8 {
            let opcode = if cid % 4 == 3 { 1 } else { 2 };
            rig.store(1, command(opcode, cid));
            cid = cid.wrapping_add(1);
        }
        rig.ring(1);
        turn(&mut rig);
        assert_eq!(rig.completions().len(), 8);
    }
    let (reads, writes) = (
        count(&watching, Operation::Read),
        count(&watching, Operation::Write),
    );
    // Of 8000, 2000; and of those, a fourth: within five standard deviations of a binomial, which
    // is wider.
    assert!(reads.abs_diff(1500) < 175, "{reads}");
    assert!(writes.abs_diff(500) < 110, "{writes}");
    let cids = watching.records.last(4096);
    assert_eq!(cids.len() as u64, reads + writes);
    assert!(cids.windows(2).all(|two| two[0].cid < two[1].cid));
}

#[test]
fn each_command_of_a_batch_can_be_watched() {
    let (mut rig, watching) = rig(Manner::Hanging, 1, 256);
    for cid in 0..40 {
        rig.store(1 + cid % 2, read(cid));
    }
    rig.ring(1);
    rig.ring(2);
    turn(&mut rig);
    turn(&mut rig);
    assert_eq!(watching.records.written(), 0);
    rig.medium().release(40);
    turn(&mut rig);
    let mut cids: Vec<_> = watching.records.last(256).iter().map(|r| r.cid).collect();
    cids.sort_unstable();
    assert_eq!(cids, (0..40).collect::<Vec<_>>());
    let depths = watching.records.last(256).iter().map(|r| r.depth).max();
    assert_eq!(depths, Some(20), "twenty of each queue");
}

#[test]
fn watching_ends_and_begins_again_with_commands_in_flight() {
    let (mut rig, first) = rig(Manner::Hanging, 1, 16);
    rig.submit(1, read(1));
    turn(&mut rig);
    rig.lane.command(LaneCommand::Watch(None));
    rig.submit(1, read(2));
    turn(&mut rig);
    let again = watching(1, 16);
    rig.lane.command(LaneCommand::Watch(Some(again.clone())));
    rig.submit(1, read(3));
    turn(&mut rig);
    rig.medium().release(3);
    turn(&mut rig);
    assert_eq!(rig.completions().len(), 3);
    assert_eq!(first.records.written(), 0);
    let cids: Vec<_> = again.records.last(16).iter().map(|r| r.cid).collect();
    assert_eq!(cids, [3]);
}

#[test]
fn what_is_given_up_makes_room_for_others() {
    let (mut rig, watching) = rig(Manner::Hanging, 1, 8192);
    // More often than there are places.
    let count = rig.lane.queues.slots.len() as u16 + 8;
    for cid in 0..count {
        rig.submit(1, read(cid));
        turn(&mut rig);
        rig.lane.command(LaneCommand::AbandonAll);
        turn(&mut rig);
        assert_eq!(rig.completions().len(), 1);
        rig.medium().release(1);
        turn(&mut rig);
    }
    assert_eq!(watching.records.written(), u64::from(count));
}

/// A rig whose commands are traced, one of `every`; the trace, and what is watched beside it.
fn traced(manner: Manner, every: u32, standing: u32) -> (Rig, Tracing, Watching) {
    let mut rig = Rig::new(64, &[64, 64], manner);
    let spec = TraceSpec {
        every,
        rings: Arc::new(TraceRings::new(1, 8192)),
    };
    let trace = spec.of_queue(1).unwrap();
    let watching = Watching {
        trace: Some(trace.clone()),
        ..watching(standing, 8192)
    };
    rig.lane.command(LaneCommand::Watch(Some(watching.clone())));
    (rig, trace, watching)
}

#[test]
fn a_trace_has_every_command_and_what_is_watched_stays_a_sample() {
    let (mut rig, trace, watching) = traced(Manner::Synchronous, 1, 16);
    let mut cid = 0u16;
    for _ in 0..500 {
        for _ in 0..8 {
            rig.store(1, read(cid));
            cid += 1;
        }
        rig.ring(1);
        turn(&mut rig);
        assert_eq!(rig.completions().len(), 8);
    }
    let all: Vec<_> = trace.ring.records().last(8192);
    let cids: Vec<_> = all.iter().map(|r| r.cid).collect();
    assert_eq!(cids, (0..4000).collect::<Vec<_>>());
    assert_eq!(trace.ring.missed(), 0);
    // 250 of 4000, within five standard deviations
    let counted = count(&watching, Operation::Read);
    assert!(counted.abs_diff(250) < 80, "{counted}");
    assert_eq!(watching.records.written(), counted);
}

#[test]
fn a_trace_is_all_there_is_where_nothing_else_is_watched() {
    let (mut rig, trace, watching) = traced(Manner::Synchronous, 1, 0);
    for cid in 0..500 {
        rig.submit(1, read(cid));
        turn(&mut rig);
        rig.completions();
    }
    assert_eq!(trace.ring.records().written(), 500);
    assert_eq!(count(&watching, Operation::Read), 0);
    assert_eq!(watching.records.written(), 0);
}

#[test]
fn a_trace_can_be_of_one_command_of_so_many() {
    let (mut rig, trace, _) = traced(Manner::Synchronous, 8, 128);
    for cid in 0..4000 {
        rig.submit(1, read(cid));
        turn(&mut rig);
        rig.completions();
    }
    let written = trace.ring.records().written();
    assert!(written.abs_diff(500) < 120, "{written}");
}

/// All of a batch were in the ring from the look that saw them, not from when the one before was
/// fetched.
#[test]
fn commands_of_a_batch_were_seen_together() {
    let (mut rig, trace, _) = traced(Manner::Synchronous, 1, 128);
    for round in 0..3 {
        (0..4).for_each(|cid| rig.store(1, read(round * 4 + cid)));
        rig.ring(1);
        turn(&mut rig);
        rig.completions();
    }
    let records = trace.ring.records().last(12);
    for batch in records.chunks(4) {
        let begun = batch[0].begun;
        assert!(batch.iter().all(|r| r.begun == begun), "{batch:?}");
        let ring = |r: &FlightRecord| r.stages[Stage::Ring as usize];
        assert!(batch.windows(2).all(|two| ring(&two[0]) < ring(&two[1])));
    }
    assert!(records[0].begun < records[4].begun);
}

#[test]
fn a_record_has_what_it_takes_to_repeat_the_command() {
    let (mut rig, trace, _) = traced(Manner::Synchronous, 1, 128);
    // Write Zeroes of 3 blocks from 9 on, with Deallocate (bit 25 of CDW12)
    let mut zeroes = command(8, 1);
    (zeroes.cdw10, zeroes.cdw12) = (9, 1 << 25 | 2);
    assert!(rig.run(zeroes).is_success());
    assert!(rig.run(read(2)).is_success());
    rig.lane.take_posted();
    let records = trace.ring.records().last(4);
    let told = |r: &FlightRecord| (r.slba, r.blocks, r.detail, r.lba_shift, r.csi.0);
    assert_eq!(told(&records[0]), (9, 3, 1 << 9, 9, 0));
    assert_eq!(told(&records[1]), (0, 1, 0, 9, 0));
}

#[test]
fn what_cannot_be_watched_is_counted() {
    let (mut rig, trace, _) = traced(Manner::Hanging, 1, 128);
    rig.lane.queues.watch.as_mut().unwrap().leave_room_for(3);
    for cid in 0..5 {
        rig.submit(1, read(cid));
        turn(&mut rig);
    }
    rig.medium().release(5);
    turn(&mut rig);
    assert_eq!(rig.completions().len(), 5);
    assert_eq!(trace.ring.records().written(), 3);
    assert_eq!(trace.ring.missed(), 2);
}

#[test]
fn what_was_posted_is_told_where_the_lane_ends_or_the_trace_does() {
    let (mut rig, trace, watching) = traced(Manner::Synchronous, 1, 128);
    rig.submit(1, read(1));
    rig.turn();
    rig.lane.command(LaneCommand::Watch(Some(Watching {
        trace: None,
        ..watching.clone()
    })));
    assert_eq!(trace.ring.records().written(), 1);
    rig.submit(1, read(2));
    turn(&mut rig);
    assert_eq!(trace.ring.records().written(), 1, "the trace is over");

    let (mut rig, trace, _) = traced(Manner::Synchronous, 1, 128);
    rig.submit(1, read(1));
    rig.turn();
    drop(rig);
    assert_eq!(trace.ring.records().written(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_every_command_watched_each_has_one_record(
        sizes in prop::collection::vec(1u32..30, 1..20),
        manner in prop_oneof![Just(Manner::Synchronous), Just(Manner::Asynchronous)],
    ) {
        let (mut rig, watching) = rig(manner, 1, 4096);
        let mut sent = 0u16;
        for size in sizes {
            for _ in 0..size.min(rig.room(1)) {
                rig.store(1, read(sent));
                sent += 1;
            }
            rig.ring(1);
            while rig.room(1) < 63 {
                turn(&mut rig);
                rig.completions();
            }
        }
        let cids: Vec<_> = watching.records.last(4096).iter().map(|r| r.cid).collect();
        prop_assert_eq!(cids, (0..sent).collect::<Vec<_>>());
        let counted = count(&watching, Operation::Read);
        prop_assert_eq!(counted, u64::from(sent));
    }
}
