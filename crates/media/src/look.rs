//! Read access to a medium's current state for display: its model, its zones, its pairs.
//!
//! A [`Look`] borrows everything and copies nothing. Long reports (of a drive's lines, or of many
//! zones) are taken in parts, a bounded one in each turn of the reactor that has the medium.
//!
//! It changes nothing, and commands are unaffected.

use model::{Model, Op};

use crate::zoned::ZonesLook;

/// Current state of a medium. Missing parts are `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look<'a> {
    /// Its timing model, with counters of the operations.
    pub timing: Option<TimingLook<'a>>,
    /// Its zones.
    pub zones: Option<ZonesLook<'a>>,
    /// Its keys and values.
    pub pairs: Option<PairsLook>,
}

/// Timing of a medium.
#[derive(Clone, Copy, Debug)]
pub struct TimingLook<'a> {
    /// The model of the drive.
    pub model: &'a Model,
    /// Operations since the medium is served.
    pub asked: Asked,
    /// Times without room in the model.
    pub stalls: Stalls,
}

/// Operations submitted to a model, by kind. One command may be several: a Copy reads and writes.
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
    /// Other zone operations.
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

/// Periods in which a model accepted no more of something, for example because a buffer was full:
/// from a command that found no room until there was room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Number of periods.
    pub count: u64,
    /// Their total duration, in nanoseconds, without a period in progress.
    pub time_ns: u64,
}

/// The keys and values of a medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairsLook {
    /// Number of pairs.
    pub pairs: u32,
    /// Maximum number of pairs.
    pub max_pairs: u32,
    /// Total size of all keys in bytes.
    pub key_bytes: u64,
    /// Total size of all values in bytes.
    pub value_bytes: u64,
    /// Bytes in use: whole units, for values and the parts of keys beyond 16 bytes.
    pub used_bytes: u64,
    /// Total bytes.
    pub bytes: u64,
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Memory of the index entries that were ever in use.
    pub index_bytes: u64,
}
