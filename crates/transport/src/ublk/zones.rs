//! Reports of zones, as the driver wants them.

use memory::HostMemory;
use ublk::{SECTOR, Zone};
use zerocopy::IntoBytes as _;

use crate::host::{REPORT_UNIT, reported};

const _: () = assert!(REPORT_UNIT == size_of::<Zone>());
/// `BLK_ZONE_TYPE_SEQWRITE_REQ`.
const SEQUENTIAL: u8 = 2;

/// Zones of a report that a buffer of `len` bytes has room for, at most `wanted`.
pub(super) fn room(wanted: u32, len: usize) -> u32 {
    (wanted as usize).min(len / REPORT_UNIT - 1) as u32
}

/// Turns NVMe's report of at most `most` zones into the driver's, in its place. Bytes of that.
pub(super) fn convert(
    memory: &HostMemory,
    at: usize,
    most: u32,
    (lba_shift, zone_blocks): (u8, u64),
) -> usize {
    let mut count = 0;
    // A zone is read before the one before it is written.
    for from in reported(memory, at, most, (lba_shift, zone_blocks)) {
        let zone = Zone {
            start: from.start,
            len: (zone_blocks << lba_shift) / SECTOR,
            wp: from.write_pointer,
            kind: SEQUENTIAL,
            // Linux's conditions have NVMe's numbers.
            cond: from.state.0,
            reset: from.reset_recommended.into(),
            capacity: from.capacity,
            ..Zone::default()
        };
        memory.write(at + count * REPORT_UNIT, zone.as_bytes());
        count += 1;
    }
    count * REPORT_UNIT
}

#[cfg(test)]
mod tests {
    use nvme_spec::zoned::{ZoneDescriptor, ZoneDescriptorState, ZoneReportHeader, ZoneState};
    use zerocopy::FromZeros as _;

    use super::*;

    #[test]
    fn zones_are_in_sectors_and_full_ones_end_at_their_end() {
        let memory = HostMemory::new(4096).unwrap();
        let mut header = ZoneReportHeader::new_zeroed();
        header.number_of_zones = 2;
        memory.write(0, header.as_bytes());
        for (index, state) in [ZoneState::CLOSED, ZoneState::FULL].into_iter().enumerate() {
            let descriptor = ZoneDescriptor {
                state: ZoneDescriptorState::new().with_zs(state),
                zcap: 0x30,
                zslba: 0x40 * index as u64,
                wp: 0x11,
                ..ZoneDescriptor::new_zeroed()
            };
            memory.write(64 * (index + 1), descriptor.as_bytes());
        }
        assert_eq!(convert(&memory, 0, 5, (12, 0x40)), 128);
        let mut bytes = [0; 128];
        memory.read(0, &mut bytes);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        // include/uapi/linux/blkzoned.h: start, len, wp, type and cond, capacity
        assert_eq!((word(0), word(8), word(16), word(32)), (0, 512, 136, 384));
        assert_eq!((bytes[24], bytes[25]), (2, 4));
        assert_eq!((word(64), word(80), bytes[89]), (512, 1024, 14));
        assert_eq!(convert(&memory, 0, 0, (12, 0x40)), 0);
    }

    #[test]
    fn a_report_fits_into_its_buffer() {
        assert_eq!((room(1, 4096), room(100, 4096)), (1, 63));
        assert_eq!(room(u32::MAX, 4096), 63);
    }
}
