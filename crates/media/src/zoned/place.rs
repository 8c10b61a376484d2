//! Where in the medium a command of the set acts.

use nvme_spec::zoned::{ZoneAppendCdw12, zone_slba};
use nvme_spec::{Sqe, Status};
use port::ByteRange;

use super::zones::{Write, Zones};

/// Position of a namespace's logical block in the medium.
pub(super) fn offset_of(extent: ByteRange, lba_shift: u8, lba: u64) -> Result<u64, Status> {
    if lba >= extent.len >> lba_shift {
        return Err(Status::LBA_OUT_OF_RANGE);
    }
    Ok(extent.offset + (lba << lba_shift))
}

/// Zone and length of a Zone Append.
pub(super) fn find_append(
    zones: &Zones,
    sqe: &Sqe,
    extent: ByteRange,
    lba_shift: u8,
) -> Result<(Write, u32), Status> {
    let zone = zone_of(zones, sqe, extent, lba_shift)?;
    let blocks = u32::from(ZoneAppendCdw12::from(sqe.cdw12).nlb_z()) + 1;
    // No overflow: at most 65,536 blocks of 4 KiB.
    let len = blocks << lba_shift;
    let write = zones.check_append(zone, len.into())?;
    Ok((write, len))
}

/// The zone that a command names by its first logical block.
pub(super) fn zone_of(
    zones: &Zones,
    sqe: &Sqe,
    extent: ByteRange,
    lba_shift: u8,
) -> Result<u32, Status> {
    let offset = offset_of(extent, lba_shift, zone_slba(sqe))?;
    let zone = zones.at(offset).ok_or(Status::LBA_OUT_OF_RANGE)?;
    if zones.start(zone) == offset {
        Ok(zone)
    } else {
        Err(Status::INVALID_FIELD_IN_COMMAND)
    }
}
