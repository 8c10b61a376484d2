//! Plots of `cargo xtask bench`: lines with the spread of the rounds.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::sample::{Results, Subject, Summary, of_placement};

/// Width and height in pixels.
const SIZE: (u32, u32) = (1000, 720);

/// A point of a line: where it stands, the median, the least and the most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) at: f64,
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

/// A line with its name.
pub(super) type Named = (String, Vec<Point>);

/// What a plot is called, and its axes.
pub(super) struct Words<'a> {
    pub(super) caption: &'a str,
    pub(super) across: &'a str,
    pub(super) up: &'a str,
    /// How a value across is written.
    pub(super) value: fn(f64) -> String,
}

/// Writes the commands a second of one kind of access over queue depth, as SVG.
///
/// # Errors
/// The file cannot be written, or there is nothing to plot.
pub(super) fn write(file: &Path, results: &Results, placement: &str, rw: &str) -> Result<()> {
    let lines = lines(results, placement, rw);
    let caption = format!("4 KiB {rw}, CPUs {placement}: median, least and most");
    let words = Words {
        caption: &caption,
        across: "queue depth",
        up: "IOPS",
        value: |depth| format!("{depth:.0}"),
    };
    write_lines(file, &lines, &words)
}

fn lines(results: &Results, placement: &str, rw: &str) -> Vec<Named> {
    let mut lines: Vec<Named> = Vec::new();
    let of_rw = |subject: &Subject| subject.rw == rw;
    for (subject, samples) in results.series.iter().filter(|(s, _)| of_rw(s)) {
        let Some(summary) = Summary::of(&of_placement(samples, placement)) else {
            continue;
        };
        let point = Point {
            at: subject.queue_depth as f64,
            median: summary.median.iops,
            least: summary.least,
            most: summary.most,
        };
        match lines.iter_mut().find(|(name, _)| *name == subject.name) {
            Some((_, points)) => points.push(point),
            None => lines.push((subject.name.clone(), vec![point])),
        }
    }
    lines
}

/// Writes lines over a value, both on scales of powers, as SVG.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write_lines(file: &Path, lines: &[Named], words: &Words<'_>) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    draw(file, lines, words).map_err(|error| anyhow!("cannot write {}: {error}", file.display()))
}

fn draw(file: &Path, lines: &[Named], words: &Words<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let points = || lines.iter().flat_map(|(_, points)| points);
    let least = points().map(|p| p.least).fold(f64::INFINITY, f64::min);
    let most = points().map(|p| p.most).fold(1.0, f64::max);
    let first = points().map(|p| p.at).fold(f64::INFINITY, f64::min);
    let last = points().map(|p| p.at).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .caption(words.caption, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(80)
        .build_cartesian_2d(
            (first * 0.8..last * 1.4).log_scale().base(2.0),
            (least.max(1.0) * 0.6..most * 2.5).log_scale(),
        )?;
    let short = |value: &f64| match *value {
        v if v >= 1e6 => format!("{:.0} M", v / 1e6),
        v if v >= 1e3 => format!("{:.0} K", v / 1e3),
        v => format!("{v:.0}"),
    };
    chart
        .configure_mesh()
        .x_desc(words.across)
        .y_desc(words.up)
        .y_label_formatter(&short)
        .x_label_formatter(&|value| (words.value)(*value))
        .light_line_style(WHITE)
        .draw()?;
    for (number, (name, points)) in lines.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let line = points.iter().map(|p| (p.at, p.median));
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)).point_size(4))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        chart.draw_series(
            points.iter().map(|p| {
                PathElement::new([(p.at, p.least), (p.at, p.most)], color.stroke_width(1))
            }),
        )?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sample::Sample;

    #[test]
    fn the_plot_shows_every_subject_of_its_kind() {
        let mut results = Results::default();
        for (name, rw, iops) in [
            ("nvmirage null", "randread", 3e6),
            ("fio", "randread", 1e5),
            ("fio", "randwrite", 9e4),
        ] {
            let sample = Sample {
                iops,
                placement: "far".into(),
                ..Sample::default()
            };
            results.add(Subject::new(name, rw, 1), sample.clone());
            results.add(Subject::new(name, rw, 32), sample);
        }
        let all = lines(&results, "far", "randread");
        assert_eq!(all.len(), 2);
        assert_eq!(all[1].1.len(), 2, "a point for each depth");
        assert!(lines(&results, "near", "randread").is_empty());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plot.svg");
        write(&file, &results, "far", "randread").unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        assert!(
            svg.starts_with("<svg") && svg.contains("nvmirage null"),
            "{svg}"
        );
    }
}
