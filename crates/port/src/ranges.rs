//! A set of logical blocks as ranges: the blocks that Write Uncorrectable has marked.
//!
//! Invariants: ranges ascend, are not empty, and do not touch each other; there are at most
//! [`RANGES_MAX`]. Copies share their memory, as every snapshot of a namespace has one.

use std::sync::Arc;

/// Maximum number of ranges of one namespace: it bounds the memory and the record that a host can
/// make this program use.
pub const RANGES_MAX: usize = 1024;

/// There would be more ranges than [`RANGES_MAX`]; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRanges;

/// A set of logical blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockRanges {
    /// First block and the block behind the last.
    sorted: Arc<Vec<(u64, u64)>>,
}

impl BlockRanges {
    /// True for no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Whether any of `count` blocks from `first` is in the set.
    #[must_use]
    pub fn overlaps(&self, first: u64, count: u64) -> bool {
        let end = first.saturating_add(count);
        let at = self.sorted.partition_point(|range| range.1 <= first);
        count > 0 && self.sorted.get(at).is_some_and(|range| range.0 < end)
    }

    /// First block and number of blocks of each range, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.sorted.iter().map(|(first, end)| (*first, end - first))
    }

    /// Adds blocks.
    ///
    /// # Errors
    /// There would be too many ranges.
    pub fn insert(&mut self, first: u64, count: u64) -> Result<(), TooManyRanges> {
        if count == 0 {
            return Ok(());
        }
        let mut whole = (first, first.saturating_add(count));
        // Those that touch the new one become one with it.
        let from = self.sorted.partition_point(|range| range.1 < whole.0);
        let to = self.sorted.partition_point(|range| range.0 <= whole.1);
        if let [head, ..] = &self.sorted[from..to] {
            whole.0 = whole.0.min(head.0);
        }
        if let [.., tail] = &self.sorted[from..to] {
            whole.1 = whole.1.max(tail.1);
        }
        self.replace(from, to, &[whole])
    }

    /// Takes blocks out.
    ///
    /// # Errors
    /// A range would be split, and there would be too many.
    pub fn remove(&mut self, first: u64, count: u64) -> Result<(), TooManyRanges> {
        let end = first.saturating_add(count);
        let from = self.sorted.partition_point(|range| range.1 <= first);
        let to = self.sorted.partition_point(|range| range.0 < end);
        let (Some(head), Some(tail)) = (self.sorted.get(from), to.checked_sub(1)) else {
            return Ok(());
        };
        if count == 0 || from >= to {
            return Ok(());
        }
        let rest = [(head.0, first), (end, self.sorted[tail].1)];
        let rest = rest.into_iter().filter(|(first, end)| first < end);
        let rest: arrayvec::ArrayVec<(u64, u64), 2> = rest.collect();
        self.replace(from, to, &rest)
    }

    fn replace(
        &mut self,
        from: usize,
        to: usize,
        with: &[(u64, u64)],
    ) -> Result<(), TooManyRanges> {
        if self.sorted.len() - (to - from) + with.len() > RANGES_MAX {
            return Err(TooManyRanges);
        }
        let sorted = Arc::make_mut(&mut self.sorted);
        sorted.splice(from..to, with.iter().copied());
        Ok(())
    }
}

/// From first blocks and numbers of blocks, in any order.
impl TryFrom<&[(u64, u64)]> for BlockRanges {
    type Error = TooManyRanges;

    fn try_from(pairs: &[(u64, u64)]) -> Result<Self, TooManyRanges> {
        let mut ranges = BlockRanges::default();
        for (first, count) in pairs {
            ranges.insert(*first, *count)?;
        }
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut ranges = BlockRanges::default();
        for first in [0, 20, 10] {
            ranges.insert(first, 5).unwrap();
        }
        assert_eq!(
            ranges.iter().collect::<Vec<_>>(),
            [(0, 5), (10, 5), (20, 5)]
        );
        ranges.insert(5, 5).unwrap();
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 15), (20, 5)]);
        ranges.remove(3, 19).unwrap();
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 3), (22, 3)]);
        ranges.insert(u64::MAX - 1, 8).unwrap();
        assert!(ranges.overlaps(u64::MAX - 1, 1));
    }

    #[test]
    fn there_is_a_limit_and_what_passes_it_changes_nothing() {
        let mut ranges = BlockRanges::default();
        for number in 0..1024 {
            ranges.insert(number * 4, 3).unwrap();
        }
        let full = ranges.clone();
        assert_eq!(ranges.insert(9000, 1), Err(TooManyRanges));
        assert_eq!(
            ranges.remove(1, 1),
            Err(TooManyRanges),
            "it would split one"
        );
        assert_eq!(ranges, full);
        ranges.insert(3, 1).unwrap();
        assert_eq!(ranges.iter().count(), 1023);
        ranges.remove(1, 1).unwrap();
    }

    proptest! {
        /// Against a set of blocks, one by one.
        #[test]
        fn as_a_set_of_blocks(
            steps in proptest::collection::vec((any::<bool>(), 0_u64..64, 0_u64..20), 0..40),
            (first, count) in (0_u64..64, 0_u64..20),
        ) {
            let mut ranges = BlockRanges::default();
            let mut blocks = [false; 100];
            for (add, first, count) in steps {
                let done = if add { ranges.insert(first, count) } else { ranges.remove(first, count) };
                prop_assert_eq!(done, Ok(()));
                blocks[first as usize..(first + count) as usize].fill(add);
                let mut seen = [false; 100];
                let mut last_end = None;
                for (first, count) in ranges.iter() {
                    prop_assert!(count > 0 && last_end.is_none_or(|end| end < first));
                    seen[first as usize..(first + count) as usize].fill(true);
                    last_end = Some(first + count);
                }
                prop_assert_eq!(seen, blocks);
            }
            let any = blocks[first as usize..(first + count) as usize].contains(&true);
            prop_assert_eq!(ranges.overlaps(first, count), any);
        }
    }
}
