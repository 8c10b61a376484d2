//! A listening socket: when it is watched, and when it is accepted from.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

use port::time::Time;

use super::roster::Roster;
use crate::message::NbdListener;
use crate::poller::{Interest, Poller, Source};

/// Connections that are accepted before those that are there are looked at.
pub(crate) const ACCEPTS_AT_ONCE: usize = 16;
/// Pause after a failed accept, such as with too many open files.
const PAUSE_NS: u64 = 100_000_000;

/// A socket that does not block.
pub(crate) trait Socket: AsFd {
    /// Where a connection comes from.
    type From;

    /// The next connection.
    fn accept(&self) -> io::Result<(OwnedFd, Self::From)>;
}

impl Socket for TcpListener {
    type From = SocketAddr;

    fn accept(&self) -> io::Result<(OwnedFd, SocketAddr)> {
        let (stream, from) = TcpListener::accept(self)?;
        Ok((stream.into(), from))
    }
}

impl Socket for UnixListener {
    type From = ();

    fn accept(&self) -> io::Result<(OwnedFd, ())> {
        Ok((UnixListener::accept(self)?.0.into(), ()))
    }
}

impl AsFd for NbdListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            NbdListener::Unix(listener) => listener.as_fd(),
            NbdListener::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Socket for NbdListener {
    /// `None`: over a UNIX socket, whose clients have no address.
    type From = Option<SocketAddr>;

    fn accept(&self) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
        match self {
            NbdListener::Unix(listener) => Ok((listener.accept()?.0.into(), None)),
            NbdListener::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                Ok((stream.into(), Some(from)))
            }
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Listener<S> {
    pub(super) socket: S,
    is_watched: bool,
    /// It accepts no connection: another process is about to take over.
    is_closed: bool,
    /// It accepts no connection until a place is free.
    is_held: bool,
    /// It accepts none any more.
    is_over: bool,
    /// Time of the next accept, after a failure.
    accepts_at: Option<Time>,
}

impl<S: Socket> Listener<S> {
    pub(super) fn new(socket: S) -> Self {
        Self {
            socket,
            is_watched: false,
            is_closed: false,
            is_held: false,
            is_over: false,
            accepts_at: None,
        }
    }

    /// Watches the socket, except after a failure, where it is closed or held and after its end,
    /// and the poller of the connections that have come by it, if they have one.
    pub(super) fn watch(
        &mut self,
        poller: &Poller,
        source: Source,
        connections: Option<&Poller>,
    ) -> io::Result<()> {
        let watches = self.accepts_at.is_none() && self.accepts();
        if watches && !self.is_watched {
            poller.set(&self.socket, source, Interest::INPUT)?;
            if let Some(connections) = connections {
                poller.set(connections, source, Interest::INPUT)?;
            }
        } else if !watches && self.is_watched {
            poller.remove(&self.socket)?;
        }
        self.is_watched = watches;
        Ok(())
    }

    /// Whether it accepts connections, unless it waits after a failure.
    fn accepts(&self) -> bool {
        !self.is_closed && !self.is_held && !self.is_over
    }

    /// Connections that have come, up to `most`.
    pub(super) fn accept(
        &mut self,
        roster: &mut Roster,
        now: Time,
        most: usize,
    ) -> Vec<(OwnedFd, S::From)> {
        let mut all = Vec::new();
        if !self.accepts() || self.accepts_at.is_some_and(|at| now < at) {
            return all;
        }
        self.accepts_at = None;
        while all.len() < most {
            match self.socket.accept() {
                Ok(accepted) => all.push(accepted),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.accepts_at = Some(now + PAUSE_NS);
                    roster.cannot_accept(&error);
                    break;
                }
            }
        }
        all
    }

    /// Time of the next accept, after a failure.
    pub(super) fn accepts_at(&self) -> Option<Time> {
        self.accepts_at
    }

    /// Accepts no connection until [`Self::open`]: others wait in the socket.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Accepts connections again. False where it was not closed.
    pub(super) fn open(&mut self) -> bool {
        std::mem::take(&mut self.is_closed)
    }

    /// Accepts no connection while `is_held`: others wait in the socket. True where that is new.
    pub(super) fn hold(&mut self, is_held: bool) -> bool {
        std::mem::replace(&mut self.is_held, is_held) != is_held
    }

    /// Accepts none any more.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }
}
