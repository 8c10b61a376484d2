//! `nvmirage conformance`: tests a drive against the NVMe specifications.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use api::config::Span;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use conformance::{Bench, CHAPTERS, Miss, Options, Outcome, Selection, UnknownName};
use driver::bus::nvme_tcp::Identity;
use driver::bus::place::{AnyBus, Place};
use driver::wait::Advised;
use driver::{Doorbells, DriverError};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use terminal::interrupt::Interrupt;
use terminal::progress;
use terminal::table::{Align, Table};

use super::as_host::AsHost;
use super::wait::WaitArg;
use super::{UsageError, consent};

const EXAMPLES: &str = "\
Examples:
  nvmirage conformance --list
      List the tests, with the specification and section of each
  nvmirage conformance --target vfio-user:/tmp/nvme.sock --destroy-data
      Run everything
  nvmirage conformance --target vfio-user:/tmp/nvme.sock --destroy-data --only queues,io --doorbells trapped
      Two chapters, by register writes
  nvmirage conformance --target vfio-user:/tmp/a.sock --second vfio-user:/tmp/b.sock --destroy-data --only sharing
      Two controllers of one subsystem
  nvmirage conformance --target nvme-tcp:127.0.0.1:4420/nqn.2026-11.example:store --destroy-data
      A controller over NVMe/TCP
  nvmirage conformance --target pci:0000:01:00.0 --destroy-data
      A drive of this machine, after nvmirage drive bind
  nvmirage conformance --target vfio-user:/tmp/nvme.sock --destroy-data --only full_cq --json
      One test, as JSON

The tests write to the drive, reset its controller and may format, create and delete namespaces:
whatever is on it is lost. The exit status is 0 when no test fails; what a controller says itself
that it does not have is no failure.";

/// Test a drive, over vfio-user, over NVMe/TCP or on this machine, against the NVMe specifications
///
/// Each test names its section: Base 2.1, NVM 1.1, PCIe Transport 1.1. A controller over vfio-user
/// has one host at a time, so the drive is unavailable to guests during the tests.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Conformance {
    /// Address of the drive: a server's socket, a target over NVMe/TCP, or a PCI function bound to
    /// vfio-pci
    #[arg(
        long,
        value_name = "vfio-user:PATH|nvme-tcp:HOST:PORT/NQN|pci:ADDRESS",
        required_unless_present = "list"
    )]
    target: Option<Place>,

    /// Address of another controller of the same subsystem, for tests with two hosts; over NVMe/TCP
    /// the same address is another controller
    #[arg(long, value_name = "vfio-user:PATH|nvme-tcp:HOST:PORT/NQN|pci:ADDRESS")]
    second: Option<Place>,

    /// Allow all namespaces of the drive to be overwritten; required except with --list
    #[arg(long)]
    destroy_data: bool,

    /// Chapters or tests to run, separated by commas: queues, full_cq, io/fua; default: all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,

    /// List the tests without running them
    #[arg(long, conflicts_with_all = ["target", "second", "destroy_data"])]
    list: bool,

    /// Doorbell method; auto takes mapped doorbells where the drive has them, else register writes.
    /// Not for NVMe/TCP, which has no doorbells
    #[arg(long, value_name = "HOW", value_parser = doorbells(), default_value = "auto")]
    doorbells: Doorbells,

    /// Namespace to write to; default: the first active one without metadata
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nsid: Option<u32>,

    /// Command timeout, after which a command counts as lost
    #[arg(long, value_name = "TIME", default_value = "10s")]
    bound: Span,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    wait: WaitArg,

    #[command(flatten)]
    as_host: AsHost,
}

fn doorbells() -> impl TypedValueParser<Value = Doorbells> {
    PossibleValuesParser::new(["auto", "mapped", "shadow", "trapped"]).map(|word| {
        match word.as_str() {
            "mapped" => Doorbells::Mapped,
            "shadow" => Doorbells::Shadow,
            "trapped" => Doorbells::Trapped,
            _ => Doorbells::Auto,
        }
    })
}

/// One test in JSON.
#[derive(Debug, Serialize)]
struct TestReport {
    chapter: &'static str,
    name: &'static str,
    section: &'static str,
    title: &'static str,
    /// `passed`, `failed`, `not supported` or `not applicable`; absent with `--list`.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'static str>,
    /// Why the test did not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct Output {
    target: String,
    doorbells: &'static str,
    passed: usize,
    failed: usize,
    not_supported: usize,
    not_applicable: usize,
    tests: Vec<TestReport>,
}

impl Conformance {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let selection = Selection::of(&self.only).map_err(|UnknownName(name)| {
            UsageError(format!(
                "--only {name}: no such chapter or test; `nvmirage conformance --list` lists them"
            ))
        })?;
        if self.list {
            return list(&selection, self.json);
        }
        if !self.destroy_data {
            let places = self.target.iter().chain(&self.second);
            let places: Vec<String> = places.map(Place::to_string).collect();
            let what = format!("all namespaces of {}", places.join(", "));
            return Err(consent::needed("conformance", &what).into());
        }
        let target = self.target.as_ref().context("--target is missing")?;
        let place = target.to_string();
        if matches!(target, Place::NvmeTcp(_)) && self.doorbells != Doorbells::Auto {
            let how = load::host::doorbells_name(self.doorbells);
            return Err(UsageError(format!(
                "--doorbells {how}: a target over NVMe/TCP has no doorbells; leave it out"
            ))
            .into());
        }
        self.as_host.assume(Some(target))?;
        let mut bench = self.bench(target, |bound| target.open(bound))?;
        if let Some(second) = &self.second {
            bench.set_second(self.bench(second, |bound| open_second(second, bound))?);
        }
        // Installed only now, so that the first signal ends a command that waits for a drive.
        let interrupt = Interrupt::install()?;
        progress::note(&format!(
            "warning: everything on {place} is being overwritten"
        ));
        let outcomes = run(&mut bench, &selection, &interrupt);
        let output = Output::new(place, load::host::doorbells_name(self.doorbells), &outcomes);
        if self.json {
            terminal::print_json(&output)?;
        } else {
            terminal::print(&in_words(&outcomes, &output))?;
        }
        if interrupt.is_set() {
            bail!("interrupted: the tests that are not listed were not run");
        }
        match output.failed {
            0 => Ok(()),
            failed => bail!("{failed} of {} tests failed", outcomes.len()),
        }
    }

    fn bench(
        &self,
        place: &Place,
        open: impl Fn(Duration) -> Result<AnyBus, DriverError>,
    ) -> anyhow::Result<Bench> {
        let bound = self.bound.0;
        let never = || false;
        let bus = self
            .wait
            .get()
            .open(place, &never, &progress::note, || open(bound));
        let bus = bus
            .map_err(Advised)
            .with_context(|| format!("cannot use the drive at {place}"))?;
        let options = Options {
            doorbells: self.doorbells,
            bound,
            quiet: Duration::from_millis(20).min(bound),
            nsid: self.nsid,
            ..Options::default()
        };
        Bench::new(Box::new(bus), &options)
            .map_err(|miss| anyhow::anyhow!("cannot test the drive at {place}: {miss}"))
    }
}

/// The bus of the second host: to a target it is one with a Host Identifier of its own.
fn open_second(place: &Place, bound: Duration) -> Result<AnyBus, DriverError> {
    let host = Identity::another().map_err(|source| DriverError::System {
        what: "make a host identifier",
        source,
    })?;
    place.open_as(Some(&host), bound)
}

/// Runs the tests with a progress line.
fn run(bench: &mut Bench, selection: &Selection, interrupt: &Interrupt) -> Vec<Outcome> {
    let count = selection.tests().count();
    let bar = ProgressBar::new(u64::try_from(count).unwrap_or(u64::MAX));
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {bar:30} {msg}") {
        bar.set_style(style);
    }
    let mut outcomes = Vec::with_capacity(count);
    conformance::run(bench, selection, &mut |outcome| {
        bar.set_message(format!("{}/{}", outcome.chapter, outcome.name));
        bar.inc(1);
        outcomes.push(outcome);
        !interrupt.is_set()
    });
    bar.finish_and_clear();
    outcomes
}

/// The word for a test's outcome.
fn result(outcome: &Outcome) -> &'static str {
    match outcome.verdict {
        Ok(()) => "passed",
        Err(Miss::Failed(_)) => "failed",
        Err(Miss::NotSupported(_)) => "not supported",
        Err(Miss::NotApplicable(_)) => "not applicable",
    }
}

impl Output {
    fn new(target: String, doorbells: &'static str, outcomes: &[Outcome]) -> Self {
        let count = |word: &str| outcomes.iter().filter(|o| result(o) == word).count();
        let tests = outcomes.iter().map(|outcome| TestReport {
            chapter: outcome.chapter,
            name: outcome.name,
            section: outcome.section,
            title: outcome.title,
            result: Some(result(outcome)),
            reason: outcome.verdict.as_ref().err().map(ToString::to_string),
        });
        Output {
            target,
            doorbells,
            passed: count("passed"),
            failed: count("failed"),
            not_supported: count("not supported"),
            not_applicable: count("not applicable"),
            tests: tests.collect(),
        }
    }
}

/// A row for each chapter, then the unsupported tests, and last the failures, which readers look
/// for.
fn in_words(outcomes: &[Outcome], output: &Output) -> String {
    let mut table = Table::new(&[
        ("chapter", Align::Left),
        ("passed", Align::Right),
        ("failed", Align::Right),
        ("not supported", Align::Right),
        ("not applicable", Align::Right),
        ("about", Align::Left),
    ]);
    for chapter in CHAPTERS {
        let of = |word: &str| {
            let mut count = 0;
            for outcome in outcomes {
                count += usize::from(outcome.chapter == chapter.name && result(outcome) == word);
            }
            count
        };
        let counts = ["passed", "failed", "not supported", "not applicable"].map(of);
        if counts.iter().sum::<usize>() > 0 {
            let mut cells = vec![chapter.name.to_owned()];
            cells.extend(counts.map(|count| count.to_string()));
            cells.push(chapter.title.to_owned());
            table.row(cells);
        }
    }
    let mut text = table.to_string();
    text.push_str(&not_applicable(outcomes));
    for word in ["not supported", "failed"] {
        let mut misses = outcomes.iter().filter(|o| result(o) == word).peekable();
        if misses.peek().is_none() {
            continue;
        }
        text.push_str(&format!("\n{word}:\n"));
        for outcome in misses {
            let why = outcome.verdict.as_ref().err();
            let why = why.map(ToString::to_string).unwrap_or_default();
            let (chapter, name) = (outcome.chapter, outcome.name);
            if word == "failed" {
                text.push_str(&format!(
                    "  {chapter}/{name}\n    {}: {}\n    {why}\n",
                    outcome.section, outcome.title
                ));
            } else {
                text.push_str(&format!("  {chapter}/{name}: {why}\n"));
            }
        }
    }
    text.push_str(&format!(
        "\n{} passed, {} failed, {} not supported, {} not applicable\n",
        output.passed, output.failed, output.not_supported, output.not_applicable
    ));
    text
}

/// A line for each reason why tests are not for such a controller: there may be a hundred of them.
fn not_applicable(outcomes: &[Outcome]) -> String {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for outcome in outcomes {
        if let Err(Miss::NotApplicable(why)) = outcome.verdict {
            let name = format!("{}/{}", outcome.chapter, outcome.name);
            by_reason.entry(why).or_default().push(name);
        }
    }
    let mut text = String::new();
    for (why, names) in by_reason {
        let heading = if text.is_empty() {
            "\nnot applicable:\n"
        } else {
            ""
        };
        let names = match &names[..] {
            [first, second, third, rest @ ..] if rest.len() > 1 => {
                format!("{first}, {second}, {third} and {} more", rest.len())
            }
            names => names.join(", "),
        };
        text.push_str(&format!("{heading}  {why}: {names}\n"));
    }
    text
}

fn list(selection: &Selection, json: bool) -> anyhow::Result<()> {
    if json {
        let tests = selection.tests().map(|(chapter, test)| TestReport {
            chapter: chapter.name,
            name: test.name,
            section: test.section,
            title: test.title,
            result: None,
            reason: None,
        });
        return terminal::print_json(&tests.collect::<Vec<_>>());
    }
    let mut table = Table::new(&[
        ("test", Align::Left),
        ("section", Align::Left),
        ("what is so where it passes", Align::Left),
    ]);
    for (chapter, test) in selection.tests() {
        table.row(vec![
            format!("{}/{}", chapter.name, test.name),
            test.section.to_owned(),
            test.title.to_owned(),
        ]);
    }
    terminal::print(&table.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &'static str, verdict: conformance::Verdict) -> Outcome {
        Outcome {
            chapter: "queues",
            name,
            section: "Base 2.1, 3.3.1.2",
            title: "it is so",
            verdict,
        }
    }

    #[test]
    fn the_table_ends_with_what_fails_and_counts() {
        let outcomes = [
            outcome("one", Ok(())),
            outcome("two", Err(Miss::Failed("expected 1, found 2".into()))),
            outcome(
                "three",
                Err(Miss::NotSupported("ONCS bit 8: no Copy".into())),
            ),
            outcome("four", Err(Miss::NotApplicable("it is about PRPs"))),
        ];
        let output = Output::new("vfio-user:/s".into(), "mapped", &outcomes);
        let text = in_words(&outcomes, &output);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("chapter  passed  failed  not supported  not applicable  about")
        );
        assert!(
            lines[1]
                .starts_with("queues        1       1              1               1  I/O queues")
        );
        assert_eq!(
            lines[2..].join("\n"),
            "\nnot applicable:\n  it is about PRPs: queues/four\n\nnot supported:\n  queues/three: ONCS bit 8: no Copy\n\nfailed:\n  queues/two\n    \
             Base 2.1, 3.3.1.2: it is so\n    expected 1, found 2\n\n1 passed, 1 failed, 1 not supported, \
             1 not applicable"
        );
        let json = serde_json::to_value(&output).unwrap();
        assert_eq!(json["tests"][1]["result"], "failed");
        assert_eq!(json["tests"][1]["reason"], "expected 1, found 2");
        assert!(json["tests"][0].get("reason").is_none());
    }
}
