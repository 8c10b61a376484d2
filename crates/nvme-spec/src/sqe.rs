//! Submission Queue Entry: the common command format (Base 2.1, 4.1).

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::opcode::{AdminOpcode, NvmOpcode};

open_enum! {
    /// Fused Operation (CDW0.FUSE).
    pub struct Fuse(u8) {
        NORMAL = 0b00, "Normal operation";
        FIRST = 0b01, "Fused operation, first command";
        SECOND = 0b10, "Fused operation, second command";
    }
}

open_enum! {
    /// PRP or SGL for Data Transfer (CDW0.PSDT).
    pub struct Psdt(u8) {
        PRP = 0b00, "PRPs are used";
        SGL_METADATA_BUFFER = 0b01, "SGLs are used, and MPTR is the address of a buffer";
        SGL_METADATA_SGL = 0b10, "SGLs are used, and MPTR is the address of an SGL segment";
    }
}

/// Byte 1 of a command: how it is fused and how its data is described.
#[bitfield(u8, default = false)]
#[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CommandFlags {
    /// Fused Operation.
    #[bits(2)]
    pub fuse: Fuse,
    #[bits(4)]
    __: u8,
    /// PRP or SGL for Data Transfer.
    #[bits(2)]
    pub psdt: Psdt,
}

/// Submission Queue Entry, 64 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Sqe {
    /// Opcode: an [`AdminOpcode`] or, on an I/O queue, one of the command set's opcodes.
    pub opcode: u8,
    /// FUSE and PSDT.
    pub flags: CommandFlags,
    /// Command Identifier.
    pub cid: u16,
    /// Namespace Identifier.
    pub nsid: u32,
    /// Command Dword 2.
    pub cdw2: u32,
    /// Command Dword 3.
    pub cdw3: u32,
    /// Metadata Pointer.
    pub mptr: u64,
    /// PRP Entry 1, or the first half of SGL Entry 1.
    pub prp1: u64,
    /// PRP Entry 2, or the second half of SGL Entry 1.
    pub prp2: u64,
    /// Command Dword 10.
    pub cdw10: u32,
    /// Command Dword 11.
    pub cdw11: u32,
    /// Command Dword 12.
    pub cdw12: u32,
    /// Command Dword 13.
    pub cdw13: u32,
    /// Command Dword 14.
    pub cdw14: u32,
    /// Command Dword 15.
    pub cdw15: u32,
}

/// Bytes of a Submission Queue Entry, and the base-2 logarithm that CC.IOSQES takes.
pub const SQE_SIZE: usize = 64;
/// CC.IOSQES, and both halves of Identify Controller's SQES, for [`SQE_SIZE`].
pub const SQE_SIZE_LOG2: u8 = 6;

const _: () = assert!(size_of::<Sqe>() == SQE_SIZE && SQE_SIZE == 1 << SQE_SIZE_LOG2);
const _: () = assert!(offset_of!(Sqe, cid) == 2 && offset_of!(Sqe, nsid) == 4);
const _: () = assert!(offset_of!(Sqe, mptr) == 16 && offset_of!(Sqe, prp1) == 24);
const _: () = assert!(offset_of!(Sqe, prp2) == 32 && offset_of!(Sqe, cdw10) == 40);
const _: () = assert!(offset_of!(Sqe, cdw15) == 60);

impl Sqe {
    /// The entry whose bytes, read as eight little-endian 64-bit words, are these.
    #[inline]
    pub fn from_words(words: [u64; 8]) -> Self {
        transmute!(words)
    }

    /// The bytes of the entry as eight little-endian 64-bit words.
    #[inline]
    pub fn to_words(self) -> [u64; 8] {
        transmute!(self)
    }

    /// The opcode, on the Admin Submission Queue.
    pub const fn admin_opcode(&self) -> AdminOpcode {
        AdminOpcode(self.opcode)
    }

    /// The opcode, on an I/O queue and for a namespace of the NVM command set.
    pub const fn nvm_opcode(&self) -> NvmOpcode {
        NvmOpcode(self.opcode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_lies_at_its_offset() {
        // Base 2.1, figure "Common Command Format".
        assert_eq!(offset_of!(Sqe, opcode), 0);
        assert_eq!(offset_of!(Sqe, flags), 1);
        assert_eq!(offset_of!(Sqe, cid), 2);
        assert_eq!(offset_of!(Sqe, nsid), 4);
        assert_eq!(offset_of!(Sqe, cdw2), 8);
        assert_eq!(offset_of!(Sqe, cdw3), 12);
        assert_eq!(offset_of!(Sqe, mptr), 16);
        assert_eq!(offset_of!(Sqe, prp1), 24);
        assert_eq!(offset_of!(Sqe, prp2), 32);
        assert_eq!(offset_of!(Sqe, cdw10), 40);
        assert_eq!(offset_of!(Sqe, cdw11), 44);
        assert_eq!(offset_of!(Sqe, cdw12), 48);
        assert_eq!(offset_of!(Sqe, cdw13), 52);
        assert_eq!(offset_of!(Sqe, cdw14), 56);
        assert_eq!(offset_of!(Sqe, cdw15), 60);
    }

    #[test]
    fn words_are_the_bytes() {
        let mut bytes = [0u8; 64];
        for (byte, value) in bytes.iter_mut().zip(0u8..) {
            *byte = value;
        }
        let mut words = [0u64; 8];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(chunk.try_into().unwrap());
        }
        let sqe = Sqe::from_words(words);
        assert_eq!(sqe.opcode, 0x00);
        assert_eq!(u8::from(sqe.flags), 0x01);
        assert_eq!(sqe.cid, 0x0302);
        assert_eq!(sqe.nsid, 0x0706_0504);
        assert_eq!(sqe.mptr, 0x1716_1514_1312_1110);
        assert_eq!(sqe.prp1, 0x1f1e_1d1c_1b1a_1918);
        assert_eq!(sqe.prp2, 0x2726_2524_2322_2120);
        assert_eq!(sqe.cdw10, 0x2b2a_2928);
        assert_eq!(sqe.cdw15, 0x3f3e_3d3c);
        assert_eq!(sqe.as_bytes(), bytes);
        assert_eq!(sqe.to_words(), words);
    }

    #[test]
    fn flags_split_into_fuse_and_psdt() {
        let flags = CommandFlags::from(0b0100_0010);
        assert_eq!(flags.fuse(), Fuse::SECOND);
        assert_eq!(flags.psdt(), Psdt::SGL_METADATA_BUFFER);
        assert_eq!(
            u8::from(CommandFlags::new().with_psdt(Psdt::SGL_METADATA_SGL)),
            0x80
        );
        assert_eq!(u8::from(CommandFlags::new().with_fuse(Fuse::FIRST)), 0x01);
    }
}
