//! What the watched commands of a controller come to ([`controller::flight`]), of all its queues together, and of those that are gone.

use std::collections::BTreeMap;

use controller::{
    counters::Counted,
    flight::{LaneFlight, Operation, Stage, StatusCounts},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Latencies of the watched commands of an operation, from the look that saw the doorbell until the completion was posted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Latency {
    /// `read` (also Retrieve), `write` (also Zone Append and Store), or `other`.
    pub(crate) operation: String,
    /// Commands watched.
    pub(crate) count: u64,
    /// Their latencies together, in nanoseconds.
    pub(crate) sum_ns: u64,
    /// The largest latency that counts in a bucket, in nanoseconds, and how many do: 16 buckets in each power of two, and
    /// those only that have some.
    pub(crate) buckets: Vec<(u64, u64)>,
}

/// Where the time of watched commands went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct StageTime {
    /// `ring`, `fairness`, `translation`, `medium`, `model`, or `interrupt`, in this order.
    pub(crate) stage: String,
    /// What it took of all watched commands together, in nanoseconds.
    pub(crate) sum_ns: u64,
}

/// Commands that ended with a status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct StatusErrors {
    /// The status as the specification names it, with its numbers; `more` stands for those that found no place.
    pub(crate) status: String,
    /// How many.
    pub(crate) count: u64,
}

fn flights(counted: &Counted) -> impl Iterator<Item = &LaneFlight> {
    let watched = counted.queues.iter().filter_map(|q| q.watched.as_ref());
    let there = watched.map(|watched| &*watched.flight);
    there.chain([&counted.past.flight])
}

/// By operation.
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

/// By stage.
pub(crate) fn stages(counted: &Counted) -> Vec<StageTime> {
    let of = |stage: Stage| StageTime {
        stage: stage.word().to_owned(),
        sum_ns: flights(counted)
            .map(|flight| flight.stages[stage as usize].sum.get())
            .sum(),
    };
    Stage::ALL.map(of).into()
}

/// By status, the most frequent first.
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
