//! Shutdown by CC.SHN (Base 2.1, 3.6.1): media with a volatile cache are flushed, then SHST tells,
//! and all of it is bounded.

use port::Cause;
use port::testing::{Manner, Seen};

use super::rig::*;

const NORMAL: u32 = 1 << 14;
const ABRUPT: u32 = 2 << 14;

#[test]
fn a_normal_shutdown_flushes_and_then_tells() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).manner = Manner::Hanging;
    rig.write32(CC, CC_ENABLE | NORMAL);
    assert_eq!(
        rig.csts() & SHST,
        0,
        "the write is answered before anything happens"
    );
    rig.turn();
    assert_eq!(rig.csts() & SHST, SHST_OCCURRING);
    rig.turns(8);
    assert_eq!(rig.csts() & SHST, SHST_OCCURRING, "the flush has not ended");
    assert_eq!(rig.medium(0).seen, [Seen::Flush]);
    assert!(rig.medium(1).seen.is_empty(), "it has no volatile cache");
    rig.medium(0).release(1);
    rig.turns(4);
    assert_eq!(rig.csts(), RDY | SHST_COMPLETE);
    assert_eq!(rig.lanes.live(), 0);
    assert!(!rig.controller.has_work());
}

#[test]
fn an_abrupt_shutdown_flushes_too() {
    let mut rig = Rig::enabled();
    rig.write32(CC, CC_ENABLE | ABRUPT);
    rig.turns(8);
    assert_eq!(rig.csts(), RDY | SHST_COMPLETE);
    assert_eq!(rig.medium(0).seen, [Seen::Flush]);
}

#[test]
fn a_reserved_notification_is_none() {
    let mut rig = Rig::enabled();
    rig.write32(CC, CC_ENABLE | 3 << 14);
    rig.turns(8);
    assert_eq!(rig.csts(), RDY);
}

#[test]
fn a_disabled_controller_shuts_down_as_well() {
    let mut rig = Rig::enabled();
    rig.disable();
    rig.write32(CC, CC_ENABLE & !1 | NORMAL);
    rig.turns(8);
    assert_eq!(rig.csts(), SHST_COMPLETE);
    assert_eq!(rig.medium(0).seen, [Seen::Flush]);
    // Enabling without a notification starts again.
    rig.enable();
    assert_eq!(rig.csts(), RDY);
}

#[test]
fn shutdown_waits_for_commands_in_flight_for_four_seconds() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).manner = Manner::Hanging;
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    rig.write32(CC, CC_ENABLE | NORMAL);
    rig.wait(4 * SECOND - 1);
    assert_eq!(rig.csts() & SHST, SHST_OCCURRING);
    assert_eq!(rig.medium(0).seen.len(), 1, "no flush before the drain");
    rig.wait(1);
    assert_eq!(rig.medium(0).seen.last(), Some(&Seen::Flush));
    rig.medium(0).release(2);
    rig.turns(4);
    assert_eq!(rig.csts(), RDY | SHST_COMPLETE);
}

#[test]
fn a_flush_that_hangs_is_bounded_and_told_by_cfs() {
    let mut rig = Rig::enabled();
    rig.medium(0).manner = Manner::Hanging;
    rig.write32(CC, CC_ENABLE | NORMAL);
    rig.turns(4);
    assert_eq!(
        rig.controller.next_deadline().map(|at| at.since(rig.now)),
        Some(30 * SECOND)
    );
    rig.wait(30 * SECOND - 1);
    assert_eq!(rig.csts(), RDY | SHST_OCCURRING);
    rig.wait(1);
    assert_eq!(rig.csts(), RDY | CFS | SHST_COMPLETE);
    // The flush ends after the next start: no shutdown waits for it.
    rig.disable();
    rig.enable();
    rig.medium(0).release(1);
    rig.turns(4);
    assert_eq!(rig.csts(), RDY);
}

#[test]
fn a_flush_that_fails_is_told_by_cfs() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut rig = Rig::enabled();
        rig.medium(0).manner = manner;
        rig.medium(0).fault = Some(Cause::WriteFailed);
        rig.write32(CC, CC_ENABLE | NORMAL);
        rig.turns(8);
        assert_eq!(rig.csts(), RDY | CFS | SHST_COMPLETE);
    }
}

#[test]
fn a_full_channel_gets_its_flush_later() {
    let mut rig = Rig::enabled();
    rig.medium(0).capacity = 0;
    rig.write32(CC, CC_ENABLE | NORMAL);
    rig.turns(8);
    assert_eq!(rig.csts() & SHST, SHST_OCCURRING);
    rig.medium(0).capacity = 1;
    rig.turns(4);
    assert_eq!(rig.csts(), RDY | SHST_COMPLETE);
}

#[test]
fn admin_commands_are_answered_after_a_shutdown() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.write32(CC, CC_ENABLE | NORMAL);
    rig.turns(8);
    assert!(rig.identify(1, 0, 0).is_ok());
    // Its lane is gone; the queues' names are not.
    assert_eq!(rig.delete_cq(1), INVALID_DELETION);
    assert_eq!(rig.delete_sq(1), OK);
    assert_eq!(rig.delete_cq(1), OK);
    let cq = rig.create_cq_sqe(1, 8);
    assert_eq!(rig.status(cq), SEQUENCE_ERROR);
    rig.disable();
    assert_eq!(rig.csts(), 0);
    rig.enable();
    rig.create_pair(1, 8);
}

#[test]
fn a_reset_ends_a_shutdown() {
    let mut rig = Rig::enabled();
    rig.medium(0).manner = Manner::Hanging;
    rig.write32(CC, CC_ENABLE | NORMAL);
    rig.turns(4);
    rig.write32(CC, CC_ENABLE & !1);
    rig.turns(4);
    assert_eq!(rig.csts(), 0);
    rig.enable();
    rig.medium(0).release(1);
    rig.turns(4);
    assert_eq!(rig.csts(), RDY);
}

#[test]
fn unsafe_shutdowns_and_power_cycles_are_counted() {
    let mut rig = Rig::enabled();
    rig.write32(CC, CC_ENABLE | NORMAL);
    rig.turns(8);
    rig.controller.function_reset();
    rig.turns(4);
    rig.enable();
    rig.controller.function_reset();
    rig.turns(4);
    rig.enable();
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert_eq!(u64_at(&smart, 112), 3, "power cycles");
    assert_eq!(u64_at(&smart, 144), 1, "unsafe shutdowns");
}

#[test]
fn a_flush_of_a_former_shutdown_counts_for_no_other() {
    let mut rig = Rig::enabled();
    rig.medium(0).manner = Manner::Hanging;
    rig.write32(CC, CC_ENABLE | NORMAL);
    rig.turns(4);
    rig.disable();
    rig.enable();
    rig.write32(CC, CC_ENABLE | NORMAL);
    rig.turns(4);
    // The first one's ends; the second one's has not.
    rig.medium(0).release(1);
    rig.turns(4);
    assert_eq!(rig.csts(), RDY | SHST_OCCURRING);
    rig.medium(0).release(1);
    rig.turns(4);
    assert_eq!(rig.csts(), RDY | SHST_COMPLETE);
}

#[test]
fn a_deletion_that_waits_is_answered_by_a_shutdown() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).manner = Manner::Hanging;
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    let delete = |opcode| nvme_spec::Sqe {
        opcode,
        cdw10: 1,
        ..nvme_spec::Sqe::default()
    };
    let sq = rig.submit(delete(DELETE_SQ));
    rig.turns(2);
    rig.write32(CC, CC_ENABLE | NORMAL);
    rig.turns(4);
    assert!(rig.peek().is_none());
    rig.medium(0).release(1);
    rig.turns(4);
    assert_eq!(rig.reap().map(|cqe| (cqe.cid, code(&cqe))), Some((sq, OK)));
    assert_eq!(rig.delete_cq(1), OK);
}
