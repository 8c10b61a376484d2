//! How a ring is made.

use memory::Iova;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(in crate::vhost_user) struct Setup {
    /// Entries: 1 to 32768, in a split ring a power of two.
    pub(in crate::vhost_user) size: u16,
    /// Descriptor table or descriptor ring: address for the guest.
    pub(in crate::vhost_user) descriptors: Iova,
    /// Available ring or driver event suppression.
    pub(in crate::vhost_user) driver: Iova,
    /// Used ring or device event suppression.
    pub(in crate::vhost_user) device: Iova,
    /// The next entry to take, as the front end has it: of a split ring an index; of a packed ring
    /// indices and wrap counters of the available and the used side (`SET_VRING_BASE`).
    pub(in crate::vhost_user) base: u32,
    pub(in crate::vhost_user) is_packed: bool,
    pub(in crate::vhost_user) has_event_idx: bool,
    pub(in crate::vhost_user) has_indirect: bool,
}

/// Most entries of a ring (VIRTIO 1.3, 2.7 and 2.8.10.1).
pub(super) const MAX_SIZE: u16 = 1 << 15;
