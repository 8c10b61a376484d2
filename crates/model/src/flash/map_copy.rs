//! Copy of a partition's map at one moment, made in parts while the FTL changes the map.
//!
//! Pages are copied in their order. A page whose place changes before its turn is copied first
//! ([`MapCopy::keep`]), so that the copy is the map of the beginning.
//!
//! Not included: other state of the partition.

use crate::error::{ParameterError, zeros};

const BITS: u32 = u64::BITS;

/// Copy of one partition's map, as far as it is complete.
#[derive(Debug)]
pub(super) struct MapCopy {
    /// Entries as `Ftl::place_entry` has them.
    entries: Vec<u32>,
    /// Bits of the pages copied before their turn.
    early: Vec<u64>,
    /// Pages below this were copied: a multiple of 64, or all.
    next: u32,
}

impl MapCopy {
    /// Memory for a map of `pages` pages, all of it touched.
    pub(super) fn new(pages: u32) -> Result<Self, ParameterError> {
        let mut map = Self {
            entries: zeros(pages as usize)?,
            early: zeros(pages.div_ceil(BITS) as usize)?,
            next: 0,
        };
        map.entries.fill(1); // whatever is not 0: memory of zeros would stay untouched
        map.early.fill(1);
        map.early.fill(0);
        Ok(map)
    }

    /// Called before page `logical` gets another place than that of `entry`.
    pub(super) fn keep(&mut self, logical: u32, entry: u32) {
        if logical < self.next {
            return;
        }
        let word = &mut self.early[(logical / BITS) as usize];
        let bit = 1 << (logical % BITS);
        if *word & bit == 0 {
            *word |= bit;
            self.entries[logical as usize] = entry;
        }
    }

    /// Copies about `pages` more of the map, and returns their number. `entry` returns a page's.
    pub(super) fn take(&mut self, entry: impl Fn(u32) -> u32, pages: u32) -> u32 {
        let from = self.next;
        let words = pages.div_ceil(BITS).max(1) as usize;
        for early in self.early[(from / BITS) as usize..].iter().take(words) {
            let end = self.entries.len().min((self.next + BITS) as usize);
            let pairs = self.entries[self.next as usize..end].iter_mut();
            let pairs = pairs.zip(self.next..);
            match early {
                0 => pairs.for_each(|(taken, page)| *taken = entry(page)),
                early => pairs.enumerate().for_each(|(bit, (taken, page))| {
                    if early >> bit & 1 == 0 {
                        *taken = entry(page);
                    }
                }),
            }
            self.next = u32::try_from(end).expect("a partition has fewer than 2^32 pages");
        }
        self.next - from
    }

    /// All entries, in the order of logical pages.
    pub(super) fn entries(&self) -> &[u32] {
        &self.entries
    }

    /// Whether every page is copied.
    pub(super) fn is_whole(&self) -> bool {
        self.next as usize == self.entries.len()
    }
}
