//! Why the server's side of a device ends.

use std::io;

use rustix::io::Errno;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// The driver has taken all tags away: the device was stopped.
    #[error("the device was stopped")]
    Stopped,
    /// The driver has refused a command.
    #[error("the kernel's ublk driver refused a command: {0}")]
    Refused(Errno),
    /// The driver has given a request to a tag that has one, or that there is not.
    #[error("the kernel's ublk driver gave a request to tag {0}, which has one or is not there")]
    Tag(u16),
    /// The namespace was formatted otherwise, or is not there any more.
    #[error("its namespace is not what it was")]
    Changed,
    /// A medium does not end a command, and has its memory.
    #[error("a medium does not end a command, and has its memory")]
    MediumHangs,
    /// The controller has failed, or did not become ready in time.
    #[error("its controller has failed")]
    Controller,
    /// There is another device.
    #[error("there is another device")]
    Taken,
    /// The operator has ended it, or the device is being removed.
    #[error("the operator ended it")]
    Removed,
    /// The ring cannot be used.
    #[error("its io_uring failed: {0}")]
    Io(io::Error),
}

impl End {
    /// A short name, for counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Refused(_) | Self::Tag(_) => "refused",
            Self::Changed => "changed",
            Self::MediumHangs => "medium-hangs",
            Self::Controller => "controller",
            Self::Taken => "taken",
            Self::Removed => "removed",
            Self::Io(_) => "io",
        }
    }
}
