//! The commands of Samsung's key-value drives, which KVBench and KVCeph speak and NVMeVirt answers:
//! vendor specific opcodes of a namespace that reports the NVM command set. They were published
//! with those programs, not as a specification.
//!
//! Here are the 64 bytes of a command, the data of the batch ("compound") command, and statuses.
//! Layouts only: what a drive does with them is not said here.

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::sqe::{CommandFlags, SQE_SIZE};
use crate::{Sqe, Status};

/// Bytes of the longest and the shortest key.
pub const KEY_MAX: usize = 255;
/// See [`KEY_MAX`].
pub const KEY_MIN: usize = 4;
/// Bytes of the longest key that stands in the command; the addresses of a longer one stand in its
/// place.
pub const INLINE_KEY_MAX: usize = 16;
/// Iterators that are open at a time. Their handles count from 1.
pub const ITERATORS: u8 = 16;
/// Most sub-commands of a batch.
pub const SUB_COMMANDS_MAX: usize = 8;
/// Multiple to which keys and values of a batch are padded, and the bytes of the head of each
/// sub-command.
pub const BATCH_ALIGNMENT: usize = 64;
/// Bytes of the head of a batch.
pub const BATCH_HEAD_SIZE: usize = 512;

open_enum! {
    /// Opcode.
    pub struct SamsungOpcode(u8) {
        STORE = 0x81, "Store";
        APPEND = 0x83, "Append";
        BATCH = 0x85, "Batch";
        RETRIEVE = 0x90, "Retrieve";
        DELETE_SUB = 0xa0, "Delete, as a sub-command of a batch";
        DELETE = 0xa1, "Delete";
        ITERATOR_REQUEST = 0xb1, "Iterator request";
        ITERATOR_READ = 0xb2, "Iterator read";
        EXIST = 0xb3, "Exist";
    }
}

/// Option of Store and Append. The bit for compression is a hint.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct StoreOption {
    /// Compress.
    pub compress: bool,
    /// Idempotent: only where the key does not exist.
    pub idempotent: bool,
    /// Compress in the background.
    pub compress_later: bool,
    /// Only where the key exists.
    pub update_only: bool,
    #[bits(4)]
    pub unknown: u8,
}

/// Option of Retrieve.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct RetrieveOption {
    /// Decompress.
    pub decompress: bool,
    /// No data: only the size of the value.
    pub only_size: bool,
    #[bits(6)]
    pub unknown: u8,
}

/// Option of Iterator request.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct IteratorOption {
    /// Open.
    pub open: bool,
    /// Close.
    pub close: bool,
    /// Read keys.
    pub key_only: bool,
    /// Read keys and values.
    pub key_value: bool,
    /// Delete what is read.
    pub delete: bool,
    #[bits(3)]
    pub unknown: u8,
}

/// Bytes by which a size was rounded up.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Padding {
    /// Bytes to take off the size that is counted in dwords.
    #[bits(2)]
    pub invalid_bytes: u8,
    #[bits(6)]
    __: u8,
}

/// A command, 64 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct SamsungCommand {
    /// Opcode.
    pub opcode: SamsungOpcode,
    /// FUSE and PSDT.
    pub flags: CommandFlags,
    /// Command Identifier.
    pub cid: u16,
    /// Namespace Identifier.
    pub nsid: u32,
    /// Reserved.
    pub reserved_8: [u8; 8],
    /// Offset in the value, in bytes.
    pub offset: u32,
    /// Reserved.
    pub reserved_20: [u8; 4],
    /// PRP Entry 1 of the value; reserved in Delete and Exist.
    pub prp1: u64,
    /// PRP Entry 2 of the value.
    pub prp2: u64,
    /// Size of the value, or of the host's buffer, in dwords.
    pub value_dwords: u32,
    /// Size of the key; the handle in the commands of iterators, where it is not 0's based.
    pub key_len_z: u8,
    /// Option.
    pub option: u8,
    /// Bytes to take off.
    pub padding: Padding,
    /// Sub-commands of a batch.
    pub sub_commands: u8,
    /// The key, up to 16 bytes of it; else the PRP entries of the key; in Iterator request the
    /// prefix and its mask.
    pub key: [u8; INLINE_KEY_MAX],
}

impl SamsungCommand {
    /// The command of a submission queue entry.
    #[must_use]
    pub fn of(sqe: &Sqe) -> Self {
        transmute!(*sqe)
    }

    /// The submission queue entry of the command.
    #[must_use]
    pub fn to_sqe(self) -> Sqe {
        transmute!(self)
    }

    /// Size of the key, in bytes: 1 to 256.
    #[must_use]
    pub const fn key_len(&self) -> usize {
        self.key_len_z as usize + 1
    }

    /// Size of the value or of the buffer, in bytes; `None` where more bytes are taken off than
    /// there are, or where it does not fit 32 bits.
    #[must_use]
    pub fn value_len(&self) -> Option<u32> {
        let rounded = self.value_dwords.checked_mul(4)?;
        rounded.checked_sub(self.padding.invalid_bytes().into())
    }

    /// Sets the size of the value or of the buffer. Sizes from 2^32 - 3 on do not fit.
    pub fn set_value_len(&mut self, len: u32) {
        self.value_dwords = len.div_ceil(4);
        let invalid = (len.wrapping_neg() & 0b11).to_le_bytes()[0];
        self.padding = Padding::new().with_invalid_bytes(invalid);
    }

    /// PRP entries of a key that does not stand in the command.
    #[must_use]
    pub fn key_prps(&self) -> (u64, u64) {
        let part =
            |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|n| self.key[at + n]));
        (part(0), part(8))
    }

    /// Prefix and mask of Iterator request.
    #[must_use]
    pub fn prefix(&self) -> ([u8; 4], [u8; 4]) {
        let part = |at: usize| [0, 1, 2, 3].map(|byte| self.key[at + byte]);
        (part(0), part(4))
    }
}

/// Entry of a batch for one sub-command, 16 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct SubCommand {
    /// Opcode: Store, or Delete.
    pub opcode: SamsungOpcode,
    /// Size of the key, in bytes; not 0's based.
    pub key_len: u8,
    /// Reserved.
    pub reserved_2: [u8; 2],
    /// Size of the value, in bytes.
    pub value_len: u32,
    /// Option, as in a command of its own.
    pub option: u8,
    /// Key space.
    pub key_space: u8,
    /// Reserved.
    pub reserved_10: [u8; 6],
}

/// Head of the data of a batch, 512 bytes. For each sub-command there follow 64 bytes of its own
/// head, which say nothing, the key padded to a multiple of 64 bytes, and the value padded
/// likewise.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct BatchHead {
    /// The sub-commands, in their order.
    pub sub: [SubCommand; SUB_COMMANDS_MAX],
    /// Reserved.
    pub reserved_128: [u8; 384],
}

open_enum! {
    /// Outcome of a sub-command.
    pub struct SubResult(u8) {
        SUCCESS = 0x0, "Success";
        INVALID_VALUE_SIZE = 0x1, "Invalid value size";
        INVALID_KEY_SIZE = 0x2, "Invalid key size";
        UNSUPPORTED_OPCODE = 0x3, "Unsupported opcode";
        INVALID_OPTION = 0x4, "Invalid option";
        INVALID_KEY_SPACE = 0x5, "Invalid key space";
        KEY_DOES_NOT_EXIST = 0x6, "Key does not exist";
        UNRECOVERED_ERROR = 0x7, "Unrecovered error";
        CAPACITY_EXCEEDED = 0x8, "Capacity exceeded";
        IDEMPOTENT_STORE_FAILED = 0x9, "Idempotent store failed";
        UPDATE_STORE_FAILED = 0xa, "Update of a key that does not exist";
    }
}

/// Statuses, all with Status Code Type 3, which other drives mean otherwise.
pub mod status {
    use super::Status;

    /// Invalid value size.
    pub const INVALID_VALUE_SIZE: Status = Status(0x301);
    /// Invalid offset in a value.
    pub const INVALID_VALUE_OFFSET: Status = Status(0x302);
    /// Invalid key size.
    pub const INVALID_KEY_SIZE: Status = Status(0x303);
    /// Invalid option.
    pub const INVALID_OPTION: Status = Status(0x304);
    /// Invalid key space.
    pub const INVALID_KEY_SPACE: Status = Status(0x305);
    /// Key does not exist.
    pub const KEY_DOES_NOT_EXIST: Status = Status(0x310);
    /// Unrecovered error.
    pub const UNRECOVERED_ERROR: Status = Status(0x311);
    /// Capacity exceeded.
    pub const CAPACITY_EXCEEDED: Status = Status(0x312);
    /// Idempotent store of a key that exists.
    pub const IDEMPOTENT_STORE_FAILED: Status = Status(0x380);
    /// The value is as large as one can be.
    pub const VALUE_SIZE_LIMIT_EXCEEDED: Status = Status(0x381);
    /// No iterator has this handle.
    pub const ITERATOR_UNKNOWN: Status = Status(0x390);
    /// No handle is free.
    pub const ITERATOR_NO_HANDLE: Status = Status(0x391);
    /// An iterator with this prefix and mask is open.
    pub const ITERATOR_ALREADY_OPEN: Status = Status(0x392);
    /// The iterator has come to the end. Its data are valid.
    pub const ITERATOR_END: Status = Status(0x393);
}

const _: () = assert!(size_of::<SamsungCommand>() == SQE_SIZE);
const _: () = assert!(size_of::<SubCommand>() == 16 && size_of::<BatchHead>() == BATCH_HEAD_SIZE);
const _: () = assert!(offset_of!(SamsungCommand, key) == 48);

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn fields_lie_where_they_were_published() {
        macro_rules! assert_offsets {
            ($type:ty: $($field:ident $offset:literal),* $(,)?) => {
                $(assert_eq!(offset_of!($type, $field), $offset, stringify!($field));)*
            };
        }
        assert_offsets!(SamsungCommand:
            opcode 0, flags 1, cid 2, nsid 4, offset 16, prp1 24, prp2 32, value_dwords 40, key_len_z 44,
            option 45, padding 46, sub_commands 47, key 48,
        );
        assert_offsets!(SubCommand: opcode 0, key_len 1, value_len 4, option 8, key_space 9);
        assert_offsets!(BatchHead: sub 0, reserved_128 128);
    }

    #[test]
    fn opcodes_and_statuses_have_their_numbers() {
        for (opcode, number) in [
            (SamsungOpcode::STORE, 0x81),
            (SamsungOpcode::APPEND, 0x83),
            (SamsungOpcode::BATCH, 0x85),
            (SamsungOpcode::RETRIEVE, 0x90),
            (SamsungOpcode::DELETE, 0xa1),
            (SamsungOpcode::ITERATOR_REQUEST, 0xb1),
            (SamsungOpcode::ITERATOR_READ, 0xb2),
            (SamsungOpcode::EXIST, 0xb3),
        ] {
            assert_eq!(opcode.0, number, "{opcode:?}");
        }
        assert_eq!(status::KEY_DOES_NOT_EXIST.0, 0x310);
        assert_eq!(status::ITERATOR_END.0, 0x393);
        assert_eq!(status::ITERATOR_END.sct(), 3);
    }

    #[test]
    fn a_typed_store_decodes() {
        // Store of 4093 bytes under a key of 5, idempotent.
        let mut bytes = [0u8; 64];
        bytes[0] = 0x81;
        bytes[4] = 1;
        bytes[16] = 8;
        bytes[24] = 0x22;
        bytes[40..42].copy_from_slice(&[0x00, 0x04]);
        bytes[44] = 4;
        bytes[45] = 0b0010;
        bytes[46] = 3;
        bytes[48..53].copy_from_slice(b"hello");
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        let command = SamsungCommand::of(&sqe);
        assert_eq!(command.opcode, SamsungOpcode::STORE);
        assert_eq!((command.nsid, command.offset, command.prp1), (1, 8, 0x22));
        assert_eq!(command.value_len(), Some(4093));
        assert_eq!(command.key_len(), 5);
        assert_eq!(&command.key[..5], b"hello");
        assert_eq!(command.key_prps(), (0x006f_6c6c_6568, 0));
        let option = StoreOption::from(command.option);
        assert!(option.idempotent() && !option.update_only() && option.unknown() == 0);
        assert_eq!(command.to_sqe(), sqe);
    }

    #[test]
    fn sizes_are_dwords_less_what_is_too_much() {
        let mut command = SamsungCommand::default();
        for (len, dwords, invalid) in [(0, 0, 0), (1, 1, 3), (4, 1, 0), (6, 2, 2), (4095, 1024, 1)]
        {
            command.set_value_len(len);
            assert_eq!(command.value_dwords, dwords, "{len}");
            assert_eq!(command.as_bytes()[46], invalid, "{len}");
            assert_eq!(command.value_len(), Some(len));
        }
        command.value_dwords = 0;
        command.padding = Padding::from(1);
        assert_eq!(command.value_len(), None);
        command.value_dwords = 1 << 30;
        assert_eq!(command.value_len(), None);
    }

    #[test]
    fn a_typed_batch_and_an_iterator_decode() {
        let mut bytes = [0u8; 512];
        bytes[16] = 0xa1;
        bytes[17] = 9;
        bytes[20..24].copy_from_slice(&[1, 2, 3, 4]);
        bytes[24] = 5;
        bytes[25] = 6;
        let head = BatchHead::read_from_bytes(&bytes).unwrap();
        assert_eq!(head.sub[0], SubCommand::default());
        assert_eq!(head.sub[1].opcode, SamsungOpcode::DELETE);
        assert_eq!(
            (head.sub[1].key_len, head.sub[1].value_len),
            (9, 0x0403_0201)
        );
        assert_eq!((head.sub[1].option, head.sub[1].key_space), (5, 6));
        let mut bytes = [0u8; 64];
        bytes[0] = 0xb1;
        bytes[44] = 3;
        bytes[45] = 0b101;
        bytes[48..56].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let command = SamsungCommand::read_from_bytes(&bytes).unwrap();
        let option = IteratorOption::from(command.option);
        assert!(option.open() && option.key_only() && !option.close());
        assert_eq!(command.prefix(), ([1, 2, 3, 4], [5, 6, 7, 8]));
    }
}
