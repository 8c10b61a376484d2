//! What stands in a controller's queues, as JSON: what `GET /v1/controllers/{name}/queues` answers.

use controller::{
    inspect::{CommandView, CompletionView, SubmissionView},
    queue::BadDoorbell,
};
use nvme_spec::command::QueuePriority;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::reactor::inspect::{Found, Inspection};

/// The queues of a controller with the commands that are under way. What is said of a completion queue and its submission
/// queues is of one moment; between two completion queues some time goes by.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct QueuesReport {
    /// When this was, on the server's clock, in nanoseconds.
    pub(crate) time_ns: u64,
    /// How doorbells are learned of: `mapped` (the host stores into a page that is looked at), `shadow` (it stores into buffers
    /// of its own, Doorbell Buffer Config) or `trapped` (each is a message).
    pub(crate) doorbells: String,
    /// From which age on a command counts as stuck, in nanoseconds.
    pub(crate) stuck_after_ns: u64,
    /// The admin queues, while the controller is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) admin: Option<CompletionQueue>,
    /// The I/O completion queues that its host has made.
    pub(crate) queues: Vec<CompletionQueue>,
}

/// A completion queue, with the submission queues that complete into it. One that is on its way from a reactor to another has its
/// name only.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CompletionQueue {
    /// Its identifier; 0 of the admin queue.
    pub(crate) queue: u16,
    /// The reactor that serves it.
    pub(crate) reactor: usize,
    /// It is on its way to another reactor: nothing more is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) moving: bool,
    /// Its interrupt vector, where interrupts are enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) vector: Option<u16>,
    /// What stands in its rings and doorbells.
    #[serde(flatten)]
    pub(crate) ring: Option<CompletionRing>,
    /// Commands of its submission queues that were fetched and not completed.
    pub(crate) in_flight: u32,
    /// The submission queues that complete into it, by their identifiers.
    pub(crate) submission_queues: Vec<SubmissionQueue>,
}

/// The ring of a completion queue.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CompletionRing {
    /// Entries.
    pub(crate) size: u32,
    /// The head that its host has told last.
    pub(crate) head: u32,
    /// The next entry to post to.
    pub(crate) tail: u32,
    /// The phase tag that this one gets.
    pub(crate) phase: bool,
    /// Entries posted and not consumed.
    pub(crate) posted: u32,
    /// Entries that are kept for commands that were fetched.
    pub(crate) reserved: u32,
    /// No entry can be posted until its host has consumed some.
    pub(crate) full: bool,
    /// What stands in its doorbells.
    #[serde(flatten)]
    pub(crate) bell: DoorbellWords,
    /// Nothing more is fetched or posted: it is being deleted, its controller reset, or the memory of a ring is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stopped: bool,
    /// Commands that were aborted, as they took too long, and that a medium has still.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) given_up: u32,
}

/// What stands in a queue's doorbells now. A host may have written anything there.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DoorbellWords {
    /// The register: the tail of a submission queue, the head of a completion queue.
    pub(crate) doorbell: u32,
    /// The host's shadow of it, with doorbell buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shadow: Option<u32>,
    /// The value past which the host is asked to write the register, too (EventIdx).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) event_idx: Option<u32>,
    /// Why the queue is frozen, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) frozen: Option<String>,
}

/// A submission queue.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct SubmissionQueue {
    /// Its identifier.
    pub(crate) queue: u16,
    /// Entries.
    pub(crate) size: u32,
    /// The next entry to fetch.
    pub(crate) head: u32,
    /// The last tail that was taken from a doorbell.
    pub(crate) tail: u32,
    /// What stands in its doorbells.
    #[serde(flatten)]
    pub(crate) bell: DoorbellWords,
    /// `urgent`, `high`, `medium` or `low`, where the host has selected weighted round robin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<String>,
    /// It is being deleted: nothing more is fetched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deleting: bool,
    /// Commands in its ring that were not fetched.
    pub(crate) waiting: u32,
    /// Commands fetched and not completed.
    pub(crate) in_flight: u32,
    /// The oldest of both.
    pub(crate) commands: Vec<CommandUnderWay>,
    /// Commands that are not shown.
    pub(crate) left_out: u32,
}

/// A command that has not completed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CommandUnderWay {
    /// Its submission queue.
    pub(crate) queue: u16,
    /// Its command identifier.
    pub(crate) cid: u16,
    /// Its opcode's number.
    pub(crate) opcode: u8,
    /// What that is called in its command set.
    pub(crate) command: String,
    /// Its namespace.
    pub(crate) nsid: u32,
    /// Its first logical block, of one that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lba: Option<u64>,
    /// Bytes that it moves, or is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// Whether it has Force Unit Access.
    pub(crate) fua: bool,
    /// Where it is: `ring`, `fairness`, `channel` (waits for room with its medium), `pair` (one of two fused commands that wait),
    /// `medium`, `model`, `steps` (Verify and Copy), `subsystem`; of an admin command also `queue` (waits for an I/O queue) and `event`.
    pub(crate) at: String,
    /// Since the turn that fetched it, in nanoseconds, a lower bound in steps of 4,096; of one in its ring, or that waits for an event,
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) age_ns: Option<u64>,
    /// Whether it is as old as what was asked for, or older.
    pub(crate) stuck: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// Why a submission queue is frozen.
fn frozen_sq(bad: BadDoorbell, entries: u32) -> String {
    let value = bad.value;
    match value < entries {
        true => format!("doorbell value {value} passes the entries that were free"),
        false => outside(value, entries),
    }
}

/// Why a completion queue is.
fn frozen_cq(bad: BadDoorbell, entries: u32) -> String {
    let value = bad.value;
    match value < entries {
        true => format!("doorbell value {value} passes the entries that were posted"),
        false => outside(value, entries),
    }
}

fn outside(value: u32, entries: u32) -> String {
    format!("doorbell value {value} is outside the ring of {entries} entries")
}

fn priority(priority: QueuePriority) -> &'static str {
    match priority {
        QueuePriority::URGENT => "urgent",
        QueuePriority::HIGH => "high",
        QueuePriority::MEDIUM => "medium",
        _ => "low",
    }
}

impl QueuesReport {
    /// Of what was found at a time.
    pub(crate) fn new(inspection: &Inspection, time_ns: u64, stuck_after_ns: u64) -> Self {
        let Inspection {
            controller,
            home,
            queues,
        } = inspection;
        let priority_of = |sqid: u16| {
            let mut priorities = controller.priorities.iter();
            let found = priorities.find(|(id, _)| *id == sqid);
            found.map(|(_, its)| *its)
        };
        let show = |found: &Found| {
            let mut shown = CompletionQueue::new(found, stuck_after_ns);
            for sq in &mut shown.submission_queues {
                sq.priority = priority_of(sq.queue).map(|its| priority(its).to_owned());
            }
            shown
        };
        let admin = controller.admin.clone().map(|view| Found {
            cqid: 0,
            reactor: *home,
            view: Some(view),
        });
        QueuesReport {
            time_ns,
            doorbells: controller.doorbells.word().to_owned(),
            stuck_after_ns,
            admin: admin.as_ref().map(show),
            queues: queues.iter().map(show).collect(),
        }
    }

    /// All of them, those for admin commands first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &CompletionQueue> {
        self.admin.iter().chain(&self.queues)
    }
}

impl CompletionQueue {
    fn new(found: &Found, stuck_after_ns: u64) -> Self {
        let view = found.view.as_ref();
        let submission = view.map_or(&[][..], |view| &view.submission_queues);
        let submission = submission.iter();
        let submission_queues: Vec<_> = submission
            .map(|view| SubmissionQueue::new(view, stuck_after_ns))
            .collect();
        CompletionQueue {
            queue: found.cqid,
            reactor: found.reactor,
            moving: view.is_none(),
            vector: view.and_then(|view| view.vector),
            ring: view.map(CompletionRing::new),
            in_flight: submission_queues.iter().map(|sq| sq.in_flight).sum(),
            submission_queues,
        }
    }
}

impl CompletionRing {
    fn new(view: &CompletionView) -> Self {
        CompletionRing {
            size: view.entries,
            head: view.head,
            tail: view.tail,
            phase: view.phase,
            posted: view.posted,
            reserved: view.reserved,
            full: view.posted + 1 == view.entries,
            bell: DoorbellWords {
                doorbell: view.bell.doorbell,
                shadow: view.bell.shadow,
                event_idx: view.bell.event_idx,
                frozen: view.bell.frozen.map(|bad| frozen_cq(bad, view.entries)),
            },
            stopped: view.is_stopped,
            given_up: view.given_up,
        }
    }
}

impl SubmissionQueue {
    fn new(view: &SubmissionView, stuck_after_ns: u64) -> Self {
        let commands = view.commands.iter();
        let commands: Vec<_> = commands
            .map(|command| CommandUnderWay::new(view.sqid, command, stuck_after_ns))
            .collect();
        let all = u64::from(view.waiting) + u64::from(view.in_flight);
        let left_out = all.saturating_sub(commands.len() as u64);
        SubmissionQueue {
            queue: view.sqid,
            size: view.entries,
            head: view.head,
            tail: view.tail,
            bell: DoorbellWords {
                doorbell: view.bell.doorbell,
                shadow: view.bell.shadow,
                event_idx: view.bell.event_idx,
                frozen: view.bell.frozen.map(|bad| frozen_sq(bad, view.entries)),
            },
            priority: None,
            deleting: view.is_ending,
            waiting: view.waiting,
            in_flight: view.in_flight,
            commands,
            left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
        }
    }
}

impl CommandUnderWay {
    fn new(queue: u16, view: &CommandView, stuck_after_ns: u64) -> Self {
        CommandUnderWay {
            queue,
            cid: view.cid,
            opcode: view.opcode,
            command: view.name.to_owned(),
            nsid: view.nsid,
            lba: view.lba,
            bytes: view.bytes,
            fua: view.fua,
            at: view.place.word().to_owned(),
            age_ns: view.age_ns,
            stuck: view.age_ns.is_some_and(|age| age >= stuck_after_ns),
        }
    }
}
