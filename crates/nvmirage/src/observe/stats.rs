//! Everything that is counted as JSON: what `GET /v1/stats` answers, for whoever draws it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    ControllerCounts, Snapshot,
    latency::{self, Latency, StageTime, StatusErrors},
};
use crate::control::{
    ControllerStatus, MediumStatus, NamespaceStatus, ReactorStatus, TenantStatus,
};

/// Everything that is counted. Counts only grow while what they are of is there: rates are the difference of two answers over that of
/// their `time_ns`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Stats {
    /// When this was, on the server's clock, which is never set: nanoseconds since it started.
    pub(crate) time_ns: u64,
    /// The same on the clock of the day: milliseconds since 1970.
    pub(crate) unix_time_ms: u64,
    /// Reactors, in the order of the configuration.
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

/// A controller, and what its hosts did with it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ControllerStats {
    /// What is known of it.
    #[serde(flatten)]
    pub(crate) status: ControllerStatus,
    /// Commands that moved data, as its SMART log counts them; they are kept over a restart.
    pub(crate) commands: ByDirection,
    /// Bytes that these moved.
    pub(crate) bytes: ByDirection,
    /// Commands that a medium failed; they are kept over a restart.
    pub(crate) media_errors: u64,
    /// Its I/O completion queues that are there, with what completed into them since its host made them.
    pub(crate) completion_queues: Vec<QueueStats>,
    /// Latencies by operation, of one I/O command of `sample`, at random distances.
    pub(crate) latency: Vec<Latency>,
    /// Where the time of these went.
    pub(crate) stages: Vec<StageTime>,
    /// I/O commands that ended with an error, by status, the most frequent first, since the server started.
    pub(crate) errors_by_status: Vec<StatusErrors>,
}

/// A count for each direction of data.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct ByDirection {
    /// To the host.
    pub(crate) read: u64,
    /// From the host.
    pub(crate) write: u64,
}

/// A completion queue, with the submission queues that complete into it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct QueueStats {
    /// The completion queue.
    pub(crate) queue: u16,
    /// The reactor that serves it.
    pub(crate) reactor: usize,
    /// Commands fetched and not completed: the queue depth at this moment.
    pub(crate) in_flight: u64,
    /// Commands completed.
    pub(crate) commands: u64,
    /// Those with an error.
    pub(crate) errors: u64,
    /// Interrupts sent.
    pub(crate) interrupts: u64,
    /// Interrupts that were not, as the host had consumed everything by then.
    pub(crate) interrupts_spared: u64,
    /// Times that the queue was polled no more, as no command had come for 1 ms, and its host was asked to ring for the next
    /// one. Hosts with doorbell buffers are.
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
