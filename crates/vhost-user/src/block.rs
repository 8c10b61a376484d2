//! The virtio block device (VIRTIO 1.3, 5.2): configuration space and requests.

use crate::bytes::{u32_at, u64_at};
use crate::zones::Zoned;

/// Bytes of a sector, in which requests and the capacity are counted, whatever the size of a
/// logical block.
pub const SECTOR: u64 = 512;
/// Bytes of a request's header.
pub const HEADER_LEN: usize = 16;
/// Bytes of a range of [`RequestType::DISCARD`] and [`RequestType::WRITE_ZEROES`].
pub const RANGE_LEN: usize = 16;
/// Bytes of the answer to [`RequestType::GET_ID`].
pub const ID_LEN: usize = 20;
/// Bytes of the configuration space: up to the end of `zoned`.
pub const CONFIG_LEN: usize = 96;
/// Where the configuration space has `writeback`, its only field that can be written.
pub const WRITEBACK_AT: usize = 32;

/// What a request is for (5.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestType(pub u32);

impl RequestType {
    /// Read.
    pub const IN: Self = Self(0);
    /// Write.
    pub const OUT: Self = Self(1);
    /// Write what is cached.
    pub const FLUSH: Self = Self(4);
    /// The device's serial number.
    pub const GET_ID: Self = Self(8);
    /// Deallocate ranges.
    pub const DISCARD: Self = Self(11);
    /// Write zeroes to ranges.
    pub const WRITE_ZEROES: Self = Self(13);
    /// Erase ranges, so that their former contents are not recovered.
    pub const SECURE_ERASE: Self = Self(14);
    /// Write behind what a zone has.
    pub const ZONE_APPEND: Self = Self(15);
    /// Report zones.
    pub const ZONE_REPORT: Self = Self(16);
    /// Open a zone.
    pub const ZONE_OPEN: Self = Self(18);
    /// Close a zone.
    pub const ZONE_CLOSE: Self = Self(20);
    /// Make a zone full.
    pub const ZONE_FINISH: Self = Self(22);
    /// Make a zone empty.
    pub const ZONE_RESET: Self = Self(24);
    /// Make all zones empty.
    pub const ZONE_RESET_ALL: Self = Self(26);

    /// Whether only a device with zones has it.
    #[must_use]
    pub const fn is_of_zones(self) -> bool {
        matches!(
            self,
            Self::ZONE_APPEND
                | Self::ZONE_REPORT
                | Self::ZONE_OPEN
                | Self::ZONE_CLOSE
                | Self::ZONE_FINISH
                | Self::ZONE_RESET
                | Self::ZONE_RESET_ALL
        )
    }
}

/// The outcome of a request: its last byte (5.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(pub u8);

impl Outcome {
    /// `VIRTIO_BLK_S_OK`.
    pub const OK: Self = Self(0);
    /// `VIRTIO_BLK_S_IOERR`.
    pub const IOERR: Self = Self(1);
    /// `VIRTIO_BLK_S_UNSUPP`.
    pub const UNSUPP: Self = Self(2);
    /// `VIRTIO_BLK_S_ZONE_INVALID_CMD`.
    pub const ZONE_INVALID_CMD: Self = Self(3);
    /// `VIRTIO_BLK_S_ZONE_UNALIGNED_WP`: a write that is not at the write pointer.
    pub const ZONE_UNALIGNED_WP: Self = Self(4);
    /// `VIRTIO_BLK_S_ZONE_OPEN_RESOURCE`: more open zones than there may be.
    pub const ZONE_OPEN_RESOURCE: Self = Self(5);
    /// `VIRTIO_BLK_S_ZONE_ACTIVE_RESOURCE`: more active zones than there may be.
    pub const ZONE_ACTIVE_RESOURCE: Self = Self(6);
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// What it is for.
    pub kind: RequestType,
    /// First sector, of reads and writes.
    pub sector: u64,
}

impl RequestHeader {
    /// Reads a header.
    #[must_use]
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Self {
        Self {
            kind: RequestType(u32_at(bytes, 0)),
            sector: u64_at(bytes, 8),
        }
    }
}

/// A range of blocks to deallocate or to write zeroes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First sector.
    pub sector: u64,
    /// Sectors.
    pub sectors: u32,
    /// Bit 0: zeroes may be deallocated blocks.
    pub flags: u32,
}

impl Range {
    /// The bit of [`Self::flags`] by which zeroes may be deallocated blocks.
    pub const UNMAP: u32 = 1;

    /// Reads a range.
    #[must_use]
    pub fn parse(bytes: &[u8; RANGE_LEN]) -> Self {
        Self {
            sector: u64_at(bytes, 0),
            sectors: u32_at(bytes, 8),
            flags: u32_at(bytes, 12),
        }
    }
}

/// The configuration space (5.2.4). Sizes are in sectors unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Capacity.
    pub capacity: u64,
    /// Most pieces of data of a request.
    pub seg_max: u32,
    /// Bytes of a logical block.
    pub blk_size: u32,
    /// Logical blocks of a physical one, as a power of two.
    pub physical_block_exp: u8,
    /// Suggested minimum size of a request, in logical blocks.
    pub min_io_size: u16,
    /// Suggested maximum size of a request, in logical blocks.
    pub opt_io_size: u32,
    /// Whether writes may be cached until a flush.
    pub writeback: bool,
    /// Queues.
    pub num_queues: u16,
    /// Most sectors of a range to deallocate.
    pub max_discard_sectors: u32,
    /// Most ranges of one request.
    pub max_discard_seg: u32,
    /// Sectors at whose multiples ranges are to begin.
    pub discard_sector_alignment: u32,
    /// Most sectors of a range to write zeroes to.
    pub max_write_zeroes_sectors: u32,
    /// Most ranges of one request.
    pub max_write_zeroes_seg: u32,
    /// Whether zeroes may be deallocated blocks.
    pub write_zeroes_may_unmap: bool,
    /// Most sectors of a range to erase.
    pub max_secure_erase_sectors: u32,
    /// Most ranges of one request.
    pub max_secure_erase_seg: u32,
    /// Sectors at whose multiples ranges are to begin.
    pub secure_erase_sector_alignment: u32,
    /// Zones, of a device that has some.
    pub zoned: Option<Zoned>,
}

impl Config {
    /// The bytes of the configuration space.
    #[must_use]
    pub fn encode(&self) -> [u8; CONFIG_LEN] {
        let mut bytes = [0; CONFIG_LEN];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.capacity.to_le_bytes());
        put(12, &self.seg_max.to_le_bytes());
        put(20, &self.blk_size.to_le_bytes());
        put(24, &[self.physical_block_exp]);
        put(26, &self.min_io_size.to_le_bytes());
        put(28, &self.opt_io_size.to_le_bytes());
        put(WRITEBACK_AT, &[self.writeback.into()]);
        put(34, &self.num_queues.to_le_bytes());
        put(36, &self.max_discard_sectors.to_le_bytes());
        put(40, &self.max_discard_seg.to_le_bytes());
        put(44, &self.discard_sector_alignment.to_le_bytes());
        put(48, &self.max_write_zeroes_sectors.to_le_bytes());
        put(52, &self.max_write_zeroes_seg.to_le_bytes());
        put(56, &[self.write_zeroes_may_unmap.into()]);
        put(60, &self.max_secure_erase_sectors.to_le_bytes());
        put(64, &self.max_secure_erase_seg.to_le_bytes());
        put(68, &self.secure_erase_sector_alignment.to_le_bytes());
        if let Some(zoned) = &self.zoned {
            put(72, &zoned.encode());
        }
        bytes
    }
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "numbers of the tests are small"
)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_space_lies_as_the_specification_says() {
        let config = Config {
            capacity: 0x0807_0605_0403_0201,
            seg_max: 0x1413_1211,
            blk_size: 0x2423_2221,
            physical_block_exp: 0x31,
            min_io_size: 0x3433,
            opt_io_size: 0x3837_3635,
            writeback: true,
            num_queues: 0x4241,
            max_discard_sectors: 0x5453_5251,
            max_discard_seg: 0x6463_6261,
            discard_sector_alignment: 0x7473_7271,
            max_write_zeroes_sectors: 0x8483_8281,
            max_write_zeroes_seg: 0x9493_9291,
            write_zeroes_may_unmap: true,
            max_secure_erase_sectors: 0xa4a3_a2a1,
            max_secure_erase_seg: 0xb4b3_b2b1,
            secure_erase_sector_alignment: 0xc4c3_c2c1,
            zoned: Some(Zoned {
                zone_sectors: 0xd4d3_d2d1,
                max_open_zones: 0xd8d7_d6d5,
                max_active_zones: 0xdcdb_dad9,
                max_append_sectors: 0xe4e3_e2e1,
                write_granularity: 0xe8e7_e6e5,
            }),
        };
        let mut expected = [0; CONFIG_LEN];
        // VIRTIO 1.3, 5.2.4: size_max and the geometry (8 to 11, 16 to 19), the alignment offset
        // (25), unused0 (33), unused1 (57 to 59) and unused2 (93 to 95) are 0. The model (92) is
        // VIRTIO_BLK_Z_HM.
        for (at, first, len) in [
            (0, 0x01, 8),
            (12, 0x11, 4),
            (20, 0x21, 4),
            (24, 0x31, 1),
            (26, 0x33, 6),
            (34, 0x41, 2),
            (36, 0x51, 4),
            (40, 0x61, 4),
            (44, 0x71, 4),
            (48, 0x81, 4),
            (52, 0x91, 4),
            (60, 0xa1, 4),
            (64, 0xb1, 4),
            (68, 0xc1, 4),
            (72, 0xd1, 12),
            (84, 0xe1, 8),
        ] {
            for (step, byte) in expected[at..at + len].iter_mut().enumerate() {
                *byte = first + step as u8;
            }
        }
        (expected[32], expected[56], expected[92]) = (1, 1, 1);
        assert_eq!(config.encode(), expected);
        let without = Config {
            zoned: None,
            ..config
        };
        expected[72..].fill(0);
        assert_eq!(without.encode(), expected);
    }

    #[test]
    fn requests_of_zones_are_those_of_the_specification() {
        // VIRTIO 1.3, 5.2.6: VIRTIO_BLK_T_ZONE_*.
        let found: Vec<u32> = (0..64)
            .filter(|kind| RequestType(*kind).is_of_zones())
            .collect();
        assert_eq!(found, [15, 16, 18, 20, 22, 24, 26]);
    }

    #[test]
    fn headers_and_ranges_lie_as_the_specification_says() {
        let bytes = [8, 0, 0, 0, 9, 9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8];
        let header = RequestHeader::parse(&bytes);
        assert_eq!(header.kind, RequestType::GET_ID);
        assert_eq!(header.sector, 0x0807_0605_0403_0201);
        let range = Range::parse(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 1, 1, 0, 0, 0x80]);
        assert_eq!(range.sector, 0x0807_0605_0403_0201);
        assert_eq!((range.sectors, range.flags), (0x0100_0009, 0x8000_0001));
    }
}
