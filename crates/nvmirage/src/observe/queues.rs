//! Queues of a controller as JSON: the response of `GET /v1/controllers/{name}/queues`.

use controller::inspect::{CommandView, CompletionView, SubmissionView};
use controller::queue::BadDoorbell;
use nvme_spec::command::QueuePriority;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::reactor::inspect::{Found, Inspection};

/// Queues of a controller with the commands in flight. A completion queue and its submission queues
/// are captured at one moment; different completion queues, shortly after each other.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct QueuesReport {
    /// Time of the report, on the server's clock, in nanoseconds.
    pub(crate) time_ns: u64,
    /// Doorbell delivery: `mapped` (the host writes into a polled page), `shadow` (the host writes
    /// into its own buffers, Doorbell Buffer Config) or `trapped` (each write is a message).
    pub(crate) doorbells: String,
    /// Age from which a command counts as stuck, in nanoseconds.
    pub(crate) stuck_after_ns: u64,
    /// Admin queues, while the controller is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) admin: Option<CompletionQueue>,
    /// I/O completion queues that the host created.
    pub(crate) queues: Vec<CompletionQueue>,
}

/// Completion queue with the submission queues that complete into it. A queue that is moving
/// between reactors has only its identifier.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CompletionQueue {
    /// Queue identifier; 0 for the admin queue.
    pub(crate) queue: u16,
    /// Reactor that serves the queue.
    pub(crate) reactor: usize,
    /// Whether the queue is moving to another reactor; other fields are then absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) moving: bool,
    /// Interrupt vector, if interrupts are enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) vector: Option<u16>,
    /// State of its ring and doorbells.
    #[serde(flatten)]
    pub(crate) ring: Option<CompletionRing>,
    /// Commands in flight: fetched and not completed, of all its submission queues.
    pub(crate) in_flight: u32,
    /// Submission queues that complete into it, by identifier.
    pub(crate) submission_queues: Vec<SubmissionQueue>,
}

/// Ring of a completion queue.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CompletionRing {
    /// Number of entries.
    pub(crate) size: u32,
    /// Last head written by the host.
    pub(crate) head: u32,
    /// Next entry to post.
    pub(crate) tail: u32,
    /// Phase tag of the next entry.
    pub(crate) phase: bool,
    /// Entries posted and not consumed.
    pub(crate) posted: u32,
    /// Entries reserved for commands in flight.
    pub(crate) reserved: u32,
    /// Whether no entry can be posted until the host consumes one.
    pub(crate) full: bool,
    /// Doorbells.
    #[serde(flatten)]
    pub(crate) bell: DoorbellWords,
    /// Whether fetching and posting have stopped: the queue is being deleted, its controller reset,
    /// or the memory of a ring is unmapped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stopped: bool,
    /// Commands aborted after a timeout that a medium still holds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) given_up: u32,
}

/// Current values of a queue's doorbells. A host may have written any value.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DoorbellWords {
    /// Doorbell register: the tail of a submission queue, the head of a completion queue.
    pub(crate) doorbell: u32,
    /// Shadow doorbell of the host, with Doorbell Buffer Config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shadow: Option<u32>,
    /// Value beyond which the host must write the register too (EventIdx).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) event_idx: Option<u32>,
    /// Reason why the queue is frozen, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) frozen: Option<String>,
}

/// Submission queue.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct SubmissionQueue {
    /// Queue identifier.
    pub(crate) queue: u16,
    /// Number of entries.
    pub(crate) size: u32,
    /// Next entry to fetch.
    pub(crate) head: u32,
    /// Last tail read from a doorbell.
    pub(crate) tail: u32,
    /// Doorbells.
    #[serde(flatten)]
    pub(crate) bell: DoorbellWords,
    /// Priority: `urgent`, `high`, `medium` or `low`, if the host selected weighted round robin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<String>,
    /// Whether the queue is being deleted; fetching has stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deleting: bool,
    /// Commands in the ring, not fetched.
    pub(crate) waiting: u32,
    /// Commands in flight: fetched and not completed.
    pub(crate) in_flight: u32,
    /// Oldest commands, waiting or in flight.
    pub(crate) commands: Vec<CommandUnderWay>,
    /// Number of commands not shown.
    pub(crate) left_out: u32,
}

/// Command that has not completed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CommandUnderWay {
    /// Submission queue.
    pub(crate) queue: u16,
    /// Command identifier.
    pub(crate) cid: u16,
    /// Opcode.
    pub(crate) opcode: u8,
    /// Name of the opcode in its command set.
    pub(crate) command: String,
    /// Namespace identifier.
    pub(crate) nsid: u32,
    /// First logical block, where the command has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lba: Option<u64>,
    /// Bytes that the command transfers or affects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// Whether Force Unit Access is set.
    pub(crate) fua: bool,
    /// Position: `ring`, `fairness`, `channel` (waits for room at its medium), `pair` (one of two
    /// fused commands that wait), `medium`, `model`, `steps` (Verify and Copy), `subsystem`; for an
    /// admin command also `queue` (waits for an I/O queue) and `event`.
    pub(crate) at: String,
    /// Time since it was fetched, in nanoseconds: a lower bound, in steps of 4,096. Absent for a
    /// command in the ring, or one that waits for an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) age_ns: Option<u64>,
    /// Whether its age is at least `stuck_after`.
    pub(crate) stuck: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// Why a submission queue is frozen.
fn frozen_sq(bad: BadDoorbell, entries: u32) -> String {
    let value = bad.value;
    if value < entries {
        format!("doorbell value {value} passes the entries that were free")
    } else {
        outside(value, entries)
    }
}

/// Why a completion queue is frozen.
fn frozen_cq(bad: BadDoorbell, entries: u32) -> String {
    let value = bad.value;
    if value < entries {
        format!("doorbell value {value} passes the entries that were posted")
    } else {
        outside(value, entries)
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
    /// Report of an inspection at `time_ns`.
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

    /// All completion queues, the admin queue first.
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
