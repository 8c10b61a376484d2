//! Errors of creating or changing a model; each message names the remedy.

use crate::parameter::InvalidParameter;

/// Invalid parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// Values out of their ranges, or inconsistent ones.
    #[error(transparent)]
    Invalid(#[from] InvalidParameter),
    /// A partition has more pages than a map can have.
    #[error(
        "a partition has {pages} pages with over-provisioning, and a map 4294967295 at most: give more partitions, or a smaller drive"
    )]
    TooManyPages {
        /// Pages of 4096 bytes in one partition.
        pages: u64,
    },
    /// Not enough memory for tables that grow with the drive.
    #[error("there is no memory for {bytes} bytes of a model's map: make the drive smaller")]
    Memory {
        /// Size of the failed allocation in bytes.
        bytes: u64,
    },
    /// A change at run time of a parameter that is fixed at creation.
    #[error("{name} cannot be changed while the model is in use: make a new one")]
    Fixed {
        /// The parameter.
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
