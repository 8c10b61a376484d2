//! Figures: the time series, one below the other (throughput, the 99th percentile, and collection),
//! and the results over the values of a sweep.

use anyhow::ensure;
use plot::{Axis, Mark, Panel, Picture, Scale, Series};
use simulate::output::{KindReport, PointReport, Run};

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

/// Draws the results of the runs over the values of the first sweep; a line for each job, kind of
/// command and combination of the other sweeps' values.
///
/// # Errors
/// There is nothing to draw.
pub(super) fn swept(title: &str, runs: &[Run]) -> anyhow::Result<String> {
    let Some((name, _)) = runs.first().and_then(|run| run.point.first()) else {
        anyhow::bail!("cannot plot over a sweep: there is none");
    };
    let mut places: Vec<String> = Vec::new();
    for (_, value) in runs.iter().filter_map(|run| run.point.first()) {
        if !places.contains(value) {
            places.push(value.clone());
        }
    }
    let figures: [(&str, Figure); 4] = [
        ("IOPS", |kind| kind.iops),
        ("bytes per second", |kind| kind.bytes_per_s),
        ("mean latency, ns", |kind| kind.latency_ns.mean),
        ("99th percentile, ns", |kind| kind.latency_ns.p99),
    ];
    let panels = figures.map(|(up, figure)| Panel {
        title: String::new(),
        across: Axis::places(name.as_str(), places.clone()),
        up: Axis::from_zero(up),
        series: over(runs, &places, figure),
    });
    let panels: Vec<Panel> = panels.into_iter().collect();
    let empty = panels.iter().all(|panel| panel.series.is_empty());
    ensure!(!empty, "cannot plot: no command completed");
    Ok(plot::svg(&Picture {
        title: title.to_owned(),
        columns: 1,
        panel: PANEL,
        panels,
        notes: Vec::new(),
    }))
}

/// A result of the commands of one kind.
type Figure = fn(&KindReport) -> u64;

/// The lines of a figure over `places`, the values of the first sweep.
#[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
fn over(runs: &[Run], places: &[String], figure: Figure) -> Vec<Series> {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for run in runs {
        let Some(((_, value), others)) = run.point.split_first() else {
            continue;
        };
        let Some(at) = places.iter().position(|place| place == value) else {
            continue;
        };
        let others = others
            .iter()
            .map(|(name, value)| format!(" {name}={value}"));
        let others: String = others.collect();
        for job in &run.jobs {
            for kind in &job.kinds {
                let name = format!("{} {}{others}", job.name, kind.kind);
                let point = (at as f64, figure(kind) as f64);
                match lines.iter_mut().find(|line| line.0 == name) {
                    Some(line) => line.1.push(point),
                    None => lines.push((name, vec![point])),
                }
            }
        }
    }
    let lines = lines.into_iter();
    lines
        .map(|(name, points)| Series::new(name, Mark::LineAndDots, points))
        .collect()
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

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use model::preset::preset;
    use simulate::{Plan, Workload, fio};

    use super::*;

    /// On a drive of one latency the rate is the depth over the latency: the figure rises.
    #[test]
    fn results_over_the_values_of_a_sweep() {
        let drive = preset("optane-p4800x").unwrap();
        let parameters = drive.parameters(1 << 30, None).unwrap();
        let run = |depth: &str, bs: &str| {
            let text = format!(
                "[r]\nioengine=libaio\nrw=randread\nnorandommap\ntime_based\niodepth={depth}\nbs={bs}\n"
            );
            let plan = Plan::new(
                Workload::Jobs(fio::parse(&text, &[]).unwrap()),
                2_000_000,
                1,
            );
            let mut go_on = |_| ControlFlow::Continue(());
            let ran = simulate::run(&parameters, 1 << 30, &plan, &mut go_on).unwrap();
            let point = [("iodepth", depth), ("bs", bs)];
            let point = point.map(|(name, value)| (name.to_owned(), value.to_owned()));
            Run::new(&ran, point.to_vec())
        };
        let runs = [
            run("1", "4k"),
            run("1", "8k"),
            run("2", "4k"),
            run("2", "8k"),
        ];
        let places = ["1".to_owned(), "2".to_owned()];
        let lines = over(&runs, &places, |kind| kind.iops);
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["r read bs=4k", "r read bs=8k"]);
        let points = &lines[0].points;
        assert_eq!((points[0].at, points[1].at), (0.0, 1.0));
        let ratio = points[1].value / points[0].value;
        assert!((ratio - 2.0).abs() < 0.01, "{ratio}");
        let svg = swept("drive", &runs).unwrap();
        assert!(svg.contains("iodepth") && svg.contains("bs=8k"));
        assert!(swept("drive", &[]).is_err());
    }
}
