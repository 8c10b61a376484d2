//! The bytes of a connection: plain, or in records of TLS.
//!
//! Records are encrypted and decrypted here, on the reactor. Their data are copied once more than
//! those of a plain connection in each direction, and OpenSSL may allocate.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memory::HostMemory;
use memory::guest::socket::{self, Parts};
use rustix::net::{RecvFlags, Shutdown};
use tls::{RECORD, Session};

/// Bytes of one send at most: others have their turn.
const SENT_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(OwnedFd),
    Tls(Box<Secured>),
}

/// A session, and a record that the socket did not take.
#[derive(Debug)]
pub(crate) struct Secured {
    session: Session,
    record: Box<[u8]>,
    /// Bytes of `record` that are to be sent again.
    staged: usize,
}

impl Stream {
    /// The stream of a session whose handshake is complete.
    pub(crate) fn secured(session: Session) -> Self {
        Self::Tls(Box::new(Secured {
            session,
            record: vec![0; RECORD].into_boxed_slice(),
            staged: 0,
        }))
    }

    /// Receives what is there: 0 bytes at the end of the stream.
    #[inline]
    pub(crate) fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => {
                let received = rustix::net::recv(socket, room, RecvFlags::DONTWAIT);
                received.map(|(_, len)| len).map_err(io::Error::from)
            }
            Self::Tls(secured) => secured.session.read(room),
        }
    }

    /// Receives and drops what is there, at most the length of `room`: 0 bytes at the end of the
    /// stream. TCP copies nothing.
    pub(crate) fn discard(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => {
                let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
                let received = rustix::net::recv(socket, room, flags);
                received.map(|(_, len)| len).map_err(io::Error::from)
            }
            Self::Tls(secured) => secured.session.read(room),
        }
    }

    /// Receives straight to memory. `None`: not through TLS.
    #[inline]
    pub(crate) fn receive_direct(
        &mut self,
        memory: &HostMemory,
        at: usize,
        len: usize,
    ) -> Option<io::Result<usize>> {
        match self {
            Self::Plain(socket) => Some(socket::receive(&*socket, memory, at, len)),
            Self::Tls(_) => None,
        }
    }

    /// The socket of a plain stream: bytes may be received from it otherwise.
    #[inline]
    pub(crate) fn plain(&self) -> Option<&OwnedFd> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(_) => None,
        }
    }

    /// Whether a receive that does not fill its room has taken all that was there: one through TLS
    /// has one record at most.
    #[inline]
    pub(crate) fn takes_all(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Whether bytes are there that no poller knows of.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(secured) => secured.session.pending() > 0,
        }
    }

    /// Sends these parts as far as the socket takes them: the number of bytes.
    #[inline]
    pub(crate) fn send(&mut self, parts: &Parts<'_>) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket::send(&*socket, parts),
            Self::Tls(secured) => secured.send(parts),
        }
    }

    /// Whether some of the bytes that were to be sent have gone in part.
    pub(crate) fn is_midway(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(secured) => secured.staged > 0,
        }
    }

    /// Sends nothing more.
    pub(crate) fn shut(&mut self) {
        if let Self::Tls(secured) = self {
            secured.session.close();
        }
        let _ = rustix::net::shutdown(self.as_fd(), Shutdown::Write);
    }
}

impl Secured {
    fn send(&mut self, parts: &Parts<'_>) -> io::Result<usize> {
        let mut sent = 0;
        while sent < SENT_MAX {
            if self.staged == 0 {
                self.staged = parts.copy_behind(sent, &mut self.record);
            }
            if self.staged == 0 {
                break;
            }
            let len = match self.session.write(&self.record[..self.staged]) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && sent > 0 => break,
                Err(error) => return Err(error),
            };
            // A record is sent whole, and less of it only if the library says so.
            self.record.copy_within(len..self.staged, 0);
            self.staged -= len;
            sent += len;
            if self.staged > 0 {
                break;
            }
        }
        Ok(sent)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Tls(secured) => secured.session.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _};
    use std::os::unix::net::UnixStream;

    use memory::guest::socket::MAX_PARTS;
    use rustix::net::sockopt::set_socket_send_buffer_size;
    use tls::{Client, Found, Lookup, Offer, Progress, Psk, Server};
    use zeroize::Zeroizing;

    use super::*;

    const LEN: usize = 600_000;
    /// Bytes of parts, by turns: heads, digests and data.
    const CUTS: [usize; 5] = [24, 5000, 4, 40_000, 72];

    /// Both ends of a session.
    fn sessions(ours: UnixStream, theirs: UnixStream) -> (Session, Session) {
        let psk = Psk {
            key: Zeroizing::new(vec![7; 32]),
            is_sha384: false,
        };
        let client = Client::new(b"name", psk.clone()).unwrap();
        let lookup = move |_: &Offer<'_>| Found::Psk(psk.clone());
        let lookup: Lookup = std::sync::Arc::new(lookup);
        let server = Server::new(lookup).unwrap();
        let mut ours = Session::accept(&server, ours.into()).unwrap();
        let mut theirs = Session::connect(&client, theirs.into()).unwrap();
        while theirs.handshake().unwrap() != Progress::Done {
            let _ = ours.handshake().unwrap();
        }
        assert_eq!(ours.handshake().unwrap(), Progress::Done);
        (ours, theirs)
    }

    /// Parts of `memory`, whose bytes are `data`, behind the first `gone`: 16 at most.
    fn parts<'a>(memory: &'a HostMemory, data: &'a [u8], gone: usize) -> Parts<'a> {
        let (mut at, mut parts) = (0, Parts::behind(gone));
        for (index, cut) in CUTS.iter().cycle().enumerate() {
            let len = (*cut).min(LEN - at);
            if len == 0 || parts.room() == MAX_PARTS - 16 {
                break;
            }
            if index % 2 == 0 {
                parts.add(&data[at..at + len]);
            } else {
                parts.add_memory(memory, at, len);
            }
            at += len;
        }
        parts
    }

    /// Sends all parts, and reads them by this.
    fn send(stream: &mut Stream, mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) {
        let data: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
        let memory = HostMemory::new(LEN).unwrap();
        memory.write(0, &data);
        let (mut gone, mut came, mut blocked) = (0, Vec::new(), 0);
        while came.len() < LEN {
            match stream.send(&parts(&memory, &data, gone)) {
                Ok(len) => gone += len,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    blocked += 1;
                }
            }
            let mut bytes = [0; 2777];
            match read(&mut bytes) {
                Ok(len) => came.extend_from_slice(&bytes[..len]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(came == data && gone == LEN && blocked > 10, "{gone}");
        assert!(!stream.is_midway());
    }

    /// Two ends that do not wait, and take little.
    fn pair() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        set_socket_send_buffer_size(&ours, 8192).unwrap();
        (ours, theirs)
    }

    #[test]
    fn parts_leave_in_order_in_clear_and_through_tls() {
        let (ours, mut theirs) = pair();
        send(&mut Stream::Plain(ours.into()), |bytes| theirs.read(bytes));
        let (ours, theirs) = pair();
        let (ours, mut theirs) = sessions(ours, theirs);
        send(&mut Stream::secured(ours), |bytes| theirs.read(bytes));
    }

    /// The host reads close_notify and an end, and what it still sends is received and dropped.
    #[test]
    fn the_end_of_a_secured_stream_is_no_reset() {
        let (ours, theirs) = pair();
        let (ours, mut theirs) = sessions(ours, theirs);
        let (mut ours, mut room) = (Stream::secured(ours), [0; RECORD]);
        // On its way before the end.
        theirs.write(&[4; 100]).unwrap();
        ours.shut();
        assert_eq!(theirs.read(&mut room).unwrap(), 0);
        theirs.write(&[4; 3000]).unwrap();
        assert_eq!(ours.discard(&mut room).unwrap(), 100);
        assert_eq!(ours.discard(&mut room).unwrap(), 3000);
        theirs.close();
        drop(theirs);
        assert_eq!(ours.discard(&mut room).unwrap(), 0);
    }
}
