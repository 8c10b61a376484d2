//! Files that are replaced as a whole, and belong to the process that has them locked.
//!
//! A new version is written under another name, made durable, and renamed: at any moment the file
//! has its old or its new content. The format is the caller's.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};

/// Opens and locks a file. `None` if it does not exist and `create` is false. `key` is the
/// configuration key that names it.
///
/// # Errors
/// The file is locked by another process, or is not a regular file; the system's.
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
        // Between opening and locking, the previous owner may have replaced the file.
        if fs::metadata(path).is_ok_and(|now| now.ino() == here.ino()) {
            return Ok(Some(file));
        }
    }
}

/// The result of a replacement.
pub(crate) struct Replaced {
    /// The new file; its descriptor holds the lock.
    pub(crate) file: File,
    /// Whether the rename is on stable storage; otherwise a crash may restore the old file.
    pub(crate) durable: anyhow::Result<()>,
}

/// Replaces the file at `path` atomically with one that `write` fills and that is locked.
///
/// # Errors
/// The system's; the old file is unchanged.
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
        // The incomplete file would only take space.
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

    /// The new file is in place, so its lock is the one that counts.
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
