//! The guest's memory: one memfd, shared with the back end as one region or several.
//!
//! Addresses are chosen so that mistakes show: guest addresses begin above 4 GiB, the front end's
//! addresses of the regions have gaps between them, and neither equals an offset in the memfd.

use anyhow::{Context, Result, ensure};
use memory::{Buffer, HostMemory};

const GUEST_BASE: u64 = 0x1_4000_0000;
const USER_BASE: u64 = 0x7e00_0000_0000;
/// Bytes between two regions of the front end's addresses.
const GAP: u64 = 0x10_0000_0000;
const PAGE: u64 = 4096;

/// A part of the memory as messages describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Guest physical address.
    pub guest: u64,
    /// Address for ring addresses in messages.
    pub user: u64,
    /// Bytes from the beginning of the memfd.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Memory of a guest.
#[derive(Debug)]
pub struct Guest {
    memory: HostMemory,
    regions: Vec<Region>,
}

impl Guest {
    /// A memory of `len` bytes in `count` regions of nearly the same length. Their guest addresses
    /// touch, so that a buffer may lie in two regions.
    ///
    /// # Errors
    /// There is no memory, or less than a page for each region.
    pub fn new(len: usize, count: usize) -> Result<Self> {
        let memory = HostMemory::new(len).context("cannot create the guest's memory")?;
        let len = memory.len() as u64;
        ensure!(count > 0, "a guest has a region of memory at least");
        let part = (len / count as u64) & !(PAGE - 1);
        ensure!(part > 0, "{count} regions need as many pages of memory");
        let regions = (0..count as u64)
            .map(|index| {
                let offset = index * part;
                let is_last = index + 1 == count as u64;
                Region {
                    guest: GUEST_BASE + offset,
                    user: USER_BASE + offset + index * GAP,
                    offset,
                    len: if is_last { len - offset } else { part },
                }
            })
            .collect();
        Ok(Self { memory, regions })
    }

    /// The memfd and its allocator.
    #[must_use]
    pub fn memory(&self) -> &HostMemory {
        &self.memory
    }

    /// The regions, ascending.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Allocates zero bytes.
    ///
    /// # Errors
    /// The memory is full.
    pub fn alloc(&self, len: usize, align: usize) -> Result<Buffer> {
        let buffer = self.memory.alloc(len, align);
        buffer.with_context(|| format!("{len} bytes do not fit; raise Options::memory_len"))
    }

    /// The guest physical address of a byte of a buffer.
    #[must_use]
    pub fn guest_address(&self, buffer: &Buffer, at: usize) -> u64 {
        GUEST_BASE + (buffer.offset() + at) as u64
    }

    /// The address of a buffer for SET_VRING_ADDR.
    ///
    /// # Errors
    /// The buffer does not lie in one region.
    pub fn user_address(&self, buffer: &Buffer) -> Result<u64> {
        let (at, len) = (buffer.offset() as u64, buffer.len() as u64);
        let region = self
            .regions
            .iter()
            .find(|region| region.offset <= at && at + len <= region.offset + region.len)
            .context("a ring lies in two regions; raise Options::memory_len")?;
        Ok(region.user + at - region.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_cover_the_memory() {
        let guest = Guest::new(10 * 4096, 3).unwrap();
        let regions = guest.regions();
        let lens: Vec<_> = regions.iter().map(|it| it.len / PAGE).collect();
        assert_eq!(lens, [3, 3, 4]);
        for pair in regions.windows(2) {
            assert_eq!(pair[0].guest + pair[0].len, pair[1].guest);
            assert_eq!(pair[0].offset + pair[0].len, pair[1].offset);
            assert!(pair[0].user + pair[0].len < pair[1].user);
        }
        assert!(Guest::new(4096, 2).is_err());
    }

    #[test]
    fn an_area_in_two_regions_has_no_address() {
        let guest = Guest::new(4 * 4096, 2).unwrap();
        let first = guest.alloc(4096, 4096).unwrap();
        assert_eq!(guest.user_address(&first).unwrap(), USER_BASE);
        let both = guest.alloc(8192, 4096).unwrap();
        assert!(guest.user_address(&both).is_err());
        assert_eq!(guest.guest_address(&both, 5), GUEST_BASE + 4096 + 5);
        let last = guest.alloc(4096, 4096).unwrap();
        let expected = guest.regions()[1].user + 4096;
        assert_eq!(guest.user_address(&last).unwrap(), expected);
        assert!(guest.alloc(4096, 1).is_err());
    }
}
