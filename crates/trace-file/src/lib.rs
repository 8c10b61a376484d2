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
