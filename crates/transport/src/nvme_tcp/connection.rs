//! One connection: its socket, the bytes that came and are not decoded, and the PDUs that wait to
//! be sent.
//!
//! A receive and a send never wait. Bytes that the socket does not take stay, in whole PDUs except
//! the first, and the caller produces no more until they have gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use authentication::Failed;
use memory::HostMemory;
use nvme_spec::Cqe;
use nvme_spec::tcp::FatalErrorStatus;
use nvme_tcp::{DataDigest, Decoder, Encoder, Fault, Head, Piece, Side};
use port::time::Time;
use tls::Session;

use super::output::{Output, Queued};
use crate::secure::{NoSession, Stream, name_of};

/// Bytes of a newcomer's input: ICReq, and a Connect command with its data and digests.
pub const NEWCOMER_INPUT: usize = 2048;
/// Bytes of a queue's input.
pub const INPUT: usize = 32 << 10;

/// Bytes of data in the capsules of a newcomer and of an admin queue at most (TCP 1.1, 3.3.2.1).
pub(super) const ADMIN_IN_CAPSULE: u32 = 8192;
/// Minimum number of bytes of data that are received straight to their slot.
const DIRECT: u32 = 4096;
/// Bytes that are received at a time from a connection that is to close.
const DISCARDED: usize = 16 << 10;
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
    /// The host or the controller has not proved that it knows its secret.
    #[error("authentication failed: {0}")]
    Authentication(Failed),
    /// The host has not proved that it knows its secret in time.
    #[error("the host did not authenticate itself in time")]
    Unauthenticated,
    /// The host has made a key of TLS here, and has not closed the connection.
    #[error("the host has made a key of TLS, and does not come again with that")]
    Concatenated,
    /// Other hosts have come while it proved who it is.
    #[error("there are as many hosts as `hosts` allows")]
    TooManyHosts,
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
    /// TLS failed.
    #[error("TLS failed: {0}")]
    Tls(tls::Failed),
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
            Self::Authentication(failed) => authentication_name(*failed),
            Self::Unauthenticated => "authentication-late",
            Self::Concatenated => "not-through-tls",
            Self::TooManyHosts => "too-many-hosts",
            Self::Reset => "reset",
            Self::Association => "association",
            Self::Removed => "removed",
            Self::Io(_) => "io",
            Self::Tls(failed) => name_of(failed),
        }
    }
}

impl From<NoSession> for End {
    fn from(none: NoSession) -> Self {
        match none {
            NoSession::Failed(failed) => failed.into(),
            NoSession::Late => Self::Silent,
        }
    }
}

impl From<tls::Failed> for End {
    fn from(failed: tls::Failed) -> Self {
        match failed {
            tls::Failed::Closed => Self::Closed,
            tls::Failed::Io(error) => Self::Io(error),
            other => Self::Tls(other),
        }
    }
}

const fn authentication_name(failed: Failed) -> &'static str {
    match failed {
        Failed::Authentication => "authentication-failed",
        Failed::Protocol => "authentication-protocol",
        Failed::Concatenation => "authentication-concatenation",
        Failed::Hash => "authentication-hash",
        Failed::Group => "authentication-group",
        Failed::Payload => "authentication-payload",
        Failed::Message => "authentication-message",
    }
}

/// A PDU without data that is to be sent.
#[derive(Debug)]
pub(super) struct Pdu {
    head: Head,
    /// The command whose last PDU this is.
    frees: Option<u16>,
}

impl Pdu {
    /// Of the head alone.
    pub(super) const fn bare(head: Head, frees: Option<u16>) -> Self {
        Self { head, frees }
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
    stream: Stream,
    pub(super) decoder: Decoder,
    /// `None` before ICReq.
    encoder: Option<Encoder>,
    memory: Option<HostMemory>,
    pub(super) input: Input,
    /// The last receive to the input has taken all that was there.
    is_drained: bool,
    out: Output,
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
        Ok(Self::over(Stream::Plain(fd)))
    }

    /// A connection through TLS, whose handshake is complete.
    pub(super) fn secured(session: Session) -> Self {
        Self::over(Stream::secured(session))
    }

    /// Whether it is one through TLS.
    pub(super) fn is_secured(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    fn over(stream: Stream) -> Self {
        Self {
            stream,
            decoder: Decoder::new(Side::Controller, ADMIN_IN_CAPSULE),
            encoder: None,
            memory: None,
            input: Input::new(NEWCOMER_INPUT),
            is_drained: false,
            out: Output::default(),
            blocked: None,
            received: 0,
            sent: 0,
        }
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
        // Of each command an R2T or its data, and its response. Data have the longest head.
        let piece = Piece {
            cccid: 0,
            ttag: 0,
            offset: 0,
            len: 1,
            last: true,
        };
        let head = self.encoder().c2h_data(&piece, false).len();
        self.out.reserve(2 * commands + 2, head);
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
        self.encoder.as_ref().expect(AGREED)
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
        match self.stream.receive(room) {
            Ok(0) => Err(End::Closed),
            Ok(len) => {
                input.to += len;
                self.is_drained = input.to < input.bytes.len() && self.stream.takes_all();
                self.received += len as u64;
                Ok(true)
            }
            Err(error) if is_later(&error) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Whether bytes have come that no poller knows of: it is to be read again.
    pub(super) fn has_pending(&self) -> bool {
        !self.input.is_empty() || self.stream.has_pending()
    }

    /// Whether another receive would find nothing, as the last one has taken all that was there.
    pub(super) fn is_drained(&mut self) -> bool {
        std::mem::take(&mut self.is_drained)
    }

    /// Receives data straight to `at` of the private memory, where many are to come and no digest
    /// of them. `None`: not in this way. `Some(0)`: nothing is there now.
    pub(super) fn receive_direct(&mut self, at: usize) -> Option<Result<u32, End>> {
        let left = self.decoder.data_left();
        let memory = self.memory.as_ref()?;
        if left < DIRECT || self.encoder().data_digest() || !self.input.is_empty() {
            return None;
        }
        let received = self.stream.receive_direct(memory, at, left as usize)?;
        Some(match received {
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
        let head = self.out.add(|heads| heads.extend_from_slice(&pdu.head));
        self.out.pdus.push_back(Queued::bare(head, pdu.frees));
    }

    /// Has a response sent.
    #[inline]
    pub(super) fn push_response(&mut self, cqe: &Cqe, frees: Option<u16>) {
        let encoder = self.encoder.as_ref().expect(AGREED);
        let put = |heads: &mut Vec<u8>| {
            encoder.put_response(cqe, |bytes| heads.extend_from_slice(bytes));
        };
        let head = self.out.add(put);
        self.out.pdus.push_back(Queued::bare(head, frees));
    }

    /// Has data sent that lie at `at` of the private memory. With `success` they stand for the
    /// response of their command.
    #[inline]
    pub(super) fn push_data(
        &mut self,
        piece: &Piece,
        success: bool,
        at: usize,
        frees: Option<u16>,
    ) {
        self.push_both(piece, success, at, None, frees);
    }

    /// Has data sent as [`Self::push_data`], and right behind them the response.
    #[inline]
    pub(super) fn push_data_and(
        &mut self,
        piece: &Piece,
        at: usize,
        response: &Cqe,
        frees: Option<u16>,
    ) {
        self.push_both(piece, false, at, Some(response), frees);
    }

    #[inline]
    fn push_both(
        &mut self,
        piece: &Piece,
        success: bool,
        at: usize,
        response: Option<&Cqe>,
        frees: Option<u16>,
    ) {
        let encoder = self.encoder.as_ref().expect(AGREED);
        let digest = encoder.data_digest().then(|| self.digest(at, piece.len));
        let head = self.out.add(|heads| {
            let put = |bytes: &[u8]| heads.extend_from_slice(bytes);
            encoder.put_c2h_data(piece, success, put);
        });
        let behind = response.map_or(0, |cqe| {
            let put = |heads: &mut Vec<u8>| {
                encoder.put_response(cqe, |bytes| heads.extend_from_slice(bytes));
            };
            self.out.add(put)
        });
        self.out.pdus.push_back(Queued {
            head,
            data: Some((at, piece.len)),
            digest,
            behind,
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

    /// Answers that wait, of one PDU or two.
    pub(super) fn waiting(&self) -> usize {
        self.out.pdus.len()
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
        if self.out.pdus.is_empty() {
            return Ok(false);
        }
        let (parts, pdus) = self.out.gather(self.memory.as_ref());
        let sent = match self.stream.send(&parts) {
            Ok(sent) => sent,
            Err(error) if is_later(&error) => 0,
            Err(error) => return Err(failed(error)),
        };
        self.sent += sent as u64;
        if sent == parts.len() {
            for _ in 0..pdus {
                if let Some(index) = self.out.pop() {
                    freed(index);
                }
            }
            self.blocked = None;
        } else {
            let some_went = self.sent_some(sent, freed);
            self.blocked = match self.blocked {
                // Bytes now and then are not enough.
                Some(since) if !some_went => Some(since),
                _ => Some(now),
            };
        }
        Ok(sent > 0)
    }

    /// Of what was to be sent only `sent` bytes have gone: whether they complete a PDU.
    #[cold]
    fn sent_some(&mut self, mut sent: usize, mut freed: impl FnMut(u16)) -> bool {
        let mut some_went = false;
        while let Some(pdu) = self.out.pdus.front() {
            let left = pdu.len() - self.out.gone;
            if sent < left {
                self.out.gone += sent;
                break;
            }
            sent -= left;
            some_went = true;
            if let Some(index) = self.out.pop() {
                freed(index);
            }
        }
        some_went
    }

    /// Has a termination request sent for this fault, and nothing else. In the middle of a PDU
    /// there is no place for one.
    pub(super) fn terminate(&mut self, fault: Fault) {
        let is_whole = self.out.is_between() && !self.stream.is_midway();
        self.forget();
        if is_whole {
            let head = fault.termination(Side::Controller, self.decoder.at_fault());
            self.push(Pdu::bare(head, None));
        }
    }

    /// None of what waits is sent any more: it needs no memory.
    pub(super) fn forget(&mut self) {
        self.out = Output::default();
        self.memory = None;
    }

    /// Nothing is decoded any more: see [`Self::discard`].
    pub(super) fn stop_decoding(&mut self) {
        self.input = Input::default();
    }

    /// Reads and drops some of what comes; true at the end of the stream.
    pub(super) fn discard(&mut self) -> bool {
        let mut room = [0; DISCARDED];
        loop {
            match self.stream.discard(&mut room) {
                Ok(0) => return true,
                // A record is bounded.
                Ok(_) if self.stream.has_pending() => {}
                Ok(_) => return false,
                Err(error) => return !is_later(&error),
            }
        }
    }

    /// Sends nothing more.
    pub(super) fn shut(&mut self) {
        self.stream.shut();
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Why there is an encoder.
const AGREED: &str = "both sides have agreed";

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
        // Of TLS: sockets have no such error.
        io::ErrorKind::InvalidData => End::Tls(tls::Failed::Protocol(error.to_string())),
        _ => End::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use nvme_tcp::Offer;

    use super::*;

    fn encoder() -> Encoder {
        let offer = Offer {
            digests: nvme_spec::tcp::Digests::new(),
            alignment_z: 0,
            max_h2c_data: 4096,
            max_r2t_z: 0,
        };
        let (_, agreement) = offer.answer(&offer.request()).unwrap();
        Encoder::new(agreement)
    }

    #[test]
    fn pdus_leave_in_order_however_they_are_cut() {
        let memory = HostMemory::new(1 << 16).unwrap();
        let data: Vec<u8> = (0..1u32 << 16).map(|at| (at / 7) as u8).collect();
        memory.write(0, &data);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 8192).unwrap();
        let mut connection = Connection::new(ours.into()).unwrap();
        connection.agree(encoder());
        connection.widen(&memory, 0, 200);
        let (mut expected, mut came, mut freed) = (Vec::new(), Vec::new(), Vec::new());
        let mut exchange = |connection: &mut Connection, came: &mut Vec<u8>| {
            connection.send(Time(0), |index| freed.push(index)).unwrap();
            let mut bytes = [0; 2777];
            let len = theirs.read(&mut bytes).unwrap();
            came.extend_from_slice(&bytes[..len]);
        };
        for number in 0..600u16 {
            let cqe = Cqe {
                cid: number,
                ..Cqe::default()
            };
            let piece = Piece {
                cccid: number,
                ttag: 0,
                offset: 0,
                len: 1000 + u32::from(number),
                last: true,
            };
            // Data that stand for the response, both, or only a response.
            let kind = number % 3;
            if kind > 0 {
                let (at, len) = (usize::from(number) * 100, piece.len as usize);
                expected.extend_from_slice(&connection.encoder().c2h_data(&piece, kind == 2));
                expected.extend_from_slice(&data[at..at + len]);
                match kind {
                    1 => connection.push_data_and(&piece, at, &cqe, Some(number)),
                    _ => connection.push_data(&piece, true, at, Some(number)),
                }
            }
            if kind < 2 {
                expected.extend_from_slice(&connection.encoder().response(&cqe));
            }
            if kind == 0 {
                connection.push_response(&cqe, Some(number));
            }
            // Some always wait.
            while connection.waiting() > 300 {
                exchange(&mut connection, &mut came);
            }
        }
        while came.len() < expected.len() {
            exchange(&mut connection, &mut came);
        }
        assert!(came == expected);
        assert_eq!(freed, (0..600).collect::<Vec<_>>());
        assert_eq!((connection.waiting(), connection.is_blocked()), (0, false));
    }
}
