//! The state file of a medium's timing model, [owned](owned) by the process that serves the medium.
//! The format is defined in `model`.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::keep::owned::{self, Replaced};

/// Configuration key of the file.
const KEY: &str = "timing.state";

/// Runs of this many zeros become holes in the file, so the state of a nearly empty drive takes
/// hardly any space.
const HOLE: usize = 64 << 10;

/// The state file of a medium of this process.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// Locked, if there is a file.
    file: Option<File>,
}

impl StateFile {
    /// Opens and reads the file; `None` if there is no file.
    ///
    /// # Errors
    /// The file is locked by another process, cannot be read, or is longer than `longest`.
    pub fn take(path: &Path, longest: u64) -> anyhow::Result<(Self, Option<Vec<u8>>)> {
        let path = std::path::absolute(path)?;
        let Some(file) = owned::open(&path, false, KEY)? else {
            return Ok((StateFile { path, file: None }, None));
        };
        let shown = path.display();
        let examined = file.metadata();
        let len = examined
            .with_context(|| format!("cannot examine {shown}"))?
            .len();
        if len > longest {
            bail!(
                "{shown}: unexpected size {len} bytes; not a state file of this drive. Name another file as {KEY}"
            );
        }
        let mut bytes = Vec::new();
        (&file)
            .take(longest)
            .read_to_end(&mut bytes)
            .with_context(|| format!("cannot read {shown}"))?;
        let file = Some(file);
        Ok((StateFile { path, file }, Some(bytes)))
    }

    /// A file that the next [`Self::write`] creates, or replaces whatever it has.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        Ok(StateFile { path, file: None })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the state atomically.
    ///
    /// # Errors
    /// The system's; the old file is still there, or returns after a crash.
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let Replaced { file, durable } =
            owned::replace(&self.path, KEY, |file| write_sparsely(file, bytes))?;
        self.file = Some(file);
        durable
    }
}

/// Writes bytes into an empty file, whose position is at its end then.
pub(super) fn write_sparsely(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    for part in bytes.chunks(HOLE) {
        if part.iter().any(|byte| *byte != 0) {
            file.write_all(part)?;
        } else {
            file.seek(SeekFrom::Current(part.len() as i64))?;
        }
    }
    file.set_len(bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.timing");
        (dir, path)
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_left() {
        let (dir, path) = place();
        let (mut state, nothing) = StateFile::take(&path, 1 << 20).unwrap();
        assert_eq!(nothing, None);
        let mut bytes = vec![7; 3 * HOLE + 5];
        bytes[HOLE..2 * HOLE].fill(0);
        bytes.extend_from_slice(&[0; 2 * HOLE]);
        for bytes in [&bytes[..], b"shorter"] {
            state.write(bytes).unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
        drop(state);
        let (_state, read) = StateFile::take(&path, 7).unwrap();
        assert_eq!(read.as_deref(), Some(&b"shorter"[..]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn one_at_a_time_has_it_from_the_first_write_on() {
        let (_dir, path) = place();
        let (mut state, _) = StateFile::take(&path, 100).unwrap();
        for _ in 0..2 {
            state.write(b"state").unwrap();
            let error = format!("{:#}", StateFile::take(&path, 100).unwrap_err());
            assert!(error.contains("in use by another"), "{error}");
        }
        drop(state);
        StateFile::take(&path, 100).unwrap();
    }

    #[test]
    fn what_cannot_be_a_state_is_left_alone() {
        let (dir, path) = place();
        fs::write(&path, [1; 101]).unwrap();
        let error = format!("{:#}", StateFile::take(&path, 100).unwrap_err());
        assert!(error.contains("unexpected size 101 bytes"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), [1; 101]);
        let error = format!("{:#}", StateFile::take(dir.path(), 100).unwrap_err());
        assert!(
            error.contains("disk") || error.contains("directory"),
            "{error}"
        );
    }

    #[test]
    fn a_write_that_fails_leaves_the_one_before() {
        let (dir, path) = place();
        let (mut state, _) = StateFile::take(&path, 100).unwrap();
        state.write(b"first").unwrap();
        // A folder has the name of the new file.
        fs::create_dir(dir.path().join("disk.timing.new")).unwrap();
        assert!(state.write(b"second").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert!(StateFile::take(&path, 100).is_err(), "it is still ours");
    }
}
