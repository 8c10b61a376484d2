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

/// A vector of `count` zeros of `T`, or the error that there is no memory for it. Memory is asked
/// for apart, as `vec!` would abort; a large one is then memory that was never touched.
pub(crate) fn zeros<T: Clone + Default>(count: usize) -> Result<Vec<T>, ParameterError> {
    let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
    Vec::<T>::new()
        .try_reserve_exact(count)
        .map_err(|_| ParameterError::Memory { bytes })?;
    Ok(vec![T::default(); count])
}
