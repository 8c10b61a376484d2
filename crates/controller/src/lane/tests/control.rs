//! Deleting queues, aborting, stopping, giving up.

use nvme_spec::{Cqe, Status};
use port::testing::{Manner, Seen};

use super::rig::{Rig, command, read};
use crate::lane::{AbortRequest, LaneCommand, LaneEvent};
use crate::state::ZOMBIE_SLOTS;

const REMOVE: LaneCommand = LaneCommand::RemoveQueue { sqid: 1 };
const REMOVED: LaneEvent = LaneEvent::QueueRemoved { sqid: 1 };

fn statuses(done: &[Cqe]) -> Vec<(u16, Status)> {
    done.iter()
        .map(|cqe| (cqe.cid, cqe.status.status()))
        .collect()
}

/// A queue with `flying` commands with the medium, one waiting for it, and one not fetched.
fn loaded(flying: u16) -> Rig {
    let mut rig = Rig::new(16, &[16, 16], Manner::Hanging);
    rig.medium().capacity = usize::from(flying);
    for cid in 0..flying + 2 {
        rig.store(1, read(cid));
    }
    rig.ring(1);
    assert_eq!(rig.turn().fetched, u32::from(flying) + 1);
    assert_eq!(rig.lane.in_flight(), u32::from(flying));
    rig
}

#[test]
fn an_idle_queue_goes_at_once_and_can_come_again() {
    let mut rig = Rig::new(16, &[16], Manner::Synchronous);
    for round in 0..3 {
        for cid in 0..5 {
            assert_eq!(rig.run(read(cid)), Status::SUCCESSFUL_COMPLETION);
        }
        rig.lane.command(REMOVE);
        assert_eq!(rig.events(), [REMOVED], "{round}");
        rig.turn();
        rig.add_queue(1, 8);
    }
    rig.lane.command(LaneCommand::RemoveQueue { sqid: 40 });
    assert_eq!(rig.events(), [LaneEvent::QueueRemoved { sqid: 40 }]);
    for sqid in [0, 65, u16::MAX] {
        rig.lane.command(LaneCommand::RemoveQueue { sqid });
        assert_eq!(rig.events(), [LaneEvent::QueueRemoved { sqid }]);
    }
}

#[test]
fn a_queue_deleted_under_load_completes_what_was_fetched() {
    let mut rig = loaded(3);
    rig.lane.command(REMOVE);
    assert_eq!(rig.events(), [], "three are with the medium");
    let done = rig.completions();
    assert_eq!(statuses(&done), [(3, Status::ABORTED_SQ_DELETION)]);
    rig.submit(2, read(50));
    rig.medium().capacity = 9;
    rig.medium().release(3);
    assert_eq!(rig.turn().fetched, 1, "nothing more from the one going");
    assert_eq!(rig.events(), [REMOVED]);
    let ok = Status::SUCCESSFUL_COMPLETION;
    assert_eq!(statuses(&rig.completions()), [(0, ok), (1, ok), (2, ok)]);
    // The same identifier with a new ring: from its first entry.
    rig.add_queue(1, 4);
    rig.submit(1, read(60));
    rig.turn();
    rig.medium().release(2);
    rig.turn();
    let done = rig.completions();
    assert_eq!(statuses(&done), [(50, ok), (60, ok)]);
    assert_eq!((done[1].sq_id, done[1].sq_head), (1, 1));
}

#[test]
fn a_deleted_queue_that_hangs_goes_when_it_is_given_up() {
    let mut rig = loaded(2);
    rig.lane.command(REMOVE);
    rig.lane.command(LaneCommand::AbandonAll);
    assert_eq!(rig.events(), [REMOVED]);
    assert_eq!(rig.completions().len(), 3);
    rig.add_queue(1, 16);
    rig.medium().release(2);
    rig.turn();
    assert_eq!(rig.completions(), [], "late ones complete nothing");
}

/// The subsystem may have the very command that waits for the others.
#[test]
fn commands_of_the_subsystem_are_aborted_only_with_everything() {
    const WRITE_UNCORRECTABLE: u8 = 0x04;
    let mut rig = Rig::new(16, &[16], Manner::Hanging);
    let begin = |rig: &mut Rig| {
        rig.submit(1, command(WRITE_UNCORRECTABLE, 1));
        rig.submit(1, read(2));
        rig.lane.turn(&mut rig.channels);
        rig.lane.take_forward().unwrap().ticket
    };
    let (ok, aborted) = (
        Status::SUCCESSFUL_COMPLETION,
        Status::COMMAND_ABORT_REQUESTED,
    );
    let before_epoch = u64::MAX;
    for abandon in [
        LaneCommand::Abandon { before_epoch },
        LaneCommand::AbandonIssued,
    ] {
        let ticket = begin(&mut rig);
        rig.lane.command(abandon);
        assert_eq!(statuses(&rig.completions()), [(2, aborted)]);
        assert_eq!(rig.lane.in_flight(), 1);
        rig.lane.answer(ticket, Ok(&[]));
        assert_eq!(statuses(&rig.completions()), [(1, ok)]);
        assert_eq!(rig.lane.in_flight(), 0);
    }
    let ticket = begin(&mut rig);
    rig.lane.command(LaneCommand::AbandonAll);
    let mut done = statuses(&rig.completions());
    done.sort_unstable_by_key(|(cid, _)| *cid);
    assert_eq!(done, [(1, aborted), (2, aborted)]);
    rig.lane.answer(ticket, Ok(&[]));
    assert_eq!(rig.completions(), []);
}

#[test]
fn abort_finds_what_waits_in_the_lane() {
    let mut rig = loaded(2);
    let mut numbers = 4..;
    let mut abort = |sqid, cid| {
        let number = numbers.next().expect("there are more");
        let asked = AbortRequest { sqid, cid, number };
        rig.lane.command(LaneCommand::Abort(asked));
        let events = rig.events();
        let [LaneEvent::AbortDone { request, aborted }] = events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(request, asked);
        aborted
    };
    assert!(!abort(1, 0), "with the medium");
    assert!(!abort(1, 3), "not fetched");
    assert!(!abort(1, 77));
    assert!(!abort(2, 2));
    assert!(!abort(0, 2));
    assert!(!abort(99, 2));
    assert!(abort(1, 2));
    assert!(!abort(1, 2), "once");
    let done = rig.completions();
    assert_eq!(statuses(&done), [(2, Status::COMMAND_ABORT_REQUESTED)]);
    // The command behind it goes on.
    rig.medium().capacity = 9;
    rig.turn();
    rig.medium().release(9);
    rig.turn();
    let cids: Vec<u16> = rig.completions().iter().map(|cqe| cqe.cid).collect();
    assert_eq!(cids, [0, 1, 3]);
}

#[test]
fn stop_fetches_and_posts_nothing_more() {
    let mut rig = loaded(2);
    rig.lane.command(LaneCommand::Stop);
    assert_eq!(rig.events(), []);
    rig.submit(2, read(9));
    assert_eq!(rig.turn(), crate::lane::LaneTurn::default());
    rig.medium().release(1);
    rig.turn();
    assert_eq!(rig.events(), []);
    rig.medium().release(1);
    rig.turn();
    assert!(!rig.is_idle(), "there is something to tell");
    assert_eq!(rig.events(), [LaneEvent::Stopped]);
    rig.lane.command(LaneCommand::Stop);
    rig.turn();
    assert_eq!(rig.events(), [], "once");
    assert_eq!(rig.completions(), []);
    assert_eq!(rig.lane.take_posted(), None);
    assert!(rig.is_idle());
    assert_eq!(rig.medium().seen.len(), 2);
}

#[test]
fn an_idle_lane_stops_at_once() {
    let mut rig = Rig::new(16, &[16], Manner::Synchronous);
    rig.lane.command(LaneCommand::Stop);
    assert_eq!(rig.events(), [LaneEvent::Stopped]);
}

#[test]
fn a_stop_that_hangs_ends_when_it_is_given_up() {
    let mut rig = loaded(2);
    rig.lane.command(LaneCommand::Stop);
    rig.lane.command(LaneCommand::AbandonAll);
    assert_eq!(rig.events(), [LaneEvent::Stopped]);
    assert_eq!(rig.lane.in_flight(), 0);
    rig.medium().release(2);
    rig.turn();
    assert_eq!(rig.completions(), []);
    assert_eq!(rig.events(), []);
}

#[test]
fn what_is_given_up_completes_once_and_its_late_completion_posts_nothing() {
    let mut rig = Rig::new(4, &[64], Manner::Hanging);
    for cid in 0..30 {
        rig.store(1, read(cid));
    }
    rig.ring(1);
    rig.turn();
    assert_eq!(rig.lane.in_flight(), 3);
    rig.lane.command(LaneCommand::AbandonAll);
    assert_eq!(rig.lane.in_flight(), 0);
    let aborted = Status::COMMAND_ABORT_REQUESTED;
    let done = rig.completions();
    assert_eq!(statuses(&done), [(0, aborted), (1, aborted), (2, aborted)]);
    // A zombie keeps no place: as many again are fetched.
    assert_eq!(rig.turn().fetched, 3);
    assert_eq!(rig.medium().seen.len(), 6);
    // The late ones end first, and post nothing.
    rig.medium().release(3);
    rig.turn();
    assert_eq!(rig.completions(), []);
    assert_eq!(rig.lane.in_flight(), 3);
    rig.medium().release(3);
    rig.turn();
    let ok = Status::SUCCESSFUL_COMPLETION;
    let done = rig.completions();
    assert_eq!(statuses(&done), [(3, ok), (4, ok), (5, ok)]);
    assert_eq!(rig.turn().fetched, 3);
}

#[test]
fn zombies_are_bounded_by_slots_and_nothing_breaks() {
    let mut rig = Rig::new(4, &[64], Manner::Hanging);
    let mut completed = 0;
    for round in 0..200 {
        while rig.room(1) > 0 {
            rig.store(1, read(round));
        }
        rig.ring(1);
        rig.turn();
        rig.lane.command(LaneCommand::AbandonAll);
        completed += rig.completions().len();
    }
    assert_eq!(completed, ZOMBIE_SLOTS + 3, "then it waits for the medium");
    assert!(rig.is_idle());
    rig.medium().release(10);
    rig.turn();
    assert!(!rig.is_idle());
    rig.turn();
    assert_eq!(rig.lane.in_flight(), 3);
    rig.medium().manner = Manner::Asynchronous;
    let mut rest = 0;
    for _ in 0..100 {
        rig.turn();
        rest += rig.completions().len();
    }
    assert!(rest >= 63);
    assert_eq!(rig.room(1), 63);
}

#[test]
fn a_command_waits_at_the_head_of_its_queue_and_others_go_on() {
    let mut rig = Rig::new(64, &[16, 16], Manner::Hanging);
    rig.medium().capacity = 1;
    for cid in 0..4 {
        rig.store(1, read(cid));
    }
    rig.ring(1);
    assert_eq!(rig.turn().fetched, 2);
    assert_eq!(rig.lane.take_posted(), None);
    assert!(rig.is_idle(), "no work before a reap");
    // The entry is not read again: what the host writes there now is not seen.
    let at = rig.sq_base(1);
    rig.host.write(memory::Iova(at.0 + 64), &[0xFF; 64]);
    let mut cids = Vec::new();
    for _ in 0..4 {
        rig.medium().release(1);
        rig.reap();
        cids.extend(rig.completions().iter().map(|cqe| cqe.cid));
        rig.lane.turn(&mut rig.channels);
    }
    assert_eq!(cids, [0, 1, 2, 3], "in order");
    assert_eq!(rig.medium().seen, vec![Seen::Read(0, 512); 4]);
}

/// A medium that completes twice does not complete the slot's next command; debug builds say so.
#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "came back twice")]
fn a_ticket_that_comes_back_twice_does_not_complete_the_next_command() {
    let mut rig = Rig::new(16, &[16], Manner::Asynchronous);
    rig.run(read(1));
    rig.medium().manner = Manner::Hanging;
    rig.submit(1, read(2));
    rig.turn();
    assert_eq!(rig.lane.in_flight(), 1);
    let first = port::ticket::Ticket::issue(rig.lane.key(), 0, 0);
    rig.lane.complete(first, port::Outcome::OK);
    assert_eq!(rig.lane.in_flight(), 1);
}
