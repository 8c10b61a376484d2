//! Media that two servers use in turn: the lock is released and taken while the file stays open.

use std::io;

use super::{Backing, Medium};
use crate::error::MediumError;

impl Medium {
    /// Whether two servers can use it in turn: a regular file.
    #[must_use]
    pub fn may_migrate(&self) -> bool {
        matches!(&self.backing, Backing::File(file) if !file.is_block_device())
    }

    /// Device and inode of its file, which no other file of this machine has; `None` for other
    /// media.
    ///
    /// # Errors
    /// The system's.
    pub fn file_id(&self) -> io::Result<Option<(u64, u64)>> {
        match &self.backing {
            Backing::File(file) => file.id().map(Some),
            _ => Ok(None),
        }
    }

    /// Whether this process may use it. False while another server has the lock of its file
    /// ([`crate::FileIo::migrates`]): then no request may be added to any channel, and nothing be
    /// erased.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match &self.backing {
            Backing::File(file) => file.is_held(),
            _ => true,
        }
    }

    /// Releases the lock, for another server. Nothing is in flight, and what was written is durable
    /// ([`Medium::sync`]). Does not wait, except for the server of a network file system. Other
    /// media than files stay as they are.
    pub fn release(&self) {
        if let Backing::File(file) = &self.backing {
            file.release();
        }
    }

    /// Takes the lock. Does not wait for another holder of it.
    ///
    /// # Errors
    /// [`MediumError::Locked`]; [`MediumError::SizeMismatch`] where the file has another length by
    /// now. The lock is released then.
    pub fn claim(&self) -> Result<(), MediumError> {
        match &self.backing {
            Backing::File(file) => file.claim(),
            _ => Ok(()),
        }
    }
}
