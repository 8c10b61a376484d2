//! Eventfds that a host or a front end sends.
//!
//! An eventfd is the peer's. It is set to non-blocking when it arrives, so that a full counter does
//! not block. The peer can undo that and fill the counter: it then blocks the reactor that it
//! shares.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use memory::EventFd;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Takes a peer's descriptor, if it is an eventfd: writing to anything else might block, or do
/// worse.
///
/// # Errors
/// `INVAL`: it is something else. And the system's.
pub(crate) fn eventfd(fd: OwnedFd) -> Result<EventFd, Errno> {
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let target = rustix::fs::readlink(name, Vec::new())?;
    if target.as_bytes() != b"anon_inode:[eventfd]" {
        tracing::debug!("a peer's descriptor is {target:?}, not an eventfd");
        return Err(Errno::INVAL);
    }
    let flags = rustix::fs::fcntl_getfl(fd.as_fd())?;
    rustix::fs::fcntl_setfl(fd.as_fd(), flags | OFlags::NONBLOCK)?;
    Ok(EventFd::from_fd(fd))
}
