//! Which requests are in flight.

/// A set of identifiers below a bound.
#[derive(Debug)]
pub(super) struct Ids(Box<[u64]>);

impl Ids {
    /// An empty set of identifiers below `bound`.
    pub(super) fn new(bound: usize) -> Self {
        Self(vec![0; bound.div_ceil(64)].into())
    }

    /// Adds one below the bound. False where it is in the set.
    #[inline]
    pub(super) fn insert(&mut self, id: u16) -> bool {
        let (word, bit) = place(id);
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    /// Whether it is in the set.
    #[inline]
    pub(super) fn contains(&self, id: u16) -> bool {
        let (word, bit) = place(id);
        self.0[word] & bit != 0
    }

    /// Removes one. False where it is not in the set.
    #[inline]
    pub(super) fn remove(&mut self, id: u16) -> bool {
        let (word, bit) = place(id);
        let was_there = self.0[word] & bit != 0;
        self.0[word] &= !bit;
        was_there
    }
}

#[inline]
fn place(id: u16) -> (usize, u64) {
    (usize::from(id / 64), 1 << (id % 64))
}
