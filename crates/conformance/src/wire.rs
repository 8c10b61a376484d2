//! Bytes as the specification numbers them: dwords of a command, fields of a
//! completion, offsets in a data structure, and the values of statuses.
//!
//! Nothing here comes from the crates under test. An offset, an opcode or a
//! status in this crate is typed from the specification, so that a mistake that
//! driver and controller share is still one that shows.

use std::fmt;

use crate::Verdict;
use crate::verdict::check;

/// The byte at an offset; 0 past the end.
#[must_use]
pub fn u8_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// The little-endian number of `N` bytes at an offset.
fn le<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|n| u8_at(bytes, at + n))
}

/// The 16-bit number at an offset; what lies past the end is 0.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(le(bytes, at))
}

/// The 32-bit number at an offset; what lies past the end is 0.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(le(bytes, at))
}

/// The 64-bit number at an offset; what lies past the end is 0.
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(le(bytes, at))
}

/// The 128-bit number at an offset; what lies past the end is 0.
#[must_use]
pub fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(le(bytes, at))
}

/// Bits `high:low` of a value, both included.
#[must_use]
pub fn bits(value: u64, high: u32, low: u32) -> u64 {
    value >> low & (u64::MAX >> (63 - (high - low)))
}

/// The text of a field: ASCII, padded with spaces to the right.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches([' ', '\0'])
        .to_owned()
}

/// Statuses as `SCT << 8 | SC` (Base 2.1, 4.2.3; NVM 1.1, 3).
pub mod status {
    #![allow(missing_docs, reason = "their names are the specification's")]

    pub const SUCCESS: u16 = 0x000;
    pub const INVALID_OPCODE: u16 = 0x001;
    pub const INVALID_FIELD: u16 = 0x002;
    pub const COMMAND_ID_CONFLICT: u16 = 0x003;
    pub const DATA_TRANSFER_ERROR: u16 = 0x004;
    pub const ABORT_REQUESTED: u16 = 0x007;
    pub const ABORTED_SQ_DELETION: u16 = 0x008;
    pub const ABORTED_FAILED_FUSED: u16 = 0x009;
    pub const ABORTED_MISSING_FUSED: u16 = 0x00a;
    pub const INVALID_NAMESPACE: u16 = 0x00b;
    pub const SEQUENCE_ERROR: u16 = 0x00c;
    pub const INVALID_SGL_SEGMENT: u16 = 0x00d;
    pub const INVALID_SGL_COUNT: u16 = 0x00e;
    pub const DATA_SGL_LENGTH_INVALID: u16 = 0x00f;
    pub const SGL_TYPE_INVALID: u16 = 0x011;
    pub const PRP_OFFSET_INVALID: u16 = 0x013;
    pub const SGL_OFFSET_INVALID: u16 = 0x016;
    pub const HOST_ID_INCONSISTENT: u16 = 0x018;
    pub const SANITIZE_FAILED: u16 = 0x01c;
    pub const SANITIZE_IN_PROGRESS: u16 = 0x01d;
    pub const LBA_OUT_OF_RANGE: u16 = 0x080;
    pub const CAPACITY_EXCEEDED: u16 = 0x081;
    pub const NAMESPACE_NOT_READY: u16 = 0x082;
    pub const RESERVATION_CONFLICT: u16 = 0x083;
    pub const FORMAT_IN_PROGRESS: u16 = 0x084;
    pub const CQ_INVALID: u16 = 0x100;
    pub const INVALID_QUEUE_ID: u16 = 0x101;
    pub const INVALID_QUEUE_SIZE: u16 = 0x102;
    pub const ABORT_LIMIT: u16 = 0x103;
    pub const AER_LIMIT: u16 = 0x105;
    pub const INVALID_FIRMWARE_SLOT: u16 = 0x106;
    pub const INVALID_FIRMWARE_IMAGE: u16 = 0x107;
    pub const INVALID_VECTOR: u16 = 0x108;
    pub const INVALID_LOG_PAGE: u16 = 0x109;
    pub const INVALID_FORMAT: u16 = 0x10a;
    pub const INVALID_QUEUE_DELETION: u16 = 0x10c;
    pub const NOT_SAVEABLE: u16 = 0x10d;
    pub const NOT_CHANGEABLE: u16 = 0x10e;
    pub const NOT_NAMESPACE_SPECIFIC: u16 = 0x10f;
    pub const OVERLAPPING_RANGE: u16 = 0x114;
    pub const INSUFFICIENT_CAPACITY: u16 = 0x115;
    pub const NSID_UNAVAILABLE: u16 = 0x116;
    pub const ALREADY_ATTACHED: u16 = 0x118;
    pub const NAMESPACE_IS_PRIVATE: u16 = 0x119;
    pub const NOT_ATTACHED: u16 = 0x11a;
    pub const THIN_NOT_SUPPORTED: u16 = 0x11b;
    pub const CONTROLLER_LIST_INVALID: u16 = 0x11c;
    pub const INVALID_CONTROLLER_ID: u16 = 0x11f;
    pub const COMMAND_SET_NOT_SUPPORTED: u16 = 0x129;
    pub const CONFLICTING_ATTRIBUTES: u16 = 0x180;
    pub const WRITE_TO_READ_ONLY: u16 = 0x182;
    pub const COMMAND_SIZE_LIMIT: u16 = 0x183;
    pub const INCOMPATIBLE_NAMESPACE: u16 = 0x185;
    pub const OVERLAPPING_IO_RANGE: u16 = 0x187;
    pub const WRITE_FAULT: u16 = 0x280;
    pub const UNRECOVERED_READ: u16 = 0x281;
    pub const COMPARE_FAILURE: u16 = 0x285;
    pub const DEALLOCATED: u16 = 0x287;

    const NAMES: &[(u16, &str)] = &[
        (SUCCESS, "Successful Completion"),
        (INVALID_OPCODE, "Invalid Command Opcode"),
        (INVALID_FIELD, "Invalid Field in Command"),
        (COMMAND_ID_CONFLICT, "Command ID Conflict"),
        (DATA_TRANSFER_ERROR, "Data Transfer Error"),
        (ABORT_REQUESTED, "Command Abort Requested"),
        (ABORTED_SQ_DELETION, "Command Aborted due to SQ Deletion"),
        (
            ABORTED_FAILED_FUSED,
            "Command Aborted due to Failed Fused Command",
        ),
        (
            ABORTED_MISSING_FUSED,
            "Command Aborted due to Missing Fused Command",
        ),
        (INVALID_NAMESPACE, "Invalid Namespace or Format"),
        (SEQUENCE_ERROR, "Command Sequence Error"),
        (INVALID_SGL_SEGMENT, "Invalid SGL Segment Descriptor"),
        (INVALID_SGL_COUNT, "Invalid Number of SGL Descriptors"),
        (DATA_SGL_LENGTH_INVALID, "Data SGL Length Invalid"),
        (SGL_TYPE_INVALID, "SGL Descriptor Type Invalid"),
        (PRP_OFFSET_INVALID, "PRP Offset Invalid"),
        (SGL_OFFSET_INVALID, "SGL Offset Invalid"),
        (HOST_ID_INCONSISTENT, "Host Identifier Inconsistent Format"),
        (SANITIZE_FAILED, "Sanitize Failed"),
        (SANITIZE_IN_PROGRESS, "Sanitize In Progress"),
        (LBA_OUT_OF_RANGE, "LBA Out of Range"),
        (CAPACITY_EXCEEDED, "Capacity Exceeded"),
        (NAMESPACE_NOT_READY, "Namespace Not Ready"),
        (RESERVATION_CONFLICT, "Reservation Conflict"),
        (FORMAT_IN_PROGRESS, "Format In Progress"),
        (CQ_INVALID, "Completion Queue Invalid"),
        (INVALID_QUEUE_ID, "Invalid Queue Identifier"),
        (INVALID_QUEUE_SIZE, "Invalid Queue Size"),
        (ABORT_LIMIT, "Abort Command Limit Exceeded"),
        (AER_LIMIT, "Asynchronous Event Request Limit Exceeded"),
        (INVALID_FIRMWARE_SLOT, "Invalid Firmware Slot"),
        (INVALID_FIRMWARE_IMAGE, "Invalid Firmware Image"),
        (INVALID_VECTOR, "Invalid Interrupt Vector"),
        (INVALID_LOG_PAGE, "Invalid Log Page"),
        (INVALID_FORMAT, "Invalid Format"),
        (INVALID_QUEUE_DELETION, "Invalid Queue Deletion"),
        (NOT_SAVEABLE, "Feature Identifier Not Saveable"),
        (NOT_CHANGEABLE, "Feature Not Changeable"),
        (NOT_NAMESPACE_SPECIFIC, "Feature Not Namespace Specific"),
        (OVERLAPPING_RANGE, "Overlapping Range"),
        (INSUFFICIENT_CAPACITY, "Namespace Insufficient Capacity"),
        (NSID_UNAVAILABLE, "Namespace Identifier Unavailable"),
        (ALREADY_ATTACHED, "Namespace Already Attached"),
        (NAMESPACE_IS_PRIVATE, "Namespace Is Private"),
        (NOT_ATTACHED, "Namespace Not Attached"),
        (THIN_NOT_SUPPORTED, "Thin Provisioning Not Supported"),
        (CONTROLLER_LIST_INVALID, "Controller List Invalid"),
        (INVALID_CONTROLLER_ID, "Invalid Controller Identifier"),
        (COMMAND_SET_NOT_SUPPORTED, "I/O Command Set Not Supported"),
        (CONFLICTING_ATTRIBUTES, "Conflicting Attributes"),
        (WRITE_TO_READ_ONLY, "Attempted Write to Read Only Range"),
        (COMMAND_SIZE_LIMIT, "Command Size Limit Exceeded"),
        (INCOMPATIBLE_NAMESPACE, "Incompatible Namespace or Format"),
        (OVERLAPPING_IO_RANGE, "Overlapping I/O Range"),
        (WRITE_FAULT, "Write Fault"),
        (UNRECOVERED_READ, "Unrecovered Read Error"),
        (COMPARE_FAILURE, "Compare Failure"),
        (DEALLOCATED, "Deallocated or Unwritten Logical Block"),
    ];

    /// A status with its name, where it has one here.
    #[must_use]
    pub fn shown(status: u16) -> String {
        match NAMES.iter().find(|(number, _)| *number == status) {
            Some((_, name)) => format!("{status:03x}h ({name})"),
            None => format!("{status:03x}h"),
        }
    }
}

/// Where a command's data are (Base 2.1, 4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPointer {
    /// Two PRP entries.
    Prps(u64, u64),
    /// One SGL data block: its address and its length.
    Block(u64, u32),
}

/// A submission queue entry: sixteen dwords (Base 2.1, 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sqe(pub [u32; 16]);

impl Sqe {
    /// A command with this opcode, and zeros beside it.
    #[must_use]
    pub fn new(opcode: u8) -> Self {
        let mut dwords = [0; 16];
        dwords[0] = opcode.into();
        Self(dwords)
    }

    /// With a Namespace Identifier.
    #[must_use]
    pub fn nsid(self, nsid: u32) -> Self {
        self.dw(1, nsid)
    }

    /// With a value for a command dword.
    #[must_use]
    pub fn dw(mut self, index: usize, value: u32) -> Self {
        self.0[index] = value;
        self
    }

    /// With a value for two command dwords, the lower half first.
    #[must_use]
    pub fn qword(self, index: usize, value: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
        self.dw(index, u32::from_le_bytes([a, b, c, d]))
            .dw(index + 1, u32::from_le_bytes([e, f, g, h]))
    }

    /// With these two PRP entries.
    #[must_use]
    pub fn prps(self, (prp1, prp2): (u64, u64)) -> Self {
        self.qword(6, prp1).qword(8, prp2)
    }

    /// With this data pointer.
    #[must_use]
    pub fn data(self, pointer: DataPointer) -> Self {
        match pointer {
            DataPointer::Prps(prp1, prp2) => self.prps((prp1, prp2)),
            // An SGL data block: address, length, and identifier 0 in the last byte.
            DataPointer::Block(address, len) => {
                self.psdt(0b01).qword(6, address).dw(8, len).dw(9, 0)
            }
        }
    }

    /// With FUSE (bits 9:8 of dword 0).
    #[must_use]
    pub fn fuse(self, fuse: u32) -> Self {
        let dword = self.0[0] & !(0b11 << 8) | fuse << 8;
        self.dw(0, dword)
    }

    /// With PSDT (bits 15:14 of dword 0).
    #[must_use]
    pub fn psdt(self, psdt: u32) -> Self {
        let dword = self.0[0] & !(0b11 << 14) | psdt << 14;
        self.dw(0, dword)
    }

    /// With a Command Identifier.
    #[must_use]
    pub fn cid(self, cid: u16) -> Self {
        let dword = self.0[0] & 0xffff | u32::from(cid) << 16;
        self.dw(0, dword)
    }

    /// As a queue holds it.
    #[must_use]
    pub fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (place, dword) in bytes.chunks_exact_mut(4).zip(self.0) {
            place.copy_from_slice(&dword.to_le_bytes());
        }
        bytes
    }
}

/// Names the command in messages: what sets it apart.
impl fmt::Display for Sqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "opcode {:02x}h", self.0[0] & 0xff)?;
        if self.0[0] & 0xff00 != 0 {
            write!(f, ", flags {:02x}h", self.0[0] >> 8 & 0xff)?;
        }
        if self.0[1] != 0 {
            write!(f, ", nsid {:x}h", self.0[1])?;
        }
        for (index, dword) in self.0.iter().enumerate().skip(10) {
            if *dword != 0 {
                write!(f, ", dword {index} {dword:08x}h")?;
            }
        }
        Ok(())
    }
}

/// A completion queue entry: four dwords (Base 2.1, 4.2.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    /// As it lay in the queue.
    pub dwords: [u32; 4],
    /// The command it is for, in words.
    pub of: String,
}

impl Cqe {
    /// Command specific, dword 0.
    #[must_use]
    pub fn dw0(&self) -> u32 {
        self.dwords[0]
    }

    /// Command specific, dword 1.
    #[must_use]
    pub fn dw1(&self) -> u32 {
        self.dwords[1]
    }

    /// SQ Head Pointer.
    #[must_use]
    pub fn sq_head(&self) -> u32 {
        self.dwords[2] & 0xffff
    }

    /// SQ Identifier.
    #[must_use]
    pub fn sq_id(&self) -> u32 {
        self.dwords[2] >> 16
    }

    /// Command Identifier.
    #[must_use]
    pub fn cid(&self) -> u16 {
        u16::try_from(self.dwords[3] & 0xffff).expect("it was masked")
    }

    /// Phase Tag.
    #[must_use]
    pub fn phase(&self) -> bool {
        self.dwords[3] >> 16 & 1 == 1
    }

    /// Status Code Type and Status Code.
    #[must_use]
    pub fn status(&self) -> u16 {
        u16::try_from(self.dwords[3] >> 17 & 0x7ff).expect("it was masked")
    }

    /// Command Retry Delay.
    #[must_use]
    pub fn retry_delay(&self) -> u32 {
        self.dwords[3] >> 28 & 0b11
    }

    /// More: the Error Information log page has more about it.
    #[must_use]
    pub fn more(&self) -> bool {
        self.dwords[3] >> 30 & 1 == 1
    }

    /// Do Not Retry.
    #[must_use]
    pub fn do_not_retry(&self) -> bool {
        self.dwords[3] >> 31 & 1 == 1
    }

    /// Whether the command succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status() == status::SUCCESS
    }

    /// Fails unless the command ended with this status.
    ///
    /// # Errors
    /// It did not.
    pub fn expect(self, expected: u16) -> Verdict<Self> {
        self.expect_any(&[expected])
    }

    /// Fails unless the command succeeded.
    ///
    /// # Errors
    /// It did not.
    pub fn ok(self) -> Verdict<Self> {
        self.expect(status::SUCCESS)
    }

    /// Fails unless the command ended with one of these statuses: the
    /// specification leaves it to the controller.
    ///
    /// # Errors
    /// It did not.
    pub fn expect_any(self, expected: &[u16]) -> Verdict<Self> {
        check(expected.contains(&self.status()), || {
            let wanted: Vec<String> = expected.iter().map(|s| status::shown(*s)).collect();
            format!(
                "{}: expected status {}, found {}",
                self.of,
                wanted.join(" or "),
                status::shown(self.status())
            )
        })?;
        Ok(self)
    }

    /// Fails unless the command ended with an error of any kind.
    ///
    /// # Errors
    /// It succeeded.
    pub fn expect_error(self) -> Verdict<Self> {
        check(!self.is_success(), || {
            format!("{}: expected an error, found success", self.of)
        })?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_specification_has_them() {
        let cqe = Cqe {
            dwords: [0x11, 0x22, 0x0003_0004, 0xf285_0000 | 0x0a0b],
            of: String::new(),
        };
        assert_eq!((cqe.dw0(), cqe.dw1()), (0x11, 0x22));
        assert_eq!((cqe.sq_head(), cqe.sq_id()), (4, 3));
        assert_eq!(cqe.cid(), 0x0a0b);
        assert!(cqe.phase() && cqe.more() && cqe.do_not_retry());
        assert_eq!(cqe.status(), 0x142);
        assert_eq!(cqe.retry_delay(), 3);
    }

    #[test]
    fn a_command_is_sixteen_little_endian_dwords() {
        let sqe = Sqe::new(0x02)
            .nsid(0x0102_0304)
            .prps((0x1122_3344_5566_7788, 9))
            .fuse(2)
            .psdt(1)
            .cid(0xbeef);
        let bytes = sqe.bytes();
        assert_eq!(bytes[..8], [0x02, 0x42, 0xef, 0xbe, 4, 3, 2, 1]);
        assert_eq!(bytes[24..32], 0x1122_3344_5566_7788_u64.to_le_bytes());
        assert_eq!(bytes[32..40], 9_u64.to_le_bytes());
        assert_eq!(sqe.to_string(), "opcode 02h, flags 42h, nsid 1020304h");
    }

    #[test]
    fn numbers_past_the_end_are_zeros() {
        let bytes = [1, 2, 3];
        assert_eq!(u16_at(&bytes, 1), 0x0302);
        assert_eq!(u32_at(&bytes, 0), 0x0003_0201);
        assert_eq!(u64_at(&bytes, 5), 0);
        assert_eq!(bits(0b1101_0000, 7, 4), 0b1101);
        assert_eq!(bits(u64::MAX, 63, 0), u64::MAX);
        assert_eq!(text(b"AB  \0"), "AB");
    }
}
