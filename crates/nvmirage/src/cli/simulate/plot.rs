//! The series as pictures: throughput, the 99th percentile, and what collection does, one below the other.

use anyhow::anyhow;
use plotters::{coord::Shift, prelude::*};
use simulate::output::{PointReport, Run};

/// Width of all, and height of one panel, in pixels.
const WIDTH: u32 = 1000;
const HEIGHT: u32 = 300;
/// Width of what stands beside a panel: its legend.
const LEGEND: u32 = 190;

/// Colours that people who see few of them can tell apart (Okabe and Ito, 2008), on white.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];

type Failed = Box<dyn std::error::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A line: what it is called, and its points, in seconds and in the panel's unit.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// What is drawn in one panel.
struct Panel {
    up: &'static str,
    /// How far up the axis goes at least.
    least: f64,
    lines: Vec<Line>,
}

/// Draws the runs as SVG.
///
/// # Errors
/// There is nothing to draw.
pub(super) fn svg(title: &str, runs: &[Run]) -> anyhow::Result<String> {
    let panels: Vec<Panel> = panels(runs)
        .into_iter()
        .filter(|panel| !panel.lines.is_empty())
        .collect();
    let mut text = String::new();
    draw(&mut text, title, &panels).map_err(|error| anyhow!("cannot plot: {error}"))?;
    Ok(text)
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
    // In a time without commands none has taken any.
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
    let all = |line: &dyn Fn(usize, &str) -> Vec<Line>| {
        let kinds = (0..2).flat_map(|kind| line(kind, names[kind]));
        kinds
            .filter(|line| line.points.iter().any(|(_, value)| *value > 0.0))
            .collect::<Vec<Line>>()
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
    [
        Panel {
            up: "MiB/s",
            least: 0.0,
            lines: all(&|kind, name| lines(runs, name, rate(kind))),
        },
        Panel {
            up: unit,
            least: 0.0,
            lines: all(&|kind, name| lines(runs, name, tail(kind, scale))),
        },
        Panel {
            up: "write amplification",
            least: 2.0,
            lines: lines(runs, "write amplification", amplification),
        },
        Panel {
            up: "free lines",
            least: 10.0,
            lines: lines(runs, "free lines", free),
        },
    ]
}

/// A line for each run that has points.
#[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
fn lines(runs: &[Run], name: &str, value: impl Fn(&PointReport) -> Option<f64>) -> Vec<Line> {
    let of_run = |run: &Run| {
        let at = run
            .point
            .iter()
            .map(|(name, value)| format!(" {name}={value}"));
        let points = run.series.iter().filter_map(|point| {
            let seconds = point.end_ns as f64 / 1e9;
            Some((seconds, value(point)?))
        });
        Line {
            name: format!("{name}{}", at.collect::<String>()),
            points: points.collect(),
        }
    };
    let all = runs.iter().map(of_run);
    all.filter(|line| !line.points.is_empty()).collect()
}

fn draw(text: &mut String, title: &str, panels: &[Panel]) -> Result<(), Failed> {
    if panels.is_empty() {
        return Err("nothing was done".into());
    }
    let height = HEIGHT * u32::try_from(panels.len())?;
    let root = SVGBackend::with_string(text, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let areas = root.split_evenly((panels.len(), 1));
    for (number, (area, panel)) in areas.iter().zip(panels).enumerate() {
        draw_panel(area, if number == 0 { title } else { "" }, panel)?;
    }
    root.present()?;
    drop(areas);
    Ok(())
}

fn draw_panel(area: &Area<'_>, title: &str, panel: &Panel) -> Result<(), Failed> {
    let (area, legend) = area.split_horizontally(WIDTH - LEGEND);
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let end = points().map(|point| point.0).fold(0.0, f64::max);
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    let top = (most * 1.1).max(panel.least).max(1e-6);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("virtual time, s")
        .y_desc(panel.up)
        .x_label_formatter(&|value| number(*value, end))
        .y_label_formatter(&|value| number(*value, top))
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;
    for (at, line) in panel.lines.iter().enumerate() {
        let color = COLORS[at % COLORS.len()];
        let points = line.points.iter().copied();
        chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?;
        let y = i32::try_from(24 + 20 * at)?;
        if y < i32::try_from(HEIGHT)? - 12 {
            legend.draw(&PathElement::new([(0, y), (18, y)], color.stroke_width(3)))?;
            let name = Text::new(line.name.as_str(), (26, y - 6), ("sans-serif", 13));
            legend.draw(&name)?;
        }
    }
    Ok(())
}

/// A number at an axis that goes up to `top`: with as many digits behind the point as tell its steps apart.
fn number(value: f64, top: f64) -> String {
    match top {
        20.0.. => format!("{value:.0}"),
        2.0.. => format!("{value:.1}"),
        0.2.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_at_an_axis_have_the_digits_that_tell_them_apart() {
        let all: Vec<String> = [(1200.0, 1300.0), (2.5, 10.0), (0.25, 1.1), (0.02, 0.1)]
            .iter()
            .map(|(value, top)| number(*value, *top))
            .collect();
        assert_eq!(all, ["1200", "2.5", "0.25", "0.020"]);
    }
}
