//! Compare and Write: what the two commands end with (Base 2.1, 3.4.2; NVM 1.1, 2.1.3.1).

use nvme_spec::{Cqe, Sqe, Status};
use port::Cause;
use port::namespace::Restrictions;
use port::testing::{Manner, Seen, namespace};
use proptest::prelude::*;

use super::rig::{DATA, MEDIUM, MEDIUM_ID, Rig, command};
use crate::lane::{AbortRequest, LaneCommand, LaneEvent};

const OK: Status = Status::SUCCESSFUL_COMPLETION;
const MISSING: Status = Status::ABORTED_MISSING_FUSED;
const FAILED: Status = Status::ABORTED_FAILED_FUSED;
const FIELD: Status = Status::INVALID_FIELD_IN_COMMAND;
const FIRST: u8 = 0b01;
const SECOND: u8 = 0b10;
const COMPARE: u8 = 0x05;
const WRITE: u8 = 0x01;

/// A command of one block, block 9, with its data in a page of its own.
fn part(opcode: u8, fuse: u8, cid: u16) -> Sqe {
    Sqe {
        flags: fuse.into(),
        cdw10: 9,
        prp1: command(opcode, cid).prp1 + 4096 * u64::from(fuse),
        ..command(opcode, cid)
    }
}

fn pair() -> (Sqe, Sqe) {
    (part(COMPARE, FIRST, 1), part(WRITE, SECOND, 2))
}

/// The host has 11h in what it compares with, and 22h in what it writes.
fn rig(manner: Manner) -> Rig {
    let rig = Rig::new(16, &[16], manner);
    rig.host.write(rig.host.page(DATA + 1), &[0x11; 4096]);
    rig.host.write(rig.host.page(DATA + 2), &[0x22; 4096]);
    rig
}

fn statuses(done: &[Cqe]) -> Vec<(u16, Status)> {
    let status = |cqe: &Cqe| (cqe.cid, cqe.status.status());
    done.iter().map(status).collect()
}

/// Submits commands with one doorbell update; what they end with, in the order of their
/// completions.
fn run(rig: &mut Rig, commands: &[Sqe]) -> Vec<(u16, Status)> {
    for sqe in commands {
        rig.store(1, *sqe);
    }
    rig.ring(1);
    let mut done = Vec::new();
    for _ in 0..50 {
        rig.turn();
        done.extend(rig.completions());
    }
    rig.events();
    assert!(rig.is_idle());
    assert_eq!(rig.lane.in_flight(), 0);
    statuses(&done)
}

fn run_pair(rig: &mut Rig, (first, second): (Sqe, Sqe)) -> (Status, Status) {
    let done = run(rig, &[first, second]);
    let [(1, first), (2, second)] = done[..] else {
        panic!("{done:?}")
    };
    (first, second)
}

fn fill(rig: &mut Rig, byte: u8) {
    rig.medium().bytes[9 * 512..10 * 512].fill(byte);
}

#[test]
fn the_write_is_done_where_the_comparison_finds_what_it_expects() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut rig = rig(manner);
        fill(&mut rig, 0x11);
        assert_eq!(run_pair(&mut rig, pair()), (OK, OK));
        let fused = Seen::CompareAndWrite(9 * 512, 512, false, false);
        assert_eq!(rig.medium().seen, [fused]);
        assert_eq!(rig.medium().bytes[9 * 512..10 * 512], [0x22; 512]);
        assert_eq!(rig.medium().bytes[10 * 512], 0);
        // Now it is not there any more.
        assert_eq!(
            run_pair(&mut rig, pair()),
            (Status::COMPARE_FAILURE, FAILED)
        );
        assert_eq!(rig.medium().bytes[9 * 512..10 * 512], [0x22; 512]);
        let counters = rig.lane.counters();
        assert_eq!((counters.compares.get(), counters.writes.get()), (1, 1));
        assert_eq!(counters.compare_bytes.get(), 512);
        assert_eq!(counters.write_bytes.get(), 512);
    }
}

#[test]
fn the_pair_may_wrap_around_its_queue() {
    let mut rig = Rig::new(16, &[4], Manner::Asynchronous);
    rig.host.write(rig.host.page(DATA + 2), &[0x22; 4096]);
    for sqe in [part(WRITE, 0, 7), part(WRITE, 0, 8), part(WRITE, 0, 9)] {
        run(&mut rig, &[sqe]);
    }
    // Entries 3 and 0.
    assert_eq!(run_pair(&mut rig, pair()), (OK, OK));
}

#[test]
fn half_a_pair_is_none() {
    let (first, second) = pair();
    let normal = part(COMPARE, 0, 3);
    let mut other_first = first;
    other_first.cid = 4;
    type Case<'a> = (&'a [Sqe], &'a [(u16, Status)]);
    let cases: &[Case<'_>] = &[
        (&[first], &[(1, MISSING)]),
        (&[second], &[(2, MISSING)]),
        (&[first, normal], &[(1, MISSING), (3, OK)]),
        (&[normal, second], &[(3, OK), (2, MISSING)]),
        (&[second, first], &[(2, MISSING), (1, MISSING)]),
        (
            &[first, normal, second],
            &[(1, MISSING), (3, OK), (2, MISSING)],
        ),
        (
            &[other_first, first, second],
            &[(4, MISSING), (1, OK), (2, OK)],
        ),
        (&[first, second, second], &[(1, OK), (2, OK), (2, MISSING)]),
    ];
    for (commands, expected) in cases {
        let mut rig = Rig::new(16, &[16], Manner::Synchronous);
        assert_eq!(run(&mut rig, commands), *expected);
    }
    // A second one that comes with a doorbell of its own is late.
    let mut rig = Rig::new(16, &[16], Manner::Synchronous);
    assert_eq!(run(&mut rig, &[first]), [(1, MISSING)]);
    assert_eq!(run(&mut rig, &[second]), [(2, MISSING)]);
    // FUSE 11b is reserved.
    let mut reserved = normal;
    reserved.flags = 0b11.into();
    assert_eq!(
        run(&mut rig, &[first, reserved]),
        [(1, MISSING), (3, FIELD)]
    );
}

#[test]
fn a_first_one_behind_a_first_one_is_not_slept_over() {
    let mut rig = Rig::new(16, &[16], Manner::Synchronous);
    let (first, _) = pair();
    rig.store(1, first);
    rig.store(1, Sqe { cid: 4, ..first });
    rig.ring(1);
    rig.turn();
    assert_eq!(statuses(&rig.completions()), [(1, MISSING)]);
    assert!(!rig.is_idle(), "the other one has to be looked at");
    rig.turn();
    assert_eq!(statuses(&rig.completions()), [(4, MISSING)]);
    assert!(rig.is_idle());
}

#[test]
fn both_name_the_same_blocks() {
    let mut rig = rig(Manner::Synchronous);
    let (first, second) = pair();
    for change in [
        |sqe: &mut Sqe| sqe.nsid = 2,
        |sqe: &mut Sqe| sqe.cdw10 += 1,
        |sqe: &mut Sqe| sqe.cdw11 += 1,
        |sqe: &mut Sqe| sqe.cdw12 += 1,
    ] {
        let mut other = second;
        change(&mut other);
        assert_eq!(run_pair(&mut rig, (first, other)), (FIELD, FIELD));
    }
    // And no more of them than ACWU, which is one.
    let (mut long_first, mut long_second) = pair();
    (long_first.cdw12, long_second.cdw12) = (1, 1);
    let unit = Status::ATOMIC_WRITE_UNIT_EXCEEDED;
    assert_eq!(run_pair(&mut rig, (long_first, long_second)), (unit, unit));
    assert_eq!(rig.medium().seen, []);
    // A block of 4 KiB is one.
    let mut large = namespace(1, MEDIUM_ID, 64);
    large.lba_shift = 12;
    rig.set_namespaces(vec![large]);
    rig.medium().bytes[9 * 4096..10 * 4096].fill(0x11);
    assert_eq!(run_pair(&mut rig, pair()), (OK, OK));
    assert_eq!(rig.medium().bytes[9 * 4096..10 * 4096], [0x22; 4096]);
}

#[test]
fn other_pairs_are_not_supported() {
    let mut rig = rig(Manner::Synchronous);
    let opcode = Status::INVALID_COMMAND_OPCODE;
    for (first, second, expected) in [
        (WRITE, COMPARE, (FIELD, FIELD)),
        (COMPARE, COMPARE, (FIELD, FIELD)),
        (WRITE, WRITE, (FIELD, FIELD)),
        (COMPARE, 0x02, (FIELD, FIELD)),
        (0x19, WRITE, (FIELD, FIELD)),
        (COMPARE, 0x7F, (FIELD, opcode)),
        (0x7F, WRITE, (opcode, FIELD)),
    ] {
        let pair = (part(first, FIRST, 1), part(second, SECOND, 2));
        assert_eq!(run_pair(&mut rig, pair), expected, "{first:#x} {second:#x}");
    }
    assert_eq!(rig.medium().seen, []);
}

#[test]
fn a_mistake_in_the_first_fails_both_and_one_in_the_second_alone_the_second() {
    let mut rig = rig(Manner::Asynchronous);
    fill(&mut rig, 0x11);
    let both = |change: fn(&mut Sqe)| {
        let (mut first, mut second) = pair();
        change(&mut first);
        change(&mut second);
        (first, second)
    };
    let range = both(|sqe| sqe.cdw10 = (MEDIUM / 512) as u32);
    assert_eq!(
        run_pair(&mut rig, range),
        (Status::LBA_OUT_OF_RANGE, FAILED)
    );
    let nobody = both(|sqe| sqe.nsid = 40);
    let format = Status::INVALID_NAMESPACE_OR_FORMAT;
    assert_eq!(run_pair(&mut rig, nobody), (format, FAILED));
    let (mut first, second) = pair();
    first.prp1 = 0x1000;
    let lost = Status::DATA_TRANSFER_ERROR;
    assert_eq!(run_pair(&mut rig, (first, second)), (lost, FAILED));
    // The write cannot be done: a directive, or memory that is not there.
    let (first, mut directive) = pair();
    directive.cdw12 = 1 << 20;
    assert_eq!(run_pair(&mut rig, (first, directive)), (OK, FIELD));
    let (first, mut nowhere) = pair();
    nowhere.prp1 = 0x1000;
    assert_eq!(run_pair(&mut rig, (first, nowhere)), (OK, lost));
    let compared = Seen::Compare(9 * 512, 512);
    assert_eq!(rig.medium().seen, [compared.clone(), compared]);
    fill(&mut rig, 0x33);
    assert_eq!(
        run_pair(&mut rig, (first, nowhere)),
        (Status::COMPARE_FAILURE, FAILED)
    );
    // Namespaces that are closed to reading, or to writing.
    fill(&mut rig, 0x11);
    let conflict = Status::RESERVATION_CONFLICT;
    for (reads, writes, expected) in [
        (Some(conflict), None, (conflict, FAILED)),
        (None, Some(conflict), (OK, conflict)),
    ] {
        let mut closed = namespace(1, MEDIUM_ID, 100);
        closed.restrictions = Restrictions {
            reads,
            writes,
            ..Restrictions::default()
        }
        .some();
        rig.set_namespaces(vec![closed]);
        assert_eq!(run_pair(&mut rig, pair()), expected);
    }
    assert_eq!(rig.medium().bytes[9 * 512..10 * 512], [0x11; 512]);
}

#[test]
fn a_closed_path_refuses_both_and_a_host_may_send_both_again() {
    let mut rig = rig(Manner::Asynchronous);
    fill(&mut rig, 0x11);
    for refusal in [
        Status::ASYMMETRIC_ACCESS_PERSISTENT_LOSS,
        Status::ASYMMETRIC_ACCESS_INACCESSIBLE,
        Status::ASYMMETRIC_ACCESS_TRANSITION,
    ] {
        let mut closed = namespace(1, MEDIUM_ID, 100);
        closed.restrictions = Restrictions {
            all: Some(refusal),
            ..Restrictions::default()
        }
        .some();
        rig.set_namespaces(vec![closed]);
        let (first, second) = pair();
        rig.store(1, first);
        rig.store(1, second);
        rig.ring(1);
        rig.turn();
        let done = rig.completions();
        assert_eq!(statuses(&done), [(1, refusal), (2, refusal)]);
        assert!(done.iter().all(|cqe| !cqe.status.dnr()));
    }
    assert_eq!(rig.medium().seen, []);
}

#[test]
fn a_medium_that_fails_fails_the_half_it_was_at() {
    let mut rig = rig(Manner::Asynchronous);
    for (cause, expected) in [
        (Cause::ReadFailed, (Status::UNRECOVERED_READ_ERROR, FAILED)),
        (Cause::WriteFailed, (OK, Status::WRITE_FAULT)),
        (Cause::NoSpace, (OK, Status::CAPACITY_EXCEEDED)),
        (Cause::Aborted, (Status::COMMAND_ABORT_REQUESTED, FAILED)),
    ] {
        rig.medium().fault = Some(cause);
        assert_eq!(run_pair(&mut rig, pair()), expected, "{cause:?}");
    }
}

#[test]
fn force_unit_access_is_each_commands_own() {
    let mut rig = rig(Manner::Asynchronous);
    let fua = |sqe: &Sqe| Sqe {
        cdw12: 1 << 30,
        ..*sqe
    };
    let (first, second) = pair();
    let mut volatile = namespace(1, MEDIUM_ID, 100);
    volatile.traits.volatile_cache = true;
    rig.set_namespaces(vec![volatile]);
    let seen = |commit, durable| [Seen::CompareAndWrite(9 * 512, 512, commit, durable)];
    for (pair, expected) in [
        ((first, fua(&second)), seen(false, true)),
        ((fua(&first), second), seen(true, false)),
    ] {
        fill(&mut rig, 0x11);
        rig.medium().seen.clear();
        assert_eq!(run_pair(&mut rig, pair), (OK, OK));
        assert_eq!(rig.medium().seen, expected);
    }
    // A pair that cannot be written is not committed: neither is done.
    let mut refused = second;
    refused.cdw12 = 1 << 20;
    assert_eq!(run_pair(&mut rig, (fua(&first), refused)), (FAILED, FIELD));
    rig.lane.command(LaneCommand::WriteThrough(true));
    fill(&mut rig, 0x11);
    rig.medium().seen.clear();
    run_pair(&mut rig, (first, second));
    assert_eq!(rig.medium().seen, seen(false, true));
}

#[test]
fn a_pair_waits_for_two_places() {
    // Two places, of which the host holds one.
    let mut rig = Rig::new(3, &[16], Manner::Synchronous);
    rig.submit(1, part(WRITE, 0, 7));
    rig.turn();
    let (first, second) = pair();
    rig.store(1, first);
    rig.store(1, second);
    rig.ring(1);
    assert_eq!(rig.turn().pending, 0);
    rig.lane.take_posted();
    assert!(rig.is_idle(), "it waits for the host");
    assert_eq!(rig.medium().seen.len(), 1);
    assert_eq!(statuses(&rig.completions()), [(7, OK)]);
    assert!(rig.lane.has_work());
    rig.medium().bytes[9 * 512..10 * 512].fill(0);
    rig.turn();
    assert_eq!(statuses(&rig.completions()), [(1, OK), (2, OK)]);
}

#[test]
fn where_there_can_never_be_two_places_no_pair_is_whole() {
    let (first, second) = pair();
    let expected = [(1, MISSING), (2, MISSING)];
    let mut rig = Rig::new(2, &[16], Manner::Synchronous);
    assert_eq!(run(&mut rig, &[first, second]), expected);
    // Two places, one kept for each of two queues.
    let mut rig = Rig::new(3, &[16, 16], Manner::Synchronous);
    assert_eq!(run(&mut rig, &[first, second]), expected);
    let mut rig = Rig::new(4, &[16, 16], Manner::Synchronous);
    assert_eq!(run(&mut rig, &[first, second]), [(1, OK), (2, OK)]);
}

/// A rig with a pair that found its channel full.
fn held_up() -> Rig {
    let mut rig = rig(Manner::Hanging);
    fill(&mut rig, 0x11);
    rig.medium().capacity = 0;
    let (first, second) = pair();
    rig.store(1, first);
    rig.store(1, second);
    rig.store(1, part(COMPARE, 0, 3));
    rig.ring(1);
    let turn = rig.turn();
    assert_eq!((turn.fetched, turn.pending), (2, 2));
    assert!(rig.is_idle());
    rig
}

#[test]
fn a_full_channel_holds_up_the_pair_and_what_is_behind_it() {
    let mut rig = held_up();
    rig.medium().capacity = 9;
    rig.turn();
    rig.medium().release(9);
    rig.turn();
    let done = statuses(&rig.completions());
    assert_eq!(done, [(1, OK), (2, OK), (3, Status::COMPARE_FAILURE)]);
}

#[test]
fn a_pair_that_waits_goes_together() {
    let aborted = Status::COMMAND_ABORT_REQUESTED;
    let mut rig = held_up();
    let (sqid, cid, number) = (1, 1, 4);
    let request = AbortRequest { sqid, cid, number };
    rig.lane.command(LaneCommand::Abort(request));
    assert_eq!(statuses(&rig.completions()), [(1, aborted), (2, FAILED)]);
    let mut rig = held_up();
    rig.lane.command(LaneCommand::RemoveQueue { sqid: 1 });
    let deleted = Status::ABORTED_SQ_DELETION;
    assert_eq!(statuses(&rig.completions()), [(1, deleted), (2, deleted)]);
    assert_eq!(rig.events(), [LaneEvent::QueueRemoved { sqid: 1 }]);
    let mut rig = held_up();
    rig.lane.command(LaneCommand::Stop);
    assert_eq!(rig.events(), [LaneEvent::Stopped]);
    assert_eq!(rig.completions(), []);
}

#[test]
fn a_pair_that_hangs_is_given_up_together() {
    let mut rig = rig(Manner::Hanging);
    let (first, second) = pair();
    rig.store(1, first);
    rig.store(1, second);
    rig.ring(1);
    rig.turn();
    assert_eq!(rig.lane.in_flight(), 1);
    rig.lane.command(LaneCommand::RemoveQueue { sqid: 1 });
    assert_eq!(rig.events(), []);
    rig.lane.command(LaneCommand::AbandonAll);
    let done = statuses(&rig.completions());
    assert_eq!(done, [(1, Status::COMMAND_ABORT_REQUESTED), (2, FAILED)]);
    assert_eq!(rig.events(), [LaneEvent::QueueRemoved { sqid: 1 }]);
    rig.medium().release(1);
    rig.turn();
    assert_eq!(rig.completions(), []);
    assert_eq!(rig.lane.queues.cq.free(), 15);
}

/// Statuses of commands of one block, all of them zeros: a queue read from its start to its end.
fn predict(commands: &[Sqe]) -> Vec<Status> {
    let fuse = |at: usize| commands.get(at).map(|sqe: &Sqe| u8::from(sqe.flags) & 3);
    let mut statuses = Vec::new();
    while let Some(fuse_here) = fuse(statuses.len()) {
        let at = statuses.len();
        match (fuse_here, fuse(at + 1)) {
            (FIRST, Some(SECOND)) => {
                let both = (commands[at].opcode, commands[at + 1].opcode) == (COMPARE, WRITE);
                let status = if both { OK } else { FIELD };
                statuses.extend([status, status]);
            }
            (FIRST | SECOND, _) => statuses.push(MISSING),
            (0b11, _) => statuses.push(FIELD),
            _ => statuses.push(OK),
        }
    }
    statuses
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_row_of_halves_ends_as_it_must(
        parts in prop::collection::vec((0u8..4, prop::bool::ANY), 1..60),
        entries in 6u32..20,
        manner in prop_oneof![Just(Manner::Synchronous), Just(Manner::Asynchronous)],
        capacity in 1usize..4,
    ) {
        let mut rig = Rig::new(entries, &[64], manner);
        if manner == Manner::Asynchronous {
            rig.medium().capacity = capacity;
        }
        let commands: Vec<Sqe> = (0..)
            .zip(&parts)
            .map(|(cid, (fuse, is_compare))| {
                let opcode = match (fuse, is_compare) {
                    (&SECOND, true) => WRITE,
                    (_, true) => COMPARE,
                    (&SECOND, false) => COMPARE,
                    _ => WRITE,
                };
                // Everything is zero, and so is what the host compares and writes.
                Sqe { cid, flags: (*fuse).into(), cdw10: 9, ..command(opcode, cid) }
            })
            .collect();
        for sqe in &commands {
            rig.store(1, *sqe);
        }
        rig.ring(1);
        let mut done = Vec::new();
        for _ in 0..2000 {
            rig.turn();
            done.extend(rig.completions());
            if done.len() == commands.len() {
                break;
            }
        }
        done.sort_by_key(|cqe| cqe.cid);
        let ended: Vec<Status> = done.iter().map(|cqe| cqe.status.status()).collect();
        prop_assert_eq!(ended, predict(&commands));
        rig.turn();
        prop_assert!(rig.is_idle());
        prop_assert_eq!(rig.lane.queues.cq.free(), entries - 1);
    }
}
