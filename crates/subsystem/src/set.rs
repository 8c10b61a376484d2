//! Identifiers of controllers, and sets of them.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// The most configured controllers of one subsystem; identifiers are 1 to this.
pub const MAX_CONTROLLERS: u16 = 63;

/// The most dynamic controllers of one subsystem: those count that have left with operations in
/// progress.
pub const MAX_DYNAMIC_CONTROLLERS: usize = 256;

/// Identifiers of dynamic controllers. The configured ones are below, and those above are reserved
/// (Base 2.1, 6.3).
pub const DYNAMIC_IDS: RangeInclusive<u16> = 0x0100..=0xffef;

/// A controller's identifier in its subsystem (CNTLID): 1 to [`MAX_CONTROLLERS`], or one of
/// [`DYNAMIC_IDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ControllerId(pub u16);

impl ControllerId {
    /// Whether it is a dynamic controller's.
    #[must_use]
    pub fn is_dynamic(self) -> bool {
        DYNAMIC_IDS.contains(&self.0)
    }
}

/// A set of configured controllers: dynamic ones are in none, as they have what their entrances
/// have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerSet(u64);

impl ControllerSet {
    /// No controller.
    pub const NONE: ControllerSet = ControllerSet(0);
    /// Every controller that is or will be.
    pub const ALL: ControllerSet = ControllerSet(u64::MAX - 1);

    /// Whether it contains this identifier. An invalid one is in no set.
    #[must_use]
    pub fn contains(self, id: ControllerId) -> bool {
        id.0 <= MAX_CONTROLLERS && self.0 >> id.0 & 1 == 1
    }

    /// With this one; one that cannot be is left out.
    #[must_use]
    pub fn with(self, id: ControllerId) -> Self {
        if (1..=MAX_CONTROLLERS).contains(&id.0) {
            ControllerSet(self.0 | 1 << id.0)
        } else {
            self
        }
    }

    /// Without this one.
    #[must_use]
    pub fn without(self, id: ControllerId) -> Self {
        if id.0 <= MAX_CONTROLLERS {
            ControllerSet(self.0 & !(1 << id.0))
        } else {
            self
        }
    }

    /// Those in either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        ControllerSet(self.0 | other.0)
    }

    /// True for none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of identifiers.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Ascending.
    pub fn iter(self) -> impl Iterator<Item = ControllerId> {
        (1..=MAX_CONTROLLERS)
            .map(ControllerId)
            .filter(move |id| self.contains(*id))
    }
}

impl FromIterator<ControllerId> for ControllerSet {
    fn from_iter<I: IntoIterator<Item = ControllerId>>(ids: I) -> Self {
        ids.into_iter().fold(Self::NONE, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_put_in_and_no_impossible_ids() {
        let ids = [1, 2, 63].map(ControllerId);
        let set: ControllerSet = ids.into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), ids);
        for id in [0, 64, 65, 127, 128, 256, u16::MAX].map(ControllerId) {
            assert_eq!(set.with(id), set, "{id:?}");
            assert!(!set.with(id).contains(id), "{id:?}");
            assert!(!ControllerSet::ALL.contains(id), "{id:?}");
            assert_eq!(set.without(id), set, "{id:?}");
        }
        assert_eq!(set.without(ControllerId(2)).len(), 2);
        assert_eq!(ControllerSet::ALL.len(), 63);
    }
}
