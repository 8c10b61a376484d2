//! The Discovery log page (Base 2.1, 5.1.12.3.1), and the names of discovery subsystems.

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::fabrics::NQN_SIZE;

/// The name by which every discovery subsystem may be reached (Base 2.1, 3.1.3.3).
pub const WELL_KNOWN_DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Head of the Discovery log page, 1024 bytes. Entries follow it.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct DiscoveryLogHead {
    /// Generation Counter: changes with each change of the log.
    pub genctr: u64,
    /// Number of Records.
    pub numrec: u64,
    /// Record Format: 0.
    pub recfmt: u16,
    /// Reserved.
    pub reserved: [u8; 1006],
}

/// Bytes of the head, and of an entry, of the Discovery log page.
pub const DISCOVERY_ENTRY_SIZE: usize = 1024;

const _: () = assert!(size_of::<DiscoveryLogHead>() == DISCOVERY_ENTRY_SIZE);
const _: () = assert!(offset_of!(DiscoveryLogHead, recfmt) == 16);

open_enum! {
    /// Transport Type.
    pub struct TransportType(u8) {
        RDMA = 1, "RDMA";
        FIBRE_CHANNEL = 2, "Fibre Channel";
        TCP = 3, "TCP";
        LOOP = 254, "Intra-host transport";
    }
}

open_enum! {
    /// Address Family.
    pub struct AddressFamily(u8) {
        IPV4 = 1, "IPv4";
        IPV6 = 2, "IPv6";
        INFINIBAND = 3, "InfiniBand";
        FIBRE_CHANNEL = 4, "Fibre Channel";
        INTRA_HOST = 254, "Intra-host";
    }
}

open_enum! {
    /// Subsystem Type of an entry.
    pub struct SubsystemType(u8) {
        REFERRAL = 1, "Referral to another Discovery Service";
        NVM = 2, "NVM subsystem";
        CURRENT_DISCOVERY = 3, "Current Discovery subsystem";
    }
}

open_enum! {
    /// Whether connections must use a secure channel (TREQ, bits 1:0).
    pub struct SecureChannel(u8) {
        NOT_SPECIFIED = 0, "Not specified";
        REQUIRED = 1, "Required";
        NOT_REQUIRED = 2, "Not required";
    }
}

/// Transport Requirements.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct TransportRequirements {
    /// Whether connections must use a secure channel.
    #[bits(2)]
    pub secure_channel: SecureChannel,
    /// SQ flow control may be disabled.
    pub sq_flow_control_disable: bool,
    #[bits(5)]
    __: u8,
}

/// Entry Flags.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct DiscoveryEntryFlags {
    /// Duplicate Returned Information: another port of the same service tells the same.
    pub dupretinfo: bool,
    /// Explicit Persistent Connection Support for Discovery.
    pub epcsd: bool,
    /// No CDC Connectivity.
    pub ncc: bool,
    #[bits(13)]
    __: u16,
}

open_enum! {
    /// Security Type of TCP (the first byte of TSAS).
    pub struct TcpSecurityType(u8) {
        NONE = 0, "No security";
        TLS_1_2 = 1, "TLS 1.2 or later";
        TLS_1_3 = 2, "TLS 1.3 or later";
    }
}

/// An entry of the Discovery log page, 1024 bytes.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct DiscoveryEntry {
    /// Transport Type.
    pub trtype: TransportType,
    /// Address Family.
    pub adrfam: AddressFamily,
    /// Subsystem Type.
    pub subtype: SubsystemType,
    /// Transport Requirements.
    pub treq: TransportRequirements,
    /// NVM Subsystem Port ID.
    pub portid: u16,
    /// Controller ID: FFFFh is the dynamic model, FFFEh the static one, without a controller named.
    pub cntlid: u16,
    /// Admin Max SQ Size, in entries, at least 32.
    pub asqsz: u16,
    /// Entry Flags.
    pub eflags: DiscoveryEntryFlags,
    /// Reserved.
    pub reserved_12: [u8; 20],
    /// Transport Service Identifier: the port, in decimal ASCII.
    pub trsvcid: [u8; 32],
    /// Reserved.
    pub reserved_64: [u8; 192],
    /// NVM Subsystem Qualified Name.
    pub subnqn: [u8; NQN_SIZE],
    /// Transport Address, ASCII.
    pub traddr: [u8; 256],
    /// Transport Specific Address Subtype: the Security Type, for TCP.
    pub sectype: TcpSecurityType,
    /// The rest of the Transport Specific Address Subtype: reserved for TCP.
    pub reserved_769: [u8; 255],
}

const _: () = assert!(size_of::<DiscoveryEntry>() == DISCOVERY_ENTRY_SIZE);
const _: () = assert!(offset_of!(DiscoveryEntry, eflags) == 10);
const _: () = assert!(offset_of!(DiscoveryEntry, trsvcid) == 32);
const _: () = assert!(offset_of!(DiscoveryEntry, subnqn) == 256);
const _: () = assert!(offset_of!(DiscoveryEntry, traddr) == 512);
const _: () = assert!(offset_of!(DiscoveryEntry, sectype) == 768);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_and_flags_have_the_bits_of_the_figure() {
        // Base 2.1, figure 294; values that Linux compares with ("include/linux/nvme.h").
        let treq = TransportRequirements::new()
            .with_secure_channel(SecureChannel::NOT_REQUIRED)
            .with_sq_flow_control_disable(true);
        assert_eq!(u8::from(treq), 0b110);
        let flags = DiscoveryEntryFlags::new().with_epcsd(true);
        assert_eq!(u16::from(flags), 1 << 1);
        assert_eq!(u16::from(flags.with_dupretinfo(true)), 0b11);
    }

    #[test]
    fn an_entry_that_is_all_zeroes_is_a_value() {
        let entry = DiscoveryEntry::read_from_bytes(&[0; DISCOVERY_ENTRY_SIZE]).unwrap();
        assert_eq!(entry.trtype.name(), "reserved or vendor specific");
        assert_eq!(entry.treq.secure_channel(), SecureChannel::NOT_SPECIFIED);
    }
}
