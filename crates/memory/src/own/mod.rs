//! Memory of this process.

#[cfg(feature = "crash")]
pub mod crash;
pub mod huge;
pub(crate) mod map;
pub mod state;

/// The unit of the DMA map and of the rings' pages, in bytes (CAP.MPSMIN = 0: 4 KiB).
pub const PAGE: u64 = 4096;
