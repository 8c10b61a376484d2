//! Trace files: the commands of a controller's hosts, with their results.
//!
//! # The format, version 2
//!
//! Numbers are little-endian. A file begins with the eight bytes `NVMTRACE` and the version, 32
//! bits. Then come blocks, each a frame of 28 bytes and its payload:
//!
//! | bytes | |
//! |---|---|
//! | 0 | kind: 1 header, 2 records, 3 end |
//! | 1 | packing of the payload: 0 none, 1 one LZ4 block |
//! | 2..4 | 0 |
//! | 4..8 | records in the block |
//! | 8..12 | bytes of the unpacked payload, at most 4 MiB |
//! | 12..16 | bytes of the payload in the file |
//! | 16..24 | commands lost since the previous block |
//! | 24..28 | CRC-32C (Castagnoli) of the 24 bytes before and of the payload |
//!
//! The first block is the header, [`Header`] as JSON; the last block of a completed file is the
//! end, [`End`] as JSON. The payload of a block of records is stored by columns, each with a number
//! for every record: LEB128, and for fields stored as the difference from the previous record
//! zigzag-coded (modulo 2^64). The columns: time (difference), the six stages, completion queue,
//! submission queue, command identifier, kind of command (opcode, FUA, command set and block size
//! as bytes 0 to 3), status, namespace, first block, blocks, detail, bytes, depth, the first eight
//! bytes of the key and the other eight, as numbers (all differences). Additional columns after
//! these require another version. Version 1 has no keys, and is accepted.
//!
//! A file that was cut off, because its writer was killed or its disk is full, is read up to its
//! last complete block. Damage before its end is an error, never a wrong record, and the records
//! read before that error are correct.
//!
//! Commands are in the order in which they were taken from their queues, each queue's in the order
//! of completion; [`by_time`] sorts them by time.
//!
//! Not included: clocks, opening of files, communication, and the origin of records.
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
/// The version that is written. Earlier ones are accepted, too.
pub const VERSION: u32 = 2;
/// Maximum number of records in a block.
pub const BLOCK_RECORDS: usize = 1 << 15;
/// Maximum size of an unpacked payload.
const RAW_MAX: usize = 4 << 20;
/// Maximum size of a payload in the file: incompressible data grows a little.
const PACKED_MAX: usize = RAW_MAX + RAW_MAX / 128 + 1024;
/// Bytes before the first block, and size of a frame.
const START_LEN: usize = 12;
const FRAME_LEN: usize = 28;

/// Stages of a command, in the order of [`Record::stages`]: in the host's ring, behind other
/// tenants, in the checks, in the medium, delayed by a model, and posted before its interrupt.
pub const STAGES: [&str; 6] = [
    "ring",
    "fairness",
    "translation",
    "medium",
    "model",
    "interrupt",
];

/// A completed command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Time at which its doorbell was seen, in nanoseconds on the recording's clock;
    /// [`Header::start_ns`] is the start of the recording.
    pub at_ns: u64,
    /// Nanoseconds of each stage, by [`STAGES`], limited to 4.29 s.
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
    /// Logical block size of its namespace as a power of two; 0 if the namespace did not exist.
    pub lba_shift: u8,
    /// Status Code Type and Status Code, as in bits 10:0 of the status field.
    pub status: u16,
    /// Its namespace.
    pub nsid: u32,
    /// Its first logical block; for Dataset Management that of its first range.
    pub slba: u64,
    /// Number of logical blocks; for Dataset Management of its first range; for a command with a
    /// key the size of the value or of the host's buffer in bytes (CDW10).
    pub blocks: u32,
    /// For Dataset Management the number of its ranges, for the Zone Management commands CDW13, for
    /// other commands with blocks the upper half of CDW12, for commands with a key the lower half
    /// of CDW11: the key's length, and options.
    pub detail: u32,
    /// The key's field, of commands of the Key Value command set.
    pub key: [u8; KEY_MAX],
    /// Bytes moved to or from the host.
    pub bytes: u32,
    /// Commands of its queue fetched and not completed when it was fetched, including itself.
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

    /// The byte range of its namespace: start and length. `None` if it has none, or the range
    /// overflows.
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

    /// The key of a command of the Key Value command set, if it has one.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        let len = KvCdw11::from(self.detail).kl();
        let is_one = Csi(self.csi) == Csi::KEY_VALUE && KvOpcode(self.opcode).has_key();
        (is_one && (1..=KEY_MAX).contains(&len.into())).then_some(Key {
            field: self.key,
            len,
        })
    }

    /// Whether it succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == 0
    }
}

/// Description of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Name of the controller.
    pub controller: String,
    /// Start time on the clock of the records, in nanoseconds from any origin.
    pub start_ns: u64,
    /// The same in nanoseconds since 1970 (UTC).
    pub started_unix_ns: u64,
    /// Sampling rate: one command in this many was recorded, at random; 1: every one.
    pub sample: u32,
    /// Name and version of the program that wrote it.
    #[serde(default)]
    pub writer: String,
    /// Namespaces attached at the start.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
}

/// A namespace at the start of a recording.
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

/// End of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// End time on the clock of the records.
    pub end_ns: u64,
    /// Reason.
    pub reason: String,
    /// Records in the file.
    pub commands: u64,
    /// Commands that are missing.
    pub lost: u64,
    /// Identifiers of the completion queues.
    pub queues: Vec<u16>,
}

/// Sorts records by the time at which their doorbells were seen; records of the same time keep
/// their order.
pub fn by_time(records: &mut [Record]) {
    records.sort_by_key(|record| record.at_ns);
}
