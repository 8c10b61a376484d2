//! A blocking client: one request at a time, each with a bound on the wait.
//!
//! It keeps no memory map and maps nothing. While it waits it rejects requests from the server
//! (`DMA_READ`, `DMA_WRITE`), so that neither side stalls: memory without a descriptor is not
//! offered. A thread that must never block uses [`Connection`] instead.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::message::{
    Access, Capabilities, DeviceFlags, DeviceInfo, DmaMap, DmaMapFlags, DmaUnmap, DmaUnmapFlags,
    IrqFlags, IrqInfo, Refusal, RegionFlags, RegionInfo, SetIrqs, SetIrqsFlags, SparseArea,
    Version,
};
use crate::{Command, Connection, ConnectionError, Header, MAX_FDS, Malformed, Message};

/// Longest region info that a client asks for, in bytes. A region has few areas.
const REGION_INFO_MAX_LEN: u32 = 64 * 1024;

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server did not answer in time. A late reply is dropped when it comes.
    #[error("the server did not reply within the timeout")]
    Timeout,
    /// The server has closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server refuses, with a UNIX errno (0 where it gives none).
    #[error("the server rejected the request: {}", io::Error::from_raw_os_error(*.0 as i32))]
    Refused(u32),
    /// The device has another host: it refused the `VERSION` with `EBUSY`.
    #[error("the drive has another host{}", of_process(*.host))]
    InUse {
        /// The other host's process, if the server reports it.
        host: Option<u32>,
    },
    /// The server's reply does not fit the command.
    #[error("the server's reply is malformed: {0}")]
    Malformed(#[from] Malformed),
    /// The server's reply does not match the request.
    #[error("the server's reply to {0} does not match the request")]
    Mismatch(Command),
    /// The server speaks no version of the protocol that is spoken here.
    #[error("the server speaks vfio-user {major}.{minor}, which this client does not support")]
    Version {
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// The socket cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The connection failed.
    #[error(transparent)]
    Connection(ConnectionError),
}

/// The process of another host, for an error.
fn of_process(host: Option<u32>) -> String {
    host.map_or_else(String::new, |host| format!(", process {host}"))
}

impl From<ConnectionError> for ClientError {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::Closed => Self::Closed,
            other => Self::Connection(other),
        }
    }
}

/// A reply that is not an error.
#[derive(Debug)]
pub struct Reply {
    /// Its header.
    pub header: Header,
    /// The bytes after the header.
    pub body: Vec<u8>,
    /// The descriptors that came with it.
    pub fds: ArrayVec<OwnedFd, MAX_FDS>,
}

/// A region of the device, as the server describes it.
#[derive(Debug)]
pub struct Region {
    /// Size, flags, and where it starts in the file of the descriptor.
    pub info: RegionInfo,
    /// The areas that may be mapped. None with the map flag set: the whole region.
    pub areas: Vec<SparseArea>,
    /// The descriptor to map, where there is one.
    pub fd: Option<OwnedFd>,
}

/// The client's side of a connection, after the versions are agreed.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    next_id: u16,
    timeout: Duration,
    version: Version,
}

impl Client {
    /// Connects to a server's socket and agrees on a version. `timeout` bounds the connect, and
    /// from then on each request of the typed methods.
    ///
    /// # Errors
    /// [`ClientError::Connect`] when the socket cannot be reached; else those of
    /// [`Self::from_stream`].
    pub fn connect(path: impl AsRef<Path>, timeout: Duration) -> Result<Self, ClientError> {
        let stream = connect_stream(path.as_ref(), timeout).map_err(|errno| match errno {
            Errno::AGAIN | Errno::TIMEDOUT => ClientError::Timeout,
            errno => ClientError::Connect(errno.into()),
        })?;
        Self::from_stream(stream, timeout)
    }

    /// Agrees on a version over a connected socket.
    ///
    /// # Errors
    /// [`ClientError::Version`] when the server's version is not a subset of the proposal;
    /// [`ClientError`] as for every request.
    pub fn from_stream(stream: UnixStream, timeout: Duration) -> Result<Self, ClientError> {
        let connection = Connection::new(stream).map_err(ClientError::Connect)?;
        let proposal = Version::proposal();
        let mut client = Self {
            connection,
            next_id: 0,
            timeout,
            version: proposal,
        };
        let mut body = Vec::new();
        proposal.encode(&mut body);
        let reply = client.request(Command::VERSION, &[&body], &[], timeout)?;
        let version = Version::parse(&reply.body)?;
        if version.major != proposal.major || version.minor > proposal.minor {
            return Err(ClientError::Version {
                major: version.major,
                minor: version.minor,
            });
        }
        client.version = version;
        Ok(client)
    }

    /// The server's reply to the proposal.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The server's capabilities.
    pub fn capabilities(&self) -> &Capabilities {
        &self.version.capabilities
    }

    /// Changes the bound on the wait of the typed methods.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for an error reply; [`ClientError::Timeout`] and the errors of the
    /// connection.
    pub fn request(
        &mut self,
        command: Command,
        body: &[&[u8]],
        fds: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<Reply, ClientError> {
        let deadline = Deadline::after(timeout);
        let request = Header::request(self.take_id(), command);
        self.connection.send(&request, body, fds)?;
        loop {
            if let Some(reply) = self.receive_reply(Some(&request))? {
                return Ok(reply);
            }
            self.wait(&deadline)?;
        }
    }

    /// Sends a command that wants no reply, and waits until the socket has taken it.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] when the server does not read, and the errors of the connection.
    pub fn post(
        &mut self,
        command: Command,
        body: &[&[u8]],
        fds: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<(), ClientError> {
        let deadline = Deadline::after(timeout);
        let header = Header::posted(self.take_id(), command);
        self.connection.send(&header, body, fds)?;
        while self.connection.wants_write() {
            // Reading too: a server that waits for room to send would never read.
            self.wait(&deadline)?;
            self.receive_reply(None)?;
        }
        Ok(())
    }

    /// Replies to unsolicited requests of the server; never blocks. Call it when the socket is
    /// readable between requests.
    ///
    /// # Errors
    /// [`ClientError::Closed`] when the server has gone away, and the errors of the connection.
    pub fn service(&mut self) -> Result<(), ClientError> {
        self.receive_reply(None)?;
        self.connection.flush()?;
        Ok(())
    }

    /// Shares a range of memory. Without a descriptor the server cannot map it.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn dma_map(
        &mut self,
        iova: u64,
        size: u64,
        flags: DmaMapFlags,
        fd: Option<(BorrowedFd<'_>, u64)>,
    ) -> Result<(), ClientError> {
        let mut body = Vec::with_capacity(DmaMap::LEN);
        DmaMap {
            argsz: DmaMap::LEN as u32,
            flags,
            offset: fd.map_or(0, |(_, offset)| offset),
            iova,
            size,
        }
        .encode(&mut body);
        let fds = fd.map(|(fd, _)| fd);
        self.request(Command::DMA_MAP, &[&body], fds.as_slice(), self.timeout)?;
        Ok(())
    }

    /// Takes a range of memory back; on return the server uses it no more.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn dma_unmap(&mut self, iova: u64, size: u64) -> Result<(), ClientError> {
        let mut body = Vec::with_capacity(DmaUnmap::LEN);
        DmaUnmap {
            argsz: DmaUnmap::LEN as u32,
            flags: DmaUnmapFlags::default(),
            iova,
            size,
        }
        .encode(&mut body);
        let reply = self.request(Command::DMA_UNMAP, &[&body], &[], self.timeout)?;
        let unmapped = DmaUnmap::parse(&reply.body)?;
        if (unmapped.iova, unmapped.size) != (iova, size) {
            return Err(ClientError::Mismatch(Command::DMA_UNMAP));
        }
        Ok(())
    }

    /// The components of the device.
    ///
    /// # Errors
    /// As [`Self::request`], and [`ClientError::Malformed`].
    pub fn device_info(&mut self) -> Result<DeviceInfo, ClientError> {
        let mut body = Vec::with_capacity(DeviceInfo::LEN);
        DeviceInfo {
            argsz: DeviceInfo::LEN as u32,
            flags: DeviceFlags::default(),
            num_regions: 0,
            num_irqs: 0,
        }
        .encode(&mut body);
        let reply = self.request(Command::DEVICE_GET_INFO, &[&body], &[], self.timeout)?;
        Ok(DeviceInfo::parse(&reply.body)?)
    }

    /// Size, flags, mappable areas and descriptor of a region. It asks a second time when the
    /// first reply says that it needs more room.
    ///
    /// # Errors
    /// As [`Self::request`], and [`ClientError::Malformed`].
    pub fn region_info(&mut self, index: u32) -> Result<Region, ClientError> {
        let mut reply = self.ask_region_info(index, RegionInfo::LEN as u32)?;
        let needed = RegionInfo::parse(&reply.body)?.argsz;
        if needed > RegionInfo::LEN as u32 {
            reply = self.ask_region_info(index, needed.min(REGION_INFO_MAX_LEN))?;
        }
        let (info, areas) = RegionInfo::parse_reply(&reply.body)?;
        if info.index != index {
            return Err(ClientError::Mismatch(Command::DEVICE_GET_REGION_INFO));
        }
        Ok(Region {
            info,
            areas,
            fd: reply.fds.into_iter().next(),
        })
    }

    fn ask_region_info(&mut self, index: u32, argsz: u32) -> Result<Reply, ClientError> {
        let mut body = Vec::with_capacity(RegionInfo::LEN);
        RegionInfo {
            argsz,
            flags: RegionFlags::default(),
            index,
            cap_offset: 0,
            size: 0,
            offset: 0,
        }
        .encode(&mut body);
        self.request(Command::DEVICE_GET_REGION_INFO, &[&body], &[], self.timeout)
    }

    /// Count and flags of an interrupt type.
    ///
    /// # Errors
    /// As [`Self::request`], and [`ClientError::Malformed`].
    pub fn irq_info(&mut self, index: u32) -> Result<IrqInfo, ClientError> {
        let mut body = Vec::with_capacity(IrqInfo::LEN);
        IrqInfo {
            argsz: IrqInfo::LEN as u32,
            flags: IrqFlags::default(),
            index,
            count: 0,
        }
        .encode(&mut body);
        let reply = self.request(Command::DEVICE_GET_IRQ_INFO, &[&body], &[], self.timeout)?;
        Ok(IrqInfo::parse(&reply.body)?)
    }

    /// Assigns eventfds to the interrupts from `start` on, as many at a time as the server takes.
    ///
    /// # Errors
    /// As [`Self::request`]; those before the message that failed are assigned then.
    pub fn set_irqs(
        &mut self,
        index: u32,
        start: u32,
        eventfds: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        let at_a_time = self.capabilities().msg_fds().max(1);
        let mut start = start;
        for fds in eventfds.chunks(at_a_time) {
            let count = u32::try_from(fds.len()).expect("a message has few descriptors");
            let flags = SetIrqsFlags::DATA_EVENTFD | SetIrqsFlags::ACTION_TRIGGER;
            self.send_set_irqs(index, flags, start, count, fds)?;
            start = start.saturating_add(count);
        }
        Ok(())
    }

    /// De-assigns `count` interrupts from `start` on: they signal no eventfd.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn clear_irqs(&mut self, index: u32, start: u32, count: u32) -> Result<(), ClientError> {
        let flags = SetIrqsFlags::DATA_EVENTFD | SetIrqsFlags::ACTION_TRIGGER;
        self.send_set_irqs(index, flags, start, count, &[])
    }

    /// De-assigns every interrupt of a type.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn disable_irqs(&mut self, index: u32) -> Result<(), ClientError> {
        let flags = SetIrqsFlags::DATA_NONE | SetIrqsFlags::ACTION_TRIGGER;
        self.send_set_irqs(index, flags, 0, 0, &[])
    }

    fn send_set_irqs(
        &mut self,
        index: u32,
        flags: SetIrqsFlags,
        start: u32,
        count: u32,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        let mut body = Vec::with_capacity(SetIrqs::HEAD_LEN);
        SetIrqs {
            argsz: SetIrqs::HEAD_LEN as u32,
            flags,
            index,
            start,
            count,
            data: &[],
        }
        .encode(&mut body);
        self.request(Command::DEVICE_SET_IRQS, &[&body], fds, self.timeout)?;
        Ok(())
    }

    /// Reads from a region: all of `data`, in as many messages as the server's limit calls for.
    ///
    /// # Errors
    /// As [`Self::request`]; [`ClientError::Mismatch`] when the server sends another range.
    pub fn region_read(
        &mut self,
        region: u32,
        offset: u64,
        data: &mut [u8],
    ) -> Result<(), ClientError> {
        let mut offset = offset;
        for part in data.chunks_mut(self.xfer_len()) {
            let (head, bytes) = access(region, offset, part.len());
            let reply = self.request(Command::REGION_READ, &[&bytes], &[], self.timeout)?;
            let (answered, read) = Access::parse_with_data(&reply.body)?;
            if answered != head {
                return Err(ClientError::Mismatch(Command::REGION_READ));
            }
            part.copy_from_slice(read);
            offset = offset.wrapping_add(part.len() as u64);
        }
        Ok(())
    }

    /// Writes to a region, and waits until it is done; in as many messages as the server's limit
    /// calls for.
    ///
    /// # Errors
    /// As [`Self::request`]; [`ClientError::Mismatch`] when the server wrote another range.
    pub fn region_write(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), ClientError> {
        let mut offset = offset;
        for part in data.chunks(self.xfer_len()) {
            let (head, bytes) = access(region, offset, part.len());
            let reply = self.request(Command::REGION_WRITE, &[&bytes, part], &[], self.timeout)?;
            if Access::parse(&reply.body)? != head {
                return Err(ClientError::Mismatch(Command::REGION_WRITE));
            }
            offset = offset.wrapping_add(part.len() as u64);
        }
        Ok(())
    }

    /// Writes to a region without waiting for it to be done; a later request waits for it too, as
    /// the server works in order.
    ///
    /// # Errors
    /// As [`Self::post`].
    pub fn region_write_posted(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), ClientError> {
        let mut offset = offset;
        for part in data.chunks(self.xfer_len()) {
            let (_, bytes) = access(region, offset, part.len());
            self.post(Command::REGION_WRITE, &[&bytes, part], &[], self.timeout)?;
            offset = offset.wrapping_add(part.len() as u64);
        }
        Ok(())
    }

    /// As [`Self::region_write_posted`], for few bytes, and never blocks: returns false, with
    /// nothing written, while the socket has not accepted earlier data.
    ///
    /// # Errors
    /// The errors of the connection.
    ///
    /// # Panics
    /// For more bytes than one access may have.
    pub fn try_region_write_posted(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<bool, ClientError> {
        assert!(data.len() <= self.xfer_len(), "{} bytes", data.len());
        if !self.connection.flush()? {
            return Ok(false);
        }
        let (_, bytes) = access(region, offset, data.len());
        let header = Header::posted(self.take_id(), Command::REGION_WRITE);
        // Where the socket is full, the backlog has it.
        self.connection.send(&header, &[&bytes, data], &[])?;
        Ok(true)
    }

    /// Data that one access may have, in bytes.
    fn xfer_len(&self) -> usize {
        self.capabilities().data_xfer_len().max(1)
    }

    /// Resets the device.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn reset(&mut self) -> Result<(), ClientError> {
        self.request(Command::DEVICE_RESET, &[], &[], self.timeout)?;
        Ok(())
    }

    fn take_id(&mut self) -> u16 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        id
    }

    /// Processes received messages until the reply to `request` is among them. Commands of the
    /// server are rejected; replies to requests that timed out are dropped.
    fn receive_reply(&mut self, request: Option<&Header>) -> Result<Option<Reply>, ClientError> {
        while let Some(message) = self.connection.receive()? {
            let header = message.header;
            if !header.is_reply() {
                drop(message);
                let errno = Errno::INVAL.raw_os_error().unsigned_abs();
                self.connection.reply_error(&header, errno)?;
                continue;
            }
            if let Some(request) = request
                && request.id == header.id
            {
                return accept(request, message).map(Some);
            }
        }
        Ok(None)
    }

    /// Waits until there is something to read, or room to send a backlog, and sends that.
    fn wait(&mut self, deadline: &Deadline) -> Result<(), ClientError> {
        let mut flags = PollFlags::IN;
        if self.connection.wants_write() {
            flags |= PollFlags::OUT;
        }
        let left = deadline.left().ok_or(ClientError::Timeout)?;
        let mut fds = [PollFd::new(&self.connection, flags)];
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(ConnectionError::Io(errno.into()).into()),
        }
        self.connection.flush()?;
        Ok(())
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// Checks a reply against the request of the same id, and copies it.
fn accept(request: &Header, message: Message<'_>) -> Result<Reply, ClientError> {
    if message.header.command != request.command {
        return Err(ClientError::Mismatch(request.command));
    }
    let is_busy = message.header.error == Errno::BUSY.raw_os_error().unsigned_abs();
    if message.header.is_error() && is_busy && request.command == Command::VERSION {
        let Refusal { host } = Refusal::parse(message.body);
        return Err(ClientError::InUse { host });
    }
    if message.header.is_error() {
        return Err(ClientError::Refused(message.header.error));
    }
    Ok(Reply {
        header: message.header,
        body: message.body.to_vec(),
        fds: message.fds,
    })
}

/// The head of an access of at most [`MAX_DATA_XFER_LEN`](crate::MAX_DATA_XFER_LEN) bytes, and its
/// bytes.
fn access(region: u32, offset: u64, len: usize) -> (Access, Vec<u8>) {
    let head = Access {
        offset,
        region,
        count: u32::try_from(len).expect("an access is at most 1 MiB long"),
    };
    let mut bytes = Vec::with_capacity(Access::LEN);
    head.encode(&mut bytes);
    (head, bytes)
}

/// A point in time until which to wait.
struct Deadline(Instant);

impl Deadline {
    fn after(timeout: Duration) -> Self {
        // A timeout beyond what the clock can hold is a day: long enough for any request.
        let now = Instant::now();
        Self(
            now.checked_add(timeout)
                .unwrap_or(now + Duration::from_secs(86_400)),
        )
    }

    /// The time left; `None` when it has passed.
    fn left(&self) -> Option<Timespec> {
        let left = self.0.checked_duration_since(Instant::now())?;
        if left.is_zero() {
            return None;
        }
        Timespec::try_from(left).ok()
    }
}

/// Connects within `timeout`: a server that accepts no connections leaves its queue full, and then
/// the kernel waits as long as the socket's send timeout.
fn connect_stream(path: &Path, timeout: Duration) -> Result<UnixStream, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // A timeout of zero would mean no timeout.
    let timeout = timeout.max(Duration::from_millis(1));
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}
