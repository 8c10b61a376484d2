//! Identify Controller of the NVM command set: CNS 06h, CSI 00h (NVM 1.1, 4.1.5).

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::registers::Version;

/// Admin Optional Command Support.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Aocs {
    /// Reporting Allocated LBA Supported: Get LBA Status with Action Type 02h.
    pub ralbas: bool,
    #[bits(15)]
    __: u16,
}

/// I/O Command Set specific Identify Controller for the NVM command set, 4096 bytes (CNS 06h, CSI
/// 00h).
///
/// A limit of Verify, Write Zeroes, Write Uncorrectable or Dataset Management is a recommendation,
/// and 0 is none, where the command's bit in ONCS is set. Where that bit is clear, it is a limit,
/// and 0 is "the command is not supported".
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IdentifyNvmController {
    /// Verify Size Limit: 2^VSL pages of CAP.MPSMIN.
    pub vsl: u8,
    /// Write Zeroes Size Limit: 2^WZSL pages of CAP.MPSMIN.
    pub wzsl: u8,
    /// Write Uncorrectable Size Limit: 2^WUSL pages of CAP.MPSMIN.
    pub wusl: u8,
    /// Dataset Management Ranges Limit.
    pub dmrl: u8,
    /// Dataset Management Range Size Limit, in logical blocks.
    pub dmrsl: u32,
    /// Dataset Management Size Limit, in logical blocks.
    pub dmsl: u64,
    /// Key Per I/O Capabilities.
    pub kpiocap: u8,
    /// Write Zeroes With Deallocate Size Limit: 2^WZDSL pages of CAP.MPSMIN; 0 is WZSL.
    pub wzdsl: u8,
    /// Admin Optional Command Support.
    pub aocs: Aocs,
    /// Version of the NVM command set specification.
    pub ver: Version,
    /// LBA Migration Queue Format.
    pub lbamqf: u8,
    /// Reserved.
    pub reserved_25: [u8; 4071],
}

const _: () = assert!(size_of::<IdentifyNvmController>() == super::IDENTIFY_SIZE);
