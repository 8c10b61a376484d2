//! `cargo xtask bench reach`: what the program is meant to reach, measured, a row each.
//!
//! A row is a bar, what was measured, and how far apart they are. What is compared is interleaved,
//! and only samples with one placement of the processors are compared. Nothing here passes or
//! fails.

mod blocks;
mod clients;
mod doorbells;
pub(crate) mod footprint;
mod media;
mod neighbours;
mod peers;
mod sleep;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use xtask_shared::process::Interrupt;
use xtask_shared::workspace::Workspace;

use super::Cpus;
use super::ours::output;
use super::sample::{Results, Sample, Subject, Summary, of_placement};

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct ReachArgs {
    /// Only these rows
    #[arg(long, value_delimiter = ',', default_values = NAMES, value_parser = NAMES)]
    only: Vec<String>,
    /// Seconds for each figure
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How many samples of one placement each figure is a median of
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    cpus: Cpus,
    /// Where the plot over block sizes is written, as SVG; default: beside the logs of the tests
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// How many times the rounds there may be, so that there are enough of one placement.
const MORE_ROUNDS: usize = 3;

/// Measures one group of rows.
type Measure = fn(&Reach<'_>) -> Result<Vec<Row>>;

const GROUPS: [(&str, Measure); 15] = [
    ("null", media::null),
    ("ram", media::ram),
    ("clients", clients::clients),
    ("idle-120", neighbours::idle_120),
    ("idle-1000", neighbours::idle_1000),
    ("cold", neighbours::cold),
    ("storm", neighbours::storm),
    ("file", peers::file),
    ("vhost", peers::vhost),
    ("sleep-unmapped", sleep::unmapped),
    ("sleep-mapped", sleep::mapped),
    ("adaptive", sleep::adaptive),
    ("doorbells", doorbells::doorbells),
    ("blocks", blocks::blocks),
    ("footprint", footprint::footprint),
];
const NAMES: [&str; 15] = names();

const fn names() -> [&'static str; 15] {
    let mut names = [""; 15];
    let mut at = 0;
    while at < GROUPS.len() {
        names[at] = GROUPS[at].0;
        at += 1;
    }
    names
}

/// One bar, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    what: String,
    bar: String,
    measured: String,
    /// What was measured over what it is held against, where that is one number.
    ratio: Option<f64>,
}

impl Row {
    pub(crate) fn new(what: &str, bar: &str, measured: String, ratio: Option<f64>) -> Self {
        Self {
            what: what.to_owned(),
            bar: bar.to_owned(),
            measured,
            ratio,
        }
    }

    pub(crate) fn in_json(&self) -> Value {
        json!({
            "what": self.what, "bar": self.bar, "measured": self.measured, "ratio": self.ratio,
        })
    }
}

/// A run.
pub(super) struct Reach<'a> {
    workspace: &'a Workspace,
    interrupt: &'a Interrupt,
    args: &'a ReachArgs,
}

/// Measures all rows that are asked for.
///
/// # Errors
/// Results cannot be written, or somebody interrupts us; what cannot be measured is in the table.
pub(super) fn run(workspace: &Workspace, interrupt: &Interrupt, args: &ReachArgs) -> Result<()> {
    fs::create_dir_all(workspace.logs())?;
    let reach = Reach {
        workspace,
        interrupt,
        args,
    };
    let mut rows = Vec::new();
    for (number, (name, measure)) in GROUPS.iter().enumerate() {
        if !args.only.iter().any(|only| only == name) {
            continue;
        }
        eprintln!("{} of {}: {name}", number + 1, GROUPS.len());
        let done = measure(&reach);
        ensure!(!interrupt.is_set(), "interrupted");
        match done {
            Ok(more) => {
                more.iter()
                    .for_each(|row| eprintln!("  {}: {}", row.what, row.measured));
                rows.extend(more);
            }
            Err(error) => {
                let why = format!("not measured: {error:#}");
                let line = why.lines().next().unwrap_or_default().to_owned();
                eprintln!("  {why}");
                rows.push(Row::new(name, "", line, None));
            }
        }
    }
    let json: Vec<Value> = rows.iter().map(Row::in_json).collect();
    let json = json!({ "rows": json });
    fs::write(workspace.logs().join("reach.json"), format!("{json:#}\n"))?;
    if args.json {
        println!("{json:#}");
    } else {
        print!("{}", table(&rows));
    }
    Ok(())
}

/// Rows for a page of the book as well as for a terminal.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = "| what | bar | measured | ratio |\n|---|---|---|---|\n".to_owned();
    for row in rows {
        let ratio = row
            .ratio
            .map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let _ = writeln!(
            table,
            "| {} | {} | {} | {ratio} |",
            row.what, row.bar, row.measured
        );
    }
    table
}

/// What cases came to, in their order, and with which placement.
pub(crate) struct Compared {
    pub(crate) placement: &'static str,
    /// Medians.
    pub(crate) cases: Vec<Sample>,
}

impl Compared {
    /// The ratio of a figure of the first case to that of the second.
    pub(crate) fn ratio(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        Some(of(&self.cases[0])? / of(&self.cases[1])?)
    }
}

impl Reach<'_> {
    fn time(&self) -> String {
        format!("{}s", self.args.seconds)
    }

    /// Measures cases in turn, until each has as many samples of one placement as rounds are asked
    /// for.
    fn compare(
        &self,
        cases: usize,
        measure: impl FnMut(usize) -> Result<Sample>,
    ) -> Result<Compared> {
        self.compare_often(cases, 0, measure)
    }

    /// The same with at least so many rounds, for what differs much from one to the next.
    fn compare_often(
        &self,
        cases: usize,
        least: usize,
        measure: impl FnMut(usize) -> Result<Sample>,
    ) -> Result<Compared> {
        compare(self.interrupt, (self.args.rounds, least), cases, measure)
    }

    /// The floor between the two processors, in nanoseconds by name.
    fn floor(&self) -> Result<Value> {
        let (server, host) = self.args.cpus.pair();
        let mut command = self.workspace.command(&self.workspace.program())?;
        let cpus = format!("{host},{server}");
        output(command.args(["bench", "floor", "--json", "--cpus", &cpus]))
    }
}

/// Measures cases in turn, until each has as many samples of one placement as there are to be
/// rounds, and at least so many.
pub(super) fn compare(
    interrupt: &Interrupt,
    (rounds, least): (u32, usize),
    cases: usize,
    mut measure: impl FnMut(usize) -> Result<Sample>,
) -> Result<Compared> {
    let wanted = usize::try_from(rounds)?.max(least);
    let mut results = Results::default();
    for round in 1..=wanted * MORE_ROUNDS {
        for case in 0..cases {
            ensure!(!interrupt.is_set(), "interrupted");
            let subject = Subject::new(&case.to_string(), "", 0);
            results.add(subject, measure(case)?);
        }
        if round >= wanted && results.enough(results.usual_placement(), wanted) {
            break;
        }
    }
    summarize(&results)
}

fn summarize(results: &Results) -> Result<Compared> {
    let placement = results.usual_placement();
    let cases = results.series.iter().map(|(_, samples)| {
        Summary::of(&of_placement(samples, placement))
            .map(|summary| summary.median)
            .with_context(|| format!("no sample with the CPUs {placement}"))
    });
    Ok(Compared {
        placement,
        cases: cases.collect::<Result<_>>()?,
    })
}

/// A number with a unit, or that there is none.
pub(super) fn shown(value: Option<f64>, digits: usize, unit: &str) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_row() {
        let rows = [
            Row::new("a", "<= 90 ns", "80 ns".into(), Some(0.888)),
            Row::new("b", "", "not measured".into(), None),
        ];
        let table = table(&rows);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[2], "| a | <= 90 ns | 80 ns | 0.89 |");
        assert_eq!(lines[3], "| b |  | not measured |  |");
    }

    #[test]
    fn cases_are_compared_with_one_placement() {
        let mut results = Results::default();
        for (case, iops, placement) in [
            ("0", 10.0, "far"),
            ("1", 5.0, "far"),
            ("0", 99.0, "near"),
            ("1", 4.0, "far"),
        ] {
            let sample = Sample {
                iops,
                placement: placement.into(),
                ..Sample::default()
            };
            results.add(Subject::new(case, "", 0), sample);
        }
        let compared = summarize(&results).unwrap();
        assert_eq!(compared.placement, "far");
        assert_eq!(compared.ratio(|s| Some(s.iops)), Some(10.0 / 4.5));
        assert_eq!(compared.ratio(|s| s.p50_us), None);
    }

    #[test]
    fn every_group_has_a_name_of_its_own() {
        let mut names = NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), GROUPS.len());
        assert!(names.iter().all(|name| !name.is_empty()));
    }
}
