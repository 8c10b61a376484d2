//! One connection: its socket, the bytes that came and are not decoded, and the PDUs that wait to
//! be sent.
//!
//! A receive and a send never wait. What the socket does not take stays, in whole PDUs except the
//! first, and the caller produces no more until it has gone.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;
use memory::HostMemory;
use memory::guest::socket::{self, MAX_PARTS, Part};
use nvme_spec::tcp::FatalErrorStatus;
use nvme_tcp::{DataDigest, Decoder, Encoder, Fault, Head, Side};
use port::time::Time;
use rustix::io::Errno;

/// Bytes of a newcomer's input: ICReq, and a Connect command with its data and digests.
pub const NEWCOMER_INPUT: usize = 2048;
/// Bytes of a queue's input.
pub const INPUT: usize = 32 << 10;

/// Bytes of data in the capsules of a newcomer and of an admin queue at most (TCP 1.1, 3.3.2.1).
pub(super) const ADMIN_IN_CAPSULE: u32 = 8192;
/// Minimum number of bytes of data that are received straight to their slot.
const DIRECT: u32 = 4096;
/// Bytes of data whose digest is computed at a time.
const DIGEST_PIECE: usize = 4096;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// The host has closed it.
    #[error("the host closed it")]
    Closed,
    /// The host has broken a rule of the transport.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// The host has sent a termination request.
    #[error("the host ended it: {} (information {fei:#x})", .fes.name())]
    Terminated {
        /// Fatal Error Status.
        fes: FatalErrorStatus,
        /// Fatal Error Information.
        fei: u32,
    },
    /// More commands at a time than the queue has entries.
    #[error("more commands at a time than the queue has entries")]
    QueueFull,
    /// A medium has the memory of abandoned commands, and too little is left.
    #[error("a medium does not end commands, and has their memory")]
    MediumHangs,
    /// No ICReq and Connect in time.
    #[error("no Connect command in time")]
    Silent,
    /// The data of a command did not come in time.
    #[error("the data of a command did not come in time")]
    SlowData,
    /// The host does not read what it is sent.
    #[error("the host does not read what it is sent")]
    DoesNotRead,
    /// The keep alive timer has expired, or the controller has failed otherwise and its host is
    /// silent.
    #[error("the keep alive timer expired")]
    KeepAlive,
    /// A Connect command was refused, or what came was none.
    #[error("its Connect command was refused")]
    Refused,
    /// The controller was reset, which ends its I/O queues.
    #[error("the controller was reset")]
    Reset,
    /// The association ends.
    #[error("its association ended")]
    Association,
    /// The operator has ended it.
    #[error("the operator ended it")]
    Removed,
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Io(io::Error),
}

impl End {
    /// A short name, for counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Fault(fault) => fault.name(),
            Self::Terminated { .. } => "terminated",
            Self::QueueFull => "queue-full",
            Self::MediumHangs => "medium-hangs",
            Self::Silent => "silent",
            Self::SlowData => "slow-data",
            Self::DoesNotRead => "does-not-read",
            Self::KeepAlive => "keep-alive",
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::Association => "association",
            Self::Removed => "removed",
            Self::Io(_) => "io",
        }
    }
}

/// A PDU that waits to be sent.
#[derive(Debug)]
pub(super) struct Pdu {
    head: Head,
    /// Place and length of its data in the private memory.
    data: Option<(usize, u32)>,
    digest: Option<[u8; 4]>,
    /// The command whose last PDU this is.
    pub(super) frees: Option<u16>,
}

impl Pdu {
    /// A PDU without data.
    pub(super) fn bare(head: Head, frees: Option<u16>) -> Self {
        Self {
            head,
            data: None,
            digest: None,
            frees,
        }
    }

    fn len(&self) -> usize {
        let data = self.data.map_or(0, |(_, len)| len as usize);
        self.head.len() + data + self.digest.map_or(0, |digest| digest.len())
    }
}

/// Bytes that came.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Input {
    fn new(len: usize) -> Self {
        Self {
            bytes: vec![0; len].into_boxed_slice(),
            from: 0,
            to: 0,
        }
    }

    /// The bytes that were not taken.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// All but the last `left` are taken.
    pub(super) fn keep(&mut self, left: usize) {
        self.from = self.to - left;
        if left == 0 {
            (self.from, self.to) = (0, 0);
        }
    }

    fn is_empty(&self) -> bool {
        self.from == self.to
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    fd: OwnedFd,
    pub(super) decoder: Decoder,
    /// `None` before ICReq.
    encoder: Option<Encoder>,
    memory: Option<HostMemory>,
    pub(super) input: Input,
    out: VecDeque<Pdu>,
    /// Bytes of the first PDU that have gone.
    gone: usize,
    /// Since when the socket has not taken a whole PDU.
    blocked: Option<Time>,
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl Connection {
    /// A connection that was accepted.
    ///
    /// # Errors
    /// It cannot be made non-blocking.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        // Not every socket has it.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
        Ok(Self {
            fd,
            decoder: Decoder::new(Side::Controller, ADMIN_IN_CAPSULE),
            encoder: None,
            memory: None,
            input: Input::new(NEWCOMER_INPUT),
            out: VecDeque::with_capacity(2),
            gone: 0,
            blocked: None,
            received: 0,
            sent: 0,
        })
    }

    /// Makes it the connection of a queue: data lie in `memory`, a command capsule has at most
    /// `in_capsule` bytes of data, and the answers to `commands` commands may wait.
    pub(super) fn widen(&mut self, memory: &HostMemory, in_capsule: u32, commands: usize) {
        self.decoder.set_max_data(in_capsule);
        self.memory = Some(memory.clone());
        let mut input = Input::new(INPUT);
        let left = self.input.bytes();
        input.bytes[..left.len()].copy_from_slice(left);
        input.to = left.len();
        self.input = input;
        // Of each command an R2T or its data, and its response.
        self.out.reserve(2 * commands + 2);
    }

    /// How both sides have agreed that PDUs look.
    pub(super) fn agree(&mut self, encoder: Encoder) {
        self.encoder = Some(encoder);
    }

    /// The encoder.
    ///
    /// # Panics
    /// Before ICReq: nothing is sent then.
    pub(super) fn encoder(&self) -> &Encoder {
        self.encoder.as_ref().expect("both sides have agreed")
    }

    /// Receives to the input. False where nothing is there now.
    pub(super) fn receive(&mut self) -> Result<bool, End> {
        let input = &mut self.input;
        if input.from > 0 {
            input.bytes.copy_within(input.from..input.to, 0);
            (input.from, input.to) = (0, input.to - input.from);
        }
        let room = &mut input.bytes[input.to..];
        debug_assert!(!room.is_empty(), "the decoder takes all bytes");
        match rustix::net::recv(&self.fd, room, rustix::net::RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(End::Closed),
            Ok((_, len)) => {
                input.to += len;
                self.received += len as u64;
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    /// Receives data straight to `at` of the private memory, where many are to come and no digest
    /// of them. `None`: not in this way. `Some(0)`: nothing is there now.
    pub(super) fn receive_direct(&mut self, at: usize) -> Option<Result<u32, End>> {
        let left = self.decoder.data_left();
        let memory = self.memory.as_ref()?;
        if left < DIRECT || self.encoder().data_digest() || !self.input.is_empty() {
            return None;
        }
        Some(match socket::receive(&self.fd, memory, at, left as usize) {
            Ok(0) => Err(End::Closed),
            Ok(len) => {
                self.received += len as u64;
                let len = u32::try_from(len).expect("no more than were to come");
                self.decoder.received_unseen(len);
                Ok(len)
            }
            Err(error) if is_later(&error) => Ok(0),
            Err(error) => Err(failed(error)),
        })
    }

    /// Copies data that came to `at` of the private memory.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        if let Some(memory) = &self.memory {
            memory.write(at, bytes);
        }
    }

    /// Has a PDU sent.
    pub(super) fn push(&mut self, pdu: Pdu) {
        self.out.push_back(pdu);
    }

    /// Has a PDU sent with data that lie at `at` of the private memory.
    pub(super) fn push_data(&mut self, head: Head, at: usize, len: u32, frees: Option<u16>) {
        let digest = self.encoder().data_digest().then(|| self.digest(at, len));
        self.out.push_back(Pdu {
            head,
            data: Some((at, len)),
            digest,
            frees,
        });
    }

    fn digest(&self, mut at: usize, len: u32) -> [u8; 4] {
        let mut digest = DataDigest::default();
        let mut piece = [0; DIGEST_PIECE];
        let mut left = len as usize;
        while left > 0
            && let Some(memory) = &self.memory
        {
            let piece = &mut piece[..left.min(DIGEST_PIECE)];
            memory.read(at, piece);
            digest.add(piece);
            (at, left) = (at + piece.len(), left - piece.len());
        }
        digest.bytes()
    }

    /// PDUs that wait.
    pub(super) fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Whether the socket takes nothing now: it is to be polled for writing.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Since when the socket has not taken a whole PDU.
    pub(super) fn blocked_since(&self) -> Option<Time> {
        self.blocked
    }

    /// Sends what waits, as far as one call goes. True where something has gone.
    pub(super) fn send(&mut self, now: Time, mut freed: impl FnMut(u16)) -> Result<bool, End> {
        if self.out.is_empty() {
            return Ok(false);
        }
        let mut parts: ArrayVec<Part<'_>, MAX_PARTS> = ArrayVec::new();
        let (mut skip, mut bytes) = (self.gone, 0);
        for pdu in &self.out {
            if parts.remaining_capacity() < 3 {
                break;
            }
            let data = pdu.data.zip(self.memory.as_ref());
            let data = data.map(|((at, len), memory)| Part::Memory {
                memory,
                at,
                len: len as usize,
            });
            let digest = pdu.digest.as_ref().map(|digest| Part::Bytes(digest));
            for part in [Some(Part::Bytes(&pdu.head)), data, digest] {
                let Some(part) = part else {
                    continue;
                };
                let gone = skip.min(part.len());
                skip -= gone;
                bytes += part.len() - gone;
                if gone < part.len() {
                    parts.push(part.behind(gone));
                }
            }
        }
        let sent = socket::send(&self.fd, &parts);
        drop(parts);
        let mut sent = match sent {
            Ok(sent) => sent,
            Err(error) if is_later(&error) => 0,
            Err(error) => return Err(failed(error)),
        };
        let worked = sent > 0;
        let all = sent == bytes;
        let mut pdus = 0;
        self.sent += sent as u64;
        while let Some(pdu) = self.out.front() {
            let left = pdu.len() - self.gone;
            if sent < left {
                self.gone += sent;
                break;
            }
            sent -= left;
            self.gone = 0;
            if let Some(index) = pdu.frees {
                freed(index);
            }
            self.out.pop_front();
            pdus += 1;
        }
        self.blocked = match self.blocked {
            _ if all => None,
            // Bytes now and then are not enough.
            Some(since) if pdus == 0 => Some(since),
            _ => Some(now),
        };
        Ok(worked)
    }

    /// Has a termination request sent for this fault, and nothing else. In the middle of a PDU
    /// there is no place for one.
    pub(super) fn terminate(&mut self, fault: Fault) {
        self.out.clear();
        if self.gone == 0 {
            let head = fault.termination(Side::Controller, self.decoder.at_fault());
            self.out.push_back(Pdu::bare(head, None));
        }
        self.gone = 0;
    }

    /// Nothing is sent any more.
    pub(super) fn forget(&mut self) {
        self.out.clear();
        self.gone = 0;
    }

    /// Reads and drops some of what comes; true at the end of the stream.
    pub(super) fn discard(&mut self) -> bool {
        self.input.keep(0);
        let received = self.receive();
        self.input.keep(0);
        received.is_err()
    }

    /// Sends nothing more.
    pub(super) fn shut(&self) {
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Write);
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// How a connection ends whose socket failed.
fn failed(error: io::Error) -> End {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => End::Closed,
        _ => End::Io(error),
    }
}
