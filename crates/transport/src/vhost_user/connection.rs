//! The connection of a front end: whole messages with their descriptors, and replies.
//!
//! A reply is kept until the socket takes it, and no message is read meanwhile: a front end that
//! does not read costs one reply.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;
use port::time::Time;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use vhost_user::{Fault, HEADER_LEN, Header, MAX_BODY, MAX_FDS, Request};

use super::end::End;

/// Room for the descriptors of a message, and for more than it may have: some with each byte.
const CONTROL_LEN: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));
/// How long the rest of a message may take, and a reply until it is read.
const STALL_NS: u64 = 120_000_000_000;

/// A reply that the socket has not taken.
#[derive(Debug)]
struct Reply {
    bytes: Vec<u8>,
    sent: usize,
    /// Goes with the first byte.
    fd: Option<OwnedFd>,
    since: Time,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    fd: OwnedFd,
    head: [u8; HEADER_LEN],
    body: Box<[u8]>,
    /// Bytes of the header and the body that have come.
    got: usize,
    header: Option<Header>,
    fds: ArrayVec<OwnedFd, MAX_FDS>,
    /// More descriptors came than a message may have.
    has_lost_fds: bool,
    /// Since when a part of a message is there.
    begun: Option<Time>,
    reply: Option<Reply>,
}

impl Connection {
    /// Of a socket that does not block.
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            head: [0; HEADER_LEN],
            body: vec![0; MAX_BODY].into_boxed_slice(),
            got: 0,
            header: None,
            fds: ArrayVec::new(),
            has_lost_fds: false,
            begun: None,
            reply: None,
        }
    }

    /// Whether a reply waits for the socket.
    pub(super) fn wants_write(&self) -> bool {
        self.reply.is_some()
    }

    /// When it is late, unless something comes or goes.
    pub(super) fn deadline(&self) -> Option<Time> {
        let replied = self.reply.as_ref().map(|reply| reply.since);
        let first = replied.into_iter().chain(self.begun).min();
        first.map(|since| since + STALL_NS)
    }

    /// Receives until a message is whole: its header. [`Self::take`] has the rest.
    ///
    /// # Errors
    /// The connection is closed or fails, or a message breaks a rule or comes too slowly.
    pub(super) fn receive(&mut self, now: Time) -> Result<Option<Header>, End> {
        loop {
            let target = match self.header {
                None => HEADER_LEN,
                Some(header) => HEADER_LEN + header.len,
            };
            if self.got == target {
                let header = match self.header {
                    Some(header) => header,
                    None => Header::parse(&self.head)?,
                };
                self.header = Some(header);
                if self.got == HEADER_LEN + header.len {
                    if self.has_lost_fds {
                        let (request, found) = (header.request, MAX_FDS + 1);
                        let expected = MAX_FDS;
                        return Err(descriptors(request, found, expected).into());
                    }
                    return Ok(Some(header));
                }
                continue;
            }
            let buffer = match self.header {
                None => &mut self.head[self.got..],
                Some(_) => &mut self.body[self.got - HEADER_LEN..target - HEADER_LEN],
            };
            let len = take(&self.fd, buffer, &mut self.fds, &mut self.has_lost_fds)?;
            match len {
                None => break,
                Some(0) if self.got == 0 => return Err(End::Closed),
                Some(0) => return Err(Fault::Cut.into()),
                Some(len) => {
                    self.got += len;
                    self.begun = Some(now);
                }
            }
        }
        if self.begun.is_some_and(|since| now.since(since) >= STALL_NS) {
            return Err(Fault::Cut.into());
        }
        Ok(None)
    }

    /// Takes the message that is whole: its body, which is copied to `body`, and its descriptors.
    pub(super) fn take<'b>(
        &mut self,
        body: &'b mut [u8; MAX_BODY],
    ) -> (&'b [u8], ArrayVec<OwnedFd, MAX_FDS>) {
        let len = self.header.take().map_or(0, |header| header.len);
        let body = &mut body[..len];
        body.copy_from_slice(&self.body[..len]);
        self.got = 0;
        self.begun = None;
        (body, std::mem::take(&mut self.fds))
    }

    /// Replies to a message.
    ///
    /// # Errors
    /// The connection is closed or fails.
    pub(super) fn reply(
        &mut self,
        header: &Header,
        body: &[&[u8]],
        fd: Option<OwnedFd>,
        now: Time,
    ) -> Result<(), End> {
        debug_assert!(self.reply.is_none(), "no message is read before");
        let mut bytes = Vec::with_capacity(HEADER_LEN + MAX_BODY);
        bytes.extend(header.reply(body.iter().map(|part| part.len()).sum()));
        for part in body {
            bytes.extend(*part);
        }
        self.reply = Some(Reply {
            bytes,
            sent: 0,
            fd,
            since: now,
        });
        self.flush(now)
    }

    /// Sends what the socket takes of a reply.
    ///
    /// # Errors
    /// The connection is closed or fails, or its other end does not read.
    pub(super) fn flush(&mut self, now: Time) -> Result<(), End> {
        while let Some(reply) = &mut self.reply {
            let fds = reply.fd.as_ref().map(AsFd::as_fd);
            match give(&self.fd, &reply.bytes[reply.sent..], fds)? {
                Some(sent) => {
                    reply.sent += sent;
                    reply.fd = None;
                    if reply.sent == reply.bytes.len() {
                        self.reply = None;
                    }
                }
                None if now.since(reply.since) >= STALL_NS => return Err(End::DoesNotRead),
                None => break,
            }
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn descriptors(request: Request, found: usize, expected: usize) -> Fault {
    Fault::Descriptors {
        request,
        found,
        expected,
    }
}

fn failed(errno: Errno) -> End {
    match errno {
        Errno::CONNRESET | Errno::PIPE => End::Closed,
        _ => End::Io(errno.into()),
    }
}

/// Receives at most `buffer` and the descriptors that come with it; `None` when nothing is there.
fn take(
    socket: &OwnedFd,
    buffer: &mut [u8],
    fds: &mut ArrayVec<OwnedFd, MAX_FDS>,
    has_lost: &mut bool,
) -> Result<Option<usize>, End> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = match recvmsg(socket, &mut parts, &mut control, flags) {
            Ok(received) => received,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        *has_lost |= received.flags.contains(ReturnFlags::CTRUNC);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(arrived) = message {
                for fd in arrived {
                    *has_lost |= fds.try_push(fd).is_err();
                }
            }
        }
        return Ok(Some(received.bytes));
    }
}

/// Sends as much as the socket takes, and a descriptor with the first byte; `None` when it is full.
fn give(socket: &OwnedFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<Option<usize>, End> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    if !fds.is_empty() {
        let pushed = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(pushed, "there is room for MAX_FDS");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(sent) => return Ok(Some(sent)),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        }
    }
}
