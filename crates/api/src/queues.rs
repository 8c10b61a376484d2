//! Queues of a controller: the response of `GET /v1/controllers/{name}/queues`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Protocol;

/// Queues of a controller with the commands in flight. A completion queue and its submission queues
/// are captured at one moment; different completion queues, shortly after each other.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueuesReport {
    /// Time of the report, on the server's clock, in nanoseconds.
    pub time_ns: u64,
    /// Doorbell delivery: `mapped` (the host writes into a polled page), `shadow` (the host writes
    /// into its own buffers, Doorbell Buffer Config), `trapped` (each write is a message) or `none`
    /// (NVMe/TCP, NBD, vhost-user-blk and ublk: queues are in `hosts`).
    pub doorbells: String,
    /// Age from which a command counts as stuck, in nanoseconds.
    pub stuck_after_ns: u64,
    /// Admin queues, while the controller is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<CompletionQueue>,
    /// I/O completion queues that the host created.
    pub queues: Vec<CompletionQueue>,
    /// Hosts over NVMe/TCP, NBD clients, the vhost-user-blk front end or the block device, up to
    /// 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostQueues>,
    /// Number of hosts not shown: `cntlid` selects one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hosts_left_out: u32,
}

impl QueuesReport {
    /// Whether its hosts come over NVMe/TCP, NBD, vhost-user-blk or ublk, and have queues of their
    /// own.
    pub fn has_many_hosts(&self) -> bool {
        self.doorbells == "none"
    }
}

/// Queues of a host over NVMe/TCP, of an NBD client or of a vhost-user-blk front end: rings in the
/// server's memory, in which its commands lie when they and their data have arrived.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostQueues {
    /// Identifier of the host's controller.
    pub cntlid: u16,
    /// Protocol of the host.
    #[serde(default)]
    pub protocol: Protocol,
    /// Host NQN. Absent over NBD, vhost-user-blk and ublk.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nqn: String,
    /// Export of an NBD client, or namespace of a vhost-user-blk front end or of a block device:
    /// the name of a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Admin queue, while the controller is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<CompletionQueue>,
    /// I/O queues that the host connected.
    pub queues: Vec<CompletionQueue>,
}

/// Completion queue with the submission queues that complete into it. A queue that is moving
/// between reactors has only its identifier.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompletionQueue {
    /// Queue identifier; 0 for the admin queue.
    pub queue: u16,
    /// Reactor that serves the queue.
    pub reactor: usize,
    /// Whether the queue is moving to another reactor; other fields are then absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moving: bool,
    /// Interrupt vector, if interrupts are enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<u16>,
    /// State of its ring and doorbells.
    #[serde(flatten)]
    pub ring: Option<CompletionRing>,
    /// Commands in flight: fetched and not completed, of all its submission queues.
    pub in_flight: u32,
    /// Submission queues that complete into it, by identifier.
    pub submission_queues: Vec<SubmissionQueue>,
}

/// Ring of a completion queue.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompletionRing {
    /// Number of entries.
    pub size: u32,
    /// Last head written by the host.
    pub head: u32,
    /// Next entry to post.
    pub tail: u32,
    /// Phase tag of the next entry.
    pub phase: bool,
    /// Entries posted and not consumed.
    pub posted: u32,
    /// Entries reserved for commands in flight.
    pub reserved: u32,
    /// Whether no entry can be posted until the host consumes one.
    pub full: bool,
    /// Doorbells.
    #[serde(flatten)]
    pub bell: DoorbellWords,
    /// Whether fetching and posting have stopped: the queue is being deleted, its controller reset,
    /// or the memory of a ring is unmapped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Commands aborted after a timeout that a medium still holds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub given_up: u32,
}

/// Current values of a queue's doorbells. A host may have written any value.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DoorbellWords {
    /// Doorbell register: the tail of a submission queue, the head of a completion queue.
    pub doorbell: u32,
    /// Shadow doorbell of the host, with Doorbell Buffer Config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<u32>,
    /// Value beyond which the host must write the register too (EventIdx).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_idx: Option<u32>,
    /// Reason why the queue is frozen, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
}

/// Submission queue.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SubmissionQueue {
    /// Queue identifier.
    pub queue: u16,
    /// Number of entries.
    pub size: u32,
    /// Next entry to fetch.
    pub head: u32,
    /// Last tail read from a doorbell.
    pub tail: u32,
    /// Doorbells.
    #[serde(flatten)]
    pub bell: DoorbellWords,
    /// Priority: `urgent`, `high`, `medium` or `low`, if the host selected weighted round robin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Whether the queue is being deleted; fetching has stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// Commands in the ring, not fetched.
    pub waiting: u32,
    /// Commands in flight: fetched and not completed.
    pub in_flight: u32,
    /// Oldest commands, waiting or in flight.
    pub commands: Vec<CommandUnderWay>,
    /// Number of commands not shown.
    pub left_out: u32,
}

/// Command that has not completed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CommandUnderWay {
    /// Submission queue.
    pub queue: u16,
    /// Command identifier.
    pub cid: u16,
    /// Opcode.
    pub opcode: u8,
    /// Name of the opcode in its command set.
    pub command: String,
    /// Namespace identifier.
    pub nsid: u32,
    /// First logical block, where the command has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lba: Option<u64>,
    /// Bytes that the command transfers or affects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Whether Force Unit Access is set.
    pub fua: bool,
    /// Position: `ring`, `fairness`, `channel` (waits for room at its medium), `pair` (one of two
    /// fused commands that wait), `medium`, `model`, `steps` (Verify and Copy), `subsystem`; for an
    /// admin command also `queue` (waits for an I/O queue) and `event`.
    pub at: String,
    /// Time since it was fetched, in nanoseconds: a lower bound, in steps of 4,096. Absent for a
    /// command in the ring, or one that waits for an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<u64>,
    /// Whether its age is at least `stuck_after`.
    pub stuck: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}
