//! One connection: a socket that never blocks, and what is staged for it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nvme_spec::opcode::AdminOpcode;
use nvme_spec::{Cqe, Sqe};
use rustix::event::PollFlags;

use super::commands::{Conflict, Data};
use super::shared::Shared;
use super::stream::{Stream, await_socket};
use super::wire::{Breach, OUTPUT, Wire};
use crate::DriverError;

/// Bytes that are received at once.
const INPUT: usize = 256 << 10;
/// Data of this many bytes or more are received straight into their place.
const DIRECT: u32 = 16 << 10;
/// Bytes that are received at once behind those: the next header, and not much of its data.
const BEHIND: usize = 4096;

/// Why the bus has ended its connections.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The target closed one.
    Closed,
    /// One broke.
    Breach(Breach),
    /// A record of TLS cannot be read, or the target has sent an alert.
    Tls,
    /// The system reports an error of one: its number.
    System(i32),
    /// The target did not answer the bus.
    Silent {
        /// The request.
        what: &'static str,
        /// The time allowed.
        after: Duration,
    },
}

impl From<End> for DriverError {
    fn from(end: End) -> Self {
        match end {
            End::Closed => Self::Gone,
            End::Breach(Breach::Terminated { fes, fei }) => Self::Terminated {
                fes: fes.0,
                name: fes.name(),
                fei,
            },
            End::Breach(Breach::Fault(fault)) => Self::Broken(format!("over NVMe/TCP, {fault}")),
            End::Breach(Breach::NoCommand { pdu_type, cid }) => Self::Broken(format!(
                "{} came for command {cid:#06x}, which is not in flight or has no such data",
                pdu_type.name()
            )),
            End::Tls => Self::Broken(
                "TLS failed after the handshake: a record was changed on the way, or the target sent an alert".into(),
            ),
            End::System(errno) => Self::System {
                what: "use a connection to the target",
                source: std::io::Error::from_raw_os_error(errno),
            },
            End::Silent { what, after } => Self::Timeout { what, after },
        }
    }
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        match (error.kind(), error.raw_os_error()) {
            (ErrorKind::InvalidData, None) => Self::Tls,
            (ErrorKind::ConnectionReset | ErrorKind::BrokenPipe, _) | (_, None) => Self::Closed,
            (_, Some(errno)) => Self::System(errno),
        }
    }
}

/// A connection with its commands.
pub(super) struct Connection {
    stream: Stream,
    wire: Wire,
    input: Box<[u8]>,
    /// Bytes of `input` that were taken, and that were received.
    taken: usize,
    received: usize,
    /// The last look at the socket took all that it had.
    is_drained: bool,
    output: Box<[u8]>,
    /// Bytes of `output` that were sent, and that are staged.
    sent: usize,
    staged: usize,
}

impl Connection {
    /// Goes on with a socket on which both sides have agreed, and which does not block.
    pub(super) fn new(stream: Stream, wire: Wire) -> Self {
        Self {
            stream,
            wire,
            input: vec![0; INPUT].into(),
            taken: 0,
            received: 0,
            is_drained: false,
            output: vec![0; OUTPUT].into(),
            sent: 0,
            staged: 0,
        }
    }

    /// The target's address.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        let peer = rustix::net::getpeername(&self.stream).ok()??;
        SocketAddr::try_from(peer).ok()
    }

    /// Commands that can be added.
    pub(super) fn free(&self) -> usize {
        self.wire.free()
    }

    /// Adds a command, for which there is room. It leaves with the next [`Self::flush`].
    ///
    /// # Errors
    /// A command in flight has its identifier.
    pub(super) fn add(&mut self, sqe: Sqe, data: Option<Data>) -> Result<(), Conflict> {
        self.wire.add(sqe, data)
    }

    /// Whether a command is in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.wire.is_busy()
    }

    /// Whether a command with another opcode is in flight.
    pub(super) fn has_other_than(&self, opcode: AdminOpcode) -> bool {
        self.wire.has_other_than(opcode)
    }

    /// Whether bytes wait that the socket has not taken, or that were not looked at.
    pub(super) fn is_unfinished(&self) -> bool {
        self.sent < self.staged || self.wire.has_output() || self.taken < self.received
    }

    /// Sends what is to be sent, as far as the socket takes it.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn flush(&mut self, shared: &Shared) -> Result<(), End> {
        loop {
            if self.sent == self.staged {
                self.sent = 0;
                self.staged = self.wire.stage(shared, &mut self.output);
                if self.staged == 0 {
                    return Ok(());
                }
            }
            match self.stream.write(&self.output[self.sent..self.staged]) {
                Ok(0) => return Err(End::Closed),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next completion, if the socket has one now.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn next(&mut self, shared: &Shared) -> Result<Option<Cqe>, End> {
        loop {
            let mut bytes = &self.input[self.taken..self.received];
            let step = self.wire.step(&mut bytes, shared);
            self.taken = self.received - bytes.len();
            match step {
                Ok(Some(cqe)) => return Ok(Some(cqe)),
                Ok(None) => {}
                Err(breach) => {
                    if let Breach::Fault(fault) = breach {
                        // A target that does not take it learns by the end of the connection.
                        let _ = self.stream.write(&self.wire.termination(fault));
                    }
                    return Err(End::Breach(breach));
                }
            }
            // A look that did not fill the input has found all that there was.
            if std::mem::take(&mut self.is_drained) {
                return Ok(None);
            }
            match self.receive(shared) {
                Ok(0) => return Err(End::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives what the socket has, when all bytes before are taken: the number of bytes.
    fn receive(&mut self, shared: &Shared) -> std::io::Result<usize> {
        (self.taken, self.received) = (0, 0);
        let rest = self.wire.rest().filter(|(_, left)| *left >= DIRECT);
        if let Some((address, left)) = rest
            && let Some(socket) = self.stream.plain()
        {
            let place = (address, usize::try_from(left).unwrap_or(usize::MAX));
            let behind = &mut self.input[..BEHIND];
            if let Some(received) = shared.receive(socket, place, behind) {
                let count = received?;
                let direct = left.min(u32::try_from(count).unwrap_or(left));
                self.wire.received(direct);
                self.received = count.saturating_sub(place.1);
                self.is_drained = count < place.1.saturating_add(BEHIND);
                return Ok(count);
            }
        }
        let count = self.stream.read(&mut self.input)?;
        self.received = count;
        // A read through TLS takes one record at most.
        self.is_drained = count < self.input.len() && self.stream.plain().is_some();
        Ok(count)
    }

    /// Waits until the socket has bytes, or takes some where there are some to send, or until the
    /// deadline: false.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn wait(&self, deadline: Instant) -> Result<bool, End> {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.sent < self.staged);
        await_socket(&self.stream, flags, deadline).map_err(End::from)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};

    use memory::{HostMemory, Iova};
    use nvme_spec::sgl::{SglDescriptor, SglDescriptorType};
    use nvme_spec::sqe::Psdt;
    use nvme_spec::tcp::IcResp;
    use zerocopy::FromBytes;

    use super::super::commands::data_of;
    use super::super::wire::{OFFER, decoder};
    use super::*;

    const BASE: u64 = 1 << 32;
    const LEN: u32 = 256 << 10;

    /// The PDU of a response to a command that succeeded.
    pub(in super::super) fn response(cid: u16) -> [u8; 24] {
        let mut pdu = [0; 24];
        (pdu[0], pdu[2], pdu[4]) = (5, 24, 24);
        pdu[20..22].copy_from_slice(&cid.to_le_bytes());
        pdu
    }

    /// A connection of a driver with memory for two reads, and its other end.
    pub(in super::super) fn connection() -> (Connection, TcpStream, HostMemory, Shared) {
        let mut response = [0; 128];
        (response[0], response[2], response[4]) = (1, 128, 128);
        response[12..16].copy_from_slice(&0x40_0000u32.to_le_bytes());
        let response = IcResp::read_from_bytes(&response).unwrap();
        let agreement = OFFER.agreed(&response).unwrap();
        let mut decoder = decoder();
        decoder.agree(agreement);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let (target, _) = listener.accept().unwrap();
        let memory = HostMemory::new(2 * LEN as usize).unwrap();
        let mut shared = Shared::default();
        shared.add(Iova(BASE), memory.clone());
        let wire = Wire::new(decoder, agreement, 4, 8192);
        let stream = Stream::Plain(socket);
        (Connection::new(stream, wire), target, memory, shared)
    }

    #[test]
    fn long_data_and_what_comes_behind_them_arrive() {
        let (mut connection, mut target, memory, shared) = connection();
        let mut bytes = Vec::new();
        let data = |cid: u32| (0..LEN).map(move |at| (at * 31 + at / 4096 + cid) as u8);
        for cid in 0..2u16 {
            let mut sqe = Sqe {
                opcode: 0x02,
                cid,
                ..Sqe::default()
            };
            sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
            let address = BASE + u64::from(cid) * u64::from(LEN);
            let block = SglDescriptorType::DATA_BLOCK;
            sqe.set_sgl1(SglDescriptor::new(block, address, LEN));
            let named = data_of(&sqe).unwrap();
            connection.add(sqe, named).unwrap();
            // C2HData with SUCCESS.
            bytes.extend_from_slice(&[7, 12, 24, 24]);
            for word in [24 + LEN, cid.into(), 0, LEN, 0] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            bytes.extend(data(cid.into()));
        }
        connection.flush(&shared).unwrap();
        let sends = std::thread::spawn(move || {
            target.write_all(&bytes).unwrap();
            target
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        for cid in 0..2u16 {
            let cqe = loop {
                if let Some(cqe) = connection.next(&shared).unwrap() {
                    break cqe;
                }
                assert!(Instant::now() < deadline, "command {cid} does not end");
            };
            assert_eq!(cqe.cid, cid);
            let mut read = vec![0; LEN as usize];
            memory.read(usize::from(cid) * LEN as usize, &mut read);
            assert!(read.into_iter().eq(data(cid.into())), "command {cid}");
        }
        assert!(!connection.is_busy());
        drop(sends.join().unwrap());
    }

    #[test]
    fn a_receive_that_took_all_is_the_last_one_of_a_look() {
        let (mut connection, mut target, _memory, shared) = connection();
        connection.add(Sqe::default(), None).unwrap();
        connection.flush(&shared).unwrap();
        target.write_all(&response(0)).unwrap();
        target.shutdown(Shutdown::Write).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        assert!(connection.wait(deadline).unwrap());
        assert!(connection.next(&shared).unwrap().is_some());
        // A second receive would find the end of the stream.
        assert!(connection.next(&shared).unwrap().is_none());
        let end = connection.next(&shared).unwrap_err();
        assert!(matches!(end, End::Closed), "{end:?}");
    }

    #[test]
    fn a_socket_with_bytes_is_not_waited_for_after_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut target, _) = listener.accept().unwrap();
        target.write_all(&[0]).unwrap();
        let soon = Instant::now() + Duration::from_secs(10);
        assert!(await_socket(&socket, PollFlags::IN, soon).unwrap());
        let over = Instant::now();
        assert!(!await_socket(&socket, PollFlags::IN, over).unwrap());
    }
}
