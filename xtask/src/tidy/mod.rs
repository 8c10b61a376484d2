//! Rules of the project that no compiler checks: which crate may use which, that modules use each
//! other in no circle, the size of crates, the order of imports, what source text may hold, where
//! links lead, and how the book's blocks are marked.
//!
//! Each rule is a function from text to findings, so that its tests show it failing; [`run`] feeds
//! them the working tree.

mod arrows;
mod cycles;
mod imports;
mod lexer;
mod links;
mod prose;
mod size;
mod text;
mod truth;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::{fmt, fs};

use anyhow::{Context, Result, ensure};

use crate::book;

/// A breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file, relative to the root of the project.
    pub(crate) file: String,
    /// Counted from 1; 0 where the whole file is meant.
    pub(crate) line: usize,
    /// What is wrong, and what to do.
    pub(crate) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what),
            line => write!(f, "{}:{line}: {}", self.file, self.what),
        }
    }
}

/// Checks the working tree in `root`: all files that git tracks or would track.
///
/// # Errors
/// git or cargo cannot be run, or a file cannot be read.
pub(crate) fn run(root: &Path) -> Result<Vec<Finding>> {
    let metadata = output(Command::new(env!("CARGO")).current_dir(root).args([
        "metadata",
        "--no-deps",
        "--format-version=1",
        "--offline",
    ]))?;
    let mut findings = arrows::check(&metadata)?;
    let mut pages = BTreeMap::new();
    let mut sources = BTreeMap::new();
    let list = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    for name in output(Command::new("git").current_dir(root).args(list))?.split('\0') {
        findings.extend(text::check_name(name));
        let path = root.join(name);
        if !text::is_text(name) || !path.is_file() {
            continue;
        }
        let bytes = fs::read(&path).with_context(|| format!("cannot read {name}"))?;
        findings.extend(text::check(name, &bytes));
        let texts = match name.rsplit_once('.') {
            Some((_, "md")) => &mut pages,
            Some((_, "rs")) => &mut sources,
            _ => continue,
        };
        texts.insert(
            name.to_owned(),
            String::from_utf8_lossy(&bytes).into_owned(),
        );
    }
    findings.extend(cycles::check(&sources));
    findings.extend(size::check(&sources));
    findings.extend(links::check(&pages, &|path| root.join(path).exists()));
    for (name, text) in &pages {
        findings.extend(prose::check(name, text));
    }
    for (name, text) in &sources {
        findings.extend(prose::check_source(name, text));
        findings.extend(imports::check(name, text));
    }
    findings.extend(truth::check(&pages, &sources));
    findings.extend(book::check(root, &pages)?);
    Ok(findings)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        said.trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}
