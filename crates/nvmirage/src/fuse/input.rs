//! Whether the kernel has requests that nobody has taken yet.

use std::{os::fd::OwnedFd, sync::OnceLock};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The mount's descriptor, once there is one.
#[derive(Debug, Default)]
pub(super) struct Input(OnceLock<OwnedFd>);

impl Input {
    /// Looks at this descriptor from now on.
    pub(super) fn set(&self, fd: OwnedFd) {
        // a mount has one, and it is set once
        let _ = self.0.set(fd);
    }

    /// Whether a request waits.
    pub(super) fn is_waiting(&self) -> bool {
        let Some(fd) = self.0.get() else { return false };
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut fds, Some(&now)), Ok(1)) && fds[0].revents().contains(PollFlags::IN)
    }
}
