//! Latencies of a controller's timed commands ([`controller::flight`]), over all of its queues,
//! existing and deleted.

use std::collections::BTreeMap;

use controller::counters::{Counted, NAMESPACES};
use controller::flight::{FlightRecord, LaneFlight, Operation, Stage, StatusCounts};
use nvme_spec::opcode::NvmOpcode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::histogram::Histogram;

/// Latencies of the timed commands of an operation, from the turn that found the doorbell until the
/// completion was posted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Latency {
    /// `read` (also Retrieve), `write` (also Zone Append and Store), or `other`.
    pub(crate) operation: String,
    /// Number of timed commands.
    pub(crate) count: u64,
    /// Sum of latencies, in nanoseconds.
    pub(crate) sum_ns: u64,
    /// Histogram: upper bound of each nonempty bucket in nanoseconds, and its count. There are 16
    /// buckets per power of two.
    pub(crate) buckets: Vec<(u64, u64)>,
}

impl From<Latency> for Histogram {
    fn from(latency: Latency) -> Self {
        Histogram {
            buckets: latency.buckets,
            sum_ns: latency.sum_ns,
        }
    }
}

/// Time that timed commands spent in one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct StageTime {
    /// Stage, in this order: `ring`, `fairness`, `translation`, `medium`, `model`, or `interrupt`.
    pub(crate) stage: String,
    /// Time in this stage, summed over all timed commands, in nanoseconds.
    pub(crate) sum_ns: u64,
}

/// Commands that ended with one status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct StatusErrors {
    /// Status with its numbers, named as in the specification; `more` sums the statuses beyond the
    /// limit.
    pub(crate) status: String,
    /// Number of commands.
    pub(crate) count: u64,
}

/// Timed command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct WatchedCommand {
    /// Time at which its doorbell was found, on the server's clock, in nanoseconds.
    pub(crate) time_ns: u64,
    /// Submission queue.
    pub(crate) queue: u16,
    /// Command identifier.
    pub(crate) cid: u16,
    /// Opcode.
    pub(crate) opcode: u8,
    /// Namespace identifier.
    pub(crate) nsid: u32,
    /// First logical block, where the command has one.
    pub(crate) lba: u64,
    /// Bytes transferred.
    pub(crate) bytes: u32,
    /// Whether Force Unit Access was set.
    pub(crate) fua: bool,
    /// Commands of its queue in flight when it was fetched, including itself.
    pub(crate) depth: u16,
    /// Completion status.
    pub(crate) status: String,
    /// Latency from the turn that found its doorbell until its completion was posted, in
    /// nanoseconds.
    pub(crate) latency_ns: u64,
    /// Time in each stage, by name, in nanoseconds; stages without time are omitted.
    pub(crate) stages: BTreeMap<String, u32>,
}

/// Latency report of a controller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct LatencyReport {
    /// Latency sampling rate: on average one in N I/O commands is timed; 0: none.
    pub(crate) sample: u32,
    /// Latencies of the timed commands, by operation.
    pub(crate) latency: Vec<Latency>,
    /// Stages of these latencies.
    pub(crate) stages: Vec<StageTime>,
    /// I/O commands that ended with an error, by status, the most frequent first.
    pub(crate) errors_by_status: Vec<StatusErrors>,
    /// Last timed commands, oldest first, up to 256.
    pub(crate) commands: Vec<WatchedCommand>,
}

/// Most commands in a report.
const REPORTED: usize = 256;

impl From<&FlightRecord> for WatchedCommand {
    fn from(record: &FlightRecord) -> Self {
        let stages = Stage::ALL.iter().zip(record.stages);
        let took = stages.filter(|(_, ns)| *ns > 0);
        WatchedCommand {
            time_ns: record.begun.0,
            queue: record.sqid,
            cid: record.cid,
            opcode: record.opcode,
            nsid: record.nsid,
            lba: record.slba,
            bytes: record.bytes,
            fua: record.fua,
            depth: record.depth,
            status: record.status.to_string(),
            latency_ns: record.latency_ns(),
            stages: took
                .map(|(stage, ns)| (stage.word().to_owned(), ns))
                .collect(),
        }
    }
}

impl WatchedCommand {
    /// Its opcode's name in the NVM command set.
    pub(crate) fn operation(&self) -> &'static str {
        NvmOpcode(self.opcode).name()
    }
}

impl From<&Counted> for LatencyReport {
    fn from(counted: &Counted) -> Self {
        let watched = counted.queues.iter().filter_map(|q| q.watched.as_ref());
        let there = watched.map(|watched| &*watched.records);
        let all = there.chain([&counted.past.records]);
        let mut records: Vec<_> = all.flat_map(|records| records.last(REPORTED)).collect();
        records.sort_by_key(|record| record.begun);
        let last = &records[records.len().saturating_sub(REPORTED)..];
        LatencyReport {
            sample: counted.sample,
            latency: latencies(counted),
            stages: stages(counted),
            errors_by_status: errors(counted),
            commands: last.iter().map(Into::into).collect(),
        }
    }
}

impl Latency {
    /// A percentile in millionths, in nanoseconds with a precision of 1/16; `None` without timed
    /// commands.
    pub(crate) fn at(&self, of_a_million: u64) -> Option<u64> {
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
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }
}

fn flights(counted: &Counted) -> impl Iterator<Item = &LaneFlight> {
    let watched = counted.queues.iter().filter_map(|q| q.watched.as_ref());
    let there = watched.map(|watched| &*watched.flight);
    there.chain([&counted.past.flight])
}

/// Latencies by operation.
pub(crate) fn latencies(counted: &Counted) -> Vec<Latency> {
    let of = |operation: Operation| {
        let mut buckets = BTreeMap::new();
        let mut sum_ns = 0;
        for flight in flights(counted) {
            let latency = &flight.latency[operation as usize];
            sum_ns += latency.sum();
            for (last, count) in latency.counts() {
                *buckets.entry(last).or_default() += count;
            }
        }
        Latency {
            operation: operation.word().to_owned(),
            count: buckets.values().sum(),
            sum_ns,
            buckets: buckets.into_iter().collect(),
        }
    };
    Operation::ALL.map(of).into()
}

/// Times by stage.
pub(crate) fn stages(counted: &Counted) -> Vec<StageTime> {
    let of = |stage: Stage| StageTime {
        stage: stage.word().to_owned(),
        sum_ns: flights(counted)
            .map(|flight| flight.stages[stage as usize].sum.get())
            .sum(),
    };
    Stage::ALL.map(of).into()
}

/// Commands and bytes of timed commands that succeeded, in the order of [`Operation::ALL`].
pub(crate) type NamespaceTraffic = [(u64, u64); Operation::ALL.len()];

/// Timed commands of a namespace.
pub(crate) fn traffic(counted: &Counted, nsid: u32) -> NamespaceTraffic {
    let mut sums = NamespaceTraffic::default();
    for flight in flights(counted) {
        let counts = flight.namespaces.counts();
        for (_, count) in counts.filter(|(of, _)| *of == nsid) {
            let all = count.commands.iter().zip(&count.bytes);
            for (sum, (commands, bytes)) in sums.iter_mut().zip(all) {
                sum.0 += commands.get();
                sum.1 += bytes.get();
            }
        }
    }
    sums
}

/// Counters of all commands of a namespace on one controller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NamespaceTotals {
    /// Commands that read, and commands that wrote.
    pub(crate) commands: [u64; 2],
    /// Bytes read, and bytes written.
    pub(crate) bytes: [u64; 2],
    /// Commands that failed.
    pub(crate) errors: u64,
}

/// Counters of a namespace; `None` if its identifier is too large to be counted individually.
pub(crate) fn totals(counted: &Counted, nsid: u32) -> Option<NamespaceTotals> {
    if nsid as usize > NAMESPACES {
        return None;
    }
    let mut sums = NamespaceTotals::default();
    let there = counted.queues.iter().map(|q| &q.counters.namespaces);
    for counts in there.chain([&counted.past.namespaces]) {
        let its = counts.of(nsid);
        sums.commands[0] += its.reads.get();
        sums.commands[1] += its.writes.get();
        sums.bytes[0] += its.read_bytes.get();
        sums.bytes[1] += its.write_bytes.get();
        sums.errors += its.errors.get();
    }
    Some(sums)
}

/// Errors by status, the most frequent first.
pub(crate) fn errors(counted: &Counted) -> Vec<StatusErrors> {
    let there = counted.queues.iter().map(|q| &q.counters.statuses);
    let mut by_status = BTreeMap::<String, u64>::new();
    let all: Vec<&StatusCounts> = there.chain([&counted.past.statuses]).collect();
    for (status, count) in all.iter().flat_map(|counts| counts.counts()) {
        let name = status.map_or("more".to_owned(), |status| status.to_string());
        *by_status.entry(name).or_default() += count;
    }
    let errors = by_status.into_iter();
    let mut errors: Vec<_> = errors
        .map(|(status, count)| StatusErrors { status, count })
        .collect();
    errors.sort_by_key(|one| std::cmp::Reverse(one.count));
    errors
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
