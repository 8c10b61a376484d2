//! All counters as JSON: the response of `GET /v1/stats`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::latency::{self, Latency, StageTime, StatusErrors};
use super::{ControllerCounts, Snapshot};
use crate::control::{
    ControllerStatus, MediumStatus, NamespaceStatus, ReactorStatus, TenantStatus,
};

/// All counters. A counter grows for as long as its object exists: a rate is the difference of two
/// reports over the difference of their `time_ns`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Stats {
    /// Time of the report on the server's monotonic clock: nanoseconds since it started.
    pub(crate) time_ns: u64,
    /// Time of the report on the system clock: milliseconds since 1970.
    pub(crate) unix_time_ms: u64,
    /// Reactors, in configuration order.
    pub(crate) reactors: Vec<ReactorStatus>,
    /// Media, in order of creation.
    pub(crate) media: Vec<MediumStatus>,
    /// Namespaces, in order of creation.
    pub(crate) namespaces: Vec<NamespaceStatus>,
    /// Tenants, in order of creation.
    pub(crate) tenants: Vec<TenantStatus>,
    /// Controllers, in order of creation.
    pub(crate) controllers: Vec<ControllerStats>,
}

/// Controller, with counters of its hosts' commands.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ControllerStats {
    /// Status of the controller.
    #[serde(flatten)]
    pub(crate) status: ControllerStatus,
    /// Commands that transferred data, as the SMART log counts them; persistent.
    pub(crate) commands: ByDirection,
    /// Bytes transferred by these commands.
    pub(crate) bytes: ByDirection,
    /// Commands that a medium failed; persistent.
    pub(crate) media_errors: u64,
    /// Existing I/O completion queues, with counters since their creation.
    pub(crate) completion_queues: Vec<QueueStats>,
    /// Latencies of the timed commands, by operation; `sample` is the sampling rate.
    pub(crate) latency: Vec<Latency>,
    /// Stages of these latencies.
    pub(crate) stages: Vec<StageTime>,
    /// I/O commands that ended with an error since the server started, by status, the most frequent
    /// first.
    pub(crate) errors_by_status: Vec<StatusErrors>,
}

/// Counts by direction of data.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct ByDirection {
    /// To the host.
    pub(crate) read: u64,
    /// From the host.
    pub(crate) write: u64,
}

/// Completion queue, with the submission queues that complete into it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct QueueStats {
    /// Queue identifier.
    pub(crate) queue: u16,
    /// Reactor that serves the queue.
    pub(crate) reactor: usize,
    /// Commands in flight: fetched and not completed; the current queue depth.
    pub(crate) in_flight: u64,
    /// Commands completed.
    pub(crate) commands: u64,
    /// Commands completed with an error.
    pub(crate) errors: u64,
    /// Interrupts sent.
    pub(crate) interrupts: u64,
    /// Interrupts omitted because the host had already consumed every entry.
    pub(crate) interrupts_spared: u64,
    /// Requests to the host to ring for its next command, because none had arrived for 1 ms; only
    /// with doorbell buffers.
    pub(crate) rests: u64,
}

impl From<ControllerCounts> for ControllerStats {
    fn from(counts: ControllerCounts) -> Self {
        let ControllerCounts { status, counted } = counts;
        let reactor = |cqid: u16| {
            let mut places = status.placement.iter();
            let place = places.find(|place| place.queue == cqid);
            let known = place.map(|place| place.reactor);
            known.or(status.config.reactor).unwrap_or_default()
        };
        let queues = counted.queues.iter().map(|queue| QueueStats {
            queue: queue.cqid,
            reactor: reactor(queue.cqid),
            in_flight: queue.in_flight,
            commands: queue.completions,
            errors: queue.errors,
            interrupts: queue.interrupts,
            interrupts_spared: queue.interrupts_spared,
            rests: queue.rests,
        });
        ControllerStats {
            commands: ByDirection {
                read: counted.health.read_commands,
                write: counted.health.write_commands,
            },
            bytes: ByDirection {
                read: counted.health.bytes_read,
                write: counted.health.bytes_written,
            },
            media_errors: counted.health.media_errors,
            completion_queues: queues.collect(),
            latency: latency::latencies(&counted),
            stages: latency::stages(&counted),
            errors_by_status: latency::errors(&counted),
            status,
        }
    }
}

impl From<Snapshot> for Stats {
    fn from(snapshot: Snapshot) -> Self {
        let Snapshot {
            time,
            day,
            reactors,
            media,
            namespaces,
            tenants,
            controllers,
        } = snapshot;
        Stats {
            time_ns: time.0,
            unix_time_ms: day,
            reactors,
            media,
            namespaces,
            tenants,
            controllers: controllers.into_iter().map(Into::into).collect(),
        }
    }
}
