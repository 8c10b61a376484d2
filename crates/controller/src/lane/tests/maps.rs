//! The host's memory map changes under the lane.

use memory::Iova;
use nvme_spec::Status;
use nvme_spec::registers::sq_tail_slot;
use port::testing::{Host, Manner};

use super::rig::{CQID, DATA, PAGES, Rig, read};
use crate::lane::{LaneCommand, LaneEvent, LaneFault, QueueName};

/// Rings in one region, data in another, from page [`DATA`] on, half of it each.
fn rig(manner: Manner) -> Rig {
    let mut host = Host::unmapped(PAGES);
    host.map_pages(0, DATA);
    host.map_pages(DATA, 512);
    host.map_pages(DATA + 512, 512);
    Rig::on(host, 64, &[64, 64], manner)
}

fn read_at(rig: &Rig, cid: u16, page: u64) -> nvme_spec::Sqe {
    nvme_spec::Sqe {
        prp1: rig.host.page(page).0,
        ..read(cid)
    }
}

#[test]
fn a_change_of_the_map_is_acknowledged_when_nothing_from_before_flies() {
    let mut rig = rig(Manner::Hanging);
    let epoch = rig.map_changed();
    assert_eq!(rig.events(), [LaneEvent::Drained { epoch }], "idle");
    assert_eq!(rig.events(), [], "once");
    rig.submit(1, read(1));
    rig.turn();
    rig.host.unmap_pages(DATA, 512);
    let epoch = rig.map_changed();
    assert_eq!(rig.events(), []);
    // One that is issued later does not hold it back.
    let sqe = read_at(&rig, 2, DATA + 512);
    rig.submit(1, sqe);
    rig.turn();
    rig.medium().release(1);
    rig.turn();
    assert_eq!(rig.events(), [LaneEvent::Drained { epoch }]);
    assert_eq!(rig.lane.in_flight(), 1);
}

#[test]
fn unmap_under_load_drains() {
    let mut rig = rig(Manner::Hanging);
    let mut cid = 0;
    let mut step = |rig: &mut Rig| {
        for sqid in [1, 2] {
            while rig.room(sqid) > 40 {
                let page = DATA + 512 + u64::from(cid) % 512;
                let sqe = read_at(rig, cid, page);
                rig.submit(sqid, sqe);
                cid = cid.wrapping_add(1);
            }
        }
        rig.turn();
        rig.medium().release(7);
        rig.reap();
        assert!(rig.lane.in_flight() > 0, "always something in flight");
        rig.completions().len()
    };
    for _ in 0..20 {
        step(&mut rig);
    }
    // A storm of changes, as a booting machine makes it.
    let mut epoch = 0;
    for n in 0..100 {
        if n % 2 == 0 {
            rig.host.unmap_pages(DATA, 512);
        } else {
            rig.host.map_pages(DATA, 512);
        }
        epoch = rig.map_changed();
        if n % 10 == 0 {
            step(&mut rig);
        }
    }
    let mut told = 0;
    for _ in 0..40 {
        assert!(step(&mut rig) > 0);
        for event in rig.events() {
            let LaneEvent::Drained { epoch } = event else {
                panic!("{event:?}")
            };
            assert!(epoch > told, "once each");
            told = epoch;
        }
    }
    assert_eq!(told, epoch);
}

#[test]
fn what_hangs_is_given_up_by_epoch() {
    let mut rig = rig(Manner::Hanging);
    rig.submit(1, read(1));
    rig.turn();
    let sqe = read_at(&rig, 2, DATA + 600);
    rig.host.unmap_pages(DATA, 512);
    let epoch = rig.map_changed();
    rig.submit(1, sqe);
    rig.turn();
    rig.lane.command(LaneCommand::Abandon {
        before_epoch: epoch,
    });
    assert_eq!(rig.events(), [LaneEvent::Drained { epoch }]);
    let done = rig.completions();
    assert_eq!(done.len(), 1, "the one issued with the new map stays");
    assert_eq!(done[0].cid, 1);
    assert_eq!(done[0].status.status(), Status::COMMAND_ABORT_REQUESTED);
    rig.medium().release(2);
    rig.turn();
    let done = rig.completions();
    assert_eq!(done.len(), 1);
    assert_eq!(
        (done[0].cid, done[0].status.status()),
        (2, Status::SUCCESSFUL_COMPLETION)
    );
}

#[test]
fn a_waiting_command_holds_up_no_unmap() {
    let mut rig = rig(Manner::Synchronous);
    rig.medium().capacity = 0;
    rig.submit(1, read(1));
    assert_eq!(rig.turn().pending, 1);
    rig.host.unmap_pages(DATA, 512);
    let epoch = rig.map_changed();
    assert_eq!(rig.events(), [LaneEvent::Drained { epoch }]);
    rig.medium().capacity = 1;
    rig.turn();
    let done = rig.completions();
    assert_eq!(done[0].status.status(), Status::DATA_TRANSFER_ERROR);
}

#[test]
fn rings_that_vanish_and_return_between_uses_are_ordinary() {
    let mut rig = rig(Manner::Synchronous);
    assert_eq!(rig.run(read(1)), Status::SUCCESSFUL_COMPLETION);
    for _ in 0..3 {
        rig.host.unmap_pages(0, DATA);
        let epoch = rig.map_changed();
        rig.turn();
        assert_eq!(rig.events(), [LaneEvent::Drained { epoch }]);
        rig.lane.arm();
        assert!(rig.is_idle());
        rig.host.map_pages(0, DATA);
        let epoch = rig.map_changed();
        assert_eq!(rig.events(), [LaneEvent::Drained { epoch }]);
        assert_eq!(rig.run(read(2)), Status::SUCCESSFUL_COMPLETION);
    }
}

/// The same addresses lead to other memory: a host that has moved its rings there finds them used.
#[test]
fn rings_are_where_the_map_says_now() {
    const ELSEWHERE: u64 = DATA + 1024;
    let mut rig = rig(Manner::Synchronous);
    assert_eq!(rig.run(read(1)), Status::SUCCESSFUL_COMPLETION);
    rig.host.unmap_pages(0, DATA);
    rig.host.map_elsewhere(rig.host.page(0), DATA, ELSEWHERE);
    rig.map_changed();
    let moved = |at: Iova| Iova(at.0 + ELSEWHERE * 4096);
    let second = Iova(rig.sq_base(1).0 + 64);
    for (at, cid) in [(second, 98), (moved(second), 2)] {
        for (word, value) in (0..).zip(read(cid).to_words()) {
            rig.host.write_u64(Iova(at.0 + 8 * word), value);
        }
    }
    rig.doorbells.store(sq_tail_slot(1), 2);
    rig.turn();
    // Entry 1, whose command identifier and phase are in its last dword.
    let entry = |at: Iova| rig.host.read_u32(Iova(at.0 + 16 + 12));
    assert_eq!(entry(moved(rig.host.page(0))), 1 << 16 | 2);
    assert_eq!(entry(rig.host.page(0)), 0, "nothing goes to the old place");
}

/// A rig whose rings are gone, after commands were submitted to both queues.
fn without_rings() -> Rig {
    let mut rig = rig(Manner::Synchronous);
    rig.submit(1, read(1));
    rig.host.unmap_pages(0, DATA);
    let epoch = rig.map_changed();
    rig.submit(2, read(2));
    assert_eq!(rig.turn().fetched, 0);
    rig.turn();
    let absent = |sqid| {
        let queue = QueueName::Submission(sqid);
        LaneEvent::Fault(LaneFault::RingAbsent { queue })
    };
    let mut events = rig.events();
    for event in [absent(1), absent(2), LaneEvent::Drained { epoch }] {
        let at = events.iter().position(|found| *found == event);
        events.remove(at.unwrap_or_else(|| panic!("{event:?} in {events:?}")));
    }
    assert_eq!(events, [], "each once");
    assert_eq!(rig.medium().seen, []);
    rig.lane.arm();
    assert!(rig.is_idle(), "what cannot be fetched is no work");
    rig
}

#[test]
fn a_submission_ring_used_while_absent_goes_on_when_it_returns() {
    let mut rig = without_rings();
    // Whatever the doorbell holds meanwhile.
    rig.doorbells.store(sq_tail_slot(1), 0);
    rig.turn();
    rig.doorbells.store(sq_tail_slot(1), 1);
    rig.host.map_pages(0, DATA);
    rig.map_changed();
    rig.turn();
    assert_eq!(rig.completions().len(), 2);
    assert_eq!(rig.run(read(3)), Status::SUCCESSFUL_COMPLETION);
    assert_eq!(rig.lane.in_flight(), 0);
}

#[test]
fn a_submission_ring_used_while_absent_is_deleted_as_any() {
    let mut rig = without_rings();
    rig.lane.command(LaneCommand::RemoveQueue { sqid: 1 });
    rig.turn();
    assert_eq!(rig.events(), [LaneEvent::QueueRemoved { sqid: 1 }]);
    rig.lane.command(LaneCommand::Stop);
    assert_eq!(rig.events(), [LaneEvent::Stopped]);
}

#[test]
fn a_completion_ring_used_while_absent_is_lost() {
    let mut rig = rig(Manner::Hanging);
    for cid in 0..3 {
        rig.submit(1, read(cid));
    }
    rig.turn();
    rig.host.unmap_pages(0, DATA);
    rig.map_changed();
    assert_eq!(rig.events(), []);
    rig.medium().release(3);
    rig.turn();
    let fault = LaneFault::RingLost {
        queue: QueueName::Completion(CQID),
    };
    assert_eq!(rig.events()[0], LaneEvent::Fault(fault));
    assert_eq!(rig.lane.in_flight(), 0);
    assert_eq!(rig.turn().fetched, 0);
}

#[test]
fn lists_and_data_without_a_descriptor_are_a_data_transfer_error() {
    let mut host = Host::unmapped(PAGES);
    host.map_pages(0, DATA + 8);
    host.map_without_descriptor(DATA + 8, 8);
    let mut rig = Rig::on(host, 64, &[64], Manner::Synchronous);
    let sqe = read_at(&rig, 1, DATA + 8);
    assert_eq!(rig.run(sqe), Status::DATA_TRANSFER_ERROR);
    // Three pages, so the second entry is a list.
    let mut listed = nvme_spec::Sqe {
        cdw12: 23,
        prp2: rig.host.page(DATA + 9).0,
        ..read(2)
    };
    assert_eq!(rig.run(listed), Status::DATA_TRANSFER_ERROR);
    listed.prp2 = rig.host.page(DATA + 1).0;
    let entries = Iova(listed.prp2);
    rig.host.write_u64(entries, rig.host.page(DATA + 2).0);
    rig.host
        .write_u64(Iova(entries.0 + 8), rig.host.page(DATA + 3).0);
    assert_eq!(rig.run(listed), Status::SUCCESSFUL_COMPLETION);
}
