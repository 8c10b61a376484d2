//! Doorbells, full queues, shared queues.

use nvme_spec::Status;
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use port::testing::{Manner, Seen};

use super::rig::{CQID, Rig, read};
use crate::lane::{BATCH, LaneEvent, LaneFault, QueueName};

fn bad(queue: QueueName, value: u32) -> LaneEvent {
    LaneEvent::Fault(LaneFault::InvalidDoorbell { queue, value })
}

#[test]
fn quirk_a_bad_tail_freezes_that_queue_and_is_told_once() {
    let mut rig = Rig::new(64, &[16, 16], Manner::Synchronous);
    rig.run(read(0));
    for value in [16, 0, 17, u32::MAX, 5] {
        rig.doorbells.store(sq_tail_slot(1), value);
        for cid in 0..4 {
            rig.store(2, read(cid));
        }
        rig.ring(2);
        let turn = rig.turn();
        assert_eq!(turn.fetched, 4, "the other queue goes on");
        assert!(rig.completions().iter().all(|cqe| cqe.sq_id == 2));
    }
    assert_eq!(rig.events(), [bad(QueueName::Submission(1), 16)]);
    assert!(rig.is_idle());
    rig.lane.arm();
    // It can be deleted and created again.
    rig.lane
        .command(crate::lane::LaneCommand::RemoveQueue { sqid: 1 });
    assert_eq!(rig.events(), [LaneEvent::QueueRemoved { sqid: 1 }]);
    rig.add_queue(1, 16);
    assert_eq!(rig.run(read(9)), Status::SUCCESSFUL_COMPLETION);
}

#[test]
fn a_bad_tail_takes_nothing_of_what_was_submitted_with_it() {
    let mut rig = Rig::new(64, &[16], Manner::Synchronous);
    for cid in 0..5 {
        rig.store(1, read(cid));
    }
    rig.doorbells.store(sq_tail_slot(1), 16);
    assert_eq!(rig.turn().fetched, 0);
    assert_eq!(rig.medium().seen, []);
}

#[test]
fn quirk_a_head_advances_at_most_to_the_posted_tail() {
    for (posted, consumed, value) in [(3, 0, 4), (3, 2, 1), (0, 0, 1), (3, 0, 8), (3, 0, u32::MAX)]
    {
        let mut rig = Rig::new(8, &[16], Manner::Synchronous);
        for cid in 0..posted {
            rig.submit(1, read(cid));
        }
        rig.turn();
        rig.doorbells.store(cq_head_slot(CQID), consumed);
        rig.turn();
        assert_eq!(rig.events(), []);
        rig.doorbells.store(cq_head_slot(CQID), value);
        rig.submit(1, read(9));
        assert_eq!(rig.turn().fetched, 0, "frozen: nothing is fetched for it");
        let fault = bad(QueueName::Completion(CQID), value);
        assert_eq!(rig.events(), [fault]);
        rig.doorbells.store(cq_head_slot(CQID), value ^ 1);
        rig.turn();
        assert_eq!(rig.events(), [], "told once");
        assert!(rig.is_idle());
    }
}

#[test]
fn every_head_up_to_the_tail_is_taken() {
    for consumed in 0..=5 {
        let mut rig = Rig::new(8, &[16], Manner::Synchronous);
        for cid in 0..5 {
            rig.submit(1, read(cid));
        }
        rig.turn();
        rig.doorbells.store(cq_head_slot(CQID), consumed);
        rig.turn();
        assert_eq!(rig.events(), []);
    }
}

#[test]
fn quirk_a_full_completion_queue_stalls_and_loses_nothing() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut rig = Rig::new(4, &[16], manner);
        for cid in 0..10 {
            rig.store(1, read(cid));
        }
        rig.ring(1);
        let turn = rig.turn();
        assert_eq!((turn.fetched, turn.pending), (3, 0), "three places");
        assert_eq!(rig.turn().fetched, 0);
        assert_eq!(rig.medium().seen.len(), 3, "fetched only with a place");
        assert!(rig.is_idle(), "it waits for the host");
        let mut cids = Vec::new();
        while cids.len() < 10 {
            let cqe = rig.consume().expect("the next completion");
            cids.push(cqe.cid);
            rig.ring_head();
            assert!(!rig.is_idle() || cids.len() > 7);
            rig.turn();
        }
        assert!(cids.iter().copied().eq(0..10));
        assert_eq!(rig.peek(), None);
    }
}

#[test]
fn quirk_a_completion_queue_of_two_entries_serves() {
    let mut rig = Rig::new(2, &[2], Manner::Asynchronous);
    for cid in 0..50 {
        assert_eq!(rig.run(read(cid)), Status::SUCCESSFUL_COMPLETION);
    }
    // Shared by three queues with always something to do: each gets its turn.
    let mut rig = Rig::new(2, &[8, 8, 8], Manner::Synchronous);
    let mut served = [0; 4];
    for cid in 0..60 {
        for sqid in 1..=3 {
            while rig.room(sqid) > 0 {
                rig.submit(sqid, read(cid));
            }
        }
        rig.turn();
        for cqe in rig.completions() {
            served[usize::from(cqe.sq_id)] += 1;
        }
    }
    assert_eq!(served, [0, 20, 20, 20]);
}

#[test]
fn quirk_a_shared_completion_queue_keeps_a_minimum_for_each_queue() {
    let mut rig = Rig::new(17, &[64, 64], Manner::Hanging);
    // Queue 1 floods; the host consumes nothing, the medium ends nothing.
    for cid in 0..60 {
        rig.store(1, read(cid));
    }
    rig.ring(1);
    for _ in 0..5 {
        rig.turn();
    }
    let flood = rig.medium().seen.len();
    assert_eq!(flood, 12, "16 places less the 4 of the other queue");
    for cid in 0..60 {
        rig.store(2, read(cid));
    }
    rig.ring(2);
    assert_eq!(rig.turn().fetched, 4);
    // Posted and not consumed: still taken.
    rig.medium().release(16);
    rig.turn();
    assert_eq!(rig.turn().fetched, 0);
    // Half of the flood's completions are consumed: only the flood gets these.
    for _ in 0..6 {
        assert_eq!(rig.consume().map(|cqe| cqe.sq_id), Some(1));
    }
    rig.ring_head();
    assert_eq!(rig.turn().fetched, 6);
    // Alone again, a queue may take all.
    let mut rig = Rig::new(17, &[64], Manner::Hanging);
    rig.add_queue(2, 8);
    rig.lane
        .command(crate::lane::LaneCommand::RemoveQueue { sqid: 2 });
    for cid in 0..60 {
        rig.store(1, read(cid));
    }
    rig.ring(1);
    rig.turn();
    assert_eq!(rig.medium().seen.len(), 16);
}

#[test]
fn a_batch_is_bounded_and_the_rest_is_told() {
    let mut rig = Rig::new(1024, &[256, 256], Manner::Synchronous);
    for sqid in [1, 2] {
        for cid in 0..100 {
            rig.store(sqid, read(cid));
        }
        rig.ring(sqid);
    }
    let turn = rig.turn();
    assert_eq!(turn.fetched, 2 * BATCH);
    assert_eq!(turn.pending, 2 * (100 - BATCH));
    assert!(!rig.is_idle());
    let order: Vec<u16> = rig.completions().iter().map(|cqe| cqe.sq_id).collect();
    rig.turn();
    let next = rig.completions()[0].sq_id;
    assert_ne!(order[0], next, "another queue begins each turn");
    while rig.turn().pending > 0 {}
    assert!(rig.is_idle());
    assert_eq!(rig.medium().seen.len(), 200);
    assert_eq!(rig.medium().seen[0], Seen::Read(0, 512));
}

#[test]
fn an_identifier_used_twice_completes_twice() {
    let mut rig = Rig::new(16, &[16], Manner::Hanging);
    for _ in 0..2 {
        rig.submit(1, read(5));
    }
    rig.turn();
    rig.medium().release(2);
    rig.turn();
    let cids: Vec<u16> = rig.completions().iter().map(|cqe| cqe.cid).collect();
    assert_eq!(cids, [5, 5]);
}

#[test]
fn a_trapped_write_is_work() {
    let mut rig = Rig::new(16, &[16], Manner::Synchronous);
    assert!(rig.is_idle());
    rig.lane.kick();
    assert!(!rig.is_idle());
    rig.turn();
    assert!(rig.is_idle());
    rig.submit(1, read(1));
    assert!(!rig.is_idle());
}
