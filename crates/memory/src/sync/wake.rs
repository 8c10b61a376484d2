//! Event descriptors: how one thread or process wakes another.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd(2), never blocking. Clones share the descriptor, which is closed with the last of
/// them.
#[derive(Clone, Debug)]
pub struct EventFd(Arc<OwnedFd>);

impl EventFd {
    /// A new one, not signalled.
    ///
    /// # Errors
    /// What the system says, mostly that there are too many descriptors.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(EventFd(Arc::new(fd)))
    }

    /// Takes a descriptor that a peer sent as an eventfd. Whether it is one shows when it is
    /// signalled.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        EventFd(Arc::new(fd))
    }

    /// Signals it. A counter that is full is signalled already: that is no error.
    ///
    /// # Errors
    /// What the system says of a descriptor that is no eventfd.
    #[inline]
    pub fn signal(&self) -> io::Result<()> {
        match rustix::io::write(&*self.0, &1u64.to_ne_bytes()) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the signal back; true when it was signalled.
    pub fn drain(&self) -> bool {
        let mut count = [0; 8];
        rustix::io::read(&*self.0, &mut count).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_seen_once() {
        let event = EventFd::new().unwrap();
        assert!(!event.drain());
        let other = event.clone();
        other.signal().unwrap();
        other.signal().unwrap();
        assert!(event.drain());
        assert!(!event.drain());
    }

    #[test]
    fn a_full_counter_is_signalled_and_does_not_block() {
        let event = EventFd::new().unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        event.signal().unwrap();
        assert!(event.drain());
    }

    #[test]
    fn a_descriptor_that_is_no_eventfd_says_so() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert!(EventFd::from_fd(reader).signal().is_err());
    }
}
