//! Exports, as a negotiation describes them.

use crate::TransmissionFlags;

/// Block sizes of an export (`NBD_INFO_BLOCK_SIZE`), in bytes: powers of two, except `maximum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Smallest unit and alignment of a request: 1 to 65536.
    pub minimum: u32,
    /// Unit and alignment of requests without penalty: at least `minimum`.
    pub preferred: u32,
    /// Longest data of one request, a multiple of `minimum`.
    pub maximum: u32,
}

/// An export that a client can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name: at most 4096 bytes. The empty name is the default export.
    pub name: String,
    /// A description for people; empty: none.
    pub description: String,
    /// Size in bytes.
    pub size: u64,
    /// Features of its server.
    pub flags: TransmissionFlags,
    /// Its block sizes.
    pub block: BlockSizes,
    /// It has the metadata context `base:allocation`.
    pub allocation: bool,
}
