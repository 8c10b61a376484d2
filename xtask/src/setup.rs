//! `cargo xtask setup`: fetches what the tests and the demo use and this machine lacks.

use anyhow::Result;
use guest_rig::Rig;
use guest_rig::cache::Note;

use crate::{golden, tools, web};

/// Fetches whatever is missing, and says what it is doing; quick and silent where nothing is.
///
/// # Errors
/// Something is missing and cannot be fetched; elsewhere than on Debian the error names the
/// packages.
pub(crate) fn prepare(note: Note<'_>) -> Result<()> {
    tools::prepare(note)?;
    golden::prepare(tools::install, note)?;
    web::prepare(note)?;
    Rig::prepare_all(note)?;
    Ok(())
}
