//! The extents of a Block Status request, as queries find them, one run of blocks after another.
//!
//! Invariants: extents follow each other from the first byte of the request, none is empty, and
//! neighbours differ. Their number is bounded by a slot, and the queries by [`QUERIES`]: a reply
//! may describe less than was asked for.

use nbd::ExtentState;
use port::allocation::{Query, Run};

use super::split::Piece;

/// Queries for one request.
const QUERIES: u16 = 1024;

/// Consecutive bytes with the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Number of bytes.
    pub(super) len: u64,
    /// They are not allocated, and read as zeroes.
    pub(super) is_hole: bool,
}

impl Extent {
    /// Its state on the wire.
    pub(super) fn state(self) -> ExtentState {
        ExtentState::new()
            .with_hole(self.is_hole)
            .with_zero(self.is_hole)
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extents {
    lba_shift: u8,
    /// The next block, and the first one behind the request.
    next: u64,
    end: u64,
    /// Bytes of the next block that are not the request's.
    skip: u32,
    /// Bytes of the request that are in no extent.
    left: u64,
    /// Extents that may be found.
    most: u16,
    /// Extents that were found, without the last one.
    stored: u16,
    /// The last one, which the next run may continue.
    last: Option<Extent>,
    queries: u16,
    /// There is another extent, for which there is no room.
    is_full: bool,
}

impl Extents {
    /// None yet of the blocks of a piece. There is room for `room` extents, at least one.
    pub(super) fn new(piece: &Piece, lba_shift: u8, room: u16, is_one: bool) -> Self {
        let most = if is_one { 1 } else { room };
        Self {
            lba_shift,
            next: piece.slba,
            end: piece.slba + piece.blocks,
            skip: piece.skip,
            left: piece.len,
            most,
            stored: 0,
            last: None,
            queries: 0,
            is_full: false,
        }
    }

    /// The next query. It is not over.
    pub(super) fn query(&self) -> Query {
        let blocks = u32::try_from(self.end - self.next).unwrap_or(u32::MAX);
        Query {
            slba: self.next,
            blocks,
        }
    }

    /// All blocks that are left, as if they were allocated.
    pub(super) fn rest(&self) -> Run {
        Run {
            blocks: self.query().blocks,
            is_hole: false,
        }
    }

    /// Adds the answer to the query. `Some`: an extent has ended, with its number.
    pub(super) fn add(&mut self, run: Run) -> Option<(u16, Extent)> {
        self.queries += 1;
        let blocks = u64::from(run.blocks).clamp(1, self.end - self.next);
        let len = (blocks << self.lba_shift) - u64::from(self.skip);
        let next = Extent {
            len: len.min(self.left),
            is_hole: run.is_hole,
        };
        let mut ended = None;
        match &mut self.last {
            Some(last) if last.is_hole == next.is_hole => last.len += next.len,
            Some(_) if self.stored + 1 == self.most => {
                self.is_full = true;
                return None;
            }
            last => {
                if let Some(last) = last.replace(next) {
                    ended = Some((self.stored, last));
                    self.stored += 1;
                }
            }
        }
        self.next += blocks;
        self.skip = 0;
        self.left -= next.len;
        ended
    }

    /// Whether there is no more to ask.
    pub(super) fn is_over(&self) -> bool {
        self.is_full || self.next == self.end || self.queries == QUERIES
    }

    /// The last extent, with its number. An answer was added.
    pub(super) fn last(&self) -> Option<(u16, Extent)> {
        Some((self.stored, self.last?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::split::Rest;
    use super::*;

    /// Extents of a request, of runs from its first block on; and the queries.
    fn found(range: (u64, u64), is_one: bool, runs: &[(u32, bool)]) -> (Vec<(u64, bool)>, usize) {
        let piece = Rest::new(range.0, range.1).read(9, 1 << 30);
        let mut extents = Extents::new(&piece, 9, 1024, is_one);
        let mut all = Vec::new();
        let mut asked = piece.slba;
        let mut queries = 0;
        let mut add = |(number, extent): (u16, Extent)| {
            assert_eq!(usize::from(number), all.len());
            all.push((extent.len, extent.is_hole));
        };
        for (blocks, is_hole) in runs.iter().copied() {
            if extents.is_over() {
                break;
            }
            assert_eq!(extents.query().slba, asked);
            asked += u64::from(blocks.max(1));
            queries += 1;
            extents
                .add(Run { blocks, is_hole })
                .into_iter()
                .for_each(&mut add);
        }
        extents.last().into_iter().for_each(add);
        (all, queries)
    }

    #[test]
    fn neighbours_of_a_kind_are_one_extent() {
        let runs = [(2, true), (3, true), (1, false), (4, true)];
        let all = vec![(2560, true), (512, false), (2048, true)];
        assert_eq!(found((0, 5120), false, &runs), (all, 4));
    }

    #[test]
    fn extents_are_cut_to_the_request() {
        let runs = [(1, false), (9, true)];
        let all = vec![(412, false), (1012, true)];
        assert_eq!(found((100, 1424), false, &runs), (all, 2));
        assert_eq!(found((100, 7), false, &[(1, true)]), (vec![(7, true)], 1));
    }

    #[test]
    fn one_extent_is_one() {
        let runs = [(2, true), (3, true), (1, false)];
        assert_eq!(found((0, 5120), true, &runs), (vec![(2560, true)], 3));
    }

    #[test]
    fn extents_and_queries_are_bounded() {
        let other: Vec<_> = (0..5000).map(|n| (1, n % 2 == 0)).collect();
        let (all, queries) = found((0, 5000 << 9), false, &other);
        assert_eq!((all.len(), queries), (1024, 1024));
        let piece = Rest::new(0, 5000 << 9).read(9, 1 << 30);
        let mut extents = Extents::new(&piece, 9, 512, false);
        let mut queries = 0;
        while !extents.is_over() {
            let (blocks, is_hole) = other[queries];
            extents.add(Run { blocks, is_hole });
            queries += 1;
        }
        // Room for longer descriptors; the last query finds one more.
        assert_eq!(extents.last().map(|(number, _)| number), Some(511));
        assert_eq!(queries, 513);
        let same = vec![(1, true); 5000];
        let (all, queries) = found((0, 5000 << 9), false, &same);
        assert_eq!((all, queries), (vec![(1024 << 9, true)], 1024));
    }

    /// An answer that breaks the rules of a query ends no loop and makes no empty extent.
    #[test]
    fn a_run_is_between_one_block_and_all() {
        let (all, _) = found((0, 2048), false, &[(0, true), (u32::MAX, false)]);
        assert_eq!(all, [(512, true), (1536, false)]);
    }
}
