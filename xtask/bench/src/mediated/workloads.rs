//! The workloads of MDev-NVMe's table 1 (USENIX ATC 2018), each in four ways: on the drive itself,
//! on a controller that is mediated onto it, on a controller of a file, and on
//! qemu-storage-daemon's export of that file. All bytes are in memory.
//!
//! What the daemon's own client cannot do, which has one queue and no mixes, is done on one queue
//! of as many requests, or left out.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use guest_rig::Rig;
use plot::{Axis, Mark, Panel, Picture, Point, Scale, Series};
use serde_json::{Value, json};

use super::super::ours::{Ours, Setup as OursSetup};
use super::super::sample::{Sample, Summary};
use super::super::{memory_dir, vhost, write_file};
use super::Mediated;
use super::served::{PART_MIB, Served, Setup};
use super::split::Placement;

/// Of the paper: name, kind of access, reads of a hundred, commands in flight in a queue, queues.
const WORKLOADS: [(&str, &str, u32, u64, u64); 5] = [
    ("random read, QD1", "randread", 100, 1, 1),
    ("random write, QD1", "randwrite", 0, 1, 1),
    ("random read, QD32 x 4", "randread", 100, 32, 4),
    ("random write, QD32 x 4", "randwrite", 0, 32, 4),
    ("70 % reads, QD32 x 4", "randrw", 70, 32, 4),
];
/// Ways of `workloads`.
const WAYS: [&str; 4] = ["direct", "mediated", "file", "qemu-storage-daemon"];
/// Width and height of a panel in pixels.
const PANEL: (u32, u32) = (760, 480);

/// Samples by workload and way.
#[derive(Debug, Default)]
pub(super) struct Workloads {
    /// Names of the ways; figures of the others are held against the first.
    ways: Vec<&'static str>,
    samples: Vec<Vec<Vec<Sample>>>,
    /// Ways that could not be measured, and why.
    failures: Vec<String>,
}

/// Samples of all workloads; `None` for one that cannot be.
type Measured = Result<Vec<Option<Sample>>>;

/// Measures them in the four ways, in turn.
pub(super) fn measure(mediated: &Mediated<'_>) -> Result<Workloads> {
    let memory = memory_dir()?;
    let file = memory.path().join("file");
    write_file(&file, PART_MIB)?;
    let rig = Rig::prepare(&mut |text| eprintln!("{text}"));
    rounds(mediated, &WAYS, |way| match way {
        0 => ours(mediated, &Setup::direct("ram")),
        1 => ours(mediated, &Setup::direct("ram").with(&[""])),
        2 => of_file(mediated, &file),
        _ => match &rig {
            Ok(rig) => exported(mediated, rig, &file, memory.path()),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        },
    })
}

/// Measures them with the completion side of the drive where it may be, in turn.
pub(super) fn measure_split(mediated: &Mediated<'_>) -> Result<Workloads> {
    let drive = Setup::direct("ram").with(&[""]);
    rounds(mediated, &Placement::NAMES, |way| {
        let placement = Placement::of(way, mediated.args.cpus.pair())?;
        ours(mediated, &drive.placed(placement))
    })
}

fn rounds(
    mediated: &Mediated<'_>,
    ways: &[&'static str],
    measure: impl Fn(usize) -> Measured,
) -> Result<Workloads> {
    let mut all = Workloads {
        ways: ways.to_vec(),
        samples: vec![vec![Vec::new(); ways.len()]; WORKLOADS.len()],
        failures: Vec::new(),
    };
    for round in 1..=mediated.args.rounds {
        for (at, way) in ways.iter().enumerate() {
            let failed = |failure: &String| failure.starts_with(&format!("{way}:"));
            if all.failures.iter().any(failed) {
                continue;
            }
            eprintln!("  round {round} of {}: {way}", mediated.args.rounds);
            let done = measure(at);
            ensure!(!mediated.interrupt.is_set(), "interrupted");
            match done {
                Ok(samples) => {
                    for (workload, sample) in all.samples.iter_mut().zip(samples) {
                        workload[at].extend(sample);
                    }
                }
                Err(error) => {
                    eprintln!("  {way}: {error:#}");
                    all.failures.push(format!("{way}: {error:#}"));
                }
            }
        }
    }
    Ok(all)
}

fn job(time: &str, (_, rw, reads, depth, queues): (&str, &str, u32, u64, u64)) -> String {
    format!(
        "--rw {rw} --reads {reads} --qd {depth} --queues {queues} --span {PART_MIB}MiB --time {time}"
    )
}

fn ours(mediated: &Mediated<'_>, setup: &Setup) -> Measured {
    let served = Served::start(mediated, setup)?;
    served.fill()?;
    let time = mediated.time();
    let sample = |workload| served.sample(&job(&time, workload)).map(Some);
    let samples = WORKLOADS.into_iter().map(sample).collect();
    served.stop()?;
    samples
}

fn of_file(mediated: &Mediated<'_>, file: &Path) -> Measured {
    let setup = OursSetup {
        path: Some(file.to_owned()),
        ..OursSetup::new("file", "256MiB")
    };
    let ours = Ours::start(mediated.workspace, &setup, mediated.args.cpus.pair())?;
    let time = mediated.time();
    let sample = |workload| ours.sample(&job(&time, workload)).map(Some);
    let samples = WORKLOADS.into_iter().map(sample).collect();
    ours.stop()?;
    samples
}

fn exported(mediated: &Mediated<'_>, rig: &Rig, file: &Path, dir: &Path) -> Measured {
    let export = vhost::Export::start(rig, file, dir, mediated.args.cpus.pair())?;
    let sample = |(_, rw, _, depth, queues)| match rw {
        "randrw" => Ok(None),
        _ => export
            .measure(rw, depth * queues, mediated.args.seconds)
            .map(Some),
    };
    WORKLOADS.into_iter().map(sample).collect()
}

impl Workloads {
    pub(super) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    fn summary(&self, workload: usize, way: usize) -> Option<Summary> {
        let samples: Vec<&Sample> = self.samples.get(workload)?[way].iter().collect();
        Summary::of(&samples)
    }

    /// Every workload with every way that was measured.
    fn each(&self) -> impl Iterator<Item = (usize, usize, Summary)> {
        let both =
            (0..WORKLOADS.len()).flat_map(|at| (0..self.ways.len()).map(move |way| (at, way)));
        both.filter_map(|(at, way)| Some((at, way, self.summary(at, way)?)))
    }

    pub(super) fn in_json(&self) -> Value {
        let rows = self.each().map(|(at, way, summary)| {
            let mut json = summary.in_json();
            json["workload"] = WORKLOADS[at].0.into();
            json["way"] = self.ways[way].into();
            json
        });
        json!({ "rows": rows.collect::<Vec<_>>(), "not_measured": self.failures })
    }

    /// As the book has it.
    pub(super) fn table(&self) -> String {
        let first = self.ways.first().copied().unwrap_or_default();
        let mut text = format!(
            "| 4 KiB | way | IOPS | of {first} | mean us | p99 us | processor ns a command |\n|---|---|---|---|---|---|---|\n"
        );
        let some = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        for (at, way, summary) in self.each() {
            let of = &summary.median;
            let direct = self
                .summary(at, 0)
                .map(|direct| of.iops / direct.median.iops);
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} K | {} | {:.2} | {} | {} |",
                WORKLOADS[at].0,
                self.ways[way],
                of.iops / 1e3,
                some(direct, 2),
                of.mean_us,
                some(of.p99_us, 2),
                some(of.server_ns, 0),
            );
        }
        for failure in &self.failures {
            let line = failure.lines().next().unwrap_or_default();
            let _ = writeln!(text, "\nnot measured: {line}");
        }
        text
    }

    /// Commands a second and mean latency, as bars; nothing where nothing was measured.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn plot(&self, file: &Path) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let panel = |title: &str, up: Axis, of: fn(&Sample) -> f64| Panel {
            title: title.to_owned(),
            across: Axis::places("", WORKLOADS.map(|workload| workload.0.to_owned()).into()),
            up,
            series: (0..self.ways.len()).map(|way| self.bars(way, of)).collect(),
        };
        let picture = Picture {
            title: "4 KiB, medians".to_owned(),
            columns: 1,
            panel: PANEL,
            panels: vec![
                panel("", Axis::from_zero("commands a second, thousands"), |of| {
                    of.iops / 1e3
                }),
                panel("", Axis::of("mean latency, us", Scale::Decades), |of| {
                    of.mean_us
                }),
            ],
            ..Picture::default()
        };
        fs::write(file, plot::svg(&picture))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    fn bars(&self, way: usize, of: fn(&Sample) -> f64) -> Series {
        let point = |(at, _, summary): (usize, usize, Summary)| {
            Point::from((at as f64, of(&summary.median)))
        };
        Series {
            name: self.ways[way].to_owned(),
            mark: Mark::Bars,
            color: None,
            points: self
                .each()
                .filter(|(_, one, _)| *one == way)
                .map(point)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_what_was_measured_and_a_picture_too() {
        let sample = |iops| Sample {
            iops,
            mean_us: 1e6 / iops,
            server_ns: Some(400.0),
            ..Sample::default()
        };
        let mut samples = vec![vec![Vec::new(); WAYS.len()]; WORKLOADS.len()];
        samples[0][0] = vec![sample(1e6), sample(9e6), sample(2e6)];
        samples[0][1] = vec![sample(1e6)];
        let all = Workloads {
            ways: WAYS.to_vec(),
            samples,
            failures: vec!["file: no\nroom".to_owned()],
        };
        let table = all.table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[2],
            "| random read, QD1 | direct | 2000 K | 1.00 | 0.50 | - | 400 |"
        );
        assert!(lines[3].starts_with("| random read, QD1 | mediated | 1000 K | 0.50 |"));
        assert_eq!(lines.last(), Some(&"not measured: file: no"));
        assert_eq!(all.in_json()["rows"].as_array().unwrap().len(), 2);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plot.svg");
        all.plot(&file).unwrap();
        assert!(fs::read_to_string(&file).unwrap().contains("mediated"));
    }
}
