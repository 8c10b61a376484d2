//! Round trips of every body, and bytes that mean nothing.

use proptest::prelude::*;

use super::*;

/// An encoded message parses to itself, also with bytes behind it.
macro_rules! round_trip {
    ($value:expr, $type:ty, $tail:expr) => {{
        let value: $type = $value;
        let mut out = Vec::new();
        value.encode(&mut out);
        prop_assert_eq!(out.len(), <$type>::LEN);
        prop_assert_eq!(<$type>::parse(&out), Ok(value));
        out.extend_from_slice(&$tail);
        prop_assert_eq!(<$type>::parse(&out), Ok(value));
    }};
}

proptest! {
    #[test]
    fn plain_bodies_round_trip(
        a: u32, b: u32, c: u32, d: u32, x: u64, y: u64, z: u64,
        tail in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let flags = DmaMapFlags(b);
        round_trip!(DmaMap { argsz: a, flags, offset: x, iova: y, size: z }, DmaMap, tail);
        let flags = DmaUnmapFlags(b);
        round_trip!(DmaUnmap { argsz: a, flags, iova: x, size: y }, DmaUnmap, tail);
        let flags = DeviceFlags(b);
        round_trip!(DeviceInfo { argsz: a, flags, num_regions: c, num_irqs: d }, DeviceInfo, tail);
        let flags = IrqFlags(b);
        round_trip!(IrqInfo { argsz: a, flags, index: c, count: d }, IrqInfo, tail);
        round_trip!(RegionIoFds { argsz: a, flags: b, index: c, count: d }, RegionIoFds, tail);
        let flags = RegionFlags(b);
        round_trip!(
            RegionInfo { argsz: a, flags, index: c, cap_offset: d, size: x, offset: y },
            RegionInfo, tail
        );
        round_trip!(Access { offset: x, region: a, count: b }, Access, tail);
        round_trip!(DmaAccess { address: x, count: y }, DmaAccess, tail);
    }

    #[test]
    fn set_irqs_round_trip(
        argsz: u32, flags: u32, index: u32, start: u32, count: u32,
        data in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let flags = SetIrqsFlags(flags);
        let set = SetIrqs { argsz, flags, index, start, count, data: &data };
        let mut out = Vec::new();
        set.encode(&mut out);
        prop_assert_eq!(SetIrqs::parse(&out), Ok(set));
    }

    #[test]
    fn version_round_trip(
        major: u16, minor: u16,
        max_msg_fds: Option<u64>, max_data_xfer_size: Option<u64>, pgsizes: Option<u64>,
        max_dma_maps: Option<u64>, write_multiple: Option<bool>,
        migration: Option<(Option<u64>, Option<u64>)>,
    ) {
        let migration =
            migration.map(|(pgsize, max_bitmap_size)| Migration { pgsize, max_bitmap_size });
        let capabilities = Capabilities {
            max_msg_fds, max_data_xfer_size, pgsizes, max_dma_maps, write_multiple, migration,
        };
        let version = Version { major, minor, capabilities };
        let mut out = Vec::new();
        version.encode(&mut out);
        prop_assert_eq!(out.last(), Some(&0));
        prop_assert_eq!(Version::parse(&out), Ok(version));
    }

    #[test]
    fn region_reply_round_trip(
        flags: u32, index: u32, size: u64, offset: u64,
        areas in prop::collection::vec((any::<u64>(), any::<u64>()), 0..8),
        argsz in 0u32..256,
    ) {
        let areas: Vec<_> =
            areas.into_iter().map(|(offset, size)| SparseArea { offset, size }).collect();
        let info =
            RegionInfo { argsz: 0, flags: RegionFlags(flags), index, cap_offset: 0, size, offset };
        let mut out = Vec::new();
        let whole = info.encode_reply(&areas, argsz, &mut out);
        let (parsed, parsed_areas) = RegionInfo::parse_reply(&out).unwrap();
        prop_assert_eq!(whole, parsed.argsz <= argsz);
        prop_assert!(out.len() == 32 || out.len() <= argsz as usize);
        prop_assert_eq!((parsed.index, parsed.size, parsed.offset), (index, size, offset));
        prop_assert_eq!(parsed.flags.0 | 8, flags | 8);
        if whole {
            prop_assert_eq!(parsed_areas, areas);
        } else {
            prop_assert_eq!(parsed_areas, []);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        mut body in prop::collection::vec(any::<u8>(), 0..200),
        caps in 0u32..200,
    ) {
        let _ = Version::parse(&body);
        let _ = SetIrqs::parse(&body).map(|set| set.operation().is_ok());
        let _ = Access::parse_with_data(&body);
        let _ = DmaAccess::parse_with_data(&body);
        let _ = RegionInfo::parse_reply(&body);
        if body.len() >= 16 {
            body[4] |= 8;
            body[12..16].copy_from_slice(&caps.to_le_bytes());
            let _ = RegionInfo::parse_reply(&body);
        }
    }
}
