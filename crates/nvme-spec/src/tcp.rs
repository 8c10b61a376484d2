//! NVMe over TCP: the headers of the Protocol Data Units ("PDU"s; NVMe/TCP transport 1.1, 3.6).

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Cqe, Sqe};

open_enum! {
    /// PDU Type.
    pub struct PduType(u8) {
        IC_REQ = 0x00, "ICReq";
        IC_RESP = 0x01, "ICResp";
        H2C_TERM_REQ = 0x02, "H2CTermReq";
        C2H_TERM_REQ = 0x03, "C2HTermReq";
        CAPSULE_CMD = 0x04, "CapsuleCmd";
        CAPSULE_RESP = 0x05, "CapsuleResp";
        H2C_DATA = 0x06, "H2CData";
        C2H_DATA = 0x07, "C2HData";
        R2T = 0x09, "R2T";
    }
}

/// Flags of a PDU. Which of them a PDU may have depends on its type.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct PduFlags {
    /// HDGSTF: a header digest follows the header.
    pub hdgst: bool,
    /// DDGSTF: a data digest follows the data.
    pub ddgst: bool,
    /// LAST_PDU: of H2CData and C2HData, the last one of its R2T or command.
    pub last: bool,
    /// SUCCESS: of C2HData, the command succeeded and no CapsuleResp follows.
    pub success: bool,
    #[bits(4)]
    __: u8,
}

/// The head that all PDUs have in common, 8 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct CommonHeader {
    /// PDU Type.
    pub pdu_type: PduType,
    /// Flags.
    pub flags: PduFlags,
    /// Header Length, in bytes, with this head and without its digest.
    pub hlen: u8,
    /// PDU Data Offset, in bytes from the start of the PDU; 0 without data.
    pub pdo: u8,
    /// PDU Length, in bytes, with digests and padding.
    pub plen: u32,
}

/// Bytes of the head that all PDUs have in common.
pub const COMMON_HEADER_SIZE: usize = 8;
/// Bytes of a header digest and of a data digest: CRC32C.
pub const DIGEST_SIZE: usize = 4;
/// Bytes of the longest header: ICReq and ICResp.
pub const MAX_HEADER_SIZE: usize = 128;

/// Which digests an ICReq asks for, and an ICResp switches on (DGST).
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Digests {
    /// Header digest.
    pub header: bool,
    /// Data digest.
    pub data: bool,
    #[bits(6)]
    __: u8,
}

/// Initialize Connection Request, 128 bytes: a host's first PDU.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IcReq {
    /// Common head.
    pub common: CommonHeader,
    /// PDU Format Version: 0.
    pub pfv: u16,
    /// Host PDU Data Alignment, in units of 4 bytes: of data to the host; at most 31.
    pub hpda_z: u8,
    /// Digests that the host asks for.
    pub dgst: Digests,
    /// Maximum Number of Outstanding R2Ts for each command.
    pub maxr2t_z: u32,
    /// Reserved.
    pub reserved: [u8; 112],
}

/// Initialize Connection Response, 128 bytes: a controller's first PDU.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IcResp {
    /// Common head.
    pub common: CommonHeader,
    /// PDU Format Version: 0.
    pub pfv: u16,
    /// Controller PDU Data Alignment, in units of 4 bytes: of data to the controller; at most 31.
    pub cpda_z: u8,
    /// Digests that are on.
    pub dgst: Digests,
    /// Maximum Host to Controller Data: bytes of an H2CData, at least 4096, a multiple of 4.
    pub maxh2cdata: u32,
    /// Reserved.
    pub reserved: [u8; 112],
}

const _: () = assert!(size_of::<IcReq>() == MAX_HEADER_SIZE);
const _: () = assert!(size_of::<IcResp>() == MAX_HEADER_SIZE);
const _: () = assert!(offset_of!(IcReq, dgst) == 11 && offset_of!(IcReq, maxr2t_z) == 12);
const _: () = assert!(offset_of!(IcResp, dgst) == 11 && offset_of!(IcResp, maxh2cdata) == 12);

/// The greatest HPDA and CPDA, in units of 4 bytes, 0's based.
pub const MAX_PDA_Z: u8 = 31;
/// The least MAXH2CDATA, in bytes.
pub const MIN_MAXH2CDATA: u32 = 4096;

open_enum! {
    /// Fatal Error Status of a termination request.
    pub struct FatalErrorStatus(u16) {
        INVALID_PDU_HEADER_FIELD = 0x01, "Invalid PDU Header Field";
        PDU_SEQUENCE_ERROR = 0x02, "PDU Sequence Error";
        HEADER_DIGEST_ERROR = 0x03, "Header Digest Error";
        DATA_TRANSFER_OUT_OF_RANGE = 0x04, "Data Transfer Out of Range";
        DATA_TRANSFER_LIMIT_EXCEEDED = 0x05, "Data Transfer Limit Exceeded / R2T Limit Exceeded";
        UNSUPPORTED_PARAMETER = 0x06, "Unsupported Parameter";
    }
}

/// H2CTermReq or C2HTermReq, 24 bytes: the sender closes the connection. The header of the PDU that
/// is at fault may follow as data.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct TermReq {
    /// Common head.
    pub common: CommonHeader,
    /// Fatal Error Status.
    pub fes: FatalErrorStatus,
    /// Fatal Error Information: the offset in bytes of the field, or the digest that was received.
    pub fei: U32,
    /// Reserved.
    pub reserved: [u8; 10],
}

const _: () = assert!(size_of::<TermReq>() == 24 && offset_of!(TermReq, fei) == 10);

/// Bytes of the longest termination request, with the header that it is about.
pub const MAX_TERM_REQ_SIZE: usize = 152;

/// Command Capsule, 72 bytes before its data.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct CapsuleCmd {
    /// Common head.
    pub common: CommonHeader,
    /// The command.
    pub sqe: Sqe,
}

/// Response Capsule, 24 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct CapsuleResp {
    /// Common head.
    pub common: CommonHeader,
    /// The completion, without a phase.
    pub cqe: Cqe,
}

/// H2CData or C2HData, 24 bytes before the data.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct DataHeader {
    /// Common head.
    pub common: CommonHeader,
    /// Command Capsule CID: of the command whose data this is.
    pub cccid: u16,
    /// Transfer Tag of the R2T that asked for the data; reserved in C2HData.
    pub ttag: u16,
    /// Data Offset, in bytes from the start of the command's data.
    pub datao: u32,
    /// Data Length, in bytes.
    pub datal: u32,
    /// Reserved.
    pub reserved: [u8; 4],
}

/// Ready to Transfer, 24 bytes: the controller asks for data of a command.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct R2t {
    /// Common head.
    pub common: CommonHeader,
    /// Command Capsule CID.
    pub cccid: u16,
    /// Transfer Tag: chosen by the controller, echoed in the H2CData that answer.
    pub ttag: u16,
    /// Requested Data Offset, in bytes from the start of the command's data.
    pub r2to: u32,
    /// Requested Data Length, in bytes.
    pub r2tl: u32,
    /// Reserved.
    pub reserved: [u8; 4],
}

const _: () = assert!(size_of::<CapsuleCmd>() == 72 && offset_of!(CapsuleCmd, sqe) == 8);
const _: () = assert!(size_of::<CapsuleResp>() == 24 && offset_of!(CapsuleResp, cqe) == 8);
const _: () = assert!(size_of::<DataHeader>() == 24 && offset_of!(DataHeader, datao) == 12);
const _: () = assert!(size_of::<R2t>() == 24 && offset_of!(R2t, r2to) == 12);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_linux_has_sent_read_as_their_fields() {
        // Recorded: C2HData of 4096 bytes for CID 1017h, the last; its CapsuleResp.
        let data: [u8; 24] = [
            7, 4, 24, 24, 0x18, 0x10, 0, 0, 0x17, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0,
        ];
        let header = DataHeader::read_from_bytes(&data).unwrap();
        assert_eq!(header.common.pdu_type, PduType::C2H_DATA);
        assert!(header.common.flags.last() && !header.common.flags.success());
        assert_eq!((header.common.hlen, header.common.pdo), (24, 24));
        assert_eq!(header.common.plen, 4120);
        assert_eq!(
            (header.cccid, header.datao, header.datal),
            (0x1017, 0, 4096)
        );
        // "fl=0f" of a host without SQ flow control, and with both digests.
        let flags = PduFlags::from(0x0f);
        assert!(flags.hdgst() && flags.ddgst() && flags.last() && flags.success());
    }

    #[test]
    fn the_information_of_a_fatal_error_is_not_aligned() {
        let mut bytes = [0; 24];
        bytes[8] = 1;
        bytes[10] = 4;
        let term = TermReq::read_from_bytes(&bytes).unwrap();
        assert_eq!(term.fes, FatalErrorStatus::INVALID_PDU_HEADER_FIELD);
        assert_eq!(term.fei.get(), 4);
    }
}
