//! Hosts that look for completions by themselves although interrupts are enabled.

use port::testing::Manner;

use super::rig::{Rig, read};
use crate::lane::Posted;

fn rig() -> Rig {
    let mut rig = Rig::new(16, &[16], Manner::Synchronous);
    rig.lane.take_posted();
    rig
}

/// A command is served; what was posted for it.
fn post(rig: &mut Rig, cid: u16) -> Posted {
    rig.submit(1, read(cid));
    rig.turn();
    rig.lane.take_posted().unwrap()
}

/// The host takes a completion and rings.
fn consume(rig: &mut Rig) {
    assert!(rig.consume().is_some());
    rig.ring_head();
}

#[test]
fn a_host_that_waits_is_told_of_every_batch() {
    let mut rig = rig();
    for cid in 0..50 {
        let posted = post(&mut rig, cid);
        assert!(!rig.lane.host_polls(posted));
        consume(&mut rig);
    }
    assert_eq!(rig.lane.counters().interrupts_spared.get(), 0);
}

#[test]
fn a_host_that_has_consumed_everything_is_not_told() {
    let mut rig = rig();
    for cid in 0..50 {
        let posted = post(&mut rig, cid);
        consume(&mut rig);
        assert!(rig.lane.host_polls(posted));
        assert_eq!(rig.lane.take_posted(), None);
    }
    assert_eq!(rig.lane.counters().interrupts_spared.get(), 50);
}

#[test]
fn one_that_has_stopped_polling_is_told_after_some_turns_and_then_at_once() {
    let mut rig = rig();
    let posted = post(&mut rig, 0);
    consume(&mut rig);
    assert!(rig.lane.host_polls(posted));
    let mut posted = post(&mut rig, 1);
    let mut turns = 0;
    while rig.lane.host_polls(posted) {
        // It cannot be forgotten: the reactor does not sleep with it, and has it again.
        assert!(rig.lane.has_work());
        turns += 1;
        assert!(turns < 100);
        rig.submit(1, read(1 + turns));
        rig.turn();
        let next = rig.lane.take_posted().unwrap();
        assert_eq!(next.entries, posted.entries + 1);
        posted = next;
    }
    assert_eq!(turns, 8);
    for _ in 0..9 {
        consume(&mut rig);
    }
    let posted = post(&mut rig, 90);
    assert!(!rig.lane.host_polls(posted));
}
