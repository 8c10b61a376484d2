//! Sharing of a completion queue's entries among several submission queues.
//!
//! Half of the entries are reserved for the submission queues in equal parts; the other half is
//! first come, first served. So a queue that floods, or a host that does not consume, cannot shut
//! the others out. With fewer entries than queues there is nothing to reserve, and the lane's
//! changing order of service is what is fair.
//!
//! An entry counts for its submission queue from the fetch until the host has consumed it. With one
//! submission queue all of this is skipped; the counts are recomputed when a queue is added or
//! removed.

use crate::state::MAX_SQS;

/// An entry that belongs to no queue any more.
const NOBODY: u8 = u8::MAX;

#[derive(Debug)]
pub(super) struct Share {
    /// Submission queues that share.
    members: u32,
    /// Places kept for each.
    minimum: u32,
    /// Places kept and not in use, over all of them.
    kept: u32,
    used: [u32; MAX_SQS],
    /// The submission queue whose completion is in each entry.
    owners: Box<[u8]>,
}

impl Share {
    pub(super) fn new(entries: u32) -> Self {
        Share {
            members: 0,
            minimum: 0,
            kept: 0,
            used: [0; MAX_SQS],
            owners: vec![NOBODY; entries as usize].into(),
        }
    }

    /// How many of the `free` entries the submission queue at `position` may take.
    #[inline]
    pub(super) fn allowance(&self, position: usize, free: u32) -> u32 {
        if self.members <= 1 {
            return free;
        }
        let own = self.minimum.saturating_sub(self.used[position]);
        free.min(own + free.saturating_sub(self.kept))
    }

    /// Maximum number of entries of the submission queue at `position`, if no other exceeds its
    /// reserved share.
    pub(super) fn most(&self) -> u32 {
        let places = self.owners.len() as u32 - 1;
        places - self.members.saturating_sub(1) * self.minimum
    }

    /// The submission queue at `position` has taken a place.
    #[inline]
    pub(super) fn take(&mut self, position: usize) {
        if self.members > 1 {
            if self.used[position] < self.minimum {
                self.kept -= 1;
            }
            self.used[position] += 1;
        }
    }

    /// It has given one back.
    #[inline]
    pub(super) fn give(&mut self, position: usize) {
        if self.members > 1 {
            self.used[position] -= 1;
            if self.used[position] < self.minimum {
                self.kept += 1;
            }
        }
    }

    /// Its completion went into entry `index`.
    #[inline]
    pub(super) fn posted(&mut self, position: usize, index: u32) {
        self.owners[index as usize] = position as u8;
    }

    /// The host has consumed `count` entries from `head` on.
    #[inline]
    pub(super) fn consumed(&mut self, head: u32, count: u32) {
        if self.members <= 1 {
            return;
        }
        for index in self.entries(head, count) {
            let owner = self.owners[index];
            if owner != NOBODY {
                self.give(usize::from(owner));
            }
        }
    }

    /// Queues came or went. `members` are the positions of those there now, `fetched` those of
    /// every command that has a place and no entry yet; `count` entries from `head` on are posted
    /// and not consumed.
    pub(super) fn recount(
        &mut self,
        members: &[u8],
        fetched: impl Iterator<Item = usize>,
        head: u32,
        count: u32,
    ) {
        self.used = [0; MAX_SQS];
        fetched.for_each(|position| self.used[position] += 1);
        for index in self.entries(head, count) {
            if members.contains(&self.owners[index]) {
                self.used[usize::from(self.owners[index])] += 1;
            } else {
                self.owners[index] = NOBODY;
            }
        }
        self.members = members.len() as u32;
        let places = self.owners.len() as u32 - 1;
        let halves = places / (2 * self.members.max(1));
        self.minimum = if halves > 0 {
            halves
        } else {
            u32::from(places >= self.members)
        };
        let unused = |position: &u8| {
            let used = self.used[usize::from(*position)];
            self.minimum.saturating_sub(used)
        };
        self.kept = members.iter().map(unused).sum();
    }

    fn entries(&self, head: u32, count: u32) -> impl Iterator<Item = usize> + use<> {
        let size = self.owners.len();
        (0..count as usize).map(move |n| (head as usize + n) % size)
    }
}

#[cfg(test)]
mod tests {
    use super::Share;

    #[test]
    fn one_queue_may_take_all() {
        let mut share = Share::new(16);
        share.recount(&[3], std::iter::empty(), 0, 0);
        assert_eq!(share.allowance(3, 15), 15);
    }

    #[test]
    fn a_flood_leaves_the_others_their_part() {
        let mut share = Share::new(17);
        share.recount(&[0, 1], std::iter::empty(), 0, 0);
        // 16 places: 4 are kept for each, 8 are first come, first served.
        let mut free = 16;
        while share.allowance(0, free) > 0 {
            share.take(0);
            free -= 1;
        }
        assert_eq!(free, 4);
        assert_eq!(share.allowance(1, free), 4);
        // The other one takes a place of its own.
        share.take(1);
        assert_eq!(share.allowance(1, free - 1), 3);
        assert_eq!(share.allowance(0, free - 1), 0);
        // The host consumes one of the flood's: it may take that one again.
        share.posted(0, 0);
        share.consumed(0, 1);
        assert_eq!(share.allowance(0, free), 1);
    }

    #[test]
    fn fewer_places_than_queues_keep_nothing() {
        let mut share = Share::new(2);
        share.recount(&[0, 1, 2], std::iter::empty(), 0, 0);
        assert!((0..3).all(|position| share.allowance(position, 1) == 1));
    }

    #[test]
    fn entries_of_a_queue_that_went_are_nobodys() {
        let mut share = Share::new(9);
        share.recount(&[0, 1], std::iter::empty(), 0, 0);
        for index in 0..4 {
            share.take(0);
            share.posted(0, index);
        }
        share.recount(&[1, 2], [1].into_iter(), 0, 4);
        // A new queue at position 0 later must not be billed for them.
        share.recount(&[0, 1, 2], [1].into_iter(), 0, 4);
        share.consumed(0, 4);
        assert_eq!(share.used[..3], [0, 1, 0]);
    }
}
