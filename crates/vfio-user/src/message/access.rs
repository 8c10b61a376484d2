//! `REGION_READ`, `REGION_WRITE`, `DMA_READ` and `DMA_WRITE`: a head of 16 bytes, then data.
//!
//! Data follow the head in the request of a write and in the reply to a read. The other two
//! messages of each pair are the head alone.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Malformed, plain_body, split_prefix};

/// The head of `REGION_READ` and `REGION_WRITE`, in requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Access {
    /// Offset in the region, in bytes.
    pub offset: u64,
    /// Index of the region; see [`region_index`](super::region_index).
    pub region: u32,
    /// Length of the data, in bytes.
    pub count: u32,
}
plain_body!(Access, 16);

impl Access {
    /// The head and the data after it, as long as its count says.
    ///
    /// # Errors
    /// [`Malformed`] when the body is too short for the head, or the data are longer or shorter
    /// than the count.
    pub fn parse_with_data(body: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (head, data) = split_prefix::<Self>(body)?;
        check_data(u64::from(head.count), data)?;
        Ok((head, data))
    }
}

/// The head of `DMA_READ` and `DMA_WRITE`, in requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaAccess {
    /// DMA address of the first byte.
    pub address: u64,
    /// Length of the data, in bytes.
    pub count: u64,
}
plain_body!(DmaAccess, 16);

impl DmaAccess {
    /// The head and the data after it, as long as its count says.
    ///
    /// # Errors
    /// [`Malformed`] when the body is too short for the head, or the data are longer or shorter
    /// than the count.
    pub fn parse_with_data(body: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (head, data) = split_prefix::<Self>(body)?;
        check_data(head.count, data)?;
        Ok((head, data))
    }
}

fn check_data(count: u64, data: &[u8]) -> Result<(), Malformed> {
    if data.len() as u64 == count {
        return Ok(());
    }
    Err(Malformed::DataLength {
        count,
        actual: data.len(),
    })
}
