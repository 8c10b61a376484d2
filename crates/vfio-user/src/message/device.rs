//! `DEVICE_GET_INFO`: the components of the device. `DEVICE_RESET` has no body in either direction.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::flags::flags;
use super::plain_body;

flags! {
    /// What kind of device it is.
    DeviceFlags {
        /// `DEVICE_RESET` works.
        RESET = 1 << 0;
        /// It is a PCI device.
        PCI = 1 << 1;
    }
}

/// `DEVICE_GET_INFO`, request and reply. In a request only `argsz` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceInfo {
    /// Request: longest reply body the client takes. Reply: length needed. In bytes.
    pub argsz: u32,
    /// What kind of device it is.
    pub flags: DeviceFlags,
    /// How many regions it has.
    pub num_regions: u32,
    /// How many interrupt types it has.
    pub num_irqs: u32,
}
plain_body!(DeviceInfo, 16);
