//! A snapshot of a controller's queues for inspection: positions, doorbells, and the commands in
//! flight, decoded, with their age and place.
//!
//! A lane answers between two of its turns ([`crate::lane::Lane::inspect`]), so that its answer is
//! of one moment; a controller answers for its admin queue. The only state kept for it is the turn
//! in which a command was fetched, a word in its slot, in ticks of 4,096 ns. Ages are lower bounds:
//! from the beginning of that turn, rounded down; an age above 4.8 h wraps around.
//!
//! Invariant: values that a host may have written are displayed and not followed. An entry still in
//! its ring is read for this and read again when it is fetched.

use nvme_spec::command::QueuePriority;
use nvme_spec::opcode::{AdminOpcode, NvmOpcode};
use nvme_spec::{NSID_ALL, Sqe};
use port::namespace::NamespaceTable;
use port::time::Time;

use crate::command;
use crate::queue::BellView;

/// Nanoseconds of a tick, as a power of two.
const TICK_SHIFT: u32 = 12;

/// The first tick that begins at `now` or later, modulo 2^32.
#[inline]
pub(crate) fn tick_after(now: Time) -> u32 {
    (now.0.wrapping_add((1 << TICK_SHIFT) - 1) >> TICK_SHIFT) as u32
}

/// Nanoseconds since a tick, at least.
pub(crate) fn since_tick(tick: u32, now: Time) -> u64 {
    let ticks = ((now.0 >> TICK_SHIFT) as u32).wrapping_sub(tick);
    match ticks {
        // It has yet to begin.
        u32::MAX => 0,
        ticks => u64::from(ticks) << TICK_SHIFT,
    }
}

/// Options of an inspection.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The time.
    pub now: Time,
    /// Commands that are shown of each submission queue, at most: the oldest. Of a completion queue
    /// with many submission queues fewer are, so that no look takes long.
    pub commands: usize,
}

/// The place of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the host's ring: submitted, and not fetched.
    Ring,
    /// Fetched, and waiting for its tenant's turn.
    Fairness,
    /// Fetched, and waiting for room with its medium, at the head of its queue.
    Channel,
    /// One of two fused commands that wait for room with their medium, or for their tenant's turn.
    Pair,
    /// With its medium.
    Medium,
    /// With a medium that keeps the time of a model.
    Model,
    /// It takes several steps (Verify, Copy).
    Steps,
    /// With the subsystem.
    Subsystem,
    /// An admin command that waits for an I/O queue: to release a command, or to end.
    Queue,
    /// An Asynchronous Event Request, waiting for an event.
    Event,
}

impl Place {
    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Place::Ring => "ring",
            Place::Fairness => "fairness",
            Place::Channel => "channel",
            Place::Pair => "pair",
            Place::Medium => "medium",
            Place::Model => "model",
            Place::Steps => "steps",
            Place::Subsystem => "subsystem",
            Place::Queue => "queue",
            Place::Event => "event",
        }
    }
}

/// A command in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandView {
    /// Its command identifier.
    pub cid: u16,
    /// Its opcode.
    pub opcode: u8,
    /// Name of its opcode in its command set.
    pub name: &'static str,
    /// Its NSID field.
    pub nsid: u32,
    /// Its first logical block, of one that has some.
    pub lba: Option<u64>,
    /// Its length in bytes, if its fields name one.
    pub bytes: Option<u64>,
    /// Whether it has Force Unit Access.
    pub fua: bool,
    /// Its place.
    pub place: Place,
    /// Nanoseconds since it was fetched, at least; `None` in the ring, and of a request for an
    /// event, which waits as long as it takes.
    pub age_ns: Option<u64>,
}

/// A submission queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmissionView {
    /// Its identifier.
    pub sqid: u16,
    /// Its size.
    pub entries: u32,
    /// The next entry to fetch.
    pub head: u32,
    /// The last tail that was accepted.
    pub tail: u32,
    /// Its doorbells.
    pub bell: BellView,
    /// Its priority, where its controller has weighted round robin selected.
    pub priority: Option<QueuePriority>,
    /// It is being deleted: nothing more is fetched.
    pub is_ending: bool,
    /// Commands submitted and not fetched.
    pub waiting: u32,
    /// Commands fetched and not completed.
    pub in_flight: u32,
    /// The oldest of both.
    pub commands: Vec<CommandView>,
}

/// A completion queue, with every submission queue that completes into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionView {
    /// Its identifier.
    pub cqid: u16,
    /// Its size.
    pub entries: u32,
    /// The head that its host reported last.
    pub head: u32,
    /// The next entry to post to.
    pub tail: u32,
    /// The phase which that gets.
    pub phase: bool,
    /// Entries posted and not consumed.
    pub posted: u32,
    /// Places that are kept for commands that were fetched.
    pub reserved: u32,
    /// Its interrupt vector, where interrupts are enabled.
    pub vector: Option<u16>,
    /// Its doorbells.
    pub bell: BellView,
    /// Nothing more is fetched or posted: it is ending, or a ring was lost.
    pub is_stopped: bool,
    /// Aborted commands that a medium still has.
    pub given_up: u32,
    /// Its submission queues, by their identifiers.
    pub submission_queues: Vec<SubmissionView>,
}

/// How a controller detects its host's doorbell writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellsView {
    /// Its host stores into a page of ours.
    Mapped,
    /// It stores into a page of its own (Doorbell Buffer Config).
    Shadow,
    /// Each is a message.
    Trapped,
}

impl DoorbellsView {
    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            DoorbellsView::Mapped => "mapped",
            DoorbellsView::Shadow => "shadow",
            DoorbellsView::Trapped => "trapped",
        }
    }
}

/// A snapshot of a controller's queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerView {
    /// How it detects doorbell writes.
    pub doorbells: DoorbellsView,
    /// Its admin queues; none while it is not enabled.
    pub admin: Option<CompletionView>,
    /// Its I/O completion queues, whose lanes know the rest.
    pub queues: Vec<u16>,
    /// Its submission queues with their priorities, where weighted round robin is selected.
    pub priorities: Vec<(u16, QueuePriority)>,
}

/// An I/O command by its entry. `moved`: bytes that are known otherwise.
pub(crate) fn io_command(
    sqe: &Sqe,
    namespaces: &NamespaceTable,
    moved: u32,
    place: Place,
    age_ns: Option<u64>,
) -> CommandView {
    let namespace = namespaces.get(sqe.nsid);
    let set = namespace.and_then(|namespace| namespace.set.as_ref());
    let name = set.and_then(|set| set.opcode_name(sqe.opcode));
    let has_blocks = namespace.is_none_or(|namespace| namespace.has_blocks());
    let named = command::block_count(sqe)
        .zip(namespace)
        .filter(|_| has_blocks)
        .map(|(blocks, namespace)| u64::from(blocks) << namespace.lba_shift);
    CommandView {
        cid: sqe.cid,
        opcode: sqe.opcode,
        name: name.unwrap_or_else(|| NvmOpcode(sqe.opcode).name()),
        nsid: sqe.nsid,
        lba: command::slba_of(sqe).filter(|_| has_blocks),
        bytes: named.or((moved > 0).then_some(moved.into())),
        fua: has_blocks && command::has_fua(sqe),
        place,
        age_ns,
    }
}

/// An admin command.
pub(crate) fn admin_command(
    cid: u16,
    (opcode, nsid): (u8, u32),
    place: Place,
    age_ns: Option<u64>,
) -> CommandView {
    CommandView {
        cid,
        opcode,
        name: AdminOpcode(opcode).name(),
        nsid,
        lba: None,
        bytes: None,
        fua: false,
        place,
        age_ns,
    }
}

/// Whether a command may involve the media of all namespaces.
pub(crate) fn is_for_all(nsid: u32) -> bool {
    nsid == NSID_ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_lower_bound_to_a_tick() {
        let age = |fetched: u64, now: u64| since_tick(tick_after(Time(fetched)), Time(now));
        for (fetched, now, at_least) in [
            (0, 0, 0),
            (1, 1, 0),
            (1, 4096, 0),
            (0, 4096, 4096),
            (1, 8191, 0),
            (1, 8192, 4096),
            (4095, 4096, 0),
            // two seconds, from tick 2 to tick 488,282
            (5_000, 2_000_005_000, 488_280 * 4096),
        ] {
            assert_eq!(age(fetched, now), at_least, "{fetched} {now}");
            assert!(at_least <= now - fetched);
        }
        // over the end of the counter
        let end = 1 << (32 + TICK_SHIFT);
        assert_eq!(age(end - 4096, end + 4096), 8192);
        assert_eq!(age(end - 1, end), 0);
    }
}
