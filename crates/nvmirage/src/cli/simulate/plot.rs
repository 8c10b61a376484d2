//! The series as pictures: throughput, the 99th percentile, and what collection does, one below the other.

use anyhow::anyhow;
use plotters::{coord::Shift, prelude::*};
use simulate::output::{PointReport, Run};

/// Width of all, and height of one panel, in pixels.
const WIDTH: u32 = 1000;
const HEIGHT: u32 = 320;

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
    let ms = |ns: u64| ns as f64 / 1e6;
    let both = |of: fn(&PointReport) -> [u64; 2], unit: &dyn Fn(u64) -> f64| {
        let mut all = lines(runs, "read", |point| Some(unit(of(point)[0])));
        all.extend(lines(runs, "write", |point| Some(unit(of(point)[1]))));
        all.retain(|line| line.points.iter().any(|(_, value)| *value > 0.0));
        all
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
            lines: both(|p| [p.read.bytes_per_s, p.write.bytes_per_s], &mib),
        },
        Panel {
            up: "p99, ms",
            lines: both(|p| [p.read.p99_ns, p.write.p99_ns], &ms),
        },
        Panel {
            up: "write amplification",
            lines: lines(runs, "write amplification", amplification),
        },
        Panel {
            up: "free lines",
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
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let end = points().map(|point| point.0).fold(0.0, f64::max);
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..end, 0.0..(most * 1.1).max(1e-6))?;
    chart
        .configure_mesh()
        .x_desc("virtual time, s")
        .y_desc(panel.up)
        .light_line_style(WHITE)
        .draw()?;
    for (number, line) in panel.lines.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        chart
            .draw_series(LineSeries::new(
                line.points.iter().copied(),
                color.stroke_width(2),
            ))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}
