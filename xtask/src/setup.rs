//! `cargo xtask setup`: fetches what the tests and the demo use and this machine lacks.

use anyhow::{Context, Result};
use tests_vm::cache::Note;
use tests_vm::{Rig, rig};

use crate::tools;

/// Fetches whatever is missing, and says what it is doing; quick and silent where nothing is.
///
/// # Errors
/// Something is missing and cannot be fetched; elsewhere than on Debian the error names the
/// packages.
pub(crate) fn prepare(note: Note<'_>) -> Result<()> {
    let elsewhere = || {
        format!(
            "install these, or use a Debian, where they are fetched: {} {}",
            tools::names(),
            rig::packages()
        )
    };
    tools::prepare(note).with_context(elsewhere)?;
    Rig::prepare(note).with_context(elsewhere)?;
    Ok(())
}
