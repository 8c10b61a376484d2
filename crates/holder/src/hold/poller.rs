//! The descriptors that a holder waits for, and what each is.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll;

/// Subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Control,
    Signals,
    Child,
    Input,
    Listener(usize),
    Host(usize),
    Worker(usize),
    Parting(usize),
    Standby,
    StandbyControl,
}

impl Source {
    pub(super) fn token(self) -> u64 {
        let (kind, at) = match self {
            Source::Control => (0, 0),
            Source::Signals => (1, 0),
            Source::Child => (2, 0),
            Source::Input => (3, 0),
            Source::Listener(at) => (4, at),
            Source::Host(at) => (5, at),
            Source::Worker(at) => (6, at),
            Source::Parting(at) => (7, at),
            Source::Standby => (8, 0),
            Source::StandbyControl => (9, 0),
        };
        kind << 32 | at as u64
    }

    pub(super) fn of(token: u64) -> Self {
        let at = (token & 0xffff_ffff) as usize;
        match token >> 32 {
            0 => Source::Control,
            1 => Source::Signals,
            2 => Source::Child,
            3 => Source::Input,
            4 => Source::Listener(at),
            5 => Source::Host(at),
            6 => Source::Worker(at),
            7 => Source::Parting(at),
            8 => Source::Standby,
            _ => Source::StandbyControl,
        }
    }
}

/// The descriptors that are waited for.
#[derive(Debug)]
pub(super) struct Poller(pub(super) OwnedFd);

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    pub(super) fn add(
        &self,
        fd: BorrowedFd<'_>,
        source: Source,
        flags: epoll::EventFlags,
    ) -> io::Result<()> {
        let data = epoll::EventData::new_u64(source.token());
        Ok(epoll::add(&self.0, fd, data, flags)?)
    }

    pub(super) fn modify(
        &self,
        fd: BorrowedFd<'_>,
        source: Source,
        flags: epoll::EventFlags,
    ) -> io::Result<()> {
        let data = epoll::EventData::new_u64(source.token());
        Ok(epoll::modify(&self.0, fd, data, flags)?)
    }

    pub(super) fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }
}
