//! Translation of a trace's commands into commands for another drive.

use anyhow::{bail, ensure};
use driver::io::{Blocks, Namespace};
use driver::key_value::Keys;
use nvme_spec::Sqe;
use nvme_spec::command::{DsmCdw10, DsmCdw11, WriteZeroesCdw12, slba_cdw10_11};
use nvme_spec::key_value::{self, KvCdw11, KvOpcode};
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::zoned::{ZoneSendAction, ZonedOpcode};
use trace_file::{Asked, KeyCommand};

/// A namespace and its kind of contents.
#[derive(Clone, Copy, Debug)]
pub enum Held {
    /// Blocks.
    Blocks(Namespace),
    /// Blocks in zones.
    Zones(Namespace),
    /// Keys with their values.
    Keys(Keys),
}

impl Held {
    /// Its identifier.
    pub(super) fn nsid(&self) -> u32 {
        match self {
            Held::Blocks(namespace) | Held::Zones(namespace) => namespace.nsid,
            Held::Keys(keys) => keys.nsid,
        }
    }
}

/// Data transfer of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    Nothing,
    /// Bytes to the host.
    ToHost(u32),
    /// Unique bytes from the host, in blocks of `block_len` bytes, the first of which goes to
    /// `lba`.
    FromHost {
        len: u32,
        block_len: u32,
        lba: u64,
    },
    /// A unique value of this many bytes.
    Value(u32),
    /// One range of Dataset Management.
    Range {
        lba: u64,
        blocks: u32,
    },
}

/// Result of the translation.
pub(super) enum Made {
    Command(Sqe, Data),
    LeftOut(&'static str),
}

/// The command exceeds the drive's maximum transfer or the available memory.
const MANY: Made = Made::LeftOut("have more blocks than are asked for at once");

/// Translates a command for a drive's namespace.
pub(super) fn make(
    asked: &Asked,
    held: &Held,
    transfer_len: u32,
    wrap: bool,
) -> anyhow::Result<Made> {
    let (namespace, zoned) = match held {
        Held::Keys(keys) => return Ok(make_with_key(asked, keys, transfer_len)),
        Held::Blocks(namespace) => (namespace, false),
        Held::Zones(namespace) => (namespace, true),
    };
    let block_len = u64::from(namespace.block_len);
    let place = |start: u64, len: u64| place(start, len, namespace, wrap);
    let blocks = |start: u64, len: u64| -> anyhow::Result<Option<(u64, Blocks)>> {
        let (start, len) = place(start, len)?;
        let count = u32::try_from(len / block_len).ok().and_then(Blocks::new);
        Ok(count.map(|count| (start / block_len, count)))
    };
    let transfer = |opcode, start, len, fua| -> anyhow::Result<Result<(Sqe, u32, u64), Made>> {
        let Some((lba, count)) = blocks(start, len)?.filter(|_| len <= transfer_len.into()) else {
            return Ok(Err(MANY));
        };
        Ok(Ok((
            namespace.transfer(opcode, lba, count, fua),
            len as u32,
            lba,
        )))
    };
    let out = |sqe: Sqe, len, lba| {
        let block_len = namespace.block_len;
        Made::Command(
            sqe,
            Data::FromHost {
                len,
                block_len,
                lba,
            },
        )
    };
    Ok(match *asked {
        Asked::Read { start, len, fua } => match transfer(NvmOpcode::READ, start, len, fua)? {
            Ok((sqe, len, _)) => Made::Command(sqe, Data::ToHost(len)),
            Err(left_out) => left_out,
        },
        Asked::Write { start, len, fua } => match transfer(NvmOpcode::WRITE, start, len, fua)? {
            Ok((sqe, len, lba)) => out(sqe, len, lba),
            Err(left_out) => left_out,
        },
        Asked::Flush => flush(namespace.nsid),
        Asked::Key { .. } => Made::LeftOut("are of keys, and the drive has blocks"),
        Asked::WriteZeroes {
            start,
            len,
            deallocate,
            fua,
        } => {
            let Some((lba, count)) = blocks(start, len)? else {
                return Ok(MANY);
            };
            let mut sqe = namespace.transfer(NvmOpcode::WRITE_ZEROES, lba, count, fua);
            let cdw12 = WriteZeroesCdw12::from(sqe.cdw12).with_deac(deallocate);
            sqe.cdw12 = cdw12.into();
            Made::Command(sqe, Data::Nothing)
        }
        Asked::Deallocate { start, len, .. } => {
            let (start, len) = place(start, len)?;
            let Ok(blocks) = u32::try_from(len / block_len) else {
                return Ok(MANY);
            };
            let sqe = Sqe {
                opcode: NvmOpcode::DATASET_MANAGEMENT.0,
                nsid: namespace.nsid,
                cdw10: DsmCdw10::new().with_nr_z(0).into(),
                cdw11: DsmCdw11::new().with_ad(true).into(),
                ..Sqe::default()
            };
            let lba = start / block_len;
            Made::Command(sqe, Data::Range { lba, blocks })
        }
        Asked::Append { .. } | Asked::Zone { .. } if !zoned => {
            Made::LeftOut("are of zones, and the drive has none")
        }
        Asked::Append { start, len, fua } => {
            let append = NvmOpcode(ZonedOpcode::ZONE_APPEND.0);
            match transfer(append, start, len, fua)? {
                Ok((sqe, len, lba)) => out(sqe, len, lba),
                Err(left_out) => left_out,
            }
        }
        Asked::Zone { action, .. } if !is_replayed(ZoneSendAction(action)) => {
            // the Set Zone Descriptor Extension's data is not in a trace; Offline cannot be undone
            Made::LeftOut("change zones in another way")
        }
        Asked::Zone { start, action, all } => {
            let (start, _) = place(start, block_len)?;
            let (cdw10, cdw11) = slba_cdw10_11(start / block_len);
            let sqe = Sqe {
                opcode: ZonedOpcode::ZONE_MANAGEMENT_SEND.0,
                nsid: namespace.nsid,
                cdw10,
                cdw11,
                cdw13: u32::from(action) | u32::from(all) << 8,
                ..Sqe::default()
            };
            Made::Command(sqe, Data::Nothing)
        }
    })
}

/// Flush has the same opcode in every command set.
fn flush(nsid: u32) -> Made {
    let sqe = Sqe {
        opcode: NvmOpcode::FLUSH.0,
        nsid,
        ..Sqe::default()
    };
    Made::Command(sqe, Data::Nothing)
}

/// Translates a command for a namespace of keys.
fn make_with_key(asked: &Asked, keys: &Keys, transfer_len: u32) -> Made {
    let (what, key, len, options) = match *asked {
        Asked::Flush => return flush(keys.nsid),
        Asked::Key {
            what,
            key,
            len,
            options,
        } => (what, key, len, options),
        _ => return Made::LeftOut("are of blocks, and the drive has keys"),
    };
    if len > transfer_len {
        return Made::LeftOut("have larger values than are asked for at once");
    }
    let (opcode, data) = match what {
        KeyCommand::Store => (KvOpcode::STORE, Data::Value(len)),
        KeyCommand::Retrieve => (KvOpcode::RETRIEVE, Data::ToHost(len)),
        KeyCommand::Delete => (KvOpcode::DELETE, Data::Nothing),
        KeyCommand::Exist => (KvOpcode::EXIST, Data::Nothing),
    };
    let mut sqe = Sqe {
        opcode: opcode.0,
        nsid: keys.nsid,
        cdw10: len,
        cdw11: KvCdw11::new().with_options(options).into(),
        ..Sqe::default()
    };
    key_value::set_key(&mut sqe, key.bytes());
    Made::Command(sqe, data)
}

/// Whether a zone action is replayed.
fn is_replayed(action: ZoneSendAction) -> bool {
    matches!(
        action,
        ZoneSendAction::CLOSE
            | ZoneSendAction::FINISH
            | ZoneSendAction::OPEN
            | ZoneSendAction::RESET
    )
}

/// Position of a byte range in the drive's namespace.
fn place(start: u64, len: u64, namespace: &Namespace, wrap: bool) -> anyhow::Result<(u64, u64)> {
    let (size, block_len) = (namespace.len(), u64::from(namespace.block_len));
    ensure!(
        start.is_multiple_of(block_len) && len.is_multiple_of(block_len),
        "the trace has a command of {len} bytes from byte {start} on, and namespace {} of the drive has blocks of {block_len}: use one with smaller blocks",
        namespace.nsid
    );
    if start.checked_add(len).is_some_and(|end| end <= size) {
        return Ok((start, len));
    }
    if wrap && len <= size {
        return Ok(((start % size).min(size - len), len));
    }
    bail!(
        "the trace has a command of {len} bytes from byte {start} on, and namespace {} of the drive has {size}: use a larger one, or add --wrap",
        namespace.nsid
    )
}
