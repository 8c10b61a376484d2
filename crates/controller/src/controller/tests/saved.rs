//! State that a controller's process leaves when it dies: at every ordered store of a few admin
//! commands, the state before a command or the one after it, and no mixture.

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
