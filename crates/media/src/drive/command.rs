//! Builds the drive's commands for a request: translates bytes of the medium to blocks of the
//! drive.
//!
//! Only commands built here ever reach a drive: Read, Write, Write Zeroes, Dataset Management and
//! Flush, of one namespace, with blocks checked against it and pointers built here.

use std::sync::Arc;

use driver::bus::Bus;
use driver::io::{Blocks, Namespace};
use memory::DmaView;
use nvme_spec::Sqe;
use nvme_spec::command::{DsmCdw10, DsmCdw11, DsmRange, WriteZeroesCdw12};
use nvme_spec::opcode::NvmOpcode;
use zerocopy::IntoBytes;

use super::data::{self, Pieces};
use super::facts::Facts;
use super::op::{Cursor, Fused, Kind, Op};
use super::queue::{BOUNCE_BYTES, Queue};

const PAGE: u64 = 4096;

/// A command, and the part of its request that it covers.
pub(super) struct Made {
    pub(super) sqe: Sqe,
    /// Bytes of the medium; 1 for a command without any.
    pub(super) bytes: u64,
    /// Bytes of the request's data.
    pub(super) data: u32,
    /// Position in the data after it, unless it goes through a buffer.
    pub(super) cursor: Cursor,
}

/// Builds the next command of a request, in slot `cid` of the queue pair. `None` if the drive's
/// commands cannot express it, which earlier checks rule out.
pub(super) fn make<B: Bus>(
    (facts, queue, pieces, ranges): (&Facts, &Queue<B>, &Pieces, &[[u64; 2]]),
    (slot, op, view): (u16, &Op, Option<&Arc<DmaView>>),
    (cid, bounce): (u16, Option<u16>),
) -> Option<Made> {
    let namespace = Namespace {
        nsid: facts.nsid,
        blocks: facts.blocks,
        block_len: facts.block_bytes(),
    };
    let transfer = |opcode, bytes: u64| {
        let count = u32::try_from(bytes >> facts.block_shift).ok()?;
        let lba = op.offset >> facts.block_shift;
        Some(namespace.transfer(opcode, lba, Blocks::new(count)?, op.fua))
    };
    let (opcode, limit) = match op.kind {
        Kind::Flush
        | Kind::Fused {
            stage: Fused::Commit,
            ..
        } => return Some(flush(facts, op)),
        Kind::Deallocate { .. } => return deallocate(facts, queue, ranges, (cid, bounce?)),
        Kind::Zeroes { deallocate } => {
            let bytes = op.left.min(facts.zeroes_len);
            let mut sqe = transfer(NvmOpcode::WRITE_ZEROES, bytes)?;
            let blocks = u16::try_from((bytes >> facts.block_shift) - 1).ok()?;
            sqe.cdw12 = WriteZeroesCdw12::new()
                .with_nlb_z(blocks)
                .with_deac(deallocate)
                .with_fua(op.fua)
                .into();
            return Some(Made {
                sqe,
                bytes,
                data: 0,
                cursor: Cursor::default(),
            });
        }
        Kind::Read
        | Kind::Compare
        | Kind::Fused {
            stage: Fused::Compare,
            ..
        } => (NvmOpcode::READ, facts.transfer_len),
        Kind::Write | Kind::ZeroWrites | Kind::Fused { .. } => {
            (NvmOpcode::WRITE, facts.transfer_len)
        }
    };
    let over_fabrics = queue.pair.bus().is_over_fabrics();
    let most = match bounce {
        Some(_) => limit.min(BOUNCE_BYTES),
        // One data block, and not the page of zeros again and again.
        None if over_fabrics => limit.min(PAGE as u32),
        None => limit,
    };
    let bytes = op.left.min(u64::from(most));
    let len = u32::try_from(bytes).ok()?;
    let mut sqe = transfer(opcode, bytes)?;
    let mut cursor = op.cursor;
    let pointer = if let Some(index) = bounce {
        let buffer = &queue.bounce[usize::from(index)];
        let gathered = if opcode == NvmOpcode::WRITE {
            data::gather(pieces.run(slot, op.cursor, len), view?, buffer)
        } else {
            true
        };
        if !gathered {
            return None;
        }
        queue.pair.pointer(cid, buffer, 0, len as usize).ok()?
    } else if op.kind == Kind::ZeroWrites && over_fabrics {
        queue
            .pair
            .pointer(cid, &queue.zeros, 0, len as usize)
            .ok()?
    } else if op.kind == Kind::ZeroWrites {
        let zeros = queue.pair.iova(&queue.zeros).0;
        let pages = (0..bytes.div_ceil(PAGE)).map(|page| (zeros, PAGE.min(bytes - page * PAGE)));
        queue.pair.prps_of(cid, pages).ok()?.into()
    } else {
        let mut run = pieces.run(slot, op.cursor, len);
        let parts = run.by_ref().map(|part| (part.at, u64::from(part.len)));
        let prps = queue.pair.prps_of(cid, parts).ok()?;
        cursor = run.cursor();
        prps.into()
    };
    pointer.put(&mut sqe);
    Some(Made {
        sqe,
        bytes,
        data: len,
        cursor,
    })
}

fn flush(facts: &Facts, op: &Op) -> Made {
    let sqe = Sqe {
        opcode: NvmOpcode::FLUSH.0,
        nsid: facts.nsid,
        ..Sqe::default()
    };
    // The command covers the whole stage: a Flush has no bytes left, and those of a Compare and
    // Write follow.
    Made {
        sqe,
        bytes: match op.kind {
            Kind::Flush => 1,
            _ => 0,
        },
        data: 0,
        cursor: Cursor::default(),
    }
}

/// Dataset Management, with its list of ranges in a bounce buffer.
fn deallocate<B: Bus>(
    facts: &Facts,
    queue: &Queue<B>,
    ranges: &[[u64; 2]],
    (cid, bounce): (u16, u16),
) -> Option<Made> {
    let buffer = &queue.bounce[usize::from(bounce)];
    let unit = u64::from(facts.block_bytes());
    for (index, &[offset, len]) in ranges.iter().enumerate() {
        // Only whole blocks. The part that a range cannot express stays allocated, which is
        // allowed.
        let first = offset.div_ceil(unit);
        let blocks = ((offset + len) / unit).saturating_sub(first);
        let range = DsmRange {
            cattr: 0,
            nlb: u32::try_from(blocks).unwrap_or(u32::MAX),
            slba: first,
        };
        buffer.write_from(index * size_of::<DsmRange>(), range.as_bytes());
    }
    let len = size_of_val(&[DsmRange::default()]) * ranges.len();
    let pointer = queue.pair.pointer(cid, buffer, 0, len).ok()?;
    let count = u8::try_from(ranges.len().checked_sub(1)?).ok()?;
    let mut sqe = Sqe {
        opcode: NvmOpcode::DATASET_MANAGEMENT.0,
        nsid: facts.nsid,
        cdw10: DsmCdw10::new().with_nr_z(count).into(),
        cdw11: DsmCdw11::new().with_ad(true).into(),
        ..Sqe::default()
    };
    pointer.put(&mut sqe);
    Some(Made {
        sqe,
        bytes: 1,
        data: 0,
        cursor: Cursor::default(),
    })
}
