//! What is due at times that may still become later: an operation of a die that is suspended takes
//! with it whatever waits for its end.
//!
//! Invariant: what is due first is known exactly; behind it may stand what was postponed, at a time
//! that is too early, and is found out when it comes to the front.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The place of one thing that waits, until it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// Things that are due. They come by time, then by their order.
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
    /// A place for something that [`Moving::put`] brings.
    pub(crate) fn reserve(&mut self) -> Slot {
        let slot = self.free.pop().unwrap_or(self.entries.len());
        if slot == self.entries.len() {
            self.entries.push(Entry::default());
        }
        Slot(slot)
    }

    /// `what` is due at `at`.
    pub(crate) fn put(&mut self, slot: Slot, at: u64, order: u64, what: T) {
        self.entries[slot.0] = Entry { at, what };
        self.due.push(Reverse((at, order, slot.0)));
    }

    /// What was put there is not due before `at`.
    pub(crate) fn postpone(&mut self, slot: Slot, at: u64) {
        let entry = &mut self.entries[slot.0];
        entry.at = entry.at.max(at);
        self.look();
    }

    /// Time and order of what is due first.
    pub(crate) fn next(&self) -> Option<(u64, u64)> {
        self.due.peek().map(|Reverse((at, order, _))| (*at, *order))
    }

    /// What is due first, if that is at `now` or before.
    pub(crate) fn pop(&mut self, now: u64) -> Option<(u64, T)> {
        self.next().filter(|&(at, _)| at <= now)?;
        let Reverse((at, _, slot)) = self.due.pop()?;
        self.free.push(slot);
        self.look();
        Some((at, self.entries[slot].what))
    }

    /// Puts what was postponed where it belongs, until the first is where it should be.
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
        // A place is used again.
        let again = moving.reserve();
        assert!(slots[..3].contains(&again));
        moving.put(again, 5, 9, 5);
        assert_eq!(moving.pop(u64::MAX), Some((5, 5)));
        assert_eq!(moving.pop(u64::MAX), Some((31, 30)));
        assert_eq!(moving.pop(u64::MAX), None);
    }
}
