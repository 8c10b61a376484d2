//! What a medium is like now, for whoever shows it: its model, its zones, its pairs.
//!
//! A [`Look`] borrows all of it and copies nothing: whoever takes a long look (of a drive's lines,
//! of many zones) takes it in parts, a bounded one in each turn of the reactor that has the medium.
//!
//! It does NOT change anything, and no command knows of it.

use model::{Model, Op};

use crate::zoned::ZonesLook;

/// A medium as it is now. Parts that it does not have are `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look<'a> {
    /// What says when its commands are done, and what that was asked for.
    pub timing: Option<TimingLook<'a>>,
    /// Its zones.
    pub zones: Option<ZonesLook<'a>>,
    /// Its keys and values.
    pub pairs: Option<PairsLook>,
}

/// The time of a drive that a medium has.
#[derive(Clone, Copy, Debug)]
pub struct TimingLook<'a> {
    /// The drive.
    pub model: &'a Model,
    /// What it was asked for since it is served.
    pub asked: Asked,
    /// When it had no room.
    pub stalls: Stalls,
}

/// Operations that a model was asked for, by what they are. One command may be several: a Copy
/// reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Reads and compares.
    pub reads: u64,
    /// Writes, and appends to zones.
    pub writes: u64,
    /// Deallocations and Write Zeroes, by their parts.
    pub deallocations: u64,
    /// Flushes.
    pub flushes: u64,
    /// What is done to zones apart from that.
    pub zone_actions: u64,
    /// Operations on keys; a compound command is one.
    pub keys: u64,
}

impl Asked {
    #[inline]
    pub(crate) fn count(&mut self, op: &Op<'_>) {
        let count = match op {
            Op::Read { .. } => &mut self.reads,
            Op::Write { .. } => &mut self.writes,
            Op::Deallocate { .. } => &mut self.deallocations,
            Op::Flush => &mut self.flushes,
            Op::Zone(_) => &mut self.zone_actions,
            Op::Kv(_) | Op::Compound(_) => &mut self.keys,
        };
        *count += 1;
    }
}

/// Times in which a model took no more of something, as a buffer was full: from a command that
/// found no room until there was room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// How many.
    pub count: u64,
    /// How long they took together, in nanoseconds; one that goes on is not in it.
    pub time_ns: u64,
}

/// The keys and values of a medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairsLook {
    /// Pairs, and how many there may be.
    pub pairs: u32,
    /// See there.
    pub max_pairs: u32,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Bytes that are taken: whole units, of values and of what keys have beyond 16 bytes.
    pub used_bytes: u64,
    /// Bytes that there are.
    pub bytes: u64,
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Bytes that the entries of the index take, of those that were ever in use.
    pub index_bytes: u64,
}
