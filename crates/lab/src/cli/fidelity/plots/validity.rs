//! Bar chart of the model at the points where a figure of the real drive is published, in percent
//! of that figure, which stands below in its own unit.

use plot::{Axis, Mark, Panel, Picture, Point, Series};
use terminal::units;

use super::super::measure::PointReport;
use super::SIZE;

/// `None` if no figure of the drive is known.
pub(super) fn picture(preset: &str, points: &[PointReport]) -> Option<Picture> {
    let known: Vec<&PointReport> = points
        .iter()
        .filter(|point| point.published.published_figure.is_some())
        .collect();
    if known.is_empty() {
        return None;
    }
    let of_published = |name: &str, time: &dyn Fn(&PointReport) -> Option<f64>| {
        let bar = |(at, point): (usize, &&PointReport)| {
            let share = 100.0 * point.published.published? / time(point)?;
            #[expect(clippy::cast_precision_loss, reason = "a handful")]
            let bar = Point::from((at as f64, share)).labelled(format!("{share:.1}"));
            Some(bar)
        };
        Series {
            name: name.to_owned(),
            mark: Mark::Bars,
            color: None,
            points: known.iter().enumerate().filter_map(bar).collect(),
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "a few microseconds")]
    let beyond = |point: &PointReport| {
        // The part of the figure that is the host's software.
        let compared = point.published.compared_ns?;
        Some(compared - point.virtual_ns as f64)
    };
    let seen = |point: &PointReport| Some(point.real.real_ns_net? + beyond(point)?);
    let all = [
        of_published("virtual time", &|point| point.published.compared_ns),
        of_published("real time, net", &seen),
    ];
    let place = |point: &&PointReport| {
        let (op, size) = (point.op, units::block(point.block_size));
        format!("{op} {size}, depth {}", point.queue_depth)
    };
    let note = |(place, point): (&String, &&PointReport)| {
        let (figure, source) = (
            point.published.published_figure?,
            point.published.published_source,
        );
        Some(format!("{place}: 100 % is {figure} ({source})."))
    };
    let places: Vec<String> = known.iter().map(place).collect();
    Some(Picture {
        panel: SIZE,
        notes: places.iter().zip(&known).filter_map(note).collect(),
        panels: vec![Panel {
            title: format!("{preset}: speed relative to published figures of the real drive"),
            across: Axis::places("point", places),
            up: Axis::from_zero("published time of a command / time here, %"),
            series: all
                .into_iter()
                .filter(|series| !series.points.is_empty())
                .collect(),
        }],
        ..Picture::default()
    })
}

#[cfg(test)]
mod tests {
    use model::preset::preset;
    use simulate::points::{Point, PointOp};

    use super::*;
    use crate::cli::fidelity::measure::Real;
    use crate::cli::fidelity::published;

    fn report(queue_depth: u16, virtual_ns: u32) -> PointReport {
        let point = Point {
            op: PointOp::Read,
            block_size: 4096,
            queue_depth,
            workers: 1,
        };
        let optane = preset("optane-p4800x").unwrap();
        PointReport {
            preset: optane.name.to_owned(),
            op: "read",
            block_size: 4096,
            queue_depth,
            workers: 1,
            oracle_ns: None,
            virtual_ns: virtual_ns.into(),
            virtual_per_s: 0.0,
            real: Real::default(),
            published: published::of(optane, point, virtual_ns.into()),
        }
    }

    #[test]
    fn a_point_stands_beside_its_published_figure() {
        // 8.9 us, and 5.39 with 6.61 of the host; 16 at 584.8 K/s are 27.36 us each.
        let points = [report(1, 5_390), report(2, 1), report(16, 13_680)];
        let picture = picture("optane-p4800x", &points).unwrap();
        let [virtual_time] = &picture.panels[0].series[..] else {
            panic!("{:?}", picture.panels[0].series);
        };
        let labels: Vec<_> = virtual_time
            .points
            .iter()
            .map(|bar| bar.label.clone().unwrap())
            .collect();
        assert_eq!(labels, ["74.2", "200.0"]);
        assert!(
            picture.notes[1].contains("584.8 K IOPS (AnandTech"),
            "{:?}",
            picture.notes
        );
        assert!(super::picture("any", &points[1..2]).is_none());
    }
}
