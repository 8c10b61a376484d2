//! Commands of the NVM command set: decodes the 64 bytes of a submission queue entry, once.
//!
//! [`parse`] checks everything that needs no namespace (opcode, data pointers, fields that request
//! unsupported functions) and turns 0's based values into counts. [`List`] holds the entries that
//! are the data of Dataset Management and Copy. Namespaces, bounds and transfer sizes are checked
//! later, in the lane.
//!
//! Fields that are ignored, and why:
//! - CETYPE: no command extension is offered. Reserved bits, CDW2, CDW3, MPTR: reserved, or for
//!   metadata, which no namespace here has.
//! - PRINFO (PRACT, PRCHK), ILBRT, LBAT and the like: used only where the namespace is formatted
//!   with protection information (NVM 1.1, 3.1.2 and 5.3); none is. STC: no storage tags.
//! - Limited Retry, Dataset Management hints of a Read or Write (CDW13), context attributes of a
//!   range: hints.
//!
//! It does NOT know other command sets: a namespace names its command set, and today all use NVM.

use nvme_spec::command::{
    DSM_RANGES_MAX, DsmCdw10, DsmCdw11, DsmRange, ReadWriteCdw12, WriteUncorrectableCdw12,
    WriteZeroesCdw12, slba,
};
use nvme_spec::copy::{CopyCdw12, CopyDescriptorFormat, SourceRange};
use nvme_spec::key_value::{self, KEY_MAX, KvCdw11, KvOpcode};
use nvme_spec::opcode::{Csi, NvmOpcode};
use nvme_spec::sqe::{Fuse, Psdt};
use nvme_spec::zoned::ZonedOpcode;
use nvme_spec::{Sqe, Status};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Most source ranges of one Copy command (MSRC).
pub const COPY_RANGES: usize = 128;
/// Most bytes of one of its ranges (MSSRL counts them in blocks).
pub const COPY_RANGE_BYTES: u64 = 1 << 20;
/// Most bytes of one Copy command (MCL counts them in blocks).
pub const COPY_BYTES: u64 = 4 << 20;

/// Consecutive logical blocks, as a command names them: not checked against any namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The first one.
    pub slba: u64,
    /// Number of blocks; 1 to 65,536 in a command, any value in a range of Dataset Management.
    pub count: u32,
}

impl Blocks {
    /// Whether a block is in both. Neither passes 2^64.
    pub(crate) fn overlaps(self, other: Blocks) -> bool {
        self.slba < other.slba + u64::from(other.count)
            && other.slba < self.slba + u64::from(self.count)
    }
}

/// A host's command to a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read blocks.
    Read {
        /// Where.
        blocks: Blocks,
        /// Force Unit Access: the blocks are put onto non-volatile media, too.
        fua: bool,
    },
    /// Write blocks; with `fua` they are on non-volatile media when the command completes.
    Write {
        /// Where.
        blocks: Blocks,
        /// Force Unit Access.
        fua: bool,
    },
    /// Compare blocks with the host's data.
    Compare {
        /// Where.
        blocks: Blocks,
        /// Force Unit Access: the blocks are put onto non-volatile media, too.
        fua: bool,
    },
    /// Make blocks read as zero.
    WriteZeroes {
        /// Where.
        blocks: Blocks,
        /// The host would like them deallocated.
        deallocate: bool,
        /// Force Unit Access.
        fua: bool,
    },
    /// Put everything that was written onto non-volatile media.
    Flush,
    /// Deallocate the blocks of `ranges` ranges, 1 to 256, which the data describes.
    Deallocate {
        /// Number of ranges.
        ranges: u16,
    },
    /// Mark blocks as unreadable until they are written.
    WriteUncorrectable {
        /// Where.
        blocks: Blocks,
    },
    /// Reservation Register; its data are two keys.
    ReservationRegister,
    /// Reservation Acquire; its data are two keys.
    ReservationAcquire,
    /// Reservation Release; its data is a key.
    ReservationRelease,
    /// Reservation Report.
    ReservationReport,
    /// Read blocks and transfer nothing.
    Verify {
        /// Where.
        blocks: Blocks,
        /// Force Unit Access: the blocks are put onto non-volatile media first.
        fua: bool,
    },
    /// Write blocks that are read from the ranges which the data describes, one after another.
    Copy {
        /// First destination block.
        slba: u64,
        /// Number of ranges, 1 to 256.
        ranges: u16,
        /// Descriptor format: 0h or 2h.
        format: CopyDescriptorFormat,
        /// Force Unit Access, of the writing.
        fua: bool,
    },
    /// Dataset Management without Attribute - Deallocate: hints that nothing here uses.
    Hint,
}

/// A read or a write without further options, as nearly every command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// It writes.
    pub writes: bool,
    /// Its namespace.
    pub nsid: u32,
    /// Where.
    pub blocks: Blocks,
    /// Its data pointer: the two PRP entries.
    pub prp: [u64; 2],
}

/// The words of an entry that [`plain`] examines, except the data pointer.
pub(crate) const PLAIN_WORDS: [usize; 3] = [0, 5, 6];

/// A command as [`parse`] would return it, if it is a plain one: not fused, with PRPs, and with
/// none of the bits of Dword 12 beside the number of blocks. `None` does not mean that it is
/// invalid.
#[inline]
#[must_use]
pub fn plain(words: &[u64; 8]) -> Option<Plain> {
    // Opcode, FUSE and PSDT.
    let kind = words[0] as u16;
    let writes = kind == NvmOpcode::WRITE.0 as u16;
    let cdw12 = words[6] as u32;
    if !(writes || kind == NvmOpcode::READ.0 as u16) || cdw12 > u32::from(u16::MAX) {
        return None;
    }
    Some(Plain {
        writes,
        nsid: (words[0] >> 32) as u32,
        blocks: Blocks {
            slba: words[5],
            count: cdw12 + 1,
        },
        prp: [words[3], words[4]],
    })
}

/// Whether a command has a name: a second execution of it would have another result. Marks of
/// uncorrectable blocks do not differ when they are made twice.
pub(crate) fn is_named(sqe: &Sqe) -> bool {
    matches!(
        sqe.nvm_opcode(),
        NvmOpcode::RESERVATION_REGISTER
            | NvmOpcode::RESERVATION_ACQUIRE
            | NvmOpcode::RESERVATION_RELEASE
    )
}

/// Parses a command of the NVM command set.
///
/// # Errors
/// - Invalid Command Opcode: not one of those above.
/// - Invalid Field in Command: fused (Base 2.1, 3.4.2: the lane puts the two together), a reserved
///   value of PSDT, a directive (not supported; NVM 1.1, 3.3.6), Namespace Zeroes (not supported;
///   to ignore it would report blocks as zeroed that are not), or a format of Copy's ranges that is
///   not supported.
#[inline]
pub fn parse(sqe: &Sqe) -> Result<Command, Status> {
    let flags = sqe.flags;
    if flags.fuse() != Fuse::NORMAL || flags.psdt() > Psdt::SGL_METADATA_SGL {
        // An unknown opcode is reported before anything else.
        return Err(refusal(sqe));
    }
    match sqe.nvm_opcode() {
        NvmOpcode::READ => Ok(Command::Read {
            blocks: blocks(sqe),
            fua: ReadWriteCdw12::from(sqe.cdw12).fua(),
        }),
        NvmOpcode::WRITE => {
            let cdw12 = ReadWriteCdw12::from(sqe.cdw12);
            if cdw12.dtype() != 0 {
                return Err(Status::INVALID_FIELD_IN_COMMAND);
            }
            Ok(Command::Write {
                blocks: blocks(sqe),
                fua: cdw12.fua(),
            })
        }
        NvmOpcode::FLUSH => Ok(Command::Flush),
        NvmOpcode::COMPARE => Ok(Command::Compare {
            blocks: blocks(sqe),
            fua: ReadWriteCdw12::from(sqe.cdw12).fua(),
        }),
        NvmOpcode::WRITE_ZEROES => {
            let cdw12 = WriteZeroesCdw12::from(sqe.cdw12);
            if cdw12.nsz() {
                return Err(Status::INVALID_FIELD_IN_COMMAND);
            }
            Ok(Command::WriteZeroes {
                blocks: blocks(sqe),
                deallocate: cdw12.deac(),
                fua: cdw12.fua(),
            })
        }
        NvmOpcode::DATASET_MANAGEMENT => {
            if !DsmCdw11::from(sqe.cdw11).ad() {
                return Ok(Command::Hint);
            }
            Ok(Command::Deallocate {
                ranges: u16::from(DsmCdw10::from(sqe.cdw10).nr_z()) + 1,
            })
        }
        NvmOpcode::WRITE_UNCORRECTABLE => {
            if WriteUncorrectableCdw12::from(sqe.cdw12).dtype() != 0 {
                return Err(Status::INVALID_FIELD_IN_COMMAND);
            }
            Ok(Command::WriteUncorrectable {
                blocks: blocks(sqe),
            })
        }
        NvmOpcode::RESERVATION_REGISTER => Ok(Command::ReservationRegister),
        NvmOpcode::RESERVATION_ACQUIRE => Ok(Command::ReservationAcquire),
        NvmOpcode::RESERVATION_RELEASE => Ok(Command::ReservationRelease),
        NvmOpcode::RESERVATION_REPORT => Ok(Command::ReservationReport),
        NvmOpcode::VERIFY => Ok(Command::Verify {
            blocks: blocks(sqe),
            fua: ReadWriteCdw12::from(sqe.cdw12).fua(),
        }),
        NvmOpcode::COPY => {
            let cdw12 = CopyCdw12::from(sqe.cdw12);
            let known = [
                CopyDescriptorFormat::FORMAT_0,
                CopyDescriptorFormat::FORMAT_2,
            ];
            if cdw12.dtype() != 0 || !known.contains(&cdw12.desfmt()) {
                return Err(Status::INVALID_FIELD_IN_COMMAND);
            }
            Ok(Command::Copy {
                slba: slba(sqe),
                ranges: u16::from(cdw12.nr_z()) + 1,
                format: cdw12.desfmt(),
                fua: cdw12.fua(),
            })
        }
        _ => Err(Status::INVALID_COMMAND_OPCODE),
    }
}

#[cold]
fn refusal(sqe: &Sqe) -> Status {
    match sqe.nvm_opcode() {
        NvmOpcode::READ
        | NvmOpcode::WRITE
        | NvmOpcode::FLUSH
        | NvmOpcode::COMPARE
        | NvmOpcode::WRITE_ZEROES
        | NvmOpcode::WRITE_UNCORRECTABLE
        | NvmOpcode::RESERVATION_REGISTER
        | NvmOpcode::RESERVATION_ACQUIRE
        | NvmOpcode::RESERVATION_RELEASE
        | NvmOpcode::RESERVATION_REPORT
        | NvmOpcode::DATASET_MANAGEMENT
        | NvmOpcode::VERIFY
        | NvmOpcode::COPY => Status::INVALID_FIELD_IN_COMMAND,
        _ => Status::INVALID_COMMAND_OPCODE,
    }
}

/// SLBA and NLB, which are in the same place in every command that has them.
#[inline]
pub(crate) fn blocks(sqe: &Sqe) -> Blocks {
    Blocks {
        slba: slba(sqe),
        count: u32::from(ReadWriteCdw12::from(sqe.cdw12).nlb_z()) + 1,
    }
}

/// Commands of zones that name the first block of one.
const ZONES: [ZonedOpcode; 2] = [ZonedOpcode::ZONE_MANAGEMENT_SEND, ZonedOpcode::ZONE_APPEND];

/// The first logical block of a command that has one, for the Error Information log; 0 for another.
#[must_use]
pub fn first_block(sqe: &Sqe) -> u64 {
    slba_of(sqe).unwrap_or_default()
}

/// The first logical block of a command that has one.
#[must_use]
pub fn slba_of(sqe: &Sqe) -> Option<u64> {
    let has_one = match sqe.nvm_opcode() {
        NvmOpcode::READ
        | NvmOpcode::WRITE
        | NvmOpcode::COMPARE
        | NvmOpcode::WRITE_ZEROES
        | NvmOpcode::VERIFY
        | NvmOpcode::COPY => true,
        // Nothing else has these opcodes and may fail for a medium's fault.
        NvmOpcode(opcode) => ZONES.contains(&ZonedOpcode(opcode)),
    };
    has_one.then(|| slba(sqe))
}

/// Number of logical blocks of a command that has a Number of Logical Blocks field.
#[must_use]
pub fn block_count(sqe: &Sqe) -> Option<u32> {
    const APPEND: NvmOpcode = NvmOpcode(ZonedOpcode::ZONE_APPEND.0);
    let has_one = matches!(
        sqe.nvm_opcode(),
        NvmOpcode::READ
            | NvmOpcode::WRITE
            | NvmOpcode::COMPARE
            | NvmOpcode::WRITE_ZEROES
            | NvmOpcode::WRITE_UNCORRECTABLE
            | NvmOpcode::VERIFY
            | APPEND
    );
    has_one.then(|| blocks(sqe).count)
}

/// The fields of a command that are needed to repeat it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Its first logical block.
    pub(crate) slba: u64,
    /// Logical blocks; of a command with a key bytes, of the value or of the host's buffer.
    pub(crate) blocks: u32,
    /// Further fields ([`crate::flight::FlightRecord::detail`]).
    pub(crate) detail: u32,
    /// Its key.
    pub(crate) key: [u8; KEY_MAX],
    /// Whether it has Force Unit Access.
    pub(crate) fua: bool,
}

/// The named fields of a command of this command set.
pub(crate) fn named(sqe: &Sqe, csi: Csi) -> Named {
    const APPEND: NvmOpcode = NvmOpcode(ZonedOpcode::ZONE_APPEND.0);
    const SEND: NvmOpcode = NvmOpcode(ZonedOpcode::ZONE_MANAGEMENT_SEND.0);
    const RECEIVE: NvmOpcode = NvmOpcode(ZonedOpcode::ZONE_MANAGEMENT_RECEIVE.0);
    if csi == Csi::KEY_VALUE {
        return named_with_key(sqe);
    }
    let (slba, blocks, detail) = match sqe.nvm_opcode() {
        NvmOpcode::READ
        | NvmOpcode::WRITE
        | NvmOpcode::COMPARE
        | NvmOpcode::WRITE_ZEROES
        | NvmOpcode::WRITE_UNCORRECTABLE
        | NvmOpcode::VERIFY
        | APPEND => (slba(sqe), blocks(sqe).count, sqe.cdw12 >> 16),
        NvmOpcode::DATASET_MANAGEMENT => (0, 0, (sqe.cdw10 & 0xff) + 1),
        SEND | RECEIVE => (slba(sqe), 0, sqe.cdw13),
        _ => (first_block(sqe), 0, 0),
    };
    Named {
        slba,
        blocks,
        detail,
        key: [0; KEY_MAX],
        fua: has_fua(sqe),
    }
}

/// The fields of a command of the Key Value command set that has a key (KV 1.1, 3).
fn named_with_key(sqe: &Sqe) -> Named {
    let opcode = KvOpcode(sqe.opcode);
    if !opcode.has_key() {
        return Named::default();
    }
    // bytes behind its length are reserved, and say nothing
    let mut key = key_value::key_field(sqe);
    let len = usize::from(KvCdw11::from(sqe.cdw11).kl()).min(KEY_MAX);
    key[len..].fill(0);
    Named {
        blocks: if opcode.has_size() { sqe.cdw10 } else { 0 },
        detail: sqe.cdw11 & 0xffff,
        key,
        ..Named::default()
    }
}

/// Whether a command that can have it has Force Unit Access.
#[must_use]
pub fn has_fua(sqe: &Sqe) -> bool {
    const APPEND: NvmOpcode = NvmOpcode(ZonedOpcode::ZONE_APPEND.0);
    match sqe.nvm_opcode() {
        NvmOpcode::READ
        | NvmOpcode::WRITE
        | NvmOpcode::COMPARE
        | NvmOpcode::WRITE_ZEROES
        | APPEND => ReadWriteCdw12::from(sqe.cdw12).fua(),
        _ => false,
    }
}

/// Entries that are a command's data, copied from the host.
pub struct List<T, const MAX: usize> {
    entries: [T; MAX],
    count: usize,
}

/// The ranges of a Dataset Management command. The length of one is not 0's based, and may be 0.
pub type DeallocateRanges = List<DsmRange, DSM_RANGES_MAX>;

/// The ranges of a Copy command.
pub type CopyRanges = List<SourceRange, COPY_RANGES>;

impl<T: Copy + Default + FromBytes + IntoBytes + Immutable, const MAX: usize> List<T, MAX> {
    /// Room for `count` entries, at most `MAX`, all empty.
    #[must_use]
    pub fn new(count: u16) -> Self {
        List {
            entries: [T::default(); MAX],
            count: usize::from(count).min(MAX),
        }
    }

    /// The entries as the host gives them, to copy into.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        self.entries[..self.count].as_mut_bytes()
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> &[T] {
        &self.entries[..self.count]
    }
}

#[cfg(test)]
mod tests;
