//! PCI configuration space and capabilities as an NVMe function shows them (PCIe 1.1; PCI Local Bus
//! 3.0, 6; PCI Express Base, 7).
//!
//! Offsets in a capability count from its first byte. No configuration space is kept here.

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Programming Interface: NVM Express I/O controller.
pub const PROG_IF_NVME: u8 = 0x02;
/// Sub Class: Non-Volatile Memory controller.
pub const SUBCLASS_NVM: u8 = 0x08;
/// Base Class: mass storage controller.
pub const CLASS_MASS_STORAGE: u8 = 0x01;

/// Bytes of the configuration space of a PCI device.
pub const CONFIG_SIZE: usize = 256;
/// Bytes of the configuration space of a PCI Express device.
pub const EXTENDED_CONFIG_SIZE: usize = 4096;

/// Offsets in the configuration space, of a header of type 0.
pub mod config {
    /// Vendor ID, 2 bytes.
    pub const VENDOR_ID: usize = 0x00;
    /// Device ID, 2 bytes.
    pub const DEVICE_ID: usize = 0x02;
    /// Command, 2 bytes.
    pub const COMMAND: usize = 0x04;
    /// Status, 2 bytes.
    pub const STATUS: usize = 0x06;
    /// Revision ID, 1 byte.
    pub const REVISION_ID: usize = 0x08;
    /// Class Code, 3 bytes: programming interface, sub class, base class.
    pub const CLASS_CODE: usize = 0x09;
    /// Cache Line Size, 1 byte.
    pub const CACHE_LINE_SIZE: usize = 0x0c;
    /// Latency Timer, 1 byte.
    pub const LATENCY_TIMER: usize = 0x0d;
    /// Header Type, 1 byte.
    pub const HEADER_TYPE: usize = 0x0e;
    /// Base Address Register 0, 4 bytes; the other five follow.
    pub const BAR0: usize = 0x10;
    /// Base Address Register 1, 4 bytes: the upper half of a 64-bit BAR0.
    pub const BAR1: usize = 0x14;
    /// Subsystem Vendor ID, 2 bytes.
    pub const SUBSYSTEM_VENDOR_ID: usize = 0x2c;
    /// Subsystem ID, 2 bytes.
    pub const SUBSYSTEM_ID: usize = 0x2e;
    /// Expansion ROM Base Address, 4 bytes.
    pub const EXPANSION_ROM: usize = 0x30;
    /// Capabilities Pointer, 1 byte.
    pub const CAPABILITIES_POINTER: usize = 0x34;
    /// Interrupt Line, 1 byte.
    pub const INTERRUPT_LINE: usize = 0x3c;
    /// Interrupt Pin, 1 byte: 0 none, 1 to 4 INTA# to INTD#.
    pub const INTERRUPT_PIN: usize = 0x3d;
    /// The first byte after the header.
    pub const HEADER_END: usize = 0x40;
}

/// Command register.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Command {
    /// I/O Space Enable.
    pub io_space: bool,
    /// Memory Space Enable.
    pub memory_space: bool,
    /// Bus Master Enable.
    pub bus_master: bool,
    #[bits(3)]
    __: u8,
    /// Parity Error Response.
    pub parity_error_response: bool,
    #[bits(1)]
    __: u8,
    /// SERR# Enable.
    pub serr: bool,
    #[bits(1)]
    __: u8,
    /// Interrupt Disable: of INTx.
    pub interrupt_disable: bool,
    #[bits(5)]
    __: u8,
}

/// Status register bit: an INTx interrupt is pending.
pub const STATUS_INTERRUPT: u16 = 1 << 3;
/// Status register bit: there is a capabilities list.
pub const STATUS_CAPABILITIES_LIST: u16 = 1 << 4;

/// Low bits of a memory BAR: 64 bits wide, not prefetchable (PCIe 1.1, MLBAR).
pub const BAR_MEMORY_64: u32 = 0b0100;
/// The bits of a memory BAR that are not address.
pub const BAR_FLAGS_MASK: u32 = 0b1111;

open_enum! {
    /// Capability ID: the first byte of a capability. The second is the offset of the next, or 0.
    pub struct CapabilityId(u8) {
        POWER_MANAGEMENT = 0x01, "PCI Power Management";
        MSI = 0x05, "Message Signaled Interrupts";
        VENDOR_SPECIFIC = 0x09, "Vendor Specific";
        PCI_EXPRESS = 0x10, "PCI Express";
        MSI_X = 0x11, "MSI-X";
    }
}

/// Offset of the byte that points to the next capability.
pub const CAPABILITY_NEXT: usize = 1;

/// PCI Power Management capability.
pub mod power_management {
    /// Bytes of the capability.
    pub const SIZE: usize = 8;
    /// Power Management Capabilities, 2 bytes.
    pub const PMC: usize = 2;
    /// Power Management Control / Status, 2 bytes.
    pub const PMCSR: usize = 4;
    /// PMC: version 3 of the interface.
    pub const PMC_VERSION_3: u16 = 3;
    /// PMCSR: the power state, 0 for D0 and 3 for D3hot.
    pub const PMCSR_POWER_STATE: u16 = 0b11;
    /// PMCSR: going from D3hot to D0 does not reset the function.
    pub const PMCSR_NO_SOFT_RESET: u16 = 1 << 3;
}

/// PCI Express capability, version 2.
pub mod express {
    /// Bytes of the capability.
    pub const SIZE: usize = 0x3c;
    /// PCI Express Capabilities, 2 bytes.
    pub const CAPABILITIES: usize = 0x02;
    /// Device Capabilities, 4 bytes.
    pub const DEVICE_CAPABILITIES: usize = 0x04;
    /// Device Control, 2 bytes.
    pub const DEVICE_CONTROL: usize = 0x08;
    /// Device Status, 2 bytes.
    pub const DEVICE_STATUS: usize = 0x0a;
    /// Link Capabilities, 4 bytes.
    pub const LINK_CAPABILITIES: usize = 0x0c;
    /// Link Control, 2 bytes.
    pub const LINK_CONTROL: usize = 0x10;
    /// Link Status, 2 bytes.
    pub const LINK_STATUS: usize = 0x12;
    /// Device Capabilities 2, 4 bytes.
    pub const DEVICE_CAPABILITIES_2: usize = 0x24;
    /// Device Control 2, 2 bytes.
    pub const DEVICE_CONTROL_2: usize = 0x28;
    /// Link Capabilities 2, 4 bytes.
    pub const LINK_CAPABILITIES_2: usize = 0x2c;
    /// Link Control 2, 2 bytes.
    pub const LINK_CONTROL_2: usize = 0x30;
    /// Link Status 2, 2 bytes.
    pub const LINK_STATUS_2: usize = 0x32;
    /// PCI Express Capabilities: version 2, an endpoint.
    pub const CAPABILITIES_V2_ENDPOINT: u16 = 0x0002;
    /// Device Capabilities: role-based error reporting.
    pub const DEVICE_CAPABILITIES_RBER: u32 = 1 << 15;
    /// Device Capabilities: function level reset.
    pub const DEVICE_CAPABILITIES_FLR: u32 = 1 << 28;
    /// Device Control: initiate a function level reset; reads as 0.
    pub const DEVICE_CONTROL_FLR: u16 = 1 << 15;
}

/// Message Signaled Interrupts capability, with 64-bit addresses and without per-vector masking.
pub mod msi {
    /// Bytes of the capability.
    pub const SIZE: usize = 14;
    /// Message Control, 2 bytes.
    pub const MESSAGE_CONTROL: usize = 2;
    /// Message Address, 4 bytes.
    pub const MESSAGE_ADDRESS: usize = 4;
    /// Message Upper Address, 4 bytes.
    pub const MESSAGE_UPPER_ADDRESS: usize = 8;
    /// Message Data, 2 bytes. Its low MME bits are the vector.
    pub const MESSAGE_DATA: usize = 12;
    /// Base-2 logarithm of the most vectors: 32.
    pub const VECTORS_LOG2_MAX: u8 = 5;
}

/// Message Control of the MSI capability.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct MsiMessageControl {
    /// MSI Enable.
    pub enable: bool,
    /// Multiple Message Capable: 2^MMC vectors, at most [`msi::VECTORS_LOG2_MAX`].
    #[bits(3)]
    pub mmc: u8,
    /// Multiple Message Enable: 2^MME vectors.
    #[bits(3)]
    pub mme: u8,
    /// 64-bit Address Capable.
    pub c64: bool,
    /// Per-Vector Masking Capable.
    pub pvm: bool,
    #[bits(7)]
    __: u8,
}

/// MSI-X capability.
pub mod msix {
    /// Bytes of the capability.
    pub const SIZE: usize = 12;
    /// Message Control, 2 bytes.
    pub const MESSAGE_CONTROL: usize = 2;
    /// Table Offset / Table BIR, 4 bytes.
    pub const TABLE: usize = 4;
    /// PBA Offset / PBA BIR, 4 bytes.
    pub const PBA: usize = 8;
    /// The bits of TABLE and PBA that name a BAR; the rest is the offset in it.
    pub const BIR_MASK: u32 = 0b111;
    /// Bytes of one entry of the table.
    pub const TABLE_ENTRY_SIZE: usize = 16;
    /// Most entries that a table can have.
    pub const TABLE_ENTRIES_MAX: usize = 2048;
}

/// Message Control of the MSI-X capability.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct MsixMessageControl {
    /// Table Size.
    #[bits(11)]
    pub table_size_z: u16,
    #[bits(3)]
    __: u8,
    /// Function Mask.
    pub function_mask: bool,
    /// MSI-X Enable.
    pub enable: bool,
}

/// One entry of the MSI-X table, 16 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct MsixTableEntry {
    /// Message Address.
    pub address: u32,
    /// Message Upper Address.
    pub upper_address: u32,
    /// Message Data.
    pub data: u32,
    /// Vector Control: bit 0 masks the vector.
    pub vector_control: u32,
}

const _: () = assert!(size_of::<MsixTableEntry>() == msix::TABLE_ENTRY_SIZE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_lie_where_pci_says() {
        assert_eq!(u16::from(Command::new().with_memory_space(true)), 1 << 1);
        assert_eq!(u16::from(Command::new().with_bus_master(true)), 1 << 2);
        assert_eq!(u16::from(Command::new().with_serr(true)), 1 << 8);
        assert_eq!(
            u16::from(Command::new().with_interrupt_disable(true)),
            1 << 10
        );
        assert_eq!(
            u16::from(MsiMessageControl::new().with_c64(true).with_enable(true)),
            0x0081
        );
        let multiple = MsiMessageControl::new().with_mmc(5).with_mme(3);
        assert_eq!(u16::from(multiple), 5 << 1 | 3 << 4);
        assert_eq!(u16::from(MsiMessageControl::new().with_pvm(true)), 1 << 8);
        assert_eq!((STATUS_INTERRUPT, STATUS_CAPABILITIES_LIST), (0x08, 0x10));
        assert_eq!(
            (config::INTERRUPT_LINE, config::INTERRUPT_PIN),
            (0x3c, 0x3d)
        );
        let control = MsixMessageControl::from(0xc040);
        assert_eq!(control.table_size_z(), 64);
        assert!(control.function_mask() && control.enable());
    }

    #[test]
    fn the_class_is_010802() {
        assert_eq!(
            [CLASS_MASS_STORAGE, SUBCLASS_NVM, PROG_IF_NVME],
            [0x01, 0x08, 0x02]
        );
    }
}
