//! Events that wait for an operation of a die: the end of a command, or bytes that return to the
//! buffer.
//!
//! The caller schedules such an event at the current end of the operation. A suspension
//! ([`Dies::moved`]) makes the operation end later; [`postpone`] moves the events accordingly.
//!
//! Not included: the decision to suspend, which the dies make.

use super::{Buffer, Dies, Waiting};
use crate::pending::Pending;

/// Returns bytes to a pool of the buffer when the last operation of a die ends, currently at `end`.
pub(crate) fn give_back(
    buffer: &mut Buffer,
    dies: &mut Dies,
    die: usize,
    end: u64,
    (pool, bytes): (usize, u64),
) {
    if dies.are_suspended() && bytes > 0 {
        let slot = buffer.give_back_moving(end, pool, bytes);
        dies.wait(die, Waiting::Bytes(slot));
    } else {
        buffer.give_back(end, pool, bytes);
    }
}

/// Postpones everything that waits for suspended operations.
pub(crate) fn postpone(dies: &mut Dies, pending: &mut Pending, buffer: &mut Buffer) {
    for (waiting, until) in dies.moved() {
        match waiting {
            Waiting::Command(slot) => pending.postpone(slot, until),
            Waiting::Bytes(slot) => buffer.postpone(slot, until),
        }
    }
}
