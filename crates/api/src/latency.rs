//! Latencies of a controller's timed commands.

use std::collections::BTreeMap;

use nvme_spec::opcode::NvmOpcode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Latencies of the timed commands of an operation, from the turn that found the doorbell until the
/// completion was posted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// `read` (also Retrieve), `write` (also Zone Append and Store), or `other`.
    pub operation: String,
    /// Number of timed commands.
    pub count: u64,
    /// Sum of latencies, in nanoseconds.
    pub sum_ns: u64,
    /// Histogram: upper bound of each nonempty bucket in nanoseconds, and its count. There are 16
    /// buckets per power of two.
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    /// A percentile in millionths, in nanoseconds with a precision of 1/16; `None` without timed
    /// commands.
    pub fn at(&self, of_a_million: u64) -> Option<u64> {
        let rank = (u128::from(self.count) * u128::from(of_a_million)).div_ceil(1_000_000);
        let mut below = 0;
        let mut buckets = self.buckets.iter();
        let found = buckets.find(|(_, count)| {
            below += u128::from(*count);
            below >= rank
        });
        found.map(|(last, _)| *last)
    }

    /// The mean, in nanoseconds.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }
}

/// Time that timed commands spent in one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StageTime {
    /// Stage, in this order: `ring`, `fairness`, `translation`, `medium`, `model`, or `interrupt`.
    pub stage: String,
    /// Time in this stage, summed over all timed commands, in nanoseconds.
    pub sum_ns: u64,
}

/// Commands that ended with one status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusErrors {
    /// Status with its numbers, named as in the specification; `more` sums the statuses beyond the
    /// limit.
    pub status: String,
    /// Number of commands.
    pub count: u64,
}

/// Timed command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchedCommand {
    /// Time at which its doorbell was found, on the server's clock, in nanoseconds.
    pub time_ns: u64,
    /// Submission queue.
    pub queue: u16,
    /// Command identifier.
    pub cid: u16,
    /// Opcode.
    pub opcode: u8,
    /// Namespace identifier.
    pub nsid: u32,
    /// First logical block, where the command has one.
    pub lba: u64,
    /// Bytes transferred.
    pub bytes: u32,
    /// Whether Force Unit Access was set.
    pub fua: bool,
    /// Commands of its queue in flight when it was fetched, including itself.
    pub depth: u16,
    /// Completion status.
    pub status: String,
    /// Latency from the turn that found its doorbell until its completion was posted, in
    /// nanoseconds.
    pub latency_ns: u64,
    /// Time in each stage, by name, in nanoseconds; stages without time are omitted.
    pub stages: BTreeMap<String, u32>,
}

impl WatchedCommand {
    /// Its opcode's name in the NVM command set.
    pub fn operation(&self) -> &'static str {
        NvmOpcode(self.opcode).name()
    }
}

/// Latency report of a controller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LatencyReport {
    /// Latency sampling rate: on average one in N I/O commands is timed; 0: none.
    pub sample: u32,
    /// Latencies of the timed commands, by operation.
    pub latency: Vec<Latency>,
    /// Stages of these latencies.
    pub stages: Vec<StageTime>,
    /// I/O commands that ended with an error, by status, the most frequent first.
    pub errors_by_status: Vec<StatusErrors>,
    /// Last timed commands, oldest first.
    pub commands: Vec<WatchedCommand>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_ranks() {
        let latency = Latency {
            operation: "read".into(),
            count: 100,
            sum_ns: 5000,
            buckets: vec![(10, 50), (20, 49), (1000, 1)],
        };
        let at = |million| latency.at(million).unwrap();
        // the nearest-rank method, for 100 values: the 50th, the 51st, the 99th, the 100th
        assert_eq!(at(500_000), 10);
        assert_eq!(at(500_001), 20);
        assert_eq!(at(990_000), 20);
        assert_eq!(at(999_000), 1000);
        assert_eq!(at(1_000_000), 1000);
        assert_eq!(latency.mean(), Some(50.0));
        let none = Latency {
            count: 0,
            buckets: Vec::new(),
            ..latency
        };
        assert_eq!((none.at(500_000), none.mean()), (None, None));
    }
}
