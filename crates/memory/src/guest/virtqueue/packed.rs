//! The packed layout (VIRTIO 1.3, 2.8): descriptor ring, and an event suppression of each side.

use std::sync::Arc;

use super::area::{AreaError, SharedArea};
use crate::guest::address::Iova;
use crate::guest::dma::{DmaView, Need};

/// Bytes of a descriptor and of an event suppression.
const DESCRIPTOR: u32 = 16;
const SUPPRESSION: u32 = 4;
/// Where a descriptor has its fields.
const LEN_AT: u32 = 8;
const ID_AT: u32 = 12;
const FLAGS_AT: u32 = 14;

/// A descriptor (2.8.13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedDescriptor {
    /// Guest address.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// Buffer identifier.
    pub id: u16,
    /// `VIRTQ_DESC_F_*`.
    pub flags: u16,
}

/// An event suppression (2.8.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSuppression {
    /// Offset of a descriptor in bits 0 to 14, and its wrap counter in bit 15.
    pub descriptor: u16,
    /// `RING_EVENT_FLAGS_*` in bits 0 and 1.
    pub flags: u16,
}

/// The three parts of a packed virtqueue.
#[derive(Debug)]
pub struct PackedRing {
    descriptors: SharedArea,
    driver: SharedArea,
    device: SharedArea,
}

impl PackedRing {
    /// The ring of `size` entries, at least 1, whose parts are at these addresses: descriptor ring,
    /// driver and device event suppression.
    ///
    /// # Errors
    /// See [`AreaError`].
    pub fn new(
        view: &Arc<DmaView>,
        size: u16,
        [descriptors, driver, device]: [Iova; 3],
    ) -> Result<Self, AreaError> {
        let ring = u32::from(size) * DESCRIPTOR;
        Ok(PackedRing {
            descriptors: SharedArea::new(view, descriptors, ring, 16, Need::DeviceWrites)?,
            driver: SharedArea::new(view, driver, SUPPRESSION, 4, Need::DeviceReads)?,
            device: SharedArea::new(view, device, SUPPRESSION, 4, Need::DeviceWrites)?,
        })
    }

    /// Finds its parts again after the map has changed.
    ///
    /// # Errors
    /// See [`AreaError`].
    pub fn resolve(&mut self, view: &Arc<DmaView>) -> Result<(), AreaError> {
        self.descriptors.resolve(view)?;
        self.driver.resolve(view)?;
        self.device.resolve(view)
    }

    /// The flags of a descriptor (Acquire: its other fields are seen after).
    ///
    /// # Panics
    /// If `index` is not below the size.
    #[inline]
    #[must_use]
    pub fn flags(&self, index: u16) -> u16 {
        self.descriptors.load_first(at(index) + FLAGS_AT)
    }

    /// A descriptor whose flags were loaded by [`Self::flags`]; each other field is loaded once.
    ///
    /// # Panics
    /// If `index` is not below the size.
    #[inline]
    #[must_use]
    pub fn descriptor(&self, index: u16, flags: u16) -> PackedDescriptor {
        let at = at(index);
        PackedDescriptor {
            addr: self.descriptors.load(at),
            len: self.descriptors.load(at + LEN_AT),
            id: self.descriptors.load(at + ID_AT),
            flags,
        }
    }

    /// Asks for the cache line of a descriptor, to which a store will come. Any index will do.
    #[inline]
    pub fn prefetch(&self, index: u16) {
        self.descriptors.prefetch_to_write(at(index));
    }

    /// Stores identifier and length of a used descriptor. Its address stays as it is.
    ///
    /// # Panics
    /// If `index` is not below the size.
    #[inline]
    pub fn store_used(&self, index: u16, id: u16, written: u32) {
        let at = at(index);
        self.descriptors.store(at + LEN_AT, written);
        self.descriptors.store(at + ID_AT, id);
    }

    /// Stores the flags of a used descriptor (Release: a driver that sees them sees what was stored
    /// before).
    ///
    /// # Panics
    /// If `index` is not below the size.
    #[inline]
    pub fn store_flags(&self, index: u16, flags: u16) {
        self.descriptors.store_last(at(index) + FLAGS_AT, flags);
    }

    /// Which events the driver wants. [`crate::full_fence`] comes before.
    #[inline]
    #[must_use]
    pub fn driver_events(&self) -> EventSuppression {
        let word: u32 = self.driver.load(0);
        EventSuppression {
            descriptor: word as u16,
            flags: (word >> 16) as u16,
        }
    }

    /// Stores which events the device wants. [`crate::full_fence`] comes after, then the second
    /// look at the next descriptor.
    #[inline]
    pub fn store_device_events(&self, events: EventSuppression) {
        let word = u32::from(events.flags) << 16 | u32::from(events.descriptor);
        self.device.store(0, word);
    }
}

/// Where a descriptor is.
#[inline]
fn at(index: u16) -> u32 {
    u32::from(index) * DESCRIPTOR
}
