//! Memory of a medium that outlives the process, so that another one continues with it.

use std::io;
use std::os::fd::OwnedFd;

/// Where a medium has something that is in memory only.
#[derive(Debug)]
pub(crate) enum Kept {
    /// In memory of this process.
    No,
    /// In a new file, with which another process may continue.
    New,
    /// In this file of another process, which has ended.
    Of(OwnedFd),
}

impl Kept {
    /// In a file: in that of another process, if there was one.
    pub(crate) fn file(file: Option<OwnedFd>) -> Self {
        file.map_or(Kept::New, Kept::Of)
    }
}

/// The files that a process which has ended has left of a medium ([`crate::Medium::open_kept`]);
/// `None` where it had none.
#[derive(Debug, Default)]
pub struct KeptFiles {
    /// Of the bytes of a medium in memory ([`crate::Medium::memory_file`]).
    pub memory: Option<OwnedFd>,
    /// Of the state of its zones ([`crate::Medium::zones_file`]).
    pub zones: Option<OwnedFd>,
}

/// Why zones cannot be continued with.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// It cannot be read or mapped.
    #[error(transparent)]
    File(#[from] memory::OpenError),
    /// It is too small.
    #[error(transparent)]
    Area(#[from] memory::StateError),
    /// It cannot be created.
    #[error("cannot allocate it: {0}")]
    Io(#[from] io::Error),
    /// Another version of the program has written it.
    #[error("its format version is {found}, and this program reads version {read}")]
    Version {
        /// The version found.
        found: u32,
        /// The version that this program reads.
        read: u32,
    },
    /// They are zones of another medium.
    #[error("its zones have another size or number than the configured ones")]
    Differs,
    /// A zone is in a state that cannot be.
    #[error("zone {zone} has a state that cannot be")]
    Damaged {
        /// Number of the zone.
        zone: u32,
    },
}
