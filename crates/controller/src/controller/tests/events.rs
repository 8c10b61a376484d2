//! Asynchronous events (Base 2.1, 5.1.2).

use nvme_spec::Sqe;

use super::rig::*;
use crate::config::DoorbellMode;

const NOTICES: u32 = 1 << 8;

fn change_a_namespace(rig: &mut Rig) {
    let mut changed = namespaces();
    let blocks = u64::from(rig.now.0 as u32 % 1000 + 1);
    changed[0].blocks = blocks;
    rig.now = rig.now + 1;
    rig.set_namespaces(changed);
}

#[test]
fn requests_are_held_up_to_aerl_and_then_refused() {
    let mut rig = Rig::enabled();
    for _ in 0..4 {
        rig.async_event();
    }
    rig.turns(4);
    assert!(rig.peek().is_none());
    let status = rig.status(Sqe {
        opcode: ASYNC_EVENT,
        ..Sqe::default()
    });
    assert_eq!(status, AER_LIMIT_EXCEEDED);
}

#[test]
fn held_requests_occupy_no_place_in_an_admin_queue_of_two() {
    let mut rig = Rig::new();
    rig.set_admin_queues(2);
    rig.write32(CC, CC_ENABLE);
    rig.turns(2);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(rig.async_event());
        rig.turns(2);
    }
    for _ in 0..5 {
        assert!(rig.identify(1, 0, 0).is_ok());
    }
    assert_eq!(code(&rig.set_feature(0x0b, NOTICES)), OK);
    change_a_namespace(&mut rig);
    rig.turns(2);
    let cqe = rig.reap().expect("an event");
    assert_eq!((cqe.cid, cqe.dw0), (held[0], 0x0004_0002));
}

#[test]
fn an_event_waits_for_a_place() {
    let mut rig = Rig::new();
    rig.set_admin_queues(2);
    rig.write32(CC, CC_ENABLE);
    rig.turns(2);
    assert_eq!(code(&rig.set_feature(0x0b, NOTICES)), OK);
    let held = rig.async_event();
    rig.turns(2);
    // The only place is taken by an answer that the host has not consumed.
    let sqe = rig.with_data(IDENTIFY);
    let identify = rig.submit(Sqe { cdw10: 1, ..sqe });
    rig.turns(2);
    change_a_namespace(&mut rig);
    rig.turns(2);
    assert!(!rig.controller.has_work());
    assert_eq!(rig.reap().map(|cqe| cqe.cid), Some(identify));
    assert!(rig.controller.has_work());
    rig.turns(2);
    assert_eq!(rig.reap().map(|cqe| cqe.cid), Some(held));
}

#[test]
fn notices_come_only_where_they_were_asked_for() {
    let mut rig = Rig::enabled();
    rig.async_event();
    rig.turns(2);
    change_a_namespace(&mut rig);
    rig.turns(2);
    assert!(rig.peek().is_none());
    assert_eq!(
        u32_at(&rig.log(0x04, 0, 4).unwrap(), 0),
        1,
        "the list is kept all the same"
    );
    assert_eq!(code(&rig.set_feature(0x0b, NOTICES)), OK);
    change_a_namespace(&mut rig);
    rig.turns(2);
    assert_eq!(rig.reap().map(|cqe| cqe.dw0), Some(0x0004_0002));
}

#[test]
fn a_type_is_masked_until_its_page_was_read_without_retain() {
    let mut rig = Rig::enabled();
    assert_eq!(code(&rig.set_feature(0x0b, NOTICES)), OK);
    rig.async_event();
    rig.async_event();
    rig.turns(2);
    change_a_namespace(&mut rig);
    rig.turns(2);
    assert!(rig.reap().is_some());
    change_a_namespace(&mut rig);
    rig.turns(2);
    assert!(rig.peek().is_none(), "masked");
    rig.log_with(0x04, 0, 4096, true).unwrap();
    rig.log(0x01, 0, 64).unwrap();
    rig.turns(2);
    assert!(
        rig.peek().is_none(),
        "neither retaining nor another page clears it"
    );
    rig.log(0x04, 0, 4).unwrap();
    change_a_namespace(&mut rig);
    rig.turns(2);
    assert_eq!(rig.reap().map(|cqe| cqe.dw0), Some(0x0004_0002));
}

#[test]
fn a_log_page_that_cannot_be_sent_clears_nothing() {
    let mut rig = Rig::enabled();
    change_a_namespace(&mut rig);
    let sqe = Sqe {
        opcode: GET_LOG,
        cdw10: 0x04,
        ..Sqe::default()
    };
    assert_eq!(rig.status(sqe), DATA_TRANSFER);
    assert_eq!(u32_at(&rig.log(0x04, 0, 4).unwrap(), 0), 1);
}

#[test]
fn an_event_that_nobody_asked_for_is_told_to_the_next_request() {
    let mut rig = Rig::enabled();
    rig.write32(0x1000 + 8 * 3, 1);
    rig.turns(2);
    let cid = rig.async_event();
    rig.turns(2);
    let cqe = rig.reap().expect("told");
    // Error status, Write to Invalid Doorbell Register, page 01h.
    assert_eq!((cqe.cid, cqe.dw0), (cid, 0x0001_0000));
}

#[test]
fn doorbells_of_queues_that_do_not_exist_are_events_and_change_nothing() {
    let mut rig = Rig::enabled();
    rig.async_event();
    rig.turns(2);
    // Queue 2's tail and head, one past the offered queues, the end of BAR0.
    for offset in [0x1010, 0x1014, 0x1000 + 8 * 5, 0x1ffc, 0x3ffc] {
        rig.write32(offset, 1);
        rig.turns(2);
        assert_eq!(
            rig.reap().map(|cqe| cqe.dw0),
            Some(0x0001_0000),
            "{offset:#x}"
        );
        let entry = rig.log(0x01, 0, 64).unwrap();
        assert_eq!(
            (u16_at(&entry, 8), u16_at(&entry, 10)),
            (0xffff, 0xffff),
            "of no command"
        );
        rig.async_event();
        rig.turns(2);
    }
    rig.create_pair(2, 8);
    let read = rig.read_sqe(6, 1);
    rig.submit_io(2, 0, read);
    rig.turns(4);
    assert_eq!(rig.io_cqe(2, 0).map(|cqe| cqe.cid), Some(6));
}

#[test]
fn doorbells_before_rdy_are_nothing() {
    let mut rig = Rig::new();
    rig.write32(0x1000, 1);
    rig.write32(0x1008, 1);
    assert_eq!(rig.doorbells.load(0), 0);
    rig.enable();
    rig.async_event();
    rig.turns(2);
    assert!(rig.peek().is_none());
}

#[test]
fn a_doorbell_value_that_cannot_be_is_an_event_and_freezes_only_its_queue() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.create_pair(2, 8);
    rig.async_event();
    rig.turns(2);
    // A queue of eight entries has no entry 8.
    rig.write32(0x1008, 8);
    rig.turns(4);
    let cqe = rig.reap().expect("an event");
    // Error status, Invalid Doorbell Write Value, page 01h.
    assert_eq!(cqe.dw0, 0x0001_0100);
    let read = rig.read_sqe(6, 1);
    rig.submit_io(2, 0, read);
    rig.turns(4);
    assert_eq!(rig.io_cqe(2, 0).map(|cqe| cqe.cid), Some(6));
    // It can be deleted.
    assert_eq!(rig.delete_sq(1), OK);
    assert_eq!(rig.delete_cq(1), OK);
    rig.create_pair(1, 8);
}

#[test]
fn a_bad_admin_doorbell_freezes_the_admin_queue_until_a_reset() {
    let mut rig = Rig::enabled();
    let held = rig.async_event();
    rig.turns(2);
    rig.write32(0x1000, 32);
    rig.turns(4);
    let cqe = rig.reap().expect("an event");
    assert_eq!((cqe.cid, cqe.dw0), (held, 0x0001_0100));
    for _ in 0..3 {
        rig.write32(0x1000, 9);
        rig.turns(4);
    }
    assert!(rig.peek().is_none(), "nothing more is fetched");
    assert!(!rig.controller.has_work());
    assert_eq!(rig.csts(), RDY);
    rig.disable();
    rig.enable();
    assert!(rig.identify(1, 0, 0).is_ok());
}

/// A doorbell has no queue before one is created, and none after an invalid value: what
/// is stored there then has no effect (Base 2.1, 5.1.2 gives a host an event for the first of them
/// only).
#[test]
fn doorbells_of_frozen_and_absent_queues_are_not_looked_at() {
    let mut config = config();
    config.doorbells = DoorbellMode::Mapped;
    let mut rig = Rig::with(config);
    rig.enable();
    rig.create_pair(1, 8);
    rig.create_pair(3, 8);
    rig.turns(2);
    let looks = |rig: &mut Rig| {
        let mut rung = 0;
        let admin = rig.controller.look_at_doorbells(|_| rung += 1);
        (admin, rung)
    };
    looks(&mut rig);
    assert_eq!(looks(&mut rig), (false, 0), "nothing has changed");

    // Tails of queue 1 and of queue 2, which is not there.
    rig.doorbells.store(2, 8);
    rig.doorbells.store(4, 8);
    assert_eq!(looks(&mut rig), (false, 1));
    rig.turns(4);
    for wild in [3, u32::MAX, 1] {
        rig.doorbells.store(2, wild);
        rig.doorbells.store(4, wild);
        rig.doorbells.store(5, wild);
        rig.turns(1);
        assert_eq!(looks(&mut rig), (false, 0), "{wild}");
    }
    // The completion queue lives on, and so does another pair.
    rig.doorbells.store(3, 1);
    rig.doorbells.store(6, 1);
    assert_eq!(looks(&mut rig), (false, 2));

    // A queue that is made again is looked at, and so is the admin queue after a reset.
    rig.doorbells.store(0, 32);
    assert!(looks(&mut rig).0);
    rig.turns(4);
    rig.doorbells.store(0, 9);
    assert_eq!(looks(&mut rig), (false, 0), "frozen, too");
    rig.disable();
    rig.enable();
    rig.create_pair(1, 8);
    rig.create_pair(2, 8);
    looks(&mut rig);
    rig.doorbells.store(0, 1);
    rig.doorbells.store(2, 2);
    rig.doorbells.store(4, 2);
    assert_eq!(looks(&mut rig), (true, 2));
}

#[test]
fn a_temperature_threshold_that_is_crossed_is_an_event() {
    let mut rig = Rig::enabled();
    rig.async_event();
    rig.turns(2);
    // 290 K is below the room's 298 K; the host has not enabled the event yet.
    assert_eq!(code(&rig.set_feature(0x04, 290)), OK);
    assert!(rig.peek().is_none());
    assert_eq!(
        rig.log(0x02, 0, 512).unwrap()[0],
        1 << 1,
        "the critical warning is told"
    );
    assert_eq!(code(&rig.set_feature(0x0b, 1 << 1)), OK);
    rig.turns(2);
    // SMART / Health status, Temperature Threshold, page 02h.
    assert_eq!(rig.reap().map(|cqe| cqe.dw0), Some(0x0002_0101));
    assert_eq!(code(&rig.set_feature(0x04, 0xffff)), OK);
    assert_eq!(rig.log(0x02, 0, 512).unwrap()[0], 0);
    // An under threshold that the room reaches.
    rig.async_event();
    rig.turns(2);
    assert_eq!(code(&rig.set_feature(0x04, 1 << 20 | 298)), OK);
    rig.turns(2);
    assert_eq!(rig.reap().map(|cqe| cqe.dw0), Some(0x0002_0101));
}

#[test]
fn a_reset_lets_go_of_held_requests() {
    let mut rig = Rig::enabled();
    for _ in 0..4 {
        rig.async_event();
    }
    rig.turns(4);
    rig.disable();
    rig.enable();
    rig.turns(4);
    assert!(rig.peek().is_none(), "they are not completed");
    for _ in 0..4 {
        rig.async_event();
    }
    rig.turns(4);
    assert!(rig.peek().is_none(), "there is room for four again");
}
