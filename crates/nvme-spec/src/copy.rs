//! Copy: its dwords, the formats of source ranges, and what a controller says of them (NVM 1.1,
//! 3.3.2). The destination's first block is [`crate::command::slba`].

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::protection::Prinfo;

/// Most source ranges of one command: NR is a 0's based byte.
pub const COPY_RANGES_MAX: usize = 256;

open_enum! {
    /// Copy Descriptor Format.
    pub struct CopyDescriptorFormat(u8) {
        FORMAT_0 = 0x0, "Ranges of this namespace, 32 bytes each";
        FORMAT_1 = 0x1, "Ranges of this namespace with 64-bit guards, 40 bytes each";
        FORMAT_2 = 0x2, "Ranges of any namespace, 32 bytes each";
        FORMAT_3 = 0x3, "Ranges of any namespace with 64-bit guards, 40 bytes each";
        FORMAT_4 = 0x4, "Ranges of the descriptors of another command set";
    }
}

/// Copy, Dword 12 (NVM 1.1, 3.3.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CopyCdw12 {
    /// Number of Ranges.
    pub nr_z: u8,
    /// Descriptor Format.
    #[bits(4)]
    pub desfmt: CopyDescriptorFormat,
    /// Protection Information of the read portion.
    #[bits(4)]
    pub prinfor: Prinfo,
    /// Command Extension Type.
    #[bits(4)]
    pub cetype: u8,
    /// Directive Type.
    #[bits(4)]
    pub dtype: u8,
    /// Storage Tag Check Write.
    pub stcw: bool,
    /// Storage Tag Check Read.
    pub stcr: bool,
    /// Protection Information of the write portion.
    #[bits(4)]
    pub prinfow: Prinfo,
    /// Force Unit Access.
    pub fua: bool,
    /// Limited Retry.
    pub lr: bool,
}

/// Source Options of a range of format 2h and 3h.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SourceOptions {
    #[bits(15)]
    __: u16,
    /// Fast Copy Only.
    pub fco: bool,
}

/// Source range, formats 0h and 2h, 32 bytes (NVM 1.1, 3.3.2).
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct SourceRange {
    /// Source Namespace Identifier, in format 2h; reserved in format 0h.
    pub snsid: u32,
    /// Reserved.
    pub reserved_4: [u8; 4],
    /// Starting LBA.
    pub slba: u64,
    /// Number of Logical Blocks.
    pub nlb_z: u16,
    /// Command Extension Type, in bits 3:0.
    pub cetype: u8,
    /// Reserved.
    pub reserved_19: u8,
    /// Command Extension Value.
    pub cev: u16,
    /// Source Options, in format 2h; reserved in format 0h.
    pub sopt: SourceOptions,
    /// Expected Logical Block Tags.
    pub elbt: [u8; 4],
    /// Expected Logical Block Application Tag.
    pub elbat: [u8; 2],
    /// Expected Logical Block Application Tag Mask.
    pub elbatm: [u8; 2],
}

/// Copy Descriptor Formats, one bit per format: those that Identify Controller says are supported
/// (CDFS, once OCFS), and those of Host Behavior Support that a host enables (CDFE), where bits 0
/// and 1 are reserved.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CopyDescriptorFormats {
    /// Format 0h.
    pub cdf0: bool,
    /// Format 1h.
    pub cdf1: bool,
    /// Format 2h.
    pub cdf2: bool,
    /// Format 3h.
    pub cdf3: bool,
    /// Format 4h.
    pub cdf4: bool,
    #[bits(11)]
    __: u16,
}

const _: () = assert!(size_of::<SourceRange>() == 32);
const _: () = assert!(offset_of!(SourceRange, slba) == 8);

#[cfg(test)]
mod tests {
    use zerocopy::transmute;

    use super::*;

    #[test]
    fn dword_12_lies_where_nvm_1_1_3_3_2_says() {
        let bits = |cdw12: CopyCdw12| u32::from(cdw12);
        assert_eq!(bits(CopyCdw12::new().with_nr_z(0xff)), 0xff);
        assert_eq!(
            bits(CopyCdw12::new().with_desfmt(CopyDescriptorFormat::FORMAT_2)),
            2 << 8
        );
        let check = Prinfo::new().with_pract(true);
        assert_eq!(bits(CopyCdw12::new().with_prinfor(check)), 1 << 15);
        assert_eq!(bits(CopyCdw12::new().with_cetype(0xf)), 0xf << 16);
        assert_eq!(bits(CopyCdw12::new().with_dtype(0xf)), 0xf << 20);
        assert_eq!(bits(CopyCdw12::new().with_stcw(true)), 1 << 24);
        assert_eq!(bits(CopyCdw12::new().with_stcr(true)), 1 << 25);
        assert_eq!(bits(CopyCdw12::new().with_prinfow(check)), 1 << 29);
        assert_eq!(bits(CopyCdw12::new().with_fua(true)), 1 << 30);
        assert_eq!(bits(CopyCdw12::new().with_lr(true)), 1 << 31);
    }

    #[test]
    fn a_typed_range_decodes() {
        let mut bytes = [0u8; 32];
        bytes[0] = 2;
        bytes[8..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        bytes[16..18].copy_from_slice(&[7, 1]);
        bytes[18] = 5;
        bytes[20] = 6;
        bytes[23] = 0x80;
        bytes[24] = 9;
        bytes[28] = 10;
        bytes[30] = 11;
        let range: SourceRange = transmute!(bytes);
        assert_eq!((range.snsid, range.slba), (2, 0x0807_0605_0403_0201));
        assert_eq!((range.nlb_z, range.cetype, range.cev), (0x107, 5, 6));
        assert!(range.sopt.fco());
        assert_eq!(
            (range.elbt[0], range.elbat[0], range.elbatm[0]),
            (9, 10, 11)
        );
    }

    #[test]
    fn formats_are_bits() {
        let formats = CopyDescriptorFormats::new().with_cdf0(true).with_cdf2(true);
        assert_eq!(u16::from(formats), 0b101);
        let formats = CopyDescriptorFormats::from(0b1_1010);
        assert!(formats.cdf1() && formats.cdf3() && formats.cdf4());
    }
}
