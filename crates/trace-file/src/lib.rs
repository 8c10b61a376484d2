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
mod record;
pub mod stats;
mod write;

#[cfg(test)]
mod tests;

pub use asked::{Asked, KeyCommand};
pub use name::Operation;
pub use read::{Reader, Tail, TraceError};
pub use record::{Key, Record, STAGES};
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

/// Subject of a recording.
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
