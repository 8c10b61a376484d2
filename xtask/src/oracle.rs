//! The timing models against their oracle (`tests/oracle`): a stage of the tests, and as many
//! drives and commands as one likes.
//!
//! The stage tries a seed that follows from the commit: over time they are many. With `--all`, and
//! where the oracle changed, it also tries one that is always the same, the oracle itself is
//! compared with closed forms, and it is asked of the points that are recorded.

use std::process::Command;

use anyhow::{Result, ensure};
use clap::Args;

use crate::counts::Counts;
use crate::simulate::seed_of_commit;
use crate::stages::Context;
use crate::workspace::Workspace;

/// Commands of each drive.
const COMMANDS: u64 = 10_000;
/// Seeds of the thorough stage that are always the same, from 1 on, and runs of what checks the
/// oracle itself.
const FIXED_SEEDS: u64 = 1;
const CHECKS: u64 = 1;
/// The oracle, the drives that it is asked of, and the points where they are compared.
const ORACLE: [&str; 3] = [
    "tests/oracle/",
    "crates/model/src/preset/",
    "crates/simulate/src/points/",
];

/// The package that compares, and its program.
const PACKAGE: &str = "tests-oracle";
const NAME: &str = "oracle";

/// Which comparisons.
#[derive(Debug, Args)]
pub(crate) struct OracleArgs {
    /// Random drives of each shape, and random commands for each preset
    #[arg(long, default_value_t = 4)]
    seeds: u64,
    /// The first of the seeds
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One more seed
    #[arg(long, value_name = "SEED")]
    also: Option<u64>,
    /// Commands of each drive
    #[arg(long, default_value_t = COMMANDS)]
    commands: u64,
    /// Only drives whose name begins so
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Runs in which the oracle is itself compared with closed forms; 0: not at all
    #[arg(long, default_value_t = 0)]
    checks: u64,
}

/// Compares on the terminal; whether all agree.
///
/// # Errors
/// It cannot be built or run.
pub(crate) fn run(workspace: &Workspace, args: &OracleArgs) -> Result<bool> {
    let points = args.only.is_none();
    ensure!(
        workspace.build_of_tests(PACKAGE, NAME)?.status()?.success(),
        "it cannot be built"
    );
    Ok(command(workspace, args, points)?.status()?.success())
}

/// A stage of the tests.
///
/// # Errors
/// A drive differs, a check of the oracle fails, or they cannot be built.
pub(crate) fn stage(context: &mut Context<'_>) -> Result<Counts> {
    let files = context.changed();
    let is_of_oracle = |file: &String| ORACLE.iter().any(|folder| file.starts_with(folder));
    let thorough = context.all || files.iter().any(is_of_oracle);
    // One run for both: what does not depend on a seed is compared once.
    let args = OracleArgs {
        seeds: if thorough { FIXED_SEEDS } else { 0 },
        seed: 1,
        also: Some(seed_of_commit(context.workspace)?),
        commands: COMMANDS,
        only: None,
        checks: if thorough { CHECKS } else { 0 },
    };
    context.run(&mut context.workspace.build_of_tests(PACKAGE, NAME)?)?;
    let said = context.run(&mut command(context.workspace, &args, thorough)?)?;
    let passed = drives(&said);
    ensure!(passed > 0, "no drive was compared");
    Ok(Counts {
        passed,
        ..Counts::default()
    })
}

/// How many drives were compared, from the last line (`22 drives, 220000 commands`).
fn drives(output: &str) -> u32 {
    let last = output.lines().next_back().unwrap_or_default();
    let number = last.split(' ').next().unwrap_or_default();
    number.parse().unwrap_or(0)
}

/// `points`: those where drives are compared, too.
fn command(workspace: &Workspace, args: &OracleArgs, points: bool) -> Result<Command> {
    let mut command = workspace.command(&workspace.of_tests(NAME))?;
    for (name, value) in [
        ("--seeds", args.seeds),
        ("--seed", args.seed),
        ("--commands", args.commands),
        ("--checks", args.checks),
    ] {
        command.args([name, &value.to_string()]);
    }
    if let Some(also) = args.also {
        command.args(["--also", &also.to_string()]);
    }
    if points {
        command.arg("--points");
    }
    if let Some(only) = &args.only {
        command.args(["--only", only]);
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_is_read() {
        assert_eq!(
            drives("a, seed 1  10000 0\n22 drives, 220000 commands\n"),
            22
        );
        assert_eq!(drives(""), 0);
    }
}
