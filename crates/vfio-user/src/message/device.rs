//! `DEVICE_GET_INFO`: the components of the device. `DEVICE_RESET` has no body in either direction.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::flags::flags;
use super::plain_body;

flags! {
    /// Device type.
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
    /// Device type.
    pub flags: DeviceFlags,
    /// Number of regions.
    pub num_regions: u32,
    /// Number of interrupt types.
    pub num_irqs: u32,
}
plain_body!(DeviceInfo, 16);
