//! Zones of a host-managed zoned device (VIRTIO 1.3, 5.2.4 and 5.2.6): the end of its configuration
//! space, and reports.
//!
//! Addresses and sizes are in sectors unless a field says otherwise.

/// Bytes of the zone characteristics in the configuration space.
pub(crate) const ZONED_LEN: usize = 24;
/// Bytes before the zones of a report, and of each zone in it.
pub const REPORT_UNIT: usize = 64;
/// Bytes of an append that the device writes first: the sector where its data begin.
pub const APPEND_SECTOR_LEN: usize = 8;

/// `VIRTIO_BLK_Z_HM`: zones must be written in order.
const HOST_MANAGED: u8 = 1;
/// `VIRTIO_BLK_ZT_SWR`: a zone that must be written in order.
const SEQUENTIAL_WRITE_REQUIRED: u8 = 2;

/// `struct virtio_blk_zoned_characteristics` of a host-managed device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zoned {
    /// Size of a zone.
    pub zone_sectors: u32,
    /// Most open zones; 0 is no limit.
    pub max_open_zones: u32,
    /// Most active zones; 0 is no limit.
    pub max_active_zones: u32,
    /// Longest append.
    pub max_append_sectors: u32,
    /// Bytes in whose multiples zones are written.
    pub write_granularity: u32,
}

impl Zoned {
    /// The bytes of the configuration space.
    pub(crate) fn encode(&self) -> [u8; ZONED_LEN] {
        let mut bytes = [0; ZONED_LEN];
        let fields = [
            self.zone_sectors,
            self.max_open_zones,
            self.max_active_zones,
            self.max_append_sectors,
            self.write_granularity,
        ];
        for (at, field) in bytes.chunks_exact_mut(4).zip(fields) {
            at.copy_from_slice(&field.to_le_bytes());
        }
        bytes[20] = HOST_MANAGED;
        bytes
    }
}

/// A zone of a report that must be written in order (`struct virtio_blk_zone_descriptor`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Sectors that can be written.
    pub capacity: u64,
    /// First sector.
    pub start: u64,
    /// Write pointer. Without meaning in a zone that is full, read-only or offline.
    pub write_pointer: u64,
    /// State: empty 1, implicitly open 2, explicitly open 3, closed 4, read-only 13, full 14,
    /// offline 15.
    pub state: u8,
}

impl Zone {
    /// The bytes of a report.
    #[must_use]
    pub fn encode(&self) -> [u8; REPORT_UNIT] {
        let mut bytes = [0; REPORT_UNIT];
        bytes[..8].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.start.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.write_pointer.to_le_bytes());
        (bytes[24], bytes[25]) = (SEQUENTIAL_WRITE_REQUIRED, self.state);
        bytes
    }
}

/// What a report of `zones` zones begins with (`struct virtio_blk_zone_report`).
#[must_use]
pub fn report_header(zones: u64) -> [u8; REPORT_UNIT] {
    let mut bytes = [0; REPORT_UNIT];
    bytes[..8].copy_from_slice(&zones.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_lie_as_the_specification_says() {
        let zone = Zone {
            capacity: 0x0807_0605_0403_0201,
            start: 0x1817_1615_1413_1211,
            write_pointer: 0x2827_2625_2423_2221,
            state: 14,
        };
        let mut expected = [0; 64];
        for (at, first) in [(0, 1), (8, 0x11), (16, 0x21)] {
            for step in 0..8 {
                expected[at + step as usize] = first + step;
            }
        }
        (expected[24], expected[25]) = (2, 14);
        assert_eq!(zone.encode(), expected);
        let mut header = [0; 64];
        header[..2].copy_from_slice(&[0x34, 0x12]);
        assert_eq!(report_header(0x1234), header);
    }
}
