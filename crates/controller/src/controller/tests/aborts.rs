//! Abort (Base 2.1, 5.1.1): always answered; bit 0 of Dword 0 is set where the command was not
//! aborted.

use nvme_spec::Sqe;
use port::testing::Manner;

use super::rig::*;

fn abort(sqid: u16, cid: u16) -> Sqe {
    Sqe {
        opcode: ABORT,
        cdw10: u32::from(cid) << 16 | u32::from(sqid),
        ..Sqe::default()
    }
}

#[test]
fn what_is_not_there_is_not_aborted() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    for (sqid, cid) in [(0, 77), (1, 77), (2, 0), (64, 0), (65, 0), (0xffff, 0xffff)] {
        let cqe = rig.admin(abort(sqid, cid));
        assert_eq!((code(&cqe), cqe.dw0), (OK, 1), "queue {sqid} command {cid}");
    }
}

#[test]
fn a_held_request_is_aborted() {
    let mut rig = Rig::enabled();
    let held = rig.async_event();
    rig.turns(2);
    let by = rig.submit(abort(0, held));
    rig.turns(2);
    let first = rig.reap().expect("the request");
    assert_eq!((first.cid, code(&first)), (held, ABORT_REQUESTED));
    let second = rig.reap().expect("the abort");
    assert_eq!((second.cid, code(&second), second.dw0), (by, OK, 0));
}

#[test]
fn a_held_request_is_aborted_in_an_admin_queue_of_two() {
    let mut rig = Rig::new();
    rig.set_admin_queues(2);
    rig.write32(CC, CC_ENABLE);
    rig.turns(2);
    for _ in 0..6 {
        let held = rig.async_event();
        rig.turns(2);
        let by = rig.submit(abort(0, held));
        rig.turns(2);
        let mut answers = Vec::new();
        for _ in 0..2 {
            let cqe = rig.reap().expect("answered");
            answers.push((cqe.cid, code(&cqe)));
            rig.turns(2);
        }
        answers.sort_unstable();
        assert_eq!(answers, [(held, ABORT_REQUESTED), (by, OK)]);
        assert!(rig.peek().is_none());
    }
}

#[test]
fn a_command_that_waits_in_the_lane_is_aborted() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    // The medium takes nothing: the command waits for it.
    rig.medium(0).capacity = 0;
    let read = rig.read_sqe(0x99, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    let cqe = rig.admin(abort(1, 0x99));
    assert_eq!((code(&cqe), cqe.dw0), (OK, 0));
    let io = rig.io_cqe(1, 0).expect("completed");
    assert_eq!((io.cid, code(&io)), (0x99, ABORT_REQUESTED));
}

#[test]
fn a_command_with_the_medium_is_not_aborted_and_linux_resets() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).manner = Manner::Hanging;
    let read = rig.read_sqe(0x99, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    let cqe = rig.admin(abort(1, 0x99));
    assert_eq!((code(&cqe), cqe.dw0), (OK, 1));
    rig.write32(CC, CC_ENABLE & !1);
    rig.wait(4 * SECOND);
    assert_eq!(rig.csts(), 0);
    rig.enable();
}

#[test]
fn many_aborts_in_one_batch_are_all_answered() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    let cids: Vec<u16> = (0..12).map(|cid| rig.submit(abort(1, cid))).collect();
    rig.turns(4);
    let mut answered = Vec::new();
    while let Some(cqe) = rig.reap() {
        // ACL is 3, 0's based: from the fifth on that is outstanding at once, they are refused, not
        // lost.
        assert!([OK, ABORT_LIMIT_EXCEEDED].contains(&code(&cqe)));
        answered.push((cqe.cid, code(&cqe)));
    }
    let refused = answered.iter().filter(|(_, status)| *status != OK).count();
    answered.sort_unstable();
    assert_eq!(
        answered.iter().map(|(cid, _)| *cid).collect::<Vec<_>>(),
        cids
    );
    assert_eq!(answered.len() - refused, 4);
}
