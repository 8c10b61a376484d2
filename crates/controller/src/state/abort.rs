//! The answers of Aborts, in a lane's area: an Abort and its command agree after any death.
//!
//! The controller saves an Abort with its number before the lane has it. The lane aborts a command
//! in this order:
//! 1. the Abort's number and then the command's slot: from here on the command is aborted;
//! 2. the command's status, Command Abort Requested;
//! 3. the number among the answers; then no slot any more.
//!
//! The command completes after that, perhaps when its tickets have come back. A process that
//! continues finishes the steps, ends a command with that status, and gives the same answer to an
//! Abort of the same number.
//!
//! Invariant: a number is used once. Its lowest bits are its place among the answers, which no
//! other outstanding Abort has.

use nvme_spec::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Index, SlotState, ordered};

/// Aborts of a controller that may be outstanding: ACL + 1.
pub(crate) const ABORT_LIMIT: usize = 4;

/// What a lane has aborted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct AbortState {
    /// The last Abort of each place that has aborted its command; 0 for none.
    numbers: [u32; ABORT_LIMIT],
    /// The Abort whose command is in `slot`.
    number: u32,
    /// The command that is being aborted.
    slot: Index,
    /// 0.
    reserved: u16,
}

impl AbortState {
    /// The number of the Abort after `count` others, with one of [`ABORT_LIMIT`] places.
    pub(crate) fn number(count: u32, place: usize) -> u32 {
        debug_assert!(place < ABORT_LIMIT, "there is no such place");
        // 0 is no number.
        let count = (count % (u32::MAX / ABORT_LIMIT as u32)) + 1;
        count * ABORT_LIMIT as u32 + place as u32
    }

    /// The place of a number.
    pub(crate) fn place(number: u32) -> usize {
        number as usize % ABORT_LIMIT
    }

    /// Whether the Abort with this number has aborted its command.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.numbers[Self::place(number)] == number
    }

    /// The Abort with this number aborts the command in the slot `index`.
    pub(crate) fn store(&mut self, number: u32, index: u16, slot: &mut SlotState) {
        self.number = number;
        ordered();
        self.slot = Index::to(index);
        ordered();
        self.finish(slot);
    }

    /// The slot whose command was being aborted when the process died.
    pub(crate) fn begun(&self) -> Option<u16> {
        self.slot.get()
    }

    /// Steps 2 and 3, of the command in that slot.
    pub(crate) fn finish(&mut self, slot: &mut SlotState) {
        slot.error = Status::COMMAND_ABORT_REQUESTED;
        ordered();
        self.numbers[Self::place(self.number)] = self.number;
        ordered();
        self.slot = Index::NONE;
        ordered();
    }
}

const _: () = assert!(size_of::<AbortState>() == 24);
