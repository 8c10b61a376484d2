//! The figures: time or throughput over the points, in virtual time and for real (the paper's figure 4), and how the times of commands of 16 KiB
//! are spread (5a); and percentiles of a drive that takes no time, over the runs (3).

use std::{fs, path::Path};

use anyhow::{Context, anyhow};
use plotters::{coord::Shift, prelude::*};

use super::measure::{Drive, PointReport, mean_and_deviation};
use crate::report::units;

const SIZE: (u32, u32) = (900, 480);
const COLOURS: [RGBColor; 4] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
];

type Failed = Box<dyn std::error::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

struct Line {
    name: String,
    points: Vec<(f64, f64)>,
    /// Dots alone: what was measured.
    dots: bool,
}

struct Chart {
    title: String,
    across: &'static str,
    up: &'static str,
    /// Names of 0, 1, 2 ... across; none: numbers.
    places: Vec<String>,
    lines: Vec<Line>,
}

/// Draws the figures of a drive into `folder`.
///
/// # Errors
/// They cannot be written.
pub(super) fn draw(folder: &Path, drive: &Drive<'_>, points: &[PointReport]) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let Some(preset) = points.first().map(|point| point.preset.as_str()) else {
        return Ok(());
    };
    let mut charts = Vec::new();
    for (name, chart) in [
        ("alone", alone(preset, points)),
        ("workers", workers(preset, points)),
        ("values", values(preset, points)),
        ("spread", spread(preset, drive)?),
        ("null", null(&drive.null())),
    ] {
        charts.extend(chart.map(|chart| (name, chart)));
    }
    for (name, chart) in charts {
        let file = folder.join(format!("{preset}-{name}.svg"));
        let mut text = String::new();
        draw_chart(&mut text, &chart).map_err(|error| anyhow!("cannot draw {name}: {error}"))?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// The points of a kind of command, in virtual time and for real, each as `value` makes it.
fn lines(
    all: &[&PointReport],
    op: &str,
    place: impl Fn(&PointReport) -> Option<f64>,
    value: impl Fn(&PointReport, f64) -> f64,
) -> Vec<Line> {
    let of_op = || all.iter().filter(|point| point.op == op);
    #[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
    let computed = of_op().filter_map(|p| Some((place(p)?, value(p, p.virtual_ns as f64))));
    let seen = of_op().filter_map(|p| Some((place(p)?, value(p, p.real.real_ns_net?))));
    let line = |name: &str, points: Vec<(f64, f64)>, dots| Line {
        name: format!("{op}, {name}"),
        points,
        dots,
    };
    let all = [
        line("virtual time", computed.collect(), false),
        line("for real, net", seen.collect(), true),
    ];
    all.into_iter()
        .filter(|line| !line.points.is_empty())
        .collect()
}

fn index<T: PartialEq>(all: &[T], one: &T) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    all.iter()
        .position(|other| other == one)
        .map(|at| at as f64)
}

/// Times of one command alone by its size, over that of 4 KiB.
fn alone(preset: &str, points: &[PointReport]) -> Option<Chart> {
    let is_alone =
        |p: &&PointReport| matches!(p.op, "read" | "write") && p.queue_depth == 1 && p.workers == 1;
    let all: Vec<&PointReport> = points.iter().filter(is_alone).collect();
    let mut sizes: Vec<u32> = all.iter().map(|p| p.block_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 3 {
        return None;
    }
    let first = |op: &str| {
        let first = all.iter().find(|p| p.op == op && p.block_size == sizes[0]);
        #[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
        first.map_or(1.0, |p| p.virtual_ns as f64)
    };
    let mut both = Vec::new();
    for op in ["read", "write"] {
        let of_first = first(op);
        let place = |p: &PointReport| index(&sizes, &p.block_size);
        both.extend(lines(&all, op, place, |_, ns| ns / of_first));
    }
    Some(Chart {
        title: format!("{preset}: time of one command, of its 4 KiB"),
        across: "bytes of a command",
        up: "times that of 4 KiB",
        places: sizes.iter().map(|size| units::block(*size)).collect(),
        lines: both,
    })
}

/// Bandwidth of several commands at a time, of `depth` each.
fn bandwidth(point: &PointReport, ns: f64) -> f64 {
    let depth = f64::from(point.queue_depth) * f64::from(point.workers);
    depth * f64::from(point.block_size) * 1e9 / ns / f64::from(1 << 20)
}

/// Bandwidth of zones by workers.
fn workers(preset: &str, points: &[PointReport]) -> Option<Chart> {
    let all: Vec<&PointReport> = points.iter().collect();
    let mut counts: Vec<u16> = all.iter().map(|p| p.workers).collect();
    counts.sort_unstable();
    counts.dedup();
    if counts.len() < 3 {
        return None;
    }
    let place = |p: &PointReport| index(&counts, &p.workers);
    let mut both = lines(&all, "read", place, bandwidth);
    both.extend(lines(&all, "write", place, bandwidth));
    Some(Chart {
        title: format!("{preset}: reads of 4 KiB and writes of 192 KiB by workers"),
        across: "workers, one command each",
        up: "MiB/s",
        places: counts.iter().map(u16::to_string).collect(),
        lines: both,
    })
}

/// Bandwidth of keys by size of value, at depth 32.
fn values(preset: &str, points: &[PointReport]) -> Option<Chart> {
    let is_deep = |p: &&PointReport| matches!(p.op, "store" | "retrieve") && p.queue_depth == 32;
    let all: Vec<&PointReport> = points.iter().filter(is_deep).collect();
    let mut sizes: Vec<u32> = all.iter().map(|p| p.block_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 3 {
        return None;
    }
    let place = |p: &PointReport| index(&sizes, &p.block_size);
    let mut both = lines(&all, "store", place, bandwidth);
    both.extend(lines(&all, "retrieve", place, bandwidth));
    Some(Chart {
        title: format!("{preset}: bandwidth by size of value, 32 at a time"),
        across: "bytes of a value",
        up: "MiB/s",
        places: sizes.iter().map(|size| units::block(*size)).collect(),
        lines: both,
    })
}

/// How the times of commands of 16 KiB are spread.
fn spread(preset: &str, drive: &Drive<'_>) -> anyhow::Result<Option<Chart>> {
    let mut all = Vec::new();
    for op in ["read", "write"] {
        let Some([seen, computed]) = drive.distribution(&format!("{op} 16384 qd1 x1"))? else {
            continue;
        };
        for (name, times) in [("virtual time", computed), ("for real, net", seen)] {
            all.push(Line {
                name: format!("{op}, {name}"),
                points: share(&times),
                dots: false,
            });
        }
    }
    Ok((!all.is_empty()).then(|| Chart {
        title: format!("{preset}: commands of 16 KiB that are done by a time"),
        across: "us",
        up: "share of the commands, %",
        places: Vec::new(),
        lines: all,
    }))
}

/// Percentiles of a drive that takes no time, with their deviation from run to run.
fn null(runs: &[&[u64]]) -> Option<Chart> {
    const RANKS: [(&str, usize); 5] = [
        ("50 %", 50_000),
        ("90 %", 90_000),
        ("99 %", 99_000),
        ("99.9 %", 99_900),
        ("99.99 %", 99_990),
    ];
    if runs.len() < 3 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
    let at = |rank: usize| {
        let of_run = |run: &&[u64]| run[(run.len() * rank / 100_000).min(run.len() - 1)] as f64;
        let all: Vec<f64> = runs.iter().map(|run| of_run(run) / 1e3).collect();
        mean_and_deviation(&all)
    };
    let line = |name: &str, dots: bool, value: &dyn Fn((f64, f64)) -> f64| {
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let place = |(number, rank): (usize, &(&str, usize))| (number as f64, value(at(rank.1)));
        Line {
            name: name.to_owned(),
            points: RANKS.iter().enumerate().map(place).collect(),
            dots,
        }
    };
    Some(Chart {
        title: format!(
            "no time: writes of 4 KiB all over a null drive, {} runs of {} commands",
            runs.len(),
            runs[0].len()
        ),
        across: "commands that are done by then",
        up: "us",
        places: RANKS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        lines: vec![
            line("mean of the runs", true, &|(mean, _)| mean),
            line(
                "and their standard deviation above it",
                false,
                &|(mean, deviation)| mean + deviation,
            ),
            line("and below it", false, &|(mean, deviation)| mean - deviation),
        ],
    })
}

/// A thousand steps of the share of sorted times that are over, but for the last one in a thousand: that is the machine's.
#[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
fn share(times: &[f64]) -> Vec<(f64, f64)> {
    let steps = 0..1000_usize.min(times.len());
    let count = steps.len().max(1);
    let at = |step: usize| {
        let index = step * times.len() / count;
        (times[index] / 1e3, step as f64 * 100.0 / count as f64)
    };
    steps.map(at).collect()
}

fn draw_chart(text: &mut String, chart: &Chart) -> Result<(), Failed> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    draw_in(&root, chart)?;
    root.present()?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a handful")]
fn draw_in(root: &Area<'_>, chart: &Chart) -> Result<(), Failed> {
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    let (from, to) = match chart.places.len() {
        0 => (
            points().map(|p| p.0).fold(f64::MAX, f64::min) * 0.95,
            points().map(|p| p.0).fold(0.0, f64::max) * 1.05,
        ),
        count => (-0.3, count as f64 - 0.7),
    };
    let most = points().map(|p| p.1).fold(0.0, f64::max) * 1.08;
    let mut drawn = ChartBuilder::on(root)
        .caption(&chart.title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(from..to, 0.0..most)?;
    let place = |at: &f64| {
        let near = at.round();
        let name = chart.places.get(near.max(0.0) as usize);
        match name.filter(|_| (at - near).abs() < 0.01 && near >= 0.0) {
            Some(name) => name.clone(),
            None if chart.places.is_empty() => format!("{at:.1}"),
            None => String::new(),
        }
    };
    drawn
        .configure_mesh()
        .x_labels(chart.places.len().max(10))
        .x_label_formatter(&place)
        .x_desc(chart.across)
        .y_desc(chart.up)
        .light_line_style(WHITE)
        .draw()?;
    for (number, line) in chart.lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let style = colour.stroke_width(2);
        if line.dots {
            let dots = line
                .points
                .iter()
                .map(|p| Circle::new(*p, 5, colour.filled()));
            drawn
                .draw_series(dots)?
                .label(&line.name)
                .legend(move |(x, y)| Circle::new((x + 10, y), 5, colour.filled()));
        } else {
            drawn
                .draw_series(LineSeries::new(line.points.iter().copied(), style))?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        }
    }
    drawn
        .configure_series_labels()
        .position(if chart.places.is_empty() {
            SeriesLabelPosition::LowerRight
        } else {
            SeriesLabelPosition::UpperLeft
        })
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}
