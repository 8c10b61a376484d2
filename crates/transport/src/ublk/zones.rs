//! Reports of zones, as the driver wants them.

use memory::HostMemory;
use nvme_spec::zoned::{ZoneDescriptor, ZoneReportHeader, ZoneState};
use ublk::{SECTOR, Zone};
use zerocopy::{FromZeros as _, IntoBytes as _};

/// Bytes of a zone in either report, and of the header of NVMe's.
const LEN: usize = size_of::<ZoneDescriptor>();
const _: () = assert!(LEN == size_of::<Zone>() && LEN == size_of::<ZoneReportHeader>());
/// `BLK_ZONE_TYPE_SEQWRITE_REQ`.
const SEQUENTIAL: u8 = 2;

/// Zones of a report that a buffer of `len` bytes has room for, at most `wanted`.
pub(super) fn room(wanted: u32, len: usize) -> u32 {
    (wanted as usize).min(len / LEN - 1) as u32
}

/// Bytes of NVMe's report of this number of zones.
pub(super) fn len(zones: u32) -> u64 {
    (LEN + zones as usize * LEN) as u64
}

/// Turns NVMe's report of at most `most` zones into the driver's, in its place. Bytes of that.
pub(super) fn convert(
    memory: &HostMemory,
    at: usize,
    most: u32,
    lba_shift: u8,
    zone_blocks: u64,
) -> usize {
    let mut header = ZoneReportHeader::new_zeroed();
    memory.read(at, header.as_mut_bytes());
    let count = header.number_of_zones.min(most.into()) as usize;
    let sectors = |blocks: u64| (blocks << lba_shift) / SECTOR;
    for index in 0..count {
        let mut from = ZoneDescriptor::new_zeroed();
        memory.read(at + (index + 1) * LEN, from.as_mut_bytes());
        let state = from.state.zs();
        let start = sectors(from.zslba);
        let len = sectors(zone_blocks);
        let zone = Zone {
            start,
            len,
            // NVMe does not say where the pointer of a full zone is, and one that cannot be written
            // has none.
            wp: match state {
                ZoneState::FULL => start + len,
                ZoneState::READ_ONLY | ZoneState::OFFLINE => u64::MAX,
                _ => sectors(from.wp),
            },
            kind: SEQUENTIAL,
            // Linux's conditions have NVMe's numbers.
            cond: state.0,
            reset: from.za.rzr().into(),
            capacity: sectors(from.zcap),
            ..Zone::default()
        };
        memory.write(at + index * LEN, zone.as_bytes());
    }
    count * LEN
}

#[cfg(test)]
mod tests {
    use nvme_spec::zoned::ZoneDescriptorState;

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
        assert_eq!(convert(&memory, 0, 5, 12, 0x40), 128);
        let mut bytes = [0; 128];
        memory.read(0, &mut bytes);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        // include/uapi/linux/blkzoned.h: start, len, wp, type and cond, capacity
        assert_eq!((word(0), word(8), word(16), word(32)), (0, 512, 136, 384));
        assert_eq!((bytes[24], bytes[25]), (2, 4));
        assert_eq!((word(64), word(80), bytes[89]), (512, 1024, 14));
        assert_eq!(convert(&memory, 0, 0, 12, 0x40), 0);
    }

    #[test]
    fn a_report_fits_into_its_buffer() {
        assert_eq!((room(1, 4096), room(100, 4096), len(2)), (1, 63, 192));
        assert!(len(room(u32::MAX, 4096)) <= 4096);
    }
}
