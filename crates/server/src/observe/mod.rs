//! Counters of a running server: one [`Snapshot`], from which all outputs are generated.
//!
//! Counters of reactors and tenants are read in place; those of controllers come from their
//! reactors, with one message to each. A counter only grows as long as its object exists; counters
//! of a controller's SMART log are persistent.

mod by_queue;
pub(crate) mod families;
mod histogram;
mod latency;
mod media;
mod metric;
mod network;
mod process;
mod protobuf;
mod queues;
mod stats;
mod text;

use std::cell::OnceCell;
use std::time::{SystemTime, UNIX_EPOCH};

use api::{
    ControllerStatus, Latency, MediumStatus, NamespaceStatus, ProcessStatus, ReactorStatus,
    TenantStatus,
};
use controller::counters::Counted;
pub(crate) use latency::report as latency_report;
use machine::clock::Clock;
use port::time::Time;
pub(crate) use queues::{Inspected, report as queues_report};
use reactor::network::NetworkCounts;
pub(crate) use text::Format;

/// The time on the reactors' clock, and on the system clock in milliseconds since 1970.
pub(crate) fn now() -> (Time, u64) {
    let day = SystemTime::now().duration_since(UNIX_EPOCH);
    let day = day.map_or(0, |since| since.as_millis());
    let day = u64::try_from(day).unwrap_or(u64::MAX);
    (Clock::of_process().now(), day)
}

/// Marks of activity: equal values mean that no counter has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stir {
    /// Completions of all reactors.
    pub(crate) completions: u64,
    /// Number of the newest event.
    pub(crate) events: u64,
}

/// All counters at one time.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// Time on the reactors' clock.
    pub(crate) time: Time,
    /// Time on the system clock, in milliseconds since 1970.
    pub(crate) day: u64,
    pub(crate) process: ProcessStatus,
    pub(crate) reactors: Vec<ReactorStatus>,
    pub(crate) media: Vec<MediumStatus>,
    pub(crate) namespaces: Vec<NamespaceStatus>,
    pub(crate) tenants: Vec<TenantStatus>,
    pub(crate) controllers: Vec<ControllerCounts>,
}

/// A controller with its counters.
#[derive(Debug)]
pub(crate) struct ControllerCounts {
    pub(crate) status: ControllerStatus,
    pub(crate) counted: Counted,
    /// Latencies by operation, once they were asked for: there are many histograms to sum.
    pub(crate) latencies: OnceCell<Vec<Latency>>,
    /// Counters of its hosts over NVMe/TCP, NBD, vhost-user-blk or ublk.
    pub(crate) network: Option<NetworkCounts>,
}

impl ControllerCounts {
    /// Latencies by operation.
    fn latencies(&self) -> &[Latency] {
        self.latencies
            .get_or_init(|| latency::latencies(&self.counted))
    }
}

/// All metrics, in a scraper's format.
pub(crate) fn metrics(snapshot: &Snapshot, format: Format) -> Vec<u8> {
    let families = families::of(snapshot);
    match format {
        Format::Protobuf => protobuf::write(&families),
        Format::OpenMetrics | Format::Text => text::write(&families, format).into_bytes(),
    }
}
