//! Throughput over time when collection starts (the paper's figure 5b), and the effect of zones on
//! writers (5c).

use std::path::Path;

use plot::{Axis, Mark, Panel, Picture, Scale, Series};
use terminal::units;

use super::super::courses::{Course, Zones};
use super::super::measure::PointReport;
use super::super::real::COURSE_NS;
use super::{bandwidth, index, write};

/// Width and height of one of two panels side by side, in pixels.
const HALF: (u32, u32) = (660, 420);

/// MiB/s over seconds, each interval at its middle.
#[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
fn over_time(course: &Course, bytes_per_s: &[u64]) -> Vec<(f64, f64)> {
    let at = |number: usize| (number as f64 + 0.5) * course.interval_ns as f64 / 1e9;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let all = bytes_per_s.iter().enumerate();
    all.map(|(number, bytes)| (at(number), mib(*bytes)))
        .collect()
}

fn panel(course: &Course, title: String) -> Panel {
    let computed = over_time(course, &course.virtual_bytes_per_s);
    let mut series = vec![Series::new("virtual time", Mark::Line, computed)];
    if let Some(seen) = &course.real_bytes_per_s {
        let seen = over_time(course, seen);
        series.push(Series::new("real time", Mark::Dots, seen));
    }
    Panel {
        title,
        across: Axis::from_zero("time, s"),
        up: Axis::from_zero("bandwidth, MiB/s"),
        series,
    }
}

/// Total time of both ways, in words.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn in_all(course: &Course) -> String {
    let time = |ns: u64| units::nanoseconds(ns as f64);
    match course.real_ns {
        None if course.real_bytes_per_s.is_some() => format!(
            "All of it takes {} in virtual time; in real time it was ended after {}: the machine was too busy.",
            time(course.virtual_ns),
            time(COURSE_NS)
        ),
        Some(real_ns) => format!(
            "All of it takes {} in virtual time and {} in real time ({:+.1} %).",
            time(course.virtual_ns),
            time(real_ns),
            (real_ns as f64 / course.virtual_ns as f64 - 1.0) * 100.0
        ),
        None => format!(
            "All of it takes {} in virtual time.",
            time(course.virtual_ns)
        ),
    }
}

/// A drive filled in order and then overwritten at random.
pub(in super::super) fn collection(folder: &Path, course: &Course) -> anyhow::Result<()> {
    let title = format!(
        "{}: bandwidth over time, filled in order, then overwritten at random",
        course.preset
    );
    let picture = Picture {
        panel: super::SIZE,
        panels: vec![panel(course, title)],
        notes: vec![format!(
            "A fresh drive of {}; writes of 128 KiB, then uniformly random ones of 4 KiB, 32 at a time. Each point is of {}. {}{}",
            units::bytes(course.size_bytes),
            interval(course),
            in_all(course),
            match course.real_bytes_per_s {
                Some(_) => " In real time the drive keeps no bytes.",
                None => "",
            }
        )],
        ..Picture::default()
    };
    write(folder, &format!("{}-collection", course.preset), &picture)
}

fn interval(course: &Course) -> String {
    #[expect(clippy::cast_precision_loss, reason = "it is round")]
    units::nanoseconds(course.interval_ns as f64)
}

/// Zone-aware writers compared with others, by number of writers and over time.
pub(in super::super) fn zones(
    folder: &Path,
    points: &[PointReport],
    zones: &Zones,
) -> anyhow::Result<()> {
    let is_write = |p: &&PointReport| p.op == "write";
    let aware: Vec<&PointReport> = points.iter().filter(is_write).collect();
    let mut counts: Vec<u16> = zones.one_zone.iter().map(|p| p.workers).collect();
    counts.sort_unstable();
    let place = |p: &PointReport| index(&counts, &p.workers);
    let unaware: Vec<&PointReport> = zones.one_zone.iter().collect();
    let mut series = Vec::new();
    for (color, (whose, all)) in [("a zone each", aware), ("one zone", unaware)]
        .into_iter()
        .enumerate()
    {
        #[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
        let computed = all
            .iter()
            .filter_map(|p| Some((place(p)?, bandwidth(p, p.virtual_ns as f64))));
        let seen = all
            .iter()
            .filter_map(|p| Some((place(p)?, bandwidth(p, p.real.real_ns_net?))));
        for (how, mark, points) in [
            ("virtual time", Mark::Line, computed.collect::<Vec<_>>()),
            ("real time, net", Mark::Dots, seen.collect()),
        ] {
            if !points.is_empty() {
                series.push(Series::new(format!("{whose}, {how}"), mark, points).colored(color));
            }
        }
    }
    let course = &zones.course;
    let places = counts.iter().map(u16::to_string).collect();
    let by_writers = Panel {
        title: "a) by writers, one write in flight each".to_owned(),
        across: Axis::of("writers, 192 KiB each", Scale::Places(places)),
        up: Axis::from_zero("bandwidth, MiB/s"),
        series,
    };
    let title = "b) over time, eight writers, zones in turn".to_owned();
    let picture = Picture {
        title: format!(
            "{}: write bandwidth, a zone for each writer and one zone for all",
            course.preset
        ),
        columns: 2,
        panel: HALF,
        panels: vec![by_writers, panel(course, title)],
        notes: vec![format!(
            "Writers of one zone append to it. Over time each writes four zones, 96 MiB of each or all of a smaller one, and resets the last two before it writes them. Each point is of {}. {}",
            interval(course),
            in_all(course)
        )],
    };
    write(folder, &format!("{}-zones", course.preset), &picture)
}
