//! What the runs of each point of a database came to.

use serde_json::{Value, json};

use super::engine::Done;
use super::watch::{self, Moment};
use crate::sample::median;

/// One run of one point.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) done: Done,
    pub(super) moments: Vec<Moment>,
}

/// A drive, and what a database did on it: once in each round, once at least.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) bandwidth_mib_s: u64,
    pub(super) latency_us: u64,
    pub(super) runs: Vec<Run>,
}

/// The median of the runs, the least and the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Run {
    /// What was read and written a second, in MiB, over all of it.
    fn mib_s(&self) -> f64 {
        watch::mean(&self.moments, |moment| moment.mib_s)
    }

    fn queue_depth(&self) -> f64 {
        watch::mean(&self.moments, |moment| moment.queue_depth)
    }

    fn in_json(&self) -> Value {
        json!({
            "transactions_per_s": self.done.transactions_per_s,
            "latency_ms_mean": self.done.mean_ms,
            "latency_ms_p99": self.done.p99_ms,
            "used_mib_s": self.mib_s(),
            "queue_depth": self.queue_depth(),
            "series": self.moments.iter().map(Moment::in_json).collect::<Vec<_>>(),
        })
    }
}

impl Point {
    pub(super) fn transactions_per_s(&self) -> Spread {
        self.spread(|run| run.done.transactions_per_s)
    }

    fn spread(&self, of: impl Fn(&Run) -> f64) -> Spread {
        let all: Vec<f64> = self.runs.iter().map(of).collect();
        Spread {
            least: all.iter().copied().fold(f64::INFINITY, f64::min),
            most: all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            median: median(all).expect("a point has a run"),
        }
    }

    /// The run in the middle, by transactions; of an even number the slower of the two.
    pub(super) fn middle(&self) -> &Run {
        let mut all: Vec<&Run> = self.runs.iter().collect();
        all.sort_by(|a, b| {
            let rate = |run: &Run| run.done.transactions_per_s;
            rate(a).total_cmp(&rate(b))
        });
        all[(all.len() - 1) / 2]
    }

    pub(super) fn in_json(&self) -> Value {
        let rate = self.transactions_per_s();
        json!({
            "bandwidth_mib_s": self.bandwidth_mib_s,
            "latency_us": self.latency_us,
            "transactions_per_s": rate.median,
            "transactions_per_s_least": rate.least,
            "transactions_per_s_most": rate.most,
            "latency_ms_mean": self.spread(|run| run.done.mean_ms).median,
            "latency_ms_p99": self.spread(|run| run.done.p99_ms).median,
            "used_mib_s": self.spread(Run::mib_s).median,
            "queue_depth": self.spread(Run::queue_depth).median,
            "runs": self.runs.iter().map(Run::in_json).collect::<Vec<_>>(),
        })
    }
}

/// All points as a table.
pub(super) fn table(version: &str, points: &[Point]) -> String {
    use std::fmt::Write as _;
    let mut text = format!(
        "{version}\n\n| drive | transactions/s | least to most | mean ms | p99 ms | used MiB/s | queue depth |\n|---|---|---|---|---|---|---|\n"
    );
    for point in points {
        let rate = point.transactions_per_s();
        let _ = writeln!(
            text,
            "| {} MiB/s, {} us | {:.0} | {:.0} to {:.0} | {:.1} | {:.1} | {:.1} | {:.1} |",
            point.bandwidth_mib_s,
            point.latency_us,
            rate.median,
            rate.least,
            rate.most,
            point.spread(|run| run.done.mean_ms).median,
            point.spread(|run| run.done.p99_ms).median,
            point.spread(Run::mib_s).median,
            point.spread(Run::queue_depth).median,
        );
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A point whose runs do so many transactions a second.
    pub(in super::super) fn point(bandwidth_mib_s: u64, latency_us: u64, rates: &[f64]) -> Point {
        let moment = |mib_s| Moment {
            at_s: 1.0,
            for_s: 1.0,
            mib_s,
            queue_depth: 3.0,
        };
        let run = |rate: &f64| Run {
            done: Done {
                transactions_per_s: *rate,
                mean_ms: 1.0,
                p99_ms: 2.0,
            },
            moments: vec![moment(rate / 10.0); 2],
        };
        Point {
            bandwidth_mib_s,
            latency_us,
            runs: rates.iter().map(run).collect(),
        }
    }

    #[test]
    fn runs_come_to_a_median_a_least_and_a_most() {
        let three = point(64, 128, &[300.0, 100.0, 150.0]);
        let expected = Spread {
            median: 150.0,
            least: 100.0,
            most: 300.0,
        };
        assert_eq!(three.transactions_per_s(), expected);
        assert_eq!(three.middle().done.transactions_per_s, 150.0);
        let two = point(64, 128, &[300.0, 100.0]);
        assert_eq!(two.transactions_per_s().median, 200.0);
        assert_eq!(two.middle().done.transactions_per_s, 100.0);
        let json = three.in_json();
        assert_eq!(json["transactions_per_s"], 150.0);
        assert_eq!(json["transactions_per_s_most"], 300.0);
        assert_eq!(json["used_mib_s"], 15.0);
        assert_eq!(json["runs"].as_array().unwrap().len(), 3);
        assert!(table("x", &[three]).contains("| 150 | 100 to 300 | 1.0 | 2.0 | 15.0 | 3.0 |"));
    }
}
