//! The driver's side of a virtqueue.
//!
//! A ring knows its own memory and counts; addresses in descriptors are the caller's. A device that
//! breaks a rule is an error of [`Ring::pop`], so that a test sees it.

mod packed;
mod split;

use anyhow::Result;
use memory::Buffer;

pub use self::packed::Packed;
pub use self::split::Split;
use crate::guest::Guest;

/// The chain goes on (VIRTIO 1.3, 2.7.5).
pub const NEXT: u16 = 1;
/// The device writes the segment.
pub const WRITE: u16 = 2;
/// The segment is a table of descriptors.
pub const INDIRECT: u16 = 4;
/// Bytes of a descriptor.
pub const DESCRIPTOR_LEN: usize = 16;

/// A part of a request in guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Guest physical address.
    pub address: u64,
    /// Length in bytes.
    pub len: u32,
    /// Whether the device writes it.
    pub is_writable: bool,
}

impl Segment {
    fn write_flag(self) -> u16 {
        if self.is_writable { WRITE } else { 0 }
    }
}

/// A chain that the device used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Number that [`Ring::add`] returned.
    pub id: u16,
    /// Bytes that the device wrote, as it reports.
    pub written: u32,
}

/// A virtqueue of one of the two formats.
#[derive(Debug)]
pub enum Ring {
    /// VIRTIO 1.3, 2.7.
    Split(Split),
    /// VIRTIO 1.3, 2.8.
    Packed(Packed),
}

impl Ring {
    /// An empty ring of `size` descriptors.
    ///
    /// # Errors
    /// The size is not one of the format, or the memory is full.
    pub fn new(guest: &Guest, size: u16, is_packed: bool, event_idx: bool) -> Result<Self> {
        Ok(if is_packed {
            Ring::Packed(Packed::new(guest, size, event_idx)?)
        } else {
            Ring::Split(Split::new(guest, size, event_idx)?)
        })
    }

    /// Makes a chain available, from a packed ring at once, from a split one with the next
    /// [`Self::publish`]. `None` when there is no room. With `is_indirect`, the only segment is a
    /// table, as [`Self::table`] makes it.
    #[inline]
    pub fn add(&mut self, chain: &[Segment], is_indirect: bool) -> Option<u16> {
        match self {
            Ring::Split(ring) => ring.add(chain, is_indirect),
            Ring::Packed(ring) => ring.add(chain, is_indirect),
        }
    }

    /// The bytes of an indirect table for a chain.
    #[must_use]
    pub fn table(&self, chain: &[Segment]) -> Vec<u8> {
        match self {
            Ring::Split(_) => split::table(chain),
            Ring::Packed(_) => packed::table(chain),
        }
    }

    /// Publishes what was added; true when the device wants a notification.
    #[inline]
    pub fn publish(&mut self) -> bool {
        match self {
            Ring::Split(ring) => ring.publish(),
            Ring::Packed(ring) => ring.publish(),
        }
    }

    /// The next chain that the device used.
    ///
    /// # Errors
    /// The device used a chain that was not available to it.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<Used>> {
        match self {
            Ring::Split(ring) => ring.pop(),
            Ring::Packed(ring) => ring.pop(),
        }
    }

    /// Asks for an interrupt with the next used chain; true when there is one already.
    pub fn arm(&mut self) -> bool {
        match self {
            Ring::Split(ring) => ring.arm(),
            Ring::Packed(ring) => ring.arm(),
        }
    }

    /// Asks for no interrupts.
    pub fn suppress(&mut self) {
        match self {
            Ring::Split(ring) => ring.suppress(),
            Ring::Packed(ring) => ring.suppress(),
        }
    }

    /// The value for SET_VRING_BASE to a back end that goes on behind everything that was used:
    /// the device's used index (split), or the next used position in both halves (packed).
    #[must_use]
    pub fn used_base(&self) -> u32 {
        match self {
            Ring::Split(ring) => ring.used_base(),
            Ring::Packed(ring) => ring.used_base(),
        }
    }

    /// The value that GET_VRING_BASE returns when the device used everything that is available.
    #[must_use]
    pub fn drained_base(&self) -> u32 {
        match self {
            Ring::Split(ring) => ring.drained_base(),
            Ring::Packed(ring) => ring.drained_base(),
        }
    }

    /// Descriptors that are not in flight.
    #[must_use]
    pub fn free(&self) -> u16 {
        match self {
            Ring::Split(ring) => ring.free(),
            Ring::Packed(ring) => ring.free(),
        }
    }

    /// The areas: descriptors, the driver's and the device's. Tests that break rules write them.
    #[must_use]
    pub fn areas(&self) -> [&Buffer; 3] {
        match self {
            Ring::Split(ring) => ring.areas(),
            Ring::Packed(ring) => ring.areas(),
        }
    }

    /// Empties the ring as a driver does after a reset of the device.
    pub fn reset(&mut self) {
        match self {
            Ring::Split(ring) => ring.reset(),
            Ring::Packed(ring) => ring.reset(),
        }
    }
}

/// The 16 bytes of a descriptor: address, length and two half words.
fn descriptor(address: u64, len: u32, halves: [u16; 2]) -> [u8; DESCRIPTOR_LEN] {
    let mut bytes = [0; DESCRIPTOR_LEN];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    bytes[12..14].copy_from_slice(&halves[0].to_le_bytes());
    bytes[14..].copy_from_slice(&halves[1].to_le_bytes());
    bytes
}
