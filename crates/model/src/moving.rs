//! Queue of events whose times may still become later: suspending a die's operation postpones
//! everything that waits for its end.
//!
//! Invariant: the first event is exact; events after it may still have a time from before they were
//! postponed, which is corrected when they reach the front.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Identifies a pending event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// Pending events. They come by time, then by their order.
#[derive(Debug)]
pub(crate) struct Moving<T> {
    entries: Vec<Entry<T>>,
    free: Vec<usize>,
    due: BinaryHeap<Reverse<(u64, u64, usize)>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry<T> {
    at: u64,
    what: T,
}

impl<T> Default for Moving<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
        }
    }
}

impl<T: Copy + Default> Moving<T> {
    /// Reserves a slot for an event that [`Moving::put`] adds.
    pub(crate) fn reserve(&mut self) -> Slot {
        let slot = self.free.pop().unwrap_or(self.entries.len());
        if slot == self.entries.len() {
            self.entries.push(Entry::default());
        }
        Slot(slot)
    }

    /// Adds `what`, due at `at`.
    pub(crate) fn put(&mut self, slot: Slot, at: u64, order: u64, what: T) {
        self.entries[slot.0] = Entry { at, what };
        self.due.push(Reverse((at, order, slot.0)));
    }

    /// Postpones the event in this slot to `at`.
    pub(crate) fn postpone(&mut self, slot: Slot, at: u64) {
        let entry = &mut self.entries[slot.0];
        entry.at = entry.at.max(at);
        self.look();
    }

    /// Time and order of the first event.
    pub(crate) fn next(&self) -> Option<(u64, u64)> {
        self.due.peek().map(|Reverse((at, order, _))| (*at, *order))
    }

    /// Removes the first event if it is due at `now` or before.
    pub(crate) fn pop(&mut self, now: u64) -> Option<(u64, T)> {
        self.next().filter(|&(at, _)| at <= now)?;
        let Reverse((at, _, slot)) = self.due.pop()?;
        self.free.push(slot);
        self.look();
        Some((at, self.entries[slot].what))
    }

    /// Reorders postponed events until the first one is exact.
    fn look(&mut self) {
        while let Some(Reverse((at, order, slot))) = self.due.peek().copied() {
            let truly = self.entries[slot].at;
            if truly == at {
                break;
            }
            self.due.pop();
            self.due.push(Reverse((truly, order, slot)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_postponed_comes_later_and_in_its_order() {
        let mut moving = Moving::default();
        let slots = [(); 4].map(|()| moving.reserve());
        for ((slot, at), order) in slots.into_iter().zip([10, 10, 12, 30]).zip(0..) {
            moving.put(slot, at, order, at);
        }
        moving.postpone(slots[0], 12);
        assert_eq!(moving.next(), Some((10, 1)));
        moving.postpone(slots[1], 20);
        assert_eq!(moving.next(), Some((12, 0)));
        moving.postpone(slots[1], 15);
        moving.postpone(slots[3], 31);
        assert_eq!(moving.pop(11), None);
        assert_eq!(moving.pop(12), Some((12, 10)));
        assert_eq!(moving.pop(12), Some((12, 12)));
        assert_eq!(moving.next(), Some((20, 1)), "it never comes earlier");
        assert_eq!(moving.pop(20), Some((20, 10)));
        assert_eq!(moving.next(), Some((31, 3)));
        // A slot is reused.
        let again = moving.reserve();
        assert!(slots[..3].contains(&again));
        moving.put(again, 5, 9, 5);
        assert_eq!(moving.pop(u64::MAX), Some((5, 5)));
        assert_eq!(moving.pop(u64::MAX), Some((31, 30)));
        assert_eq!(moving.pop(u64::MAX), None);
    }
}
