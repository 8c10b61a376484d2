//! The kernel's description of a region, and its decoder.

use vfio_bindings::bindings::vfio as abi;

/// A region of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionInfo {
    /// Bytes it has; 0 where there is none.
    pub len: u64,
    /// Its offset in the function's descriptor.
    pub(super) offset: u64,
    /// The parts that may be mapped: offset and length, in bytes.
    mappable: Vec<(u64, u64)>,
}

/// Bytes of the header of a capability: number, version, place of the next.
const HEADER_LEN: usize = size_of::<abi::vfio_info_cap_header>();
/// More capabilities than the kernel has for a region: a chain with more goes in circles.
const CAPABILITIES_MAX: usize = 16;

impl RegionInfo {
    /// Reads the kernel's answer: `struct vfio_region_info` and the chain of capabilities behind
    /// it.
    pub(super) fn parse(answer: &[u8]) -> Option<Self> {
        let [flags, cap_offset] = [4, 12].map(|at| u32_at(answer, at));
        let (flags, cap_offset) = (flags?, cap_offset?);
        let (len, offset) = (u64_at(answer, 16)?, u64_at(answer, 24)?);
        let mappable = if flags & abi::VFIO_REGION_INFO_FLAG_MMAP == 0 {
            Vec::new()
        } else {
            let chained = flags & abi::VFIO_REGION_INFO_FLAG_CAPS != 0;
            let areas = chained.then(|| areas(answer, cap_offset)).flatten();
            // no list of areas: the whole region may be mapped
            areas.unwrap_or_else(|| vec![(0, len)])
        };
        Some(RegionInfo {
            len,
            offset,
            mappable,
        })
    }

    /// How many bytes from `start` on may be mapped, at most `len`.
    pub(super) fn mappable_from(&self, start: u64, len: u64) -> u64 {
        let reach = self.mappable.iter().filter_map(|&(offset, area)| {
            let end = offset.checked_add(area)?.min(self.len);
            (offset <= start).then(|| end.saturating_sub(start))
        });
        reach.max().unwrap_or(0).min(len)
    }
}

/// The areas of the first list of areas in the chain that begins at `first`; `None` where there is
/// none.
fn areas(answer: &[u8], first: u32) -> Option<Vec<(u64, u64)>> {
    let mut at = usize::try_from(first).ok()?;
    for _ in 0..CAPABILITIES_MAX {
        if at < size_of::<abi::vfio_region_info>() {
            return None;
        }
        let id = u16::from_ne_bytes(*answer.get(at..)?.first_chunk()?);
        if u32::from(id) == abi::VFIO_REGION_INFO_CAP_SPARSE_MMAP {
            let count = usize::try_from(u32_at(answer, at + HEADER_LEN)?).ok()?;
            let list = answer.get(at + HEADER_LEN + 8..)?;
            let pairs = list.chunks_exact(16).take(count);
            return pairs
                .map(|pair| Some((u64_at(pair, 0)?, u64_at(pair, 8)?)))
                .collect();
        }
        at = usize::try_from(u32_at(answer, at + 4)?).ok()?;
    }
    None
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of the kernel's: the structure, then capabilities, each its number and what
    /// follows its header.
    fn answer(flags: u32, len: u64, capabilities: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let first = if capabilities.is_empty() { 0 } else { 32 };
        let mut bytes = Vec::new();
        for word in [0, flags, 0, first] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend(u64::to_ne_bytes(len));
        bytes.extend(u64::to_ne_bytes(0x70_0000_0000));
        for (at, (id, body)) in capabilities.iter().enumerate() {
            let next = bytes.len() + HEADER_LEN + body.len();
            let last = at + 1 == capabilities.len();
            bytes.extend(id.to_ne_bytes());
            bytes.extend(1u16.to_ne_bytes());
            let next = if last {
                0
            } else {
                u32::try_from(next).unwrap()
            };
            bytes.extend(next.to_ne_bytes());
            bytes.extend(body);
        }
        bytes
    }

    fn list(areas: &[(u64, u64)]) -> Vec<u8> {
        let count = u32::try_from(areas.len()).unwrap();
        let mut body = [count.to_ne_bytes(), [0; 4]].concat();
        for (offset, len) in areas {
            body.extend([offset.to_ne_bytes(), len.to_ne_bytes()].concat());
        }
        body
    }

    const MMAP: u32 = abi::VFIO_REGION_INFO_FLAG_MMAP;
    const CAPS: u32 = abi::VFIO_REGION_INFO_FLAG_CAPS;
    /// Of a kernel that lets the table of MSI-X be mapped with the rest.
    const MSIX_MAPPABLE: u16 = 3;

    #[test]
    fn a_region_is_mapped_whole_in_part_or_not_at_all() {
        let parsed = |bytes: &[u8]| RegionInfo::parse(bytes).unwrap();
        let none = parsed(&answer(0, 0x4000, &[]));
        assert_eq!((none.len, none.offset), (0x4000, 0x70_0000_0000));
        assert_eq!(none.mappable_from(0x1000, 0x1000), 0);

        let whole = parsed(&answer(MMAP, 0x4000, &[]));
        assert_eq!(whole.mappable_from(0x1000, 0x1000), 0x1000);
        assert_eq!(whole.mappable_from(0x1000, u64::MAX), 0x3000);
        assert_eq!(whole.mappable_from(0x4000, 0x1000), 0);

        let whole = parsed(&answer(MMAP | CAPS, 0x4000, &[(MSIX_MAPPABLE, vec![])]));
        assert_eq!(whole.mappable_from(0x1000, u64::MAX), 0x3000);

        // the table of MSI-X lies between
        let sparse = list(&[(0, 0x2000), (0x3000, 0x1000)]);
        let capabilities = [(MSIX_MAPPABLE, vec![]), (1, sparse)];
        let parts = parsed(&answer(MMAP | CAPS, 0x4000, &capabilities));
        assert_eq!(parts.mappable_from(0x1000, u64::MAX), 0x1000);
        assert_eq!(parts.mappable_from(0x2000, u64::MAX), 0);
        assert_eq!(parts.mappable_from(0x3000, u64::MAX), 0x1000);
    }

    #[test]
    fn an_answer_that_makes_no_sense_maps_no_more_than_the_region() {
        let beyond = list(&[(0x1000, u64::MAX), (0, 0x10_0000)]);
        let region = RegionInfo::parse(&answer(MMAP | CAPS, 0x4000, &[(1, beyond)])).unwrap();
        assert_eq!(region.mappable_from(0x1000, u64::MAX), 0x3000);

        let full = answer(MMAP | CAPS, 0x4000, &[(1, list(&[(0, 0x1000); 3]))]);
        for len in 0..full.len() {
            // neither panics nor reads past the end
            let _ = RegionInfo::parse(&full[..len]);
        }
        assert_eq!(RegionInfo::parse(&full[..31]), None);

        let mut circle = answer(MMAP | CAPS, 0x4000, &[(9, vec![]), (9, vec![])]);
        circle[44..48].copy_from_slice(&32u32.to_ne_bytes());
        assert!(RegionInfo::parse(&circle).is_some());
    }
}
