//! Faults of a driver or a front end that stop a ring.

use memory::AreaError;

/// A fault of a driver with which its ring cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::vhost_user) enum RingFault {
    #[error("it lies outside of the memory that the front end shares")]
    Unreachable,
    #[error("a part of it lies in several pieces of shared memory: share the memory as one piece")]
    Scattered,
    #[error("a part of it is not at a multiple of {0} bytes")]
    Misaligned(u32),
    #[error("{0} entries: it has 1 to 32768, and a split ring a power of two")]
    Size(u16),
    #[error("base {0:#x} is not an entry of it")]
    Base(u32),
    #[error("the available side is more than a whole ring ahead")]
    Ahead,
    #[error("request {0} is available a second time before it was used")]
    Twice(u16),
    #[error("descriptor {0} does not exist")]
    Index(u16),
    #[error("a chain has more descriptors than its table or ring")]
    Endless,
    #[error("an indirect descriptor without VIRTIO_F_INDIRECT_DESC")]
    Indirect,
    #[error("an indirect descriptor in an indirect table")]
    Nested,
    #[error("an indirect descriptor that has a next one")]
    IndirectNext,
    #[error("an indirect table of {0} bytes: it has 1 to 32768 descriptors of 16 bytes")]
    TableLength(u32),
    #[error("an indirect table outside of the memory that the front end shares")]
    Table,
    #[error("a piece to read behind one to write")]
    Order,
    #[error("more than 256 pieces in a request")]
    Pieces,
    #[error("more than 4294967295 bytes in a request")]
    TooLong,
    #[error("the record of requests in flight is wrong ({0}): reset the device")]
    Record(&'static str),
}

impl From<AreaError> for RingFault {
    fn from(error: AreaError) -> Self {
        match error {
            AreaError::Unreachable(_) | AreaError::OutOfFile => Self::Unreachable,
            AreaError::Scattered => Self::Scattered,
            AreaError::Misaligned(align) => Self::Misaligned(align),
        }
    }
}
