//! The state of one command, and the two orders in which it is stored.
//!
//! Invariants:
//! - A field has one meaning, in every state. The two whose value depends on [`Marks::noted`] have
//!   types that keep the two values apart ([`super::marks`]). All fields are zero in a new area: a
//!   free slot.
//! - Only [`store_fetched`], [`store_completion`] and [`SlotState::release`] store what a restart
//!   decides by; the straight path and the general path both call them.
//!
//! It does NOT know where a command is in its lane, or when its state changes: [`crate::lane`]
//! does.

use bitfield_struct::bitfield;
use nvme_spec::{Sqe, Status};
use port::Outcome;
use port::time::Time;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::marks::{Marks, Note, ResultOrNote, TimeOrName};
use super::{Progress, SqState, TailPhase, ordered};

open_enum! {
    /// What a slot holds.
    pub struct CommandState(u8) {
        /// No command. Zeroed memory is a table of free slots.
        FREE = 0;
        /// A command that was fetched, and not (wholly) issued to a medium.
        FETCHED = 1;
        /// A command that a medium or the subsystem has.
        IN_FLIGHT = 2;
        /// A command that was aborted: completed for the host, while a ticket is still out.
        ZOMBIE = 3;
        /// A command whose completion is being written.
        POSTING = 4;
        /// A command whose medium is at one of its several steps (Verify, Copy). Between two steps
        /// it is fetched.
        STEPPING = 5;
        /// The first of two fused commands that a medium has. The second one is fetched.
        FUSED = 6;
    }
}

impl CommandState {
    /// Whether an entry of the completion queue is reserved for the command.
    #[inline(always)]
    pub(crate) fn has_reservation(self) -> bool {
        matches!(
            self,
            Self::FETCHED | Self::IN_FLIGHT | Self::STEPPING | Self::FUSED
        )
    }
}

/// The number of a slot or a flow, or none: 0 is none, and above it is the number plus one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Index(u16);

impl Index {
    pub(crate) const NONE: Self = Self(0);

    /// The number `index`, which is below 65,535.
    #[inline(always)]
    pub(crate) fn to(index: u16) -> Self {
        debug_assert!(index < u16::MAX, "the number 65,535 cannot be stored");
        Self(index.wrapping_add(1))
    }

    #[inline(always)]
    pub(crate) fn get(self) -> Option<u16> {
        self.0.checked_sub(1)
    }
}

/// Where a lane counts a command among those in flight.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Counted {
    /// It is in flight.
    #[inline]
    pub in_flight: bool,
    /// The subsystem has it, which no epoch waits for: the command may itself wait for every
    /// command that was issued before.
    #[inline]
    pub in_subsystem: bool,
    /// Otherwise, its group (`lane::epochs`).
    #[bits(3)]
    #[inline]
    pub group: u8,
    #[bits(3)]
    __: u8,
}

/// One command. 128 bytes, two cache lines.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SlotState {
    /// The submission queue entry as it was fetched.
    sqe: [u64; 8],
    /// Epoch of the memory view it was issued with, of a command that is counted in a group.
    pub(crate) epoch: u64,
    /// Commands fetched from its queue before this one, modulo 2^32.
    number: u32,
    /// Beginning of the turn that fetched it, in the ticks of [`crate::inspect`]. A restart ignores
    /// it.
    tick: u32,
    /// Submission queue identifier.
    sqid: u16,
    /// The completion queue entry that is being written.
    posting: u16,
    /// Counts the commands this slot has held, so that a late ticket is recognised.
    generation: u16,
    state: CommandState,
    pub(crate) counted: Counted,
    /// Tickets out.
    pub(crate) outstanding: u16,
    /// The status that it will have as far as is known: the first error of its requests.
    pub(crate) error: Status,
    /// Last namespace whose medium was requested to flush by a command of several requests; 0 for
    /// none.
    pub(crate) flushed: u32,
    /// Bytes moved, for the counters.
    pub(crate) bytes: u32,
    pub(crate) marks: Marks,
    /// The slot of the second command, where this is the first one of a fused pair that was
    /// fetched.
    pub(crate) partner: Index,
    result: ResultOrNote,
    /// A restart ignores the time in it, and the fields after it.
    since: TimeOrName,
    /// Bytes that its gate has counted.
    pub(crate) charged: u32,
    /// The flow that its gate counts it in while a medium has it.
    pub(crate) flow: Index,
    /// The slot of the next command in the list of those that wait for their flow's turn.
    pub(crate) behind: Index,
}

const _: () = assert!(size_of::<SlotState>() == 128);

/// A command as it comes from its submission queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetched {
    /// Its entry.
    pub words: [u64; 8],
    /// Commands fetched from its queue before this one, modulo 2^32.
    pub number: u32,
    /// Its queue.
    pub sqid: u16,
    /// The progress of its queue from now on.
    pub progress: Progress,
}

/// Stores a command that was fetched at `tick`: steps 1 to 3 of a fetch in [`crate::state`], in
/// their order.
#[inline(always)]
pub(crate) fn store_fetched(
    slot: &mut SlotState,
    saved: &mut SqState,
    fetched: &Fetched,
    tick: u32,
) {
    slot.hold(fetched, tick);
    ordered();
    slot.state = CommandState::FETCHED;
    ordered();
    saved.progress = fetched.progress;
}

/// Stores the completion of a command into the entry `entry`, which `post` writes: steps 1 to 3 of
/// a completion in [`crate::state`], in their order. `after` is the tail from then on. Step 4 is
/// the caller's: the slot becomes free ([`SlotState::release`]) or a zombie.
#[inline(always)]
pub(crate) fn store_completion<T>(
    slot: &mut SlotState,
    saved: &mut TailPhase,
    (entry, after): (u16, TailPhase),
    post: impl FnOnce() -> T,
) -> T {
    slot.posting = entry;
    ordered();
    slot.state = CommandState::POSTING;
    ordered();
    let posted = post();
    ordered();
    *saved = after;
    ordered();
    posted
}

impl SlotState {
    /// Stores a fetched command. It becomes valid with the state that is stored after it.
    #[inline(always)]
    fn hold(&mut self, fetched: &Fetched, tick: u32) {
        self.sqe = fetched.words;
        self.number = fetched.number;
        self.tick = tick;
        self.sqid = fetched.sqid;
        self.counted = const { Counted::new() };
        self.outstanding = 0;
        self.error = Status::SUCCESSFUL_COMPLETION;
        self.flushed = 0;
        self.bytes = 0;
        self.marks = const { Marks::new() };
        self.partner = Index::NONE;
        self.result = ResultOrNote::NONE;
    }

    /// Forgets what only the process that died could use: its tickets, samples and gates.
    pub(crate) fn outlive(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.counted = Counted::new();
        self.outstanding = 0;
        self.marks.set_sample(None);
        (self.flow, self.behind) = (Index::NONE, Index::NONE);
    }

    /// The command, which has not completed, is as if it had just been fetched, with the note of
    /// its medium; `suspected` as in [`Marks`].
    pub(crate) fn begin_again(&mut self, suspected: bool) {
        let noted = self.marks.noted();
        self.error = Status::SUCCESSFUL_COMPLETION;
        self.flushed = 0;
        self.bytes = 0;
        self.marks = Marks::new().with_suspected(suspected).with_noted(noted);
        self.partner = Index::NONE;
        if !noted {
            self.result = ResultOrNote::NONE;
        }
        ordered();
        self.state = CommandState::FETCHED;
    }

    /// Stores the note of a medium that is about to act on the command.
    pub(crate) fn take_note(&mut self, note: u64) {
        self.result = ResultOrNote::of_note(note);
        ordered();
        self.marks.set_noted(true);
        ordered();
    }

    /// The name of a command that is about to be handed to the subsystem: `next`, or the one that
    /// it had when it was handed over before.
    pub(crate) fn name(&mut self, next: &mut u64) -> u64 {
        if let Some(name) = self.known_name() {
            return name;
        }
        let name = *next;
        *next = name.wrapping_add(1);
        self.since = TimeOrName::of_name(name);
        ordered();
        self.marks.set_noted(true);
        ordered();
        name
    }

    /// The name of a command that was handed to the subsystem, if it has one.
    pub(crate) fn known_name(&self) -> Option<u64> {
        self.since.name(self.marks)
    }

    /// The note of its medium, if it has one.
    #[inline]
    pub(crate) fn medium_note(&self) -> Option<Note> {
        self.result.note(self.marks)
    }

    /// Dwords 0 and 1 of its completion, the first one in the lower half.
    #[inline(always)]
    pub(crate) fn result(&self) -> u64 {
        self.result.result()
    }

    /// Stores dwords 0 and 1 of its completion.
    #[inline(always)]
    pub(crate) fn set_result(&mut self, result: u64) {
        self.result = ResultOrNote::of_result(result);
    }

    /// Stores the result of a medium, which may say that the note is none.
    #[inline(always)]
    pub(crate) fn take_result(&mut self, result: u64) {
        self.result = if result == Outcome::NO_RESULT {
            ResultOrNote::NONE
        } else {
            ResultOrNote::of_result(result)
        };
    }

    /// Time at which a medium got it. Only of a command that has a flow.
    #[inline(always)]
    pub(crate) fn since(&self) -> Time {
        self.since.time()
    }

    /// A medium has it since then.
    #[inline(always)]
    pub(crate) fn set_since(&mut self, since: Time) {
        self.since = TimeOrName::of_time(since);
    }

    /// Brings a slot of version 4 into the form of version 5.
    pub(super) fn update(&mut self) {
        self.marks.set_noted(false);
    }

    /// The medium has not acted on the command. The mark is cleared first: a note that is found is
    /// the medium's.
    pub(crate) fn drop_note(&mut self) {
        self.marks.set_noted(false);
        ordered();
        self.result = ResultOrNote::NONE;
    }

    /// The completion queue entry that is being written.
    pub(crate) fn posting(&self) -> u16 {
        self.posting
    }

    /// Is free for another command; tickets of this one are recognised as late from now on.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.state = CommandState::FREE;
        self.generation = self.generation.wrapping_add(1);
    }

    /// What the slot holds.
    #[inline(always)]
    #[must_use]
    pub fn state(&self) -> CommandState {
        self.state
    }

    /// The command is in another state from now on, neither free nor being posted.
    #[inline(always)]
    pub(crate) fn set_state(&mut self, state: CommandState) {
        debug_assert!(
            state.has_reservation() || state == CommandState::ZOMBIE,
            "{state:?} has a function of its own"
        );
        self.state = state;
    }

    /// The submission queue entry as it was fetched.
    #[inline]
    #[must_use]
    pub fn sqe(&self) -> Sqe {
        Sqe::from_words(self.sqe)
    }

    /// Opcode of the command (Base 2.1, figure 92: byte 0 of its entry).
    #[inline]
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.sqe[0] as u8
    }

    /// Command identifier (bytes 2 and 3).
    #[inline]
    #[must_use]
    pub fn cid(&self) -> u16 {
        (self.sqe[0] >> 16) as u16
    }

    /// The namespace that the command names (bytes 4 to 7).
    #[inline]
    #[must_use]
    pub fn nsid(&self) -> u32 {
        (self.sqe[0] >> 32) as u32
    }

    /// Its submission queue.
    #[inline]
    #[must_use]
    pub fn sqid(&self) -> u16 {
        self.sqid
    }

    /// Commands fetched from its queue before this one, modulo 2^32.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Beginning of the turn that fetched it, in the ticks of [`crate::inspect`].
    #[must_use]
    pub fn tick(&self) -> u32 {
        self.tick
    }

    /// Counts the commands this slot has held.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u16 {
        self.generation
    }

    /// A slot in this state.
    #[cfg(test)]
    pub(crate) fn in_state(state: CommandState) -> Self {
        SlotState {
            state,
            ..zerocopy::FromZeros::new_zeroed()
        }
    }

    /// Keeps the first error.
    #[inline]
    pub(crate) fn note(&mut self, status: Status) {
        if self.error.is_success() {
            self.error = status;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use memory::{Area, StateFile};

    use super::*;
    use crate::crash;
    use crate::state::{FORMAT_VERSION, QueueState, area_bytes, slots_for};

    /// Byte by byte what a process that dies now leaves in the file: the area begins behind the
    /// header's page, and its slots behind the queues' positions.
    fn left_behind(file: &StateFile) -> (QueueState, SlotState) {
        let file = File::from(file.fd().try_clone_to_owned().unwrap());
        let mut bytes = vec![0; area_bytes(2)];
        file.read_exact_at(&mut bytes, 4096).unwrap();
        let (queue, slots) = QueueState::read_from_prefix(&bytes).unwrap();
        (queue, SlotState::read_from_prefix(slots).unwrap().0)
    }

    fn area() -> (std::sync::Arc<StateFile>, Area<QueueState, SlotState>) {
        let file = StateFile::create("test", FORMAT_VERSION, &[area_bytes(2)]).unwrap();
        let area = file.take(0, slots_for(2)).unwrap();
        (file, area)
    }

    #[test]
    fn a_note_that_is_found_is_the_medium_s() {
        let mut slot = SlotState::in_state(CommandState::FETCHED);
        slot.take_note(9);
        assert_eq!(
            (slot.medium_note().map(Note::get), slot.result()),
            (Some(9), 9)
        );
        let died = crash::run(0, || slot.drop_note());
        assert_eq!(died, Err(crash::Death));
        assert_eq!(slot.medium_note(), None);
        assert_eq!(slot.result(), 9, "the mark goes first");
    }

    #[test]
    fn a_restart_knows_of_a_completion_whether_it_was_posted() {
        let (file, mut area) = area();
        let before = TailPhase::new().with_tail(7).with_phase(true);
        let after = TailPhase::new().with_tail(0);
        let (queue, slots) = area.parts();
        let slot = &mut slots[0];
        *slot = SlotState::in_state(CommandState::FETCHED);
        slot.set_result(5);
        queue.cq_tail = before;
        let posted = store_completion(slot, &mut queue.cq_tail, (7, after), || {
            let (queue, slot) = left_behind(&file);
            assert_eq!((slot.state(), slot.posting), (CommandState::POSTING, 7));
            assert_eq!(slot.result(), 5, "the same entry can be written again");
            assert_eq!(queue.cq_tail, before, "the entry is not posted yet");
            "posted"
        });
        assert_eq!(posted, "posted");
        let (queue, slot) = left_behind(&file);
        assert_eq!((slot.state(), slot.posting), (CommandState::POSTING, 7));
        assert_eq!(queue.cq_tail, after, "the entry before the tail was posted");
    }

    #[test]
    fn a_fetched_command_keeps_nothing_of_the_one_before_but_the_generation() {
        let (_file, mut area) = area();
        let (queue, slots) = area.parts();
        let slot = &mut slots[0];
        let used = [0xff; size_of::<SlotState>()];
        *slot = SlotState::read_from_bytes(&used).unwrap();
        slot.release();
        assert_eq!((slot.state(), slot.generation()), (CommandState::FREE, 0));
        let entry = Sqe {
            cid: 0x1234,
            nsid: 0xdead_beef,
            ..Sqe::default()
        };
        let fetched = Fetched {
            words: entry.to_words(),
            number: u32::MAX,
            sqid: 3,
            progress: Progress::new().with_head(9),
        };
        store_fetched(slot, &mut queue.sqs[2], &fetched, 77);
        assert_eq!(queue.sqs[2].progress.into_bits(), 9);
        assert_eq!((slot.sqe(), slot.tick()), (entry, 77));
        assert_eq!((slot.sqid(), slot.number()), (3, u32::MAX));
        assert_eq!((slot.cid(), slot.nsid()), (0x1234, 0xdead_beef));
        assert_eq!(slot.state(), CommandState::FETCHED);
        assert_eq!((slot.outstanding, slot.bytes, slot.result()), (0, 0, 0));
        assert_eq!((slot.flushed, slot.error), (0, Status::default()));
        assert_eq!(slot.partner.get(), None);
        assert!(!slot.marks.is_any() && !slot.counted.in_flight());
    }

    #[test]
    fn zeroed_memory_is_a_free_slot() {
        let (_file, area) = area();
        let slot = area.slots()[0];
        assert_eq!(slot.state(), CommandState::FREE);
        assert_eq!((slot.marks.sample(), slot.partner.get()), (None, None));
        assert_eq!((slot.flow.get(), slot.behind.get()), (None, None));
        assert!(!slot.counted.in_flight());
    }
}
