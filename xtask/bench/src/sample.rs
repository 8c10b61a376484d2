//! Figures of one measurement, series of them, and what a series comes to.
//!
//! Placements do not mix: two CPUs of a virtual machine are near each other at one moment and far
//! at the next, which changes results more than most software does. A series has a median for each.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What one measurement of one subject gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) iops: f64,
    /// Mean latency in microseconds.
    pub(crate) mean_us: f64,
    /// Percentiles, where the tool tells them.
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) p999_us: Option<f64>,
    /// Nanoseconds of a processor that the server spent for each command.
    pub(crate) server_ns: Option<f64>,
    /// Nanoseconds of a reactor's turns that found work, for each command; only of our own server.
    pub(crate) reactor_ns: Option<f64>,
    /// Submission queue entries for each doorbell; only of our own host.
    pub(crate) batch: Option<f64>,
    /// Notifications of the server for each command: doorbells that were messages, of our own
    /// host; kicks of a virtio driver.
    pub(crate) messages: Option<f64>,
    /// `near`, `far`, `mixed` or `unknown`.
    pub(crate) placement: String,
    /// Intervals left out because the machine had not let the host run; none where the tool does
    /// not look.
    pub(crate) stalls: Option<u64>,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    /// Whose: `nvmirage ram`, `fio io_uring`.
    pub(crate) name: String,
    /// `randread` and the like.
    pub(crate) rw: String,
    pub(crate) queue_depth: u64,
}

impl Subject {
    pub(crate) fn new(name: &str, rw: &str, queue_depth: u64) -> Self {
        let (name, rw) = (name.to_owned(), rw.to_owned());
        Self {
            name,
            rw,
            queue_depth,
        }
    }
}

/// All samples of all subjects, in the order in which subjects were first seen.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) series: Vec<(Subject, Vec<Sample>)>,
    /// Subjects that could not be measured, and why.
    pub(crate) failures: BTreeMap<String, String>,
}

impl Results {
    pub(crate) fn add(&mut self, subject: Subject, sample: Sample) {
        match self.series.iter_mut().find(|(known, _)| *known == subject) {
            Some((_, samples)) => samples.push(sample),
            None => self.series.push((subject, vec![sample])),
        }
    }

    /// The placement that most samples have, of those that have one; `unknown` where none has.
    pub(crate) fn usual_placement(&self) -> &'static str {
        let count = |placement: &str| {
            let samples = self.series.iter().flat_map(|(_, samples)| samples);
            samples.filter(|s| s.placement == placement).count()
        };
        match (count("near"), count("far")) {
            (0, 0) => "unknown",
            (near, far) if near > far => "near",
            _ => "far",
        }
    }

    /// Whether every subject has so many samples of one placement. One whose placement is never
    /// known has to have as many at all.
    pub(crate) fn enough(&self, placement: &str, rounds: usize) -> bool {
        self.series
            .iter()
            .all(|(_, samples)| of_placement(samples, placement).len() >= rounds)
    }
}

/// The samples of a placement; all of them, where no sample has one.
pub(crate) fn of_placement<'a>(samples: &'a [Sample], placement: &str) -> Vec<&'a Sample> {
    let known = |s: &&Sample| s.placement == "near" || s.placement == "far";
    if samples.iter().any(|s| known(&s)) {
        samples
            .iter()
            .filter(|s| s.placement == placement)
            .collect()
    } else {
        samples.iter().collect()
    }
}

/// The middle value; the mean of the two in the middle where their number is even; none of none.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// What samples come to: medians, with the least and the most commands a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub(crate) samples: usize,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// Medians; of stalls the sum.
    pub(crate) median: Sample,
}

impl Summary {
    /// None of no samples.
    pub(crate) fn of(samples: &[&Sample]) -> Option<Self> {
        let all = |of: &dyn Fn(&Sample) -> f64| samples.iter().map(|s| of(s)).collect::<Vec<_>>();
        let some = |of: &dyn Fn(&Sample) -> Option<f64>| {
            median(samples.iter().filter_map(|s| of(s)).collect())
        };
        let iops = all(&|s| s.iops);
        Some(Self {
            samples: samples.len(),
            least: iops.iter().copied().fold(f64::INFINITY, f64::min),
            most: iops.iter().copied().fold(0.0, f64::max),
            median: Sample {
                iops: median(iops)?,
                mean_us: median(all(&|s| s.mean_us))?,
                p50_us: some(&|s| s.p50_us),
                p99_us: some(&|s| s.p99_us),
                p999_us: some(&|s| s.p999_us),
                server_ns: some(&|s| s.server_ns),
                reactor_ns: some(&|s| s.reactor_ns),
                batch: some(&|s| s.batch),
                messages: some(&|s| s.messages),
                placement: samples.first()?.placement.clone(),
                stalls: samples.iter().filter_map(|s| s.stalls).reduce(|a, b| a + b),
            },
        })
    }

    pub(crate) fn in_json(&self) -> Value {
        let of = &self.median;
        json!({
            "samples": self.samples,
            "iops": of.iops,
            "iops_min": self.least,
            "iops_max": self.most,
            "latency_us": {
                "mean": of.mean_us,
                "p50": of.p50_us,
                "p99": of.p99_us,
                "p999": of.p999_us,
            },
            "server_cpu_ns_per_command": of.server_ns,
            "reactor_busy_ns_per_command": of.reactor_ns,
            "batch": of.batch,
            "doorbell_messages_per_command": of.messages,
            "stalls_left_out": of.stalls,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(iops: f64, placement: &str) -> Sample {
        Sample {
            iops,
            placement: placement.into(),
            ..Sample::default()
        }
    }

    #[test]
    fn a_median_is_the_middle_one() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![30.0, 1e6, 20.0, 40.0, 10.0]), Some(30.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn placements_do_not_mix() {
        let samples = [
            sample(10.0, "near"),
            sample(1.0, "far"),
            sample(2.0, "far"),
            sample(7.0, "mixed"),
            sample(3.0, "far"),
        ];
        let far = Summary::of(&of_placement(&samples, "far")).unwrap();
        assert_eq!(
            (far.samples, far.median.iops, far.least, far.most),
            (3, 2.0, 1.0, 3.0)
        );
        assert_eq!(
            Summary::of(&of_placement(&samples, "near"))
                .unwrap()
                .median
                .iops,
            10.0
        );
        // a tool of unknown placement has one set
        let unknown = [sample(5.0, "unknown"), sample(6.0, "unknown")];
        assert_eq!(of_placement(&unknown, "near").len(), 2);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn enough_is_so_many_of_one_placement_for_everyone() {
        let mut results = Results::default();
        let (a, b) = (
            Subject::new("a", "randread", 1),
            Subject::new("b", "randread", 1),
        );
        for placement in ["far", "near", "far", "far"] {
            results.add(a.clone(), sample(1.0, placement));
            results.add(b.clone(), sample(1.0, "far"));
        }
        assert_eq!(results.usual_placement(), "far");
        assert!(results.enough("far", 3));
        assert!(!results.enough("far", 4), "a has three");
        assert!(!results.enough("near", 1), "b has none");
        assert_eq!(Results::default().usual_placement(), "unknown");
    }

    #[test]
    fn what_only_some_tools_tell_is_the_median_of_those() {
        let mut with = sample(1.0, "far");
        (with.p50_us, with.stalls) = (Some(2.0), Some(3));
        let more = Sample {
            stalls: Some(4),
            ..with.clone()
        };
        let without = sample(1.0, "far");
        let summary = Summary::of(&[&with, &without, &more]).unwrap();
        let of = &summary.median;
        assert_eq!((of.p50_us, of.p99_us), (Some(2.0), None));
        assert_eq!(of.stalls, Some(7));
        assert!(summary.in_json()["latency_us"]["p99"].is_null());
    }
}
