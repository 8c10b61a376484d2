//! The Key Value command set, CSI 01h (KV 1.1): opcodes, dwords, the data of List, and what
//! Identify returns.
//!
//! A key is 1 to 16 bytes and stands in the command: bytes 0 to 7 in CDW2 and CDW3, bytes 8 to 15
//! in CDW14 and CDW15, each as stored, so that a key is a run of bytes and not a number. What
//! another key-value drive speaks is [`crate::samsung`].

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Sqe;
use crate::identify::IDENTIFY_SIZE;
use crate::identify::namespace::{Fpi, Nmic, Nsattr, Rescap};

/// Bytes of the longest key.
pub const KEY_MAX: usize = 16;
/// Entries of the table of KV formats.
pub const KV_FORMATS_MAX: usize = 16;

open_enum! {
    /// I/O command opcode of the Key Value command set.
    pub struct KvOpcode(u8) {
        FLUSH = 0x00, "Flush";
        STORE = 0x01, "Store";
        RETRIEVE = 0x02, "Retrieve";
        LIST = 0x06, "List";
        RESERVATION_REGISTER = 0x0d, "Reservation Register";
        RESERVATION_REPORT = 0x0e, "Reservation Report";
        DELETE = 0x10, "Delete";
        RESERVATION_ACQUIRE = 0x11, "Reservation Acquire";
        EXIST = 0x14, "Exist";
        RESERVATION_RELEASE = 0x15, "Reservation Release";
    }
}

impl KvOpcode {
    /// Whether a key stands in the command. List has it to begin with, or none.
    #[must_use]
    pub const fn has_key(self) -> bool {
        matches!(
            self,
            KvOpcode::STORE
                | KvOpcode::RETRIEVE
                | KvOpcode::LIST
                | KvOpcode::DELETE
                | KvOpcode::EXIST
        )
    }

    /// Whether dword 10 is a size, of data that the command moves.
    #[must_use]
    pub const fn has_size(self) -> bool {
        matches!(self, KvOpcode::STORE | KvOpcode::RETRIEVE | KvOpcode::LIST)
    }
}

/// Dword 11 of every command with a key. Dword 10 is a size in bytes: of the value (Store), or of
/// the host's buffer (Retrieve, List).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct KvCdw11 {
    /// Key Length, in bytes. 0 is no key: only List has a meaning for it, the first key.
    pub kl: u8,
    /// Options of the command: [`StoreOptions`], [`RetrieveOptions`]; reserved in the others.
    pub options: u8,
    __: u16,
}

/// Store Options.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct StoreOptions {
    /// Store only where the key exists.
    pub must_exist: bool,
    /// Store only where the key does not exist.
    pub must_not_exist: bool,
    /// The value is not to be compressed.
    pub no_compression: bool,
    #[bits(5)]
    __: u8,
}

/// Retrieve Options.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct RetrieveOptions {
    /// Return Raw Data: as it is stored, and not decompressed.
    pub raw: bool,
    #[bits(7)]
    __: u8,
}

/// The sixteen bytes of the key field. Those behind the key's length are reserved.
#[must_use]
pub fn key_field(sqe: &Sqe) -> [u8; KEY_MAX] {
    let mut key = [0; KEY_MAX];
    let words = [sqe.cdw2, sqe.cdw3, sqe.cdw14, sqe.cdw15];
    for (bytes, word) in key.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    key
}

/// Puts a key and its length into a command. A key longer than [`KEY_MAX`] is cut: the length says
/// so, and the controller rejects it.
pub fn set_key(sqe: &mut Sqe, key: &[u8]) {
    let mut field = [0; KEY_MAX];
    let len = key.len().min(KEY_MAX);
    field[..len].copy_from_slice(&key[..len]);
    let word = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&field[at..at + 4]);
        u32::from_le_bytes(bytes)
    };
    (sqe.cdw2, sqe.cdw3, sqe.cdw14, sqe.cdw15) = (word(0), word(4), word(8), word(12));
    let kl = u8::try_from(key.len()).unwrap_or(u8::MAX);
    sqe.cdw11 = KvCdw11::from(sqe.cdw11).with_kl(kl).into();
}

/// Head of the data of List, 4 bytes; entries follow it.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct ListHeader {
    /// Number of Returned Keys.
    pub nrk: u32,
}

/// Head of an entry of List, 2 bytes; the key follows it, and then bytes up to a multiple of four.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct ListKeyHeader {
    /// Key Length, in bytes.
    pub kl: u16,
}

/// Bytes of an entry of List for a key of `key_len` bytes.
#[must_use]
pub const fn list_entry_size(key_len: usize) -> usize {
    (size_of::<ListKeyHeader>() + key_len).next_multiple_of(4)
}

/// Namespace Features of the Key Value command set.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct KvNsfeat {
    /// Thin Provisioning.
    pub thinp: bool,
    #[bits(2)]
    __: u8,
    /// Unique ID Reuse: NGUID and EUI64 are never used again.
    pub uidreuse: bool,
    #[bits(4)]
    __: u8,
}

/// KV Format, 16 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct KvFormat {
    /// KV Key Maximum Length, in bytes.
    pub kvkml: u16,
    /// Reserved.
    pub reserved_2: u8,
    /// Additional information: Relative Performance in bits 1:0, 0 best to 3 degraded.
    pub rp: u8,
    /// KV Value Maximum Length, in bytes.
    pub kvvml: u32,
    /// KV Maximum Number of Keys; 0 is not limited.
    pub kvmnk: u32,
    /// Reserved.
    pub reserved_12: [u8; 4],
}

/// I/O Command Set specific Identify Namespace for the Key Value command set, 4096 bytes (CNS 05h,
/// CSI 01h).
///
/// The Identify Controller of this command set (CNS 06h) has no field: it is zeros.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IdentifyKvNamespace {
    /// Namespace Size, in bytes.
    pub nsze: u64,
    /// Reserved.
    pub reserved_8: [u8; 8],
    /// Namespace Utilization, in bytes.
    pub nuse: u64,
    /// Namespace Features.
    pub nsfeat: KvNsfeat,
    /// Number of KV Formats.
    pub nkvf_z: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities.
    pub nmic: Nmic,
    /// Reservation Capabilities.
    pub rescap: Rescap,
    /// Format Progress Indicator.
    pub fpi: Fpi,
    /// Reserved.
    pub reserved_29: [u8; 3],
    /// Namespace Optimal Value Granularity, in bytes; 0 is not reported.
    pub novg: u32,
    /// ANA Group Identifier.
    pub anagrpid: u32,
    /// Reserved.
    pub reserved_40: [u8; 3],
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
    /// KV Format 0 to 15 Support.
    pub kvf: [KvFormat; KV_FORMATS_MAX],
    /// Reserved.
    pub reserved_328: [u8; 3512],
    /// Vendor Specific.
    pub vendor_specific: [u8; 256],
}

const _: () = assert!(size_of::<ListHeader>() == 4 && size_of::<ListKeyHeader>() == 2);
const _: () = assert!(size_of::<KvFormat>() == 16);
const _: () = assert!(size_of::<IdentifyKvNamespace>() == IDENTIFY_SIZE);
const _: () = assert!(offset_of!(IdentifyKvNamespace, kvf) == 72);
const _: () = assert!(offset_of!(IdentifyKvNamespace, vendor_specific) == 3840);

#[cfg(test)]
mod tests {
    extern crate std;
    use zerocopy::FromZeros;

    use super::*;
    use crate::opcode::Csi;

    #[test]
    fn opcodes_are_those_of_kv_1_1() {
        for (opcode, number) in [
            (KvOpcode::FLUSH, 0x00),
            (KvOpcode::STORE, 0x01),
            (KvOpcode::RETRIEVE, 0x02),
            (KvOpcode::LIST, 0x06),
            (KvOpcode::RESERVATION_REGISTER, 0x0d),
            (KvOpcode::RESERVATION_REPORT, 0x0e),
            (KvOpcode::DELETE, 0x10),
            (KvOpcode::RESERVATION_ACQUIRE, 0x11),
            (KvOpcode::EXIST, 0x14),
            (KvOpcode::RESERVATION_RELEASE, 0x15),
        ] {
            assert_eq!(opcode.0, number, "{opcode:?}");
        }
        assert_eq!(Csi::KEY_VALUE.0, 1);
    }

    #[test]
    fn a_typed_store_decodes() {
        // Store of 4096 bytes under the key 00h 01h ... 0Ch, only where that does not exist,
        // uncompressed.
        let mut bytes = [0u8; 64];
        bytes[0] = 0x01;
        bytes[8..16].copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7]);
        bytes[41] = 0x10;
        bytes[44] = 13;
        bytes[45] = 0b110;
        bytes[56..61].copy_from_slice(&[8, 9, 10, 11, 12]);
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        assert_eq!(KvOpcode(sqe.opcode), KvOpcode::STORE);
        assert_eq!(sqe.cdw10, 4096);
        assert_eq!(
            key_field(&sqe)[..13],
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
        );
        let cdw11 = KvCdw11::from(sqe.cdw11);
        assert_eq!(cdw11.kl(), 13);
        let options = StoreOptions::from(cdw11.options());
        assert!(options.must_not_exist() && options.no_compression() && !options.must_exist());
        assert!(RetrieveOptions::from(1).raw());
        assert!(StoreOptions::from(1).must_exist());
    }

    #[test]
    fn keys_go_into_their_bytes() {
        let mut sqe = Sqe {
            cdw11: KvCdw11::new().with_options(0b101).into(),
            ..Sqe::default()
        };
        set_key(&mut sqe, b"abcdefghijklmnop");
        assert_eq!(&sqe.as_bytes()[8..16], b"abcdefgh");
        assert_eq!(&sqe.as_bytes()[56..64], b"ijklmnop");
        assert_eq!(sqe.cdw11, 0x0510);
        assert_eq!(&key_field(&sqe), b"abcdefghijklmnop");
        set_key(&mut sqe, b"k");
        assert_eq!((sqe.cdw2, sqe.cdw3, sqe.cdw14, sqe.cdw15), (0x6b, 0, 0, 0));
        assert_eq!(sqe.cdw11, 0x0501);
        set_key(&mut sqe, &[7; 300]);
        assert_eq!(KvCdw11::from(sqe.cdw11).kl(), 255);
        assert_eq!(key_field(&sqe), [7; 16]);
    }

    #[test]
    fn entries_of_a_list_are_whole_dwords() {
        for (len, size) in [(1, 4), (2, 4), (3, 8), (6, 8), (14, 16), (16, 20)] {
            assert_eq!(list_entry_size(len), size, "{len}");
        }
    }

    #[test]
    fn namespace_fields_lie_where_kv_1_1_says() {
        macro_rules! assert_offsets {
            ($($field:ident $offset:literal),* $(,)?) => {
                $(assert_eq!(offset_of!(IdentifyKvNamespace, $field), $offset, stringify!($field));)*
            };
        }
        assert_offsets!(
            nsze 0, nuse 16, nsfeat 24, nkvf_z 25, nmic 26, rescap 27, fpi 28, novg 32, anagrpid 36,
            nsattr 43, nvmsetid 44, endgid 46, nguid 48, eui64 64, kvf 72, vendor_specific 3840,
        );
        let mut identify = IdentifyKvNamespace::new_zeroed();
        identify.kvf[1] = KvFormat {
            kvkml: 0x0102,
            rp: 3,
            kvvml: 0x0304_0506,
            kvmnk: 0x0708_090a,
            ..KvFormat::default()
        };
        identify.nsfeat = KvNsfeat::new().with_thinp(true).with_uidreuse(true);
        let bytes = identify.as_bytes();
        assert_eq!(
            bytes[88..104],
            [
                0x02, 0x01, 0, 3, 0x06, 0x05, 0x04, 0x03, 0x0a, 0x09, 0x08, 0x07, 0, 0, 0, 0
            ]
        );
        assert_eq!(bytes[24], 0b1001);
    }
}
