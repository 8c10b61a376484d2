//! Bar chart of eight stores, separately and in one command: by the rules of the published program,
//! step by step up to its authors' published figures.

use std::path::Path;

use plot::{Axis, Mark, Panel, Picture, Point, Series};
use terminal::units;

use super::super::compound::Compound;
use super::super::measure::PointReport;
use super::write;

/// Draws the chart, if the drive has keys.
pub(in super::super) fn compound(
    folder: &Path,
    compound: Option<&Compound>,
    points: &[PointReport],
) -> anyhow::Result<()> {
    match compound {
        Some(compound) => {
            let name = format!("{}-compound", compound.preset);
            write(folder, &name, &picture(compound, points))
        }
        None => Ok(()),
    }
}

/// Times of eight stores and of one compound command at the points, in nanoseconds, read by `time`.
fn at_points(
    points: &[PointReport],
    time: impl Fn(&PointReport) -> Option<f64>,
) -> Option<[f64; 2]> {
    let of = |op: &str| {
        let is_it =
            |p: &&PointReport| (p.op, p.block_size, p.queue_depth, p.workers) == (op, 4096, 1, 1);
        points.iter().find(is_it).and_then(&time)
    };
    Some([8.0 * of("store")?, of("store-eight")?])
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn picture(compound: &Compound, points: &[PointReport]) -> Picture {
    let whole = |[single, together]: [u64; 2]| [single as f64, together as f64];
    let with_head = [compound.code_with_host_ns[0], compound.code_with_head_ns];
    let mut all = vec![("this drive: a unit for each", whole(compound.exact_ns))];
    let computed = at_points(points, |point| Some(point.virtual_ns as f64));
    let seen = at_points(points, |point| point.real.real_ns_net);
    all.extend(computed.map(|times| ("any keys: virtual time", times)));
    all.extend(seen.map(|times| ("any keys: real time, net", times)));
    all.extend([
        ("published rules", whole(compound.code_ns)),
        ("+ its authors' host", whole(compound.code_with_host_ns)),
        ("+ the head as data", whole(with_head)),
        ("NVMeVirt paper", whole(compound.published_ns)),
    ]);
    let series = |name: &str, which: usize| Series {
        name: name.to_owned(),
        mark: Mark::Bars,
        color: None,
        points: all
            .iter()
            .enumerate()
            .map(|(at, (_, times))| {
                let label = format!("{:.1}", times[which] / 1e3);
                Point::from((at as f64, times[which] / 1e3)).labelled(label)
            })
            .collect(),
    };
    let places = all.iter().map(|(name, _)| (*name).to_owned()).collect();
    let time = |ns: u64| units::nanoseconds(ns as f64);
    Picture {
        panel: (1100, 460),
        panels: vec![Panel {
            title: format!("{}: time of eight 4 KiB stores", compound.preset),
            across: Axis::places("", places),
            up: Axis::from_zero("time, us"),
            series: vec![series("one by one", 0), series("in one command", 1)],
        }],
        notes: vec![
            format!(
                "Published rules: arithmetic = \"code\", where a compound command is one request of all its bytes. Their host: {} of each command, which their script takes for it. The head: {} bytes of the compound command, as a page of data.",
                time(model::preset::LINUX_WRITE_NS),
                super::super::compound::HEAD_BYTES
            ),
            format!("Published: {}. Missing: {}.", compound.published_source, compound.difference),
            "This drive: arithmetic = \"exact\", where the parts of a compound command start together on their units, and each single command has the drive's latency. With random keys, some parts share a unit and wait for each other: the mean of many commands.".to_owned(),
        ],
        ..Picture::default()
    }
}
