//! Which files of media have been there: a small file in the state folder for each, until its
//! medium is deleted.
//!
//! A file that was there and is gone is not created again: its file system may not be mounted, and
//! the hosts of an empty drive in its place would take their data for lost.
//!
//! Not included: files in memory, which are gone after each start of the machine.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::identity::name_apart;

/// First line of a mark; the second one is the path.
const FORMAT: &str = "nvmirage presence 1";
/// Folder of marks in the state folder.
const FOLDER: &str = "presence";

/// The mark of a medium's file.
#[derive(Debug)]
pub(crate) struct Mark {
    file: PathBuf,
    mark: PathBuf,
}

impl Mark {
    /// The mark for the file `path` of a medium. Nothing is read or written.
    ///
    /// # Errors
    /// The working folder is unknown.
    pub(crate) fn of(state_dir: &Path, path: &Path) -> io::Result<Self> {
        let file = std::path::absolute(path)?;
        let mark = state_dir.join(FOLDER).join(name_apart("file", &file));
        Ok(Mark { file, mark })
    }

    /// Rejects a file that was there and is gone.
    ///
    /// # Errors
    /// For the operator.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if !self.mark.exists() || !self.is_gone() {
            return Ok(());
        }
        bail!(
            "its file is gone: a server used '{}' before, and to its hosts an empty one would be lost data. Mount its file system, or put it back; for an empty one: rm '{}'",
            self.file.display(),
            self.mark.display()
        )
    }

    /// Whether the file is known not to be there.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.file.try_exists(), Ok(false))
    }

    /// Notes that the file is there.
    ///
    /// # Errors
    /// The mark cannot be written.
    pub(crate) fn set(&self) -> anyhow::Result<()> {
        let shown = self.mark.display();
        let folder = self.mark.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let mut file = match fs::File::create_new(&self.mark) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
            made => made.with_context(|| format!("cannot create {shown}"))?,
        };
        let path = self.file.as_os_str().as_bytes();
        let text = [FORMAT.as_bytes(), b"\n", path, b"\n"].concat();
        let durable = || fs::File::open(folder)?.sync_all();
        let written = file.write_all(&text).and_then(|()| file.sync_all());
        let written = written.and_then(|()| durable());
        written.with_context(|| format!("cannot write {shown}"))
    }

    /// Forgets the file: its medium was deleted, or is in memory.
    pub(crate) fn remove(&self) {
        match fs::remove_file(&self.mark) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {error}", self.mark.display());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_there_is_missed_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.img");
        let mark = Mark::of(&folder.path().join("state"), &path).unwrap();
        mark.check().unwrap();
        fs::write(&path, b"data").unwrap();
        for _ in 0..2 {
            mark.set().unwrap();
        }
        mark.check().unwrap();
        fs::remove_file(&path).unwrap();
        let error = mark.check().unwrap_err().to_string();
        let (_, rest) = error.rsplit_once("rm '").unwrap();
        assert!(rest.starts_with(folder.path().to_str().unwrap()), "{error}");
        mark.remove();
        mark.remove();
        mark.check().unwrap();
    }
}
