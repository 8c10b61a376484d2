//! Prometheus' own programs, from Debian's package, to check what we tell it.

use std::path::Path;

use anyhow::{Context, Result};

use crate::apt::open_apt;
use crate::cache::{Cache, Note, key_hash};
use crate::debian::{self, Program};

const PACKAGE: &str = "prometheus";
const PROMTOOL: &str = "usr/bin/promtool";
const PROMETHEUS: &str = "usr/bin/prometheus";

fn key() -> String {
    let recipe = format!("{PACKAGE} {}", debian::RELEASE);
    format!("{PACKAGE}-{}", key_hash(&[recipe.as_bytes()]))
}

/// Fetches it where it is missing.
///
/// # Errors
/// This is no Debian on x86-64 and there is none on the `PATH`, or fetching fails.
pub(crate) fn prepare(cache: &Cache, note: Note<'_>) -> Result<()> {
    if debian::on_path("promtool").is_none() || debian::on_path("prometheus").is_none() {
        cache.ensure(&key(), note, |dir, note| fetch(dir, note))?;
    }
    Ok(())
}

fn fetch(dir: &Path, note: Note<'_>) -> Result<()> {
    let apt = open_apt(dir, note)?;
    apt.unpack_closure(debian::RELEASE, &[PACKAGE], dir, note)?;
    apt.close()
}

/// The program `promtool`: the system's, else the one that was fetched.
///
/// # Errors
/// There is neither: says how to get it.
pub fn promtool() -> Result<Program> {
    program("promtool", PROMTOOL)
}

/// Prometheus itself, likewise.
///
/// # Errors
/// As [`promtool`].
pub fn prometheus() -> Result<Program> {
    program("prometheus", PROMETHEUS)
}

fn program(name: &str, path: &str) -> Result<Program> {
    if let Some(path) = debian::on_path(name) {
        return Ok(Program::system(path));
    }
    let root = Cache::open()?.get(&key());
    let root = root.with_context(|| format!("no {name}: run `cargo xtask setup`"))?;
    Ok(Program::private(&root, path))
}
