//! Block sizes: bandwidth from 512 B to 4 MiB, with host buffers and a part of the medium that are
//! as large at every block size, so that caches help none of them more than another.

use anyhow::Result;

use super::{Reach, Row};
use crate::ours::{Ours, Setup};
use crate::plot::{Named, Point, Words, write_lines};
use crate::sample::{Results, Subject, Summary, of_placement};

/// What the buffers of the host take together, and the part of the medium that is read.
const SPAN: &str = "512MiB";
const SPAN_MIB: u64 = 512;
/// Queue pairs, and commands in flight in each.
const JOBS: &str = "--queues 4 --qd 32";
const FIRST: u64 = 512;
const LAST: u64 = 4 << 20;

fn sizes() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(FIRST), |size| Some(size * 2)).take_while(|size| *size <= LAST)
}

pub(super) fn blocks(reach: &Reach<'_>) -> Result<Vec<Row>> {
    let dir = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(&reach.workspace.target)?;
    let ram = Setup {
        lba_size: 512,
        ..Setup::new("ram", "1GiB")
    };
    let file = Setup {
        kind: "file",
        path: Some(dir.path().join("disk")),
        ..ram.clone()
    };
    let mut results = Results::default();
    for round in 1..=reach.args.rounds {
        for (name, setup) in [("ram", &ram), ("file", &file)] {
            eprintln!("  round {round} of {}: {name}", reach.args.rounds);
            measure(reach, name, setup, &mut results)?;
        }
    }
    let placement = results.usual_placement();
    let lines = lines(&results, placement);
    let plot = reach.workspace.logs().join("blocks.svg");
    let plot = reach.args.plot.as_ref().unwrap_or(&plot);
    let words = Words {
        caption: &format!("random reads, QD32, 4 jobs, CPUs {placement}: median, least and most"),
        across: "block size",
        up: "MiB/s",
        value: size_name,
    };
    write_lines(plot, &lines, &words)?;
    Ok(lines
        .iter()
        .map(|(name, points)| row(name, points))
        .collect())
}

fn measure(reach: &Reach<'_>, name: &str, setup: &Setup, results: &mut Results) -> Result<()> {
    let ours = Ours::start(reach.workspace, setup, reach.args.cpus.pair())?;
    ours.fill(SPAN_MIB)?;
    for size in sizes() {
        let args = format!(
            "--bs {size}B {JOBS} --time {} --buffers {SPAN} --span {SPAN}",
            reach.time()
        );
        // the depth's place has the size: what a line of the plot goes over
        results.add(Subject::new(name, "randread", size), ours.sample(&args)?);
    }
    ours.stop()
}

/// MiB a second over block size.
fn lines(results: &Results, placement: &str) -> Vec<Named> {
    let mut lines: Vec<Named> = Vec::new();
    for (subject, samples) in &results.series {
        let Some(summary) = Summary::of(&of_placement(samples, placement)) else {
            continue;
        };
        let size = subject.queue_depth as f64;
        let mib = |iops: f64| iops * size / f64::from(1 << 20);
        let point = Point {
            at: size,
            median: mib(summary.median.iops),
            least: mib(summary.least),
            most: mib(summary.most),
        };
        match lines.iter_mut().find(|(name, _)| *name == subject.name) {
            Some((_, points)) => points.push(point),
            None => lines.push((subject.name.clone(), vec![point])),
        }
    }
    lines
}

/// The block size that falls furthest behind the best smaller one.
fn row(name: &str, points: &[Point]) -> Row {
    let mut best: Option<Point> = None;
    let mut worst: Option<(f64, Point)> = None;
    for point in points {
        if let Some(best) = best {
            let ratio = point.median / best.median;
            if worst.is_none_or(|(least, _)| ratio < least) {
                worst = Some((ratio, *point));
            }
        }
        if best.is_none_or(|best| point.median > best.median) {
            best = Some(*point);
        }
    }
    let most = best.map_or(0.0, |best| best.median);
    let at = worst.map_or("-".to_owned(), |(_, point)| size_name(point.at));
    Row::new(
        &format!("{name}, 512 B to 4 MiB, QD32, 4 jobs: bandwidth over the best smaller block's"),
        ">= 0.95 x at every size",
        format!("least at {at}; up to {most:.0} MiB/s"),
        worst.map(|(ratio, _)| ratio),
    )
}

/// `512 B`, `4 KiB`, `4 MiB`.
fn size_name(bytes: f64) -> String {
    match bytes {
        b if b >= f64::from(1 << 20) => format!("{:.0} MiB", b / f64::from(1 << 20)),
        b if b >= 1024.0 => format!("{:.0} KiB", b / 1024.0),
        b => format!("{b:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at: f64, median: f64) -> Point {
        Point {
            at,
            median,
            least: median,
            most: median,
        }
    }

    #[test]
    fn sizes_double_from_512_bytes_to_4_mib() {
        let all: Vec<u64> = sizes().collect();
        assert_eq!((all.len(), all[0], all[13]), (14, 512, 4 << 20));
    }

    #[test]
    fn the_worst_size_is_held_against_the_best_smaller_one() {
        let points = [
            point(512.0, 100.0),
            point(1024.0, 200.0),
            point(2048.0, 150.0),
            point(4096.0, 400.0),
            point(8192.0, 390.0),
        ];
        let row = row("ram", &points);
        assert_eq!(row.ratio, Some(0.75));
        assert_eq!(row.measured, "least at 2 KiB; up to 400 MiB/s");
        assert_eq!(super::row("ram", &points[..1]).ratio, None);
    }
}
