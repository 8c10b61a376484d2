//! Notifications of the driver: one descriptor that tells of those of all rings.
//!
//! The descriptors are the front end's, so closing ours would not end that they are watched. Each
//! is watched for edges: nothing is read from it, and one that stays readable costs nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memory::EventFd;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// See the module.
#[derive(Debug)]
pub(super) struct Kicks(OwnedFd);

impl Kicks {
    /// Of no ring.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches the descriptor of a ring.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn add(&self, fd: &EventFd) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(&self.0, fd, EventData::new_u64(0), flags)?)
    }

    /// Watches it no more.
    pub(super) fn remove(&self, fd: &EventFd) {
        // It was added.
        let _ = epoll::delete(&self.0, fd);
    }

    /// Takes the notifications that have come: how many.
    pub(super) fn take(&self) -> u64 {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; super::RINGS];
        let zero = Timespec::default();
        loop {
            match epoll::wait(&self.0, &mut events, Some(&zero)) {
                Ok((events, _)) => return events.len() as u64,
                Err(Errno::INTR) => continue,
                Err(_) => return 0,
            }
        }
    }
}

impl AsFd for Kicks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
