//! The listening socket of one controller, as a file with mode 0600.
//!
//! A socket's file outlives a killed process, so a file at the path may be stale, or belong to a
//! live server. Invariants:
//! - Of several processes that bind one path at the same time, one succeeds: each holds a lock on
//!   `PATH.lock` for as long as it listens, and inspects `PATH` only while it does.
//! - Only a socket that refuses connections is ever replaced, and at the end only our own file is
//!   removed.
//! - The file has its mode before any client can connect.
//!
//! It does not decide how many hosts are served at a time: the kernel queues those that are not
//! accepted.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Hosts that may wait to be accepted.
const BACKLOG: i32 = 16;
/// Tries to lock a file that others remove meanwhile.
const LOCK_TRIES: u32 = 64;
/// The longest path of a socket, in bytes: the kernel's address holds 108 with a terminating NUL.
const MAX_PATH_LEN: usize = 107;

/// Why a path cannot be listened at.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A process that lives has the socket.
    #[error("the socket {path} is in use by another process: stop it, or choose another path")]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// There is something that is no socket, which is left alone.
    #[error("{path} exists and is not a socket: remove it, or choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The folder does not exist.
    #[error("the folder of the socket {path} does not exist: create {parent}")]
    NoParent {
        /// The path.
        path: PathBuf,
        /// Its folder.
        parent: PathBuf,
    },
    /// The path is too long for a socket's address.
    #[error("the path {path} has {len} bytes: a socket path has at most {MAX_PATH_LEN}")]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length, in bytes.
        len: usize,
    },
    /// The path names no file: it is empty, or ends in `..`, or holds a NUL.
    #[error("\"{path}\" names no file: write the path of a socket")]
    NoName {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {action} {path}: {source}")]
    System {
        /// The action that failed.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A socket that hosts connect to. Its file goes with it.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Identity of our file: another process may have replaced it.
    identity: Identity,
    /// Held to the end: dropped after the socket's file is removed.
    _lock: Lock,
}

/// Identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

impl Listener {
    /// Listens at `path`. A socket that a dead process left there is replaced.
    ///
    /// # Errors
    /// [`BindError`]; each says what to do. Nothing has changed then.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let address = address_of(path)?;
        let lock = Lock::take(path)?;
        clear(path, &address)?;
        let (socket, identity) =
            listen(path, &address).map_err(|errno| refused("listen on", path, errno))?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            identity,
            _lock: lock,
        })
    }

    /// Lets users connect that `mode` gives write permission: of the socket's group, or all. Until
    /// then its owner alone may.
    ///
    /// # Errors
    /// [`BindError::System`].
    pub fn open_to(&self, mode: u32) -> Result<(), BindError> {
        let mode = rustix::fs::Mode::from_raw_mode(mode);
        rustix::fs::chmod(&self.path, mode)
            .map_err(|errno| refused("set the mode of", &self.path, errno))
    }

    /// Takes the next host, if one waits. Never blocks.
    ///
    /// # Errors
    /// The system's, mostly that the process has too many descriptors.
    pub fn accept(&self) -> io::Result<Option<UnixStream>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            return match rustix::net::accept_with(&self.socket, flags) {
                Ok(socket) => Ok(Some(socket.into())),
                Err(Errno::AGAIN) => Ok(None),
                // The second: a host has gone while it waited.
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => Err(errno.into()),
            };
        }
    }

    /// The path to which hosts connect.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ours = identity_at(&self.path).is_ok_and(|identity| identity == self.identity);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!("cannot remove the socket {}: {error}", self.path.display());
        }
    }
}

fn refused(action: &'static str, path: &Path, errno: Errno) -> BindError {
    BindError::System {
        action,
        path: path.to_owned(),
        source: errno.into(),
    }
}

fn address_of(path: &Path) -> Result<SocketAddrUnix, BindError> {
    let len = path.as_os_str().len();
    let path = path.to_owned();
    if len > MAX_PATH_LEN {
        return Err(BindError::TooLong { path, len });
    }
    if path.file_name().is_none() {
        return Err(BindError::NoName { path });
    }
    SocketAddrUnix::new(&path).map_err(|_| BindError::NoName { path })
}

fn identity_at(path: &Path) -> Result<Identity, Errno> {
    let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(Identity::of(&stat))
}

/// Makes sure that `path` does not exist. The lock on it is held.
fn clear(path: &Path, address: &SocketAddrUnix) -> Result<(), BindError> {
    let stat = match rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(refused("inspect", path, errno)),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        let path = path.to_owned();
        return Err(BindError::NotASocket { path });
    }
    if !is_stale(address).map_err(|errno| refused("inspect", path, errno))? {
        let path = path.to_owned();
        return Err(BindError::InUse { path });
    }
    rustix::fs::unlink(path).map_err(|errno| refused("replace", path, errno))
}

/// Whether the socket's process is gone. A server that does not use our lock may be alive, so this
/// connects to it.
fn is_stale(address: &SocketAddrUnix) -> Result<bool, Errno> {
    let probe = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?;
    // Anything else than a refusal (a full queue, another type of socket, no permission) is a
    // process's doing.
    Ok(rustix::net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}

fn listen(path: &Path, address: &SocketAddrUnix) -> Result<(OwnedFd, Identity), Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?;
    // Linux gives the file the mode of the socket, less the umask: there is no moment with another
    // mode.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, address)?;
    let listening = identity_at(path).and_then(|identity| {
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(identity)
    });
    if listening.is_err() {
        // The first error is the one to report.
        let _ = rustix::fs::unlink(path);
    }
    Ok((socket, listening?))
}

/// The right to bind one path: a lock on a file beside it, which the system releases when the
/// process ends.
#[derive(Debug)]
struct Lock {
    file: OwnedFd,
    path: PathBuf,
}

impl Lock {
    fn take(socket: &Path) -> Result<Self, BindError> {
        let mut name = OsString::from(socket);
        name.push(".lock");
        let path = PathBuf::from(name);
        for _ in 0..LOCK_TRIES {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => file,
                Err(Errno::NOENT | Errno::NOTDIR) => return Err(no_parent(socket)),
                Err(errno) => return Err(refused("create the lock", &path, errno)),
            };
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let path = socket.to_owned();
                    return Err(BindError::InUse { path });
                }
                Err(errno) => return Err(refused("lock", &path, errno)),
            }
            // A process that ended meanwhile has removed the file that we locked; another may have
            // made a new one.
            let locked = rustix::fs::fstat(&file).map(|stat| Identity::of(&stat));
            if locked.is_ok() && locked == identity_at(&path) {
                return Ok(Self { file, path });
            }
        }
        let path = socket.to_owned();
        Err(BindError::InUse { path })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let locked = rustix::fs::fstat(&self.file).map(|stat| Identity::of(&stat));
        // Removed while it is locked, so that no other process's is.
        if locked.is_ok()
            && locked == identity_at(&self.path)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!("cannot remove the lock {}: {error}", self.path.display());
        }
    }
}

fn no_parent(path: &Path) -> BindError {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    BindError::NoParent {
        path: path.to_owned(),
        parent: parent.to_owned(),
    }
}
