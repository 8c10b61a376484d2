//! Persistence of timing models: the placement of a drive's pages, and its wear.
//!
//! Each medium has a [`file`] of its own. A clean stop saves the current state; while the drive
//! works, the [`checkpoints`] thread saves it periodically. After a crash the last saved state is
//! used, whatever its age: it affects how long commands take, never their data.
//!
//! A holder [keeps](kept) a checkpoint for the next process of the server: the state of a medium
//! without a file, and for all media its time.

pub(crate) mod checkpoints;
pub(crate) mod file;
pub(crate) mod kept;

use std::time::Duration;

use self::file::StateFile;
use self::kept::{Content, Kept};

/// Where the state of a medium's timing model is saved.
#[derive(Debug)]
pub(crate) struct Place {
    /// Its file, if it has one.
    pub(crate) file: Option<StateFile>,
    /// Its checkpoint at the holder, if there is one.
    pub(crate) kept: Option<Kept>,
}

impl Place {
    /// Replaces the state. `at`: when it was the model's, the time of CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// The system's, or the holder's: the last state is still there.
    pub(crate) fn write(&mut self, state: &[u8], at: Duration) -> anyhow::Result<()> {
        let content = match &mut self.file {
            Some(file) => {
                file.write(state)?;
                Content::InFile
            }
            None => Content::State(state),
        };
        let kept = self.kept.as_mut();
        kept.map_or(Ok(()), |kept| kept.keep(&content, at))
    }

    /// The last state is still the model's.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn renew(&self, at: Duration) -> anyhow::Result<()> {
        let kept = self.kept.as_ref();
        kept.map_or(Ok(()), |kept| kept.renew(at))
    }
}
