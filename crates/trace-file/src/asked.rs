//! Commands of a trace in a form that can be submitted again.

use nvme_spec::key_value::{KvCdw11, KvOpcode};

use crate::name::Operation;
use crate::record::{Key, Record};

/// A command, in bytes of its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Read `len` bytes from `start` on.
    Read {
        /// The first byte.
        start: u64,
        /// Number of bytes.
        len: u64,
        /// Whether the data must come from durable storage.
        fua: bool,
    },
    /// Write `len` bytes from `start` on.
    Write {
        /// The first byte.
        start: u64,
        /// Number of bytes.
        len: u64,
        /// Whether it completes only when durable.
        fua: bool,
    },
    /// Append to the zone that begins at `start`.
    Append {
        /// The zone's first byte.
        start: u64,
        /// Number of bytes.
        len: u64,
        /// Whether it completes only when durable.
        fua: bool,
    },
    /// Flush.
    Flush,
    /// Write zeros.
    WriteZeroes {
        /// The first byte.
        start: u64,
        /// Number of bytes.
        len: u64,
        /// Whether the drive may free the space.
        deallocate: bool,
        /// Whether it completes only when durable.
        fua: bool,
    },
    /// Deallocate the first range.
    Deallocate {
        /// Its first byte.
        start: u64,
        /// Number of bytes.
        len: u64,
        /// Number of further ranges, which are unknown.
        more: u32,
    },
    /// Change the state of a zone.
    Zone {
        /// Its first byte; 0 for all zones.
        start: u64,
        /// Zone Send Action.
        action: u8,
        /// Whether it applies to all zones.
        all: bool,
    },
    /// A command with a key.
    Key {
        /// The operation.
        what: KeyCommand,
        /// The key.
        key: Key,
        /// Size of the value to store, or of the host's buffer; 0 for commands without data.
        len: u32,
        /// Store or Retrieve Options.
        options: u8,
    },
}

/// Operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCommand {
    /// Stores a value.
    Store,
    /// Returns its value.
    Retrieve,
    /// Deletes it.
    Delete,
    /// Tests whether it exists.
    Exist,
}

impl Asked {
    /// Whether it may change data, zones or keys.
    #[must_use]
    pub fn changes(&self) -> bool {
        match self {
            Asked::Read { .. } | Asked::Flush => false,
            Asked::Key { what, .. } => matches!(what, KeyCommand::Store | KeyCommand::Delete),
            _ => true,
        }
    }
}

impl Record {
    /// The command in a form that can be submitted again.
    ///
    /// # Errors
    /// Why that is impossible, as a phrase that follows a number of commands.
    pub fn asked(&self) -> Result<Asked, &'static str> {
        if !self.is_success() {
            return Err("ended with an error");
        }
        let extent = self.extent().ok_or("name no blocks");
        let fua = self.fua;
        Ok(match self.operation() {
            Operation::Read => {
                let (start, len) = extent?;
                Asked::Read { start, len, fua }
            }
            Operation::Write => {
                let (start, len) = extent?;
                Asked::Write { start, len, fua }
            }
            Operation::Append => {
                let (start, len) = extent?;
                Asked::Append { start, len, fua }
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
                    fua,
                }
            }
            Operation::Deallocate => {
                let (start, len) = extent?;
                let more = self.detail.saturating_sub(1);
                Asked::Deallocate { start, len, more }
            }
            Operation::ZoneManagement => {
                // Zone Send Action and Select All, with which SLBA means nothing (ZNS 1.1, 3.4.3)
                let all = self.detail & 1 << 8 != 0;
                let start = if all { Some(0) } else { self.first_byte() };
                Asked::Zone {
                    start: start.ok_or("name no blocks")?,
                    action: self.detail as u8,
                    all,
                }
            }
            Operation::Compare => return Err("compare with data that is not in a trace"),
            Operation::Verify => return Err("only verify"),
            Operation::KeyValue => return self.asked_of_keys(),
            Operation::Other => return Err("are of other kinds"),
        })
    }

    fn asked_of_keys(&self) -> Result<Asked, &'static str> {
        let opcode = KvOpcode(self.opcode);
        let what = match opcode {
            KvOpcode::FLUSH => return Ok(Asked::Flush),
            KvOpcode::STORE => KeyCommand::Store,
            KvOpcode::RETRIEVE => KeyCommand::Retrieve,
            KvOpcode::DELETE => KeyCommand::Delete,
            KvOpcode::EXIST => KeyCommand::Exist,
            KvOpcode::LIST => return Err("list keys"),
            _ => return Err("are of other kinds"),
        };
        Ok(Asked::Key {
            what,
            // a trace of version 1 has none
            key: self.key().ok_or("name no key")?,
            // a file may contain any value
            len: if opcode.has_size() { self.blocks } else { 0 },
            options: KvCdw11::from(self.detail).options(),
        })
    }
}
