//! Messages as bytes: those that the crate `vhost` lacks, and wrong ones.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Requests of a front end by number.
pub mod code {
    /// Features of the device.
    pub const GET_FEATURES: u32 = 1;
    /// Base of a ring.
    pub const SET_VRING_BASE: u32 = 10;
    /// Resets the device.
    pub const RESET_DEVICE: u32 = 34;
    /// Sets the device status.
    pub const SET_STATUS: u32 = 39;
    /// Device status.
    pub const GET_STATUS: u32 = 40;
    /// Of a back end: the configuration space has changed.
    pub const BACKEND_CONFIG_CHANGE: u32 = 2;
}

/// Version in the flags of each message.
pub const VERSION: u32 = 1;
/// Flag of a reply.
pub const FLAG_REPLY: u32 = 1 << 2;
/// Flag of a message that needs a reply.
pub const FLAG_NEED_REPLY: u32 = 1 << 3;

const HEADER_LEN: usize = 12;
/// Bytes of a body, at most.
const MAX_BODY: usize = 4096;
/// Descriptors beside a message, at most.
const MAX_FDS: usize = 16;
const CONTROL_LEN: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));

/// A message that arrived.
#[derive(Debug)]
pub struct Message {
    /// Its number.
    pub request: u32,
    /// Version and flags.
    pub flags: u32,
    /// Bytes after the header.
    pub body: Vec<u8>,
    /// Descriptors beside it.
    pub fds: Vec<OwnedFd>,
}

impl Message {
    /// The 64 bits that are the whole body.
    ///
    /// # Errors
    /// The body has another length.
    pub fn u64(&self) -> Result<u64> {
        let bytes = self.body.as_slice().try_into();
        let bytes = bytes.with_context(|| format!("message {}: no 64 bits", self.request))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// One end of a connection, for messages as bytes.
#[derive(Debug)]
pub struct Raw {
    stream: UnixStream,
}

impl Raw {
    /// Messages over `stream`.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    /// The socket.
    #[must_use]
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends a message whose flags are `flags` beside the version.
    ///
    /// # Errors
    /// As [`Self::send_bytes`].
    pub fn send(
        &self,
        request: u32,
        flags: u32,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<()> {
        let len = u32::try_from(body.len()).context("a body of more than 32 bits")?;
        let mut bytes = Vec::with_capacity(HEADER_LEN + body.len());
        for word in [request, VERSION | flags, len] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(body);
        self.send_bytes(&bytes, fds)
    }

    /// Sends any bytes, and descriptors beside the first of them.
    ///
    /// # Errors
    /// The connection is closed, the peer does not read for [`crate::BOUND`], or there are more
    /// than 16 descriptors.
    pub fn send_bytes(&self, mut bytes: &[u8], mut fds: &[BorrowedFd<'_>]) -> Result<()> {
        ensure!(fds.len() <= MAX_FDS, "more than {MAX_FDS} descriptors");
        let deadline = Instant::now() + crate::BOUND;
        while !bytes.is_empty() {
            ensure!(
                self.is_ready(PollFlags::OUT, deadline)?,
                "the peer does not read"
            );
            let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                let is_pushed = control.push(SendAncillaryMessage::ScmRights(fds));
                ensure!(is_pushed, "the control buffer is too small");
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(sent) => {
                    bytes = &bytes[sent..];
                    fds = &[];
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error).context("cannot send a message"),
            }
        }
        Ok(())
    }

    /// Receives a message; `None` when none begins within `timeout`.
    ///
    /// # Errors
    /// The connection is closed, or a message begins and does not end within [`crate::BOUND`].
    pub fn receive(&self, timeout: Duration) -> Result<Option<Message>> {
        if !self.is_ready(PollFlags::IN, Instant::now() + timeout)? {
            return Ok(None);
        }
        let deadline = Instant::now() + crate::BOUND;
        let mut fds = Vec::new();
        let mut header = [0; HEADER_LEN];
        self.fill(&mut header, &mut fds, deadline)?;
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&header[at..at + 4]);
            u32::from_ne_bytes(word)
        };
        let len = word(8) as usize;
        ensure!(len <= MAX_BODY, "a message of {len} bytes");
        let mut body = vec![0; len];
        self.fill(&mut body, &mut fds, deadline)?;
        Ok(Some(Message {
            request: word(0),
            flags: word(4),
            body,
            fds,
        }))
    }

    /// Sends a request and receives its reply, which comes within `bound`.
    ///
    /// # Errors
    /// As [`Self::send`] and [`Self::receive`]; no reply comes, or one of another request.
    pub fn ask(&self, request: u32, flags: u32, body: &[u8], bound: Duration) -> Result<Message> {
        self.send(request, flags, body, &[])?;
        let reply = self.receive(bound)?;
        let reply = reply.with_context(|| format!("no reply to request {request}"))?;
        ensure!(
            reply.request == request && reply.flags == VERSION | FLAG_REPLY,
            "request {request}: replied by {}, flags {:#x}",
            reply.request,
            reply.flags
        );
        Ok(reply)
    }

    /// Whether the peer closes the connection within `timeout`. Bytes that come before are dropped.
    ///
    /// # Errors
    /// The system fails to read.
    pub fn is_closed(&self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        let mut bytes = [0; 256];
        while self.is_ready(PollFlags::IN, deadline)? {
            match rustix::net::recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(true),
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error).context("cannot read from the connection"),
            }
        }
        Ok(false)
    }

    fn fill(&self, mut bytes: &mut [u8], fds: &mut Vec<OwnedFd>, deadline: Instant) -> Result<()> {
        while !bytes.is_empty() {
            ensure!(
                self.is_ready(PollFlags::IN, deadline)?,
                "a message does not end"
            );
            let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let mut parts = [IoSliceMut::new(bytes)];
            let received = match recvmsg(&self.stream, &mut parts, &mut control, flags) {
                Ok(received) => received.bytes,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(error) => return Err(error).context("cannot receive a message"),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(arrived) = message {
                    fds.extend(arrived);
                }
            }
            if received == 0 {
                bail!("the peer closed the connection");
            }
            bytes = &mut bytes[received..];
        }
        Ok(())
    }

    fn is_ready(&self, events: PollFlags, deadline: Instant) -> io::Result<bool> {
        is_ready(&self.stream, events, deadline)
    }
}

/// Whether one of `events` comes before `deadline`.
pub(crate) fn is_ready(fd: impl AsFd, events: PollFlags, deadline: Instant) -> io::Result<bool> {
    loop {
        let rest = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(rest).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&fd, events)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
