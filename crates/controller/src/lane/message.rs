//! Messages between a controller and its lanes.
//!
//! A lane may live on another reactor, so all of this is plain data that fits a mailbox. The admin
//! command that caused a [`LaneCommand`] completes when the answering [`LaneEvent`] comes back.

use std::sync::Arc;

use memory::{DmaView, Iova, ShadowDoorbells, SqRing};
use nvme_spec::Status;
use nvme_spec::registers::sq_tail_slot;
use port::namespace::NamespaceTable;
use port::ticket::{OwnerKey, Ticket};
use subsystem::Forward;

use super::Lane;
use crate::flight::Watching;
use crate::queue::{QueueError, check_entries};
use crate::state::MAX_SQS;

/// From the controller to a lane.
#[derive(Debug)]
pub enum LaneCommand {
    /// The host's memory map changed. Answered by [`LaneEvent::Drained`] once nothing from before
    /// is in flight.
    Map(Arc<DmaView>),
    /// Namespaces were attached, detached or changed: the table of this generation. Answered by
    /// [`LaneEvent::NamespacesDrained`] once nothing fetched under an older one is in flight.
    Namespaces {
        /// The attached namespaces.
        table: Arc<NamespaceTable>,
        /// Its generation.
        generation: u64,
    },
    /// A submission queue was created. The lane must have this before the host can ring: before the
    /// Create command completes.
    AddQueue(SqSpec),
    /// Delete a submission queue. Answered by [`LaneEvent::QueueRemoved`] when its last command has
    /// completed.
    RemoveQueue {
        /// Which.
        sqid: u16,
    },
    /// Abort a command. Answered at once by [`LaneEvent::AbortDone`].
    Abort(AbortRequest),
    /// Doorbell Buffer Config came, or its registration ended.
    Shadow(Option<Registration>),
    /// Whether the volatile write cache is disabled: then every write completes only when it is on
    /// non-volatile media.
    WriteThrough(bool),
    /// The limit of each submission queue's fetches in a turn.
    Quota(Quota),
    /// The host's limits for Copy changed.
    Copying(Copying),
    /// Some of its commands are watched from now on, or none.
    Watch(Option<Watching>),
    /// The controller is disabled: fetch nothing more, post nothing more. Answered by
    /// [`LaneEvent::Stopped`] when nothing is in flight.
    Stop,
    /// The function may issue no memory requests: fetch nothing more. Answered by
    /// [`LaneEvent::LeftBus`] when everything that was fetched has completed; from then on nothing
    /// of the host's is read or written.
    LeaveBus {
        /// Counts the changes.
        round: u32,
        /// And when no medium has anything of an aborted command either.
        idle: bool,
    },
    /// It may again.
    TakeBus,
    /// Abort hanging commands that were issued before the view with this epoch.
    Abandon {
        /// The first epoch that may stay.
        before_epoch: u64,
    },
    /// Abort everything that is in flight, except in the subsystem.
    AbandonIssued,
    /// Abort everything that is in flight.
    AbandonAll,
    /// Fetch nothing more until [`LaneCommand::Resume`]: the lane is to move ([`Lane::is_empty`]).
    Pause,
    /// Go on.
    Resume,
    /// Execute copies again: every lane that was restored has executed again what only writes
    /// ([`LaneEvent::Replayed`], which answers this, too).
    ReleaseCopies,
    /// Fetch commands from now on: every lane that was restored has executed again what writes.
    Release,
}

/// An Abort of a command for I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortRequest {
    /// The queue the command was submitted to.
    pub sqid: u16,
    /// Its command identifier.
    pub cid: u16,
    /// The number of the Abort ([`AbortState`]), which no other one has had.
    ///
    /// [`AbortState`]: crate::state::AbortState
    pub number: u32,
}

/// A submission queue that its controller knows, of a lane that is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSq {
    /// Its identifier.
    pub sqid: u16,
    /// Address of its ring.
    pub base: Iova,
    /// Its size.
    pub entries: u32,
}

/// From a lane to its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneEvent {
    /// The queue is gone: its last command has completed.
    QueueRemoved {
        /// Which.
        sqid: u16,
    },
    /// Of a lane that was restored: every command of the process that died has completed, except
    /// those that go on with [`LaneCommand::ReleaseCopies`] and [`LaneCommand::Release`].
    Replayed {
        /// Some go on with the former.
        copies: bool,
    },
    /// The answer to [`LaneCommand::Abort`].
    AbortDone {
        /// As asked.
        request: AbortRequest,
        /// True: it was completed with Command Abort Requested. False: it was not found waiting in
        /// the lane, and completes (or did) by itself.
        aborted: bool,
    },
    /// After [`LaneCommand::Stop`]: nothing is in flight.
    Stopped,
    /// Nothing issued before the view with this epoch is in flight.
    Drained {
        /// The epoch.
        epoch: u64,
    },
    /// Nothing issued with a table of namespaces older than this generation's is in flight.
    NamespacesDrained {
        /// The generation.
        generation: u64,
    },
    /// The command with this name, which the subsystem has answered, has completed.
    Answered {
        /// Its name.
        name: u64,
    },
    /// The answer to [`LaneCommand::LeaveBus`].
    LeftBus {
        /// As in the command.
        round: u32,
    },
    /// A medium failed a command, or its data could not be reached: for the Error Information log.
    CommandFailed(FailedCommand),
    /// The host broke a rule, or its memory went away under a queue.
    Fault(LaneFault),
}

/// A command that a medium failed, or whose data could not be reached (Base 2.1, 5.1.12.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedCommand {
    /// The queue it was submitted to.
    pub sqid: u16,
    /// Its command identifier.
    pub cid: u16,
    /// Its opcode.
    pub opcode: u8,
    /// The status it completed with.
    pub status: Status,
    /// Its namespace.
    pub nsid: u32,
    /// Its first logical block; 0 for a command without one.
    pub lba: u64,
    /// Its two data pointers.
    pub data: [u64; 2],
}

/// Name of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueName {
    /// A submission queue, by its identifier.
    Submission(u16),
    /// A completion queue, by its identifier.
    Completion(u16),
}

/// A fault of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneFault {
    /// A doorbell value that cannot be: the queue is frozen, the others go on. Told once for each
    /// queue.
    InvalidDoorbell {
        /// The frozen queue.
        queue: QueueName,
        /// The value found.
        value: u32,
    },
    /// The doorbell of a submission queue was rung while its page was not mapped. Nothing is
    /// fetched from it until the map changes. Told once for each change.
    RingAbsent {
        /// The ring's queue.
        queue: QueueName,
    },
    /// A completion was to be posted to a page that was not mapped: the lane has stopped, and the
    /// controller cannot go on.
    RingLost {
        /// The ring's queue.
        queue: QueueName,
    },
}

/// A submission queue to add to a lane, with its ring already found in the host's memory.
#[derive(Debug)]
pub struct SqSpec {
    pub(super) sqid: u16,
    pub(super) entries: u32,
    pub(super) base: Iova,
    pub(super) ring: SqRing,
    /// The value of its doorbell's shadow before the host could know of the queue.
    pub(super) initial: Option<u32>,
}

impl SqSpec {
    /// A submission queue of `entries` entries at `base`. Its doorbell slot must be zero by now:
    /// the creator of a queue clears the slot before the Create command completes.
    ///
    /// # Errors
    /// The identifier or size cannot be, or the ring is not in memory that can be reached.
    pub fn new(
        view: &Arc<DmaView>,
        sqid: u16,
        base: Iova,
        entries: u32,
    ) -> Result<SqSpec, QueueError> {
        if !(1..=MAX_SQS).contains(&usize::from(sqid)) {
            return Err(QueueError::Identifier { qid: sqid });
        }
        check_entries(entries)?;
        Ok(SqSpec {
            sqid,
            entries,
            base,
            ring: SqRing::new(view, base, entries)?,
            initial: None,
        })
    }

    /// Records the current value in the doorbell buffer, if the host registered one: that is no
    /// doorbell of this queue.
    ///
    /// # Errors
    /// The buffers are not in memory that can be reached.
    pub fn with_shadow(
        mut self,
        view: &Arc<DmaView>,
        spec: ShadowSpec,
    ) -> Result<Self, QueueError> {
        self.initial = spec.find(view)?.load(sq_tail_slot(self.sqid));
        Ok(self)
    }

    /// That value.
    pub(crate) fn initial(&self) -> Option<u32> {
        self.initial
    }

    /// The queue's identifier.
    #[must_use]
    pub fn sqid(&self) -> u16 {
        self.sqid
    }
}

/// Addresses of the host's two doorbell buffers (Base 2.1, 5.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowSpec {
    /// The page the host writes its doorbells to.
    pub shadow: Iova,
    /// The page we write to say from which value on a doorbell must be rung.
    pub event_idx: Iova,
}

impl ShadowSpec {
    /// Finds the two pages.
    pub(crate) fn find(self, view: &Arc<DmaView>) -> Result<ShadowDoorbells, QueueError> {
        Ok(ShadowDoorbells::new(view, self.shadow, self.event_idx)?)
    }

    /// The two pages that were registered before; one that is gone is absent.
    pub(crate) fn find_again(self, view: &Arc<DmaView>) -> Result<ShadowDoorbells, QueueError> {
        Ok(ShadowDoorbells::restore(view, self.shadow, self.event_idx)?)
    }
}

/// Doorbells of all queues that there can be.
pub(crate) const DOORBELLS: usize = 2 * (MAX_SQS + 1);

/// Doorbell buffers that the host has registered, with their contents before it could know of that:
/// these are no doorbells, whenever the lane learns of it.
#[derive(Clone, Debug)]
pub struct Registration {
    spec: ShadowSpec,
    /// How many there were of the controller, with this one.
    count: u32,
    /// By doorbell, from when its queue was created where that is later; `None` where it could not
    /// be read.
    initial: Arc<[Option<u32>; DOORBELLS]>,
}

impl Registration {
    /// Looks at the buffers. Before the host can use them. It is registration number `count` of its
    /// controller, from 1.
    ///
    /// # Errors
    /// They are not in memory that can be reached.
    pub fn new(view: &Arc<DmaView>, spec: ShadowSpec, count: u32) -> Result<Self, QueueError> {
        let doorbells = spec.find(view)?;
        let initial = std::array::from_fn(|slot| doorbells.load(slot));
        Ok(Self::restore(spec, count, initial))
    }

    /// That of a process that died.
    pub(crate) fn restore(spec: ShadowSpec, count: u32, initial: [Option<u32>; DOORBELLS]) -> Self {
        Registration {
            spec,
            count,
            initial: Arc::new(initial),
        }
    }

    /// Where the buffers are.
    #[must_use]
    pub fn spec(&self) -> ShadowSpec {
        self.spec
    }

    /// How many there were of its controller, with it.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Initial values of all doorbells in the buffers.
    pub(crate) fn all_initial(&self) -> &[Option<u32>; DOORBELLS] {
        &self.initial
    }

    pub(crate) fn initial(&self, slot: usize) -> Option<u32> {
        *self.initial.get(slot)?
    }

    /// A queue is created: what its doorbell has now is none of this queue.
    pub(crate) fn created(&mut self, slot: usize, now: Option<u32>) {
        if let Some(initial) = Arc::make_mut(&mut self.initial).get_mut(slot) {
            *initial = now;
        }
    }
}

/// Limit of commands of a submission queue that may be fetched in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// So many of each, at most [`super::BATCH`]: round robin.
    Each(u32),
    /// As many as [`Lane::allot`] sets for the next turn: weighted round robin.
    Allotted,
}

/// Number of commands that a submission queue has to fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Commands, as many as there is room for.
    pub commands: u32,
    /// One that was fetched waits for its medium.
    pub waits: bool,
}

/// Limits of a Copy command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copying {
    /// The host has enabled ranges of other namespaces (format 2h, by Host Behavior Support).
    pub across: bool,
    /// The highest namespace id that is valid.
    pub namespace_limit: u32,
}

/// Result of a lane's turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneTurn {
    /// Commands fetched.
    pub fetched: u32,
    /// Steps asked for, of commands that take several.
    pub steps: u32,
    /// Commands that had waited for their flow's turn ([`crate::gate`]) and went on.
    pub released: u32,
    /// Commands that are known and not yet issued, and that another turn may issue: those the batch
    /// had no room for, and those whose channel was full (these need a reap first). Commands
    /// stalled by a full completion queue are not counted: they wait for the host. Those that wait
    /// for their flow's turn are.
    pub pending: u32,
}

/// Completions that a lane has posted: a reason to interrupt its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The completion queue's interrupt vector.
    pub vector: u16,
    /// Entries posted.
    pub entries: u32,
    /// One of them reports an error, which must not be withheld (Base 2.1, 5.1.25.2.2).
    pub failed: bool,
}

/// The subsystem's answer to a command: see [`Lane::answer`].
pub type Answered = Result<Vec<u8>, Status>;

/// The lanes of a controller, on its own reactor and on others.
///
/// A lane on another reactor receives a message before it examines any later action of the host,
/// and its reports arrive in the order in which it sent them.
pub trait LaneTable {
    /// Adds a lane, gives it its key ([`Lane::settle`]) and marks it as at home. A key is not
    /// reused while tickets of its earlier owner may be out: their late completions must find no
    /// lane, or the lane they belong to.
    fn insert(&mut self, lane: Lane) -> OwnerKey;
    /// The lane itself, where it lives on the controller's own reactor.
    fn local(&mut self, key: OwnerKey) -> Option<&mut Lane>;
    /// Gives a lane a command, and a turn after that, as it may find work now. Whether it is there.
    fn command(&mut self, key: OwnerKey, command: LaneCommand) -> bool {
        let lane = self.local(key);
        lane.map(|lane| lane.command(command)).is_some()
    }
    /// The next event of a lane.
    fn take_event(&mut self, key: OwnerKey) -> Option<LaneEvent> {
        self.local(key)?.take_event()
    }
    /// The next command of a lane for the subsystem.
    fn take_forward(&mut self, key: OwnerKey) -> Option<Forward> {
        self.local(key)?.take_forward()
    }
    /// The subsystem's answer to such a command ([`Lane::answer`]).
    fn answer(&mut self, ticket: Ticket, result: Answered) {
        match self.local(ticket.owner()) {
            Some(lane) => lane.answer(ticket, result.as_deref().map_err(|status| *status)),
            None => ticket.retire(),
        }
    }
    /// Ends a lane, which has stopped ([`Lane::end`]). Completions that still come for it are
    /// dropped ([`Ticket::retire`]).
    fn remove(&mut self, key: OwnerKey);
}
