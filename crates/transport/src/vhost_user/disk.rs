//! A namespace as a virtio block device.

use nvme_spec::opcode::Csi;
use port::namespace::Namespace;
use vhost_user::Features;
use vhost_user::block::{Config, ID_LEN};

use super::config::{config, erases, features};
use super::zones::characteristics;
use crate::host::{Identity, Zones};

/// Most bytes of data of a command.
pub(super) const CHUNK: u64 = 1 << 20;

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
    /// It deallocates blocks.
    pub(super) deallocates: bool,
    /// It erases blocks to which zeroes are written.
    pub(super) erases: bool,
    /// Its zones, if it has some.
    pub(super) zones: Option<Zones>,
    /// The features of a device with one ring, its configuration space, and blocks.
    pub(super) offered: Features,
    pub(super) config: Config,
    pub(super) blocks: u64,
}

/// A namespace with this serial number. `None` where virtio cannot express it: it has keys, another
/// command set, or zones that are not all alike or longer than 2 TiB.
#[must_use]
pub fn disk(namespace: &Namespace, serial: &str) -> Option<Disk> {
    let zones = match namespace.csi() {
        Csi::NVM if namespace.set.is_none() => None,
        Csi::ZONED_NAMESPACE => Some(Zones::of(namespace, CHUNK)?),
        _ => return None,
    };
    if let Some(zones) = &zones {
        characteristics(zones, namespace.lba_shift)?;
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
        deallocates: namespace.traits.deallocate,
        erases: erases(namespace, zones.as_ref()),
        offered: features(namespace, zones.as_ref(), 1),
        config: config(namespace, zones.as_ref(), 1),
        blocks: namespace.blocks,
        zones,
    })
}
