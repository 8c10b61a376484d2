//! Some rings of a device.

use super::RINGS;

// One bit for each.
const _: () = assert!(RINGS == u64::BITS as usize);

/// Rings, by their indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RingSet(u64);

impl RingSet {
    /// Adds one.
    #[inline]
    pub(super) fn insert(&mut self, index: usize) {
        debug_assert!(index < RINGS);
        self.0 |= 1 << (index % RINGS);
    }

    /// All of them, from this one on and around.
    #[inline]
    pub(super) fn iter_from(self, first: usize) -> impl Iterator<Item = usize> {
        let mut left = self.0.rotate_right((first % RINGS) as u32);
        std::iter::from_fn(move || {
            let step = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some((first + step) % RINGS)
        })
    }
}

impl FromIterator<usize> for RingSet {
    fn from_iter<T: IntoIterator<Item = usize>>(indices: T) -> Self {
        let mut all = Self::default();
        for index in indices {
            all.insert(index);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_come_from_any_of_them_on() {
        let set: RingSet = [0, 5, 6, 63].into_iter().collect();
        let from = |first| set.iter_from(first).collect::<Vec<_>>();
        assert_eq!(from(0), [0, 5, 6, 63]);
        assert_eq!(from(5), [5, 6, 63, 0]);
        assert_eq!(from(7), [63, 0, 5, 6]);
        assert_eq!(from(63), [63, 0, 5, 6]);
        assert_eq!(RingSet::default().iter_from(3).next(), None);
        let all: RingSet = (0..RINGS).collect();
        assert_eq!(all.iter_from(9).count(), RINGS);
    }
}
