//! The picture of a database on a drive, in the form of figure 8 of the NVMeVirt paper: what it
//! uses over time by the drive's bandwidth, transactions by bandwidth and by latency, requests
//! in flight over time.

use plot::{Axis, Mark, Panel, Picture, Scale, Series};

use super::LATENCY_US;
use super::results::Point;
use super::watch::Moment;

/// Width and height of one of the four parts, in pixels.
const PANEL: (u32, u32) = (660, 400);

/// The points of one database as SVG.
pub(super) fn svg(version: &str, points: &[Point]) -> String {
    let by_bandwidth: Vec<&Point> = points
        .iter()
        .filter(|point| point.latency_us == LATENCY_US)
        .collect();
    let most = points.iter().map(|point| point.bandwidth_mib_s).max();
    let mut by_latency: Vec<&Point> = points
        .iter()
        .filter(|point| Some(point.bandwidth_mib_s) == most)
        .collect();
    by_latency.sort_by_key(|point| point.latency_us);
    let at = format!("by bandwidth, at {LATENCY_US} µs");
    let panels = vec![
        over_time(
            format!("a) used bandwidth over time, {at}"),
            "MiB/s",
            &by_bandwidth,
            |moment| moment.mib_s,
        ),
        over_time(
            format!("b) requests in flight over time, {at}"),
            "queue depth",
            &by_bandwidth,
            |moment| moment.queue_depth,
        ),
        rates(
            format!("c) transactions by bandwidth, at {LATENCY_US} µs"),
            "bandwidth of the drive, MiB/s",
            &by_bandwidth,
            |point| point.bandwidth_mib_s,
        ),
        rates(
            format!("d) transactions by latency, at {} MiB/s", most.unwrap_or(0)),
            "latency of the drive for 4 KiB, µs",
            &by_latency,
            |point| point.latency_us,
        ),
    ];
    let rounds = points.iter().map(|point| point.runs.len()).max();
    let of_rounds = match rounds {
        Some(2..) => format!(
            "{} runs of each point: a) and b) are of the run in the middle, c) and d) have the median, the least and the most.",
            rounds.unwrap_or(0)
        ),
        _ => "One run of each point.".to_owned(),
    };
    plot::svg(&Picture {
        title: format!("{version} on a modelled drive: sysbench oltp_read_write"),
        columns: 2,
        panel: PANEL,
        panels,
        notes: vec![of_rounds],
    })
}

fn over_time(title: String, up: &str, points: &[&Point], of: fn(&Moment) -> f64) -> Panel {
    let line = |point: &&Point| {
        let moments = point.middle().moments.iter();
        let name = format!("{} MiB/s", point.bandwidth_mib_s);
        Series::new(name, Mark::Line, moments.map(|m| (m.at_s, of(m))))
    };
    Panel {
        title,
        across: Axis::from_zero("seconds"),
        up: Axis::from_zero(up),
        series: points.iter().map(line).collect(),
    }
}

fn rates(title: String, across: &str, points: &[&Point], at: fn(&Point) -> u64) -> Panel {
    let rate = |point: &&Point| {
        let rate = point.transactions_per_s();
        let drawn = plot::Point::from((at(point) as f64, rate.median));
        match point.runs.len() {
            1 => drawn,
            _ => drawn.between(rate.least, rate.most),
        }
    };
    Panel {
        title,
        across: Axis::of(across, Scale::Doublings).written(|value| format!("{value:.0}")),
        up: Axis::from_zero("transactions a second"),
        series: vec![Series {
            mark: Mark::LineAndDots,
            points: points.iter().map(rate).collect(),
            ..Series::default()
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::point;
    use super::*;

    /// Lines in the colour of the first series that join no points.
    fn ranges(picture: &str) -> usize {
        picture
            .matches("<line opacity=\"1\" stroke=\"#0072B2\"")
            .count()
    }

    #[test]
    fn every_point_has_its_place() {
        let points = [
            point(64, LATENCY_US, &[100.0]),
            point(1000, LATENCY_US, &[300.0]),
            point(1000, 8, &[400.0]),
        ];
        let picture = svg("PostgreSQL 15.18", &points);
        for text in [
            "PostgreSQL 15.18",
            "64 MiB/s",
            "d) transactions by latency",
            "One run of",
        ] {
            assert!(picture.contains(text), "{text}");
        }
        // Two dots by bandwidth and two by latency, without a range.
        assert_eq!(picture.matches("<circle").count(), 4);
        assert_eq!(ranges(&picture), 0);
    }

    #[test]
    fn several_runs_have_a_range() {
        let points = [point(1000, LATENCY_US, &[300.0, 100.0, 200.0])];
        let picture = svg("MariaDB", &points);
        // One point in c) and in d): from the least to the most, with a cross line at each.
        assert_eq!(ranges(&picture), 6);
        assert!(picture.contains("3 runs of each point"));
    }
}
