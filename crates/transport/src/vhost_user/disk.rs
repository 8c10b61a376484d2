//! A namespace as a virtio block device.

use port::namespace::Namespace;
use vhost_user::block::ID_LEN;

use crate::host::Identity;

/// A namespace that a front end gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its identifier.
    pub nsid: u32,
    /// Size of its logical block as a power of two.
    pub lba_shift: u8,
    /// Which one it is.
    pub(super) is: Identity,
    /// The answer to `VIRTIO_BLK_T_GET_ID`: text that ends with the first 0, if there is one.
    pub(super) id: [u8; ID_LEN],
}

/// A namespace with this serial number. `None` where virtio cannot express it: it has zones, keys,
/// or another command set.
#[must_use]
pub fn disk(namespace: &Namespace, serial: &str) -> Option<Disk> {
    if namespace.set.is_some() {
        return None;
    }
    let mut id = [0; ID_LEN];
    for (to, byte) in id.iter_mut().zip(serial.bytes()) {
        *to = byte;
    }
    Some(Disk {
        nsid: namespace.nsid,
        lba_shift: namespace.lba_shift,
        is: Identity::of(namespace),
        id,
    })
}
