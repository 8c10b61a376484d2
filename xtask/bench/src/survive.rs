//! `cargo xtask bench survive`: what `serve --survive` costs while nothing dies.
//!
//! The same client at a server without it and at one with it, one after the other in each round, on
//! the same processors. A row has the medians of both, and the median of the ratios of the rounds:
//! the two of a round have seen the same machine.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use xtask_shared::process::Interrupt;
use xtask_shared::workspace::Workspace;

use super::Cpus;
use super::ours::{Ours, Setup};
use super::sample::{Sample, median};

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct SurviveArgs {
    /// Seconds for each figure
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How often everything is measured
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    cpus: Cpus,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Media, and how the host rings.
const WAYS: [(&str, &str); 5] = [
    ("null", "mapped"),
    ("ram", "mapped"),
    ("ram", "trapped"),
    ("file", "mapped"),
    ("file", "trapped"),
];
const DEPTHS: [u64; 2] = [1, 32];
const SIZE: &str = "256MiB";
const SIZE_MIB: u64 = 256;

/// Samples of one case: each round's, without and with.
type Pairs = Vec<[Sample; 2]>;

/// Measures, and writes a table.
///
/// # Errors
/// A server cannot be started, or we are asked to stop.
pub(super) fn run(workspace: &Workspace, interrupt: &Interrupt, args: &SurviveArgs) -> Result<()> {
    // Not in the system's folder of temporary files, which may live in memory.
    let disk = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(&workspace.target)?;
    let mut cases: Vec<(&str, &str, u64, Pairs)> = Vec::new();
    for (kind, doorbells) in WAYS {
        cases.extend(DEPTHS.map(|depth| (kind, doorbells, depth, Pairs::new())));
    }
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for of_way in cases.chunks_mut(DEPTHS.len()) {
            let (kind, doorbells, ..) = of_way[0];
            let mut both = [None, None];
            // The second one finds other caches: they take turns.
            for survives in [round % 2 == 0, round % 2 == 1] {
                ensure!(!interrupt.is_set(), "interrupted");
                let setup = Setup {
                    path: (kind == "file").then(|| disk.path().join("disk")),
                    doorbells,
                    survives,
                    // Pages of a memfd become huge ones beside the host's load.
                    preallocate: kind == "ram",
                    ..Setup::new(kind, SIZE)
                };
                both[usize::from(survives)] = Some(measure(workspace, args, &setup)?);
            }
            let [Some(without), Some(with)] = both else {
                continue;
            };
            for ((case, off), on) in of_way.iter_mut().zip(without).zip(with) {
                case.3.push([off, on]);
            }
        }
    }
    let rows: Vec<Row> = cases.iter().map(Row::of).collect();
    report(&workspace.logs(), args.json, &rows)
}

/// A sample for each depth.
fn measure(workspace: &Workspace, args: &SurviveArgs, setup: &Setup) -> Result<Vec<Sample>> {
    let ours = Ours::start(workspace, setup, args.cpus.pair())?;
    if setup.preallocate {
        ours.wait_for_memory()?;
    }
    ours.fill(SIZE_MIB)?;
    let one = |depth| {
        let seconds = args.seconds;
        ours.sample(&format!("--rw randread --qd {depth} --time {seconds}s"))
    };
    let samples = DEPTHS.into_iter().map(one).collect::<Result<_>>()?;
    ours.stop()?;
    Ok(samples)
}

/// What a case comes to.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    depth: u64,
    /// Commands a second, without and with.
    iops: [f64; 2],
    /// Nanoseconds of a processor for each command.
    server_ns: [f64; 2],
    /// Commands a second with, of those without.
    ratio: f64,
    /// Samples in which both CPUs were near each other.
    near: usize,
    samples: usize,
}

impl Row {
    fn of((kind, doorbells, depth, pairs): &(&str, &str, u64, Pairs)) -> Self {
        let of = |value: &dyn Fn(&[Sample; 2]) -> f64| {
            median(pairs.iter().map(value).collect()).unwrap_or(f64::NAN)
        };
        let ns = |sample: &Sample| sample.server_ns.unwrap_or(f64::NAN);
        let samples = pairs.iter().flatten();
        Row {
            name: format!("{kind}, {doorbells}"),
            depth: *depth,
            iops: [0, 1].map(|at| of(&|pair| pair[at].iops)),
            server_ns: [0, 1].map(|at| of(&|pair| ns(&pair[at]))),
            ratio: of(&|[off, on]| on.iops / off.iops),
            near: samples.filter(|sample| sample.placement == "near").count(),
            samples: 2 * pairs.len(),
        }
    }

    fn in_json(&self) -> Value {
        json!({
            "subject": self.name,
            "queue_depth": self.depth,
            "iops": self.iops,
            "server_ns": self.server_ns,
            "ratio": self.ratio,
            "near": self.near,
            "samples": self.samples,
        })
    }
}

fn report(logs: &Path, in_json: bool, rows: &[Row]) -> Result<()> {
    let json: Vec<Value> = rows.iter().map(Row::in_json).collect();
    let json = json!({ "block_size": 4096, "rw": "randread", "rows": json });
    std::fs::create_dir_all(logs)?;
    std::fs::write(logs.join("survive.json"), format!("{json:#}\n"))?;
    if in_json {
        println!("{json:#}")
    } else {
        print!("{}", table(rows))
    }
    Ok(())
}

/// As the book has it.
fn table(rows: &[Row]) -> String {
    let mut text =
        "| 4 KiB random reads | IOPS without | with | ratio | CPU without, ns | with | near |\n\
                    |---|---|---|---|---|---|---|\n"
            .to_owned();
    for row in rows {
        let [off, on] = row.iops;
        let [off_ns, on_ns] = row.server_ns;
        let _ = writeln!(
            text,
            "| {}, {} in flight | {off:.0} | {on:.0} | {:.3} | {off_ns:.0} | {on_ns:.0} | {} of {} |",
            row.name, row.depth, row.ratio, row.near, row.samples
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_of_the_ratios() {
        let sample = |iops, placement: &str| Sample {
            iops,
            server_ns: Some(1e9 / iops),
            placement: placement.to_owned(),
            ..Sample::default()
        };
        // The machine was slower in the second round, for both.
        let pairs = [(100.0, 99.0), (10.0, 9.8), (50.0, 55.0)];
        let pairs = pairs.map(|(off, on)| [sample(off, "near"), sample(on, "far")]);
        let row = Row::of(&("ram", "mapped", 32, pairs.to_vec()));
        assert_eq!(row.ratio, 0.99);
        let table = table(&[row]);
        let last = table.lines().last().unwrap();
        assert_eq!(
            last,
            "| ram, mapped, 32 in flight | 50 | 55 | 0.990 | 20000000 | 18181818 | 3 of 6 |"
        );
    }
}
