//! All counters: the response of `GET /v1/stats`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::latency::{Latency, StageTime, StatusErrors};
use crate::status::{
    ControllerStatus, MediumStatus, NamespaceStatus, ProcessStatus, ReactorStatus, TenantStatus,
};

/// All counters. A counter grows for as long as its object exists: a rate is the difference of two
/// reports over the difference of their `time_ns`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Time of the report on the server's monotonic clock: nanoseconds since it started.
    pub time_ns: u64,
    /// Time of the report on the system clock: milliseconds since 1970.
    pub unix_time_ms: u64,
    /// The server's process.
    #[serde(default)]
    pub process: ProcessStatus,
    /// Reactors, in configuration order.
    pub reactors: Vec<ReactorStatus>,
    /// Media, in order of creation.
    pub media: Vec<MediumStatus>,
    /// Namespaces, in order of creation.
    pub namespaces: Vec<NamespaceStatus>,
    /// Tenants, in order of creation.
    pub tenants: Vec<TenantStatus>,
    /// Controllers, in order of creation.
    pub controllers: Vec<ControllerStats>,
}

/// Controller, with counters of its hosts' commands.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ControllerStats {
    /// Status of the controller.
    #[serde(flatten)]
    pub status: ControllerStatus,
    /// Commands that transferred data, as the SMART log counts them; persistent.
    pub commands: ByDirection,
    /// Bytes transferred by these commands.
    pub bytes: ByDirection,
    /// Commands that a medium failed; persistent.
    pub media_errors: u64,
    /// Existing I/O completion queues, with counters since their creation.
    pub completion_queues: Vec<QueueStats>,
    /// Latencies of the timed commands, by operation; `sample` is the sampling rate.
    pub latency: Vec<Latency>,
    /// Stages of these latencies.
    pub stages: Vec<StageTime>,
    /// I/O commands that ended with an error since the server started, by status, the most frequent
    /// first.
    pub errors_by_status: Vec<StatusErrors>,
}

/// Counts by direction of data.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ByDirection {
    /// To the host.
    pub read: u64,
    /// From the host.
    pub write: u64,
}

/// Completion queue, with the submission queues that complete into it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueueStats {
    /// Queue identifier.
    pub queue: u16,
    /// Reactor that serves the queue.
    pub reactor: usize,
    /// Commands in flight: fetched and not completed; the current queue depth.
    pub in_flight: u64,
    /// Commands completed.
    pub commands: u64,
    /// Commands completed with an error.
    pub errors: u64,
    /// Interrupts sent.
    pub interrupts: u64,
    /// Interrupts omitted because the host had already consumed every entry.
    pub interrupts_spared: u64,
    /// Requests to the host to ring for its next command, because none had arrived for 1 ms; only
    /// with doorbell buffers.
    pub rests: u64,
}
