//! Identify Namespace: CNS 00h and, for the NVM command set, CNS 05h (NVM 1.1, 4.1.5); CNS 08h,
//! independent of the command set (Base 2.1, 5.1.13.2).

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::little_endian::U128;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Entries of the table of LBA formats.
pub const LBA_FORMATS_MAX: usize = 64;

/// Namespace Features of the NVM command set.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Nsfeat {
    /// Thin Provisioning.
    pub thinp: bool,
    /// Namespace Supported Atomic Boundary & Power: NAWUN, NAWUPF and NACWU hold.
    pub nsabp: bool,
    /// Deallocated or Unwritten Logical Block Error is supported.
    pub dae: bool,
    /// Unique ID Reuse: NGUID and EUI64 are never used again.
    pub uidreuse: bool,
    /// Optimal Performance: which of NPWG, NPWA, NPDG, NPDA and NOWS hold; 01b all five.
    #[bits(2)]
    pub optperf: u8,
    /// Multiple Atomicity Mode.
    pub mam: bool,
    /// Optimal Read Performance: NPRG, NPRA and NORS hold.
    pub optrperf: bool,
}

/// Formatted LBA Size.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Flbas {
    /// Format Index Lower.
    #[bits(4)]
    pub fidxl: u8,
    /// Metadata Transferred at the End of LBA.
    pub mtelba: bool,
    /// Format Index Upper.
    #[bits(2)]
    pub fidxu: u8,
    #[bits(1)]
    __: u8,
}

impl Flbas {
    /// Index of the format in the table of LBA formats, 0 to 63.
    pub const fn format_index(self) -> u8 {
        self.fidxu() << 4 | self.fidxl()
    }
}

open_enum! {
    /// Bytes that reads of a deallocated logical block return.
    pub struct DeallocatedReads(u8) {
        NOT_REPORTED = 0b000, "Not reported";
        ZEROES = 0b001, "All bytes cleared to 0h";
        ONES = 0b010, "All bytes set to FFh";
    }
}

/// Deallocate Logical Block Features.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Dlfeat {
    /// Deallocation Read Behavior.
    #[bits(3)]
    pub drb: DeallocatedReads,
    /// Write Zeroes Deallocation Support: DEAC is obeyed.
    pub wzds: bool,
    /// Guard Deallocation Status.
    pub gds: bool,
    #[bits(3)]
    __: u8,
}

/// Namespace Multi-path I/O and Namespace Sharing Capabilities.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Nmic {
    /// Shared Namespace: may be attached to two controllers at once.
    pub shrns: bool,
    /// Dispersed Namespace.
    pub disns: bool,
    #[bits(6)]
    __: u8,
}

/// End-to-end Data Protection Type Settings.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Dps {
    /// Protection Information Type: 1 to 3, or 0 where protection information is not enabled.
    #[bits(3)]
    pub pit: u8,
    /// Protection Information Position: 1 is the first bytes of the metadata.
    pub pip: bool,
    #[bits(4)]
    __: u8,
}

/// Reservation Capabilities.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Rescap {
    /// Persist Through Power Loss Support.
    pub ptpls: bool,
    /// Write Exclusive Support.
    pub wes: bool,
    /// Exclusive Access Support.
    pub eas: bool,
    /// Write Exclusive - Registrants Only Support.
    pub weros: bool,
    /// Exclusive Access - Registrants Only Support.
    pub earos: bool,
    /// Write Exclusive - All Registrants Support.
    pub wears: bool,
    /// Exclusive Access - All Registrants Support.
    pub eaars: bool,
    /// Ignore Existing Key is used as revision 1.3 and later define it.
    pub iekr13: bool,
}

/// Namespace Attributes.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Nsattr {
    /// Currently Write Protected.
    pub cwp: bool,
    #[bits(7)]
    __: u8,
}

/// Format Progress Indicator.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Fpi {
    /// Remaining Format NVM, in percent.
    #[bits(7)]
    pub rfnvm: u8,
    /// Format Progress Indicator Support.
    pub fpis: bool,
}

/// LBA Format, 4 bytes.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct LbaFormat {
    /// Metadata Size, in bytes.
    pub ms: u16,
    /// LBA Data Size: 2^LBADS bytes, at least 9; 0 is "no such format".
    pub lbads: u8,
    /// Relative Performance: 0 best to 3 degraded.
    #[bits(2)]
    pub rp: u8,
    #[bits(6)]
    __: u8,
}

/// Identify Namespace of the NVM command set, 4096 bytes (CNS 00h).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IdentifyNamespace {
    /// Namespace Size, in logical blocks.
    pub nsze: u64,
    /// Namespace Capacity, in logical blocks.
    pub ncap: u64,
    /// Namespace Utilization, in logical blocks.
    pub nuse: u64,
    /// Namespace Features.
    pub nsfeat: Nsfeat,
    /// Number of LBA Formats.
    pub nlbaf_z: u8,
    /// Formatted LBA Size.
    pub flbas: Flbas,
    /// Metadata Capabilities.
    pub mc: u8,
    /// End-to-end Data Protection Capabilities.
    pub dpc: u8,
    /// End-to-end Data Protection Type Settings.
    pub dps: Dps,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities.
    pub nmic: Nmic,
    /// Reservation Capabilities.
    pub rescap: Rescap,
    /// Format Progress Indicator.
    pub fpi: Fpi,
    /// Deallocate Logical Block Features.
    pub dlfeat: Dlfeat,
    /// Namespace Atomic Write Unit Normal, in logical blocks.
    pub nawun_z: u16,
    /// Namespace Atomic Write Unit Power Fail, in logical blocks.
    pub nawupf_z: u16,
    /// Namespace Atomic Compare & Write Unit, in logical blocks.
    pub nacwu_z: u16,
    /// Namespace Atomic Boundary Size Normal, in logical blocks; 0 is no boundary.
    pub nabsn_z: u16,
    /// Namespace Atomic Boundary Offset, in logical blocks.
    pub nabo: u16,
    /// Namespace Atomic Boundary Size Power Fail, in logical blocks; 0 is no boundary.
    pub nabspf_z: u16,
    /// Namespace Optimal I/O Boundary, in logical blocks; 0 is not reported.
    pub noiob: u16,
    /// NVM Capacity, in bytes.
    pub nvmcap: U128,
    /// Namespace Preferred Write Granularity, in logical blocks.
    pub npwg_z: u16,
    /// Namespace Preferred Write Alignment, in logical blocks.
    pub npwa_z: u16,
    /// Namespace Preferred Deallocate Granularity, in logical blocks.
    pub npdg_z: u16,
    /// Namespace Preferred Deallocate Alignment, in logical blocks.
    pub npda_z: u16,
    /// Namespace Optimal Write Size, in logical blocks.
    pub nows_z: u16,
    /// Maximum Single Source Range Length, in logical blocks, of Copy.
    pub mssrl: u16,
    /// Maximum Copy Length, in logical blocks.
    pub mcl: u32,
    /// Maximum Source Range Count of Copy.
    pub msrc_z: u8,
    /// Key Per I/O Status.
    pub kpios: u8,
    /// Number of Unique Attribute LBA Formats.
    pub nulbaf: u8,
    /// Reserved.
    pub reserved_83: u8,
    /// Key Per I/O Data Access Alignment and Granularity.
    pub kpiodaag: u32,
    /// Reserved.
    pub reserved_88: [u8; 4],
    /// ANA Group Identifier.
    pub anagrpid: u32,
    /// Reserved.
    pub reserved_96: [u8; 3],
    /// Namespace Attributes.
    pub nsattr: Nsattr,
    /// NVM Set Identifier.
    pub nvmsetid: u16,
    /// Endurance Group Identifier.
    pub endgid: u16,
    /// Namespace Globally Unique Identifier, most significant byte first.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier, most significant byte first.
    pub eui64: [u8; 8],
    /// LBA Format 0 to 63 Support.
    pub lbaf: [LbaFormat; LBA_FORMATS_MAX],
    /// Vendor Specific.
    pub vendor_specific: [u8; 3712],
}

open_enum! {
    /// Protection Information Format of an extended LBA format.
    pub struct ProtectionFormat(u8) {
        GUARD_16_BITS = 0b00, "16b Guard Protection Information";
        GUARD_32_BITS = 0b01, "32b Guard Protection Information";
        GUARD_64_BITS = 0b10, "64b Guard Protection Information";
        QUALIFIED = 0b11, "As the Qualified Protection Information Format says";
    }
}

/// Extended LBA Format, 4 bytes.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ExtendedLbaFormat {
    /// Storage Tag Size, in bits.
    #[bits(7)]
    pub sts: u8,
    /// Protection Information Format.
    #[bits(2)]
    pub pif: ProtectionFormat,
    /// Qualified Protection Information Format.
    #[bits(4)]
    pub qpif: u8,
    #[bits(19)]
    __: u32,
}

/// I/O Command Set specific Identify Namespace for the NVM command set, 4096 bytes (CNS 05h, CSI
/// 00h).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IdentifyNvmNamespace {
    /// Logical Block Storage Tag Mask.
    pub lbstm: u64,
    /// Protection Information Capabilities.
    pub pic: u8,
    /// Protection Information Format Attribute.
    pub pifa: u8,
    /// Reserved.
    pub reserved_10: [u8; 2],
    /// Extended LBA Format 0 to 63 Support.
    pub elbaf: [ExtendedLbaFormat; LBA_FORMATS_MAX],
    /// Namespace Preferred Deallocate Granularity Large, in logical blocks.
    pub npdgl: u32,
    /// Namespace Preferred Read Granularity, in logical blocks.
    pub nprg_z: u32,
    /// Namespace Preferred Read Alignment, in logical blocks.
    pub npra_z: u32,
    /// Namespace Optimal Read Size, in logical blocks.
    pub nors_z: u32,
    /// Namespace Preferred Deallocate Alignment Large, in logical blocks.
    pub npdal: u32,
    /// LBA Format Placement Shard Size, in bytes.
    pub lbapss: u32,
    /// Tracked LBA Allocation Granularity, in logical blocks.
    pub tlbaag: u32,
    /// Reserved.
    pub reserved_296: [u8; 3800],
}

/// Common namespace features, independent of the command set.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct NsfeatIndependent {
    #[bits(3)]
    __: u8,
    /// Unique ID Reuse: NGUID and EUI64 are never used again.
    pub uidreuse: bool,
    /// Rotational Media.
    pub rmedia: bool,
    /// Volatile Write Cache Not Present for this namespace.
    pub vwcnp: bool,
    #[bits(2)]
    __: u8,
}

/// Namespace Status.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Nstat {
    /// Namespace Ready.
    pub nrdy: bool,
    #[bits(7)]
    __: u8,
}

/// I/O Command Set Independent Identify Namespace, 4096 bytes (CNS 08h).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IdentifyNamespaceIndependent {
    /// Common namespace features.
    pub nsfeat: NsfeatIndependent,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities.
    pub nmic: Nmic,
    /// Reservation Capabilities.
    pub rescap: Rescap,
    /// Format Progress Indicator.
    pub fpi: Fpi,
    /// ANA Group Identifier.
    pub anagrpid: u32,
    /// Namespace Attributes.
    pub nsattr: Nsattr,
    /// Reserved.
    pub reserved_9: u8,
    /// NVM Set Identifier.
    pub nvmsetid: u16,
    /// Endurance Group Identifier.
    pub endgid: u16,
    /// Namespace Status.
    pub nstat: Nstat,
    /// Key Per I/O Status.
    pub kpios: u8,
    /// Maximum Key Tag.
    pub maxkt: u16,
    /// Reserved.
    pub reserved_18: [u8; 2],
    /// Reachability Group Identifier.
    pub rgrpid: u32,
    /// Reserved.
    pub reserved_24: [u8; 4072],
}

const _: () = assert!(size_of::<IdentifyNamespace>() == super::IDENTIFY_SIZE);
const _: () = assert!(size_of::<IdentifyNvmNamespace>() == super::IDENTIFY_SIZE);
const _: () = assert!(size_of::<IdentifyNamespaceIndependent>() == super::IDENTIFY_SIZE);
const _: () = assert!(offset_of!(IdentifyNamespace, nguid) == 104);
const _: () = assert!(offset_of!(IdentifyNamespace, lbaf) == 128);
const _: () = assert!(offset_of!(IdentifyNamespace, vendor_specific) == 384);
