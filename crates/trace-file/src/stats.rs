//! Statistics of a trace.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Asked, Record, STAGES};

/// Size of the ranges by which commands are counted.
const RANGE: u64 = 1 << 20;
/// Number of reported ranges.
const HOTTEST: usize = 10;

/// Statistics of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Number of commands.
    pub commands: u64,
    /// Nanoseconds from the first doorbell to the last completion.
    pub span_ns: u64,
    /// By command name, the most frequent first.
    pub operations: Vec<OperationStats>,
    /// By stage.
    pub stages: Vec<StageStats>,
    /// Errors by their status field, the most frequent first.
    pub errors: Vec<(u16, u64)>,
    /// By submission queue.
    pub queues: Vec<QueueStats>,
    /// Percentage of reads and writes (without appends) that begin where the previous one of the
    /// same namespace and kind ended.
    pub sequential_percent: Option<f64>,
    /// The ranges of 1 MiB in which most reads and writes begin.
    pub hottest: Vec<RangeStats>,
}

/// Commands of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OperationStats {
    /// The name.
    pub name: String,
    /// Number of commands.
    pub count: u64,
    /// Number of failed commands.
    pub errors: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Their latencies, from the doorbell to the completion.
    #[serde(flatten)]
    pub latency: Latencies,
}

/// Latencies in nanoseconds, by the nearest-rank method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// Their mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p99_9_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Time of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StageStats {
    /// Its name.
    pub stage: &'static str,
    /// The mean over all commands, in nanoseconds.
    pub mean_ns: f64,
    /// Share of the total time of all stages, in percent.
    pub percent: f64,
}

/// A submission queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct QueueStats {
    /// Its identifier.
    pub queue: u16,
    /// Number of commands.
    pub commands: u64,
    /// Mean number of commands in flight when one was fetched, including it.
    pub depth_mean: f64,
    /// Maximum of that number.
    pub depth_max: u16,
}

/// A range of 1 MiB of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RangeStats {
    /// The namespace.
    pub nsid: u32,
    /// The first byte.
    pub start: u64,
    /// Number of commands that begin there.
    pub commands: u64,
    /// Bytes that they move.
    pub bytes: u64,
}

impl Latencies {
    /// Latencies from values in any order.
    #[must_use]
    pub fn of(mut latencies: Vec<u64>) -> Self {
        latencies.sort_unstable();
        let Some(max_ns) = latencies.last().copied() else {
            return Self::default();
        };
        let count = latencies.len();
        let at = |of_a_thousand: usize| {
            let rank = (count * of_a_thousand).div_ceil(1000);
            latencies[rank.max(1) - 1]
        };
        let sum: u128 = latencies.iter().map(|ns| u128::from(*ns)).sum();
        Latencies {
            mean_ns: sum as f64 / count as f64,
            p50_ns: at(500),
            p90_ns: at(900),
            p99_ns: at(990),
            p99_9_ns: at(999),
            max_ns,
        }
    }
}

/// Statistics of records sorted by time ([`crate::by_time`]).
#[must_use]
pub fn of(records: &[Record]) -> Stats {
    let begun = records.first().map_or(0, |record| record.at_ns);
    let ended = records.iter().map(Record::done_ns).max().unwrap_or(begun);
    let (sequential_percent, hottest) = places(records);
    Stats {
        commands: records.len() as u64,
        span_ns: ended - begun,
        operations: operations(records),
        stages: stages(records),
        errors: errors(records),
        queues: queues(records),
        sequential_percent,
        hottest,
    }
}

fn operations(records: &[Record]) -> Vec<OperationStats> {
    let mut all = BTreeMap::<(u8, u8), (OperationStats, Vec<u64>)>::new();
    for record in records {
        let (stats, latencies) = all.entry((record.csi, record.opcode)).or_default();
        if stats.count == 0 {
            stats.name = record.name();
        }
        stats.count += 1;
        if record.is_success() {
            stats.bytes += u64::from(record.bytes)
        } else {
            stats.errors += 1
        }
        latencies.push(record.latency_ns());
    }
    let mut all: Vec<_> = all
        .into_values()
        .map(|(stats, latencies)| OperationStats {
            latency: Latencies::of(latencies),
            ..stats
        })
        .collect();
    all.sort_by_key(|stats| std::cmp::Reverse(stats.count));
    all
}

fn stages(records: &[Record]) -> Vec<StageStats> {
    let mut sums = [0u128; STAGES.len()];
    for record in records {
        for (sum, stage) in sums.iter_mut().zip(record.stages) {
            *sum += u128::from(stage);
        }
    }
    let all: u128 = sums.iter().sum();
    let stage = |(stage, sum): (&&'static str, &u128)| StageStats {
        stage,
        mean_ns: *sum as f64 / records.len().max(1) as f64,
        percent: *sum as f64 * 100.0 / all.max(1) as f64,
    };
    STAGES.iter().zip(&sums).map(stage).collect()
}

fn errors(records: &[Record]) -> Vec<(u16, u64)> {
    let mut by_status = BTreeMap::<u16, u64>::new();
    for record in records.iter().filter(|record| !record.is_success()) {
        *by_status.entry(record.status).or_default() += 1;
    }
    let mut errors: Vec<_> = by_status.into_iter().collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    errors
}

fn queues(records: &[Record]) -> Vec<QueueStats> {
    let mut queues = BTreeMap::<u16, (QueueStats, u64)>::new();
    for record in records {
        let (stats, depths) = queues.entry(record.sqid).or_default();
        stats.queue = record.sqid;
        stats.commands += 1;
        stats.depth_max = stats.depth_max.max(record.depth);
        *depths += u64::from(record.depth);
    }
    let all = queues.into_values().map(|(stats, depths)| QueueStats {
        depth_mean: depths as f64 / stats.commands as f64,
        ..stats
    });
    all.collect()
}

/// The percentage of sequential commands, and the ranges with the most commands.
fn places(records: &[Record]) -> (Option<f64>, Vec<RangeStats>) {
    let mut ends = BTreeMap::<(u32, bool), u64>::new();
    let mut ranges = BTreeMap::<(u32, u64), RangeStats>::new();
    let (mut all, mut follow) = (0u64, 0u64);
    for record in records {
        let (start, len, writes) = match record.asked() {
            Ok(Asked::Read { start, len, .. }) => (start, len, false),
            Ok(Asked::Write { start, len, .. }) => (start, len, true),
            _ => continue,
        };
        all += 1;
        let before = ends.insert((record.nsid, writes), start + len);
        follow += u64::from(before == Some(start));
        let first = start / RANGE * RANGE;
        let range = ranges.entry((record.nsid, first)).or_default();
        (range.nsid, range.start) = (record.nsid, first);
        range.commands += 1;
        range.bytes = range.bytes.saturating_add(len);
    }
    let mut ranges: Vec<_> = ranges.into_values().collect();
    ranges.sort_by_key(|range| std::cmp::Reverse(range.commands));
    ranges.truncate(HOTTEST);
    let percent = (all > 0).then(|| follow as f64 * 100.0 / all as f64);
    (percent, ranges)
}
