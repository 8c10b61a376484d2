//! The simulations' golden hashes on a second machine: an arm of 64 bits, under `qemu-user`, built
//! by Debian's cross compiler.
//!
//! What the hashes are of is the same on this machine, in the unit tests. Other than there, the
//! order of addresses, the mathematics of the system and the width of a vector are another
//! machine's here.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail, ensure};
use guest_rig::cache::Note;
use guest_rig::debian;

use crate::counts::{self, Counts};
use crate::stages::Context;
use crate::workspace::Workspace;

/// The second machine.
const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Its linker and the program that runs its programs, each with Debian's package.
const LINKER: (&str, &str) = ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu");
const RUNNER: (&str, &str) = ("qemu-aarch64", "qemu-user");
/// Its C library, what a program of it starts with, and Debian's package of that: the compiler's
/// only recommends it.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
const START: (&str, &str) = (
    "/usr/aarch64-linux-gnu/lib/Scrt1.o",
    "libc6-dev-arm64-cross",
);

/// Fetches what is missing: the target's standard library, and Debian's packages.
///
/// # Errors
/// Something is missing and cannot be fetched.
pub(crate) fn prepare(
    install: fn(&str, &str, Note<'_>) -> Result<()>,
    note: Note<'_>,
) -> Result<()> {
    for (program, package) in [LINKER, RUNNER] {
        if debian::on_path(program).is_none() {
            let why = format!("no {program}, for the simulations' results on a second machine");
            install(package, &why, note)?;
        }
    }
    if !Path::new(START.0).exists() {
        let why = format!("no {}, which its programs start with", START.0);
        install(START.1, &why, note)?;
    }
    if !has_target()? {
        note(&format!("adding the standard library of {TARGET}"));
        let mut rustup = Command::new("rustup");
        let added = rustup.args(["target", "add", TARGET]).status()?;
        ensure!(added.success(), "rustup cannot add the target {TARGET}");
    }
    Ok(())
}

/// Whether the toolchain has the target's standard library.
fn has_target() -> Result<bool> {
    let mut rustc = Command::new("rustc");
    let output = rustc
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()?;
    let folder = String::from_utf8_lossy(&output.stdout);
    Ok(output.status.success() && Path::new(folder.trim()).is_dir())
}

/// A stage of the tests.
///
/// # Errors
/// A hash differs, or the tests cannot be built or run for that machine.
pub(crate) fn stage(context: &mut Context<'_>) -> Result<Counts> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the second machine is an arm of 64 bits: run this stage on x86-64");
    }
    let mut command = command(context.workspace)?;
    let counts = context.run_tests(&mut command, counts::libtest)?;
    ensure!(counts != Counts::default(), "no test was run");
    Ok(counts)
}

fn command(workspace: &Workspace) -> Result<Command> {
    let mut command = workspace.cargo(&[
        "test", "--locked", "-p", "simulate", "--test", "runs", "--target", TARGET, "golden",
    ])?;
    let runner = format!("{} -L {LIBRARIES}", RUNNER.0);
    command
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER.0)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
    Ok(command)
}
