//! Get LBA Status: its dwords and what it returns (NVM 1.1, 4.2.1). The first block of the range is
//! [`crate::command::slba`].

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Get LBA Status, Dword 12 (NVM 1.1, 4.2.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GetLbaStatusCdw12 {
    /// Maximum Number of Dwords to return.
    pub mndw_z: u32,
}

open_enum! {
    /// Action Type: which logical blocks are reported.
    pub struct LbaStatusAction(u8) {
        ALLOCATED = 0x02, "Return allocated LBAs";
        SCAN = 0x10, "Scan, and return untracked and tracked potentially unrecoverable LBAs";
        TRACKED = 0x11, "Return tracked potentially unrecoverable LBAs";
    }
}

/// Get LBA Status, Dword 13 (NVM 1.1, 4.2.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GetLbaStatusCdw13 {
    /// Range Length, in logical blocks; 0 is to the end of the namespace.
    pub rl: u16,
    __: u8,
    /// Action Type.
    #[bits(8)]
    pub atype: LbaStatusAction,
}

open_enum! {
    /// Completion Condition.
    pub struct CompletionCondition(u8) {
        NOT_REPORTED = 0x0, "No indication of the completion condition";
        INCOMPLETE = 0x1, "MNDW reached with more to report, or the scan did not complete";
        COMPLETE = 0x2, "All of the range is reported";
    }
}

/// Head of the LBA Status Descriptor List, 8 bytes; [`LbaStatusDescriptor`]s follow it.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct LbaStatusListHeader {
    /// Number of LBA Status Descriptors.
    pub nlsd: u32,
    /// Completion Condition.
    pub cmpc: CompletionCondition,
    /// Reserved.
    pub reserved_5: [u8; 3],
}

open_enum! {
    /// LBA Range Status: what holds for each logical block of a descriptor.
    pub struct LbaRangeStatus(u8) {
        MAY_BE_READABLE = 0b000, "May be unrecoverable, written by Write Uncorrectable, or readable";
        UNRECOVERABLE = 0b001, "May be unrecoverable, or written by Write Uncorrectable";
        ALLOCATED = 0b010, "One or more of the logical blocks are allocated";
        WRITTEN_UNCORRECTABLE = 0b011, "Written by Write Uncorrectable";
    }
}

/// Status of a descriptor. In revision 1.0 of the command set bit 0 stood for "may be
/// unrecoverable" and bit 1 for "written by Write Uncorrectable"; the values are the same.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct LbaStatus {
    /// LBA Range Status.
    #[bits(3)]
    pub lbars: LbaRangeStatus,
    #[bits(5)]
    __: u8,
}

/// LBA Status Descriptor, 16 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct LbaStatusDescriptor {
    /// Descriptor Starting LBA.
    pub dslba: u64,
    /// Number of Logical Blocks.
    pub nlb_z: u32,
    /// Reserved.
    pub reserved_12: u8,
    /// Status.
    pub stas: LbaStatus,
    /// Reserved.
    pub reserved_14: [u8; 2],
}

/// Head of LBA Status Information (LID 0Eh), 16 bytes (NVM 1.1, 4.1.4): namespaces with ranges that
/// a host should ask about follow it.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct LbaStatusInformationHeader {
    /// LBA Status Log Page Length, in bytes.
    pub lslplen: u32,
    /// Number of LBA Status Log Namespace Elements.
    pub nlslne: u32,
    /// Estimate of Unrecoverable Logical Blocks.
    pub estulb: u32,
    /// Reserved.
    pub reserved_12: u16,
    /// LBA Status Generation Counter.
    pub lsgc: u16,
}

const _: () = assert!(size_of::<LbaStatusInformationHeader>() == 16);
const _: () = assert!(offset_of!(LbaStatusInformationHeader, lsgc) == 14);
const _: () = assert!(size_of::<LbaStatusListHeader>() == 8);
const _: () = assert!(size_of::<LbaStatusDescriptor>() == 16);
const _: () = assert!(offset_of!(LbaStatusDescriptor, stas) == 13);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dwords_lie_where_nvm_1_1_4_2_1_says() {
        assert_eq!(GetLbaStatusCdw12::from(0x3ff).mndw_z(), 0x3ff);
        let cdw13 = GetLbaStatusCdw13::from(0x11ff_0100);
        assert_eq!((cdw13.rl(), cdw13.atype()), (256, LbaStatusAction::TRACKED));
        assert_eq!(u32::from(cdw13), 0x11ff_0100);
        assert_eq!(
            u32::from(GetLbaStatusCdw13::new().with_atype(LbaStatusAction::SCAN)),
            0x1000_0000
        );
    }

    #[test]
    fn a_typed_list_decodes() {
        let mut bytes = [0u8; 24];
        bytes[0] = 1;
        bytes[4] = 2;
        bytes[8] = 3;
        bytes[16] = 4;
        bytes[21] = 0b1111_1011;
        let (header, rest) = LbaStatusListHeader::read_from_prefix(&bytes).unwrap();
        assert_eq!(
            (header.nlsd, header.cmpc),
            (1, CompletionCondition::COMPLETE)
        );
        let descriptor = LbaStatusDescriptor::read_from_bytes(rest).unwrap();
        assert_eq!((descriptor.dslba, descriptor.nlb_z), (3, 4));
        assert_eq!(
            descriptor.stas.lbars(),
            LbaRangeStatus::WRITTEN_UNCORRECTABLE
        );
        assert_eq!(LbaRangeStatus::UNRECOVERABLE.0, 1);
        assert_eq!(LbaRangeStatus::ALLOCATED.0, 2);
        assert_eq!(descriptor.as_bytes(), &bytes[8..]);
    }
}
