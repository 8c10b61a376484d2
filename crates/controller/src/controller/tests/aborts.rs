//! Abort (Base 2.1, 5.1.1): always answered; bit 0 of Dword 0 is set where the command was not
//! aborted.

use nvme_spec::{Cqe, Sqe};
use port::testing::Manner;

use super::rig::*;
use crate::crash::{self, Death};

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

/// A command that waits for a medium without room, and the Abort of it. The process dies at each of
/// the points; the Dword 0 of the Abort and the status of the command, and the points that the last
/// process has passed.
fn with_deaths(command: Sqe, full: u16, points: &[u64]) -> Option<(u32, u16, u64)> {
    const CID: u16 = 0x99;
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    let set_capacity = |rig: &mut Rig, capacity| rig.medium(full).capacity = capacity;
    rig.medium(0).manner = Manner::Hanging;
    set_capacity(&mut rig, 0);
    rig.submit_io(
        1,
        0,
        Sqe {
            cid: CID,
            ..command
        },
    );
    rig.turns(4);
    let by = rig.submit(abort(1, CID));
    let mut answer = None;
    let play = |rig: &mut Rig, answer: &mut Option<Cqe>| {
        for turn in 0..16 {
            rig.turn();
            crash::point();
            *answer = answer.or_else(|| rig.reap());
            // An Abort that the next process fetches waits for the commands that go on.
            if answer.is_some() || turn > 6 {
                rig.medium(full).capacity = usize::MAX;
                rig.medium(0).release(9);
            }
        }
    };
    for point in points {
        if crash::run(*point, || play(&mut rig, &mut answer)).is_ok() {
            return None;
        }
        rig.revive();
        set_capacity(&mut rig, 0);
    }
    let (_, passed) = crash::run(u64::MAX, || play(&mut rig, &mut answer)).expect("it lives");
    assert_eq!(rig.reap(), None, "a completion of nothing");
    let answer = answer.expect("the Abort is answered");
    assert_eq!((answer.cid, code(&answer)), (by, OK));
    let io = rig.io_cqe(1, 0).expect("the command ends");
    assert_eq!(io.cid, CID);
    assert_eq!(rig.io_cqe(1, 1), None, "it ends once");
    Some((answer.dw0, code(&io), passed))
}

#[test]
fn an_abort_and_its_command_agree_wherever_the_process_dies() {
    let read = Rig::enabled().read_sqe(0, 1);
    // One medium has its part of it, and the other one has no room.
    let flush_all = Sqe {
        opcode: 0,
        nsid: 0xffff_ffff,
        ..Sqe::default()
    };
    for (command, full) in [(read, 0), (flush_all, 1)] {
        let (dw0, status, count) = with_deaths(command, full, &[]).expect("it plays");
        assert_eq!((dw0, status), (0, ABORT_REQUESTED));
        assert!(count > 20, "{count} points");
        let mut not_aborted = 0;
        for point in 0..count {
            for second in [None, Some(0), Some(1), Some(2), Some(3), Some(5), Some(8)] {
                let points: Vec<u64> = [point].into_iter().chain(second).collect();
                let Some((dw0, status, _)) = with_deaths(command, full, &points) else {
                    continue;
                };
                let expected = if dw0 == 0 { ABORT_REQUESTED } else { OK };
                assert_eq!(status, expected, "deaths at {points:?}");
                not_aborted += dw0;
            }
        }
        assert!(not_aborted > 0, "the next process has the command again");
    }
}

#[test]
fn an_abort_that_waits_gets_a_number_where_an_older_process_gave_none() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).capacity = 0;
    let read = rig.read_sqe(0x99, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    let by = rig.submit(abort(1, 0x99));
    // The lane never hears of it: the last thing is that the Abort waits.
    let points = (0..).find(|point| {
        let mut rig = Rig::enabled();
        rig.create_pair(1, 8);
        rig.submit(abort(1, 7));
        let died = crash::run(*point, || rig.turn()).is_err();
        died && rig.controller.saved_admin().waiting == 1
    });
    let died = crash::run(points.expect("it waits"), || rig.turn());
    assert_eq!(died.err(), Some(Death));
    rig.controller.state().set_format_version(7).unwrap();
    rig.revive();
    rig.turns(6);
    let cqe = rig.reap().expect("it is answered");
    assert_eq!((cqe.cid, code(&cqe), cqe.dw0), (by, OK, 1));
    assert_eq!(rig.controller.state().format_version(), 8);
    let io = rig.io_cqe(1, 0).expect("the command ends");
    assert_eq!((io.cid, code(&io)), (0x99, OK));
}
