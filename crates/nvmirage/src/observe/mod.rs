//! What a running server has done, in numbers: one [`Snapshot`] that everything reads which shows
//! numbers.
//!
//! Numbers of reactors and tenants are read where they are counted; those of controllers come from
//! their reactors, asked once each. Counts only grow while what they are of is there; those of a
//! controller go on over a restart, as its SMART log has them.

pub(crate) mod families;
mod histogram;
mod latency;
mod map;
mod media;
mod model;
mod protobuf;
mod queues;
mod stats;
mod text;

use controller::counters::Counted;
pub(crate) use latency::{Latency, LatencyReport};
pub(crate) use map::{MOST_CELLS, MapNamespace, MediumMap, Taken, Taking, Wanted};
pub(crate) use model::{ModelStatus, PairsStatus, ZonesStatus};
use port::time::Time;
pub(crate) use queues::{CompletionQueue, DoorbellWords, QueuesReport, SubmissionQueue};
pub(crate) use stats::{ControllerStats, Stats};
pub(crate) use text::Format;

use crate::control::{
    ControllerStatus, MediumStatus, NamespaceStatus, ReactorStatus, TenantStatus,
};

/// Everything that is counted, at one time.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// When, on the clock of the reactors.
    pub(crate) time: Time,
    /// The same on the clock of the day, in milliseconds since 1970.
    pub(crate) day: u64,
    pub(crate) reactors: Vec<ReactorStatus>,
    pub(crate) media: Vec<MediumStatus>,
    pub(crate) namespaces: Vec<NamespaceStatus>,
    pub(crate) tenants: Vec<TenantStatus>,
    pub(crate) controllers: Vec<ControllerCounts>,
}

/// A controller, with what it has counted.
#[derive(Debug)]
pub(crate) struct ControllerCounts {
    pub(crate) status: ControllerStatus,
    pub(crate) counted: Counted,
}

/// All of it, as a scraper reads it.
pub(crate) fn metrics(snapshot: &Snapshot, format: Format) -> Vec<u8> {
    let families = families::of(snapshot);
    match format {
        Format::Protobuf => protobuf::write(&families),
        Format::OpenMetrics | Format::Text => text::write(&families, format).into_bytes(),
    }
}
