//! `cargo xtask bench mediated`: what a drive that is shared by mediated pass-through costs its
//! hosts, and what each gets of it.
//!
//! The drive is a controller of ours in the same process, on the reactor that mediates: two
//! processors have no room for more that polls beside a host. A host that drives it directly finds
//! the same controller on the same reactor. Cases of a row take turns, figures are medians of
//! samples of one placement, and nothing passes or fails.

mod hostile;
mod rows;
mod served;
mod split;
mod workloads;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::json;
use xtask_shared::process::Interrupt;
use xtask_shared::workspace::Workspace;

use self::hostile::Beside;
use self::split::Placement;
use self::workloads::Workloads;
use super::Cpus;
use super::reach::Row;
use super::sample::Sample;

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct MediatedArgs {
    /// Only these
    #[arg(long, value_delimiter = ',', default_values = PARTS, value_parser = PARTS)]
    only: Vec<String>,
    /// Seconds for each figure
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How many samples each figure is a median of
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    cpus: Cpus,
    /// Where the plot of the workloads is written, as SVG, and beside it as `.split.svg` and
    /// `.hostile.svg`, or alone, those of the split and of a hostile neighbour; default: beside the
    /// logs of the tests
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// What can be measured, in this order.
const PARTS: [&str; 10] = [
    "turns",
    "added",
    "rate",
    "weights",
    "caps",
    "latency",
    "tenants",
    "hostile",
    "workloads",
    "split",
];

/// A run.
struct Mediated<'a> {
    workspace: &'a Workspace,
    interrupt: &'a Interrupt,
    args: &'a MediatedArgs,
}

/// Measures all that is asked for.
///
/// # Errors
/// Results cannot be written, or somebody interrupts us; what cannot be measured is in the table.
pub(super) fn run(workspace: &Workspace, interrupt: &Interrupt, args: &MediatedArgs) -> Result<()> {
    fs::create_dir_all(workspace.logs())?;
    let mediated = Mediated {
        workspace,
        interrupt,
        args,
    };
    let mut all = Vec::new();
    let (mut workloads, mut split) = (Workloads::default(), Workloads::default());
    let mut hostile = Beside::default();
    for (number, part) in PARTS.into_iter().enumerate() {
        if !args.only.iter().any(|only| only == part) {
            continue;
        }
        eprintln!("{} of {}: {part}", number + 1, PARTS.len());
        let done = match part {
            "turns" => rows::turns(&mediated),
            "added" => rows::added(&mediated),
            "rate" => rows::rate(&mediated),
            "weights" => rows::weights(&mediated),
            "caps" => rows::caps(&mediated),
            "latency" => rows::latency(&mediated),
            "tenants" => rows::tenants(&mediated),
            "hostile" => Beside::measure(&mediated).map(|measured| {
                hostile = measured;
                hostile.rows()
            }),
            "workloads" => workloads::measure(&mediated).map(|measured| {
                workloads = measured;
                Vec::new()
            }),
            _ => workloads::measure_split(&mediated).map(|measured| {
                split = measured;
                Vec::new()
            }),
        };
        ensure!(!interrupt.is_set(), "interrupted");
        all.extend(done.unwrap_or_else(|error| {
            eprintln!("  not measured: {error:#}");
            vec![Row::new(part, "", format!("not measured: {error:#}"), None)]
        }));
    }
    let json = json!({
        "rows": all.iter().map(Row::in_json).collect::<Vec<_>>(),
        "hostile": hostile.in_json(),
        "workloads": workloads.in_json(),
        "split": split.in_json(),
    });
    fs::write(
        workspace.logs().join("mediated.json"),
        format!("{json:#}\n"),
    )?;
    let plot = workspace.logs().join("mediated.svg");
    let plot = args.plot.as_ref().unwrap_or(&plot);
    workloads.plot(plot)?;
    let beside = |taken: bool, name: &str| {
        if taken {
            plot.with_extension(name)
        } else {
            plot.clone()
        }
    };
    let is_taken = !workloads.is_empty();
    split.plot(&beside(is_taken, "split.svg"))?;
    hostile.plot(&beside(is_taken || !split.is_empty(), "hostile.svg"))?;
    if args.json {
        println!("{json:#}");
        return Ok(());
    }
    let mut text = String::new();
    if !all.is_empty() {
        text += &super::reach::table(&all);
    }
    if !workloads.is_empty() {
        let _ = write!(text, "\n{}", workloads.table());
    }
    if !split.is_empty() {
        let how = Placement::of(0, args.cpus.pair())?.described();
        let _ = write!(
            text,
            "\nThe completion side apart; {how}:\n\n{}",
            split.table()
        );
    }
    print!("{text}");
    Ok(())
}

impl Mediated<'_> {
    fn time(&self) -> String {
        format!("{}s", self.args.seconds)
    }

    /// As [`super::reach::compare`].
    fn compare(
        &self,
        cases: usize,
        measure: impl FnMut(usize) -> Result<Sample>,
    ) -> Result<super::reach::Compared> {
        super::reach::compare(self.interrupt, (self.args.rounds, 0), cases, measure)
    }
}
