//! Counters of the command path: one writer each, read by anyone without a lock.
//!
//! A lane's counters outlive the lane in the hands of its controller, which sums them up for the SMART log.

use std::sync::Arc;

use memory::Counter;

use crate::admin::health::HealthRecord;
use crate::flight::{Past, StatusCounts, Watched};

/// What a lane did.
#[derive(Debug, Default)]
pub struct LaneCounters {
    /// Commands fetched.
    pub fetched: Counter,
    /// Completions posted.
    pub completions: Counter,
    /// Read commands that succeeded.
    pub reads: Counter,
    /// Bytes of those.
    pub read_bytes: Counter,
    /// Write commands that succeeded.
    pub writes: Counter,
    /// Bytes of those.
    pub write_bytes: Counter,
    /// Compare commands that ran, equal or not.
    pub compares: Counter,
    /// Bytes of those.
    pub compare_bytes: Counter,
    /// Verify commands that succeeded.
    pub verifies: Counter,
    /// Bytes of those.
    pub verify_bytes: Counter,
    /// Copy commands that succeeded.
    pub copies: Counter,
    /// Bytes of those, which were read and written.
    pub copy_bytes: Counter,
    /// Flush commands that succeeded.
    pub flushes: Counter,
    /// Write Zeroes and Dataset Management commands that succeeded.
    pub deallocations: Counter,
    /// Commands that completed with an error of any kind.
    pub errors: Counter,
    /// Those, by their status.
    pub statuses: StatusCounts,
    /// Commands that a medium failed.
    pub media_errors: Counter,
    /// Media errors that were not logged, because the controller had not taken the earlier ones.
    pub unlogged_errors: Counter,
    /// Interrupts handed to the transport.
    pub interrupts: Counter,
    /// Those that were not, as the host had consumed everything by then.
    pub interrupts_spared: Counter,
}

/// What a reactor did; in the vendor log page.
#[derive(Debug, Default)]
pub struct ReactorCounters {
    /// Nanoseconds of turns that found work.
    pub busy_ns: Counter,
    /// Completions of all lanes.
    pub completions: Counter,
    /// Turns taken.
    pub turns: Counter,
    /// Turns that found work.
    pub turns_with_work: Counter,
    /// Nanoseconds of turns that found none.
    pub spun_ns: Counter,
    /// Turns that took longer than any work does: the system let something else run. They are in no time of the others.
    pub stalls: Counter,
    /// Nanoseconds of those.
    pub stalled_ns: Counter,
    /// Nanoseconds asleep.
    pub slept_ns: Counter,
    /// Times that it went to sleep.
    pub sleeps: Counter,
}

/// What a controller has counted, all of it at one time.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// What its SMART log has.
    pub health: HealthRecord,
    /// What its I/O completion queues that are there have done since they were made.
    pub queues: Vec<QueueCounted>,
    /// What those have counted that are gone.
    pub past: Arc<Past>,
}

/// What a completion queue, with every submission queue that completes into it, has done.
#[derive(Clone, Debug)]
pub struct QueueCounted {
    /// The completion queue.
    pub cqid: u16,
    /// Commands fetched and not completed, about now.
    pub in_flight: u64,
    /// Completions posted.
    pub completions: u64,
    /// Those with an error.
    pub errors: u64,
    /// Interrupts sent.
    pub interrupts: u64,
    /// Interrupts that were not, as the host had consumed everything by then.
    pub interrupts_spared: u64,
    /// All of its counters, which go on.
    pub counters: Arc<LaneCounters>,
    /// Its commands that were watched, if some were.
    pub watched: Option<Watched>,
}
