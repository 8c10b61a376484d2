//! Instructions of the command path, counted under callgrind and held against what is committed.
//!
//! `tests/counts/benches/` says what is counted. Counts have no noise, so a few per cent are
//! a change of the program; but they are no times: what is worth doing is decided with both.
//!
//! The baseline is what the pinned compiler makes for any processor of its architecture. A change
//! that costs more than [`ALLOWED`] fails; an author who intends it records the new baseline, which
//! shows in the review.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::counts::Counts;
use crate::stages::Context;
use crate::workspace::Workspace;

/// How much more a count may be than its baseline.
const ALLOWED: f64 = 0.03;
/// How much less a count must be for the report to ask for a new baseline.
const WORTH_RECORDING: f64 = 0.03;
/// What each count is divided by: `COMMANDS` of tests/counts.
const COMMANDS: f64 = 992.0;

/// What to do beside counting.
#[derive(Debug, Args)]
pub(crate) struct InstructionsArgs {
    /// Make the counts the baseline that later ones are held against
    #[arg(long)]
    record: bool,
}

/// Instructions per command, by name.
type Figures = BTreeMap<String, f64>;

/// A stage of the tests.
///
/// # Errors
/// It cannot be built or run, or there is no baseline.
pub(crate) fn stage(context: &mut Context<'_>) -> Result<Counts> {
    let output = context.run(&mut command(context.workspace)?)?;
    let figures = parse(&output)?;
    let (table, worse) = compare(&figures, &read(context.workspace)?);
    fs::write(context.workspace.logs().join("instructions.txt"), &table)?;
    for line in table.lines().filter(|line| line.contains(MARK)) {
        context.line.note(line);
    }
    let worse = u32::try_from(worse)?;
    Ok(Counts {
        passed: u32::try_from(figures.len())?.saturating_sub(worse),
        failed: worse,
        ignored: 0,
    })
}

/// Counts, and prints a table. Whether nothing has become worse.
///
/// # Errors
/// It cannot be built or run, or there is no baseline.
pub(crate) fn run(workspace: &Workspace, args: &InstructionsArgs) -> Result<bool> {
    let output = command(workspace)?
        .stderr(std::process::Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the counts cannot be run");
    let figures = parse(&String::from_utf8_lossy(&output.stdout))?;
    if args.record {
        let text = serde_json::to_string_pretty(&figures)? + "\n";
        fs::write(baseline(workspace), text)?;
    }
    let (table, worse) = compare(&figures, &read(workspace)?);
    print!("{table}");
    Ok(worse == 0)
}

fn command(workspace: &Workspace) -> Result<Command> {
    workspace.cargo(&[
        "bench",
        "--locked",
        // With the program's features, so that what it is made of is not built again.
        "--package",
        "nvmirage",
        "--package",
        "tests-counts",
        "--bench",
        "path",
        "--bench",
        "mediated",
        "--bench",
        "tcp",
        "--bench",
        "vhost",
        "--",
        "--output-format=json",
    ])
}

fn baseline(workspace: &Workspace) -> PathBuf {
    workspace.root.join("tests/counts/baseline.json")
}

fn read(workspace: &Workspace) -> Result<Figures> {
    let text = fs::read_to_string(baseline(workspace))
        .context("no baseline: record one with `cargo xtask instructions --record`")?;
    serde_json::from_str(&text).context("tests/counts/baseline.json holds other things than counts")
}

/// Reads the counts from the output of the benchmarks: one JSON object a line, between lines of
/// cargo's.
fn parse(output: &str) -> Result<Figures> {
    let mut figures = Figures::new();
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let summary: Value = serde_json::from_str(line).context("a summary is not JSON")?;
        let word = |key: &str| summary[key].as_str().unwrap_or_default();
        let name = format!("{}.{}", word("function_name"), word("id"));
        let count = &summary["profiles"][0]["data"]["total"]["metrics"]["Ir"]["values"]["new"];
        let count = count
            .as_f64()
            .with_context(|| format!("{name} has no count of instructions"))?;
        ensure!(count > 0.0, "{name} was not counted: nothing was executed");
        figures.insert(name, (count / COMMANDS * 10.0).round() / 10.0);
    }
    ensure!(!figures.is_empty(), "nothing was counted");
    Ok(figures)
}

/// What a line of the table says where the baseline has to be looked at.
const MARK: &str = "<-";

/// The table, and how many counts are worse than their baseline or have none.
fn compare(figures: &Figures, baseline: &Figures) -> (String, usize) {
    let mut worse = 0;
    let mut table = format!(
        "{:<30} {:>10} {:>10} {:>8}\n",
        "instructions per command", "now", "baseline", "change"
    );
    for (name, now) in figures {
        let Some(then) = baseline.get(name) else {
            worse += 1;
            let _ = writeln!(table, "{name:<30} {now:>10.1} {MARK} has no baseline");
            continue;
        };
        let change = now / then - 1.0;
        let remark = if change > ALLOWED {
            worse += 1;
            format!(" {MARK} more than {:.0} % worse", 100.0 * ALLOWED)
        } else if change < -WORTH_RECORDING {
            format!(" {MARK} better: record it")
        } else {
            String::new()
        };
        let change = 100.0 * change;
        let _ = writeln!(
            table,
            "{name:<30} {now:>10.1} {then:>10.1} {change:>+7.1}%{remark}"
        );
    }
    for name in baseline.keys().filter(|name| !figures.contains_key(*name)) {
        worse += 1;
        let _ = writeln!(table, "{name:<30} {MARK} was not counted");
    }
    (table, worse)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(list: &[(&str, f64)]) -> Figures {
        let named = |(name, count): &(&str, f64)| ((*name).to_owned(), *count);
        list.iter().map(named).collect()
    }

    #[test]
    fn three_per_cent_are_allowed_and_no_more() {
        let baseline = figures(&[("a", 100.0), ("b", 100.0), ("c", 100.0)]);
        let now = figures(&[("a", 102.9), ("b", 103.1), ("c", 90.0)]);
        let (table, worse) = compare(&now, &baseline);
        assert_eq!(worse, 1, "{table}");
        let marked: Vec<_> = table.lines().filter(|line| line.contains(MARK)).collect();
        assert_eq!(marked.len(), 2, "{table}");
        assert!(marked[0].starts_with("b ") && marked[1].contains("record"));
    }

    #[test]
    fn what_came_or_went_has_to_be_recorded() {
        let (table, worse) = compare(&figures(&[("new", 1.0)]), &figures(&[("old", 1.0)]));
        assert_eq!(worse, 2, "{table}");
    }

    #[test]
    fn counts_are_read_from_between_cargos_lines() {
        let output = "   Compiling a v1\n\
            {\"function_name\":\"post\",\"id\":\"one\",\"profiles\":[{\"data\":{\"total\":{\"metrics\":{\"Ir\":{\"values\":{\"new\":19840}}}}}}]}\n\
            done\n";
        assert_eq!(parse(output).unwrap(), figures(&[("post.one", 20.0)]));
        assert!(parse("   Compiling a v1\n").is_err());
        assert!(parse(&output.replace("19840", "0")).is_err());
        assert!(parse(&output.replace("\"Ir\"", "\"Dr\"")).is_err());
    }
}
