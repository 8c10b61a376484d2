//! The event sources of a reactor: it waits for them when it sleeps, and polls them periodically
//! otherwise.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::Timespec;

/// Most events taken at once.
const BATCH: usize = 64;

/// Source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The reactor's own mailbox.
    Mailbox,
    /// A channel's completions.
    Channel,
    /// Connections that are to close.
    Leaving,
    /// A controller's session, by its index in the reactor.
    Controller(usize),
    /// A controller's listening socket, or a connection on it that is not a host yet.
    Door(usize),
    /// The connection of a queue whose controller is on another reactor, by its place here.
    Branch(usize),
}

impl Source {
    fn to_data(self) -> EventData {
        EventData::new_u64(match self {
            Source::Mailbox => 0,
            Source::Channel => 1,
            Source::Leaving => 2,
            Source::Controller(index) => 3 + 3 * index as u64,
            Source::Door(index) => 4 + 3 * index as u64,
            Source::Branch(index) => 5 + 3 * index as u64,
        })
    }

    fn of(data: EventData) -> Self {
        match data.u64() {
            0 => Source::Mailbox,
            1 => Source::Channel,
            2 => Source::Leaving,
            number => {
                let index = usize::try_from((number - 3) / 3).unwrap_or(usize::MAX);
                match number % 3 {
                    0 => Source::Controller(index),
                    1 => Source::Door(index),
                    _ => Source::Branch(index),
                }
            }
        }
    }
}

/// Events that a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) input: bool,
    pub(crate) output: bool,
}

impl Interest {
    /// For nothing.
    pub(crate) const NONE: Interest = Interest {
        input: false,
        output: false,
    };
    /// For input only.
    pub(crate) const INPUT: Interest = Interest {
        input: true,
        output: false,
    };
}

impl AsFd for Poller {
    /// Readable when a watched descriptor is ready, so that one poller can watch another.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// An epoll instance and its events.
pub(crate) struct Poller {
    epoll: std::os::fd::OwnedFd,
    events: Vec<Event>,
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller")
            .field("epoll", &self.epoll)
            .finish()
    }
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Poller {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(BATCH),
        })
    }

    /// Watches `fd` for input.
    pub(crate) fn add(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            source.to_data(),
            EventFlags::IN,
        )?)
    }

    /// Watches `fd` for output as well, or for input only.
    pub(crate) fn want_output(
        &self,
        fd: impl AsFd,
        source: Source,
        output: bool,
    ) -> io::Result<()> {
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, output);
        Ok(epoll::modify(&self.epoll, fd, source.to_data(), flags)?)
    }

    /// Watches `fd`, whether it was watched before or not; for nothing: not at all, as a poller
    /// finds the end of a connection, whatever it is watched for.
    pub(crate) fn set(&self, fd: impl AsFd, source: Source, interest: Interest) -> io::Result<()> {
        if interest == Interest::NONE {
            return match epoll::delete(&self.epoll, fd) {
                Err(rustix::io::Errno::NOENT) => Ok(()),
                other => Ok(other?),
            };
        }
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, interest.input);
        flags.set(EventFlags::OUT, interest.output);
        let data = source.to_data();
        match epoll::modify(&self.epoll, &fd, data, flags) {
            Err(rustix::io::Errno::NOENT) => Ok(epoll::add(&self.epoll, &fd, data, flags)?),
            other => Ok(other?),
        }
    }

    /// Stops watching `fd`.
    pub(crate) fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits at most `timeout` and returns at most [`BATCH`] events.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<&[Event]> {
        self.events.clear();
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match epoll::wait(
            &self.epoll,
            spare_capacity(&mut self.events),
            Some(&timeout),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(&self.events),
            Err(error) => Err(error.into()),
        }
    }
}

/// The source of an event.
pub(crate) fn source_of(event: &Event) -> Source {
    Source::of(event.data)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_that_is_watched_for_nothing_is_not_reported_when_it_ends() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut poller = Poller::new().unwrap();
        let source = Source::Branch(3);
        for interest in [
            Interest::NONE,
            Interest::INPUT,
            Interest::NONE,
            Interest::NONE,
        ] {
            poller.set(&ours, source, interest).unwrap();
        }
        drop(theirs);
        assert!(poller.wait(Duration::from_millis(20)).unwrap().is_empty());
        poller.set(&ours, source, Interest::INPUT).unwrap();
        let events = poller.wait(Duration::from_secs(10)).unwrap();
        assert_eq!(events.iter().map(source_of).collect::<Vec<_>>(), [source]);
    }
}
