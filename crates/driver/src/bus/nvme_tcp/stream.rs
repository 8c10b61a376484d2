//! The bytes of a connection: plain, or in records of TLS with the key of this host.

use std::io::{Error, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use authentication::{Generated, TlsKey};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tls::{Client, Failed, Progress, Psk, Session};
use zeroize::Zeroizing;

/// How the bytes of a connection are protected.
#[derive(Clone, Debug)]
pub(super) enum Channel {
    /// They are not.
    Plain,
    /// By TLS with the key of this host.
    Key(Arc<TlsKey>),
    /// By TLS with a key that this host and the controller have made.
    Generated(Arc<Generated>),
}

impl Channel {
    /// The name of the key, and the key; `None`: there is none.
    fn psk(&self, [hostnqn, subnqn]: [&str; 2]) -> Result<Option<(String, Psk)>, String> {
        let derived;
        let (name, psk) = match self {
            Self::Plain => return Ok(None),
            Self::Key(key) => {
                let key = key.of(hostnqn, subnqn);
                derived = key.ok_or("the NQNs are too long for a key of TLS")?;
                (&derived.0, &derived.1)
            }
            Self::Generated(generated) => (&generated.name, &generated.psk),
        };
        let psk = Psk {
            key: Zeroizing::new(psk.bytes().to_vec()),
            is_sha384: psk.is_sha384(),
        };
        Ok(Some((name.clone(), psk)))
    }

    /// Next step where a target does not take the key.
    fn next_step(&self) -> &'static str {
        match self {
            Self::Generated(_) => {
                "both sides have made its key, which the target does not have any more: connect again"
            }
            Self::Key(_) | Self::Plain => {
                "check that host NQN, subsystem NQN and key are the ones that the target has"
            }
        }
    }
}

/// Why a connection has no protection.
pub(super) struct Unprotected {
    /// Text for the user.
    pub(super) reason: String,
    /// The target has refused the key.
    pub(super) is_refused: bool,
}

/// See the module. It never blocks. After a write that would have, the next one begins with the
/// same bytes.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<Session>),
}

impl Stream {
    /// The stream of a socket that does not block, between this host and a subsystem.
    ///
    /// # Errors
    /// There is no key, or no handshake with it.
    pub(super) fn new(
        socket: TcpStream,
        channel: &Channel,
        names: [&str; 2],
        deadline: Instant,
    ) -> Result<Self, Unprotected> {
        let failed = |reason: String| Unprotected {
            reason,
            is_refused: false,
        };
        let refused = |reason: String| Unprotected {
            reason,
            is_refused: true,
        };
        let system = |error: Error| failed(error.to_string());
        let Some((identity, psk)) = channel.psk(names).map_err(failed)? else {
            return Ok(Self::Plain(socket));
        };
        let client = Client::new(identity.as_bytes(), psk).map_err(system)?;
        let mut session = Session::connect(&client, socket.into()).map_err(system)?;
        loop {
            let flags = match session.handshake() {
                Ok(Progress::Done) => return Ok(Self::Tls(Box::new(session))),
                Ok(Progress::WaitsForRead) => PollFlags::IN,
                Ok(Progress::WaitsForWrite) => PollFlags::OUT,
                Err(Failed::Closed) => {
                    return Err(refused(format!(
                        "the target closes the connection in the handshake of TLS; {}",
                        channel.next_step()
                    )));
                }
                Err(failed) => {
                    return Err(refused(format!(
                        "the handshake of TLS fails: {failed}; {}",
                        channel.next_step()
                    )));
                }
            };
            if !await_socket(session.as_fd(), flags, deadline).map_err(system)? {
                return Err(failed(format!(
                    "the handshake of TLS times out; {}",
                    channel.next_step()
                )));
            }
        }
    }

    /// The socket, where its bytes are those of the stream.
    pub(super) fn plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(_) => None,
        }
    }

    /// Whether bytes are there although the socket may have none.
    pub(super) fn has_pending(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(session) => session.pending() > 0,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(bytes),
            Self::Tls(session) => session.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(session) => session.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Tls(session) => session.as_fd(),
        }
    }
}

/// Waits until a socket is ready, or until the deadline: false, also if the socket is ready then. A
/// target that sends a byte now and then gets no more time than one that sends nothing.
pub(super) fn await_socket(
    socket: impl AsFd,
    flags: PollFlags,
    deadline: Instant,
) -> std::io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let left = Timespec::try_from(left).expect("a timeout fits in a timespec");
        match poll(&mut [PollFd::new(&socket, flags)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
