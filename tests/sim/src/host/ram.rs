//! A host's memory: rings in one area, data in regions that come and go, and poison where the
//! device may not write.

use std::os::fd::AsFd;
use std::sync::Arc;

use memory::{Buffer, ClientMappings, HostMemory, Mapping};

use crate::random::Random;

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;
/// Pages of a region, and of the area of the rings.
const PAGES: usize = 64;
/// Bytes of a region, and of the area of the rings.
pub(super) const REGION_LEN: usize = PAGES * PAGE;
/// Where the rings are for the device.
pub(super) const RINGS_IOVA: u64 = 1 << 32;
/// Where the first region is for the device.
const DATA_IOVA: u64 = 1 << 33;
/// Regions of data.
pub(super) const REGIONS: usize = 4;
/// Byte of memory that the device may not write to.
const POISON: u8 = 0xa5;
/// Bytes for the list of a command.
const LIST_LEN: usize = 256;
/// The page of the rings' area where lists begin.
const LISTS: usize = 32;

/// Whether the device may use a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It may.
    Mapped,
    /// It will be, as soon as the answer comes.
    Mapping,
    /// The host has asked for it back.
    Unmapping {
        /// When.
        since: u64,
    },
    /// It must not.
    Unmapped {
        /// When the host means to give it again.
        until: u64,
    },
}

/// A region of data.
#[derive(Debug)]
pub(super) struct Region {
    /// Whether the device may use it.
    pub(super) state: State,
    /// Pages that commands use, one bit each.
    used: u64,
}

/// The memory of one host.
#[derive(Debug)]
pub(super) struct Ram {
    all: Buffer,
    mapping: Arc<Mapping>,
    /// Where in the file the rings are: there are two places.
    rings_at: usize,
    other_rings_poisoned: bool,
    /// Regions of data.
    pub(super) regions: Vec<Region>,
    poison: Vec<u8>,
}

/// The pages of a command's data, in their order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pages {
    /// Which region.
    pub(super) region: u8,
    list: [u8; 12],
    /// How many.
    pub(super) count: u8,
    /// Where in the first one the data begins.
    pub(super) offset: u16,
}

impl Ram {
    /// New memory.
    ///
    /// # Panics
    /// Without memory.
    #[must_use]
    pub(super) fn new() -> Self {
        let len = (2 + REGIONS) * REGION_LEN;
        let memory = HostMemory::new(len).expect("memory of a host");
        let fd = memory.fd().as_fd().try_clone_to_owned();
        let mapping = ClientMappings::new().map(fd.expect("a descriptor"));
        let all = memory.alloc(len, PAGE).expect("all of it");
        let region = || Region {
            state: State::Mapped,
            used: 0,
        };
        Ram {
            all,
            mapping: mapping.expect("memory that can be shared"),
            rings_at: 0,
            other_rings_poisoned: false,
            regions: (0..REGIONS).map(|_| region()).collect(),
            poison: vec![POISON; REGION_LEN],
        }
    }

    /// The file.
    #[must_use]
    pub(super) fn mapping(&self) -> Arc<Mapping> {
        self.mapping.clone()
    }

    /// Where the rings are in the file.
    #[must_use]
    pub(super) fn rings_offset(&self) -> u64 {
        self.rings_at as u64
    }

    /// Where a region is in the file.
    #[must_use]
    pub(super) fn region_offset(region: usize) -> u64 {
        ((2 + region) * REGION_LEN) as u64
    }

    /// Where a region is for the device.
    #[must_use]
    pub(super) fn region_iova(region: usize) -> u64 {
        DATA_IOVA + (region * REGION_LEN) as u64
    }

    /// The region at an address of the device.
    #[must_use]
    pub(super) fn region_of(iova: u64) -> Option<usize> {
        let at = iova.checked_sub(DATA_IOVA)?;
        Some(at as usize / REGION_LEN)
    }

    /// Writes into the rings' area.
    #[inline]
    pub(super) fn put_ring(&self, at: usize, bytes: &[u8]) {
        self.all.write_from(self.rings_at + at, bytes);
    }

    /// Reads from the rings' area.
    #[inline]
    pub(super) fn get_ring<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.all.read_into(self.rings_at + at, &mut bytes);
        bytes
    }

    /// Fills a page of the rings' area: with zeroes for use, with poison after.
    pub(super) fn fill_ring_page(&self, page: usize, poison: bool) {
        let byte = if poison { POISON } else { 0 };
        self.put_ring(page * PAGE, &[byte; PAGE]);
    }

    /// Whether a poisoned page of the rings' area is unchanged.
    #[must_use]
    pub(super) fn is_ring_page_poisoned(&self, page: usize) -> bool {
        self.is_poisoned(self.rings_at + page * PAGE, PAGE)
    }

    fn is_poisoned(&self, at: usize, len: usize) -> bool {
        let mut bytes = [0; PAGE];
        (at..at + len).step_by(PAGE).all(|at| {
            self.all.read_into(at, &mut bytes);
            bytes == self.poison[..PAGE]
        })
    }

    /// Moves the rings to their other place; whether it is unchanged since it was left.
    #[must_use]
    pub(super) fn move_rings(&mut self) -> bool {
        let other = REGION_LEN - self.rings_at;
        let intact = !self.other_rings_poisoned || self.is_poisoned(other, REGION_LEN);
        let mut page = [0; PAGE];
        for at in (0..REGION_LEN).step_by(PAGE) {
            self.all.read_into(self.rings_at + at, &mut page);
            self.all.write_from(other + at, &page);
        }
        self.all.write_from(self.rings_at, &self.poison);
        self.rings_at = other;
        self.other_rings_poisoned = true;
        intact
    }

    /// Poisons a region, or all of the memory.
    pub(super) fn poison(&self, region: Option<usize>) {
        match region {
            Some(region) => {
                let at = Self::region_offset(region) as usize;
                self.all.write_from(at, &self.poison);
            }
            None => self.all.fill(POISON),
        }
    }

    /// Whether poisoned memory is unchanged.
    #[must_use]
    pub(super) fn is_intact(&self, region: Option<usize>) -> bool {
        match region {
            Some(region) => self.is_poisoned(Self::region_offset(region) as usize, REGION_LEN),
            None => self.is_poisoned(0, self.all.len()),
        }
    }

    /// Whether commands use a region.
    #[must_use]
    pub(super) fn is_used(&self, region: usize) -> bool {
        self.regions[region].used != 0
    }

    /// Takes pages of a region for `len` bytes from `offset` of the first on.
    pub(super) fn take(
        &mut self,
        region: usize,
        len: usize,
        offset: usize,
        random: &mut Random,
    ) -> Option<Pages> {
        let count = (offset + len).div_ceil(PAGE);
        let used = &mut self.regions[region].used;
        if used.count_zeros() < count as u32 {
            return None;
        }
        let mut pages = Pages {
            region: region as u8,
            list: [0; 12],
            count: count as u8,
            offset: offset as u16,
        };
        let mut at = random.below(PAGES as u64) as u32;
        for page in &mut pages.list[..count] {
            // the next free one, round about
            let free = (!*used).rotate_right(at);
            at = (at + free.trailing_zeros()) % PAGES as u32;
            *used |= 1 << at;
            *page = at as u8;
        }
        Some(pages)
    }

    /// Gives them back.
    pub(super) fn put_back(&mut self, pages: &Pages) {
        for page in &pages.list[..usize::from(pages.count)] {
            self.regions[usize::from(pages.region)].used &= !(1 << page);
        }
    }

    /// The pieces of data of `len` bytes: page, offset in it, bytes.
    fn pieces(pages: &Pages, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let mut left = len;
        let mut offset = usize::from(pages.offset);
        pages.list[..usize::from(pages.count)]
            .iter()
            .map(move |page| {
                let piece = left.min(PAGE - offset);
                let from = std::mem::take(&mut offset);
                left -= piece;
                (usize::from(*page), from, piece)
            })
    }

    /// Puts a command's data into its pages.
    #[inline]
    pub(super) fn scatter(&self, pages: &Pages, data: &[u8]) {
        let region = Self::region_offset(pages.region.into()) as usize;
        let mut rest = data;
        for (page, offset, len) in Self::pieces(pages, data.len()) {
            let (piece, behind) = rest.split_at(len);
            self.all.write_from(region + page * PAGE + offset, piece);
            rest = behind;
        }
    }

    /// Takes a command's data out of its pages.
    #[inline]
    pub(super) fn gather(&self, pages: &Pages, data: &mut [u8]) {
        let region = Self::region_offset(pages.region.into()) as usize;
        let len = data.len();
        let mut rest = data;
        for (page, offset, len) in Self::pieces(pages, len) {
            let (piece, behind) = rest.split_at_mut(len);
            self.all.read_into(region + page * PAGE + offset, piece);
            rest = behind;
        }
    }

    /// The Data Pointer, by PRPs or by an SGL; a list is put where that of `slot` has its place.
    pub(super) fn describe(&self, pages: &Pages, len: usize, slot: usize, sgl: bool) -> [u64; 2] {
        let region = Self::region_iova(pages.region.into());
        let at = LISTS * PAGE + slot * LIST_LEN;
        let list = RINGS_IOVA + at as u64;
        let mut pieces = Self::pieces(pages, len);
        let iova = |page: usize, offset: usize| region + (page * PAGE + offset) as u64;
        if sgl {
            if pages.count == 1 {
                return [
                    iova(usize::from(pages.list[0]), pages.offset.into()),
                    len as u64,
                ];
            }
            for (n, (page, offset, len)) in pieces.enumerate() {
                self.put_ring(at + 16 * n, &iova(page, offset).to_le_bytes());
                self.put_ring(at + 16 * n + 8, &(len as u64).to_le_bytes());
            }
            return [list, (16 * u64::from(pages.count)) | (3 << 60)];
        }
        let mut next = || {
            pieces
                .next()
                .map_or(0, |(page, offset, _)| iova(page, offset))
        };
        let first = next();
        if pages.count <= 2 {
            return [first, next()];
        }
        for n in 0..usize::from(pages.count) - 1 {
            self.put_ring(at + 8 * n, &next().to_le_bytes());
        }
        [first, list]
    }
}

impl Default for Ram {
    fn default() -> Self {
        Self::new()
    }
}
