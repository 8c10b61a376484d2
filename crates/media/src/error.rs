//! Why a medium could not be opened: each message says what to do.

use std::io;
use std::path::PathBuf;

use driver::DriverError;

use crate::journal::StateError;
use crate::size::Bytes;

/// Why [`crate::Medium::open`] refused.
#[derive(Debug, thiserror::Error)]
pub enum MediumError {
    /// A timing that cannot be.
    #[error(transparent)]
    Timing(#[from] model::ParameterError),
    /// Zones that cannot be.
    #[error("invalid zones: {what}")]
    Zones {
        /// What holds for zones.
        what: &'static str,
    },
    /// A size of zero, or one that is no multiple of 512.
    #[error("size {} is not a positive multiple of 512 bytes: choose one that is", Bytes(*size))]
    Size {
        /// The size asked for, in bytes.
        size: u64,
    },
    /// The file's own length cannot be a medium's size.
    #[error("'{}' is {} long, which is not a positive multiple of 512 bytes: {}", path.display(), Bytes(*size), remedy)]
    FileSize {
        /// The file or device.
        path: PathBuf,
        /// Its length in bytes.
        size: u64,
        /// What to do about it.
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
    /// The file does not exist, and without a size it cannot be made.
    #[error("'{}' does not exist: give a size to have it created, or correct the path", path.display())]
    Missing {
        /// The file that was looked for.
        path: PathBuf,
    },
    /// It was to be opened for reading alone, and there is nothing to read.
    #[error("'{}' does not exist, and read_only = true creates nothing: correct the path, or remove read_only", path.display())]
    NothingToRead {
        /// The file that was looked for.
        path: PathBuf,
    },
    /// It takes no writes, and was to be opened for them.
    #[error(
        "'{}' is not writable: {reason}; make it writable, or serve it write protected with read_only = true",
        path.display()
    )]
    ReadOnly {
        /// The file or device.
        path: PathBuf,
        /// Who says so.
        reason: String,
    },
    /// The path names something that holds no blocks.
    #[error("'{}' is {}: a medium needs a regular file or a block device", path.display(), what)]
    NotAFile {
        /// What was named.
        path: PathBuf,
        /// What it is, with its article.
        what: &'static str,
    },
    /// Somebody else has the file or device open.
    #[error(
        "'{}' is in use by {}: stop that user first (`fuser -v` on the path names it)",
        path.display(), match pid { Some(pid) => format!("process {pid}"), None => "another opener".to_owned() }
    )]
    Locked {
        /// The file or device.
        path: PathBuf,
        /// Who holds it, where the kernel says (it does not for the locks that this program
        /// and QEMU take, which belong to an open file and not to a process).
        pid: Option<u32>,
    },
    /// `direct = "on"` was asked for and cannot be had.
    #[error("'{}' cannot be opened for direct I/O ({reason}): use direct = \"auto\" or \"off\"", path.display())]
    DirectRefused {
        /// The file or device.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// `poll_completions` was asked for and cannot be had.
    #[error("'{}' does not support polled I/O ({reason}): remove poll_completions", path.display())]
    PollRefused {
        /// The file or device.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The state that a file has beside the bytes, of zones or keys, cannot be taken.
    #[error("'{}': {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: StateError,
    },
    /// The file would be larger than this process may make one.
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
    /// A drive cannot be opened, or is none for this.
    #[error("the drive at {target} cannot be used: {source}")]
    Drive {
        /// How it was named.
        target: String,
        /// Why not.
        source: DriverError,
    },
    /// The memory for a RAM medium could not be had.
    #[error("cannot allocate {} of memory: {source}; choose a smaller size", Bytes(*size))]
    Memory {
        /// The size asked for, in bytes.
        size: u64,
        /// The system's reason.
        source: io::Error,
    },
}
