//! Failures of a medium's backing, by cause: counted where they occur, and reported by a thread.
//!
//! A channel counts only on the error path. A successful request costs one load of a word that is
//! nearly always 0. The first failure of a cause wakes the reporting thread, so that a working
//! medium is never polled.
//!
//! Invariants:
//! - Counts never decrease.
//! - A cause is current from a failure until a request of the kind that failed succeeds; a lasting
//!   one is current until the medium is reopened;
//! - a write to allocated blocks succeeds on a full file system, so lack of space there is current
//!   until the reporting thread has seen free space as well.
//!
//! Not included: the status that a host gets, and logging.

use std::num::NonZeroI32;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64};
use std::thread::Thread;

use nvme_spec::Status;
use port::{Cause, Outcome};
use rustix::fs::{StatVfs, fstatvfs};
use rustix::process::geteuid;

/// Cause of failed requests to a medium's backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// No space, or no quota, is left (ENOSPC, EDQUOT; a drive's Capacity Exceeded).
    NoSpace,
    /// The file would become larger than its file system, or this process, may write (EFBIG).
    FileSize,
    /// The backing takes no writes (EROFS, EPERM).
    ReadOnly,
    /// The backing does not exist any more, or is shorter than before (ENODEV, ENXIO, ESTALE).
    Gone,
    /// Bytes cannot be read.
    Read,
    /// Bytes cannot be written, or made durable.
    Write,
}

impl Trouble {
    /// All causes.
    pub const ALL: [Trouble; 6] = [
        Trouble::NoSpace,
        Trouble::FileSize,
        Trouble::ReadOnly,
        Trouble::Gone,
        Trouble::Read,
        Trouble::Write,
    ];

    /// Its name in metrics and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Trouble::NoSpace => "no-space",
            Trouble::FileSize => "file-size",
            Trouble::ReadOnly => "read-only",
            Trouble::Gone => "gone",
            Trouble::Read => "read",
            Trouble::Write => "write",
        }
    }

    /// The cause of an outcome; `None` for success, and for mistakes of the host.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Option<Trouble> {
        let cause = match outcome.cause {
            Cause::NoSpace => Trouble::NoSpace,
            Cause::ReadFailed => Trouble::Read,
            Cause::WriteFailed => Trouble::Write,
            Cause::Status(
                Status::NAMESPACE_IS_WRITE_PROTECTED | Status::ATTEMPTED_WRITE_TO_READ_ONLY_RANGE,
            ) => Trouble::ReadOnly,
            _ => return None,
        };
        let errno = outcome.os_error.map_or(0, NonZeroI32::get);
        Some(match (cause, errno) {
            (Trouble::NoSpace, libc::EFBIG) => Trouble::FileSize,
            (_, libc::ENODEV | libc::ENXIO | libc::ESTALE | libc::ENOMEDIUM) => Trouble::Gone,
            (Trouble::Write, libc::EROFS | libc::EPERM | libc::EACCES) => Trouble::ReadOnly,
            _ => cause,
        })
    }

    /// Whether a successful read, or write, shows that the cause has passed.
    fn ends_with(self, reads: bool) -> bool {
        match self {
            Trouble::Gone => true,
            Trouble::Read => reads,
            _ => !reads,
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// State of a cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TroubleLook {
    /// Failed requests since the medium was opened.
    pub count: u64,
    /// Whether no request of the kind that failed has succeeded since.
    pub is_current: bool,
    /// The system's error number of the last failure, if there was one.
    pub os_error: Option<i32>,
}

/// Failures of all channels of a medium; see the module.
#[derive(Debug, Default)]
pub struct Troubles {
    /// A bit for each current cause.
    current: AtomicU8,
    /// Bits of the lasting causes.
    lasting: AtomicU8,
    counts: [AtomicU64; Trouble::ALL.len()],
    errnos: [AtomicI32; Trouble::ALL.len()],
    watcher: OnceLock<Thread>,
    /// A file of the file system whose free space counts.
    room: Option<OwnedFd>,
    /// Whether a write has succeeded since the last lack of space.
    has_written: AtomicBool,
}

// Relaxed: the numbers are independent, and the woken thread reads them after the unpark.
impl Troubles {
    /// Those of a file, of which `room` is a handle: it may be opened without access.
    pub(crate) fn of_file(room: Option<OwnedFd>) -> Self {
        Troubles {
            room,
            ..Self::default()
        }
    }

    /// Ends a lack of space if a write has succeeded since, and the file system has some. It is a
    /// system call, for the reporting thread.
    pub fn look_for_room(&self) {
        let is_current = self.current.load(Relaxed) & Trouble::NoSpace.bit() != 0;
        let may_end = is_current && self.has_written.load(Relaxed);
        if may_end && self.room.as_ref().is_some_and(has_room) {
            self.pass(Trouble::NoSpace);
        }
    }

    /// Counts the cause of a failed request, if it has one.
    #[cold]
    pub fn note(&self, outcome: &Outcome) {
        if let Some(trouble) = Trouble::of(outcome) {
            let errno = outcome.os_error.map_or(0, NonZeroI32::get);
            self.counts[trouble as usize].fetch_add(1, Relaxed);
            self.errnos[trouble as usize].store(errno, Relaxed);
            self.begin(trouble);
        }
    }

    /// Records a lasting failure, until the medium is reopened.
    #[cold]
    pub(crate) fn note_lasting(&self, trouble: Trouble, errno: i32) {
        self.errnos[trouble as usize].store(errno, Relaxed);
        self.lasting.fetch_or(trouble.bit(), Relaxed);
        self.begin(trouble);
    }

    /// Ends a lasting failure.
    pub(crate) fn pass(&self, trouble: Trouble) {
        self.lasting.fetch_and(!trouble.bit(), Relaxed);
        self.current.fetch_and(!trouble.bit(), Relaxed);
    }

    /// Whether a request ever failed with this cause, or it is lasting.
    pub(crate) fn met(&self, trouble: Trouble) -> bool {
        self.counts[trouble as usize].load(Relaxed) > 0
            || self.lasting.load(Relaxed) & trouble.bit() != 0
    }

    fn begin(&self, trouble: Trouble) {
        if trouble == Trouble::NoSpace {
            self.has_written.store(false, Relaxed);
        }
        let before = self.current.fetch_or(trouble.bit(), Relaxed);
        if before & trouble.bit() == 0
            && let Some(watcher) = self.watcher.get()
        {
            watcher.unpark();
        }
    }

    /// Records the success of a read or of a write.
    #[inline]
    pub fn succeeded(&self, reads: bool) {
        if self.current.load(Relaxed) != 0 {
            self.end(reads);
        }
    }

    #[cold]
    fn end(&self, reads: bool) {
        let ended = Trouble::ALL.iter().filter(|t| t.ends_with(reads));
        let ended = ended.fold(0, |bits, trouble| bits | trouble.bit());
        let mut stays = self.lasting.load(Relaxed);
        if self.room.is_some() {
            stays |= Trouble::NoSpace.bit();
            if !reads {
                self.has_written.store(true, Relaxed);
            }
        }
        self.current.fetch_and(!ended | stays, Relaxed);
    }

    /// Wakes a thread whenever a cause becomes current. Only the first call has an effect.
    pub fn watch(&self, watcher: Thread) {
        // Another watcher exists already and reports.
        let _ = self.watcher.set(watcher);
    }

    /// State of every cause, in the order of [`Trouble::ALL`].
    #[must_use]
    pub fn look(&self) -> [TroubleLook; Trouble::ALL.len()] {
        let current = self.current.load(Relaxed);
        Trouble::ALL.map(|trouble| {
            let errno = self.errnos[trouble as usize].load(Relaxed);
            TroubleLook {
                count: self.counts[trouble as usize].load(Relaxed),
                is_current: current & trouble.bit() != 0,
                os_error: (errno != 0).then_some(errno),
            }
        })
    }
}

/// Whether a file system has a free block for this process.
fn has_room(file: &OwnedFd) -> bool {
    let free = |told: StatVfs| {
        if geteuid().is_root() {
            told.f_bfree
        } else {
            told.f_bavail
        }
    };
    // one that does not tell takes the next write, or fails it
    fstatvfs(file).map_or(true, |told| free(told) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(cause: Cause, errno: i32) -> Outcome {
        Outcome {
            cause,
            os_error: NonZeroI32::new(errno),
            ..Outcome::OK
        }
    }

    fn current(troubles: &Troubles) -> Vec<&'static str> {
        let all = Trouble::ALL.into_iter().zip(troubles.look());
        let all = all.filter(|(_, look)| look.is_current);
        all.map(|(trouble, _)| trouble.name()).collect()
    }

    #[test]
    fn every_failure_has_the_cause_that_its_error_number_says() {
        for (cause, errno, expected) in [
            (Cause::NoSpace, libc::ENOSPC, Some(Trouble::NoSpace)),
            (Cause::NoSpace, libc::EDQUOT, Some(Trouble::NoSpace)),
            (Cause::NoSpace, libc::EFBIG, Some(Trouble::FileSize)),
            (Cause::NoSpace, 0, Some(Trouble::NoSpace)),
            (Cause::WriteFailed, libc::EROFS, Some(Trouble::ReadOnly)),
            (Cause::WriteFailed, libc::EPERM, Some(Trouble::ReadOnly)),
            (Cause::WriteFailed, libc::EIO, Some(Trouble::Write)),
            (Cause::ReadFailed, libc::EIO, Some(Trouble::Read)),
            (Cause::ReadFailed, libc::ENXIO, Some(Trouble::Gone)),
            (Cause::CompareMismatch, 0, None),
            (Cause::Unsupported, 0, None),
            (Cause::None, 0, None),
        ] {
            assert_eq!(Trouble::of(&outcome(cause, errno)), expected, "{cause:?}");
        }
    }

    #[test]
    fn a_cause_is_current_until_a_request_of_its_kind_succeeds() {
        let troubles = Troubles::default();
        troubles.note(&outcome(Cause::NoSpace, libc::ENOSPC));
        troubles.note(&outcome(Cause::NoSpace, libc::ENOSPC));
        troubles.note(&outcome(Cause::ReadFailed, libc::EIO));
        assert_eq!(current(&troubles), ["no-space", "read"]);
        troubles.succeeded(true);
        assert_eq!(current(&troubles), ["no-space"]);
        troubles.succeeded(false);
        assert_eq!(current(&troubles), [""; 0]);
        let [no_space, ..] = troubles.look();
        assert_eq!((no_space.count, no_space.os_error), (2, Some(libc::ENOSPC)));
    }

    #[test]
    fn a_file_lacks_space_until_its_file_system_has_some() {
        let file = tempfile::tempfile().unwrap();
        let troubles = Troubles::of_file(Some(file.into()));
        troubles.note(&outcome(Cause::NoSpace, libc::ENOSPC));
        // there is room, but a quota may be exceeded
        troubles.look_for_room();
        troubles.succeeded(true);
        troubles.look_for_room();
        assert_eq!(current(&troubles), ["no-space"]);
        troubles.succeeded(false);
        assert_eq!(current(&troubles), ["no-space"]);
        troubles.look_for_room();
        assert_eq!(current(&troubles), [""; 0]);
    }

    #[test]
    fn what_lasts_is_ended_by_no_success() {
        let troubles = Troubles::default();
        troubles.note_lasting(Trouble::Write, libc::EIO);
        troubles.succeeded(false);
        assert_eq!(current(&troubles), ["write"]);
    }

    #[test]
    fn what_lasted_and_has_passed_is_not_current() {
        let troubles = Troubles::default();
        assert!(!troubles.met(Trouble::ReadOnly));
        troubles.note_lasting(Trouble::ReadOnly, libc::EROFS);
        troubles.note_lasting(Trouble::Write, libc::EIO);
        assert!(troubles.met(Trouble::ReadOnly));
        troubles.pass(Trouble::ReadOnly);
        assert_eq!(current(&troubles), ["write"]);
        assert!(!troubles.met(Trouble::ReadOnly));
    }

    #[test]
    fn who_watches_is_woken_by_the_first_failure() {
        let troubles = Troubles::default();
        troubles.watch(std::thread::current());
        troubles.note(&outcome(Cause::NoSpace, libc::ENOSPC));
        // Without the unpark this ends with the timeout, and the test still only sees the mark.
        std::thread::park_timeout(std::time::Duration::from_secs(60));
        assert_eq!(current(&troubles), ["no-space"]);
    }
}
