//! The bodies of messages, after the header: one module per group of commands.
//!
//! Each body is a plain structure with a `parse` that copies it out of the received bytes and an
//! `encode` that appends it to a buffer. A body may be longer than its structure: the structures
//! with an `argsz` are meant to grow, and SPDK's host sends longer requests than the
//! specification's. A shorter one is [`Malformed`].
//!
//! Values are not checked here: the server rejects an unknown region, a range that wraps, or an
//! unknown flag bit.

mod access;
mod device;
mod dma;
mod flags;
mod irq;
mod logging;
mod migration;
#[cfg(test)]
mod properties;
mod region;
#[cfg(test)]
mod tests;
mod version;

pub use access::{Access, DmaAccess};
pub use device::{DeviceFlags, DeviceInfo};
pub use dma::{DmaMap, DmaMapFlags, DmaUnmap, DmaUnmapFlags};
pub use irq::{IrqAction, IrqData, IrqFlags, IrqInfo, SetIrqs, SetIrqsFlags, irq_index};
pub use logging::{LoggingControl, LoggingRange, LoggingReport};
pub use migration::{
    DeviceFeature, DeviceState, FeatureFlags, MigrationData, MigrationFlags, MigrationState,
};
pub use region::{RegionFlags, RegionInfo, RegionIoFds, SparseArea, region_index};
pub use version::{Capabilities, Migration, Refusal, Version};
use zerocopy::FromBytes;

/// Why a body does not fit its command. The server replies with `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The body is shorter than the structure of its command.
    #[error("the body has {actual} bytes: send at least {expected}")]
    Short {
        /// Bytes that the structure has.
        expected: usize,
        /// Bytes that came.
        actual: usize,
    },
    /// The length of the data after the structure differs from its count.
    #[error("the message carries {actual} bytes of data, but its count says {count}")]
    DataLength {
        /// Bytes announced.
        count: u64,
        /// Bytes that came.
        actual: usize,
    },
    /// The version data are longer than [`Version::MAX_TEXT_LEN`].
    #[error("the version data has {actual} bytes: send at most {max}", max = Version::MAX_TEXT_LEN)]
    VersionTextTooLong {
        /// Bytes that came.
        actual: usize,
    },
    /// The version data are not the JSON object of the specification.
    #[error("the version data is not a JSON object with the capabilities of the specification")]
    VersionText,
    /// Flags that exclude each other, or none of which one is needed.
    #[error("the flags {0:#x} do not name exactly one data type and one action")]
    IrqFlags(u32),
    /// A list of region capabilities that leaves the body or does not go forward.
    #[error("the region's capability at offset {offset} is outside the body")]
    RegionCapability {
        /// Offset from the start of the body, in bytes.
        offset: u32,
    },
}

/// Copies the structure at the start of `body`, and returns it with the bytes after it.
pub(crate) fn split_prefix<T: FromBytes>(body: &[u8]) -> Result<(T, &[u8]), Malformed> {
    T::read_from_prefix(body).map_err(|_| Malformed::Short {
        expected: size_of::<T>(),
        actual: body.len(),
    })
}

/// The `parse` and `encode` of a body that is exactly one structure.
macro_rules! plain_body {
    ($name:ident, $len:literal) => {
        const _: () = assert!(size_of::<$name>() == $len);

        impl $name {
            /// Length of the structure, in bytes.
            pub const LEN: usize = $len;

            /// Copies the structure from the start of a body.
            ///
            /// # Errors
            /// [`Malformed::Short`](crate::Malformed::Short) when the body is shorter than
            /// [`Self::LEN`].
            pub fn parse(body: &[u8]) -> Result<Self, $crate::Malformed> {
                $crate::message::split_prefix(body).map(|(head, _)| head)
            }

            /// Appends the structure to a body.
            pub fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(zerocopy::IntoBytes::as_bytes(self));
            }
        }
    };
}
pub(crate) use plain_body;
