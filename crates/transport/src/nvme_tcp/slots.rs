//! Large data slots: of a command's largest transfer each, shared by the queues of an association.
//!
//! A command that finds none waits in order. A queue's small slots are its own.

use std::collections::VecDeque;

use memory::Buffer;

/// Which command waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) qid: u16,
    pub(super) index: u16,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Slots {
    buffer: Buffer,
    /// Bytes of one: whole pages.
    len: usize,
    free: Vec<u16>,
    waiting: VecDeque<Waiter>,
    /// Slots that are in use or can be.
    usable: u16,
}

impl Slots {
    /// `count` slots of `len` bytes, which are those of `buffer`.
    pub(super) fn new(buffer: Buffer, len: usize, count: u16) -> Self {
        debug_assert!(len * usize::from(count) <= buffer.len());
        Self {
            buffer,
            len,
            // The first ones are used first, so that few pages are.
            free: (0..count).rev().collect(),
            waiting: VecDeque::new(),
            usable: count,
        }
    }

    /// Room for the waiters of a queue.
    pub(super) fn expect(&mut self, commands: usize) {
        self.waiting.reserve(commands);
    }

    /// Where a slot lies in the private memory.
    pub(super) fn at(&self, slot: u16) -> usize {
        self.buffer.offset() + usize::from(slot) * self.len
    }

    /// A slot, unless others wait for one.
    pub(super) fn take(&mut self) -> Option<u16> {
        if self.waiting.is_empty() {
            self.free.pop()
        } else {
            None
        }
    }

    /// Waits for one.
    pub(super) fn wait(&mut self, waiter: Waiter) {
        self.waiting.push_back(waiter);
    }

    /// A slot is free again.
    pub(super) fn give_back(&mut self, slot: u16) {
        debug_assert!(!self.free.contains(&slot), "a slot is given back once");
        self.free.push(slot);
    }

    /// A slot that a medium may have for ever is never free again.
    pub(super) fn lose(&mut self) {
        self.usable -= 1;
    }

    /// Whether no command will ever get one.
    pub(super) fn are_lost(&self) -> bool {
        self.usable == 0
    }

    /// The next one that waited, and its slot.
    pub(super) fn grant(&mut self) -> Option<(Waiter, u16)> {
        if self.waiting.is_empty() {
            return None;
        }
        let slot = self.free.pop()?;
        self.waiting.pop_front().map(|waiter| (waiter, slot))
    }

    /// The commands of a queue wait no longer.
    pub(super) fn forget(&mut self, qid: u16) {
        self.waiting.retain(|waiter| waiter.qid != qid);
    }

    /// Slots that no command has.
    #[cfg(test)]
    pub(super) fn available(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use memory::HostMemory;

    use super::*;

    #[test]
    fn those_that_wait_are_served_in_order_and_before_others() {
        let memory = HostMemory::new(5 * 4096).unwrap();
        let _before = memory.alloc(4096, 4096).unwrap();
        let buffer = memory.reserve(4 * 4096, 4096).unwrap();
        let mut slots = Slots::new(buffer, 8192, 2);
        assert_eq!(
            (slots.take(), slots.take(), slots.take()),
            (Some(0), Some(1), None)
        );
        assert_eq!(slots.at(1), 4096 + 8192);
        let waiter = |qid, index| Waiter { qid, index };
        for one in [waiter(1, 7), waiter(2, 8), waiter(1, 9)] {
            slots.wait(one);
        }
        assert_eq!(slots.grant(), None);
        slots.give_back(1);
        assert_eq!(slots.take(), None, "it is another's");
        assert_eq!(slots.grant(), Some((waiter(1, 7), 1)));
        slots.forget(2);
        slots.give_back(0);
        assert_eq!(slots.grant(), Some((waiter(1, 9), 0)));
        slots.give_back(0);
        assert_eq!(slots.take(), Some(0));
        assert_eq!(slots.available(), 0);
    }
}
