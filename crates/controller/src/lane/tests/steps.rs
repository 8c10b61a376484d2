//! Commands that take several steps: Verify, and what deletes, aborts, stops, unmaps and changes of
//! namespaces make of a command between two steps and in one.

use nvme_spec::{Sqe, Status};
use port::Cause;
use port::namespace::Restrictions;
use port::testing::{Manner, Seen, namespace};

use super::copy::{From, complete, copy_command, store_ranges};
use super::rig::{MEDIUM, MEDIUM_ID, Rig, command, read};
use crate::lane::{AbortRequest, LaneCommand, LaneEvent};

const BLOCKS: u64 = MEDIUM as u64 / 512;

fn verify(slba: u64, blocks: u32) -> Sqe {
    Sqe {
        cdw10: slba as u32,
        cdw11: (slba >> 32) as u32,
        cdw12: blocks - 1,
        // No data: pointers are not looked at.
        prp1: u64::MAX,
        ..command(0x0C, 1)
    }
}

fn status(rig: &mut Rig, sqe: Sqe) -> Status {
    complete(rig, sqe).status.status()
}

#[test]
fn verify_reads_every_block_and_transfers_none() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut rig = Rig::new(16, &[16], manner);
        assert_eq!(
            status(&mut rig, verify(8, 5)),
            Status::SUCCESSFUL_COMPLETION
        );
        assert_eq!(rig.medium().seen, [Seen::Read(4096, 2560)]);
        rig.medium().seen.clear();
        // More than a transfer may be, in several steps.
        assert_eq!(
            status(&mut rig, verify(1, 5000)),
            Status::SUCCESSFUL_COMPLETION
        );
        let seen = &rig.medium().seen;
        let mut at = 512;
        for read in seen {
            let Seen::Read(offset, len) = *read else {
                panic!("{read:?}")
            };
            assert_eq!(offset, at);
            at += u64::from(len);
        }
        assert_eq!((seen.len(), at), (3, 512 + 5000 * 512));
        let counters = rig.lane.counters();
        assert_eq!(counters.verify_bytes.get(), 5005 * 512);
        assert_eq!((counters.verifies.get(), counters.reads.get()), (2, 0));
        assert_eq!(counters.read_bytes.get(), 0);
    }
}

#[test]
fn verify_is_answered_as_a_read_would_be() {
    let mut rig = Rig::new(16, &[16], Manner::Asynchronous);
    assert_eq!(
        status(&mut rig, verify(BLOCKS - 1, 1)),
        Status::SUCCESSFUL_COMPLETION
    );
    assert_eq!(
        status(&mut rig, verify(BLOCKS - 1, 2)),
        Status::LBA_OUT_OF_RANGE
    );
    assert_eq!(
        status(&mut rig, verify(u64::MAX, 2)),
        Status::LBA_OUT_OF_RANGE
    );
    let mut nobody = verify(0, 1);
    nobody.nsid = 2;
    assert_eq!(status(&mut rig, nobody), Status::INVALID_FIELD_IN_COMMAND);
    rig.medium().fault = Some(Cause::ReadFailed);
    assert_eq!(
        status(&mut rig, verify(7, 1)),
        Status::UNRECOVERED_READ_ERROR
    );
    let events = rig.events();
    let [LaneEvent::CommandFailed(failed)] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((failed.lba, failed.nsid), (7, 1));
}

#[test]
fn verify_with_fua_flushes_a_volatile_cache_first() {
    let mut rig = Rig::new(16, &[16], Manner::Asynchronous);
    let mut sqe = verify(0, 8);
    sqe.cdw12 |= 1 << 30;
    assert_eq!(status(&mut rig, sqe), Status::SUCCESSFUL_COMPLETION);
    assert_eq!(rig.medium().seen, [Seen::Read(0, 4096)]);
    let mut volatile = namespace(1, MEDIUM_ID, BLOCKS);
    volatile.traits.volatile_cache = true;
    rig.set_namespaces(vec![volatile]);
    rig.medium().seen.clear();
    assert_eq!(status(&mut rig, sqe), Status::SUCCESSFUL_COMPLETION);
    assert_eq!(rig.medium().seen, [Seen::Flush, Seen::Read(0, 4096)]);
}

/// A rig in which copies 0, 1, ... of five ranges each go on, each with its medium at a step.
fn going(copies: u16) -> Rig {
    let mut rig = Rig::new(32, &[32, 8], Manner::Hanging);
    store_ranges(&rig, &[0, 1, 2, 3, 4].map(|slba| From(1, slba, 1)));
    for cid in 0..copies {
        let sqe = copy_command(&rig, 100 + 5 * u64::from(cid), 5, 0);
        rig.store(1, Sqe { cid, ..sqe });
    }
    rig.ring(1);
    rig.turn();
    rig
}

fn answers(rig: &mut Rig) -> Vec<(u16, Status)> {
    let done = rig.completions();
    let answer = |cqe: &nvme_spec::Cqe| (cqe.cid, cqe.status.status());
    done.iter().map(answer).collect()
}

/// Lets a medium end what it has, over and over.
fn settle(rig: &mut Rig) {
    for _ in 0..200 {
        rig.medium().release(usize::MAX / 2);
        rig.turn();
    }
    assert!(rig.is_idle());
    assert_eq!(rig.lane.in_flight(), 0);
}

#[test]
fn four_go_on_and_the_others_wait_in_order() {
    let mut rig = going(7);
    assert_eq!(rig.medium().seen.len(), 4);
    // A command of one step does not wait for them, nor does another queue.
    rig.submit(1, read(50));
    rig.submit(2, read(60));
    rig.turn();
    assert_eq!(rig.medium().seen.len(), 6);
    settle(&mut rig);
    let order: Vec<u16> = answers(&mut rig).iter().map(|(cid, _)| *cid).collect();
    assert_eq!(order.len(), 9);
    let place = |cid| order.iter().position(|other| *other == cid);
    assert!(place(50) < place(0) && place(60) < place(0), "{order:?}");
    assert!(place(4) > place(0) && place(5) < place(6), "{order:?}");
    let first = rig.medium().bytes[..2560].to_vec();
    for cid in 0..7 {
        assert_eq!(rig.medium().bytes[(100 + 5 * cid) * 512..][..2560], first);
    }
}

#[test]
fn a_deleted_queue_takes_no_further_step() {
    let mut rig = going(6);
    rig.lane.command(LaneCommand::RemoveQueue { sqid: 1 });
    let deleted = Status::ABORTED_SQ_DELETION;
    assert_eq!(
        answers(&mut rig),
        [(4, deleted), (5, deleted)],
        "those that wait"
    );
    assert_eq!(rig.events(), []);
    // One is between two steps when the others' steps end.
    rig.medium().release(4);
    rig.turn();
    assert_eq!(answers(&mut rig), [0, 1, 2, 3].map(|cid| (cid, deleted)));
    assert_eq!(rig.events(), [LaneEvent::QueueRemoved { sqid: 1 }]);
    assert_eq!(rig.medium().seen.len(), 4);
    assert!(rig.is_idle());
}

#[test]
fn a_command_between_two_steps_goes_with_its_queue() {
    let mut rig = going(1);
    rig.medium().release(1);
    rig.reap();
    assert!(!rig.is_idle(), "its next step is due");
    rig.lane.command(LaneCommand::RemoveQueue { sqid: 1 });
    assert_eq!(answers(&mut rig), [(0, Status::ABORTED_SQ_DELETION)]);
    assert_eq!(rig.events(), [LaneEvent::QueueRemoved { sqid: 1 }]);
    rig.turn();
    assert_eq!(rig.medium().seen.len(), 1);
}

#[test]
fn abort_reaches_a_command_that_is_with_no_medium() {
    let mut rig = going(6);
    let mut numbers = 4..;
    let mut abort = |rig: &mut Rig, cid| {
        let number = numbers.next().expect("there are more");
        let sqid = 1;
        let request = AbortRequest { sqid, cid, number };
        rig.lane.command(LaneCommand::Abort(request));
        let aborted = LaneEvent::AbortDone {
            request,
            aborted: true,
        };
        rig.events() == [aborted]
    };
    assert!(abort(&mut rig, 5), "it waits");
    assert!(!abort(&mut rig, 5), "once");
    assert!(!abort(&mut rig, 2), "a medium is at its step");
    rig.medium().release(4);
    rig.reap();
    assert!(abort(&mut rig, 2), "it is between two steps");
    let aborted = Status::COMMAND_ABORT_REQUESTED;
    assert_eq!(answers(&mut rig), [(5, aborted), (2, aborted)]);
    settle(&mut rig);
    assert_eq!(answers(&mut rig).len(), 4);
}

#[test]
fn stop_ends_with_the_steps_that_media_are_at() {
    let mut rig = going(6);
    rig.lane.command(LaneCommand::Stop);
    assert_eq!(rig.events(), []);
    rig.medium().release(3);
    rig.turn();
    assert_eq!(rig.events(), []);
    rig.medium().release(1);
    rig.turn();
    assert_eq!(rig.events(), [LaneEvent::Stopped]);
    assert_eq!(rig.completions(), []);
    assert_eq!(rig.medium().seen.len(), 4);
    // One that is between two steps does not hold it up.
    let mut rig = going(1);
    rig.medium().release(1);
    rig.reap();
    rig.lane.command(LaneCommand::Stop);
    assert_eq!(rig.events(), [LaneEvent::Stopped]);
}

#[test]
fn what_is_given_up_keeps_its_memory_until_the_medium_lets_go() {
    let mut rig = going(6);
    rig.lane.command(LaneCommand::AbandonAll);
    let aborted = Status::COMMAND_ABORT_REQUESTED;
    assert_eq!(answers(&mut rig), [0, 1, 2, 3].map(|cid| (cid, aborted)));
    rig.turn();
    assert_eq!(
        rig.medium().seen.len(),
        4,
        "there is no memory for the others"
    );
    rig.medium().release(1);
    rig.turn();
    rig.turn();
    assert_eq!(rig.medium().seen.len(), 5);
    settle(&mut rig);
    let ok = Status::SUCCESSFUL_COMPLETION;
    assert_eq!(answers(&mut rig), [(4, ok), (5, ok)]);
}

#[test]
fn between_two_steps_an_unmap_and_a_change_of_namespaces_wait_for_nothing() {
    let mut rig = going(1);
    rig.medium().release(1);
    rig.reap();
    rig.host.unmap_pages(0, super::rig::PAGES);
    rig.host.map_pages(0, super::rig::PAGES);
    let epoch = rig.map_changed();
    assert_eq!(rig.events(), [LaneEvent::Drained { epoch }]);
    settle(&mut rig);
    let cqe = rig.completions()[0];
    assert_eq!(cqe.status.status(), Status::SUCCESSFUL_COMPLETION);
}

#[test]
fn a_namespace_that_changed_between_two_steps_is_not_touched() {
    let mut large = namespace(1, MEDIUM_ID, 64);
    large.lba_shift = 12;
    let gone = namespace(2, MEDIUM_ID, BLOCKS);
    let small = namespace(1, MEDIUM_ID, 100);
    let format = Status::INVALID_NAMESPACE_OR_FORMAT;
    for (namespace, status) in [
        (large, format),
        (gone, Status::INVALID_FIELD_IN_COMMAND),
        (small, Status::LBA_OUT_OF_RANGE),
    ] {
        let mut rig = going(1);
        rig.medium().release(1);
        rig.reap();
        rig.set_namespaces(vec![namespace]);
        rig.turn();
        let cqe = rig.completions()[0];
        assert_eq!((cqe.status.status(), cqe.dw0), (status, 0));
        assert_eq!(rig.medium().seen.len(), 1);
    }
}

#[test]
fn steps_wait_for_a_full_channel_without_spinning() {
    let mut rig = going(3);
    rig.medium().capacity = 0;
    rig.medium().release(3);
    rig.reap();
    assert!(rig.lane.has_work());
    assert_eq!(rig.turn().pending, 3);
    assert!(rig.is_idle(), "no work before a reap");
    rig.medium().capacity = 9;
    settle(&mut rig);
    assert_eq!(answers(&mut rig).len(), 3);
}

#[test]
fn a_turn_takes_a_bounded_number_of_steps() {
    let mut rig = Rig::new(16, &[16], Manner::Synchronous);
    store_ranges(&rig, &[From(1, 0, 1); 100]);
    let sqe = copy_command(&rig, 1000, 100, 0);
    rig.submit(1, sqe);
    let turn = rig.turn();
    assert_eq!((turn.steps, turn.pending), (16, 1));
    assert!(rig.lane.has_work());
    let mut steps = turn.steps;
    while rig.lane.has_work() && steps < 1000 {
        steps += rig.turn().steps;
        rig.lane.take_posted();
    }
    assert_eq!(steps, 200);
    assert_eq!(rig.completions().len(), 1);
}

#[test]
fn the_hosts_list_is_read_once() {
    let mut rig = going(1);
    rig.host
        .write(rig.host.page(super::rig::DATA + 3), &[0xFF; 4096]);
    settle(&mut rig);
    assert_eq!(answers(&mut rig), [(0, Status::SUCCESSFUL_COMPLETION)]);
}

#[test]
fn what_keeps_commands_from_a_namespace_keeps_steps_from_it() {
    let restricted = |nsid, restrictions: Restrictions| {
        let mut namespace = namespace(nsid, MEDIUM_ID, BLOCKS);
        namespace.restrictions = restrictions.some();
        namespace
    };
    let conflict = Status::RESERVATION_CONFLICT;
    let closed = |nsid, reads, writes| {
        restricted(
            nsid,
            Restrictions {
                reads,
                writes,
                ..Restrictions::default()
            },
        )
    };
    let mut rig = Rig::new(16, &[16], Manner::Synchronous);
    store_ranges(&rig, &[From(2, 0, 1)]);
    let copy = copy_command(&rig, 100, 1, 2);
    let open = || namespace(1, MEDIUM_ID, BLOCKS);
    rig.set_namespaces(vec![open(), closed(2, Some(conflict), None)]);
    assert_eq!(status(&mut rig, copy), conflict);
    rig.set_namespaces(vec![closed(1, None, Some(conflict)), open()]);
    assert_eq!(status(&mut rig, copy), conflict);
    assert_eq!(
        status(&mut rig, verify(0, 1)),
        Status::SUCCESSFUL_COMPLETION
    );
    rig.set_namespaces(vec![closed(1, Some(conflict), None)]);
    assert_eq!(status(&mut rig, verify(0, 1)), conflict);
    assert_eq!(rig.medium().seen.len(), 1);
    // A reservation that comes between two steps.
    let mut rig = going(1);
    rig.medium().release(1);
    rig.reap();
    rig.set_namespaces(vec![closed(1, None, Some(conflict))]);
    rig.turn();
    assert_eq!(answers(&mut rig), [(0, conflict)]);
}
