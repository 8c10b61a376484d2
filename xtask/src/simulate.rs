//! Hosts, controllers and reactors in virtual time (`tests/sim`): a stage of the tests, and as many
//! runs as one likes.
//!
//! The stage runs the same seeds always, so that a change that breaks one of them shows at once,
//! and some that follow from the commit, so that over time many are tried and yet each run can be
//! repeated.

use std::process::Command;

use anyhow::{Result, ensure};
use clap::Args;

use crate::counts::Counts;
use crate::stages::Context;
use crate::workspace::Workspace;

/// The package that simulates, and its program.
const PACKAGE: &str = "tests-sim";
const NAME: &str = "simulate";
/// I/O commands of a run.
const COMMANDS: u64 = 50_000;
/// Runs with seeds that are always the same, from 1 on, and runs with seeds of the commit.
const FIXED_RUNS: u64 = 20;
const OTHER_RUNS: u64 = 10;
/// Runs with seeds of the commit in which the process dies, and their I/O commands; then as many in
/// which hosts do more.
const KILLED_RUNS: u64 = 25;
const KILLED_COMMANDS: u64 = 10_000;

/// Which simulations.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// The seed of the first run; the others have those that follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// I/O commands of each run
    #[arg(long, default_value_t = COMMANDS)]
    commands: u64,
    /// How many runs
    #[arg(long, default_value_t = 100)]
    runs: u64,
    /// The process dies now and then, and another one goes on from what it left
    #[arg(long)]
    kill: bool,
    /// Hosts also copy, reserve namespaces, and write to zones
    #[arg(long)]
    more: bool,
    /// Print what hosts do, from this step of each run on
    #[arg(long, value_name = "STEP")]
    trace: Option<u64>,
}

/// Runs simulations on the terminal; whether all went well.
///
/// # Errors
/// They cannot be built or run.
pub(crate) fn run(workspace: &Workspace, args: &SimulateArgs) -> Result<bool> {
    ensure!(
        workspace.build_of_tests(PACKAGE, NAME)?.status()?.success(),
        "it cannot be built"
    );
    let mut command = command(workspace, args.seed, args.commands, args.runs)?;
    if args.kill {
        command.arg("--kill");
    }
    if args.more {
        command.arg("--more");
    }
    if let Some(step) = args.trace {
        command.args(["--trace", &step.to_string()]);
    }
    Ok(command.status()?.success())
}

/// A stage of the tests.
///
/// # Errors
/// A run finds something, or they cannot be built.
pub(crate) fn stage(context: &mut Context<'_>) -> Result<Counts> {
    context.run(&mut context.workspace.build_of_tests(PACKAGE, NAME)?)?;
    context.run(&mut command(context.workspace, 1, COMMANDS, FIXED_RUNS)?)?;
    let seed = seed_of_commit(context.workspace)?;
    context.run(&mut command(context.workspace, seed, COMMANDS, OTHER_RUNS)?)?;
    let mut kills = command(context.workspace, seed, KILLED_COMMANDS, KILLED_RUNS)?;
    context.run(kills.arg("--kill"))?;
    let mut more = command(context.workspace, seed, KILLED_COMMANDS, KILLED_RUNS)?;
    context.run(more.args(["--kill", "--more"]))?;
    Ok(Counts {
        passed: u32::try_from(FIXED_RUNS + OTHER_RUNS + 2 * KILLED_RUNS)?,
        ..Counts::default()
    })
}

fn command(workspace: &Workspace, seed: u64, commands: u64, runs: u64) -> Result<Command> {
    let mut command = workspace.command(&workspace.of_tests(NAME))?;
    for (name, value) in [("--seed", seed), ("--commands", commands), ("--runs", runs)] {
        command.args([name, &value.to_string()]);
    }
    Ok(command)
}

/// A number that the commit says; the same one where this is no checkout.
pub(crate) fn seed_of_commit(workspace: &Workspace) -> Result<u64> {
    let mut git = workspace.command("git".as_ref())?;
    let output = git.args(["rev-parse", "--short=8", "HEAD"]).output();
    let Ok(output) = output else {
        return Ok(FIXED_RUNS + 1);
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let seed = u64::from_str_radix(text.trim(), 16).unwrap_or(FIXED_RUNS + 1);
    Ok(seed)
}
