//! `DEVICE_GET_REGION_INFO`: size, flags and mappable areas of a region.
//! `DEVICE_GET_REGION_IO_FDS`: descriptors that replace accesses to it.
//!
//! The reply may carry a list of capabilities after the structure ("VFIO region capabilities").
//! The only one known here is the list of mappable areas ("VFIO sparse mmap cap header"); others
//! are skipped.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::flags::flags;
use super::{Malformed, plain_body, split_prefix};

/// Regions of a PCI device, as VFIO numbers them.
pub mod region_index {
    /// Base address register 0.
    pub const BAR0: u32 = 0;
    /// Base address register 1.
    pub const BAR1: u32 = 1;
    /// Base address register 2.
    pub const BAR2: u32 = 2;
    /// Base address register 3.
    pub const BAR3: u32 = 3;
    /// Base address register 4.
    pub const BAR4: u32 = 4;
    /// Base address register 5.
    pub const BAR5: u32 = 5;
    /// The expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// Legacy VGA ranges.
    pub const VGA: u32 = 8;
    /// Number of regions. A server answers for all of them.
    pub const COUNT: u32 = 9;
}

flags! {
    /// A client's access rights to a region.
    RegionFlags {
        /// Read.
        READ = 1 << 0;
        /// Write.
        WRITE = 1 << 1;
        /// Map the descriptor that comes with the reply.
        MMAP = 1 << 2;
        /// Capabilities follow the structure.
        CAPS = 1 << 3;
    }
}

/// `DEVICE_GET_REGION_INFO`, request and reply. In a request only `argsz` and `index` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionInfo {
    /// Request: longest reply body the client takes. Reply: length needed. In bytes.
    pub argsz: u32,
    /// A client's access rights to the region.
    pub flags: RegionFlags,
    /// The region asked about; see [`region_index`].
    pub index: u32,
    /// Start of the first capability, in bytes from the start of this structure; 0 for none.
    pub cap_offset: u32,
    /// Length of the region, in bytes.
    pub size: u64,
    /// Start of the region in the file of the descriptor, in bytes.
    pub offset: u64,
}
plain_body!(RegionInfo, 32);

/// The head of `DEVICE_GET_REGION_IO_FDS`, request and reply. In a request only `argsz` and `index`
/// count. A list of sub-regions may follow in a reply; it is not parsed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionIoFds {
    /// Request: longest reply body the client takes. Reply: length needed. In bytes.
    pub argsz: u32,
    /// 0.
    pub flags: u32,
    /// The region asked about; see [`region_index`].
    pub index: u32,
    /// Number of sub-regions that follow.
    pub count: u32,
}
plain_body!(RegionIoFds, 16);

/// An area of a region that a client may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SparseArea {
    /// Its start in the region, in bytes; page aligned.
    pub offset: u64,
    /// Length, in bytes.
    pub size: u64,
}

/// `VFIO_REGION_INFO_CAP_SPARSE_MMAP`.
const CAP_SPARSE_MMAP: u16 = 1;
const CAP_SPARSE_MMAP_VERSION: u16 = 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct CapHeader {
    id: u16,
    version: u16,
    next: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SparseHead {
    nr_areas: u32,
    reserved: u32,
}

const CAP_HEADER_LEN: usize = size_of::<CapHeader>();
const SPARSE_HEAD_LEN: usize = size_of::<SparseHead>();
const SPARSE_AREA_LEN: usize = size_of::<SparseArea>();

impl RegionInfo {
    /// Appends the reply to a client whose request had `client_argsz`, and returns whether it is
    /// complete. `self` gives flags, index, size and offset; `argsz`, `cap_offset` and the
    /// capability flag are set here.
    ///
    /// A client with too small an `argsz` gets the structure alone, with the length needed and
    /// without the capability flag, and asks again (QEMU fails on that flag with a `cap_offset`
    /// of 0). The descriptor of a mappable region belongs to the whole reply only: the result is
    /// `true` for it.
    pub fn encode_reply(&self, areas: &[SparseArea], client_argsz: u32, out: &mut Vec<u8>) -> bool {
        let mut info = *self;
        info.flags = info.flags.difference(RegionFlags::CAPS);
        info.cap_offset = 0;
        let needed = Self::reply_len(areas.len());
        info.argsz = u32::try_from(needed).expect("a region has few areas");
        if client_argsz < info.argsz {
            info.encode(out);
            return false;
        }
        if areas.is_empty() {
            info.encode(out);
            return true;
        }
        info.flags = info.flags | RegionFlags::CAPS;
        info.cap_offset = Self::LEN as u32;
        info.encode(out);
        let header = CapHeader {
            id: CAP_SPARSE_MMAP,
            version: CAP_SPARSE_MMAP_VERSION,
            next: 0,
        };
        let head = SparseHead {
            nr_areas: u32::try_from(areas.len()).expect("a region has few areas"),
            reserved: 0,
        };
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(areas.as_bytes());
        true
    }

    /// Length of the whole reply's body with `areas` mappable areas, in bytes.
    const fn reply_len(areas: usize) -> usize {
        if areas == 0 {
            return Self::LEN;
        }
        Self::LEN + CAP_HEADER_LEN + SPARSE_HEAD_LEN + areas * SPARSE_AREA_LEN
    }

    /// Reads a reply: the structure and its mappable areas (none when it has no such capability).
    ///
    /// # Errors
    /// [`Malformed::Short`] for a body shorter than the structure;
    /// [`Malformed::RegionCapability`] when the list of capabilities leaves the body or does not
    /// go forward.
    pub fn parse_reply(body: &[u8]) -> Result<(Self, Vec<SparseArea>), Malformed> {
        let info = Self::parse(body)?;
        let mut areas = Vec::new();
        if !info.flags.contains(RegionFlags::CAPS) {
            return Ok((info, areas));
        }
        let mut offset = info.cap_offset;
        // Each step goes forward, so the list ends even when a peer links it in a circle.
        let mut end = Self::LEN as u32;
        while offset != 0 {
            let bad = Malformed::RegionCapability { offset };
            if offset < end {
                return Err(bad);
            }
            let at = usize::try_from(offset).map_err(|_| bad)?;
            let rest = body.get(at..).ok_or(bad)?;
            let (header, rest) = split_prefix::<CapHeader>(rest).map_err(|_| bad)?;
            if header.id == CAP_SPARSE_MMAP {
                parse_areas(rest, &mut areas).ok_or(bad)?;
            }
            end = offset.checked_add(CAP_HEADER_LEN as u32).ok_or(bad)?;
            offset = header.next;
        }
        Ok((info, areas))
    }
}

/// Appends the areas after a capability's header; `None` when they leave the body.
fn parse_areas(rest: &[u8], areas: &mut Vec<SparseArea>) -> Option<()> {
    let (head, rest) = split_prefix::<SparseHead>(rest).ok()?;
    let len = usize::try_from(head.nr_areas)
        .ok()?
        .checked_mul(SPARSE_AREA_LEN)?;
    let bytes = rest.get(..len)?;
    for area in bytes.chunks_exact(SPARSE_AREA_LEN) {
        areas.push(SparseArea::read_from_bytes(area).ok()?);
    }
    Some(())
}
