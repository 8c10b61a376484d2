//! State that a controller's process leaves when it dies: at every ordered store of a few admin
//! commands, the state before a command or the one after it, and no mixture.

use nvme_spec::Sqe;
use port::testing::Seen;

use super::rig::*;
use crate::crash::{self, Death};

const COALESCING: u32 = 0x08;

/// Commands of the script: each but the first ones stores its number as a feature.
const SETS: u32 = 4;

/// Creates a pair of queues, then sets a feature to 1, 2, ..., then deletes the pair.
fn play(rig: &mut Rig) {
    rig.create_pair(3, 8);
    for value in 1..=SETS {
        rig.set_feature(COALESCING, value);
    }
    rig.delete_sq(3);
    rig.delete_cq(3);
}

/// The entries of the admin completion queue that the host sees.
fn posted(rig: &mut Rig) -> u32 {
    while rig.reap().is_some() {}
    rig.cq_head
}

/// The commands of the script that the saved state has, as a number; checks that all of it is of
/// the same command.
fn check(rig: &mut Rig) -> u32 {
    let (state, admin) = (rig.controller.saved_state(), rig.controller.saved_admin());
    let done = admin.sq_head;
    let coalescing = match done {
        ..2 => 0,
        2.. => (done - 2).min(SETS),
    };
    assert_eq!(state.features.coalescing, coalescing, "after {done}");
    let last = SETS + 2;
    // The lane of a queue that is being deleted answers first: then the command waits.
    let waits = admin.waiting == 1;
    let has_cq = (1..=last + 1).contains(&done) || done == last + 2 && waits;
    let waiting = rig.controller.saved_waiting();
    if waits {
        let opcode = (waiting.sqe_begin[0] & 0xFF) as u8;
        assert!([0x00, 0x04].contains(&opcode), "opcode {opcode:#x} waits");
        assert_eq!(
            (waiting.cid, waiting.qid),
            ((waiting.sqe_begin[0] >> 16) as u16, 3)
        );
    }
    assert_eq!(
        state.cqs,
        if has_cq { 1 << 2 } else { 0 },
        "after {done}, {waits}"
    );
    let has_sq = (2..=last).contains(&done) || done == last + 1 && waits;
    assert_eq!(
        state.sq_cqids[2],
        if has_sq { 3 } else { 0 },
        "after {done}, {waits}"
    );
    // The completion of the last command is being posted or was posted, unless that waits.
    let completions = done - u32::from(waits);
    let tail = u32::from(admin.cq_tail.tail());
    let unposted = u32::from(admin.cq_tail.posting());
    assert_eq!(tail + unposted, completions, "after {done}, {waits}");
    let seen = posted(rig);
    assert!(
        (tail..=tail + unposted).contains(&seen),
        "{seen} posted after {done}"
    );
    done
}

#[test]
fn the_state_is_of_one_moment_wherever_the_process_dies() {
    let mut found = std::collections::BTreeSet::new();
    for point in 0.. {
        let mut rig = Rig::enabled();
        let died = crash::run(point, || play(&mut rig));
        found.insert(check(&mut rig));
        if died != Err(Death) {
            assert!(point > 40, "{point} points");
            break;
        }
    }
    assert_eq!(found, (0..=SETS + 4).collect());
}

#[test]
fn a_write_of_a_controller_that_is_being_reset_is_executed_again() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).capacity = 0;
    let write = Sqe {
        opcode: 0x01,
        ..rig.read_sqe(7, 1)
    };
    rig.submit_io(1, 0, write);
    rig.turns(3);
    rig.write32(CC, CC_ENABLE & !1);
    // The process before may have written half of a block.
    rig.revive();
    rig.turns(1);
    assert_eq!(rig.csts() & RDY, RDY, "the lane has not stopped");
    rig.turns(6);
    let writes = |seen: &&Seen| matches!(seen, Seen::Write(..));
    assert_eq!(rig.medium(0).seen.iter().filter(writes).count(), 1);
    assert_eq!((rig.csts() & (RDY | CFS), rig.lanes.live()), (0, 0));
    assert_eq!(rig.io_cqe(1, 0), None, "the host expects no answer");
    rig.enable();
}

#[test]
fn a_reset_ends_where_the_queues_cannot_be_reached_any_more() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.write32(CC, CC_ENABLE & !1);
    rig.host.unmap_pages(0, PAGES);
    rig.revive();
    rig.turns(6);
    assert_eq!((rig.csts() & (RDY | CFS), rig.lanes.live()), (0, 0));
}
