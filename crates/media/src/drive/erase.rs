//! Zeroing of a part of a drive that no host uses any more, on the keeper's thread.

use driver::bus::Bus;
use driver::io::Namespace;
use driver::{Device, DriverError, QueuePair};

use super::facts::Facts;

/// Bytes per command: any drive clears this quickly.
const STEP_BYTES: u64 = 4 << 20;

/// Zeroes whole blocks: with Write Zeroes if the drive has it, by writing zeros otherwise.
pub(super) fn erase<B: Bus>(
    device: &Device<B>,
    pair: &mut QueuePair<B>,
    facts: &Facts,
    offset: u64,
    len: u64,
) -> Result<(), DriverError> {
    let namespace = Namespace {
        nsid: facts.nsid,
        blocks: facts.blocks,
        block_len: facts.block_bytes(),
    };
    let zeros = match facts.zeroes_len {
        0 => Some(device.alloc(facts.transfer_len as usize)?),
        _ => None,
    };
    let most = match &zeros {
        Some(zeros) => zeros.len() as u64,
        None => facts.zeroes_len.min(STEP_BYTES),
    };
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let bytes = most.min(end - at);
        let lba = at >> facts.block_shift;
        let blocks = u32::try_from(bytes >> facts.block_shift).unwrap_or(u32::MAX);
        match &zeros {
            Some(zeros) => pair.write(&namespace, lba, blocks, zeros, false)?,
            // Deallocation is allowed: blocks deallocated this way read as zeros (NVM 1.1, 3.2.8).
            None => pair.write_zeroes(&namespace, lba, blocks, true)?,
        };
        at += bytes;
    }
    Ok(())
}
