//! Published measurements of the real drives at the points that they belong to. Figures from which
//! a model parameter was taken are excluded.

use model::preset::{LINUX_READ_NS, Preset};
use serde::Serialize;
use simulate::points::{Point, PointOp};

/// A published figure compared with the model's.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Comparison {
    /// Mean time of a command, in nanoseconds; depth over rate if a throughput was published.
    /// `None` if no figure is known.
    pub(super) published: Option<f64>,
    /// The figure as published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) published_figure: Option<&'static str>,
    /// Source of the figure, or the reason why there is none.
    pub(super) published_source: &'static str,
    /// The model's figure, plus the host's share if the published figure includes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compared_ns: Option<f64>,
    /// Difference of the model's figure from the published one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) difference_pct: Option<f64>,
}

/// Kind of a published figure.
enum Figure {
    /// Nanoseconds of one command above the host's software, which adds `host_ns`.
    Latency { ns: f64, host_ns: u64 },
    /// Commands per second.
    Rate(f64),
    /// Bytes per second.
    Bandwidth(f64),
}

struct Published {
    preset: &'static str,
    op: PointOp,
    block_size: u32,
    queue_depth: u16,
    figure: Figure,
    text: &'static str,
    source: &'static str,
}

const ANANDTECH: &str = "AnandTech, review of the 375 GB P4800X (2017), in Linux";
const INTEL: &str = "Intel's specification of the 375 GB P4800X, 64 KiB sequential";
const SAMSUNG: &str = "Samsung's data sheet of the 970 PRO, \"up to\"";

const ALL: &[Published] = &[
    Published {
        preset: "optane-p4800x",
        op: PointOp::Read,
        block_size: 4096,
        queue_depth: 1,
        figure: Figure::Latency {
            ns: 8_900.0,
            host_ns: LINUX_READ_NS,
        },
        text: "8.9 us",
        source: ANANDTECH,
    },
    Published {
        preset: "optane-p4800x",
        op: PointOp::Read,
        block_size: 4096,
        queue_depth: 16,
        figure: Figure::Rate(584_800.0),
        text: "584.8 K IOPS",
        source: ANANDTECH,
    },
    Published {
        preset: "optane-p4800x",
        op: PointOp::Read,
        block_size: 65_536,
        queue_depth: 32,
        figure: Figure::Bandwidth(2.4e9),
        text: "2400 MB/s",
        source: INTEL,
    },
    Published {
        preset: "optane-p4800x",
        op: PointOp::Write,
        block_size: 65_536,
        queue_depth: 32,
        figure: Figure::Bandwidth(2.0e9),
        text: "2000 MB/s",
        source: INTEL,
    },
    Published {
        preset: "samsung-970-pro",
        op: PointOp::Read,
        block_size: 65_536,
        queue_depth: 32,
        figure: Figure::Bandwidth(3.5e9),
        text: "3500 MB/s, sequential",
        source: SAMSUNG,
    },
    Published {
        preset: "samsung-970-pro",
        op: PointOp::Write,
        block_size: 65_536,
        queue_depth: 32,
        figure: Figure::Bandwidth(2.3e9),
        text: "2300 MB/s, sequential",
        source: SAMSUNG,
    },
    Published {
        preset: "samsung-970-pro",
        op: PointOp::Read,
        block_size: 4096,
        queue_depth: 128,
        figure: Figure::Rate(370_000.0),
        text: "370 K IOPS, four queues of 32",
        source: SAMSUNG,
    },
    Published {
        preset: "samsung-970-pro",
        op: PointOp::Write,
        block_size: 4096,
        queue_depth: 128,
        figure: Figure::Rate(500_000.0),
        text: "500 K IOPS, four queues of 32",
        source: SAMSUNG,
    },
];

/// Compares a point with its published figure, if there is one.
pub(super) fn of(preset: &Preset, point: Point, virtual_ns: f64) -> Comparison {
    let mut all = ALL.iter();
    let found = all.find(|one| {
        one.preset == preset.name
            && (one.op, one.block_size) == (point.op, point.block_size)
            && (one.queue_depth, 1) == (point.queue_depth, point.workers)
    });
    let Some(found) = found else {
        return Comparison {
            published: None,
            published_figure: None,
            published_source: why_none(preset.name),
            compared_ns: None,
            difference_pct: None,
        };
    };
    let depth = f64::from(point.queue_depth) * f64::from(point.workers);
    let (published, host_ns) = match found.figure {
        Figure::Latency { ns, host_ns } => (ns, host_ns),
        Figure::Rate(per_s) => (depth * 1e9 / per_s, 0),
        Figure::Bandwidth(bytes_per_s) => {
            (depth * f64::from(point.block_size) * 1e9 / bytes_per_s, 0)
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "a few microseconds")]
    let compared = virtual_ns + host_ns as f64;
    Comparison {
        published: Some(published),
        published_figure: Some(found.text),
        published_source: found.source,
        compared_ns: Some(compared),
        difference_pct: Some((compared / published - 1.0) * 100.0),
    }
}

/// Why no figures are known other than those that the parameters were taken from.
fn why_none(preset: &str) -> &'static str {
    match preset {
        "intel-p3600" => "none: the figures of its data sheet are the model's parameters",
        "zns-prototype" => {
            "none: the drive was never sold, and only the NVMeVirt paper measured it"
        }
        "samsung-kvssd" => {
            "none: the NVMeVirt paper's plots are not printed as numbers, and its compound command is of its model"
        }
        "wd-zn540" => "none known at this point beside what the program's parameters are from",
        _ => "none known at this point",
    }
}

/// The largest difference that NVMeVirt's authors found between their model and the drive, in
/// percent.
pub(super) fn of_nvmevirt(preset: &str) -> Option<f64> {
    match preset {
        "optane-p4800x" => Some(12.2),
        "samsung-970-pro" => Some(11.8),
        "zns-prototype" => Some(3.3),
        "samsung-kvssd" => Some(3.8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_compared_as_times_of_a_command() {
        let optane = model::preset::preset("optane-p4800x").unwrap();
        let point = |block_size, queue_depth| Point {
            op: PointOp::Read,
            block_size,
            queue_depth,
            workers: 1,
        };
        // 5.39 us of the drive plus 6.61 us of the host, against 8.9 us.
        let alone = of(optane, point(4096, 1), 5_390.0);
        assert_eq!(alone.compared_ns, Some(12_000.0));
        assert!((alone.difference_pct.unwrap() - 34.83).abs() < 0.01);
        // 16 commands at 584.8 K/s are 27.36 us.
        let deep = of(optane, point(4096, 16), 27_360.0);
        assert!(deep.difference_pct.unwrap().abs() < 0.01);
        // 32 of 64 KiB at 2.4 GB/s are 873.8 us.
        let wide = of(optane, point(65_536, 32), 873_813.0);
        assert!(wide.difference_pct.unwrap().abs() < 0.01);
        let none = of(optane, point(8192, 1), 1.0);
        assert!(none.published.is_none() && !none.published_source.is_empty());
    }

    #[test]
    fn every_figure_is_of_a_point_that_there_is() {
        for one in ALL {
            let preset = model::preset::preset(one.preset).unwrap();
            let parameters = preset.parameters(preset.size_bytes, None).unwrap();
            let points = simulate::points::of(&parameters);
            let point = Point {
                op: one.op,
                block_size: one.block_size,
                queue_depth: one.queue_depth,
                workers: 1,
            };
            assert!(
                points.measured.iter().any(|m| m.point == point),
                "{point:?}"
            );
        }
    }
}
