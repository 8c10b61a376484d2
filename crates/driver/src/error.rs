//! Errors between a host and a drive, and the next step for each.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nvme_spec::Status;
use vfio_user::ClientError;

use crate::pci_address::PciAddress;

/// Why a request to a drive was not done.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The controller did not answer in the time allowed.
    #[error(
        "{what} did not complete within {after:?}: the drive or its server may be stopped or overloaded; try again, or reset the controller"
    )]
    Timeout {
        /// The action that timed out.
        what: &'static str,
        /// The time allowed.
        after: Duration,
    },
    /// CSTS.CFS is set: the controller has a fatal error (Base 2.1, 3.1.4.6).
    #[error(
        "the controller reports a fatal error (CSTS {csts:#010x}); see its server's log, and reset it"
    )]
    ControllerFatal {
        /// The Controller Status property as read.
        csts: u32,
    },
    /// CSTS.SHST says that the controller has shut down, and CSTS.CFS that it failed: before the
    /// shutdown, or in it.
    #[error(
        "the controller has shut down and reports a fatal error (CSTS {csts:#010x}): the last writes may not be durable; see its server's log"
    )]
    ShutDownFatal {
        /// The Controller Status property as read.
        csts: u32,
    },
    /// The server has closed the connection; or a PCI function has been taken
    /// out, or the kernel asks for it back.
    #[error(
        "the drive is gone: its server closed the connection (see its log, restart it and reconnect), or it was removed or reclaimed by the system"
    )]
    Gone,
    /// A PCI function cannot be used.
    #[error("cannot use the drive at pci:{address}: {reason}")]
    Pci {
        /// The function.
        address: PciAddress,
        /// The reason, and the next step.
        reason: String,
    },
    /// A command was completed with an error.
    #[error("{command} failed: {status}")]
    Status {
        /// The command's name.
        command: &'static str,
        /// The status that the controller returned.
        status: Status,
    },
    /// The server refused a vfio-user request.
    #[error("the server rejected {what}: {}; see its log", io::Error::from_raw_os_error(*.errno))]
    Refused {
        /// The request.
        what: &'static str,
        /// Its error number.
        errno: i32,
    },
    /// The request is not possible with this drive.
    #[error("{0}")]
    Unsupported(String),
    /// The socket cannot be reached.
    #[error("cannot connect to {}: {}; check that the server is running, and that this user may open its socket", path.display(), why(error))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why not.
        error: ClientError,
    },
    /// The drive has another host.
    #[error("the drive has another host{}", of_process(*.host))]
    InUse {
        /// The socket.
        path: PathBuf,
        /// The other host's process, if the server reports it.
        host: Option<u32>,
    },
    /// A server took the connection and did not answer.
    #[error("the server at {} did not respond within {after:?}: the drive may have another host, or the server may be stopped", path.display())]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// The time allowed.
        after: Duration,
    },
    /// A target of NVMe over Fabrics cannot be reached, or refuses this host.
    #[error("cannot connect to nvme-tcp:{address}: {reason}")]
    Target {
        /// Its address.
        address: String,
        /// The reason, and the next step.
        reason: String,
        /// The reason as the system gives it, where it is the system's; permission denied where the
        /// target refuses the key of TLS.
        kind: Option<io::ErrorKind>,
    },
    /// A target has asked to end a connection (TCP 1.1, 3.6.2.4).
    #[error(
        "the target ended the connection: {name} (FES {fes:#04x}, FEI {fei:#x}); see its log, and report this as an error of one of the two programs"
    )]
    Terminated {
        /// Fatal Error Status.
        fes: u16,
        /// Its name.
        name: &'static str,
        /// Fatal Error Information.
        fei: u32,
    },
    /// The memory that the driver shares with the drive is full.
    #[error("no room for {wanted} bytes in the memory shared with the drive; increase memory_len")]
    NoMemory {
        /// Bytes asked for.
        wanted: usize,
    },
    /// The drive or its server violated the specification.
    #[error("the drive violates the specification: {0}; reset it before further use")]
    Broken(String),
    /// The system refused something the driver needs.
    #[error("cannot {what}: {source}")]
    System {
        /// The action that failed.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// Why there is no connection, in the words of the system where it is the reason.
fn why(source: &ClientError) -> String {
    match source {
        ClientError::Connect(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// The process of another host, for an error.
fn of_process(host: Option<u32>) -> String {
    host.map_or_else(String::new, |host| format!(" (process {host})"))
}

impl DriverError {
    /// Whether the error may disappear once another host of the drive has disconnected.
    #[must_use]
    pub fn may_have_host(&self) -> bool {
        matches!(self, Self::InUse { .. } | Self::NoAnswer { .. })
    }

    /// Whether no server listens on the drive's socket. A server that refuses, closes connections
    /// or may not be reached by this user is there.
    #[must_use]
    pub fn is_without_server(&self) -> bool {
        let kind = match self {
            Self::Connect {
                error: ClientError::Connect(error),
                ..
            } => Some(error.kind()),
            Self::Target { kind, .. } => *kind,
            _ => None,
        };
        matches!(
            kind,
            Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
        )
    }

    /// Whether a target refuses the key of TLS.
    pub(crate) fn is_refused_key(&self) -> bool {
        let denied = Some(io::ErrorKind::PermissionDenied);
        matches!(self, Self::Target { kind, .. } if *kind == denied)
    }

    /// Whether a command was refused, and has no effect later: by the controller, or by a target
    /// that does not connect its queue.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Status { .. } | Self::Target { .. })
    }

    /// The meaning of a failed vfio-user request.
    pub(crate) fn from_client(what: &'static str, error: ClientError, after: Duration) -> Self {
        match error {
            ClientError::Closed => Self::Gone,
            ClientError::Timeout => Self::Timeout { what, after },
            ClientError::Refused(errno) => Self::Refused {
                what,
                errno: i32::try_from(errno).unwrap_or(0),
            },
            other => Self::Broken(format!("{what}: {other}")),
        }
    }

    /// A command's status as a result.
    pub(crate) fn check(command: &'static str, status: Status) -> Result<(), Self> {
        if status.is_success() {
            Ok(())
        } else {
            Err(Self::Status { command, status })
        }
    }
}
