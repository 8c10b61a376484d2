//! Why a front end's connection ends.

use std::io;

use vhost_user::Fault;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// The front end has closed it.
    #[error("the front end closed it")]
    Closed,
    /// The front end has broken a rule of the protocol.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// It asked for something that cannot be, and takes no reply that says so.
    #[error("{0}")]
    Refused(&'static str),
    /// It does not read what it is sent.
    #[error("the front end does not read what it is sent")]
    DoesNotRead,
    /// The namespace was formatted otherwise, or is not there any more.
    #[error("its namespace is not what it was")]
    Changed,
    /// A medium does not end a command, and has its memory.
    #[error("a medium does not end a command, and has its memory")]
    MediumHangs,
    /// The controller has failed, or did not become ready in time.
    #[error("its controller has failed")]
    Controller,
    /// There is another front end.
    #[error("there is another front end")]
    Taken,
    /// There is not exactly one namespace with blocks that could be served.
    #[error("there is not exactly one namespace with blocks")]
    NoDisk,
    /// The operator has ended it, or the device is being removed.
    #[error("the operator ended it")]
    Removed,
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Io(io::Error),
}

impl End {
    /// A short name, for counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Fault(fault) => fault.name(),
            Self::Refused(_) => "refused",
            Self::DoesNotRead => "does-not-read",
            Self::Changed => "changed",
            Self::MediumHangs => "medium-hangs",
            Self::Controller => "controller",
            Self::Taken => "taken",
            Self::NoDisk => "no-disk",
            Self::Removed => "removed",
            Self::Io(_) => "io",
        }
    }
}
