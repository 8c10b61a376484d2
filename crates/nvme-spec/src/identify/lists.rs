//! Identify lists: namespace identifiers (CNS 02h, 07h, 10h), namespace identification descriptors
//! (CNS 03h), controllers (CNS 12h, 13h) and I/O command sets (CNS 1Ch) (Base 2.1, 5.1.13).

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most namespace identifiers of one list.
pub const NAMESPACE_IDS_MAX: usize = 1024;
/// Most controller identifiers of one list.
pub const CONTROLLER_IDS_MAX: usize = 2047;

/// Namespace ID list, 4096 bytes (CNS 02h, 07h and 10h).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct NamespaceIdList {
    /// Namespace identifiers, rising, then zeros.
    pub nsids: [u32; NAMESPACE_IDS_MAX],
}

/// Controller list, 4096 bytes (CNS 12h and 13h).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ControllerList {
    /// Number of Identifiers.
    pub numids: u16,
    /// Controller identifiers, rising, then zeros.
    pub cntlids: [u16; CONTROLLER_IDS_MAX],
}

open_enum! {
    /// Namespace Identifier Type of a namespace identification descriptor.
    pub struct NamespaceIdentifierType(u8) {
        EUI64 = 1, "IEEE Extended Unique Identifier";
        NGUID = 2, "Namespace Globally Unique Identifier";
        UUID = 3, "Namespace UUID";
        CSI = 4, "Command Set Identifier";
    }
}

impl NamespaceIdentifierType {
    /// The NIDL that goes with this type, in bytes; `None` where the type is not known.
    pub const fn identifier_length(self) -> Option<u8> {
        match self {
            Self::EUI64 => Some(8),
            Self::NGUID | Self::UUID => Some(16),
            Self::CSI => Some(1),
            _ => None,
        }
    }
}

/// Head of a namespace identification descriptor, 4 bytes; the identifier follows it.
///
/// The list is 4096 bytes of descriptors without gaps; a head of zeros ends it.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct NamespaceIdentificationHeader {
    /// Namespace Identifier Type.
    pub nidt: NamespaceIdentifierType,
    /// Namespace Identifier Length, in bytes, without this head.
    pub nidl: u8,
    /// Reserved.
    pub reserved_2: [u8; 2],
}

/// I/O Command Set vector: one bit per command set identifier.
#[bitfield(u64)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IoCommandSetVector {
    /// NVM command set.
    pub nvm: bool,
    /// Key Value command set.
    pub kv: bool,
    /// Zoned Namespace command set.
    pub zns: bool,
    #[bits(61)]
    __: u64,
}

/// Identify I/O Command Set, 4096 bytes (CNS 1Ch).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IoCommandSets {
    /// Combinations of command sets that may be used at the same time.
    pub combinations: [IoCommandSetVector; 512],
}

const _: () = assert!(size_of::<NamespaceIdList>() == super::IDENTIFY_SIZE);
const _: () = assert!(size_of::<ControllerList>() == super::IDENTIFY_SIZE);
const _: () = assert!(size_of::<IoCommandSets>() == super::IDENTIFY_SIZE);
const _: () = assert!(size_of::<NamespaceIdentificationHeader>() == 4);
