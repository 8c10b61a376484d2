//! Latencies of a controller's timed commands ([`controller::flight`]), over all of its queues,
//! existing and deleted, and those of its hosts over a network.

use std::collections::BTreeMap;

use api::{Latency, LatencyReport, StageTime, StatusErrors, WatchedCommand};
use controller::counters::{Counted, NAMESPACES};
use controller::flight::{FlightRecord, LaneFlight, Operation, Stage, StatusCounts};

use super::histogram::Histogram;

impl From<Latency> for Histogram {
    fn from(latency: Latency) -> Self {
        Histogram {
            buckets: latency.buckets,
            sum_ns: latency.sum_ns,
        }
    }
}

fn watched_command(record: &FlightRecord) -> WatchedCommand {
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

/// The latency report of a controller.
pub(crate) fn report(counted: &Counted) -> LatencyReport {
    let watched = counted.all_queues().filter_map(|q| q.watched.as_ref());
    let there = watched.map(|watched| &*watched.records);
    let all = there.chain(counted.all_past().map(|past| &past.records));
    let mut last = Vec::new();
    for records in all {
        last.extend(records.last(counted.records));
        // Many hosts have many queues.
        last.sort_by_key(|record| record.begun);
        last.drain(..last.len().saturating_sub(counted.records));
    }
    LatencyReport {
        sample: counted.sample,
        latency: latencies(counted),
        stages: stages(counted),
        errors_by_status: errors(counted),
        commands: last.iter().map(watched_command).collect(),
    }
}

fn flights(counted: &Counted) -> impl Iterator<Item = &LaneFlight> {
    let watched = counted.all_queues().filter_map(|q| q.watched.as_ref());
    let there = watched.map(|watched| &*watched.flight);
    there.chain(counted.all_past().map(|past| &past.flight))
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
    let there = counted.all_queues().map(|q| &q.counters.namespaces);
    for counts in there.chain(counted.all_past().map(|past| &past.namespaces)) {
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
    let there = counted.all_queues().map(|q| &q.counters.statuses);
    let mut by_status = BTreeMap::<String, u64>::new();
    let past = counted.all_past().map(|past| &past.statuses);
    let all: Vec<&StatusCounts> = there.chain(past).collect();
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
