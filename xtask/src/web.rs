//! The dashboard (`web/`): what it needs is fetched, its types are checked, what it computes is
//! tested, and then all of it in a browser, against the program under load.

#[path = "../../crates/server/build_npm.rs"]
mod npm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use guest_rig::cache::Note;
use guest_rig::debian;

use crate::counts::{self, Counts};
use crate::stages::Context;
use crate::tools;
use crate::workspace::Workspace;

/// How often npm retries a failed download: the caller needs the packages.
const RETRIES: u32 = 2;
/// What a browser is called that the tests can drive.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// What `tsc` makes of the tests.
const TESTS: &str = "node_modules/.test/test";

/// What is looked at.
#[derive(Debug, Args)]
pub(crate) struct WebArgs {
    /// Take the book's pictures of it, and test nothing
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
    npm::check_node()?;
    if browser().is_none() {
        let why = "no Chromium, in which the dashboard is tested";
        tools::install("chromium", why, note)?;
    }
    let workspace = Workspace::locate()?;
    let web = workspace.root.join("web");
    let _held = npm::lock(&web.join(npm::LOCK), npm::LOCK_BOUND)?;
    if npm::is_installed(&web)? {
        return Ok(());
    }
    note("fetching what the dashboard is made of");
    let logs = workspace.logs();
    fs::create_dir_all(&logs)?;
    npm::install(&web, RETRIES, &logs.join("npm.log"))?;
    // a program that was built without it is built with it now: its build script looks at this
    // folder
    let kept = workspace.target.join("web");
    fs::create_dir_all(&kept)?;
    Ok(fs::write(kept.join("fetched"), "")?)
}

/// The tests run the release build.
fn program(workspace: &Workspace) -> Result<()> {
    let program = workspace.program();
    ensure!(
        program.is_file(),
        "no {}, which the browser is to be shown: run `cargo build --release` first",
        program.display()
    );
    Ok(())
}

fn browser() -> Option<PathBuf> {
    BROWSERS.into_iter().find_map(debian::on_path)
}

/// A stage of the tests.
///
/// # Errors
/// Something cannot be run, or a test runner prints no counts.
pub(crate) fn stage(context: &mut Context<'_>) -> Result<Counts> {
    program(context.workspace)?;
    let web = context.workspace.root.join("web");
    for args in [&["--noEmit"][..], &["-p", "tsconfig.test.json"]] {
        let mut types = context.workspace.command("node".as_ref())?;
        types.arg("node_modules/typescript/bin/tsc").args(args);
        context.run(types.current_dir(&web))?;
    }
    let mut counts = Counts::ONE;
    for file in ["unit.test.js", "store.test.js", "browser.test.js"] {
        let mut tests = command(context.workspace, &web, file)?;
        let these = context.run_tests(&mut tests, counts::tap)?;
        ensure!(these != Counts::default(), "{file} ran no test");
        counts += these;
    }
    Ok(counts)
}

/// Tests it in a browser on the terminal, or takes pictures of it; whether all went well.
///
/// # Errors
/// Something is missing, or cannot be run.
pub(crate) fn run(workspace: &Workspace, args: &WebArgs) -> Result<bool> {
    program(workspace)?;
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
    let mut command = match &args.screenshots {
        None => command(workspace, &web, "browser.test.js")?,
        Some(folder) => {
            let mut pictures = command(workspace, &web, "pictures.js")?;
            pictures.arg(std::path::absolute(folder)?);
            pictures
        }
    };
    Ok(command.status()?.success())
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
    fn a_program_that_is_not_there_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace {
            root: dir.path().to_owned(),
            target: dir.path().join("target"),
        };
        let error = program(&workspace).unwrap_err().to_string();
        assert!(error.contains("cargo build --release"), "{error}");
        fs::create_dir_all(dir.path().join("target/release")).unwrap();
        fs::write(workspace.program(), "").unwrap();
        program(&workspace).unwrap();
    }
}
