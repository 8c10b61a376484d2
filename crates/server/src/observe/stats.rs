//! All counters as JSON: the response of `GET /v1/stats`.

use api::{ByDirection, ControllerStats, QueueStats, Stats};

use super::{ControllerCounts, Snapshot, latency};

impl From<ControllerCounts> for ControllerStats {
    fn from(counts: ControllerCounts) -> Self {
        let ControllerCounts {
            status, counted, ..
        } = counts;
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
            process,
            reactors,
            media,
            namespaces,
            tenants,
            controllers,
        } = snapshot;
        Stats {
            time_ns: time.0,
            unix_time_ms: day,
            process,
            reactors,
            media,
            namespaces,
            tenants,
            controllers: controllers.into_iter().map(Into::into).collect(),
        }
    }
}
