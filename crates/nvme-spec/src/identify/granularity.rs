//! Namespace Granularity List: in which sizes namespaces are best created (CNS 16h; NVM 1.1,
//! 4.1.5).

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Descriptors that the list has room for; a host that has not set LBAFEE is given 16 at most.
pub const GRANULARITY_DESCRIPTORS_MAX: usize = 64;

/// Namespace Granularity Attributes.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct GranularityAttributes {
    /// Granularity Descriptor Mapping: descriptor n is for LBA format n; else descriptor 0 is for
    /// all.
    pub gdm: bool,
    #[bits(31)]
    __: u32,
}

/// Namespace Granularity Descriptor, 16 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct GranularityDescriptor {
    /// Namespace Size Granularity, in bytes; 0 is not reported.
    pub nsg: u64,
    /// Namespace Capacity Granularity, in bytes; 0 is not reported.
    pub ncg: u64,
}

/// Namespace Granularity List, 4096 bytes (CNS 16h).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct NamespaceGranularityList {
    /// Namespace Granularity Attributes.
    pub nga: GranularityAttributes,
    /// Number of Descriptors.
    pub nd_z: u8,
    /// Reserved.
    pub reserved_5: [u8; 27],
    /// Namespace Granularity Descriptors.
    pub descriptors: [GranularityDescriptor; GRANULARITY_DESCRIPTORS_MAX],
    /// Reserved.
    pub reserved_1056: [u8; 3040],
}

const _: () = assert!(size_of::<NamespaceGranularityList>() == super::IDENTIFY_SIZE);
const _: () = assert!(offset_of!(NamespaceGranularityList, descriptors) == 32);
