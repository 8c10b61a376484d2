//! Files that are written whole, and belong to who holds a lock on them.
//!
//! A file is written under another name, made durable, and then takes the place of the one before:
//! at any moment there is the old one or the new one. What is in it, others know.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};

/// Opens the file and locks it. `None` where there is none, and none is to be made. `key` is where
/// the configuration names it.
///
/// # Errors
/// Somebody else has it; it is no regular file; the system's.
pub(crate) fn open(path: &Path, create: bool, key: &str) -> anyhow::Result<Option<File>> {
    let shown = path.display();
    loop {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .mode(0o600)
            .open(path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !create => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot open {shown}")),
        };
        let here = file
            .metadata()
            .with_context(|| format!("cannot examine {shown}"))?;
        if !here.is_file() {
            bail!("{shown} is not a regular file: name another file as {key}");
        }
        lock(&file, path, key)?;
        // Between the two the one who had it may have put another in its place.
        if fs::metadata(path).is_ok_and(|now| now.ino() == here.ino()) {
            return Ok(Some(file));
        }
    }
}

/// A file that has taken the place of another.
pub(crate) struct Replaced {
    /// Whoever keeps it has the lock.
    pub(crate) file: File,
    /// Whether its place is on stable storage: after a crash the one before could be there again.
    pub(crate) durable: anyhow::Result<()>,
}

/// Puts a file that `write` fills in the place of the one at `path`, all of it or nothing; it is
/// locked.
///
/// # Errors
/// The system's; the one before is still there.
pub(crate) fn replace(
    path: &Path,
    key: &str,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> anyhow::Result<Replaced> {
    replace_and_sync(path, key, write, |folder| {
        File::open(folder).and_then(|folder| folder.sync_all())
    })
}

fn replace_and_sync(
    path: &Path,
    key: &str,
    write: impl FnOnce(&mut File) -> io::Result<()>,
    sync: impl FnOnce(&Path) -> io::Result<()>,
) -> anyhow::Result<Replaced> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let temporary = PathBuf::from(name);
    let failed = || format!("cannot write {}", temporary.display());
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&temporary)
        .with_context(failed)?;
    lock(&file, &temporary, key)?;
    let filled = file.set_len(0).and_then(|()| write(&mut file));
    if let Err(error) = filled.and_then(|()| file.sync_all()) {
        // What is left of it would only take space.
        let _ = fs::remove_file(&temporary);
        return Err(error).with_context(failed);
    }
    let shown = path.display();
    fs::rename(&temporary, path).with_context(|| format!("cannot replace {shown}"))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let durable = sync(folder).with_context(|| format!("cannot make {shown} durable"));
    Ok(Replaced { file, durable })
}

fn lock(file: &File, path: &Path, key: &str) -> anyhow::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => bail!(
            "{} is in use by another process or another medium: stop it, or name another file as {key}",
            path.display()
        ),
        Err(errno) => {
            Err(io::Error::from(errno)).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The file that is there is the new one, so its lock is the one that counts.
    #[test]
    fn a_folder_that_cannot_be_made_durable_does_not_cost_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let before = open(&path, true, "state").unwrap();
        let replaced = replace_and_sync(
            &path,
            "state",
            |file| file.write_all(b"new"),
            |_| Err(io::ErrorKind::StorageFull.into()),
        );
        let Replaced { file, durable } = replaced.unwrap();
        drop(before);
        let error = format!("{:#}", durable.unwrap_err());
        assert!(error.contains("durable"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let error = format!("{:#}", open(&path, false, "state").unwrap_err());
        assert!(error.contains("in use"), "{error}");
        drop(file);
        assert!(open(&path, false, "state").unwrap().is_some());
    }
}
