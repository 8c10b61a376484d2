//! The end of a mount that has lost its drive or a thread.
//!
//! Every thread of a mount runs under [`caught`]: a panic is a loss of this mount, and does not
//! affect the rest of the process. The first loss is logged. The thread that watches the namespaces
//! then unmounts the folder, so that no program waits for an answer.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, thread};

/// Whether a mount is lost.
#[derive(Debug)]
pub(super) struct Loss {
    dir: PathBuf,
    is_declared: AtomicBool,
    is_ended: AtomicBool,
}

/// A thread of the mount panicked.
#[derive(Debug, thiserror::Error)]
#[error("thread \"{thread}\" panicked: {message}")]
pub(super) struct Panicked {
    thread: String,
    message: String,
}

impl Loss {
    /// The state of a working mount at `dir`.
    pub(super) fn new(dir: PathBuf) -> Self {
        Loss {
            dir,
            is_declared: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
        }
    }

    /// Declares the mount lost. The first call is logged.
    pub(super) fn declare(&self, why: &dyn fmt::Display) {
        if !self.is_declared.swap(true, Ordering::Relaxed) {
            let dir = self.dir.display();
            tracing::error!(
                "{dir}: the mounted drive is lost, every request fails with EIO: {why}; delete its controller, or mount again"
            );
        }
    }

    /// Folder of the mount.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn is_declared(&self) -> bool {
        self.is_declared.load(Ordering::Relaxed)
    }

    /// The lost mount is unmounted.
    pub(super) fn set_ended(&self) {
        self.is_ended.store(true, Ordering::Release);
    }

    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }
}

/// Runs a part of a thread of a mount.
///
/// # Errors
/// It panicked. Locks that it held are poisoned, which is harmless: after a loss, no request is
/// submitted.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Panicked {
        thread: thread::current().name().unwrap_or("unnamed").to_owned(),
        message: message(&*payload),
    })
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
