//! Completion Queue Entry and its status field (Base 2.1, 4.2.1 and 4.2.3).

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::status::Status;

/// The upper half of completion Dword 3: Phase Tag and Status.
///
/// In an Error Information log entry the same 16 bits stand with the phase of the completion.
#[bitfield(u16, default = false)]
#[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct StatusField {
    /// Phase Tag (P).
    #[inline]
    pub phase: bool,
    /// Status Code.
    #[inline]
    pub sc: u8,
    /// Status Code Type.
    #[bits(3)]
    #[inline]
    pub sct: u8,
    /// Command Retry Delay: 0, or which of Identify Controller's CRDT1 to CRDT3.
    #[bits(2)]
    #[inline]
    pub crd: u8,
    /// More (M): the Error Information log tells more.
    #[inline]
    pub more: bool,
    /// Do Not Retry.
    #[inline]
    pub dnr: bool,
}

impl StatusField {
    /// Status Code Type and Status Code together.
    pub const fn status(self) -> Status {
        Status::from_parts(self.sct(), self.sc())
    }

    /// This field with another Status Code Type and Status Code; the other bits stay.
    #[inline]
    #[must_use]
    pub const fn with_status(self, status: Status) -> Self {
        self.with_sct(status.sct()).with_sc(status.sc())
    }
}

/// Completion Queue Entry, 16 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Cqe {
    /// Dword 0: command specific.
    pub dw0: u32,
    /// Dword 1: command specific.
    pub dw1: u32,
    /// SQ Head Pointer (SQHD).
    pub sq_head: u16,
    /// SQ Identifier (SQID).
    pub sq_id: u16,
    /// Command Identifier.
    pub cid: u16,
    /// Phase Tag and Status.
    pub status: StatusField,
}

/// Bytes of a Completion Queue Entry.
pub const CQE_SIZE: usize = 16;
/// CC.IOCQES, and both halves of Identify Controller's CQES, for [`CQE_SIZE`].
pub const CQE_SIZE_LOG2: u8 = 4;

const _: () = assert!(size_of::<Cqe>() == CQE_SIZE && CQE_SIZE == 1 << CQE_SIZE_LOG2);
const _: () = assert!(offset_of!(Cqe, sq_head) == 8 && offset_of!(Cqe, sq_id) == 10);
const _: () = assert!(offset_of!(Cqe, cid) == 12 && offset_of!(Cqe, status) == 14);

impl Cqe {
    /// The entry whose bytes, read as two little-endian 64-bit words, are these.
    #[inline]
    pub fn from_words(words: [u64; 2]) -> Self {
        transmute!(words)
    }

    /// The bytes of the entry as two little-endian 64-bit words: Dwords 0-1, then Dwords 2-3, whose
    /// topmost half holds the Phase Tag.
    #[inline]
    pub fn to_words(self) -> [u64; 2] {
        transmute!(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_is_bit_16_of_dword_3() {
        let cqe = Cqe {
            status: StatusField::new().with_phase(true),
            ..Cqe::default()
        };
        assert_eq!(cqe.to_words(), [0, 1 << 48]);
        assert_eq!(cqe.as_bytes()[14], 1);
    }

    #[test]
    fn status_bits_lie_where_base_2_1_4_2_3_says() {
        let dw3 = |status: StatusField| u32::from(u16::from(status)) << 16;
        assert_eq!(dw3(StatusField::new().with_sc(0xff)), 0xff << 17);
        assert_eq!(dw3(StatusField::new().with_sct(7)), 7 << 25);
        assert_eq!(dw3(StatusField::new().with_crd(3)), 3 << 28);
        assert_eq!(dw3(StatusField::new().with_more(true)), 1 << 30);
        assert_eq!(dw3(StatusField::new().with_dnr(true)), 1 << 31);
    }

    #[test]
    fn golden_completion() {
        // Invalid Queue Identifier (SCT 1, SC 01h), Do Not Retry, phase 1.
        let bytes: [u8; 16] = [
            0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66, 0x55, 0x05, 0x00, 0x02, 0x00, 0x34, 0x12,
            0x03, 0x82,
        ];
        let cqe: Cqe = transmute!(bytes);
        assert_eq!((cqe.dw0, cqe.dw1), (0x1122_3344, 0x5566_7788));
        assert_eq!((cqe.sq_head, cqe.sq_id, cqe.cid), (5, 2, 0x1234));
        assert!(cqe.status.phase() && cqe.status.dnr() && !cqe.status.more());
        assert_eq!(cqe.status.status(), Status::INVALID_QUEUE_IDENTIFIER);
        let built = StatusField::new()
            .with_phase(true)
            .with_dnr(true)
            .with_status(Status::INVALID_QUEUE_IDENTIFIER);
        assert_eq!(u16::from(built), 0x8203);
        assert_eq!(Cqe::from_words(cqe.to_words()), cqe);
        assert_eq!(cqe.to_words()[0], 0x5566_7788_1122_3344);
    }
}
