//! Media that hang: what they may still have is not used again.

use std::time::Duration;

use nvme_spec::Status;
use nvme_spec::opcode::{AdminOpcode, NvmOpcode};
use zerocopy::IntoBytes as _;

use super::host::{Connect, Host, Manner, Peer, in_capsule, pattern};
use super::rig::{Rig, config};

const GOOD: Status = Status::SUCCESSFUL_COMPLETION;

/// A target with this many large slots.
fn rig_with_slots(slots: u64) -> Rig {
    let mut target = config();
    target.slots = slots * u64::from(target.max_transfer);
    Rig::with(target)
}

/// Turns, over the time after which the controller gives up.
fn wait(rig: &mut Rig) {
    for _ in 0..12 {
        rig.settle();
        rig.advance(Duration::from_millis(500));
    }
    rig.settle();
}

fn lost(rig: &Rig) -> u64 {
    rig.association.as_ref().unwrap().counters().lost
}

/// A write of 100 blocks that the medium has.
fn stall_write(rig: &mut Rig, host: &mut Host, queue: usize) {
    let data = pattern(100 * 512, 1);
    let sqe = host.blocks(NvmOpcode::WRITE, 0, 100);
    let io = &mut host.io[queue];
    io.send_capsule(&sqe, &[]);
    io.pump(rig);
    let r2t = io.r2ts.pop_front().expect("an R2T");
    rig.stall(true);
    io.answer(&r2t, &data);
    io.pump(rig);
    assert!(io.responses.is_empty(), "the medium stalls");
}

fn again(rig: &mut Rig, host: &Host, qid: u16) -> Peer {
    let (peer, cqe) = Connect::new(qid, 32, host.cntlid).peer(rig, host.offer);
    assert_eq!(cqe.status.status(), GOOD);
    peer
}

/// How many large writes get an R2T at a time.
fn r2ts(rig: &mut Rig, host: &mut Host, queue: usize) -> usize {
    for _ in 0..4 {
        let sqe = host.blocks(NvmOpcode::WRITE, 0, 100);
        host.io[queue].send_capsule(&sqe, &[]);
    }
    host.io[queue].pump(rig);
    host.io[queue].r2ts.len()
}

#[test]
fn a_large_slot_of_a_command_that_hangs_is_not_used_again() {
    for resets in [false, true] {
        let mut rig = rig_with_slots(3);
        let mut host = Host::new(&mut rig, 1, Manner::default());
        stall_write(&mut rig, &mut host, 0);
        if resets {
            assert_eq!(host.set(&mut rig, 0x14, 0x46_0060), GOOD);
        }
        host.io.clear();
        wait(&mut rig);
        assert_eq!(lost(&rig), 1, "given up");
        if resets {
            host.enable(&mut rig);
        }
        let peer = again(&mut rig, &host, 1);
        host.io.push(peer);
        assert_eq!(
            r2ts(&mut rig, &mut host, 0),
            2,
            "one of three is out of use"
        );
    }
}

#[test]
fn a_large_slot_of_a_command_that_ends_in_time_is_used_again() {
    for resets in [false, true] {
        let mut rig = rig_with_slots(3);
        let mut host = Host::new(&mut rig, 1, Manner::default());
        stall_write(&mut rig, &mut host, 0);
        if resets {
            assert_eq!(host.set(&mut rig, 0x14, 0x46_0060), GOOD);
        }
        host.io.clear();
        rig.settle();
        rig.stall(false);
        wait(&mut rig);
        assert_eq!(lost(&rig), 0);
        if resets {
            host.enable(&mut rig);
        }
        let peer = again(&mut rig, &host, 1);
        host.io.push(peer);
        assert_eq!(r2ts(&mut rig, &mut host, 0), 3);
    }
}

#[test]
fn a_queue_that_is_gone_has_no_doorbell() {
    let mut rig = rig_with_slots(1);
    let manner = Manner {
        entries: 4,
        ..Manner::default()
    };
    let mut host = Host::new(&mut rig, 1, manner);
    let event = host.command(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, 0);
    host.admin.send_capsule(&event, &[]);
    rig.stall(true);
    for _ in 0..4 {
        let sqe = host.blocks(NvmOpcode::READ, 0, 1);
        host.io[0].send_capsule(&sqe, &[]);
    }
    host.io[0].pump(&mut rig);
    host.io.clear();
    rig.settle();
    rig.stall(false);
    // The submission queue is gone when its last completions are taken.
    for _ in 0..8 {
        rig.turn_controller();
    }
    host.admin.pump(&mut rig);
    assert_eq!(rig.association.as_ref().unwrap().queues(), 0);
    assert!(host.admin.responses.is_empty(), "no invalid doorbell");
}

#[test]
fn an_association_ends_whose_large_slots_all_hang() {
    let mut rig = rig_with_slots(1);
    let mut host = Host::new(&mut rig, 1, Manner::default());
    stall_write(&mut rig, &mut host, 0);
    host.io.clear();
    wait(&mut rig);
    assert_eq!(rig.ends, ["medium-hangs"]);
}

#[test]
fn small_slots_of_commands_that_hang_are_not_used_again() {
    let mut rig = rig_with_slots(3);
    let mut host = Host::new(&mut rig, 2, Manner::default());
    rig.stall(true);
    let mut sqe = host.blocks(NvmOpcode::WRITE, 0, 8);
    in_capsule(&mut sqe, 4096);
    host.io[0].send_capsule(&sqe, &pattern(4096, 1));
    host.io[0].pump(&mut rig);
    host.io.remove(0);
    wait(&mut rig);
    assert_eq!(lost(&rig), 1);
    rig.stall(false);
    // The memory has room for four queues, and one of the places is out of use.
    for qid in [1, 3] {
        let peer = again(&mut rig, &host, qid);
        host.io.push(peer);
    }
    let connect = Connect::new(4, 32, host.cntlid);
    let mut peer = Peer::new(rig.connect(), host.offer);
    peer.icreq();
    peer.pump(&mut rig);
    peer.send_capsule(&connect.sqe, connect.data.as_bytes());
    peer.pump(&mut rig);
    assert!(peer.closed && peer.responses.is_empty());
    for queue in 0..3 {
        let data = pattern(4096, queue as u8);
        assert_eq!(host.write(&mut rig, queue, 0, &data), GOOD);
        assert!(host.read(&mut rig, queue, 0, 8) == data);
    }
}

#[test]
fn entries_of_commands_that_hang_are_not_used_again() {
    let mut rig = rig_with_slots(3);
    let manner = Manner {
        entries: 4,
        ..Manner::default()
    };
    let mut host = Host::new(&mut rig, 1, manner);
    rig.stall(true);
    for _ in 0..4 {
        let sqe = host.blocks(NvmOpcode::READ, 0, 1);
        host.io[0].send_capsule(&sqe, &[]);
    }
    host.io[0].pump(&mut rig);
    // As when memory is unmapped, or a namespace goes, and the medium hangs.
    rig.with_controller(|controller| controller.abandon(u64::MAX));
    host.io[0].pump(&mut rig);
    let ends: Vec<_> = host.io[0]
        .responses
        .drain(..)
        .map(|cqe| cqe.status.status())
        .collect();
    assert_eq!(ends, [Status::COMMAND_ABORT_REQUESTED; 4]);
    assert_eq!(lost(&rig), 4);
    let sqe = host.blocks(NvmOpcode::READ, 0, 1);
    host.io[0].send_capsule(&sqe, &[]);
    host.io[0].pump(&mut rig);
    assert!(host.io[0].closed);
    let ended = rig.association.as_ref().unwrap().counters().ended;
    assert_eq!(ended.keys().collect::<Vec<_>>(), [&"medium-hangs"]);
}

/// Each command comes with what ends its queue: it is stored, and the controller does not see it.
#[test]
fn slots_of_commands_that_no_controller_saw_are_used_again() {
    let mut rig = rig_with_slots(3);
    let mut host = Host::new(&mut rig, 1, Manner::default());
    // The memory has room for four queues.
    for _ in 0..6 {
        let sqe = host.blocks(NvmOpcode::READ, 0, 8);
        let mut write = host.blocks(NvmOpcode::WRITE, 0, 8);
        in_capsule(&mut write, 4096);
        host.io[0].send_capsule(&sqe, &[]);
        host.io[0].send_capsule(&write, &pattern(4096, 1));
        host.io[0].send(&[0xff; 24]);
        host.io[0].pump(&mut rig);
        assert!(host.io[0].closed);
        host.io[0] = again(&mut rig, &host, 1);
    }
    assert_eq!(lost(&rig), 0);
    assert!(
        host.read(&mut rig, 0, 0, 8) == [0; 4096],
        "it was not written"
    );
}
