//! Why a connection ends.

use std::io;

use nbd::Fault;

use crate::secure::{NoSession, name_of};

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// The client has closed it, or has asked for that.
    #[error("the client closed it")]
    Closed,
    /// The client has asked to leave before it has chosen an export.
    #[error("the client left without an export")]
    Left,
    /// The client has broken a rule of the protocol.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// No export was chosen in time.
    #[error("the client has chosen no export in time")]
    Silent,
    /// The data of a request did not come in time.
    #[error("the data of a request did not come in time")]
    SlowData,
    /// The client does not read what it is sent.
    #[error("the client does not read what it is sent")]
    DoesNotRead,
    /// A long read has failed behind a reply that had begun.
    #[error("a read has failed whose reply had begun")]
    ReadFailed,
    /// The namespace was formatted otherwise, or is not there any more.
    #[error("its export is not what it was")]
    Changed,
    /// A medium does not end a command, and has its memory.
    #[error("a medium does not end a command, and has its memory")]
    MediumHangs,
    /// The controller has failed, or did not become ready in time.
    #[error("its controller has failed")]
    Controller,
    /// There are as many clients as there may be.
    #[error("there are as many clients as `clients` allows")]
    TooManyClients,
    /// The operator has ended it, or the export is being removed.
    #[error("the operator ended it")]
    Removed,
    /// TLS failed.
    #[error("TLS failed: {0}")]
    Tls(tls::Failed),
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
            Self::Left => "left",
            Self::Fault(fault) => fault.name(),
            Self::Silent => "silent",
            Self::SlowData => "slow-data",
            Self::DoesNotRead => "does-not-read",
            Self::ReadFailed => "read-failed",
            Self::Changed => "changed",
            Self::MediumHangs => "medium-hangs",
            Self::Controller => "controller",
            Self::TooManyClients => "too-many-clients",
            Self::Removed => "removed",
            Self::Tls(failed) => name_of(failed),
            Self::Io(_) => "io",
        }
    }
}

impl From<NoSession> for End {
    fn from(none: NoSession) -> Self {
        match none {
            NoSession::Failed(failed) => failed.into(),
            NoSession::Late => Self::Silent,
        }
    }
}

impl From<tls::Failed> for End {
    fn from(failed: tls::Failed) -> Self {
        match failed {
            tls::Failed::Closed => Self::Closed,
            tls::Failed::Io(error) => Self::Io(error),
            other => Self::Tls(other),
        }
    }
}
