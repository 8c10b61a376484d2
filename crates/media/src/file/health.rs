//! What goes wrong once and for all with a file, noticed by one channel and obeyed by all.
//!
//! **A file that shrank.** The lock keeps out those who ask; `truncate` does not. Reading past the
//! new end yields nothing, and writing there would quietly make the file grow again, with zeros for
//! what was lost. So every batch with a write in it looks at the length first, and a file that is
//! shorter than it was fails from then on. (Between that look and the write there is a moment in
//! which a truncation goes unnoticed until the next batch; no operation of the kernel closes it.)
//!
//! **A flush that failed.** The kernel reports an error of writing back once, and then forgets it
//! with the pages it concerned: a second flush would succeed though data is gone. So a failed flush
//! is remembered, and every later flush and every durable write fails the same way.
//!
//! Both last until the medium is opened again.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32};

/// See the module. Only flags: nothing else is published through them.
#[derive(Debug, Default)]
pub(super) struct Health {
    shrank: AtomicBool,
    /// The errno of the first flush that failed; 0: none.
    flush_errno: AtomicI32,
}

impl Health {
    pub(super) fn shrank(&self) -> bool {
        self.shrank.load(Relaxed)
    }

    /// True the first time.
    pub(super) fn note_shrank(&self) -> bool {
        !self.shrank.swap(true, Relaxed)
    }

    pub(super) fn flush_errno(&self) -> Option<i32> {
        match self.flush_errno.load(Relaxed) {
            0 => None,
            errno => Some(errno),
        }
    }

    /// True the first time.
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
