//! Recordings of the operations that timing models get, for `nvmirage fidelity --replay`: kept in
//! memory while the drive works, and written to a file when its medium is closed.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use api::config::{self, Timing};
use media::Medium;

/// Most operations in a recording: 300 MB.
const MOST: usize = 4 << 20;

/// File of a medium's recording.
#[derive(Debug)]
pub(super) struct RecordingFile {
    path: PathBuf,
    timing: Timing,
}

impl RecordingFile {
    /// Starts to record a medium, if it is configured.
    pub(super) fn begin(
        config: &config::Medium,
        medium: &Medium,
    ) -> anyhow::Result<Option<RecordingFile>> {
        let Some(timing) = &config.timing else {
            return Ok(None);
        };
        let Some(path) = timing.record.clone() else {
            return Ok(None);
        };
        // Fails now, and not at the stop, if the file cannot be written.
        create(&path)?;
        medium.record(MOST);
        tracing::info!(media = config.name, "recorded in {}", path.display());
        Ok(Some(RecordingFile {
            path,
            timing: timing.clone(),
        }))
    }

    /// Writes the recording of a medium whose channels are closed.
    pub(super) fn write(&self, medium: &Medium) -> anyhow::Result<()> {
        let recording = medium.take_recording();
        let recording = recording.context("a reactor still has the recording")?;
        let mut out = BufWriter::new(create(&self.path)?);
        let size = medium.size();
        let parameters = self.timing.parameters(size);
        let parameters = parameters.map_err(|problems| anyhow::anyhow!(problems.join("; ")))?;
        let drive = self.timing.in_one_word();
        simulate::recording::write(&mut out, (&drive, &parameters), size, &recording)
            .and_then(|()| out.flush())
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        ensure!(
            recording.left_out() == 0,
            "{} has only the first {} operations: record a shorter run, without changes during it",
            self.path.display(),
            recording.len()
        );
        Ok(())
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("record: cannot write {}", path.display()))
}
