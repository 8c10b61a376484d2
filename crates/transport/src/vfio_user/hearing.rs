//! How a holder's account of a host that a former process had is read.

use std::io;
use std::os::fd::AsFd;

use memory::OpenError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vfio_user::{Command, Connection, ConnectionError, Message};

/// How long the holder may take for its next message.
const PATIENCE: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// Why a host's session cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The connection ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// A call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The holder is silent.
    #[error("the holder sent nothing for {} s", PATIENCE.tv_sec)]
    Silent,
    /// A message where another one must be.
    #[error("the holder sent an unexpected {0}")]
    Unexpected(Command),
    /// A message that this process cannot apply, though the former one has.
    #[error("cannot apply a {command} of the host again: {errno}")]
    Refused {
        /// The message.
        command: Command,
        /// The reason, as a host would get it.
        errno: Errno,
    },
    /// The state is not what a controller leaves.
    #[error(transparent)]
    State(#[from] OpenError),
}

/// The result of `handle` for the next message, for which this waits.
pub(super) fn hear<T>(
    connection: &mut Connection,
    handle: impl FnOnce(Message<'_>) -> T,
) -> Result<T, ResumeError> {
    loop {
        if let Some(message) = connection.receive()? {
            return Ok(handle(message));
        }
        wait(connection)?;
    }
}

fn wait(connection: &Connection) -> Result<(), ResumeError> {
    let socket = connection.as_fd();
    loop {
        let mut polled = [PollFd::new(&socket, PollFlags::IN)];
        return match poll(&mut polled, Some(&PATIENCE)) {
            Ok(0) => Err(ResumeError::Silent),
            Ok(_) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(errno) => Err(io::Error::from(errno).into()),
        };
    }
}
