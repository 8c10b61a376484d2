//! Lasting failures of a file: one channel detects them, and all channels respect them.
//!
//! **A file that shrank.** The lock keeps out only programs that ask for it; `truncate` does not.
//! Reading beyond the new end returns nothing, and writing there would silently grow the file
//! again, with zeros in place of the lost data. So every batch with a write first checks the
//! length, and a file that is shorter than before fails from then on. (A truncation between the
//! check and the write is detected only by the next batch; the kernel has no operation that closes
//! this gap.)
//!
//! **A flush that failed.** The kernel reports a writeback error once, and then drops the affected
//! pages: a second flush would succeed although data is lost. So a failed flush is remembered, and
//! every later flush and every durable write fails the same way.
//!
//! Both last until the medium is reopened.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32};

/// Lasting failures; see the module. The flags publish no other data.
#[derive(Debug, Default)]
pub(super) struct Health {
    shrank: AtomicBool,
    /// Error number of the first failed flush; 0: none.
    flush_errno: AtomicI32,
}

impl Health {
    pub(super) fn shrank(&self) -> bool {
        self.shrank.load(Relaxed)
    }

    /// Records it; returns whether this is the first time.
    pub(super) fn note_shrank(&self) -> bool {
        !self.shrank.swap(true, Relaxed)
    }

    pub(super) fn flush_errno(&self) -> Option<i32> {
        match self.flush_errno.load(Relaxed) {
            0 => None,
            errno => Some(errno),
        }
    }

    /// Records it; returns whether this is the first time.
    pub(super) fn note_flush_failed(&self, errno: i32) -> bool {
        self.flush_errno
            .compare_exchange(0, errno, Relaxed, Relaxed)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Health;

    #[test]
    fn the_first_failure_is_the_one_that_stays() {
        let health = Health::default();
        assert_eq!((health.shrank(), health.flush_errno()), (false, None));
        assert!(health.note_flush_failed(libc::EIO));
        assert!(!health.note_flush_failed(libc::ENOSPC));
        assert_eq!(health.flush_errno(), Some(libc::EIO));
        assert!(health.note_shrank());
        assert!(!health.note_shrank());
        assert!(health.shrank());
    }
}
