//! Lock files: the process that holds the lock may write the files beside it.

use std::fs::{self, File, OpenOptions};
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
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let taken = taken();
                match holder(&file) {
                    Some(process) => bail!("{taken} (the other one is process {process})"),
                    None => bail!(taken),
                }
            }
            Err(errno) => Err(io::Error::from(errno))
                .with_context(|| format!("cannot lock {}", path.display())),
        }
    }
}

/// The process that has locked a file, where the system tells.
fn holder(file: &File) -> Option<u32> {
    let found = rustix::fs::fstat(file).ok()?;
    let (major, minor) = (
        rustix::fs::major(found.st_dev),
        rustix::fs::minor(found.st_dev),
    );
    let place = format!("{major:02x}:{minor:02x}:{}", found.st_ino);
    holder_of(&place, &fs::read_to_string("/proc/locks").ok()?)
}

/// The process of the lock on a place (device and inode) in the text of `/proc/locks`: number,
/// type, mode, access, process, place, range (proc_locks(5)).
fn holder_of(place: &str, locks: &str) -> Option<u32> {
    let of = |line: &str| {
        let mut words = line.split_whitespace().skip(4);
        let (process, at) = (words.next()?, words.next()?);
        process.parse().ok().filter(|_| at == place)
    };
    locks.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_has_a_file_is_named() {
        let locks = "1: FLOCK  ADVISORY  WRITE 708 00:1a:195 0 EOF\n\
            2: POSIX  ADVISORY  WRITE 12 fe:00:195 0 EOF\n\
            2: -> POSIX  ADVISORY  WRITE 13 fe:00:195 0 EOF\n";
        assert_eq!(holder_of("fe:00:195", locks), Some(12));
        assert_eq!(holder_of("00:1a:195", locks), Some(708));
        assert_eq!(holder_of("00:1a:19", locks), None);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let _claim = Claim::take(&path, String::new).unwrap();
        let error = Claim::take(&path, || "taken".to_owned()).unwrap_err();
        // some file systems have another device in that list
        let named = format!("taken (the other one is process {})", std::process::id());
        assert!([named.as_str(), "taken"].contains(&error.to_string().as_str()));
    }
}
