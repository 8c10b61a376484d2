//! Whole messages over a connected UNIX stream socket, for either side.
//!
//! Receiving reads a header, then exactly the body it announces, so a read never crosses into the
//! next message and descriptors are attributed by the bytes they arrive with: the kernel ends a
//! read at bytes that carry descriptors, and hands descriptors over with the first of these bytes.
//!
//! Invariants: no call blocks; the receive buffer grows with bytes that arrived, not with what a
//! header promises; a message is queued whole or not at all.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::backlog::Backlog;
use crate::{HEADER_LEN, Header, MAX_FDS, MAX_MESSAGE_LEN};

/// Room for a body that a connection starts with, in bytes.
const BODY_START_LEN: usize = 4096;

/// Parts that one system call sends; more take several calls.
const SEND_PARTS: usize = 16;

const CONTROL_LEN: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));

/// Why a connection cannot go on, or a message cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The peer has closed the socket, perhaps within a message.
    #[error("the peer closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Io(#[from] io::Error),
    /// A header announces a size below its own length or above [`MAX_MESSAGE_LEN`]: where the next
    /// message starts is unknown. Close the connection.
    #[error("a header announces {size} bytes: a message has 16 to {MAX_MESSAGE_LEN}")]
    FramingLost {
        /// The size announced, in bytes.
        size: u32,
    },
    /// A message to send has more than [`MAX_FDS`] descriptors. Nothing was sent.
    #[error("{count} descriptors do not fit in one message: send at most {MAX_FDS}")]
    TooManyDescriptors {
        /// Descriptors given.
        count: usize,
    },
    /// A message to send is longer than [`MAX_MESSAGE_LEN`]. Nothing was sent.
    #[error("a message of {size} bytes is too long: send at most {MAX_MESSAGE_LEN}")]
    TooLong {
        /// Length of the message, in bytes.
        size: usize,
    },
    /// The peer does not read, and the backlog cannot hold the message. No part of it was sent.
    #[error("the peer does not read its messages")]
    Backlog,
}

/// A message as it arrived.
#[derive(Debug)]
pub struct Message<'a> {
    /// The header.
    pub header: Header,
    /// The bytes after it.
    pub body: &'a [u8],
    /// The descriptors that came with it, close-on-exec.
    pub fds: ArrayVec<OwnedFd, MAX_FDS>,
    /// Whether more descriptors came than could be taken; those are closed already.
    pub fds_truncated: bool,
}

/// One connected UNIX stream socket, non-blocking; either side.
pub struct Connection {
    socket: UnixStream,
    /// The header being received, `header_len` bytes of it so far.
    header: [u8; HEADER_LEN],
    header_len: usize,
    /// The body being received, `body_len` bytes of it so far. Its length is the room.
    body: Vec<u8>,
    body_len: usize,
    fds: ArrayVec<OwnedFd, MAX_FDS>,
    fds_truncated: bool,
    backlog: Backlog,
    is_relayed: bool,
}

impl Connection {
    /// Takes a connected socket over and makes it non-blocking.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            header: [0; HEADER_LEN],
            header_len: 0,
            body: vec![0; BODY_START_LEN],
            body_len: 0,
            fds: ArrayVec::new(),
            fds_truncated: false,
            backlog: Backlog::default(),
            is_relayed: false,
        })
    }

    /// Takes a connection over that a holder relays ([`crate::relayed`]).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn relayed(socket: UnixStream) -> io::Result<Self> {
        let connection = Self::new(socket)?;
        Ok(Self {
            is_relayed: true,
            ..connection
        })
    }

    /// Whether a holder relays it.
    #[must_use]
    pub fn is_relayed(&self) -> bool {
        self.is_relayed
    }

    /// The next message, if the whole of it has arrived; never blocks. `None`: wait until the
    /// socket is readable.
    ///
    /// # Errors
    /// [`ConnectionError::Closed`], [`ConnectionError::Io`] and [`ConnectionError::FramingLost`].
    /// After any of them the connection is of no use; the last is returned again by every call.
    pub fn receive(&mut self) -> Result<Option<Message<'_>>, ConnectionError> {
        while self.header_len < HEADER_LEN {
            let Some(taken) = take(
                &self.socket,
                &mut self.header[self.header_len..],
                &mut self.fds,
                &mut self.fds_truncated,
            )?
            else {
                return Ok(None);
            };
            self.header_len += taken;
        }
        let header =
            Header::read_from_bytes(&self.header).expect("the buffer has a header's length");
        let needed = body_len(header.size)?;
        while self.body_len < needed {
            self.make_room(needed);
            let room = self.body.len().min(needed);
            let Some(taken) = take(
                &self.socket,
                &mut self.body[self.body_len..room],
                &mut self.fds,
                &mut self.fds_truncated,
            )?
            else {
                return Ok(None);
            };
            self.body_len += taken;
        }
        self.header_len = 0;
        self.body_len = 0;
        Ok(Some(Message {
            header,
            body: &self.body[..needed],
            fds: std::mem::take(&mut self.fds),
            fds_truncated: std::mem::take(&mut self.fds_truncated),
        }))
    }

    /// Makes room for at least one more byte of a body of `needed` bytes. The room doubles, so it
    /// is never more than twice what has arrived.
    fn make_room(&mut self, needed: usize) {
        if self.body_len < self.body.len() {
            return;
        }
        let room = (2 * self.body.len()).min(needed);
        self.body.reserve_exact(room - self.body.len());
        self.body.resize(room, 0);
    }

    /// Sends a message, or queues the part that the socket does not accept now. The header's `size`
    /// is filled in. Descriptors are duplicated only when they must be queued.
    ///
    /// # Errors
    /// [`ConnectionError::TooManyDescriptors`], [`ConnectionError::TooLong`] and
    /// [`ConnectionError::Backlog`] leave the connection as it was;
    /// [`ConnectionError::Closed`] and [`ConnectionError::Io`] end it.
    pub fn send(
        &mut self,
        header: &Header,
        body: &[&[u8]],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ConnectionError> {
        let size = body
            .iter()
            .fold(HEADER_LEN, |sum, part| sum.saturating_add(part.len()));
        if size > MAX_MESSAGE_LEN {
            return Err(ConnectionError::TooLong { size });
        }
        if fds.len() > MAX_FDS {
            return Err(ConnectionError::TooManyDescriptors { count: fds.len() });
        }
        if !self.backlog.is_empty() {
            self.flush()?;
        }
        if !self.backlog.has_room(size, fds.len()) {
            return Err(ConnectionError::Backlog);
        }
        let mut header = *header;
        header.size = u32::try_from(size).expect("a message is at most MAX_MESSAGE_LEN long");

        let sent = if self.backlog.is_empty() {
            self.send_now(header.as_bytes(), body, fds, size)?
        } else {
            0
        };
        if sent == size {
            return Ok(());
        }
        if sent == 0 {
            self.backlog.attach(fds)?;
        }
        let mut skip = sent;
        for part in std::iter::once(header.as_bytes()).chain(body.iter().copied()) {
            let skipped = skip.min(part.len());
            skip -= skipped;
            self.backlog.push(&part[skipped..]);
        }
        Ok(())
    }

    /// Sends as much of a message as the socket takes; the number of bytes.
    fn send_now(
        &self,
        header: &[u8],
        body: &[&[u8]],
        fds: &[BorrowedFd<'_>],
        size: usize,
    ) -> Result<usize, ConnectionError> {
        let mut sent = 0;
        while sent < size {
            let mut parts = ArrayVec::<IoSlice<'_>, SEND_PARTS>::new();
            let mut skip = sent;
            for part in std::iter::once(header).chain(body.iter().copied()) {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if skipped < part.len() && !parts.is_full() {
                    parts.push(IoSlice::new(&part[skipped..]));
                }
            }
            let fds = if sent == 0 { fds } else { &[] };
            match give(&self.socket, &parts, fds)? {
                Some(given) => sent += given,
                None => break,
            }
        }
        Ok(sent)
    }

    /// Sends more of the backlog; `true` when nothing is left.
    ///
    /// # Errors
    /// [`ConnectionError::Closed`] and [`ConnectionError::Io`].
    pub fn flush(&mut self) -> Result<bool, ConnectionError> {
        while !self.backlog.is_empty() {
            let given = {
                let (first, second, fds) = self.backlog.front();
                let parts = [IoSlice::new(first), IoSlice::new(second)];
                give(&self.socket, &parts, &fds)?
            };
            match given {
                Some(given) => self.backlog.consume(given),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Whether there is a backlog: call [`Self::flush`] when the socket is writable.
    pub fn wants_write(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Replies to `request`, unless it wants no reply.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn reply(
        &mut self,
        request: &Header,
        body: &[&[u8]],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ConnectionError> {
        if request.no_reply() {
            return Ok(());
        }
        self.send(&request.reply(), body, fds)
    }

    /// Its socket, non-blocking; incompletely sent or received messages are dropped.
    #[must_use]
    pub fn into_socket(self) -> UnixStream {
        self.socket
    }

    /// Refuses `request` with a UNIX errno, unless it wants no reply.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn reply_error(&mut self, request: &Header, errno: u32) -> Result<(), ConnectionError> {
        if request.no_reply() {
            return Ok(());
        }
        self.send(&request.error_reply(errno), &[], &[])
    }
}

impl fmt::Debug for Connection {
    /// Without the bytes: they are the peer's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Length of the body after a header that announces `size` bytes in all.
fn body_len(size: u32) -> Result<usize, ConnectionError> {
    usize::try_from(size)
        .ok()
        .filter(|&size| size <= MAX_MESSAGE_LEN)
        .and_then(|size| size.checked_sub(HEADER_LEN))
        .ok_or(ConnectionError::FramingLost { size })
}

/// Reads at most `buffer` and the descriptors that come with it; `None` when nothing is there.
fn take(
    socket: &UnixStream,
    buffer: &mut [u8],
    fds: &mut ArrayVec<OwnedFd, MAX_FDS>,
    fds_truncated: &mut bool,
) -> Result<Option<usize>, ConnectionError> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(buffer)];
        let received = match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::CONNRESET) => return Err(ConnectionError::Closed),
            Err(errno) => return Err(ConnectionError::Io(errno.into())),
        };
        *fds_truncated |= received.flags.contains(ReturnFlags::CTRUNC);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(arrived) = message {
                // The alignment of the control buffer may leave room for one or two more than
                // asked for, and a peer may send some with each byte.
                for fd in arrived {
                    *fds_truncated |= fds.try_push(fd).is_err();
                }
            }
        }
        if received.bytes == 0 {
            return Err(ConnectionError::Closed);
        }
        return Ok(Some(received.bytes));
    }
}

/// Writes as much of `parts` as the socket accepts, and `fds` with the first byte; `None` when it
/// is full.
fn give(
    socket: &UnixStream,
    parts: &[IoSlice<'_>],
    fds: &[BorrowedFd<'_>],
) -> Result<Option<usize>, ConnectionError> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let pushed = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(pushed, "the control buffer is sized for MAX_FDS");
    }
    loop {
        match sendmsg(socket, parts, &mut control, SendFlags::NOSIGNAL) {
            Ok(given) => return Ok(Some(given)),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(ConnectionError::Closed),
            Err(errno) => return Err(ConnectionError::Io(errno.into())),
        }
    }
}
