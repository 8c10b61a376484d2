//! Lane state that must outlive the serving process, and the order in which it is written.
//!
//! A lane keeps its queue positions ([`QueueState`]) and one [`SlotState`] per command it holds in
//! an area of a versioned memory file (`memory::StateFile`; area 0 belongs to the controller, area
//! 1 + cqid to the lane of that completion queue). A restarted worker reads them and continues. A
//! process may die between any two instructions, so the order of the program's stores is what
//! counts; `ordered` keeps the compiler from changing it.
//!
//! Fetch of the command number n of a submission queue, counted from its creation:
//! 1. `slot.sqe` and everything else of the slot, with `slot.number` = n;
//! 2. `slot.state` = [`slot_state::FETCHED`];
//! 3. `sq.fetched`, one word: the count n + 1 and the new head. A slot that is not free and whose
//!    number equals the saved count was fetched: the head goes past it. (The entry's index would
//!    not tell: a command may be in flight while the host uses its entry again.)
//!
//! Completion into completion queue entry j:
//! 1. `slot.posting` = j and `slot.state` = [`slot_state::POSTING`];
//! 2. the CQE, whose second half carries the phase;
//! 3. `queue.cq_tail_phase`, one word;
//! 4. `slot.state` = [`slot_state::FREE`]. A slot found posting with j equal to the saved tail: the
//!    entry is written again, with the same contents, whether it was there or not. With j before
//!    the saved tail: it was posted.
//!
//! Commands found fetched or in flight are executed again, for these opcodes, where repetition has
//! the same result: Read, Write, Flush, Write Zeroes, Compare, Dataset Management, Verify, Copy
//! (from its first step). The host may not rely on the order of commands that are outstanding
//! together (Base 2.1, 3.3.1.2), so a replay is one of the orders it must expect. Any other opcode
//! (one that appends, say) is completed as Command Abort Requested instead, and so are fused
//! commands: the compared block may have been written already.
//!
//! A restart drops zombie slots: their commands were completed, and the medium's work ended with
//! the process.
//!
//! This does NOT restore anything yet; it is the layout and the discipline that restoring builds
//! on.

use std::sync::atomic::{Ordering, compiler_fence};

use nvme_spec::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the layouts below.
pub const FORMAT_VERSION: u32 = 2;

/// Most submission queues of a controller, all of which may complete into one completion queue.
pub const MAX_SQS: usize = 64;

/// Slots beyond those that the completion queue can have outstanding: for commands that were given
/// up and whose tickets are still with a medium.
pub const ZOMBIE_SLOTS: usize = 256;

/// Slots of the lane of a completion queue with `entries` entries.
#[must_use]
pub const fn slots_for(entries: u32) -> usize {
    let wanted = entries as usize + ZOMBIE_SLOTS - 1;
    // A ticket numbers slots with 16 bits.
    if wanted > u16::MAX as usize {
        u16::MAX as usize
    } else {
        wanted
    }
}

/// Bytes of the state area of that lane.
#[must_use]
pub const fn area_bytes(entries: u32) -> usize {
    size_of::<QueueState>() + slots_for(entries) * size_of::<SlotState>()
}

/// Values of [`SlotState::state`].
pub mod slot_state {
    /// Holds no command. Zeroed memory is a table of free slots.
    pub const FREE: u8 = 0;
    /// Fetched, and not (wholly) issued to a medium.
    pub const FETCHED: u8 = 1;
    /// With a medium.
    pub const IN_FLIGHT: u8 = 2;
    /// Given up: completed for the host, while a medium still holds a ticket.
    pub const ZOMBIE: u8 = 3;
    /// Its completion is being written.
    pub const POSTING: u8 = 4;
    /// With a medium, together with the second of two fused commands, which is fetched.
    pub const FUSED: u8 = 6;
    /// With a medium, which is at one of several steps (Verify, Copy). Between two steps it is
    /// fetched.
    pub const STEPPING: u8 = 5;
}

/// Values of [`SqState::state`].
pub mod sq_state {
    /// No such queue.
    pub const NONE: u16 = 0;
    /// Serving.
    pub const LIVE: u16 = 1;
    /// Being deleted: nothing more is fetched.
    pub const REMOVING: u16 = 2;
}

/// One submission queue. 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SqState {
    /// Address of the ring.
    pub base: u64,
    /// Size of the ring.
    pub entries: u32,
    /// The last tail that was accepted.
    pub tail: u32,
    /// Commands fetched since the queue was created, modulo 2^32, in the upper half; the next entry
    /// to fetch in the lower.
    pub fetched: u64,
    /// Identifier.
    pub sqid: u16,
    /// One of [`sq_state`].
    pub state: u16,
    /// 0.
    pub reserved: u32,
}

/// One completion queue and the submission queues that complete into it. 64 + 64 x 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct QueueState {
    /// Address of the completion ring.
    pub cq_base: u64,
    /// Size of the completion ring.
    pub cq_entries: u32,
    /// The next entry to write, times two, plus the phase it gets.
    pub cq_tail_phase: u32,
    /// The last head that was accepted.
    pub cq_head: u32,
    /// Identifier.
    pub cqid: u16,
    /// Interrupt vector.
    pub vector: u16,
    /// 1 where interrupts are enabled.
    pub ien: u32,
    /// 0.
    pub reserved: [u32; 9],
    /// Submission queue `n + 1` at `n`.
    pub sqs: [SqState; MAX_SQS],
}

/// One command. 128 bytes, two cache lines.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SlotState {
    /// The submission queue entry as it was fetched.
    pub sqe: [u64; 8],
    /// Epoch of the memory view it was issued with.
    pub epoch: u64,
    /// Commands fetched from its queue before this one, modulo 2^32.
    pub number: u32,
    /// The completion queue entry being written. Before that, when it was fetched
    /// ([`crate::inspect`]), which means nothing to a restart.
    pub posting: u32,
    /// Submission queue identifier.
    pub sqid: u16,
    /// Command identifier.
    pub cid: u16,
    /// Counts the commands this slot has held, so that a late ticket is recognised.
    pub generation: u16,
    /// One of [`slot_state`].
    pub state: u8,
    /// The group in which the lane counts this command among those in flight.
    pub(crate) epoch_index: u8,
    /// Tickets out.
    pub(crate) outstanding: u16,
    /// First error of a command that went to several media: a status field, 0 for none.
    pub(crate) error: u16,
    /// A command of several requests: how far they were added.
    pub(crate) reached: u32,
    /// Bytes moved, for the counters.
    pub(crate) bytes: u32,
    /// Work at its completion. Bit 0: it writes to blocks that are marked as uncorrectable; success
    /// clears the marks. Above bit 15: it is sampled (`lane::watch`).
    pub(crate) marks: u32,
    /// Dwords 0 and 1 of its completion.
    pub result: u64,
    /// When a medium got it, for its gate. A restart ignores it, and the fields after it.
    pub(crate) since: u64,
    /// Bytes that its gate has counted.
    pub(crate) charged: u32,
    /// The flow that its gate counts it in, and one; 0 where no medium has it, or no gate cares.
    pub(crate) flow: u16,
    /// The slot of the command that waits behind it.
    pub(crate) behind: u16,
}

impl SlotState {
    /// Keeps the first error.
    #[inline]
    pub(crate) fn note(&mut self, status: Status) {
        if self.error == Status::SUCCESSFUL_COMPLETION.0 {
            self.error = status.0;
        }
    }
}

const _: () = assert!(size_of::<SqState>() == 32);
const _: () = assert!(size_of::<QueueState>() == 64 + 32 * MAX_SQS);
const _: () = assert!(size_of::<SlotState>() == 128);

/// Stores before this are before stores after it, as a process that is killed leaves them. No
/// instruction: the processor keeps its own program order for memory that outlives the process.
#[inline(always)]
pub(crate) fn ordered() {
    compiler_fence(Ordering::SeqCst);
}
