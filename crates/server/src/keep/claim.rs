//! Lock files: the process that holds the lock may write the files beside it.
//!
//! While it is held, the file has the number of its process; a clean end removes that. A number
//! found in a free lock is thus that of a process that was killed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};

/// A lock held by this process.
#[derive(Debug)]
pub(crate) struct Claim {
    lock: File,
    killed: Option<u32>,
}

/// Longest number of a process, with the end of its line.
const MAX_NUMBER_LEN: u64 = 16;

impl Claim {
    /// Takes the lock, in an existing folder. `taken` is the error if another process has it.
    ///
    /// # Errors
    /// The lock is taken; the system's.
    pub(crate) fn take(path: &Path, taken: impl FnOnce() -> String) -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let killed = process_in(&file);
                note(&file, &format!("{}\n", std::process::id()));
                Ok(Claim { lock: file, killed })
            }
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

impl Claim {
    /// The process that held the lock before and ended without releasing it, as after SIGKILL or
    /// the loss of power.
    pub(crate) fn killed(&self) -> Option<u32> {
        self.killed
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !thread::panicking() {
            note(&self.lock, "");
        }
    }
}

/// Replaces the text of a lock file. It is for a log line only, so a full disk is no error.
///
/// The file is shortened only where it is too long: ext4 writes a file that was truncated and
/// written to its disk at once, and hosts would wait for that when a process takes over.
fn note(file: &File, text: &str) {
    let len = text.len() as u64;
    let written = file.write_all_at(text.as_bytes(), 0);
    let _ = written.and_then(|()| {
        if file.metadata()?.len() > len {
            file.set_len(len)?;
        }
        Ok(())
    });
}

/// The number of a process in a lock file.
fn process_in(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(MAX_NUMBER_LEN).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok()
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
    fn a_process_that_was_killed_is_known_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let take = || Claim::take(&path, String::new).unwrap();
        assert_eq!(take().killed(), None);
        // The last one ended cleanly.
        let claim = take();
        assert_eq!(claim.killed(), None);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
        // SIGKILL: the system releases the lock, and the text remains.
        let Claim { lock, .. } = &claim;
        flock(lock, FlockOperation::Unlock).unwrap();
        assert_eq!(take().killed(), Some(std::process::id()));
        // A number that was longer.
        fs::write(&path, "4294967295\n").unwrap();
        let claim = take();
        assert_eq!(claim.killed(), Some(u32::MAX));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        drop(claim);
        fs::write(&path, "no number").unwrap();
        assert_eq!(take().killed(), None);
    }

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
