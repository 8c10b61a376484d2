//! Plots of `cargo xtask bench`: lines with the spread of the rounds.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use plot::{Axis, Mark, Panel, Picture, Scale, Series};

use super::sample::{Results, Subject, Summary, of_placement};

/// Width and height in pixels.
const SIZE: (u32, u32) = (1100, 640);

/// A point of a line: where it stands, the median, the least and the most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) at: f64,
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Point {
    fn drawn(&self) -> plot::Point {
        plot::Point::from((self.at, self.median)).between(self.least, self.most)
    }
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
    let line = |(name, points): &Named| Series {
        name: name.clone(),
        mark: Mark::LineAndDots,
        color: None,
        points: points.iter().map(Point::drawn).collect(),
    };
    let picture = Picture {
        panel: SIZE,
        panels: vec![Panel {
            title: words.caption.to_owned(),
            across: Axis::of(words.across, Scale::Doublings).written(words.value),
            up: Axis::of(words.up, Scale::Decades),
            series: lines.iter().map(line).collect(),
        }],
        ..Picture::default()
    };
    fs::write(file, plot::svg(&picture)).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

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
