//! Where a controller's hosts come from: its own listening socket, or a holder that has it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use vfio_user::Listener;
use vfio_user::relayed::{Arrival, Inbox, Origin};

/// See the module.
#[derive(Debug)]
pub struct Entrance {
    way: Way,
    /// A connection that was taken and is no resumed one.
    next: Option<Arrival>,
}

#[derive(Debug)]
enum Way {
    Listening(Listener),
    /// Behind a holder.
    Relayed(Inbox),
}

impl Entrance {
    /// That of a socket of our own.
    #[must_use]
    pub fn listening(listener: Listener) -> Self {
        Self {
            way: Way::Listening(listener),
            next: None,
        }
    }

    /// That of a holder's socket.
    #[must_use]
    pub fn relayed(inbox: Inbox) -> Self {
        Self {
            way: Way::Relayed(inbox),
            next: None,
        }
    }

    /// The next connection, if one waits. Never blocks.
    ///
    /// # Errors
    /// The system's, mostly that the process has too many descriptors; the holder is gone.
    pub fn accept(&mut self) -> io::Result<Option<Arrival>> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        match &self.way {
            Way::Listening(listener) => {
                let stream = listener.accept()?;
                Ok(stream.map(Arrival::ours))
            }
            Way::Relayed(inbox) => inbox.accept(),
        }
    }

    /// The connection of the host that a former process of this server had, if there was one: a
    /// holder gives it before any other.
    ///
    /// # Errors
    /// As [`Self::accept`].
    pub fn take_resumed(&mut self) -> io::Result<Option<Arrival>> {
        let Way::Relayed(inbox) = &self.way else {
            return Ok(None);
        };
        let first = inbox.accept()?;
        let is_resumed = |arrival: &Arrival| arrival.origin == Origin::Resumed;
        if first.as_ref().is_some_and(is_resumed) {
            return Ok(first);
        }
        self.next = first;
        Ok(None)
    }
}

impl AsFd for Entrance {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            Way::Listening(listener) => listener.as_fd(),
            Way::Relayed(inbox) => inbox.as_fd(),
        }
    }
}
