//! Fuzzing with the pinned toolchain: `fuzz/` is a workspace of its own, built with the address
//! sanitizer.
//!
//! cargo-fuzz asks the compiler for options that are unstable; RUSTC_BOOTSTRAP lets the pinned
//! compiler take them, so no second toolchain is needed. Inputs that are found go to a folder under
//! the target directory; the corpus in `fuzz/corpus` is only read.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::counts::Counts;
use crate::process::{Interrupt, Run, run};
use crate::stages::Context;
use crate::workspace::Workspace;

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// How long each target runs in the tests.
const SMOKE_SECONDS: u64 = 30;
/// How long a target may go on after its time: for its last input, which has a bound of its own.
const GRACE: Duration = Duration::from_secs(60);

/// Builds all targets and runs each for [`SMOKE_SECONDS`], one on each processor.
///
/// # Errors
/// There are no targets, or they cannot be built.
pub(crate) fn smoke(context: &mut Context<'_>) -> Result<Counts> {
    let (workspace, interrupt) = (context.workspace, context.interrupt);
    let targets = targets(workspace)?;
    ensure!(!targets.is_empty(), "fuzz/Cargo.toml has no targets");
    context.run(&mut build(workspace)?)?;
    context.line.note(&format!(
        "{} targets for {SMOKE_SECONDS} s each",
        targets.len()
    ));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut errors = Vec::new();
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            errors.extend(smoke_target(workspace, interrupt, target).err());
        }
        errors
    };
    let errors: Vec<_> = thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a worker does not panic"))
            .collect()
    });
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

/// Builds all targets and runs one of them on the terminal until it finds something or its time is
/// over.
///
/// # Errors
/// There is no such target, it cannot be built, or it found something.
pub(crate) fn one(workspace: &Workspace, target: &str, seconds: u64) -> Result<()> {
    let targets = targets(workspace)?;
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
    Ok(())
}

fn smoke_target(workspace: &Workspace, interrupt: &Interrupt, target: &str) -> Result<()> {
    let log = workspace.logs().join(format!("fuzz-{target}.log"));
    fs::write(&log, "")?;
    let bound = Duration::from_secs(SMOKE_SECONDS) + GRACE;
    let mut with = Run {
        bound,
        log: &log,
        interrupt,
        live: &mut |_| {},
    };
    let result = run(&mut command(workspace, target, SMOKE_SECONDS)?, &mut with);
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
fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let output = workspace.cargo(&["fuzz", "list"])?.output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect())
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
    if seeds.is_dir() {
        command.arg(seeds);
    }
    Ok(command)
}
