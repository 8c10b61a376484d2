//! NBD clients that are not ours, from Debian's packages: libnbd's tools, and fio. And a server to
//! compare with: nbdkit.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::apt::open_apt;
use crate::cache::{Cache, Note, key_hash};
use crate::debian::{self, Program};

const PACKAGES: &[&str] = &["fio", "libnbd-bin", "nbdfuse", "nbdkit", "python3-libnbd"];

fn key() -> String {
    let recipe = format!("{PACKAGES:?} {}", debian::RELEASE);
    format!("libnbd-{}", key_hash(&[recipe.as_bytes()]))
}

/// Fetches them where they are missing.
///
/// # Errors
/// This is no Debian on x86-64, or fetching fails.
pub(crate) fn prepare(cache: &Cache, note: Note<'_>) -> Result<()> {
    cache.ensure(&key(), note, |dir, note| {
        let apt = open_apt(dir, note)?;
        apt.unpack_closure(debian::RELEASE, PACKAGES, dir, note)?;
        apt.close()
    })?;
    Ok(())
}

fn root() -> Result<PathBuf> {
    let root = Cache::open()?.get(&key());
    root.context("no clients of NBD: run `cargo xtask setup`")
}

/// One of them: `fio`, `nbdcopy`, `nbdinfo`, `nbdfuse`.
///
/// # Errors
/// They have not been fetched: says how to.
pub fn program(name: &str) -> Result<Program> {
    Ok(Program::private(&root()?, &format!("usr/bin/{name}")))
}

/// libnbd's Python shell (`nbdsh`), which takes the same options.
///
/// # Errors
/// They have not been fetched: says how to.
pub fn shell() -> Result<Program> {
    let root = root()?;
    let python = Program::private(&root, "usr/bin/python3");
    let modules = root.join("usr/lib/python3/dist-packages");
    Ok(python
        .with_variable("PYTHONHOME", root.join("usr"))
        .with_variable("PYTHONPATH", modules)
        .with("-mnbd"))
}

/// nbdkit, and the path of its plugin that keeps an export in memory.
///
/// # Errors
/// They have not been fetched: says how to.
pub fn nbdkit() -> Result<(Program, PathBuf)> {
    let root = root()?;
    let plugin = root.join("usr/lib/x86_64-linux-gnu/nbdkit/plugins/nbdkit-memory-plugin.so");
    Ok((Program::private(&root, "usr/bin/nbdkit"), plugin))
}
