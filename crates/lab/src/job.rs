//! Results of a job, as text and as JSON.

use driver::workload::JobResult;
use load::host::Measured;
use load::placement::Placement;
use serde::Serialize;
use terminal::table::{Align, Table};
use terminal::units;

use crate::figures::{LatencyReport, bytes_per_s, rounded};

/// First commands on an idle queue, measured beside the job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct ColdReport {
    pub(crate) commands: u64,
    pub(crate) errors: u64,
    pub(crate) latency_ns: LatencyReport,
}

/// A job's figures, as `--json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct JobReport {
    pub(crate) name: String,
    pub(crate) rw: &'static str,
    /// Bytes.
    pub(crate) block_size: u32,
    pub(crate) queue_depth: u16,
    /// Number of queue pairs, each of that depth.
    pub(crate) queues: u16,
    /// Placement of the CPUs, measured before and after; absent if not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) placement: Option<Placement>,
    pub(crate) iops: f64,
    /// Bytes of data per second.
    pub(crate) bytes_per_s: u64,
    pub(crate) latency_ns: LatencyReport,
    /// Commands that failed, and blocks that read back wrong.
    pub(crate) errors: u64,
    /// The first error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_error: Option<String>,
    /// Commands completed in the measured time.
    pub(crate) commands: u64,
    /// The measured time, without stalls unless they are included.
    pub(crate) elapsed_ns: u64,
    /// Times at which the machine did not run the host, and their total.
    pub(crate) stalls: u64,
    pub(crate) stalled_ns: u64,
    /// Whether all results include them, because the drive went on meanwhile.
    pub(crate) stalls_included: bool,
    /// The same for this program's own server, by its reactor's time stamps; omitted where they
    /// account for all that the host saw.
    pub(crate) server_stalls: u64,
    pub(crate) server_stalled_ns: u64,
    /// Submission queue entries per doorbell write.
    pub(crate) batch: f64,
    /// Register writes per command, each of which is a message to a server.
    pub(crate) doorbell_messages_per_command: f64,
    /// Zones that were reset in the measured time.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) zone_resets: u64,
    /// Logical blocks of which every byte was checked.
    pub(crate) blocks_verified: u64,
    /// Only for this program's own server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reactor_busy_ns_per_command: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cold: Option<ColdReport>,
    /// Results of other drives that ran the job at the same time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) also: Vec<AlsoReport>,
}

/// Results of the same job on another drive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct AlsoReport {
    pub(crate) target: String,
    #[serde(flatten)]
    pub(crate) report: JobReport,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl JobReport {
    pub(crate) fn new(result: &JobResult, reactor_busy_ns_per_command: Option<f64>) -> Self {
        let status = result.first_error.map(|s| format!("a command failed: {s}"));
        let mismatch = result.first_mismatch.map(|m| m.to_string());
        JobReport {
            name: result.name.clone(),
            rw: result.rw.name(),
            block_size: result.block_size,
            queue_depth: result.queue_depth,
            queues: 1,
            placement: None,
            iops: rounded(result.iops),
            bytes_per_s: bytes_per_s(result.iops, result.block_size),
            latency_ns: LatencyReport::new(&result.latency_ns),
            errors: result.errors,
            // wrong data is worse than a command that reports its failure
            first_error: mismatch.or(status),
            commands: result.commands,
            elapsed_ns: result.elapsed_ns,
            stalls: result.stalls,
            stalled_ns: result.stalled_ns,
            stalls_included: result.stalls_included,
            server_stalls: 0,
            server_stalled_ns: 0,
            batch: rounded(result.batch),
            doorbell_messages_per_command: rounded(result.messages_per_command),
            zone_resets: result.zone_resets,
            blocks_verified: result.blocks_verified,
            reactor_busy_ns_per_command: reactor_busy_ns_per_command.map(rounded),
            cold: None,
            also: Vec::new(),
        }
    }

    /// Figures of a job, with those of the reactor.
    pub(crate) fn of(measured: &Measured) -> Self {
        let stalls = measured.server_stalls;
        JobReport {
            server_stalls: stalls.count,
            server_stalled_ns: stalls.ns,
            ..JobReport::new(&measured.result, measured.reactor_busy_ns_per_command)
        }
    }

    /// The cells of [`COLUMNS`].
    pub(crate) fn cells(&self) -> Vec<String> {
        let latency = &self.latency_ns;
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let time = |ns: u64| units::nanoseconds(ns as f64);
        vec![
            units::rate(self.iops),
            units::mib_s(self.bytes_per_s as f64 / f64::from(1 << 20)),
            units::nanoseconds(latency.mean),
            time(latency.p50),
            time(latency.p99),
            time(latency.p999),
        ]
    }

    /// Warning below the table: the machine did not run the host, or the server,
    /// for a good part of the time.
    pub(crate) fn note(&self) -> Option<String> {
        let excluded = if self.stalls_included {
            0
        } else {
            self.stalled_ns
        };
        let whole = self.elapsed_ns + excluded + self.server_stalled_ns;
        let stalled = self.stalled_ns.max(self.server_stalled_ns);
        if stalled < whole / 20 {
            return None;
        }
        let (who, is_in) = if self.stalled_ns >= self.server_stalled_ns {
            ("this host", self.stalls_included)
        } else {
            ("the server", false)
        };
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let time = |ns: u64| units::nanoseconds(ns as f64);
        let how = if is_in {
            "the drive went on, so the figures include that time"
        } else {
            "the figures exclude that time"
        };
        let title = self.title();
        let (stalled, whole) = (time(stalled), time(whole));
        Some(format!(
            "{title}: the machine did not run {who} for {stalled} of {whole}; {how}"
        ))
    }

    /// `4 KiB randread, QD 32`.
    pub(crate) fn title(&self) -> String {
        title(self.rw, self.block_size, self.queue_depth)
    }
}

/// `4 KiB randread, QD 32`.
pub(crate) fn title(rw: &str, block_size: u32, queue_depth: u16) -> String {
    format!("{} {rw}, QD {queue_depth}", units::block(block_size))
}

/// The columns that every table of jobs has.
pub(crate) const COLUMNS: [(&str, Align); 6] = [
    ("IOPS", Align::Right),
    ("MiB/s", Align::Right),
    ("mean", Align::Right),
    ("p50", Align::Right),
    ("p99", Align::Right),
    ("p99.9", Align::Right),
];

/// A table of jobs on one drive.
pub(crate) fn table(jobs: &[JobReport]) -> Table {
    let mut columns = vec![("job", Align::Left)];
    columns.extend(COLUMNS);
    columns.extend([
        ("max", Align::Right),
        ("errors", Align::Right),
        ("reactor/cmd", Align::Right),
        ("batch", Align::Right),
        ("placement", Align::Left),
    ]);
    let mut table = Table::new(&columns);
    for job in jobs {
        table.row(row(job.title(), job));
        for other in &job.also {
            let depth = other.report.queue_depth;
            let title = format!("  also {}, QD {depth}", other.target);
            table.row(row(title, &other.report));
        }
    }
    table
}

fn row(title: String, job: &JobReport) -> Vec<String> {
    let mut cells = vec![title];
    cells.extend(job.cells());
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    cells.push(units::nanoseconds(job.latency_ns.max as f64));
    cells.push(job.errors.to_string());
    let busy = job.reactor_busy_ns_per_command;
    cells.push(busy.map_or("-".to_owned(), units::nanoseconds));
    cells.push(format!("{:.1}", job.batch));
    cells.push(job.placement.map_or("-", Placement::name).to_owned());
    cells
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use driver::workload::{Latency, Lulls, Rw};

    use super::*;

    fn result() -> JobResult {
        JobResult {
            name: "a".into(),
            rw: Rw::RandRead,
            block_size: 4096,
            queue_depth: 32,
            iops: 1_234_567.890_12,
            mib_s: 4_822.531_3,
            latency_ns: Latency {
                mean: 25_900.5,
                p50: 25_000,
                p99: 40_000,
                min: 7_000,
                p90: 12_000,
                p999: 90_000,
                p9999: 95_000,
                max: 1_500_000,
            },
            errors: 0,
            first_error: None,
            first_mismatch: None,
            commands: 1_234_567,
            zone_resets: 0,
            blocks_verified: 0,
            elapsed_ns: u64::try_from(Duration::from_secs(1).as_nanos()).unwrap(),
            stalls: 0,
            stalled_ns: 0,
            stalls_included: false,
            lulls: Lulls::default(),
            batch: 3.5,
            messages_per_command: 0.0625,
        }
    }

    #[test]
    fn a_machine_that_did_not_run_the_host_for_long_is_told() {
        let quiet = JobReport::new(&result(), None);
        let busy = |stalled_ns, stalls_included| JobReport {
            stalled_ns,
            stalls_included,
            ..quiet.clone()
        };
        assert_eq!(quiet.note(), None);
        assert_eq!(busy(40_000_000, false).note(), None);
        let note = busy(1_000_000_000, false).note().unwrap();
        assert!(
            note.ends_with(
                "did not run this host for 1.00 s of 2.00 s; the figures exclude that time"
            ),
            "{note}"
        );
        let note = busy(600_000_000, true).note().unwrap();
        assert!(
            note.contains("600 ms of 1.00 s; the drive went on"),
            "{note}"
        );
        let server = JobReport {
            server_stalled_ns: 1_000_000_000,
            ..quiet
        };
        assert!(
            server
                .note()
                .unwrap()
                .contains("did not run the server for")
        );
    }

    #[test]
    fn json_has_the_documented_keys() {
        let value = serde_json::to_value(JobReport::new(&result(), Some(123.456_7))).unwrap();
        for key in [
            "name",
            "rw",
            "block_size",
            "queue_depth",
            "iops",
            "bytes_per_s",
            "errors",
            "queues",
            "stalls",
            "server_stalls",
            "server_stalled_ns",
            "stalled_ns",
            "stalls_included",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        for key in ["mean", "min", "p50", "p90", "p99", "p999", "p9999", "max"] {
            assert!(value["latency_ns"].get(key).is_some(), "{key}");
        }
        assert_eq!(value["reactor_busy_ns_per_command"], 123.457);
        assert_eq!(value["batch"], 3.5);
        assert_eq!(value["doorbell_messages_per_command"], 0.063);
        let other = serde_json::to_value(JobReport::new(&result(), None)).unwrap();
        assert!(other.get("reactor_busy_ns_per_command").is_none());
    }

    #[test]
    fn drives_beside_have_rows_and_figures_of_their_own() {
        let report = JobReport::new(&result(), None);
        let other = AlsoReport {
            target: "vfio-user:b".to_owned(),
            report: report.clone(),
        };
        let both = JobReport {
            also: vec![other],
            ..report
        };
        let value = serde_json::to_value(&both).unwrap();
        assert_eq!(value["also"][0]["target"], "vfio-user:b");
        assert_eq!(value["also"][0]["commands"], 1_234_567);
        let text = table(&[both]).to_string();
        let last = text.lines().last().unwrap();
        assert!(last.contains("also vfio-user:b, QD 32"), "{text}");
    }

    #[test]
    fn a_table_has_a_row_for_each_job() {
        let text = table(&[JobReport::new(&result(), None)]).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        let cells: Vec<&str> = lines[1]
            .split("  ")
            .map(str::trim)
            .filter(|c| !c.is_empty())
            .collect();
        assert_eq!(
            cells,
            [
                "4 KiB randread, QD 32",
                "1.23 M",
                "4823",
                "25.9 us",
                "25.0 us",
                "40.0 us",
                "90.0 us",
                "1.50 ms",
                "0",
                "-",
                "3.5",
                "-"
            ]
        );
    }
}
