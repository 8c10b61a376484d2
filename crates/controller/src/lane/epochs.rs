//! Counts of commands in flight by the memory view and the table of namespaces they were issued
//! with.
//!
//! An unmap waits until no command issued before it is in flight, and so do operations on
//! namespaces. Counting is constant work per command and per change of the map, in a table of fixed
//! size. If the host changes its map faster than commands end, the newest groups are counted
//! together, as old as the oldest of them. A new group begins as soon as there is room, so that
//! under a steady load the old one still drains.

use memory::DmaView;

/// Groups counted apart.
const GROUPS: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Nothing in it was issued before this.
    first: Issue,
    count: u32,
}

/// The view and table that a command was issued with. Both only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Issue {
    /// Epoch of the memory view.
    pub(super) epoch: u64,
    /// Generation of the table of namespaces.
    pub(super) generation: u64,
}

/// Counts by epoch. The newest group is always there.
#[derive(Debug)]
pub(super) struct Epochs {
    groups: [Group; GROUPS],
    /// The oldest group.
    front: usize,
    /// Groups in use, at least 1.
    len: usize,
    /// The current view and table.
    current: Issue,
}

impl Epochs {
    pub(super) fn new(view: &DmaView, generation: u64) -> Self {
        let current = Issue {
            epoch: view.epoch(),
            generation,
        };
        let mut epochs = Epochs {
            groups: [Group::default(); GROUPS],
            front: 0,
            len: 1,
            current,
        };
        epochs.groups[0].first = current;
        epochs
    }

    /// The view and the table now in use.
    #[inline]
    pub(super) fn current(&self) -> Issue {
        self.current
    }

    /// From now on commands are issued with this view's epoch.
    pub(super) fn advance(&mut self, epoch: u64) {
        self.current.epoch = epoch;
        self.begin_group();
    }

    /// From now on commands are issued with the table of this generation.
    pub(super) fn advance_table(&mut self, generation: u64) {
        self.current.generation = generation;
        self.begin_group();
    }

    /// Counts a command issued now; returns the index for [`Epochs::remove`].
    #[inline]
    pub(super) fn add(&mut self) -> u8 {
        let newest = self.newest();
        self.groups[newest].count += 1;
        newest as u8
    }

    /// A command has ended.
    #[inline]
    pub(super) fn remove(&mut self, index: u8) {
        let group = &mut self.groups[usize::from(index) % GROUPS];
        group.count -= 1;
        if group.count == 0 {
            self.shrink();
        }
    }

    /// Nothing issued before this is in flight.
    pub(super) fn drained(&self) -> Issue {
        let oldest = self.groups[self.front];
        if oldest.count == 0 {
            self.current
        } else {
            oldest.first
        }
    }

    fn newest(&self) -> usize {
        (self.front + self.len - 1) % GROUPS
    }

    fn begin_group(&mut self) {
        let newest = self.newest();
        if self.groups[newest].count == 0 {
            self.groups[newest].first = self.current;
        } else if self.groups[newest].first != self.current && self.len < GROUPS {
            self.len += 1;
            self.groups[self.newest()] = Group {
                first: self.current,
                count: 0,
            };
        }
    }

    #[inline]
    fn shrink(&mut self) {
        while self.len > 1 && self.groups[self.front].count == 0 {
            self.front = (self.front + 1) % GROUPS;
            self.len -= 1;
        }
        self.begin_group();
    }
}

#[cfg(test)]
mod tests {
    use memory::DmaView;

    use super::{Epochs, GROUPS};

    fn epochs() -> Epochs {
        Epochs::new(&DmaView::empty(), 0)
    }

    #[test]
    fn an_idle_lane_is_drained_at_once() {
        let mut epochs = epochs();
        for epoch in 5..50 {
            epochs.advance(epoch);
            assert_eq!(epochs.drained().epoch, epoch);
        }
    }

    #[test]
    fn the_oldest_command_holds_it_back_and_later_ones_do_not() {
        let mut epochs = epochs();
        epochs.advance(5);
        let old = epochs.add();
        epochs.advance(6);
        let new = epochs.add();
        assert_eq!(epochs.drained().epoch, 5);
        epochs.remove(old);
        assert_eq!(epochs.drained().epoch, 6);
        epochs.remove(new);
        assert_eq!(epochs.drained().epoch, 6);
        epochs.advance(7);
        assert_eq!(epochs.drained().epoch, 7);
    }

    #[test]
    fn ends_in_any_order() {
        let mut epochs = epochs();
        let held: Vec<_> = (1..=4)
            .map(|epoch| {
                epochs.advance(epoch);
                epochs.add()
            })
            .collect();
        epochs.remove(held[2]);
        epochs.remove(held[1]);
        assert_eq!(epochs.drained().epoch, 1);
        epochs.remove(held[0]);
        assert_eq!(epochs.drained().epoch, 4);
    }

    /// A storm of changes over a full table, then steady load with always something in flight: the
    /// storm must drain.
    #[test]
    fn a_storm_drains_under_steady_load() {
        let mut epochs = epochs();
        let storm = 3 * GROUPS as u64;
        let mut held = std::collections::VecDeque::new();
        for epoch in 1..=storm {
            epochs.advance(epoch);
            held.push_back(epochs.add());
        }
        let target = storm;
        for _ in 0..4 * storm {
            held.push_back(epochs.add());
            epochs.remove(held.pop_front().unwrap());
        }
        assert_eq!(epochs.drained().epoch, target);
    }

    #[test]
    fn it_never_says_drained_too_early() {
        // Against a plain list, over a fixed pseudo-random walk.
        let mut epochs = epochs();
        let mut held: Vec<(u64, u8)> = Vec::new();
        let (mut epoch, mut random) = (0u64, 1u64);
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let pick = (random >> 33) as usize;
            match pick % 8 {
                0 => {
                    epoch += 1;
                    epochs.advance(epoch);
                }
                1..=4 => held.push((epoch, epochs.add())),
                _ if held.is_empty() => {}
                _ => {
                    let (_, index) = held.swap_remove(pick / 8 % held.len());
                    epochs.remove(index);
                }
            }
            let oldest = held.iter().map(|(issued, _)| *issued).min();
            assert!(epochs.drained().epoch <= oldest.unwrap_or(epoch));
            if held.is_empty() {
                assert_eq!(epochs.drained().epoch, epoch);
            }
        }
    }
}
