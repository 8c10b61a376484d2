//! Creation and deletion of I/O queues with every status of Base 2.1, 5.2.1 to 5.2.4.

use nvme_spec::{Cqe, Sqe};
use port::testing::Manner;

use super::rig::*;
use crate::controller::{AdminTail, Interrupt, WaitingKind};

#[test]
fn a_pair_serves_a_command() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    let read = rig.read_sqe(0x1234, 2);
    rig.medium(0).bytes[..4].copy_from_slice(b"data");
    rig.submit_io(1, 0, read);
    rig.turns(4);
    let cqe = rig.io_cqe(1, 0).expect("completed");
    assert_eq!(
        (cqe.cid, cqe.sq_id, cqe.sq_head, code(&cqe)),
        (0x1234, 1, 1, OK)
    );
    assert_eq!(rig.host.read(rig.data_page(), 4), b"data");
    assert!(
        rig.interrupts.contains(&Interrupt::Vector(1)),
        "the completion queue's own vector"
    );
}

#[test]
fn queue_identifiers_are_checked() {
    let mut rig = Rig::enabled();
    for qid in [0, 5, 65, 0xffff] {
        let mut cq = rig.create_cq_sqe(1, 8);
        cq.cdw10 = 7 << 16 | qid;
        assert_eq!(rig.status(cq), INVALID_QID, "completion queue {qid}");
        let mut sq = rig.create_sq_sqe(1, 1, 8);
        sq.cdw10 = 7 << 16 | qid;
        assert_eq!(rig.status(sq), INVALID_QID, "submission queue {qid}");
    }
    rig.create_pair(4, 8);
    let cq = rig.create_cq_sqe(4, 8);
    assert_eq!(rig.status(cq), INVALID_QID, "it exists");
    let sq = rig.create_sq_sqe(4, 4, 8);
    assert_eq!(rig.status(sq), INVALID_QID, "it exists");
}

#[test]
fn queue_sizes_are_checked() {
    let mut rig = Rig::enabled();
    // QSIZE is 0's based: 0 is one entry; MQES 63 is 64 entries.
    for (qsize_z, expected) in [
        (0, INVALID_QSIZE),
        (64, INVALID_QSIZE),
        (0xffff, INVALID_QSIZE),
        (63, OK),
    ] {
        let mut cq = rig.create_cq_sqe(1, 8);
        cq.cdw10 = qsize_z << 16 | 1;
        assert_eq!(
            rig.status(cq),
            expected,
            "completion queue of {qsize_z} + 1"
        );
    }
    for (qsize_z, expected) in [
        (0, INVALID_QSIZE),
        (64, INVALID_QSIZE),
        (0xffff, INVALID_QSIZE),
        (1, OK),
    ] {
        let mut sq = rig.create_sq_sqe(1, 1, 8);
        sq.cdw10 = qsize_z << 16 | 1;
        assert_eq!(
            rig.status(sq),
            expected,
            "submission queue of {qsize_z} + 1"
        );
    }
}

#[test]
fn a_queue_of_two_entries_is_the_smallest() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 2);
    let read = rig.read_sqe(7, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    assert_eq!(rig.io_cqe(1, 0).map(|cqe| cqe.cid), Some(7));
}

#[test]
fn queues_must_be_contiguous_and_aligned() {
    let mut rig = Rig::enabled();
    // PC is bit 0 of Dword 11; CAP.CQR is 1.
    let mut cq = rig.create_cq_sqe(1, 8);
    cq.cdw11 &= !1;
    assert_eq!(rig.status(cq), INVALID_FIELD);
    let mut cq = rig.create_cq_sqe(1, 8);
    cq.prp1 += 16;
    assert_eq!(rig.status(cq), PRP_OFFSET);
    let cq = rig.create_cq_sqe(1, 8);
    assert_eq!(rig.status(cq), OK);
    let mut sq = rig.create_sq_sqe(1, 1, 8);
    sq.cdw11 &= !1;
    assert_eq!(rig.status(sq), INVALID_FIELD);
    let mut sq = rig.create_sq_sqe(1, 1, 8);
    sq.prp1 += 64;
    assert_eq!(rig.status(sq), PRP_OFFSET);
}

#[test]
fn queue_memory_must_be_the_hosts() {
    let mut rig = Rig::enabled();
    let outside = rig.host.page(PAGES).0;
    for prp1 in [0, outside, !0xfff] {
        let cq = Sqe {
            prp1,
            ..rig.create_cq_sqe(1, 8)
        };
        assert_eq!(rig.status(cq), DATA_TRANSFER, "{prp1:#x}");
    }
    let cq = rig.create_cq_sqe(1, 8);
    assert_eq!(rig.status(cq), OK);
    for prp1 in [0, outside, !0xfff] {
        let sq = Sqe {
            prp1,
            ..rig.create_sq_sqe(1, 1, 8)
        };
        assert_eq!(rig.status(sq), DATA_TRANSFER, "{prp1:#x}");
    }
    assert_eq!(rig.lanes.live(), 1, "no lane was left behind");
}

#[test]
fn vectors_out_of_range_are_refused() {
    let mut rig = Rig::enabled();
    for (vector, expected) in [(5, INVALID_VECTOR), (0xffff, INVALID_VECTOR), (4, OK)] {
        let mut cq = rig.create_cq_sqe(1, 8);
        cq.cdw11 = vector << 16 | 0b11;
        assert_eq!(rig.status(cq), expected, "{vector}");
    }
}

#[test]
fn the_completion_queue_must_exist() {
    let mut rig = Rig::enabled();
    let sq = rig.create_sq_sqe(1, 2, 8);
    assert_eq!(rig.status(sq), CQ_INVALID);
    // Base 2.1, 5.2.2: 0 and what is above the allocated number are no identifiers at all.
    for cqid in [0, 5, 0xffff] {
        let sq = Sqe {
            cdw11: cqid << 16 | 1,
            ..rig.create_sq_sqe(1, 2, 8)
        };
        assert_eq!(rig.status(sq), INVALID_QID, "{cqid}");
    }
}

#[test]
fn allocated_queues_bound_the_identifiers() {
    let mut rig = Rig::enabled();
    // Two submission queues and one completion queue, 0's based.
    let cqe = rig.set_feature(0x07, 0x0000_0001);
    assert_eq!((code(&cqe), cqe.dw0), (OK, 0x0000_0001));
    let cq = rig.create_cq_sqe(2, 8);
    assert_eq!(rig.status(cq), INVALID_QID);
    rig.create_pair(1, 8);
    let sq = rig.create_sq_sqe(2, 1, 8);
    assert_eq!(rig.status(sq), OK);
    let sq = rig.create_sq_sqe(3, 1, 8);
    assert_eq!(rig.status(sq), INVALID_QID);
}

#[test]
fn a_completion_queue_with_submission_queues_is_not_deleted() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    let sq = rig.create_sq_sqe(2, 1, 8);
    assert_eq!(rig.status(sq), OK);
    assert_eq!(rig.delete_cq(1), INVALID_DELETION);
    assert_eq!(rig.delete_sq(1), OK);
    assert_eq!(rig.delete_cq(1), INVALID_DELETION);
    assert_eq!(rig.delete_sq(2), OK);
    assert_eq!(rig.delete_cq(1), OK);
    assert_eq!(rig.lanes.live(), 0);
}

#[test]
fn what_does_not_exist_is_not_deleted() {
    let mut rig = Rig::enabled();
    for qid in [0, 1, 5, 64, 65, 0xffff] {
        assert_eq!(rig.delete_sq(qid), INVALID_QID, "{qid}");
        assert_eq!(rig.delete_cq(qid), INVALID_QID, "{qid}");
    }
}

#[test]
fn identifiers_are_free_after_deletion() {
    let mut rig = Rig::enabled();
    for _ in 0..5 {
        rig.create_pair(1, 8);
        let read = rig.read_sqe(3, 1);
        rig.submit_io(1, 0, read);
        rig.turns(4);
        assert_eq!(
            rig.io_cqe(1, 0).map(|cqe| cqe.cid),
            Some(3),
            "doorbells start at zero again"
        );
        assert_eq!(rig.delete_sq(1), OK);
        assert_eq!(rig.delete_cq(1), OK);
    }
}

/// A command in flight, and the submission queue's deletion submitted.
fn deletion_under_load(rig: &mut Rig) -> u16 {
    rig.create_pair(1, 8);
    rig.medium(0).manner = Manner::Hanging;
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    let cid = rig.submit(Sqe {
        opcode: DELETE_SQ,
        cdw10: 1,
        ..Sqe::default()
    });
    rig.turns(4);
    cid
}

#[test]
fn a_deletion_completes_when_the_last_command_has() {
    let mut rig = Rig::enabled();
    let cid = deletion_under_load(&mut rig);
    assert!(rig.peek().is_none());
    // Meanwhile it exists, and others are served.
    assert!(rig.controller.next_deadline().is_some());
    assert_eq!(rig.delete_sq(1), INVALID_QID);
    let sq = rig.create_sq_sqe(1, 1, 8);
    assert_eq!(rig.status(sq), INVALID_QID);
    assert_eq!(rig.delete_cq(1), INVALID_DELETION);
    rig.medium(0).release(1);
    rig.turns(4);
    let cqe = rig.reap().expect("completed");
    assert_eq!((cqe.cid, code(&cqe)), (cid, OK));
    assert!(rig.io_cqe(1, 0).is_some(), "its command completed first");
    assert_eq!(rig.controller.next_deadline(), None);
}

#[test]
fn a_deletion_is_bounded_where_a_medium_hangs() {
    let mut rig = Rig::enabled();
    let cid = deletion_under_load(&mut rig);
    rig.wait(4 * SECOND - 1);
    assert!(rig.peek().is_none());
    rig.wait(1);
    let cqe = rig.reap().expect("given up after four seconds");
    assert_eq!((cqe.cid, code(&cqe)), (cid, OK));
    let cqe = rig.io_cqe(1, 0).expect("its command was completed");
    assert!([ABORT_REQUESTED, SQ_DELETED].contains(&code(&cqe)));
    assert_eq!(rig.delete_cq(1), OK);
}

#[test]
fn a_full_admin_completion_queue_stalls_and_loses_nothing() {
    let mut rig = Rig::new();
    rig.set_admin_queues(4);
    rig.write32(CC, CC_ENABLE);
    rig.turns(2);
    // Three places: of six commands three are answered, and the others after these were consumed.
    let mut cids = Vec::new();
    for _ in 0..3 {
        let sqe = rig.with_data(IDENTIFY);
        cids.push(rig.submit(Sqe { cdw10: 1, ..sqe }));
    }
    rig.turns(4);
    for _ in 0..3 {
        let sqe = rig.with_data(IDENTIFY);
        cids.push(rig.submit(Sqe { cdw10: 1, ..sqe }));
    }
    rig.turns(4);
    assert!(!rig.controller.has_work(), "there is no place");
    let mut answered = Vec::new();
    for _ in 0..6 {
        let cqe: Cqe = rig.reap().expect("answered");
        assert_eq!(code(&cqe), OK);
        answered.push(cqe.cid);
        rig.turns(2);
    }
    assert_eq!(answered, cids);
    assert!(rig.reap().is_none());
}

#[test]
fn sixty_four_pairs_of_4096_entries() {
    let mut config = config();
    config.queues = 64;
    config.queue_depth = 4096;
    let mut rig = Rig::with(config);
    rig.host = port::testing::Host::new(64 * 80 + 256);
    rig.tell_view();
    rig.enable();
    let cqe = rig.set_feature(0x07, 0x003f_003f);
    assert_eq!(cqe.dw0, 0x003f_003f);
    for qid in 1..=64u16 {
        // 64 KiB of completion queue, 256 KiB of submission queue.
        let base = rig.host.page(256 + 80 * u64::from(qid - 1)).0;
        let cq = Sqe {
            prp1: base,
            ..rig.create_cq_sqe(qid, 4096)
        };
        assert_eq!(rig.status(cq), OK, "{qid}");
        let sq = Sqe {
            prp1: base + 0x1_0000,
            ..rig.create_sq_sqe(qid, qid, 4096)
        };
        assert_eq!(rig.status(sq), OK, "{qid}");
    }
    assert_eq!(rig.lanes.live(), 64);
    rig.disable();
    assert_eq!(rig.lanes.live(), 0);
}

#[test]
fn what_outlives_the_process_is_written_before_it_is_told() {
    let mut rig = Rig::enabled();
    rig.create_pair(2, 8);
    rig.async_event();
    rig.turns(2);
    assert_eq!(code(&rig.set_feature(0x08, 0x0203)), OK);
    let saved = rig.controller.saved_state();
    assert_eq!(saved.registers.cc, CC_ENABLE);
    assert_eq!(saved.registers.csts, RDY);
    assert_eq!(saved.registers.aqa, 0x001f_001f);
    assert_eq!(saved.features.coalescing, 0x0203);
    assert_eq!(saved.sq_cqids[..3], [0, 2, 0]);
    assert_eq!(saved.doorbell_buffers, [0, 0]);
    rig.controller.config_write(0x04, &[0x06, 0x04]);
    assert_eq!(rig.controller.saved_state().pci[4..6], [0x06, 0x04]);
    let admin = rig.controller.saved_admin();
    assert_eq!((admin.sq_head, admin.held, admin.waiting), (4, 1, 0));
    assert_eq!(admin.held_cids[0], 3);
    // Three answers were posted in the first round, whose phase is 1; the last one was the third.
    let tail = AdminTail::new().with_tail(3).with_phase(true);
    assert_eq!(admin.cq_tail, tail.with_exists(true));
    assert_eq!(admin.cqe, [0, 4 << 32 | 4]);
    rig.disable();
    assert_eq!(rig.controller.saved_state().sq_cqids, [0; 64]);
    assert_eq!(rig.controller.saved_state().registers.csts, 0);
    let admin = rig.controller.saved_admin();
    assert_eq!((admin.held, admin.cq_tail), (0, AdminTail::new()));
}

#[test]
fn a_restart_knows_of_an_admin_completion_whether_it_was_posted() {
    let mut rig = Rig::enabled();
    let before = rig.controller.saved_admin().cq_tail;
    let cqe = Cqe {
        cid: 9,
        ..Cqe::default()
    };
    rig.controller.save_posting(&cqe);
    let admin = rig.controller.saved_admin();
    assert_eq!(admin.cqe, cqe.to_words());
    assert_eq!(admin.cq_tail, before.with_posting(true), "at the same tail");
    rig.controller.save_posted();
    assert_eq!(rig.controller.saved_admin().cq_tail, before);
}

#[test]
fn a_command_that_waits_is_saved_with_the_next_completion() {
    let mut rig = Rig::enabled();
    let cid = deletion_under_load(&mut rig);
    assert_eq!(code(&rig.set_feature(0x08, 0)), OK);
    assert_eq!(rig.controller.saved_admin().waiting, 1);
    let waiting = rig.controller.saved_waiting();
    assert_eq!((waiting.cid, waiting.qid), (cid, 1));
    assert_eq!(waiting.kind, WaitingKind::DELETE_SQ);
}

#[test]
fn nothing_new_leans_on_a_completion_queue_that_is_being_deleted() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    assert_eq!(rig.delete_sq(1), OK);
    // Both are fetched in one turn, and the lane answers after it.
    let delete = Sqe {
        opcode: DELETE_CQ,
        cdw10: 1,
        ..Sqe::default()
    };
    let create = rig.create_sq_sqe(1, 1, 8);
    let cids = [delete, create, delete].map(|sqe| rig.submit(sqe));
    rig.turns(4);
    let mut answers: Vec<_> = std::iter::from_fn(|| rig.reap())
        .map(|cqe| (cqe.cid, code(&cqe)))
        .collect();
    answers.sort_unstable();
    assert_eq!(answers[0], (cids[0], OK));
    assert_eq!(answers[1], (cids[1], CQ_INVALID));
    assert_eq!(answers[2], (cids[2], INVALID_QID));
    assert_eq!(rig.lanes.live(), 0);
}
