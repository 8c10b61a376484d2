//! The query for allocated blocks: whose it is, and what refuses it.

use nvme_spec::Status;
use port::allocation::{Query, Run};
use port::namespace::{Namespace, Restrictions};
use port::testing::{Manner, Seen, namespace};
use port::{BlockRanges, Outcome};

use super::rig::{MEDIUM, MEDIUM_ID, Rig};

/// Blocks of the namespace.
const BLOCKS: u64 = MEDIUM as u64 / 512;

fn described() -> Namespace {
    let mut namespace = namespace(1, MEDIUM_ID, BLOCKS);
    namespace.traits.allocation = true;
    namespace
}

/// A lane of a host inside the process, or of another one.
fn rig(is_inside: bool, namespace: Namespace) -> Rig {
    let manner = Manner::Asynchronous;
    let mut rig = if is_inside {
        Rig::inside(16, &[16], manner)
    } else {
        Rig::new(16, &[16], manner)
    };
    rig.set_namespaces(vec![namespace]);
    rig
}

/// Status and both dwords of the completion of a query.
fn ask(rig: &mut Rig, slba: u64, blocks: u32) -> (Status, u32, u32) {
    rig.submit(1, Query { slba, blocks }.command(1, 9));
    rig.turn();
    let done = rig.completions();
    assert_eq!(done.len(), 1);
    (done[0].status.status(), done[0].dw0, done[0].dw1)
}

#[test]
fn the_answer_of_the_medium_is_the_hosts() {
    let mut rig = rig(true, described());
    let run = Run {
        blocks: 77,
        is_hole: true,
    };
    rig.medium().answer = Outcome::with_result(run.to_result());
    let (status, dw0, dw1) = ask(&mut rig, 3, 100);
    assert_eq!(status, Status::SUCCESSFUL_COMPLETION);
    assert_eq!(Run::of(dw0, dw1), run);
    assert!(matches!(&rig.medium().seen[..], [Seen::Command(0xfc, ..)]));
    assert_eq!(rig.lane.counters().deallocations.get(), 0);
    assert_eq!(rig.lane.counters().completions.get(), 1);
}

#[test]
fn only_a_host_inside_asks_and_only_where_there_is_an_answer() {
    let unknown = Status::INVALID_COMMAND_OPCODE;
    let plain = namespace(1, MEDIUM_ID, BLOCKS);
    for (is_inside, namespace) in [(false, described()), (true, plain)] {
        let mut rig = rig(is_inside, namespace);
        assert_eq!(ask(&mut rig, 0, 8).0, unknown);
        assert!(rig.medium().seen.is_empty());
    }
}

#[test]
fn blocks_that_are_not_there_are_refused() {
    let mut rig = rig(true, described());
    let beyond = Status::LBA_OUT_OF_RANGE;
    assert_eq!(ask(&mut rig, BLOCKS, 1).0, beyond);
    assert_eq!(ask(&mut rig, BLOCKS - 1, 2).0, beyond);
    assert_eq!(ask(&mut rig, u64::MAX, u32::MAX).0, beyond);
    let invalid = Status::INVALID_FIELD_IN_COMMAND;
    assert_eq!(ask(&mut rig, 0, 0).0, invalid);
    assert!(rig.medium().seen.is_empty());
    let (status, ..) = ask(&mut rig, BLOCKS - 1, 1);
    assert_eq!(status, Status::SUCCESSFUL_COMPLETION);
}

/// Blocks that Write Uncorrectable has marked may have no space, and read as no zeroes.
#[test]
fn a_query_is_refused_where_a_read_is() {
    let mut uncorrectable = BlockRanges::default();
    uncorrectable.insert(10, 2).unwrap();
    let mut marked = described();
    marked.restrictions = Restrictions {
        uncorrectable,
        ..Restrictions::default()
    }
    .some();
    let mut rig_ = rig(true, marked);
    assert_eq!(ask(&mut rig_, 0, 11).0, Status::UNRECOVERED_READ_ERROR);
    assert_eq!(ask(&mut rig_, 0, 10).0, Status::SUCCESSFUL_COMPLETION);
    let mut reserved = described();
    reserved.restrictions = Restrictions {
        reads: Some(Status::RESERVATION_CONFLICT),
        ..Restrictions::default()
    }
    .some();
    let mut rig = rig(true, reserved);
    assert_eq!(ask(&mut rig, 0, 1).0, Status::RESERVATION_CONFLICT);
}
