//! Causes of a controller's failure, as its log and its operator read them, and why one cannot be
//! restored.
//!
//! It does NOT fail a controller: [`super::lifecycle`] does.

use memory::{RingError, StateError};

use crate::config::ConfigError;
use crate::lane;
use crate::queue::QueueError;
use crate::state::{FORMAT_VERSION, OLDEST_VERSION};

/// Why a controller failed: CSTS.CFS is set, and its lanes stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The host enabled it with settings that it cannot have.
    #[error("the host enabled the controller with invalid settings: {0}")]
    Enable(#[from] EnableError),
    /// A client truncated memory that it shared.
    #[error("memory that the client shared was truncated: restart the client")]
    MemoryLost,
    /// The host unmapped a queue that it uses.
    #[error("memory under a queue in use was unmapped: reset the controller")]
    QueueLost,
    /// The client's message framing is lost.
    #[error("the client violated the protocol: restart the client")]
    ClientLost,
    /// The host did not send Keep Alive, or over fabrics anything, within the timeout that it had
    /// set.
    #[error("the host sent no Keep Alive command within its Keep Alive Timeout")]
    KeepAlive,
    /// A medium could not be flushed at a shutdown.
    #[error("a medium was not flushed before shutdown: see its errors above")]
    NotFlushed,
    /// The state that another process has left does not allow to continue, or its commands do not
    /// end.
    #[error("the controller cannot go on where the last process ended: reset the controller")]
    NotRestored,
    /// Another server has its medium, as before or after a migration.
    #[error(
        "another server has the controller's medium: attach to that one, or end it and reset the controller"
    )]
    Elsewhere,
}

/// An invalid setting that a controller was enabled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnableError {
    /// CC.MPS is not 0.
    #[error("CC.MPS is {0}: only 4 KiB pages (0) are supported")]
    PageSize(u8),
    /// CC.CSS is neither 000b nor 110b.
    #[error(
        "CC.CSS is {0}: the only supported values are the NVM command set (0) and all command sets (6)"
    )]
    CommandSet(u8),
    /// CC.AMS is neither 0 nor, where CAP.AMS offers that, 1.
    #[error(
        "CC.AMS is {0}: only round robin (0) is supported, and over PCIe weighted round robin with urgent priority class (1)"
    )]
    Arbitration(u8),
    /// CC.IOSQES is neither 6 nor unset.
    #[error("CC.IOSQES is {0}: submission queue entries must have 64 bytes (6)")]
    SqEntrySize(u8),
    /// CC.IOCQES is neither 4 nor unset.
    #[error("CC.IOCQES is {0}: completion queue entries must have 16 bytes (4)")]
    CqEntrySize(u8),
    /// AQA gives a queue of fewer than two entries.
    #[error("an admin queue has fewer than two entries")]
    QueueSize,
    /// ASQ or ACQ is not on a page boundary.
    #[error("ASQ or ACQ is not aligned to 4 KiB")]
    Misaligned,
    /// ASQ or ACQ is not in memory that the client mapped.
    #[error("ASQ or ACQ is not in memory that the host has mapped")]
    Unmapped,
    /// ASQ or ACQ is in memory that the client does not share.
    #[error(
        "ASQ or ACQ is in memory that the host does not share: start the virtual machine with memory-backend-memfd,share=on"
    )]
    NoDescriptor,
}

impl From<QueueError> for EnableError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Ring(RingError::Misaligned) => EnableError::Misaligned,
            QueueError::Ring(RingError::NoDescriptor) => EnableError::NoDescriptor,
            QueueError::Ring(_) => EnableError::Unmapped,
            _ => EnableError::QueueSize,
        }
    }
}

/// Why a controller cannot go on from what was saved.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The configuration is wrong, or is of another controller.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It was saved by another version of the program.
    #[error(
        "the saved state has format version {found}, and this program reads {OLDEST_VERSION} to {FORMAT_VERSION}"
    )]
    Version {
        /// The version that it has.
        found: u32,
    },
    /// An area of the file is missing or too small.
    #[error(transparent)]
    Area(#[from] StateError),
    /// A queue cannot be made.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// A lane cannot go on.
    #[error(transparent)]
    Lane(#[from] lane::RestoreError),
    /// It is dynamic: its association ended with the process.
    #[error("a controller over fabrics ends with its process: let its host connect again")]
    Dynamic,
    /// The saved state contradicts itself.
    #[error("the saved state of the controller is damaged: {0}")]
    Damaged(&'static str),
}
