//! What it takes to ask the same again.

use crate::{Operation, Record};

/// What a command asked for, in bytes of its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Read `len` bytes from `start` on.
    Read {
        /// The first byte.
        start: u64,
        /// How many.
        len: u64,
    },
    /// Write them.
    Write {
        /// The first byte.
        start: u64,
        /// How many.
        len: u64,
        /// Durable when it is done.
        fua: bool,
    },
    /// Write them where the zone that begins at `start` is written next.
    Append {
        /// The zone's first byte.
        start: u64,
        /// How many.
        len: u64,
    },
    /// Flush.
    Flush,
    /// Write zeros.
    WriteZeroes {
        /// The first byte.
        start: u64,
        /// How many.
        len: u64,
        /// The drive may give the space back.
        deallocate: bool,
    },
    /// Give the bytes of the first range back.
    Deallocate {
        /// Its first byte.
        start: u64,
        /// How many.
        len: u64,
        /// Ranges behind it, of which nothing is known.
        more: u32,
    },
    /// Change the state of a zone.
    Zone {
        /// Its first byte.
        start: u64,
        /// Zone Send Action.
        action: u8,
        /// Of all zones.
        all: bool,
    },
}

impl Asked {
    /// Whether data or zones may be others than before.
    #[must_use]
    pub fn changes(&self) -> bool {
        !matches!(self, Asked::Read { .. } | Asked::Flush)
    }
}

impl Record {
    /// What it asked for, as far as that can be asked again.
    ///
    /// # Errors
    /// Why it cannot, in a few words that stand behind a number of commands.
    pub fn asked(&self) -> Result<Asked, &'static str> {
        if !self.is_success() {
            return Err("ended with an error");
        }
        let extent = self.extent().ok_or("name no blocks");
        Ok(match self.operation() {
            Operation::Read => {
                let (start, len) = extent?;
                Asked::Read { start, len }
            }
            Operation::Write => {
                let (start, len) = extent?;
                let fua = self.fua;
                Asked::Write { start, len, fua }
            }
            Operation::Append => {
                let (start, len) = extent?;
                Asked::Append { start, len }
            }
            Operation::Flush => Asked::Flush,
            Operation::WriteZeroes => {
                let (start, len) = extent?;
                // Deallocate is bit 25 of CDW12 (NVM 1.1, 3.3.8)
                let deallocate = self.detail & 1 << 9 != 0;
                Asked::WriteZeroes {
                    start,
                    len,
                    deallocate,
                }
            }
            Operation::Deallocate => {
                let (start, len) = extent?;
                let more = self.detail.saturating_sub(1);
                Asked::Deallocate { start, len, more }
            }
            Operation::ZoneManagement => {
                let start = self.slba.checked_shl(self.lba_shift.into());
                // Zone Send Action and Select All (ZNS 1.1, 3.4.3)
                Asked::Zone {
                    start: start.ok_or("name no blocks")?,
                    action: self.detail as u8,
                    all: self.detail & 1 << 8 != 0,
                }
            }
            Operation::Compare => return Err("compare with data that is not in a trace"),
            Operation::Verify => return Err("only verify"),
            Operation::KeyValue => return Err("are of keys and values"),
            Operation::Other => return Err("are of other kinds"),
        })
    }
}
