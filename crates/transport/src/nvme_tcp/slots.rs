//! Large data slots: of a command's largest transfer each, shared by the queues of an association,
//! which may be on several reactors.
//!
//! A command that finds none waits, in the order of its queue. A queue that has a slot takes no
//! other one while another queue waits for its first, and queues that wait for their first have
//! turns: so each queue goes on. No one wakes a queue when a slot is free: one that waits looks
//! again. A queue's small slots are its own.

use std::collections::VecDeque;
use std::sync::Arc;

use memory::{Buffer, Pool};

/// The slots of an association.
#[derive(Debug)]
pub(super) struct LargeSlots {
    buffer: Buffer,
    /// Bytes of one: whole pages.
    len: usize,
    pool: Pool,
}

impl LargeSlots {
    /// `count` slots of `len` bytes, which are those of `buffer`, for queues up to this identifier.
    pub(super) fn new(buffer: Buffer, len: usize, count: u16, last_qid: u16) -> Self {
        debug_assert!(len * usize::from(count) <= buffer.len());
        Self {
            buffer,
            len,
            pool: Pool::new(count, last_qid + 1),
        }
    }

    /// Whether no command will ever get one.
    pub(super) fn are_lost(&self) -> bool {
        self.pool.are_lost()
    }
}

/// The slots as one queue has them.
#[derive(Debug)]
pub(super) struct Slots {
    large: Arc<LargeSlots>,
    qid: u16,
    /// How many its commands have.
    held: u16,
    /// Its commands that wait for one.
    waiting: VecDeque<u16>,
}

impl Slots {
    /// For a queue of that many commands.
    pub(super) fn new(large: Arc<LargeSlots>, qid: u16, commands: usize) -> Self {
        Self {
            large,
            qid,
            held: 0,
            waiting: VecDeque::with_capacity(commands),
        }
    }

    /// Where a slot lies in the private memory.
    pub(super) fn at(&self, slot: u16) -> usize {
        self.large.buffer.offset() + usize::from(slot) * self.large.len
    }

    /// A slot, unless others wait for one. A command that gets none is to wait.
    pub(super) fn take(&mut self) -> Option<u16> {
        if self.waiting.is_empty() {
            self.take_next()
        } else {
            None
        }
    }

    fn take_next(&mut self) -> Option<u16> {
        let pool = &self.large.pool;
        let slot = if self.held > 0 {
            pool.take_more()?
        } else {
            pool.take_first(self.qid)?
        };
        self.held += 1;
        Some(slot)
    }

    /// A command waits for one.
    pub(super) fn wait(&mut self, index: u16) {
        self.waiting.push_back(index);
    }

    /// Whether a command waits for one.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A slot is free again.
    pub(super) fn give_back(&mut self, slot: u16) {
        self.held -= 1;
        self.large.pool.give_back(slot);
    }

    /// A slot that a medium may have for ever is never free again.
    pub(super) fn lose(&mut self) {
        self.held -= 1;
        self.large.pool.lose();
    }

    /// The next command that waited, and its slot.
    pub(super) fn grant(&mut self) -> Option<(u16, u16)> {
        let index = *self.waiting.front()?;
        let slot = self.take_next()?;
        self.waiting.pop_front();
        Some((index, slot))
    }

    /// Its commands wait no longer.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.large.pool.end_short(self.qid);
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use memory::HostMemory;

    use super::*;

    fn queues<const N: usize>(count: u16) -> (HostMemory, [Slots; N]) {
        let memory = HostMemory::new(5 * 4096).unwrap();
        let _before = memory.alloc(4096, 4096).unwrap();
        let buffer = memory.reserve(4 * 4096, 4096).unwrap();
        let large = Arc::new(LargeSlots::new(buffer, 8192, count, N as u16));
        let queue = |at| Slots::new(large.clone(), 1 + at as u16, 4);
        (memory, std::array::from_fn(queue))
    }

    #[test]
    fn commands_that_wait_are_served_in_order_and_before_others() {
        let (_memory, [mut slots]) = queues(2);
        assert_eq!(
            (slots.take(), slots.take(), slots.take()),
            (Some(0), Some(1), None)
        );
        assert_eq!(slots.at(1), 4096 + 8192);
        for index in [7, 9] {
            slots.wait(index);
        }
        assert_eq!(slots.grant(), None);
        slots.give_back(1);
        assert_eq!(slots.take(), None, "it is another's");
        assert_eq!(slots.grant(), Some((7, 1)));
        slots.give_back(0);
        assert_eq!(slots.grant(), Some((9, 0)));
        assert!(!slots.is_waited_for());
    }

    #[test]
    fn a_queue_that_has_one_leaves_the_next_to_a_queue_that_has_none() {
        let (_memory, [mut one, mut other]) = queues(2);
        assert_eq!((one.take(), one.take()), (Some(0), Some(1)));
        one.wait(7);
        other.wait(8);
        assert_eq!((one.grant(), other.grant()), (None, None));
        one.give_back(1);
        assert_eq!(one.grant(), None, "the other has none");
        assert_eq!(other.grant(), Some((8, 1)));
        other.give_back(1);
        assert_eq!(one.grant(), Some((7, 1)));
        // One that waits no longer keeps none from the others.
        other.wait(9);
        assert_eq!(other.grant(), None);
        one.give_back(1);
        drop(other);
        assert_eq!(one.take(), Some(1));
        one.lose();
        one.lose();
        assert!(one.large.are_lost());
    }

    /// Also where it would have the next turn of those that have none.
    #[test]
    fn a_queue_that_has_one_has_no_turn() {
        let (_memory, [mut one, mut two, mut three]) = queues(2);
        assert_eq!((one.take(), three.take()), (Some(0), Some(1)));
        one.wait(7);
        two.wait(8);
        assert_eq!((two.grant(), one.grant()), (None, None));
        three.give_back(1);
        assert_eq!(one.grant(), None, "the second has none");
        assert_eq!(two.grant(), Some((8, 1)));
        two.give_back(1);
        assert_eq!(one.grant(), Some((7, 1)));
    }

    /// Each looks for a slot where it has given one back, before the other one can.
    #[test]
    fn queues_that_share_one_slot_have_turns() {
        let (_memory, [mut one, mut other]) = queues(1);
        assert_eq!(one.take(), Some(0));
        for index in 0..4 {
            one.wait(index);
            other.wait(index);
        }
        assert_eq!((one.grant(), other.grant()), (None, None));
        for index in 0..4 {
            one.give_back(0);
            assert_eq!(one.grant(), None);
            assert_eq!(other.grant(), Some((index, 0)));
            other.give_back(0);
            assert_eq!(other.grant(), None);
            assert_eq!(one.grant(), Some((index, 0)));
        }
    }
}
