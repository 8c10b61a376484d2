//! Where things are, and how cargo is called from inside a program that cargo itself runs.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::tools;

/// The project's folders.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The root of the project.
    pub root: PathBuf,
    /// Where cargo builds.
    pub target: PathBuf,
}

impl Workspace {
    /// Finds them.
    ///
    /// # Errors
    /// cargo cannot be run.
    pub fn locate() -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here
            .ancestors()
            .nth(2)
            .context("xtask/shared stands in no workspace")?
            .to_owned();
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
            .current_dir(&root)
            .output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let target = metadata["target_directory"]
            .as_str()
            .context("no target directory")?;
        Ok(Self {
            root,
            target: target.into(),
        })
    }

    /// Where the logs of our own work go.
    pub fn logs(&self) -> PathBuf {
        self.target.join("xtask")
    }

    /// The release build of the program.
    pub fn program(&self) -> PathBuf {
        self.target.join("release/nvmirage")
    }

    /// The release build of a program of tests.
    pub fn of_tests(&self, name: &str) -> PathBuf {
        self.target.join("release").join(name)
    }

    /// The command that builds [`Workspace::of_tests`]: with the features that crates have in the
    /// program, so that what both are made of is built once.
    ///
    /// # Errors
    /// See [`Workspace::cargo`].
    pub fn build_of_tests(&self, package: &str, name: &str) -> Result<Command> {
        self.cargo(&[
            "build",
            "--locked",
            "--release",
            "--package",
            "nvmirage",
            "--package",
            package,
            "--bin",
            name,
        ])
    }

    /// A command of cargo's, run in the root.
    ///
    /// # Errors
    /// There is no cache folder to find subcommands in.
    pub fn cargo(&self, args: &[&str]) -> Result<Command> {
        let mut command = self.command("cargo".as_ref())?;
        command.args(args).env("CARGO_TERM_COLOR", "never");
        // What cargo told this program about itself would tell build scripts lies.
        let ours = |name: &OsString| {
            let name = name.to_string_lossy();
            name.starts_with("CARGO_PKG_")
                || name.starts_with("CARGO_MANIFEST_")
                || name == "LD_LIBRARY_PATH"
        };
        for name in env::vars_os().map(|(name, _)| name).filter(ours) {
            command.env_remove(name);
        }
        Ok(command)
    }

    /// A command run in the root that finds cargo's subcommands, and, for tests, the program.
    ///
    /// # Errors
    /// There is no cache folder to find subcommands in.
    pub fn command(&self, program: &Path) -> Result<Command> {
        let mut command = Command::new(program);
        command
            .current_dir(&self.root)
            .env("PATH", tools::search_path()?)
            .env("NVMIRAGE_BIN", self.program())
            .env("RUST_LIB_BACKTRACE", "0");
        Ok(command)
    }
}
