//! The vfio-user server: at most one session for each controller.
//!
//! [`Entrance`] is where connections come from, [`Caller`] a connection that has not agreed on a
//! version, [`Session`] one connected host, and [`Resumed`] one whose host a former process had.
//! The reading order is `session` (the reply to each message, and its time), `memory_map` (DMA_MAP
//! and DMA_UNMAP), `regions` (BARs and configuration space), `interrupts` (eventfds).
//!
//! Invariants:
//! - A session ends only when its host has gone, when it does not read its replies, or when the
//!   framing is lost. Every other mistake is answered with an errno, and the next message is read.
//! - Every reply is sent within 5 s of its request: QEMU waits that long before it gives up a
//!   device.
//! - The server sends no requests to the host (DMA_READ, DMA_WRITE): memory without a descriptor is
//!   not reached at all.
//!
//! Section names in comments are those of the "vfio-user Protocol Specification" (QEMU,
//! `docs/interop/vfio-user.rst`).

mod caller;
mod custody;
mod entrance;
mod hearing;
mod interrupts;
mod logging;
mod memory_map;
mod migration;
mod regions;
mod resume;
mod session;
mod waiting;

use std::sync::Arc;

pub use caller::{Caller, CallerEnd};
use controller::{ControllerConfig, DoorbellMode};
pub use custody::Custody;
pub use entrance::Entrance;
pub use hearing::ResumeError;
pub use resume::Resumed;
use rustix::io::Errno;
pub use session::{Moving, Session};
use vfio_user::ConnectionError;

/// The part of a controller's configuration that its sessions need.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Name of the controller in the log.
    pub name: String,
    /// Whether a host may map the doorbells.
    pub doorbells_mapped: bool,
    /// Interrupt vectors of MSI-X.
    pub vectors: u16,
    /// Messages of MSI.
    pub messages: u16,
    /// Whether there is an interrupt pin.
    pub intx: bool,
    /// Its media, where a host may move the controller to another server.
    pub custody: Option<Arc<dyn Custody>>,
}

impl SessionConfig {
    /// Configuration of the sessions of a controller with `config`.
    #[must_use]
    pub fn of(config: &ControllerConfig) -> Self {
        Self {
            name: config.name.clone(),
            doorbells_mapped: config.doorbells == DoorbellMode::Mapped,
            vectors: config.msix_vectors(),
            messages: config.messages(),
            intx: config.intx,
            custody: None,
        }
    }
}

/// Result of a poll of a session.
#[derive(Debug)]
pub struct Polled {
    /// Messages handled.
    pub messages: u32,
    /// Why the session is over, when it is: drop it, and reset its controller.
    pub ended: Option<SessionEnd>,
}

/// Why a session is over.
#[derive(Debug, thiserror::Error)]
pub enum SessionEnd {
    /// The host has closed its socket.
    #[error("it closed its socket")]
    Closed,
    /// A header announces an impossible size: where the next message starts is unknown.
    #[error("it sent an invalid message length: a header announced {size} bytes")]
    FramingLost {
        /// The size announced, in bytes.
        size: u32,
    },
    /// The host asks, but does not read the answers.
    #[error("it does not read the replies to its requests")]
    PeerDoesNotRead,
    /// The socket failed.
    #[error("its socket failed: {0}")]
    Io(std::io::Error),
}

impl From<ConnectionError> for SessionEnd {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::Closed => Self::Closed,
            ConnectionError::FramingLost { size } => Self::FramingLost { size },
            ConnectionError::Backlog => Self::PeerDoesNotRead,
            ConnectionError::Io(error) => Self::Io(error),
            // Replies are far below these limits.
            error @ (ConnectionError::TooManyDescriptors { .. }
            | ConnectionError::TooLong { .. }) => Self::Io(std::io::Error::other(error)),
        }
    }
}

/// The reply to a message, when it is not an errno. The body is in a separate buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// A reply.
    Reply,
    /// A reply with the descriptor of the doorbells.
    ReplyWithDoorbells,
    /// A reply later.
    Later(waiting::Until),
    /// None: it was no command.
    Nothing,
}

/// As the wire has it.
fn number(errno: Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}
