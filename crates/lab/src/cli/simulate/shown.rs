//! Text output of simulations.

use simulate::output::{KindReport, Run};
use terminal::table::{Align, Table};
use terminal::units;

/// The note below a table without rows.
const NOTHING: &str = "no command completed in the measured time: simulate longer, or with a shorter warm-up or ramp_time\n";

/// A table for each run, and the drive's internal counters.
pub(super) fn text(runs: &[Run]) -> String {
    let mut text = String::new();
    for run in runs {
        if !text.is_empty() {
            text.push('\n');
        }
        if !run.point.is_empty() {
            let values = run
                .point
                .iter()
                .map(|(name, value)| format!("{name}={value}"));
            text.push_str(&format!("{}\n", values.collect::<Vec<_>>().join(", ")));
        }
        text.push_str(&table(run).to_string());
        if run.jobs.iter().all(|job| job.kinds.is_empty()) {
            text.push_str(NOTHING);
        }
        if run.unsubmitted > 0 {
            text.push_str(&format!(
                "{} commands of the trace come after --virtual-time: they were not submitted\n",
                run.unsubmitted
            ));
        }
        if let Some(drive) = &run.drive {
            text.push_str(&format!(
                "write amplification {}: {} pages written, {} collected from {} lines; {} lines free\n",
                drive.write_amplification,
                drive.pages_written,
                drive.pages_collected,
                drive.lines_collected,
                drive.lines_free
            ));
            if drive.unmapped_reads > 0 {
                text.push_str(&unmapped(drive.unmapped_reads, drive.reads));
            }
        }
    }
    text
}

/// A note on reads that cost less than on a drive with data.
fn unmapped(unmapped: u64, reads: u64) -> String {
    format!(
        "{unmapped} of {reads} reads found unwritten blocks, which cost no flash read: write these blocks first, or leave --fresh out\n"
    )
}

fn table(run: &Run) -> Table {
    let mut table = Table::new(&[
        ("job", Align::Left),
        ("", Align::Left),
        ("commands", Align::Right),
        ("IOPS", Align::Right),
        ("MiB/s", Align::Right),
        ("mean", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("p99.9", Align::Right),
        ("max", Align::Right),
        ("errors", Align::Right),
    ]);
    for job in &run.jobs {
        for kind in &job.kinds {
            let mut cells = vec![job.name.clone(), kind.kind.to_owned()];
            cells.extend(figures(kind));
            cells.push(job.errors.to_string());
            table.row(cells);
        }
    }
    table
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn figures(kind: &KindReport) -> Vec<String> {
    let latency = &kind.latency_ns;
    let times = [
        latency.mean,
        latency.p50,
        latency.p99,
        latency.p999,
        latency.max,
    ];
    let mut cells = vec![
        kind.commands.to_string(),
        units::rate(kind.iops as f64),
        units::mib_s(kind.bytes_per_s as f64 / f64::from(1 << 20)),
    ];
    cells.extend(times.map(|ns| units::nanoseconds(ns as f64)));
    cells
}
