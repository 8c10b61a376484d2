//! The dashboard (`web/`): what it needs is fetched, its types are checked, what it computes is tested, and then all of it in a browser,
//! against the program under load.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use tests_vm::cache::Note;
use tests_vm::debian;

use crate::counts::{self, Counts};
use crate::stages::Context;
use crate::tools;
use crate::workspace::Workspace;

/// The first Node.js that builds it: Vite asks for that one.
const NODE: (u32, u32) = (20, 19);
/// In `node_modules`: the lock file that it was made from. The program's build script writes and reads the same.
const STAMP: &str = ".nvmirage-lock.json";
/// What a browser is called that the tests can drive.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// What `tsc` makes of the tests.
const TESTS: &str = "node_modules/.test/test";

/// What is looked at.
#[derive(Debug, Args)]
pub(crate) struct WebArgs {
    /// Take the book's pictures, too
    #[arg(long, value_name = "FOLDER")]
    screenshots: Option<PathBuf>,
}

/// Fetches Node.js, npm, a browser and what `web/` needs, where they are missing.
///
/// # Errors
/// One of them is missing and cannot be fetched.
pub(crate) fn prepare(note: Note<'_>) -> Result<()> {
    if debian::on_path("node").is_none() || debian::on_path("npm").is_none() {
        tools::install(
            "npm",
            "no Node.js with npm, which build the dashboard",
            note,
        )?;
    }
    let version = node_version()?;
    ensure!(
        version >= NODE,
        "Node.js {}.{} is too old for the dashboard: install {}.{} or newer",
        version.0,
        version.1,
        NODE.0,
        NODE.1
    );
    if browser().is_none() {
        let why = "no Chromium, in which the dashboard is tested";
        tools::install("chromium", why, note)?;
    }
    let workspace = Workspace::locate()?;
    let web = workspace.root.join("web");
    let lock = fs::read(web.join("package-lock.json"))?;
    let stamp = web.join("node_modules").join(STAMP);
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    note("fetching what the dashboard is made of");
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--prefer-offline", "--no-audit"])
        .arg("--no-fund")
        .current_dir(&web);
    tools::checked(&mut npm)?;
    fs::write(stamp, lock)?;
    // a program that was built without it is built with it now: its build script looks at this folder
    let kept = workspace.target.join("web");
    fs::create_dir_all(&kept)?;
    Ok(fs::write(kept.join("fetched"), "")?)
}

fn node_version() -> Result<(u32, u32)> {
    let output = Command::new("node").arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).with_context(|| format!("node says that it is {text:?}"))
}

/// `v20.19.2`, without its last number.
fn parse(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().strip_prefix('v')?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn browser() -> Option<PathBuf> {
    BROWSERS.into_iter().find_map(debian::on_path)
}

/// A stage of the tests.
///
/// # Errors
/// Something cannot be run, or a test runner prints no counts.
pub(crate) fn stage(context: &mut Context<'_>) -> Result<Counts> {
    let program = context.workspace.program();
    if !program.is_file() {
        bail!("no {}: run the stage build first", program.display());
    }
    let web = context.workspace.root.join("web");
    for args in [&["--noEmit"][..], &["-p", "tsconfig.test.json"]] {
        let mut types = context.workspace.command("node".as_ref())?;
        types.arg("node_modules/typescript/bin/tsc").args(args);
        context.run(types.current_dir(&web))?;
    }
    let mut counts = Counts::ONE;
    for file in ["unit.test.js", "browser.test.js"] {
        let mut tests = command(context.workspace, &web, file)?;
        let these = context.run_tests(&mut tests, counts::tap)?;
        ensure!(these != Counts::default(), "{file} ran no test");
        counts += these;
    }
    Ok(counts)
}

/// Tests it in a browser on the terminal; whether all passed.
///
/// # Errors
/// Something is missing, or cannot be run.
pub(crate) fn run(workspace: &Workspace, args: &WebArgs) -> Result<bool> {
    prepare(&mut |text| println!("{text}"))?;
    let web = workspace.root.join("web");
    let mut types = Command::new("node");
    types
        .args([
            "node_modules/typescript/bin/tsc",
            "-p",
            "tsconfig.test.json",
        ])
        .current_dir(&web);
    tools::checked(&mut types)?;
    let mut tests = command(workspace, &web, "browser.test.js")?;
    if let Some(folder) = &args.screenshots {
        tests.arg("--screenshots").arg(std::path::absolute(folder)?);
    }
    Ok(tests.status()?.success())
}

fn command(workspace: &Workspace, web: &Path, file: &str) -> Result<Command> {
    let mut tests = workspace.command("node".as_ref())?;
    let browser = browser().context("no Chromium: run `cargo xtask setup`")?;
    tests
        .arg("--test-reporter=tap")
        .arg(Path::new(TESTS).join(file))
        .current_dir(web)
        .env("CHROMIUM", browser);
    Ok(tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(parse("v20.19.2\n"), Some((20, 19)));
        assert_eq!(parse("v22.12.0"), Some((22, 12)));
        assert_eq!(parse("20.1"), None);
        assert_eq!(parse(""), None);
    }
}
