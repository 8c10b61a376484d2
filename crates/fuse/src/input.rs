//! Whether the kernel has requests that no thread has read yet.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The mount's descriptor, once it exists.
#[derive(Debug, Default)]
pub(super) struct Input(OnceLock<OwnedFd>);

impl Input {
    /// Sets the descriptor.
    pub(super) fn set(&self, fd: OwnedFd) {
        // it is set once per mount
        let _ = self.0.set(fd);
    }

    /// Whether a request waits to be read.
    pub(super) fn is_waiting(&self) -> bool {
        self.state().contains(PollFlags::IN)
    }

    /// Whether the mount still exists: neither unmounted nor aborted.
    pub(super) fn is_connected(&self) -> bool {
        self.0.get().is_some() && !self.state().contains(PollFlags::ERR)
    }

    fn state(&self) -> PollFlags {
        let Some(fd) = self.0.get() else {
            return PollFlags::empty();
        };
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut fds, Some(&now)) {
            Ok(1) => fds[0].revents(),
            _ => PollFlags::empty(),
        }
    }
}
