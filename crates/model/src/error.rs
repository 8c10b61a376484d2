//! Why a model could not be made or changed: each message says what would do.

use crate::parameter::InvalidParameter;

/// Parameters that make no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// Values out of their ranges, or that do not fit each other.
    #[error(transparent)]
    Invalid(#[from] InvalidParameter),
    /// More pages than a map can have.
    #[error(
        "a partition has {pages} pages with over-provisioning, and a map 4294967295 at most: give more partitions, or a smaller drive"
    )]
    TooManyPages {
        /// Pages of 4096 bytes in one partition.
        pages: u64,
    },
    /// No memory for what grows with the drive.
    #[error("there is no memory for {bytes} bytes of a model's map: make the drive smaller")]
    Memory {
        /// Bytes that one allocation asked for.
        bytes: u64,
    },
    /// A change, at run time, of what is laid down when a model is made.
    #[error("{name} cannot be changed while the model is in use: make a new one")]
    Fixed {
        /// Which parameter.
        name: &'static str,
    },
}
