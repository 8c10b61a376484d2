//! What hosts asked of a controller and what came of it, command by command, in a file.
//!
//! # The format, version 2
//!
//! Numbers are little-endian. A file begins with the eight bytes `NVMTRACE` and the version, 32
//! bits. Then come blocks, each a frame of 28 bytes and its payload:
//!
//! | bytes | |
//! |---|---|
//! | 0 | kind: 1 header, 2 records, 3 end |
//! | 1 | how the payload is packed: 0 not at all, 1 as one LZ4 block |
//! | 2..4 | 0 |
//! | 4..8 | records in the block |
//! | 8..12 | bytes of the payload once unpacked, 4 MiB at most |
//! | 12..16 | bytes of the payload as it stands there |
//! | 16..24 | commands that were lost since the block before |
//! | 24..28 | CRC-32C (Castagnoli) of the 24 bytes before and of the payload |
//!
//! The first block is the header, [`Header`] as JSON; the last of a file that was ended is the end,
//! [`End`] as JSON. The payload of a block of records is by columns, each with a number for every
//! record: LEB128, where a record's field is given by its difference from that of the record before
//! zigzag-coded (modulo 2^64). The columns: time (difference), the six stages, completion queue,
//! submission queue, command identifier, what kind of command (opcode, FUA, command set and block
//! size as bytes 0 to 3), status, namespace, first block, blocks, detail, bytes, depth, the first
//! eight bytes of the key and the other eight, as numbers (all differences). Columns that are added
//! behind these need another version. Version 1 has no keys, and is read.
//!
//! A file that was cut off, as its writer was killed or its disk is full, is read up to its last
//! whole block; what is damaged before its end is an error, never a wrong record, and what was read
//! before that error is whole.
//!
//! Commands stand in the order in which they were taken from their queues, each queue's in the
//! order of completion: who needs that of time sorts them ([`by_time`]).
//!
//! What it does NOT do: read a clock, open files, talk to anything, or know how records come to be.
#![forbid(unsafe_code)]

mod asked;
mod columns;
pub mod export;
mod name;
mod read;
pub mod stats;
mod write;

#[cfg(test)]
mod tests;

pub use asked::{Asked, Key, KeyCommand};
pub use name::Operation;
use nvme_spec::key_value::{KEY_MAX, KvCdw11, KvOpcode};
use nvme_spec::opcode::Csi;
pub use read::{Reader, Tail, TraceError};
use serde::{Deserialize, Serialize};
pub use write::Encoder;

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"NVMTRACE";
/// The version that is written. Those before are read, too.
pub const VERSION: u32 = 2;
/// The most records of a block.
pub const BLOCK_RECORDS: usize = 1 << 15;
/// The most bytes of a payload, unpacked.
const RAW_MAX: usize = 4 << 20;
/// The most bytes of a payload as it stands in the file: what cannot be packed grows a little.
const PACKED_MAX: usize = RAW_MAX + RAW_MAX / 128 + 1024;
/// Bytes before the first block, and of a frame.
const START_LEN: usize = 12;
const FRAME_LEN: usize = 28;

/// Stages of a command, in the order of [`Record::stages`]: in the host's ring, behind other
/// tenants, in the checks, with the medium, held back by a model, and posted before its interrupt.
pub const STAGES: [&str; 6] = [
    "ring",
    "fairness",
    "translation",
    "medium",
    "model",
    "interrupt",
];

/// A command that has completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When its doorbell was seen, in nanoseconds on the recording's clock; [`Header::start_ns`] is
    /// when the recording began.
    pub at_ns: u64,
    /// Nanoseconds of each stage, by [`STAGES`]; 4.29 s stands for more.
    pub stages: [u32; STAGES.len()],
    /// Its completion queue.
    pub cqid: u16,
    /// Its submission queue.
    pub sqid: u16,
    /// Its command identifier.
    pub cid: u16,
    /// Its opcode.
    pub opcode: u8,
    /// Whether it had Force Unit Access.
    pub fua: bool,
    /// The command set of its namespace (CSI).
    pub csi: u8,
    /// Bytes of a logical block of its namespace as a power of two; 0 where that was not there.
    pub lba_shift: u8,
    /// How it ended: Status Code Type and Status Code, as in bits 10:0 of the status field.
    pub status: u16,
    /// Its namespace.
    pub nsid: u32,
    /// Its first logical block; of Dataset Management that of its first range.
    pub slba: u64,
    /// Logical blocks that it names; of Dataset Management those of its first range; of a command
    /// with a key the bytes of the value or of the host's buffer (CDW10).
    pub blocks: u32,
    /// Of Dataset Management the number of its ranges, of the Zone Management commands CDW13, of
    /// other commands that name blocks the upper half of CDW12, of commands with a key the lower
    /// half of CDW11: the key's length, and options.
    pub detail: u32,
    /// The key's field, of commands of the Key Value command set.
    pub key: [u8; KEY_MAX],
    /// Bytes that it moved to or from the host.
    pub bytes: u32,
    /// Commands of its queue that were fetched and not completed when it was, with it.
    pub depth: u16,
}

impl Record {
    /// Nanoseconds from its doorbell until its completion was posted.
    #[must_use]
    pub fn latency_ns(&self) -> u64 {
        let [stages @ .., _interrupt] = &self.stages;
        stages.iter().map(|stage| u64::from(*stage)).sum()
    }

    /// When its completion was posted, on the clock of [`Record::at_ns`].
    #[must_use]
    pub fn done_ns(&self) -> u64 {
        self.at_ns.saturating_add(self.latency_ns())
    }

    /// The bytes of its namespace that it names: the first, and how many. `None` where it names
    /// none, or they have no end.
    #[must_use]
    pub fn extent(&self) -> Option<(u64, u64)> {
        if self.blocks == 0 {
            return None;
        }
        let start = self.first_byte()?;
        let len = u64::from(self.blocks) << self.lba_shift;
        start.checked_add(len)?;
        Some((start, len))
    }

    /// The first byte of its first logical block.
    fn first_byte(&self) -> Option<u64> {
        let known = (9..=16).contains(&self.lba_shift) && Csi(self.csi) != Csi::KEY_VALUE;
        known.then(|| self.slba.checked_mul(1 << self.lba_shift))?
    }

    /// Its key, of a command of the Key Value command set that has one.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        let len = KvCdw11::from(self.detail).kl();
        let is_one = Csi(self.csi) == Csi::KEY_VALUE && KvOpcode(self.opcode).has_key();
        (is_one && (1..=KEY_MAX).contains(&len.into())).then_some(Key {
            field: self.key,
            len,
        })
    }

    /// Whether it ended well.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == 0
    }
}

/// What a recording is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The controller, by its name.
    pub controller: String,
    /// When it began, on the clock of the records, in nanoseconds from any start.
    pub start_ns: u64,
    /// The same in nanoseconds since 1970 (UTC).
    pub started_unix_ns: u64,
    /// One command of so many was recorded, at random; 1: every one.
    pub sample: u32,
    /// The program that wrote it, with its version.
    #[serde(default)]
    pub writer: String,
    /// Namespaces that were attached when it began.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
}

/// A namespace as it was when a recording began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its identifier.
    pub nsid: u32,
    /// Its name.
    pub name: String,
    /// Bytes of a logical block.
    pub lba_size: u32,
    /// Its logical blocks.
    pub blocks: u64,
}

/// What a recording came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When it ended, on the clock of the records.
    pub end_ns: u64,
    /// Why.
    pub reason: String,
    /// Records in the file.
    pub commands: u64,
    /// Commands that were to be recorded and are not there.
    pub lost: u64,
    /// Completion queues that there were, by their identifiers.
    pub queues: Vec<u16>,
}

/// Puts records in the order in which their doorbells were seen; those of the same time stay in
/// theirs.
pub fn by_time(records: &mut [Record]) {
    records.sort_by_key(|record| record.at_ns);
}
