//! The oracle's side, as a process of its own.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};

/// A folder of this crate.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    // Nothing is written into the tree.
    command.arg("-B").arg(folder().join("python/oracle.py"));
    command.args(arguments);
    command
}

const MISSING: &str = "python3 cannot be run: install Python 3.10 or a later one";

/// Runs the oracle with `input`, and gives what it prints.
///
/// # Errors
/// There is no Python, or the oracle fails.
pub fn ask(arguments: &[&str], input: &str) -> Result<Vec<u8>> {
    let mut command = command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context(MISSING)?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let output = thread::scope(|scope| {
        // It may answer, or fail, before it has read everything.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        child.wait_with_output()
    })?;
    ensure!(
        output.status.success(),
        "the oracle fails: python3 oracle.py {}",
        arguments.join(" ")
    );
    Ok(output.stdout)
}

/// Runs a check of the oracle's own, which prints what it finds; whether all is well.
///
/// # Errors
/// There is no Python.
pub fn check(arguments: &[&str]) -> Result<bool> {
    Ok(command(arguments).status().context(MISSING)?.success())
}
