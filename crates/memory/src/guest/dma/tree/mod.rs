//! Regions in order, in chunks that snapshots share.
//!
//! A vector of chunks, each an immutable sorted slice of at most [`CHUNK`] regions. A change
//! creates one or two chunks and shares the others with older snapshots: with 65,535 regions that
//! copies some hundred regions and about a thousand chunk pointers. A search is two binary
//! searches.
//!
//! Not included: checks. Its caller has made sure that regions do not overlap and that a range to
//! be removed splits none.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::Region;
use crate::guest::address::Iova;

/// The most regions in a chunk.
pub(super) const CHUNK: usize = 128;

/// All regions of a view.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    /// Ascending, none empty.
    chunks: Vec<Chunk>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Chunk {
    /// The first region's address, here so that a search touches no other chunk's memory.
    start: Iova,
    regions: Arc<[Region]>,
}

impl Chunk {
    /// `None` for no regions at all.
    fn of(regions: Arc<[Region]>) -> Option<Chunk> {
        let start = regions.first()?.iova;
        Some(Chunk { start, regions })
    }
}

/// The position of a region.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    chunk: u32,
    slot: u32,
}

impl Tree {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Region> {
        self.chunks.iter().flat_map(|chunk| chunk.regions.iter())
    }

    #[inline]
    pub(super) fn get(&self, place: Place) -> Option<&Region> {
        let chunk = self.chunks.get(place.chunk as usize)?;
        chunk.regions.get(place.slot as usize)
    }

    /// The last region that starts at or before `at`, whether or not it holds it.
    pub(super) fn at_or_before(&self, at: Iova) -> Option<(Place, &Region)> {
        let chunk = self.chunks.partition_point(|chunk| chunk.start <= at);
        let chunk = chunk.checked_sub(1)?;
        let regions = &self.chunks[chunk].regions;
        let slot = regions.partition_point(|region| region.iova <= at);
        let slot = slot.checked_sub(1)?;
        let place = Place {
            chunk: chunk as u32,
            slot: slot as u32,
        };
        Some((place, &regions[slot]))
    }

    /// Changes each region, but not where it is.
    pub(super) fn each(&mut self, mut change: impl FnMut(&mut Region)) {
        for chunk in &mut self.chunks {
            let mut regions = chunk.regions.to_vec();
            regions.iter_mut().for_each(&mut change);
            chunk.regions = regions.into();
        }
    }

    /// Adds a region that overlaps none.
    pub(super) fn insert(&mut self, region: Region) {
        self.len += 1;
        let behind = self
            .chunks
            .partition_point(|chunk| chunk.start < region.iova);
        // The chunk that starts before the region takes it; one that precedes all regions goes into
        // the first chunk.
        let index = behind.saturating_sub(1);
        let Some(chunk) = self.chunks.get(index) else {
            self.chunks.extend(Chunk::of(Arc::new([region])));
            return;
        };
        let old = &chunk.regions;
        let slot = old.partition_point(|other| other.iova < region.iova);
        if old.len() < CHUNK {
            let (before, after) = old.split_at(slot);
            let regions = joined(before, &[region], after);
            self.replace(index, index + 1, [regions]);
        } else if slot == old.len() {
            // Maps that are loaded in ascending order fill their chunks.
            let chunks = [old.clone(), Arc::new([region])];
            self.replace(index, index + 1, chunks);
        } else {
            let (low, high) = old.split_at(CHUNK / 2);
            let halves = if slot <= low.len() {
                let (before, after) = low.split_at(slot);
                [joined(before, &[region], after), high.into()]
            } else {
                let (before, after) = high.split_at(slot - low.len());
                [low.into(), joined(before, &[region], after)]
            };
            self.replace(index, index + 1, halves);
        }
    }

    /// Removes the regions that start from `first` to `last`, both included, shows each to
    /// `leaves`, and returns their bytes (saturating).
    pub(super) fn remove(
        &mut self,
        first: Iova,
        last: Iova,
        mut leaves: impl FnMut(&Region),
    ) -> u64 {
        let end = self.chunks.partition_point(|chunk| chunk.start <= last);
        if end == 0 {
            return 0;
        }
        let begin = self.chunks[..end].partition_point(|chunk| chunk.start <= first);
        let begin = begin.saturating_sub(1);
        let mut bytes = 0u64;
        let mut removed = 0;
        for region in self.chunks[begin..end]
            .iter()
            .flat_map(|chunk| chunk.regions.iter())
            .filter(|region| first <= region.iova && region.iova <= last)
        {
            bytes = bytes.saturating_add(region.len);
            removed += 1;
            leaves(region);
        }
        self.len -= removed;
        let low = &self.chunks[begin].regions;
        let high = &self.chunks[end - 1].regions;
        let before = &low[..low.partition_point(|region| region.iova < first)];
        let after = &high[high.partition_point(|region| region.iova <= last)..];
        if before.len() + after.len() <= CHUNK {
            let rest = joined(before, &[], after);
            self.replace(begin, end, [rest]);
        } else {
            let rest: [Arc<[Region]>; 2] = [before.into(), after.into()];
            self.replace(begin, end, rest);
        }
        self.merge_around(begin);
        bytes
    }

    /// Puts `with` in the place of the chunks from `begin` to `end`, leaving out empty ones.
    fn replace(&mut self, begin: usize, end: usize, with: impl IntoIterator<Item = Arc<[Region]>>) {
        let chunks = with.into_iter().filter_map(Chunk::of);
        self.chunks.splice(begin..end, chunks);
    }

    /// Joins the chunk at `index` with its neighbours while two together fill at most half a chunk:
    /// the gap to a full one keeps a map and an unmap at the border from splitting and joining for
    /// ever.
    fn merge_around(&mut self, index: usize) {
        for left in [index, index.wrapping_sub(1)] {
            let Some([low, high]) = self.chunks.get(left..).and_then(|rest| rest.first_chunk())
            else {
                continue;
            };
            if low.regions.len() + high.regions.len() <= CHUNK / 2 {
                let both = joined(&low.regions, &[], &high.regions);
                self.replace(left, left + 2, [both]);
            }
        }
    }
}

fn joined(before: &[Region], middle: &[Region], after: &[Region]) -> Arc<[Region]> {
    let all = before.iter().chain(middle).chain(after);
    all.cloned().collect()
}
