//! The messages between a holder and its worker: requests of the worker, each with one reply.
//!
//! One message is one packet of a SEQPACKET socket, so none is ever half there: eight bytes (kind,
//! version and number), then fields of a type, a length and bytes. A reader skips fields of a type
//! that it does not know, so either side may be newer than the other.
//!
//! All numbers are little-endian. Descriptors travel beside a packet.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Version of these messages. One that a reader does not know is refused.
pub(crate) const VERSION: u16 = 1;
/// Length of the longest message, in bytes.
pub(crate) const MAX_LEN: usize = 8192;
/// Descriptors that one message carries at most.
pub(crate) const MAX_FDS: usize = 2;
const HEAD_LEN: usize = 8;

/// Kinds of messages. A reply has that of its request, and [`REPLY`].
pub(crate) mod kind {
    /// The first message of a worker.
    pub(crate) const HELLO: u16 = 1;
    /// Listen at a path, and give the connections.
    pub(crate) const LISTEN: u16 = 2;
    /// Close a path, and its connections.
    pub(crate) const CLOSE: u16 = 3;
    /// Keep a descriptor under a name.
    pub(crate) const KEEP: u16 = 4;
    /// Give the descriptor of a name back.
    pub(crate) const FETCH: u16 = 5;
    /// Forget the descriptor of a name.
    pub(crate) const FORGET: u16 = 6;
    /// The worker serves.
    pub(crate) const READY: u16 = 7;
    /// The worker ends, and is not to be replaced.
    pub(crate) const BYE: u16 = 8;
    /// Start another program, which waits to go on.
    pub(crate) const UPGRADE: u16 = 9;
    /// The worker is quiet: that program goes on.
    pub(crate) const HAND_OVER: u16 = 10;
    /// Tell the service manager; it shows that the worker lives, too.
    pub(crate) const NOTIFY: u16 = 11;
    /// Set in replies.
    pub(crate) const REPLY: u16 = 0x8000;
}

/// Types of fields.
pub(crate) mod field {
    /// A path or a name, as bytes.
    pub(crate) const NAME: u16 = 1;
    /// Permissions of a socket's file.
    pub(crate) const MODE: u16 = 2;
    /// Why a request is refused.
    pub(crate) const REFUSED: u16 = 3;
    /// Number of the worker, from 1.
    pub(crate) const GENERATION: u16 = 4;
    /// Cause of the last worker's end.
    pub(crate) const CAUSE: u16 = 5;
    /// When the worker before ended: nanoseconds of CLOCK_MONOTONIC.
    pub(crate) const ENDED: u16 = 6;
    /// The oldest format of a controller's state that a worker reads.
    pub(crate) const READS_FROM: u16 = 7;
    /// The format that it writes, which it reads, too.
    pub(crate) const WRITES: u16 = 8;
    /// Version of its program.
    pub(crate) const VERSION: u16 = 9;
    /// Notice for the service manager (sd_notify(3)).
    pub(crate) const STATE: u16 = 10;
    /// The descriptor lets a device reach memory of hosts.
    pub(crate) const DEVICE: u16 = 11;
}

/// Fault of a message.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Malformed {
    /// It ends within its head or within a field.
    #[error("a message of {0} bytes ends within a field")]
    Short(usize),
    /// It is of another version.
    #[error("a message has version {0}, and this program speaks version {VERSION}")]
    Version(u16),
    /// A number has another length than numbers have.
    #[error("field {0} has a wrong length")]
    Number(u16),
    /// More descriptors than a message may have.
    #[error("a message has more than {MAX_FDS} descriptors")]
    Descriptors,
}

/// A message.
#[derive(Debug, Default)]
pub(crate) struct Message {
    /// See [`kind`].
    pub(crate) kind: u16,
    /// Number of the request, repeated in its reply.
    pub(crate) number: u32,
    fields: Vec<(u16, Vec<u8>)>,
    /// Its descriptors.
    pub(crate) fds: ArrayVec<OwnedFd, MAX_FDS>,
}

impl Message {
    /// One without fields.
    pub(crate) fn new(kind: u16, number: u32) -> Self {
        Self {
            kind,
            number,
            ..Self::default()
        }
    }

    /// With another field.
    pub(crate) fn with(mut self, field: u16, bytes: &[u8]) -> Self {
        self.fields.push((field, bytes.to_vec()));
        self
    }

    /// The bytes of a field, where it is there.
    pub(crate) fn bytes(&self, field: u16) -> Option<&[u8]> {
        let mut fields = self.fields.iter();
        let (_, bytes) = fields.find(|(of, _)| *of == field)?;
        Some(bytes)
    }

    /// A field that is text; what is no UTF-8 is replaced.
    pub(crate) fn text(&self, field: u16) -> Option<String> {
        let bytes = self.bytes(field)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// A field that is a number.
    ///
    /// # Errors
    /// [`Malformed::Number`].
    pub(crate) fn number_in(&self, field: u16) -> Result<Option<u64>, Malformed> {
        let bytes = self.bytes(field);
        let number = bytes.map(|bytes| bytes.try_into().map(u64::from_le_bytes));
        number.transpose().map_err(|_| Malformed::Number(field))
    }

    /// The bytes of its packet.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.kind.to_le_bytes());
        out.extend(VERSION.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        for (field, bytes) in &self.fields {
            let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
            out.extend(field.to_le_bytes());
            out.extend(len.to_le_bytes());
            out.extend(&bytes[..usize::from(len)]);
        }
        out
    }

    /// Reads a packet, whose descriptors are `fds`.
    ///
    /// # Errors
    /// See [`Malformed`].
    pub(crate) fn decode(
        packet: &[u8],
        fds: ArrayVec<OwnedFd, MAX_FDS>,
    ) -> Result<Self, Malformed> {
        let short = || Malformed::Short(packet.len());
        let (head, mut rest) = packet.split_at_checked(HEAD_LEN).ok_or_else(short)?;
        let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        if half(2) != VERSION {
            return Err(Malformed::Version(half(2)));
        }
        let mut message = Self {
            kind: half(0),
            number: u32::from(half(4)) | u32::from(half(6)) << 16,
            fields: Vec::new(),
            fds,
        };
        while !rest.is_empty() {
            let (head, after) = rest.split_at_checked(4).ok_or_else(short)?;
            let len = usize::from(u16::from_le_bytes([head[2], head[3]]));
            let (bytes, after) = after.split_at_checked(len).ok_or_else(short)?;
            let field = u16::from_le_bytes([head[0], head[1]]);
            message.fields.push((field, bytes.to_vec()));
            rest = after;
        }
        Ok(message)
    }
}

/// Sends a message; false where the peer does not take it now.
///
/// # Errors
/// The peer is gone, or the system's.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &Message,
    fds: &[BorrowedFd<'_>],
) -> io::Result<bool> {
    let packet = message.encode();
    let parts = [IoSlice::new(&packet)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        return match sendmsg(socket, &parts, &mut control, flags) {
            Ok(_) => Ok(true),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno.into()),
        };
    }
}

/// The next item on a socket.
#[derive(Debug)]
pub(crate) enum Received {
    /// Nothing yet.
    Nothing,
    /// The peer has closed it.
    End,
    /// A message, or what is wrong with it.
    Message(Result<Message, Malformed>),
}

/// Receives the next message. Never blocks.
///
/// # Errors
/// The system's.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Received> {
    let mut packet = [0; MAX_LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut packet)];
        match recvmsg(&socket, &mut parts, &mut control, flags) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(Errno::CONNRESET) => return Ok(Received::End),
            Err(errno) => return Err(errno.into()),
        }
    };
    let mut fds = ArrayVec::new();
    let mut is_whole = !received.flags.contains(ReturnFlags::CTRUNC);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(arrived) = message {
            for fd in arrived {
                is_whole &= fds.try_push(fd).is_ok();
            }
        }
    }
    if received.bytes == 0 {
        return Ok(Received::End);
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Ok(Received::Message(Err(Malformed::Short(MAX_LEN))));
    }
    if !is_whole {
        return Ok(Received::Message(Err(Malformed::Descriptors)));
    }
    let message = Message::decode(&packet[..received.bytes], fds);
    Ok(Received::Message(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(packet: &[u8]) -> Result<Message, Malformed> {
        Message::decode(packet, ArrayVec::new())
    }

    #[test]
    fn a_message_is_these_bytes() {
        let message = Message::new(kind::LISTEN, 0x0102_0304)
            .with(field::NAME, b"/tmp/n")
            .with(field::MODE, &0o600_u64.to_le_bytes());
        let bytes = [
            2, 0, 1, 0, 4, 3, 2, 1, 1, 0, 6, 0, b'/', b't', b'm', b'p', b'/', b'n', 2, 0, 8, 0,
            0x80, 1, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(message.encode(), bytes);
        let read = decode(&bytes).unwrap();
        assert_eq!((read.kind, read.number), (kind::LISTEN, 0x0102_0304));
        assert_eq!(read.bytes(field::NAME), Some(b"/tmp/n".as_slice()));
        assert_eq!(read.number_in(field::MODE), Ok(Some(0o600)));
        assert_eq!(read.number_in(field::NAME), Err(Malformed::Number(1)));
        assert_eq!(read.bytes(field::CAUSE), None);
        for len in 0..bytes.len() {
            let whole = [8, 18].contains(&len);
            assert_eq!(decode(&bytes[..len]).is_ok(), whole, "{len}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_packet_panics_and_what_is_read_is_written_alike(
            packet in proptest::collection::vec(proptest::num::u8::ANY, 0..64),
            versioned in proptest::bool::ANY,
        ) {
            let mut packet = packet;
            if versioned && packet.len() >= 4 {
                packet[2..4].copy_from_slice(&VERSION.to_le_bytes());
            }
            if let Ok(message) = decode(&packet) {
                proptest::prop_assert_eq!(message.encode(), packet);
            }
        }
    }

    #[test]
    fn another_version_is_refused_and_an_unknown_field_is_skipped() {
        let mut bytes = Message::new(kind::HELLO, 1).encode();
        bytes.extend([99, 0, 1, 0, 7]);
        let read = decode(&bytes).unwrap();
        assert_eq!(read.text(field::CAUSE), None);
        bytes[2] = 2;
        assert_eq!(decode(&bytes).unwrap_err(), Malformed::Version(2));
    }

    #[test]
    fn a_packet_that_is_too_long_is_refused() {
        let (one, other) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        rustix::io::write(&one, &[0; MAX_LEN + 1]).unwrap();
        let received = receive(&other).unwrap();
        assert!(matches!(
            received,
            Received::Message(Err(Malformed::Short(MAX_LEN)))
        ));
        assert!(matches!(receive(&other).unwrap(), Received::Nothing));
        drop(one);
        assert!(matches!(receive(&other).unwrap(), Received::End));
    }
}
