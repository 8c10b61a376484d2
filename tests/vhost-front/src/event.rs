//! An eventfd of a ring.

use std::io;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// An eventfd that is waited for with a bound.
#[derive(Debug)]
pub struct Event {
    fd: EventFd,
    epoll: Epoll,
}

impl Event {
    /// A new one, not signalled.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn new() -> io::Result<Self> {
        let fd = EventFd::new(EFD_NONBLOCK)?;
        let epoll = Epoll::new()?;
        let interest = EpollEvent::new(EventSet::IN, 0);
        epoll.ctl(ControlOperation::Add, fd.as_raw_fd(), interest)?;
        Ok(Self { fd, epoll })
    }

    /// The descriptor, for a message.
    pub(crate) fn fd(&self) -> &EventFd {
        &self.fd
    }

    /// Signals it.
    ///
    /// # Errors
    /// Its counter is full.
    pub fn signal(&self) -> io::Result<()> {
        self.fd.write(1)
    }

    /// Takes the signals: how many came since the last call.
    #[must_use]
    pub fn take(&self) -> u64 {
        self.fd.read().unwrap_or(0)
    }

    /// Waits until it is signalled; false when it is not within `timeout`. Takes no signal.
    ///
    /// # Errors
    /// The system fails to wait.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + timeout;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            let millis = i32::try_from(rest.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
            let mut events = [EpollEvent::default()];
            match self.epoll.wait(millis, &mut events) {
                Ok(count) if count > 0 => return Ok(true),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Ok(_) if rest.is_zero() => return Ok(false),
                _ => {}
            }
        }
    }
}
