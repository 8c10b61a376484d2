//! The first bytes of a connection that may begin with a handshake. They stay in the socket.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tls::{Failed, RECORD};

/// Content type of a TLS record that has a message of a handshake.
pub(crate) const HANDSHAKE: u8 = 22;
/// Bytes before the data of a TLS record: content type, version, length.
const HEADER: usize = 5;
/// Bytes before the body of a message of a handshake: type, length.
const MESSAGE_HEADER: usize = 4;
const CLIENT_HELLO: u8 = 1;

/// The first bytes of a connection, which stay there: their number, 0 where nothing has come.
pub(crate) fn peek(socket: impl AsFd, bytes: &mut [u8]) -> Result<usize, Failed> {
    match rustix::net::recv(socket, bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Err(Failed::Closed),
        Ok((_, len)) => Ok(len),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(Errno::CONNRESET | Errno::PIPE) => Err(Failed::Closed),
        Err(errno) => Err(Failed::Io(errno.into())),
    }
}

/// Whether a connection has sent a whole ClientHello. Clients send it as one record.
pub(crate) fn has_hello(socket: impl AsFd) -> Result<bool, Failed> {
    let mut head = [0; HEADER + MESSAGE_HEADER];
    if peek(&socket, &mut head)? < head.len() {
        return Ok(false);
    }
    let [_, _, _, high, low, kind, message @ ..] = head;
    let record = usize::from(u16::from_be_bytes([high, low]));
    let message = message
        .iter()
        .fold(0, |len, byte| len << 8 | usize::from(*byte));
    if kind != CLIENT_HELLO || record > RECORD || record != MESSAGE_HEADER + message {
        return Err(Failed::Protocol("no ClientHello in one record".into()));
    }
    let there = rustix::io::ioctl_fionread(socket).map_err(|errno| Failed::Io(errno.into()))?;
    Ok(there >= (HEADER + record) as u64)
}
