//! The time series as figures, one below the other: throughput, the 99th percentile, and
//! collection.

use anyhow::ensure;
use plot::{Axis, Mark, Panel, Picture, Scale, Series};
use simulate::output::{PointReport, Run};

/// Width and height of a panel, in pixels.
const PANEL: (u32, u32) = (1000, 300);

/// Draws the runs as SVG.
///
/// # Errors
/// There is nothing to draw.
pub(super) fn svg(title: &str, runs: &[Run]) -> anyhow::Result<String> {
    let panels = panels(runs).into_iter();
    let panels: Vec<Panel> = panels.filter(|panel| !panel.series.is_empty()).collect();
    ensure!(!panels.is_empty(), "cannot plot: no command completed");
    Ok(plot::svg(&Picture {
        title: title.to_owned(),
        columns: 1,
        panel: PANEL,
        panels,
        notes: Vec::new(),
    }))
}

#[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
fn panels(runs: &[Run]) -> [Panel; 4] {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let rate = |kind: usize| {
        move |point: &PointReport| {
            let moment = [&point.read, &point.write][kind];
            Some(mib(moment.bytes_per_s))
        }
    };
    // An interval without commands has no latency.
    let tail = |kind: usize, scale: f64| {
        move |point: &PointReport| {
            let moment = [&point.read, &point.write][kind];
            (moment.iops > 0).then(|| moment.p99_ns as f64 / scale)
        }
    };
    let longest = runs.iter().flat_map(|run| &run.series);
    let longest = longest.map(|p| p.read.p99_ns.max(p.write.p99_ns)).max();
    let (unit, scale) = match longest.unwrap_or(0) {
        0..2_000_000 => ("99th percentile, us", 1e3),
        _ => ("99th percentile, ms", 1e6),
    };
    let names = ["read", "write"];
    let all = |line: &dyn Fn(usize, &str) -> Vec<Series>| {
        let kinds = (0..2).flat_map(|kind| line(kind, names[kind]));
        kinds
            .filter(|line| line.points.iter().any(|point| point.value > 0.0))
            .collect::<Vec<Series>>()
    };
    let amplification = |point: &PointReport| {
        let drive = point
            .drive
            .as_ref()
            .filter(|drive| drive.pages_written > 0)?;
        let (host, all) = (
            drive.pages_written,
            drive.pages_written + drive.pages_collected,
        );
        Some(all as f64 / host as f64)
    };
    let free = |point: &PointReport| point.drive.as_ref().map(|drive| drive.lines_free as f64);
    let panel = |up: &str, least: f64, series: Vec<Series>| Panel {
        title: String::new(),
        across: Axis::from_zero("virtual time, s"),
        up: Axis::of(up, Scale::FromZero(least)),
        series,
    };
    [
        panel(
            "MiB/s",
            0.0,
            all(&|kind, name| lines(runs, name, rate(kind))),
        ),
        panel(
            unit,
            0.0,
            all(&|kind, name| lines(runs, name, tail(kind, scale))),
        ),
        panel(
            "write amplification",
            2.0,
            lines(runs, "write amplification", amplification),
        ),
        panel("free lines", 10.0, lines(runs, "free lines", free)),
    ]
}

/// A line for each run that has points.
#[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
fn lines(runs: &[Run], name: &str, value: impl Fn(&PointReport) -> Option<f64>) -> Vec<Series> {
    let of_run = |run: &Run| {
        let at = run
            .point
            .iter()
            .map(|(name, value)| format!(" {name}={value}"));
        let points = run.series.iter().filter_map(|point| {
            let seconds = point.end_ns as f64 / 1e9;
            Some((seconds, value(point)?))
        });
        let name = format!("{name}{}", at.collect::<String>());
        Series::new(name, Mark::Line, points)
    };
    let all = runs.iter().map(of_run);
    all.filter(|line| !line.points.is_empty()).collect()
}
