//! The host's end of the socket, in bytes.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use memory::EventFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vfio_user::{Command, Connection, Header};
use zerocopy::FromBytes as _;

/// How long to wait for what a server does at once.
const BOUND: Duration = Duration::from_secs(20);

/// Numbers of commands ("Commands").
pub mod cmd {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const GET_INFO: u16 = 4;
    pub const GET_REGION_INFO: u16 = 5;
    pub const GET_REGION_IO_FDS: u16 = 6;
    pub const GET_IRQ_INFO: u16 = 7;
    pub const SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DMA_READ: u16 = 11;
    pub const DMA_WRITE: u16 = 12;
    pub const DEVICE_RESET: u16 = 13;
    pub const REGION_WRITE_MULTI: u16 = 15;
    pub const DEVICE_FEATURE: u16 = 16;
    pub const MIG_DATA_READ: u16 = 17;
    pub const MIG_DATA_WRITE: u16 = 18;
}

/// Numbers of errors on Linux.
pub mod errno {
    #![allow(missing_docs, reason = "the names are the system's")]
    pub const ENOENT: u32 = 2;
    pub const EIO: u32 = 5;
    pub const EACCES: u32 = 13;
    pub const EBUSY: u32 = 16;
    pub const EEXIST: u32 = 17;
    pub const EINVAL: u32 = 22;
    pub const ENOSPC: u32 = 28;
    pub const EOPNOTSUPP: u32 = 95;
    pub const ETIMEDOUT: u32 = 110;
}

/// Header flags: a command that wants no reply.
const NO_REPLY: u32 = 1 << 4;

/// First message of QEMU 11.1's client, to the byte: version 0.0 and its capabilities.
const QEMU_CAPABILITIES: &str = concat!(
    r#"{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, "#,
    r#""max_data_xfer_size": 1048576, "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "#,
    r#""write_multiple": true}}"#
);

/// A body, field by field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body(pub Vec<u8>);

impl Body {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a field of two bytes.
    #[must_use]
    pub fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a field of four bytes.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a field of eight bytes.
    #[must_use]
    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// A message of the server.
#[derive(Debug)]
pub struct Reply {
    /// The request's, repeated.
    pub id: u16,
    /// The request's, repeated.
    pub command: u16,
    /// Type, and bit 5 for an error.
    pub flags: u32,
    /// The errno.
    pub error: u32,
    /// Bytes after the header.
    pub body: Vec<u8>,
    /// The descriptors that came with it.
    pub fds: Vec<OwnedFd>,
}

impl Reply {
    /// The body of a good reply.
    ///
    /// # Panics
    /// When it is an error.
    #[must_use]
    pub fn ok(self) -> Vec<u8> {
        assert_eq!((self.flags, self.error), (1, 0), "a good reply: {self:?}");
        self.body
    }

    /// The errno of an error reply.
    ///
    /// # Panics
    /// When it is none, or is more than a header ("If an error occurs, the reply message must only
    /// include the reply header").
    #[must_use]
    pub fn errno(self) -> u32 {
        assert_eq!(self.flags, 1 | 1 << 5, "an error: {self:?}");
        assert!(self.body.is_empty() && self.fds.is_empty(), "{self:?}");
        self.error
    }

    /// The whole message, as it was on the wire.
    ///
    /// # Panics
    /// When it is too long to be one.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let size = u32::try_from(16 + self.body.len()).expect("it was received");
        let header = Body::new().u16(self.id).u16(self.command).u32(size);
        let header = header.u32(self.flags).u32(self.error);
        header.bytes(&self.body).0
    }

    /// Four bytes of the body.
    ///
    /// # Panics
    /// When it is shorter.
    #[must_use]
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.body[at..at + 4].try_into().expect("four bytes"))
    }

    /// Eight bytes of the body.
    ///
    /// # Panics
    /// When it is shorter.
    #[must_use]
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.body[at..at + 8].try_into().expect("eight bytes"))
    }
}

/// Waits until an eventfd is signalled; whether that was within a bound. The signal stays.
#[must_use]
pub fn wait_for(eventfd: &EventFd) -> bool {
    let bound = Timespec::try_from(BOUND).ok();
    let mut fds = [PollFd::new(eventfd, PollFlags::IN)];
    poll(&mut fds, bound.as_ref()) == Ok(1)
}

/// A host that speaks in bytes. Every wait has a bound; what goes wrong panics.
#[derive(Debug)]
pub struct Host {
    connection: Connection,
    /// The same socket, for bytes that are no message.
    raw: UnixStream,
    next_id: u16,
}

impl Host {
    /// A host that has said nothing yet.
    ///
    /// # Panics
    /// When there are no more descriptors.
    #[must_use]
    pub fn silent(stream: UnixStream) -> Self {
        let raw = stream.try_clone().expect("there is a descriptor");
        Self {
            connection: Connection::new(stream).expect("it is a socket"),
            raw,
            next_id: 0x1234,
        }
    }

    /// A host that has agreed on a version, as QEMU does.
    ///
    /// # Panics
    /// When the server does not agree.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        let mut host = Self::silent(stream);
        let _ = host.request(cmd::VERSION, &Self::qemu_version(), &[]).ok();
        host
    }

    /// The body of QEMU's VERSION.
    #[must_use]
    pub fn qemu_version() -> Body {
        let text = QEMU_CAPABILITIES.as_bytes();
        Body::new().u16(0).u16(0).bytes(text).bytes(&[0])
    }

    /// Sends a command; its id.
    pub fn send(&mut self, command: u16, body: &Body, fds: &[BorrowedFd<'_>]) -> u16 {
        self.send_with_flags(command, 0, body, fds)
    }

    /// Sends a command that wants no reply.
    pub fn post(&mut self, command: u16, body: &Body, fds: &[BorrowedFd<'_>]) {
        self.send_with_flags(command, NO_REPLY, body, fds);
    }

    /// Sends a message with these header flags; its id.
    ///
    /// # Panics
    /// When the server does not take it.
    pub fn send_with_flags(
        &mut self,
        command: u16,
        flags: u32,
        body: &Body,
        fds: &[BorrowedFd<'_>],
    ) -> u16 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let mut header = Header::request(id, Command(command));
        header.flags = flags;
        self.send_parts(&header, &body.0, fds);
        id
    }

    /// Sends a whole message as it was recorded.
    ///
    /// # Panics
    /// When it has no header, or the server does not take it.
    pub fn send_message(&mut self, message: &[u8], fds: &[BorrowedFd<'_>]) {
        let (header, body) = Header::read_from_prefix(message).expect("it has a header");
        self.send_parts(&header, body, fds);
    }

    fn send_parts(&mut self, header: &Header, body: &[u8], fds: &[BorrowedFd<'_>]) {
        self.connection
            .send(header, &[body], fds)
            .expect("the server is there");
        let deadline = Instant::now() + BOUND;
        while !self.connection.flush().expect("the server is there") {
            self.wait(PollFlags::OUT, deadline);
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// When the server does not take them at once.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.raw.write_all(bytes).expect("the server is there");
    }

    /// Sends a command and returns its reply, which must be the next message.
    ///
    /// # Panics
    /// When another message comes, or none.
    pub fn request(&mut self, command: u16, body: &Body, fds: &[BorrowedFd<'_>]) -> Reply {
        let id = self.send(command, body, fds);
        let reply = self.receive();
        assert_eq!((reply.id, reply.command), (id, command));
        reply
    }

    /// The next message.
    ///
    /// # Panics
    /// When none comes, or the server closes the socket.
    pub fn receive(&mut self) -> Reply {
        let deadline = Instant::now() + BOUND;
        loop {
            if let Some(reply) = self.try_receive() {
                return reply;
            }
            self.wait(PollFlags::IN, deadline);
        }
    }

    /// The next message, if there is one.
    ///
    /// # Panics
    /// When the server has closed the socket.
    pub fn try_receive(&mut self) -> Option<Reply> {
        let message = self.connection.receive().expect("the server is there")?;
        assert!(!message.fds_truncated);
        Some(Reply {
            id: message.header.id,
            command: message.header.command.0,
            flags: message.header.flags,
            error: message.header.error,
            body: message.body.to_vec(),
            fds: message.fds.into_iter().collect(),
        })
    }

    /// Waits until the server has closed the socket.
    ///
    /// # Panics
    /// When it does not, or sends something.
    pub fn expect_closed(&mut self) {
        let deadline = Instant::now() + BOUND;
        self.wait(PollFlags::IN, deadline);
        let read = self.raw.read(&mut [0; 1]);
        // Bytes that the server had not read yet make it a reset.
        let closed = match &read {
            Ok(read) => *read == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        assert!(closed, "the server has not closed the socket: {read:?}");
    }

    /// Asks something harmless: the server is in step, and has handled all that came before.
    ///
    /// # Panics
    /// When it is not.
    pub fn expect_in_step(&mut self) {
        let reply = self.request(
            cmd::GET_INFO,
            &Body::new().u32(16).u32(0).u32(0).u32(0),
            &[],
        );
        assert_eq!(reply.ok().len(), 16);
    }

    /// Reads from a region.
    ///
    /// # Panics
    /// When the server refuses, or answers another read.
    pub fn region_read(&mut self, region: u32, offset: u64, count: u32) -> Vec<u8> {
        let head = Body::new().u64(offset).u32(region).u32(count);
        let body = self.request(cmd::REGION_READ, &head, &[]).ok();
        assert_eq!(body[..16], head.0[..], "the reply repeats the request");
        assert_eq!(body.len(), 16 + count as usize);
        body[16..].to_vec()
    }

    /// Reads four bytes of a region.
    ///
    /// # Panics
    /// As [`Self::region_read`].
    pub fn read32(&mut self, region: u32, offset: u64) -> u32 {
        let bytes = self.region_read(region, offset, 4);
        u32::from_le_bytes(bytes.try_into().expect("four bytes"))
    }

    /// Writes to a region.
    ///
    /// # Panics
    /// When the server refuses, or answers another write.
    pub fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) {
        let count = u32::try_from(data.len()).expect("it is short");
        let head = Body::new().u64(offset).u32(region).u32(count);
        let body = self
            .request(cmd::REGION_WRITE, &head.clone().bytes(data), &[])
            .ok();
        assert_eq!(body, head.0, "the reply repeats the request");
    }

    /// Shares memory: `fd` from its start.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn dma_map(&mut self, iova: u64, len: u64, fd: BorrowedFd<'_>) {
        let body = Body::new().u32(32).u32(3).u64(0).u64(iova).u64(len);
        assert!(self.request(cmd::DMA_MAP, &body, &[fd]).ok().is_empty());
    }

    fn wait(&self, flags: PollFlags, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "the server does nothing");
        let left = Timespec::try_from(left).expect("it is short");
        let fd = self.connection.as_fd();
        // An interrupted wait is a short one.
        let _ = poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&left));
    }
}
