//! Lock files: the process that holds the lock may write the files beside it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};

/// A lock held by this process.
#[derive(Debug)]
pub(crate) struct Claim {
    _lock: File,
}

impl Claim {
    /// Takes the lock, in an existing folder. `taken` is the error if another process has it.
    ///
    /// # Errors
    /// The lock is taken; the system's.
    pub(crate) fn take(path: &Path, taken: impl FnOnce() -> String) -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Claim { _lock: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => bail!(taken()),
            Err(errno) => Err(io::Error::from(errno))
                .with_context(|| format!("cannot lock {}", path.display())),
        }
    }
}
