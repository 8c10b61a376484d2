//! Reports as JSON and CSV, with every number computed from whole numbers.
//!
//! Rates and percentiles are whole; ratios have three decimals, truncated. So the same run gives
//! the same bytes on any machine.

use std::fmt::Write;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::tally::{Commands, Figures, JobTally, Moment, Point};
use crate::{Kind, Ran};

/// Output of one or several simulations.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    /// The program's version.
    pub nvmirage: &'a str,
    /// Every input of the runs.
    pub configuration: serde_json::Value,
    /// The runs, in the requested order.
    pub runs: Vec<Run>,
}

/// One simulation.
#[derive(Debug, Serialize)]
pub struct Run {
    /// Values that differ between the runs of a sweep, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub point: Vec<(String, String)>,
    /// The measured time.
    pub elapsed_ns: u64,
    /// Total number of commands, including the warm-up.
    pub commands: u64,
    /// Number of arrivals of a trace that come after the simulated time.
    #[serde(skip_serializing_if = "is_zero")]
    pub unsubmitted: u64,
    /// Whether it was stopped early.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Results by job.
    pub jobs: Vec<JobReport>,
    /// Internal counters of the drive; absent for one without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive: Option<DriveReport>,
    /// The same over time.
    pub series: Vec<PointReport>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Results of a job.
#[derive(Debug, Serialize)]
pub struct JobReport {
    /// Name of its section.
    pub name: String,
    /// Properties of its commands; absent for a trace.
    #[serde(flatten)]
    pub asked: Option<AskedReport>,
    /// Measured time of the job.
    pub runtime_ns: u64,
    /// Failed commands.
    pub errors: u64,
    /// Status of the first failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Results by kind; kinds without commands are absent.
    pub kinds: Vec<KindReport>,
}

/// Properties of a job's commands.
#[derive(Debug, Serialize)]
pub struct AskedReport {
    /// Random rather than in order.
    pub random: bool,
    /// Commands in flight of each queue pair.
    pub queue_depth: u16,
    /// Number of queue pairs.
    pub queues: u16,
    /// Whether it waited between commands, for a rate or thinking time.
    pub paced: bool,
}

/// Commands of one kind.
#[derive(Debug, Serialize)]
pub struct KindReport {
    /// Name as in [`Kind::name`].
    pub kind: &'static str,
    /// Size of each in bytes, if all have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    /// Number of commands.
    pub commands: u64,
    /// Total size in bytes.
    pub bytes: u64,
    /// Per second.
    pub iops: u64,
    /// Per second.
    pub bytes_per_s: u64,
    /// Latency from submission until the host sees the completion.
    pub latency_ns: LatencyReport,
}

/// Times in nanoseconds.
#[derive(Debug, Serialize)]
pub struct LatencyReport {
    /// Mean, rounded down.
    pub mean: u64,
    /// Minimum.
    pub min: u64,
    /// Median; percentiles are too high by at most 1 in 256.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// 99.99 %.
    pub p9999: u64,
    /// Maximum.
    pub max: u64,
}

/// Internal counters of a drive.
#[derive(Debug, Serialize)]
pub struct DriveReport {
    /// Pages of 4096 bytes written by hosts.
    pub pages_written: u64,
    /// Pages rewritten by collection.
    pub pages_collected: u64,
    /// Collected lines.
    pub lines_collected: u64,
    /// Free lines at the end.
    pub lines_free: u64,
    /// Pages written per page written by hosts.
    pub write_amplification: Box<RawValue>,
    /// Reads submitted.
    pub reads: u64,
    /// Reads that found a page without data, which costs no sense.
    pub unmapped_reads: u64,
}

/// Results of an interval.
#[derive(Debug, Serialize)]
pub struct PointReport {
    /// Its end.
    pub end_ns: u64,
    /// Reads that completed in it.
    pub read: MomentReport,
    /// Writes.
    pub write: MomentReport,
    /// Internal counters of the drive in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive: Option<DriveReport>,
}

/// Commands of one kind in an interval.
#[derive(Debug, Serialize)]
pub struct MomentReport {
    /// Per second.
    pub iops: u64,
    /// Per second.
    pub bytes_per_s: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// Rate per second, rounded down.
fn per_second(count: u64, ns: u64) -> u64 {
    let rate = (u128::from(count) * 1_000_000_000).checked_div(ns.into());
    rate.map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
}

/// A number of thousandths, with three decimals.
fn thousandths(value: u64) -> String {
    format!("{}.{:03}", value / 1000, value % 1000)
}

impl Run {
    /// Report of a simulation; `point` has the values that distinguish it from others of a sweep.
    #[must_use]
    pub fn new(ran: &Ran, point: Vec<(String, String)>) -> Self {
        let jobs = ran.jobs.iter().zip(&ran.runtime_ns);
        Self {
            point,
            elapsed_ns: ran.elapsed_ns,
            commands: ran.commands,
            unsubmitted: ran.unsubmitted,
            interrupted: ran.stopped,
            jobs: jobs.map(|(job, ns)| JobReport::new(job, *ns)).collect(),
            drive: DriveReport::new(&ran.drive),
            series: ran.points.iter().map(PointReport::new).collect(),
        }
    }
}

impl JobReport {
    fn new(job: &JobTally, runtime_ns: u64) -> Self {
        let kinds = Kind::ALL.iter().zip(&job.kinds);
        let kinds = kinds.filter(|(_, commands)| commands.latency_ns.count() > 0);
        Self {
            name: job.name.clone(),
            runtime_ns,
            errors: job.errors,
            first_error: job.first_error.clone(),
            asked: job.asked.map(|asked| AskedReport {
                random: asked.random,
                queue_depth: asked.depth,
                queues: asked.workers,
                paced: asked.paced,
            }),
            kinds: kinds
                .map(|(kind, commands)| KindReport {
                    block_size: job.asked.and_then(|asked| asked.sizes[kind.size_index()?]),
                    ..KindReport::new(*kind, commands, runtime_ns)
                })
                .collect(),
        }
    }
}

impl KindReport {
    fn new(kind: Kind, commands: &Commands, runtime_ns: u64) -> Self {
        let Commands { bytes, latency_ns } = commands;
        let percentile = |part| latency_ns.percentile(part, 10_000);
        Self {
            kind: kind.name(),
            block_size: None,
            commands: latency_ns.count(),
            bytes: *bytes,
            iops: per_second(latency_ns.count(), runtime_ns),
            bytes_per_s: per_second(*bytes, runtime_ns),
            latency_ns: LatencyReport {
                mean: latency_ns.mean(),
                min: latency_ns.least(),
                p50: percentile(5_000),
                p90: percentile(9_000),
                p99: percentile(9_900),
                p999: percentile(9_990),
                p9999: percentile(9_999),
                max: latency_ns.most(),
            },
        }
    }
}

impl DriveReport {
    fn new(figures: &Figures) -> Option<Self> {
        let amplification = thousandths(figures.amplification_thousandths());
        figures.has_lines.then(|| Self {
            pages_written: figures.pages_written,
            pages_collected: figures.pages_collected,
            lines_collected: figures.lines_collected,
            lines_free: figures.lines_free,
            write_amplification: RawValue::from_string(amplification).expect("it is a number"),
            reads: figures.reads,
            unmapped_reads: figures.unmapped_reads,
        })
    }
}

impl PointReport {
    fn new(point: &Point) -> Self {
        let [read, write] = point
            .kinds
            .map(|moment| MomentReport::new(&moment, point.len_ns));
        Self {
            end_ns: point.end_ns,
            read,
            write,
            drive: DriveReport::new(&point.drive),
        }
    }
}

impl MomentReport {
    fn new(moment: &Moment, len_ns: u64) -> Self {
        Self {
            iops: per_second(moment.commands, len_ns),
            bytes_per_s: per_second(moment.bytes, len_ns),
            p50_ns: moment.p50_ns,
            p99_ns: moment.p99_ns,
            max_ns: moment.max_ns,
        }
    }
}

/// Header of [`csv`].
pub const CSV_COLUMNS: &str = "run,end_ns,read_iops,read_bytes_per_s,read_p50_ns,read_p99_ns,read_max_ns,write_iops,write_bytes_per_s,write_p50_ns,write_p99_ns,write_max_ns,pages_written,pages_collected,lines_collected,lines_free,write_amplification,reads,unmapped_reads";

/// The series of all runs as a table: a line for each interval. Runs count from 1. Behind `run` the
/// values of a sweep have columns of their own, named as their keys.
#[must_use]
pub fn csv(runs: &[Run]) -> String {
    let swept = runs.first().map_or(&[][..], |run| &run.point);
    let names: String = swept.iter().map(|(name, _)| format!(",{name}")).collect();
    let mut text = format!(
        "{}\n",
        CSV_COLUMNS.replacen("run", &format!("run{names}"), 1)
    );
    for (number, run) in (1..).zip(runs) {
        let values = run.point.iter().map(|(_, value)| format!(",{value}"));
        let values: String = values.collect();
        for point in &run.series {
            let mut line = format!("{number}{values},{}", point.end_ns);
            for kind in [&point.read, &point.write] {
                let MomentReport {
                    iops,
                    bytes_per_s,
                    p50_ns,
                    p99_ns,
                    max_ns,
                } = kind;
                let _ = write!(line, ",{iops},{bytes_per_s},{p50_ns},{p99_ns},{max_ns}");
            }
            match &point.drive {
                Some(drive) => {
                    let DriveReport {
                        pages_written,
                        pages_collected,
                        lines_collected,
                        lines_free,
                        write_amplification,
                        reads,
                        unmapped_reads,
                    } = drive;
                    let _ = write!(
                        line,
                        ",{pages_written},{pages_collected},{lines_collected},{lines_free},{write_amplification},{reads},{unmapped_reads}"
                    );
                }
                None => line.push_str(",,,,,,,"),
            }
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_ratios_are_cut_off() {
        assert_eq!(per_second(10, 3_000_000_000), 3);
        assert_eq!(per_second(10, 0), 0);
        assert_eq!(per_second(u64::MAX, 1), u64::MAX);
        assert_eq!(thousandths(1), "0.001");
        assert_eq!(thousandths(2480), "2.480");
        let figures = Figures {
            pages_written: 3,
            pages_collected: 2,
            ..Figures::default()
        };
        assert_eq!(figures.amplification_thousandths(), 1666);
        assert_eq!(Figures::default().amplification_thousandths(), 1000);
    }

    #[test]
    fn a_table_has_as_many_cells_as_columns() {
        let figures = Figures {
            has_lines: true,
            ..Figures::default()
        };
        let point = |drive| Point {
            end_ns: 5,
            len_ns: 5,
            kinds: Default::default(),
            drive,
        };
        let ran = Ran {
            elapsed_ns: 5,
            runtime_ns: Vec::new(),
            jobs: Vec::new(),
            points: vec![point(figures), point(Figures::default())],
            drive: figures,
            commands: 0,
            turns: 0,
            instants: 0,
            unsubmitted: 0,
            stopped: false,
        };
        let text = csv(&[Run::new(&ran, Vec::new())]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        for line in &lines {
            assert_eq!(
                line.split(',').count(),
                lines[0].split(',').count(),
                "{line}"
            );
        }
        assert_eq!(lines[1], "1,5,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1.000,0,0");
        let of = |depth: &str| {
            let value = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            Run::new(&ran, vec![value("iodepth", depth), value("bs", "4k")])
        };
        let text = csv(&[of("1"), of("8")]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("run,iodepth,bs,end_ns,"), "{text}");
        assert!(lines[1].starts_with("1,1,4k,5,"), "{text}");
        assert!(lines[3].starts_with("2,8,4k,5,"), "{text}");
        for line in &lines {
            assert_eq!(line.split(',').count(), lines[0].split(',').count());
        }
    }
}
