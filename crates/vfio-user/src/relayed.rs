//! Connections that a holder relays: between host and server stands a process that owns the host's
//! socket, so that another server process can go on with the host.
//!
//! A holder gives the server one end of a pair of sockets for each connection ([`Inbox`],
//! [`Arrival`]). On it, messages of the protocol go both ways as without a holder; a few more
//! ([`Command`]s of this module, which a holder passes on to no host and accepts from none) are
//! between the two:
//! - [`KEEP`], from the server, before it answers a host's VERSION: the descriptors with which
//!   another server process can go on.
//! - [`RESUME`], from the holder, first of all on a connection that a former process had: those
//!   descriptors, followed by the host's DMA_MAPs and SET_IRQS, and [`RESUMED`] at their end. None
//!   of them is answered.
//! - [`PART`], from the server: it closes the connection next. An end of file without it is the
//!   death of the process, or not the server's will.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Command;
use crate::message::plain_body;

/// The server's descriptors for its successor: the controller's state, and its doorbells. No body,
/// no reply.
pub const KEEP: Command = Command(0x4e01);
/// The beginning of a resumed connection, with a [`Resume`] and the descriptors of [`KEEP`].
pub const RESUME: Command = Command(0x4e02);
/// The end of what a resumed connection begins with. No body, no reply.
pub const RESUMED: Command = Command(0x4e03);
/// The server closes the connection. No body, no reply.
pub const PART: Command = Command(0x4e04);

/// Whether a command is one of this module's.
#[must_use]
pub fn is_between(command: Command) -> bool {
    matches!(command, KEEP | RESUME | RESUMED | PART)
}

/// Body of [`RESUME`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Resume {
    /// Not 0 where the host was sent the descriptor of the doorbells.
    pub doorbells_sent: u16,
    /// Not 0 where the former process ended by its own fault, and not by a signal that others sent.
    pub crashed: u16,
}
plain_body!(Resume, 4);

/// A connection that was accepted.
#[derive(Debug)]
pub struct Arrival {
    /// The connection, non-blocking.
    pub stream: UnixStream,
    /// The host's process, where it is known.
    pub process: Option<u32>,
    /// Process that accepted it.
    pub origin: Origin,
}

/// Process that accepted a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This process.
    Ours,
    /// A holder, which relays it.
    Relayed,
    /// As [`Self::Relayed`], and a former process of the server had it: [`RESUME`] comes first.
    Resumed,
}

impl Arrival {
    /// A connection that this process accepted, with its peer's process.
    #[must_use]
    pub fn ours(stream: UnixStream) -> Self {
        Self {
            process: process_of(&stream),
            stream,
            origin: Origin::Ours,
        }
    }
}

/// The process that connected; none where it is in another namespace of them.
fn process_of(stream: &UnixStream) -> Option<u32> {
    let credentials = getsockopt(stream, PeerCredentials).ok()?;
    u32::try_from(credentials.pid()).ok().filter(|pid| *pid > 0)
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Ticket {
    process: u32,
    is_resumed: u32,
}

/// The server's end of the way by which a holder gives it the connections of one listening socket.
#[derive(Debug)]
pub struct Inbox(OwnedFd);

/// The holder's end of an [`Inbox`].
#[derive(Debug)]
pub struct Outbox(OwnedFd);

/// The two ends of a new way.
///
/// # Errors
/// There are no more descriptors.
pub fn way() -> io::Result<(Outbox, Inbox)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((Outbox(one), Inbox(other)))
}

impl Outbox {
    /// Gives a connection to the server; false while it has too many to take.
    ///
    /// # Errors
    /// The server has closed its end, or the system's.
    pub fn give(
        &self,
        stream: BorrowedFd<'_>,
        process: Option<u32>,
        is_resumed: bool,
    ) -> io::Result<bool> {
        let ticket = Ticket {
            process: process.unwrap_or_default(),
            is_resumed: is_resumed.into(),
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [stream];
        let pushed = control.push(SendAncillaryMessage::ScmRights(&fds));
        assert!(pushed, "the control buffer is sized for one descriptor");
        let parts = [IoSlice::new(ticket.as_bytes())];
        loop {
            return match sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => Ok(true),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(false),
                Err(errno) => Err(errno.into()),
            };
        }
    }
}

impl Inbox {
    /// An inbox that came from a holder.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self(fd))
    }

    /// The next connection, if there is one. Never blocks.
    ///
    /// # Errors
    /// The holder is gone (`UnexpectedEof`), it sends what is no connection (`InvalidData`), or the
    /// system's.
    pub fn accept(&self) -> io::Result<Option<Arrival>> {
        let mut ticket = Ticket {
            process: 0,
            is_resumed: 0,
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(ticket.as_mut_bytes())];
            match recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        };
        let fds = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
            _ => Vec::new(),
        });
        let fds: Vec<OwnedFd> = fds.collect();
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some(fd) = fds
            .into_iter()
            .next()
            .filter(|_| received.bytes == size_of::<Ticket>())
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let stream = UnixStream::from(fd);
        stream.set_nonblocking(true)?;
        Ok(Some(Arrival {
            stream,
            process: Some(ticket.process).filter(|process| *process != 0),
            origin: match ticket.is_resumed {
                0 => Origin::Relayed,
                _ => Origin::Resumed,
            },
        }))
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Outbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Inbox> for OwnedFd {
    fn from(inbox: Inbox) -> Self {
        inbox.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_connection_arrives_with_its_process() {
        let (outbox, inbox) = way().unwrap();
        assert!(inbox.accept().unwrap().is_none());
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(outbox.give(theirs.as_fd(), Some(7), true).unwrap());
        assert!(outbox.give(theirs.as_fd(), None, false).unwrap());
        drop(theirs);
        let mut arrived = inbox.accept().unwrap().unwrap();
        assert_eq!(
            (arrived.process, arrived.origin),
            (Some(7), Origin::Resumed)
        );
        (&ours).write_all(b"x").unwrap();
        let mut byte = [0];
        arrived.stream.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        let arrived = inbox.accept().unwrap().unwrap();
        assert_eq!((arrived.process, arrived.origin), (None, Origin::Relayed));
        assert!(inbox.accept().unwrap().is_none());
    }

    #[test]
    fn a_full_inbox_and_a_closed_one_are_told_apart() {
        let (outbox, inbox) = way().unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut given = 0;
        while outbox.give(ours.as_fd(), None, false).unwrap() {
            given += 1;
        }
        assert!(given > 1);
        for _ in 0..given {
            assert!(inbox.accept().unwrap().is_some());
        }
        assert!(inbox.accept().unwrap().is_none());
        assert!(outbox.give(ours.as_fd(), None, false).unwrap());
        drop(inbox);
        outbox.give(ours.as_fd(), None, false).unwrap_err();
    }

    #[test]
    fn a_holder_that_is_gone_or_errs_is_an_error() {
        let (outbox, inbox) = way().unwrap();
        rustix::io::write(&outbox, &[0; 8]).unwrap();
        let error = inbox.accept().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        rustix::io::write(&outbox, &[0; 3]).unwrap();
        assert!(inbox.accept().is_err());
        drop(outbox);
        let error = inbox.accept().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
