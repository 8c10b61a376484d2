//! Errors of opening a medium; each message names the remedy.

use std::io;
use std::path::PathBuf;

use driver::DriverError;

use crate::journal::StateError;
use crate::size::Bytes;

/// Reasons why [`crate::Medium::open`] fails.
#[derive(Debug, thiserror::Error)]
pub enum MediumError {
    /// Invalid timing.
    #[error(transparent)]
    Timing(#[from] model::ParameterError),
    /// Invalid zones.
    #[error("invalid zones: {what}")]
    Zones {
        /// The rule that the zones violate.
        what: &'static str,
    },
    /// The zones of a process that has ended cannot be continued with.
    #[error("cannot continue with its zones: {0}; start the server again")]
    KeptZones(#[from] crate::kept::KeptError),
    /// Vendor commands over a medium that is more than bytes, or over a drive.
    #[error("vendor commands lie over null, ram or file, without zones")]
    Vendor,
    /// The state of vendor commands could not be created, or is not one.
    #[error("cannot use the state of its vendor commands: {source}")]
    VendorState {
        /// The reason.
        source: io::Error,
    },
    /// A size of zero, or one that is no multiple of 512.
    #[error("size {} is not a positive multiple of 512 bytes: choose one that is", Bytes(*size))]
    Size {
        /// The size asked for, in bytes.
        size: u64,
    },
    /// The file's own length is not a valid medium size.
    #[error("'{}' is {} long, which is not a positive multiple of 512 bytes: {}", path.display(), Bytes(*size), remedy)]
    FileSize {
        /// The file or device.
        path: PathBuf,
        /// Its length in bytes.
        size: u64,
        /// The remedy.
        remedy: &'static str,
    },
    /// The file exists with another size than the configured one.
    #[error(
        "'{}' is {} long but {} is configured: correct the size, remove it, or move the file away to have a new one created",
        path.display(), Bytes(*actual), Bytes(*configured)
    )]
    SizeMismatch {
        /// The file or device.
        path: PathBuf,
        /// The size asked for, in bytes.
        configured: u64,
        /// The size found, in bytes.
        actual: u64,
    },
    /// The file does not exist and cannot be created without a size.
    #[error("'{}' does not exist: give a size to have it created, or correct the path", path.display())]
    Missing {
        /// The file that was looked for.
        path: PathBuf,
    },
    /// The file does not exist and was to be opened read-only.
    #[error("'{}' does not exist, and read_only = true creates nothing: correct the path, or remove read_only", path.display())]
    NothingToRead {
        /// The file that was looked for.
        path: PathBuf,
    },
    /// The file is read-only and was to be opened for writing.
    #[error(
        "'{}' is not writable: {reason}; make it writable, or serve it write protected with read_only = true",
        path.display()
    )]
    ReadOnly {
        /// The file or device.
        path: PathBuf,
        /// Reason for which it is read-only.
        reason: String,
    },
    /// The path names something that holds no blocks.
    #[error("'{}' is {}: a medium needs a regular file or a block device", path.display(), what)]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// The kind of object that it is, with its article.
        what: &'static str,
    },
    /// The file or device is in use.
    #[error(
        "'{}' is in use by {}: stop that user first (`fuser -v` on the path names it)",
        path.display(), match pid { Some(pid) => format!("process {pid}"), None => "another opener".to_owned() }
    )]
    Locked {
        /// The file or device.
        path: PathBuf,
        /// The process that holds the lock, if the kernel reports it. It does not for the locks of
        /// this program and QEMU, which belong to an open file rather than to a process.
        pid: Option<u32>,
    },
    /// Two servers are to use a block device in turn.
    #[error(
        "'{}' is a block device, which this server cannot hand over while it has it open: use a file, or remove migration = true from the controller",
        path.display()
    )]
    DeviceMigrates {
        /// The device.
        path: PathBuf,
    },
    /// `direct = "on"` is not possible.
    #[error("'{}' cannot be opened for direct I/O ({reason}): use direct = \"auto\" or \"off\"", path.display())]
    DirectRefused {
        /// The file or device.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// `poll_completions` is not possible.
    #[error("'{}' does not support polled I/O ({reason}): remove poll_completions", path.display())]
    PollRefused {
        /// The file or device.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The state that a file keeps in addition to its bytes, of zones or keys, cannot be used.
    #[error("'{}': {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: StateError,
    },
    /// The file would exceed this process's limit on file sizes.
    #[error(
        "cannot give '{}' a size of {}: the limit of file sizes of this process (RLIMIT_FSIZE) is {}; raise it (LimitFSIZE= of the service, ulimit -f) or choose a smaller size",
        path.display(), Bytes(*size), Bytes(*limit)
    )]
    FileSizeLimit {
        /// The file.
        path: PathBuf,
        /// The size asked for, in bytes.
        size: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The system refused an operation.
    #[error("cannot {what} '{}': {source}", path.display())]
    Io {
        /// The file or device.
        path: PathBuf,
        /// The operation, as a verb.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A drive cannot be opened, or is unsupported.
    #[error("the drive at {target} cannot be used: {source}")]
    Drive {
        /// Its configured address.
        target: String,
        /// Why not.
        source: DriverError,
    },
    /// Memory for a RAM medium could not be allocated.
    #[error("cannot allocate {} of memory: {source}; choose a smaller size", Bytes(*size))]
    Memory {
        /// The size asked for, in bytes.
        size: u64,
        /// The system's reason.
        source: io::Error,
    },
}
