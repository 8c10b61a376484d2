//! The commands of programs, and how a queue pair carries them.

use memory::Buffer;
use nvme_spec::Sqe;
use nvme_spec::command::WriteZeroesCdw12;
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::samsung::{
    BATCH_ALIGNMENT, BATCH_HEAD_SIZE, BatchHead, SUB_COMMANDS_MAX, SamsungCommand, SamsungOpcode,
    SubCommand,
};
use nvme_spec::zoned::{ZoneSendAction, ZoneSendCdw13, ZonedOpcode};
use zerocopy::{FromZeros, IntoBytes};

use crate::bus::Bus;
use crate::io::{Blocks, Namespace};
use crate::key_value::{Keys, Rule};
use crate::{DriverError, QueuePair};

/// Bytes of a key.
pub const KEY_LEN: usize = 16;

/// The key of a number: its sixteen hexadecimal digits.
#[must_use]
pub fn key(number: u64) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    for (at, digit) in key.iter_mut().enumerate() {
        let nibble = (number >> (60 - 4 * at)) as u8 & 0xf;
        *digit = if nibble < 10 {
            b'0' + nibble
        } else {
            b'a' + nibble - 10
        };
    }
    key
}

/// One command. Offsets and lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Write.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Write, not done before it is on non-volatile media.
    WriteFua {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Write Zeroes, which deallocates.
    Deallocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Flush.
    Flush,
    /// Zone Append to the zone that begins there.
    Append {
        /// The zone's first byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Reset of the zone that begins there.
    ResetZone {
        /// Its first byte.
        offset: u64,
    },
    /// Store.
    Store {
        /// The key's number.
        key: u64,
        /// Bytes of the value.
        len: u32,
    },
    /// Retrieve.
    Retrieve {
        /// The key's number.
        key: u64,
        /// Bytes of the value.
        len: u32,
    },
    /// A compound command of stores, one for each key from this number on.
    StoreTogether {
        /// The first key's number.
        key: u64,
        /// Keys: 1 to 8.
        count: u8,
        /// Bytes of each value.
        len: u32,
    },
}

/// The target of a program.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// A namespace of blocks.
    Blocks(Namespace),
    /// A namespace of keys.
    Keys(Keys),
}

impl Command {
    /// Bytes that it moves.
    #[must_use]
    pub fn data_len(&self) -> u32 {
        match *self {
            Command::Read { len, .. }
            | Command::Write { len, .. }
            | Command::WriteFua { len, .. }
            | Command::Append { len, .. }
            | Command::Store { len, .. }
            | Command::Retrieve { len, .. } => len,
            Command::Deallocate { .. } | Command::Flush | Command::ResetZone { .. } => 0,
            Command::StoreTogether { count, len, .. } => {
                BATCH_HEAD_SIZE as u32 + u32::from(count) * part_len(len)
            }
        }
    }

    /// Whether its buffer must not be changed until it is done.
    pub(super) fn needs_buffer_alone(&self) -> bool {
        matches!(self, Command::StoreTogether { .. })
    }

    /// Its entry, with data pointers into `buffer`, for the command that `queue` submits next.
    pub(super) fn entry<B: Bus>(
        &self,
        target: &Target,
        queue: &QueuePair<B>,
        buffer: &Buffer,
    ) -> Result<Sqe, DriverError> {
        let mut sqe = match target {
            Target::Blocks(namespace) => self.of_blocks(namespace)?,
            Target::Keys(keys) => self.of_keys(keys, buffer)?,
        };
        let len = self.data_len();
        if len > 0 {
            queue.set_data(&mut sqe, buffer, len as usize)?;
        }
        Ok(sqe)
    }

    fn of_blocks(&self, namespace: &Namespace) -> Result<Sqe, DriverError> {
        let block = u64::from(namespace.block_len);
        let transfer = |opcode, offset: u64, len: u32, fua| {
            let whole = offset.is_multiple_of(block) && len.is_multiple_of(namespace.block_len);
            let nlb = Blocks::new(len / namespace.block_len).filter(|_| whole);
            let nlb = nlb.ok_or_else(|| unfit(self, "is not a whole number of blocks"))?;
            Ok(namespace.transfer(opcode, offset / block, nlb, fua))
        };
        match *self {
            Command::Read { offset, len } => transfer(NvmOpcode::READ, offset, len, false),
            Command::Write { offset, len } => transfer(NvmOpcode::WRITE, offset, len, false),
            Command::WriteFua { offset, len } => transfer(NvmOpcode::WRITE, offset, len, true),
            Command::Deallocate { offset, len } => {
                let mut sqe = transfer(NvmOpcode::WRITE_ZEROES, offset, len, false)?;
                sqe.cdw12 = WriteZeroesCdw12::from(sqe.cdw12).with_deac(true).into();
                Ok(sqe)
            }
            Command::Flush => Ok(Sqe {
                opcode: NvmOpcode::FLUSH.0,
                nsid: namespace.nsid,
                ..Sqe::default()
            }),
            Command::Append { offset, len } => {
                let mut sqe = transfer(NvmOpcode::WRITE, offset, len, false)?;
                sqe.opcode = ZonedOpcode::ZONE_APPEND.0;
                Ok(sqe)
            }
            Command::ResetZone { offset } => {
                let mut sqe = transfer(NvmOpcode::FLUSH, offset, namespace.block_len, false)?;
                sqe.opcode = ZonedOpcode::ZONE_MANAGEMENT_SEND.0;
                sqe.cdw12 = 0;
                sqe.cdw13 = ZoneSendCdw13::new().with_zsa(ZoneSendAction::RESET).into();
                Ok(sqe)
            }
            _ => Err(unfit(self, "requires a key-value namespace")),
        }
    }

    fn of_keys(&self, keys: &Keys, buffer: &Buffer) -> Result<Sqe, DriverError> {
        match *self {
            Command::Store { key: number, len } => keys.store(&key(number), len, Rule::Any),
            Command::Retrieve { key: number, len } => keys.retrieve(&key(number), len),
            Command::StoreTogether {
                key: first,
                count,
                len,
            } => {
                if !(1..=SUB_COMMANDS_MAX).contains(&usize::from(count)) {
                    return Err(unfit(self, "must have 1 to 8 parts"));
                }
                write_batch(buffer, first, count, len);
                let mut command = SamsungCommand {
                    opcode: SamsungOpcode::BATCH,
                    nsid: keys.nsid,
                    sub_commands: count,
                    ..SamsungCommand::default()
                };
                command.set_value_len(self.data_len());
                Ok(command.to_sqe())
            }
            _ => Err(unfit(self, "requires a namespace of logical blocks")),
        }
    }
}

/// Bytes of a compound command's data that one sub-command has: a head, the key, and the value,
/// each padded.
fn part_len(len: u32) -> u32 {
    let padded = |len: u32| len.next_multiple_of(BATCH_ALIGNMENT as u32);
    BATCH_ALIGNMENT as u32 + padded(KEY_LEN as u32) + padded(len)
}

fn write_batch(buffer: &Buffer, first: u64, count: u8, len: u32) {
    let mut head = BatchHead::new_zeroed();
    let mut at = BATCH_HEAD_SIZE + BATCH_ALIGNMENT;
    for (number, sub) in (first..).zip(&mut head.sub[..usize::from(count)]) {
        *sub = SubCommand {
            opcode: SamsungOpcode::STORE,
            key_len: KEY_LEN as u8,
            value_len: len,
            ..SubCommand::new_zeroed()
        };
        buffer.write_from(at, &key(number));
        at += part_len(len) as usize;
    }
    buffer.write_from(0, head.as_bytes());
}

fn unfit(command: &Command, why: &str) -> DriverError {
    DriverError::Unsupported(format!("{command:?} {why}"))
}
