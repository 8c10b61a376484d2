//! `cargo xtask bench`: the benchmarks are a package of their own (`xtask/bench`), so that no other
//! task compiles them.
//!
//! This process becomes cargo's, and then theirs: signals, streams and the exit status need no
//! passing on.

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::workspace::Workspace;

/// What the benchmarks are given.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Arguments of the benchmarks; `cargo xtask bench --help` explains them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

/// Builds the benchmarks and becomes them.
///
/// # Errors
/// cargo cannot be run.
pub(crate) fn run(workspace: &Workspace, args: &BenchArgs) -> Result<Infallible> {
    // Optimised as the program is: the floor that it is compared with is a part of it.
    let run = [
        "run",
        "--release",
        "--package",
        "xtask-bench",
        "--manifest-path",
    ];
    let mut command = workspace.cargo(&run)?;
    command
        .arg(workspace.root.join("Cargo.toml"))
        .arg("--")
        .args(&args.args)
        // Files in the arguments are relative to where the caller is.
        .current_dir(env::current_dir()?);
    Err(command.exec()).context("cannot run cargo")
}
