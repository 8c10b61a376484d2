//! One connection: its handshake, and the records of its data.

use std::ffi::{CStr, c_int, c_ulong};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use crate::context::{Client, Context, Refused, Server, Side, set_side};
use crate::library::{Library, RawSession};

const ERROR_SSL: c_int = 1;
const ERROR_WANT_READ: c_int = 2;
const ERROR_WANT_WRITE: c_int = 3;
const ERROR_SYSCALL: c_int = 5;
const ERROR_ZERO_RETURN: c_int = 6;
// Reasons of <openssl/sslerr.h>.
const CERTIFICATE_VERIFY_FAILED: c_ulong = 134;
const PEER_DID_NOT_RETURN_A_CERTIFICATE: c_ulong = 199;
const BINDER_DOES_NOT_VERIFY: c_ulong = 253;
/// Bytes of data in one record at most.
pub const RECORD: usize = 16 << 10;

/// Why a session failed.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// No key has the name that the client offers.
    #[error("no key of that name is configured")]
    Identity,
    /// The client has another key.
    #[error("the other side has another key")]
    Key,
    /// The client has no certificate, or another one than it needs.
    #[error("{0}")]
    Certificate(String),
    /// The other side breaks a rule of TLS, or has found a fault.
    #[error("{0}")]
    Protocol(String),
    /// The other side has closed the connection.
    #[error("the other side closed it")]
    Closed,
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Io(io::Error),
}

/// How far a handshake has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is complete.
    Done,
    /// It goes on when the socket is readable.
    WaitsForRead,
    /// It goes on when the socket is writable.
    WaitsForWrite,
}

/// See the module. Its socket is non-blocking, and so is each call.
pub struct Session {
    raw: *mut RawSession,
    /// Of the handshake; this session's alone.
    side: *mut Side,
    context: std::sync::Arc<Context>,
    identity: Vec<u8>,
    /// Nothing can be sent any more.
    has_failed: bool,
    /// Behind the session, which uses it.
    socket: OwnedFd,
}

// SAFETY: the library lets a session be used by one thread after another, and its side has no part
// of a thread.
unsafe impl Send for Session {}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the session was made by SSL_new and is not used again; the side came from a box,
        // and only the session had a pointer to it.
        unsafe {
            (self.library().SSL_free)(self.raw);
            drop(Box::from_raw(self.side));
        }
    }
}

impl Session {
    /// The server's side of a connection that was accepted; its socket is non-blocking.
    ///
    /// # Errors
    /// There is no memory.
    pub fn accept(server: &Server, socket: OwnedFd) -> io::Result<Self> {
        let session = Self::new(server.context.clone(), server.side(), socket)?;
        // SAFETY: the session is valid.
        unsafe { (session.library().SSL_set_accept_state)(session.raw) };
        Ok(session)
    }

    /// The client's side of a connection; its socket is non-blocking.
    ///
    /// # Errors
    /// There is no memory.
    pub fn connect(client: &Client, socket: OwnedFd) -> io::Result<Self> {
        let session = Self::new(client.context.clone(), client.side(), socket)?;
        let library = session.library();
        // SAFETY: the session is valid, and the library copies the string.
        unsafe {
            (library.SSL_set_connect_state)(session.raw);
            if (library.SSL_set_ciphersuites)(session.raw, client.suite().as_ptr()) != 1 {
                return Err(io::Error::other(library.reason()));
            }
        }
        Ok(session)
    }

    fn new(context: std::sync::Arc<Context>, side: Side, socket: OwnedFd) -> io::Result<Self> {
        let library = context.library();
        // SAFETY: the context is valid; the session has a reference to it of its own.
        let raw = unsafe { (library.SSL_new)(context.raw()) };
        if raw.is_null() {
            return Err(io::Error::other(library.reason()));
        }
        let session = Self {
            raw,
            side: Box::into_raw(Box::new(side)),
            context,
            identity: Vec::new(),
            has_failed: false,
            socket,
        };
        // SAFETY: the session is valid, and its socket is open for as long as the session is.
        let has_socket = unsafe { (library.SSL_set_fd)(raw, session.socket.as_raw_fd()) } == 1;
        if has_socket && set_side(library, raw, session.side) {
            Ok(session)
        } else {
            Err(io::Error::other(library.reason()))
        }
    }

    fn library(&self) -> &'static Library {
        self.context.library()
    }

    /// Goes on with the handshake.
    ///
    /// # Errors
    /// It has failed; an alert was sent, where there is one for that.
    pub fn handshake(&mut self) -> Result<Progress, Failed> {
        let library = self.library();
        // SAFETY: the session is valid, and no reference to its side exists.
        let result = unsafe {
            (library.ERR_clear_error)();
            (library.SSL_do_handshake)(self.raw)
        };
        // SAFETY: the library does not use the side between two calls.
        let side = unsafe { &mut *self.side };
        if result == 1 {
            // SAFETY: the session is valid.
            let has_key = unsafe { (library.SSL_session_reused)(self.raw) } == 1;
            return match side.agreed.take() {
                Some((identity, _)) if has_key => {
                    self.identity = identity;
                    side.end();
                    Ok(Progress::Done)
                }
                None if side.may_have_no_key && !has_key => {
                    side.end();
                    Ok(Progress::Done)
                }
                _ => Err(Failed::Protocol("no key was agreed".into())),
            };
        }
        let refused = side.refused;
        if refused.is_some() {
            self.identity = std::mem::take(&mut side.offered);
        }
        match self.fault(result) {
            Fault::WantsRead => Ok(Progress::WaitsForRead),
            Fault::WantsWrite => Ok(Progress::WaitsForWrite),
            Fault::Failed(failed) => Err(match refused {
                Some(Refused::Unknown) => Failed::Identity,
                Some(Refused::AnotherKey) => Failed::Key,
                Some(Refused::Fault) => Failed::Protocol("the search for the key failed".into()),
                None => failed,
            }),
        }
    }

    /// The name of the key of both sides, after the handshake; or the name that was refused.
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// Reads data of one record: 0 bytes at the end of the stream, and `WouldBlock` where none are
    /// there. The next call reads the rest of a record.
    ///
    /// # Errors
    /// The session has failed.
    pub fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let library = self.library();
        let len = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
        // SAFETY: the session is valid, and `bytes` has room for `len` bytes.
        let read = unsafe {
            (library.ERR_clear_error)();
            (library.SSL_read)(self.raw, bytes.as_mut_ptr().cast(), len)
        };
        match usize::try_from(read) {
            Ok(read) if read > 0 => Ok(read),
            _ => match self.fault(read) {
                Fault::Failed(Failed::Closed) => Ok(0),
                fault => Err(fault.into()),
            },
        }
    }

    /// Bytes of a record that was read in part.
    #[must_use]
    pub fn pending(&self) -> usize {
        // SAFETY: the session is valid.
        let pending = unsafe { (self.library().SSL_pending)(self.raw) };
        usize::try_from(pending).unwrap_or(0)
    }

    /// Sends up to [`RECORD`] of these bytes as one record. After `WouldBlock` the next call begins
    /// with the same bytes.
    ///
    /// # Errors
    /// The session has failed.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let library = self.library();
        let len = c_int::try_from(bytes.len().min(RECORD)).unwrap_or(c_int::MAX);
        // SAFETY: the session is valid, and `bytes` has at least `len` bytes.
        let written = unsafe {
            (library.ERR_clear_error)();
            (library.SSL_write)(self.raw, bytes.as_ptr().cast(), len)
        };
        match usize::try_from(written) {
            Ok(written) if written > 0 => Ok(written),
            _ => Err(self.fault(written).into()),
        }
    }

    /// Says that no data follow, if the socket takes it.
    pub fn close(&mut self) {
        if !self.has_failed {
            let library = self.library();
            // SAFETY: the session is valid, and has not failed, as the library demands.
            unsafe {
                (library.ERR_clear_error)();
                (library.SSL_shutdown)(self.raw);
            }
        }
    }

    /// The rule of TLS that is broken.
    fn broken(&self) -> Failed {
        let library = self.library();
        match library.reason_of_tls() {
            Some(BINDER_DOES_NOT_VERIFY) => Failed::Key,
            Some(PEER_DID_NOT_RETURN_A_CERTIFICATE) => {
                Failed::Certificate("the client has no certificate".into())
            }
            Some(CERTIFICATE_VERIFY_FAILED) => {
                // SAFETY: the session is valid; the string is constant.
                let why = unsafe {
                    let result = (library.SSL_get_verify_result)(self.raw);
                    CStr::from_ptr((library.X509_verify_cert_error_string)(result))
                };
                let why = why.to_string_lossy();
                Failed::Certificate(format!("the client's certificate is refused: {why}"))
            }
            _ => Failed::Protocol(library.reason()),
        }
    }

    /// Meaning of a result.
    fn fault(&mut self, result: c_int) -> Fault {
        let system = io::Error::last_os_error();
        let library = self.library();
        // SAFETY: the session is valid, and this thread's last call was the one with this result.
        let error = unsafe { (library.SSL_get_error)(self.raw, result) };
        let failed = match error {
            ERROR_WANT_READ => return Fault::WantsRead,
            ERROR_WANT_WRITE => return Fault::WantsWrite,
            ERROR_ZERO_RETURN => return Fault::Failed(Failed::Closed),
            ERROR_SYSCALL => match system.kind() {
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Failed::Closed,
                _ if system.raw_os_error() == Some(0) => Failed::Closed,
                _ => Failed::Io(system),
            },
            ERROR_SSL => self.broken(),
            other => Failed::Protocol(format!("error {other} of the library")),
        };
        self.has_failed = true;
        Fault::Failed(failed)
    }
}

enum Fault {
    WantsRead,
    WantsWrite,
    Failed(Failed),
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::WantsRead | Fault::WantsWrite => io::ErrorKind::WouldBlock.into(),
            Fault::Failed(Failed::Io(error)) => error,
            Fault::Failed(Failed::Closed) => io::ErrorKind::ConnectionReset.into(),
            Fault::Failed(failed) => io::Error::new(io::ErrorKind::InvalidData, failed.to_string()),
        }
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?})", self.socket)
    }
}
