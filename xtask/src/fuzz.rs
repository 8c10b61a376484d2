//! The search for inputs that break a fuzz target, with the pinned toolchain: `fuzz/` is a
//! workspace of its own, built with the address sanitizer. The replay of `fuzz/corpus` is not here:
//! those are ordinary tests, of `tests/fuzz`.
//!
//! cargo-fuzz asks the compiler for options that are unstable; RUSTC_BOOTSTRAP lets the pinned
//! compiler take them, so no second toolchain is needed. Inputs that are found go to a folder under
//! the target directory; the corpus in `fuzz/corpus` is only read.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::counts::Counts;
use crate::process::{Interrupt, Run, run};
use crate::stages::Context;
use crate::workspace::Workspace;

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// How long each target runs in the stage `fuzz-search`.
const STAGE_SECONDS: u64 = 30;
/// How long a target may go on after its time: for its last input, which has a bound of its own.
const GRACE: Duration = Duration::from_secs(60);

/// What to search with.
#[derive(Debug, Args)]
pub(crate) struct FuzzArgs {
    /// Target to run on the terminal; an unknown name lists the targets
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    target: Option<String>,
    /// Run all targets, one per processor; the output goes to a log for each
    #[arg(long)]
    all: bool,
    /// Seconds for each target
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

/// Runs one target, or all of them; whether nothing was found.
///
/// # Errors
/// There is no such target, or the targets cannot be built.
pub(crate) fn search(workspace: &Workspace, args: &FuzzArgs) -> Result<bool> {
    let targets = targets(workspace)?;
    if let Some(target) = &args.target {
        return one(workspace, &targets, target, args.seconds);
    }
    let status = build(workspace)?.status()?;
    ensure!(status.success(), "the fuzz targets cannot be built");
    // Only here: on the terminal a target has the terminal's signals, and ends by itself.
    let interrupt = &Interrupt::install()?;
    fs::create_dir_all(workspace.logs())?;
    println!(
        "{} targets for {} s each; logs: {}/fuzz-*.log",
        targets.len(),
        args.seconds,
        workspace.logs().display()
    );
    let errors = all(workspace, interrupt, &targets, args.seconds);
    ensure!(!interrupt.is_set(), "interrupted");
    errors.iter().for_each(|error| println!("{error:#}"));
    println!(
        "{} of {} targets found something",
        errors.len(),
        targets.len()
    );
    Ok(errors.is_empty())
}

/// Builds all targets and runs each for [`STAGE_SECONDS`], one on each processor.
///
/// # Errors
/// There are no targets, or they cannot be built.
pub(crate) fn stage(context: &mut Context<'_>) -> Result<Counts> {
    let (workspace, interrupt) = (context.workspace, context.interrupt);
    let targets = targets(workspace)?;
    context.run(&mut build(workspace)?)?;
    context.line.note(&format!(
        "{} targets for {STAGE_SECONDS} s each",
        targets.len()
    ));
    let errors = all(workspace, interrupt, &targets, STAGE_SECONDS);
    errors
        .iter()
        .for_each(|error| context.line.note(&format!("{error:#}")));
    let failed = u32::try_from(errors.len())?;
    Ok(Counts {
        passed: u32::try_from(targets.len())? - failed,
        failed,
        ignored: 0,
    })
}

/// Runs targets that have been built, one on each processor, and returns what they found.
fn all(
    workspace: &Workspace,
    interrupt: &Interrupt,
    targets: &[String],
    seconds: u64,
) -> Vec<anyhow::Error> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut errors = Vec::new();
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            errors.extend(logged(workspace, interrupt, target, seconds).err());
        }
        errors
    };
    thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a worker does not panic"))
            .collect()
    })
}

/// Builds all targets and runs one of them on the terminal until it finds something or its time is
/// over.
///
/// # Errors
/// There is no such target, it cannot be built, or it found something.
fn one(workspace: &Workspace, targets: &[String], target: &str, seconds: u64) -> Result<bool> {
    if !targets.iter().any(|name| name == target) {
        bail!(
            "there is no fuzz target {target:?}; there are: {}",
            targets.join(", ")
        );
    }
    let status = build(workspace)?.status()?;
    ensure!(status.success(), "the fuzz targets cannot be built");
    let status = command(workspace, target, seconds)?.status()?;
    ensure!(status.success(), "{target} found something: see above");
    Ok(true)
}

/// Runs a target with its output in a log.
fn logged(workspace: &Workspace, interrupt: &Interrupt, target: &str, seconds: u64) -> Result<()> {
    let log = workspace.logs().join(format!("fuzz-{target}.log"));
    fs::write(&log, "")?;
    let bound = Duration::from_secs(seconds) + GRACE;
    let mut with = Run {
        bound,
        log: &log,
        interrupt,
        live: &mut |_| {},
    };
    let result = run(&mut command(workspace, target, seconds)?, &mut with);
    result.map(drop).with_context(|| {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        format!(
            "{target}:\n{}",
            lines[lines.len().saturating_sub(40)..].join("\n")
        )
    })
}

/// The names of the targets, as fuzz/Cargo.toml has them.
///
/// # Errors
/// There are none, or cargo-fuzz cannot be run.
fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let output = workspace.cargo(&["fuzz", "list"])?.output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let names = String::from_utf8_lossy(&output.stdout);
    let targets: Vec<String> = names.lines().map(str::to_owned).collect();
    ensure!(!targets.is_empty(), "fuzz/Cargo.toml has no targets");
    Ok(targets)
}

fn target_directory(workspace: &Workspace) -> PathBuf {
    workspace.target.join("fuzz")
}

/// Builds all targets, with checks of arithmetic.
fn build(workspace: &Workspace) -> Result<Command> {
    let mut command =
        workspace.cargo(&["fuzz", "build", "--debug-assertions", "--target", TRIPLE])?;
    command
        .arg("--target-dir")
        .arg(target_directory(workspace))
        .env("RUSTC_BOOTSTRAP", "1");
    Ok(command)
}

/// Runs a target that has been built.
fn command(workspace: &Workspace, target: &str, seconds: u64) -> Result<Command> {
    let found = target_directory(workspace).join("corpus").join(target);
    let artifacts = workspace.root.join("fuzz/artifacts").join(target);
    let seeds = workspace.root.join("fuzz/corpus").join(target);
    fs::create_dir_all(&found)?;
    fs::create_dir_all(&artifacts)?;
    let program = target_directory(workspace)
        .join(TRIPLE)
        .join("release")
        .join(target);
    let mut command = workspace.command(&program)?;
    command
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-max_total_time={seconds}"))
        .args(["-timeout=20", "-rss_limit_mb=3072"])
        .arg(found);
    command.arg(seeds);
    Ok(command)
}
