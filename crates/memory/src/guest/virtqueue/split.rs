//! The split layout (VIRTIO 1.3, 2.7): descriptor table, available ring, used ring.

use std::sync::Arc;

use super::area::{AreaError, SharedArea};
use crate::guest::address::Iova;
use crate::guest::dma::{DmaView, Need};

/// Bytes of a descriptor, of an available and of a used entry.
const DESCRIPTOR: u32 = 16;
const AVAILABLE: u32 = 2;
const USED: u32 = 8;
/// Where both rings have their flags, their index and their first entry.
const FLAGS_AT: u32 = 0;
const INDEX_AT: u32 = 2;
const ENTRIES_AT: u32 = 4;

/// A descriptor as the driver has stored it (2.7.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitDescriptor {
    /// Guest address.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// `VIRTQ_DESC_F_*`.
    pub flags: u16,
    /// Index of the next one, where the flags say so.
    pub next: u16,
}

/// The three parts of a split virtqueue.
#[derive(Debug)]
pub struct SplitRing {
    descriptors: SharedArea,
    available: SharedArea,
    used: SharedArea,
    size: u16,
}

impl SplitRing {
    /// The ring of `size` entries, at least 1, whose parts are at these addresses. The fields of
    /// `VIRTIO_F_EVENT_IDX` are there only with it.
    ///
    /// # Errors
    /// See [`AreaError`].
    pub fn new(
        view: &Arc<DmaView>,
        size: u16,
        [descriptors, available, used]: [Iova; 3],
        has_event_idx: bool,
    ) -> Result<Self, AreaError> {
        let entries = u32::from(size);
        let event = 2 * u32::from(has_event_idx);
        let [table, avail, used_len] = [
            entries * DESCRIPTOR,
            ENTRIES_AT + entries * AVAILABLE + event,
            ENTRIES_AT + entries * USED + event,
        ];
        Ok(SplitRing {
            descriptors: SharedArea::new(view, descriptors, table, 16, Need::DeviceReads)?,
            available: SharedArea::new(view, available, avail, 2, Need::DeviceReads)?,
            used: SharedArea::new(view, used, used_len, 4, Need::DeviceWrites)?,
            size,
        })
    }

    /// Finds its parts again after the map has changed.
    ///
    /// # Errors
    /// See [`AreaError`].
    pub fn resolve(&mut self, view: &Arc<DmaView>) -> Result<(), AreaError> {
        self.descriptors.resolve(view)?;
        self.available.resolve(view)?;
        self.used.resolve(view)
    }

    /// The index behind the last available entry (Acquire: the entries before it are seen after).
    #[inline]
    #[must_use]
    pub fn available_index(&self) -> u16 {
        self.available.load_first(INDEX_AT)
    }

    /// The available entry of an index: the index of a first descriptor.
    ///
    /// # Panics
    /// If `index` is not below the size.
    #[inline]
    #[must_use]
    pub fn available_entry(&self, index: u16) -> u16 {
        self.assert_entry(index);
        self.available
            .load(ENTRIES_AT + u32::from(index) * AVAILABLE)
    }

    /// The flags of the available ring. [`crate::full_fence`] comes before.
    #[inline]
    #[must_use]
    pub fn available_flags(&self) -> u16 {
        self.available.load(FLAGS_AT)
    }

    /// The used index behind which the driver wants to be notified. [`crate::full_fence`] comes
    /// before.
    ///
    /// # Panics
    /// If the ring is without `VIRTIO_F_EVENT_IDX`.
    #[inline]
    #[must_use]
    pub fn used_event(&self) -> u16 {
        self.available
            .load(ENTRIES_AT + u32::from(self.size) * AVAILABLE)
    }

    /// A descriptor; each field is loaded once.
    ///
    /// # Panics
    /// If `index` is not below the size.
    #[inline]
    #[must_use]
    pub fn descriptor(&self, index: u16) -> SplitDescriptor {
        let at = u32::from(index) * DESCRIPTOR;
        let second: u64 = self.descriptors.load(at + 8);
        SplitDescriptor {
            addr: self.descriptors.load(at),
            len: second as u32,
            flags: (second >> 32) as u16,
            next: (second >> 48) as u16,
        }
    }

    /// Asks for the cache lines of a chain's first three descriptors, if they lie side by side. Any
    /// index will do.
    #[inline]
    pub fn prefetch_chain(&self, index: u16) {
        let at = u32::from(index) * DESCRIPTOR;
        self.descriptors.prefetch(at);
        self.descriptors.prefetch(at + 2 * DESCRIPTOR);
    }

    /// Asks for the cache line of a used entry, to which a store will come. Not for that of the
    /// index, which the driver may look at all the time. Any index will do.
    #[inline]
    pub fn prefetch_used(&self, index: u16) {
        const LINE: u32 = 64;
        let at = ENTRIES_AT + u32::from(index) * USED;
        if at >= LINE {
            self.used.prefetch_to_write(at);
        }
    }

    /// The index of the used ring, which only this side stores.
    #[must_use]
    pub fn used_index(&self) -> u16 {
        self.used.load(INDEX_AT)
    }

    /// Stores the used entry of an index.
    ///
    /// # Panics
    /// If `index` is not below the size.
    #[inline]
    pub fn store_used_entry(&self, index: u16, id: u16, written: u32) {
        self.assert_entry(index);
        let at = ENTRIES_AT + u32::from(index) * USED;
        self.used.store(at, u32::from(id));
        self.used.store(at + 4, written);
    }

    /// Stores the index behind the last used entry (Release: a driver that sees it sees the entries
    /// before it).
    #[inline]
    pub fn store_used_index(&self, index: u16) {
        self.used.store_last(INDEX_AT, index);
    }

    /// Stores the flags of the used ring. [`crate::full_fence`] comes after, then the second look
    /// at the available index.
    #[inline]
    pub fn store_used_flags(&self, flags: u16) {
        self.used.store(FLAGS_AT, flags);
    }

    /// Stores the available index behind which the driver is to notify. [`crate::full_fence`] comes
    /// after, then the second look at the available index.
    ///
    /// # Panics
    /// If the ring is without `VIRTIO_F_EVENT_IDX`.
    #[inline]
    pub fn store_available_event(&self, index: u16) {
        let at = ENTRIES_AT + u32::from(self.size) * USED;
        self.used.store(at, index);
    }

    /// The fields of `VIRTIO_F_EVENT_IDX` are not entries.
    #[inline]
    fn assert_entry(&self, index: u16) {
        assert!(index < self.size, "entry {index} of {}", self.size);
    }
}
