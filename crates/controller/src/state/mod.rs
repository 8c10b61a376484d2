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
//! 2. `slot.state` = [`CommandState::FETCHED`];
//! 3. `sq.progress`, one word: the count n + 1 and the new head. A slot that is not free and whose
//!    number equals the saved count was fetched: the head goes past it. (The entry's index would
//!    not tell: a command may be in flight while the host uses its entry again.)
//!
//! Completion into completion queue entry j:
//! 1. `slot.error` = its status and `slot.posting` = j, and then `slot.state` =
//!    [`CommandState::POSTING`];
//! 2. the CQE, whose second half carries the phase;
//! 3. `queue.cq_tail`, one word: the next entry and its phase;
//! 4. `slot.state` = [`CommandState::FREE`] or [`CommandState::ZOMBIE`]. A slot found posting with
//!    j equal to the saved tail: the entry is written again, with the same contents, whether it was
//!    there or not. With j before the saved tail: it was posted.
//!
//! `store_fetched` and `store_completion` are steps 1 to 3 of each, for every path.
//!
//! Commands found fetched or in flight are executed again where repetition has the same result
//! ([`crate::lane::Lane::restore`] lists them). The host may not rely on the order of commands that
//! are outstanding together (Base 2.1, 3.3.1.2), so a replay is one of the orders it must expect.
//! Any other command that a medium may have acted on is completed as Command Interrupted, which a
//! host may retry.
//!
//! Abort of a command: see [`AbortState`]. A command with the status Command Abort Requested is not
//! executed again.
//!
//! A restart drops zombie slots: their commands were completed, and the medium's work ended with
//! the process.
//!
//! It does NOT restore anything: [`crate::lane`] does.

mod abort;
mod marks;
mod slot;

use bitfield_struct::bitfield;
pub(crate) use memory::ordered;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(crate) use self::abort::ABORT_LIMIT;
pub use self::abort::AbortState;
pub(crate) use self::marks::MAX_SAMPLES;
pub use self::slot::{CommandState, SlotState};
pub(crate) use self::slot::{Counted, Fetched, Index, store_completion, store_fetched};

/// Version of the layouts below. Version 7 had no numbers of Aborts. Version 6 had no names of
/// commands. Version 5 had no registrations of doorbell buffers. Version 4 had no [`Marks::noted`]
/// either: its bit belonged to the number of a sample.
pub const FORMAT_VERSION: u32 = 8;
/// The first version with [`Marks::noted`].
const NOTED_SINCE: u32 = 5;
/// The first version with names of commands.
pub(crate) const NAMED_SINCE: u32 = 7;
/// The first version with numbers of Aborts.
pub(crate) const NUMBERED_SINCE: u32 = 8;
/// The oldest version that can be continued with.
pub const OLDEST_VERSION: u32 = 4;

/// Brings the slots of an area of this version, not older than [`OLDEST_VERSION`], into the form
/// of [`FORMAT_VERSION`].
pub fn update(version: u32, slots: &mut [SlotState]) {
    if version < NOTED_SINCE {
        for slot in slots {
            slot.update();
        }
    }
}

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

open_enum! {
    /// Whether a submission queue serves.
    pub struct SqLife(u8) {
        /// No such queue.
        NONE = 0;
        /// Serving.
        LIVE = 1;
        /// Being deleted: nothing more is fetched.
        REMOVING = 2;
    }
}

/// Progress of a submission queue.
#[bitfield(u64)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Progress {
    /// The next entry to fetch.
    #[inline]
    pub head: u32,
    /// Commands fetched since the queue was created, modulo 2^32.
    #[inline]
    pub fetched: u32,
}

/// The next entry of a completion queue.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct TailPhase {
    /// Its position.
    #[inline]
    pub tail: u16,
    /// The phase that it gets.
    #[inline]
    pub phase: bool,
    #[bits(15)]
    __: u16,
}

/// What is known of a doorbell since the host registered doorbell buffers (`queue::Doorbell`).
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct BellState {
    /// The shadow's value at that time is known.
    pub known: bool,
    /// It has moved since: the register does not count any more.
    pub moved: bool,
    #[bits(6)]
    __: u8,
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
    /// Commands fetched, and the next entry to fetch.
    pub progress: Progress,
    /// Identifier.
    pub sqid: u16,
    /// Whether it serves.
    pub life: SqLife,
    /// What is known of its doorbell.
    pub bell: BellState,
    /// The shadow's value when it was registered, where that is known.
    pub shadow: u32,
}

/// One completion queue and the submission queues that complete into it. 64 + 64 x 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct QueueState {
    /// Address of the completion ring.
    pub cq_base: u64,
    /// Size of the completion ring.
    pub cq_entries: u32,
    /// The next entry to write.
    pub cq_tail: TailPhase,
    /// The last head that was accepted.
    pub cq_head: u32,
    /// Identifier.
    pub cqid: u16,
    /// Interrupt vector.
    pub vector: u16,
    /// 1 where interrupts are enabled.
    pub ien: u32,
    /// The shadow of its doorbell when that was registered, where that is known.
    pub shadow: u32,
    /// What is known of its doorbell.
    pub bell: BellState,
    /// 0.
    pub reserved_byte: u8,
    /// The slot of the command that is being executed again just now, after a process died by its
    /// own fault.
    pub(crate) trying: Index,
    /// The number of the registration of doorbell buffers that the doorbells are of; 0 without one.
    pub registration: u32,
    /// What was aborted.
    pub aborts: AbortState,
    /// Submission queue `n + 1` at `n`.
    pub sqs: [SqState; MAX_SQS],
}

/// What is saved of a completion queue when it is created, and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueHead {
    /// Address of the ring.
    pub base: u64,
    /// Size of the ring.
    pub entries: u32,
    /// Identifier.
    pub cqid: u16,
    /// Interrupt vector, where interrupts are enabled.
    pub vector: Option<u16>,
}

impl QueueHead {
    /// What was saved.
    pub(crate) fn of(saved: &QueueState) -> Self {
        QueueHead {
            base: saved.cq_base,
            entries: saved.cq_entries,
            cqid: saved.cqid,
            vector: (saved.ien != 0).then_some(saved.vector),
        }
    }

    /// Saves it.
    pub(crate) fn write_to(self, saved: &mut QueueState) {
        saved.cq_base = self.base;
        saved.cq_entries = self.entries;
        saved.cqid = self.cqid;
        saved.vector = self.vector.unwrap_or(0);
        saved.ien = u32::from(self.vector.is_some());
    }
}

const _: () = assert!(size_of::<SqState>() == 32);
const _: () = assert!(size_of::<QueueState>() == 64 + 32 * MAX_SQS);
