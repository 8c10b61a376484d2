//! Cache for a map that is larger than the memory for it: missing map pages must be sensed.

const NONE: u32 = u32::MAX;

/// Logical pages of a partition per map page.
pub(in crate::flash) const PAGES: u32 = 1024;

/// The map pages of one partition in memory, in LRU order: a list through all pages of the map,
/// whether they are in memory or not.
#[derive(Debug)]
pub(in crate::flash) struct MapCache {
    limit: u32,
    held: u32,
    links: Vec<Link>,
    /// The most and the least recently used page.
    newest: u32,
    oldest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    is_held: bool,
    newer: u32,
    older: u32,
}

impl MapCache {
    /// An empty cache with room for `limit` pages, for the map of `logical` pages.
    pub(in crate::flash) fn new(limit: u32, logical: u32) -> Self {
        let link = Link {
            is_held: false,
            newer: NONE,
            older: NONE,
        };
        Self {
            limit,
            held: 0,
            links: vec![link; logical.div_ceil(PAGES) as usize],
            newest: NONE,
            oldest: NONE,
        }
    }

    /// Changes the limit, at least one: drops the least recently used pages.
    pub(in crate::flash) fn retune(&mut self, limit: u32) {
        self.limit = limit;
        self.forget_beyond();
    }

    /// Uses a map page, and loads it; returns whether it was in memory before.
    pub(in crate::flash) fn ask(&mut self, page: u32) -> bool {
        let was_held = self.links[page as usize].is_held;
        if self.newest == page {
            return true;
        }
        if was_held {
            self.take_out(page);
        }
        let newest = std::mem::replace(&mut self.newest, page);
        self.links[page as usize] = Link {
            is_held: true,
            newer: NONE,
            older: newest,
        };
        match newest {
            NONE => self.oldest = page,
            newest => self.links[newest as usize].newer = page,
        }
        self.held += 1;
        self.forget_beyond();
        was_held
    }

    fn forget_beyond(&mut self) {
        while self.held > self.limit {
            let oldest = self.oldest;
            self.take_out(oldest);
            self.links[oldest as usize].is_held = false;
        }
    }

    fn take_out(&mut self, page: u32) {
        let Link { newer, older, .. } = self.links[page as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        self.held -= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list.
        #[test]
        fn the_one_not_used_for_longest_is_forgotten(
            limit in 1u32..6,
            pages in prop::collection::vec((0u32..9, 0u32..40), 1..200),
        ) {
            let mut cache = MapCache::new(limit, 9 * PAGES);
            let mut list: Vec<u32> = Vec::new();
            let mut limit = limit;
            for (page, other) in pages {
                if (1..6).contains(&other) {
                    limit = other;
                    cache.retune(limit);
                    list.drain(..list.len().saturating_sub(limit as usize));
                }
                let held = list.contains(&page);
                prop_assert_eq!(cache.ask(page), held);
                list.retain(|&other| other != page);
                list.push(page);
                list.drain(..list.len().saturating_sub(limit as usize));
                prop_assert_eq!(cache.held as usize, list.len());
            }
        }
    }
}
