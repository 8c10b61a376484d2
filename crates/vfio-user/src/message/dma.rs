//! `DMA_MAP` and `DMA_UNMAP`: the client's memory.
//!
//! The reply to `DMA_MAP` has no body; the reply to `DMA_UNMAP` is the request's [`DmaUnmap`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::flags::flags;
use super::plain_body;

flags! {
    /// The server's access rights to a range. Bits without a name here are to be ignored.
    DmaMapFlags {
        /// The server may read.
        READ = 1 << 0;
        /// The server may write.
        WRITE = 1 << 1;
        /// The range is to be reached by mapping the descriptor.
        MMAP = 1 << 2;
        /// The range is to be reached by reading and writing the descriptor.
        FILE_IO = 1 << 3;
    }
}

flags! {
    /// How a range is unmapped.
    DmaUnmapFlags {
        /// Report the pages written; not part of this version.
        GET_DIRTY = 1 << 0;
        /// Take every range back; address and size are 0.
        UNMAP_ALL = 1 << 1;
    }
}

/// `DMA_MAP`: the client shares a range. One descriptor comes with it when it can be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaMap {
    /// Length of this structure, in bytes.
    pub argsz: u32,
    /// The server's access rights.
    pub flags: DmaMapFlags,
    /// Start of the range in the file of the descriptor, in bytes.
    pub offset: u64,
    /// DMA address of the first byte.
    pub iova: u64,
    /// Length of the range, in bytes.
    pub size: u64,
}
plain_body!(DmaMap, 32);

/// `DMA_UNMAP`: the client takes a range back. It is request and reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaUnmap {
    /// Longest reply body the client takes, in bytes.
    pub argsz: u32,
    /// How the range is unmapped.
    pub flags: DmaUnmapFlags,
    /// DMA address of the first byte.
    pub iova: u64,
    /// Length of the range, in bytes.
    pub size: u64,
}
plain_body!(DmaUnmap, 24);
