//! Figures: time or throughput over the points, in virtual time and in real time (the paper's
//! figure 4); the distribution of times of 16 KiB commands (5a); percentiles over the runs of a
//! drive that takes no time (3); and what others measured with the real drive.

mod compound;
mod courses;
mod validity;

use std::fs;
use std::path::Path;

use anyhow::Context;
use plot::{Axis, Mark, Panel, Picture, Point, Scale, Series};
use terminal::units;

pub(super) use self::compound::compound;
pub(super) use self::courses::{collection, zones};
use super::measure::{Drive, PointReport, mean_and_deviation};
use super::published;

/// Width and height of a figure with one panel, in pixels.
const SIZE: (u32, u32) = (940, 480);

/// Draws the figures of a drive into `folder`.
///
/// # Errors
/// A figure cannot be written.
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
    for (name, panel) in charts {
        let picture = Picture {
            panel: SIZE,
            panels: vec![panel],
            notes: paper(name, preset).into_iter().collect(),
            ..Picture::default()
        };
        write(folder, &format!("{preset}-{name}"), &picture)?;
    }
    if let Some(picture) = validity::picture(preset, points) {
        write(folder, &format!("{preset}-published"), &picture)?;
    }
    Ok(())
}

/// Values that the NVMeVirt paper (FAST '23) prints for the same figure. The paper prints no
/// coordinates of the points in its plots, so there are none to draw.
fn paper(figure: &str, preset: &str) -> Option<String> {
    let drive = preset.split('@').next().unwrap_or(preset);
    match figure {
        "alone" | "workers" | "values" => {
            let percent = published::of_nvmevirt(drive)?;
            Some(format!(
                "NVMeVirt paper, figure 4: its model differs from the real drive by at most {percent} %. The paper prints no coordinates of the measured points."
            ))
        }
        "null" => Some(
            "NVMeVirt paper, figure 3, FEMU on another machine: p99.99 559.3 us (deviation 462 us); deviation of the runs 28.7 to 39.7 % of their mean."
                .to_owned(),
        ),
        _ => None,
    }
}

/// Writes a figure into `folder`.
fn write(folder: &Path, name: &str, picture: &Picture) -> anyhow::Result<()> {
    let file = folder.join(format!("{name}.svg"));
    let text = plot::svg(picture);
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The points of one kind of command, in virtual time and in real time, each mapped by `value`.
fn lines(
    all: &[&PointReport],
    op: &str,
    place: impl Fn(&PointReport) -> Option<f64>,
    value: impl Fn(&PointReport, f64) -> f64,
) -> Vec<Series> {
    let of_op = || all.iter().filter(|point| point.op == op);
    #[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
    let computed = of_op().filter_map(|p| Some((place(p)?, value(p, p.virtual_ns as f64))));
    let seen = of_op().filter_map(|p| Some((place(p)?, value(p, p.real.real_ns_net?))));
    let color = usize::from(matches!(op, "write" | "retrieve"));
    let line = |name: &str, mark, points: Vec<(f64, f64)>| {
        Series::new(format!("{op}, {name}"), mark, points).colored(color)
    };
    let all = [
        line("virtual time", Mark::Line, computed.collect()),
        line("real time, net", Mark::Dots, seen.collect()),
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

/// Time of a single command by its size, relative to that of 4 KiB.
fn alone(preset: &str, points: &[PointReport]) -> Option<Panel> {
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
    let places = sizes.iter().map(|size| units::block(*size)).collect();
    Some(Panel {
        title: format!("{preset}: latency of one command, relative to 4 KiB"),
        across: Axis::places("command size", places),
        up: Axis::from_zero("latency / latency of 4 KiB"),
        series: both,
    })
}

/// Bandwidth with `depth` commands in flight.
fn bandwidth(point: &PointReport, ns: f64) -> f64 {
    let depth = f64::from(point.queue_depth) * f64::from(point.workers);
    depth * f64::from(point.block_size) * 1e9 / ns / f64::from(1 << 20)
}

/// Bandwidth of zones by number of workers.
fn workers(preset: &str, points: &[PointReport]) -> Option<Panel> {
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
    let places = counts.iter().map(u16::to_string).collect();
    Some(Panel {
        title: format!("{preset}: bandwidth by workers, 4 KiB reads and 192 KiB writes"),
        across: Axis::places("workers, one command each", places),
        up: Axis::from_zero("bandwidth, MiB/s"),
        series: both,
    })
}

/// Bandwidth of keys by value size, at depth 32.
fn values(preset: &str, points: &[PointReport]) -> Option<Panel> {
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
    let places = sizes.iter().map(|size| units::block(*size)).collect();
    Some(Panel {
        title: format!("{preset}: bandwidth by value size, queue depth 32"),
        across: Axis::places("value size", places),
        up: Axis::from_zero("bandwidth, MiB/s"),
        series: both,
    })
}

/// Distribution of the times of 16 KiB commands.
fn spread(preset: &str, drive: &Drive<'_>) -> anyhow::Result<Option<Panel>> {
    let mut all = Vec::new();
    for op in ["read", "write"] {
        let Some([seen, computed]) = drive.distribution(&format!("{op} 16384 qd1 x1"))? else {
            continue;
        };
        for (name, times) in [("virtual time", computed), ("real time, net", seen)] {
            all.push(Series::new(
                format!("{op}, {name}"),
                Mark::Line,
                share(&times),
            ));
        }
    }
    Ok((!all.is_empty()).then(|| Panel {
        title: format!("{preset}: latency distribution of 16 KiB commands"),
        across: Axis::of("latency, us", Scale::Fitted),
        up: Axis::from_zero("completed commands, %"),
        series: all,
    }))
}

/// Percentiles of a drive that takes no time, with their deviation between runs.
fn null(runs: &[&[u64]]) -> Option<Panel> {
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
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let place = |(number, rank): (usize, &(&str, usize))| {
        let (mean, deviation) = at(rank.1);
        Point::from((number as f64, mean)).between(mean - deviation, mean + deviation)
    };
    let places = RANKS.iter().map(|(name, _)| (*name).to_owned()).collect();
    Some(Panel {
        title: format!(
            "null drive: latency percentiles of 4 KiB writes, {} runs of {} commands",
            runs.len(),
            runs[0].len()
        ),
        across: Axis::places("percentile", places),
        up: Axis::from_zero("latency, us"),
        series: vec![Series {
            name: "mean and standard deviation of the runs".to_owned(),
            mark: Mark::Dots,
            color: None,
            points: RANKS.iter().enumerate().map(place).collect(),
        }],
    })
}

/// Cumulative distribution of sorted times in a thousand steps, without the last thousandth, which
/// shows the machine rather than the drive.
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

#[cfg(test)]
mod tests {
    use super::paper;

    #[test]
    fn figures_quote_what_the_paper_prints_of_their_drive() {
        // The paper's text on its figure 4: SSD 11.8 %, ZNS 3.3 %, KV 3.8 %, Optane 12.2 %.
        for (figure, preset, percent) in [
            ("alone", "optane-p4800x", " 12.2 %"),
            ("alone", "samsung-970-pro@code", " 11.8 %"),
            ("workers", "zns-prototype@paper", " 3.3 %"),
            ("values", "samsung-kvssd", " 3.8 %"),
            ("null", "any", "559.3 us"),
        ] {
            let note = paper(figure, preset).unwrap();
            assert!(note.contains(percent), "{figure} {preset}: {note}");
        }
        assert_eq!(paper("alone", "intel-p3600"), None);
        assert_eq!(paper("spread", "samsung-970-pro"), None);
    }
}
