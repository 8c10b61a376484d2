//! A bounded queue from one thread to one other, without locks: how messages reach a reactor.
//!
//! The sender owns the tail, the receiver the head; each only reads the other's. Indexes count up
//! without end and are reduced to a slot by the remainder. Nothing wakes the receiver:
//! [`crate::Bell`] is for that.

use std::mem::MaybeUninit;

use crate::sync::atomics::{Arc, AtomicUsize, Ordering, UnsafeCell};

struct Ring<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Messages taken, ever. Stored by the receiver.
    head: AtomicUsize,
    /// Messages put, ever. Stored by the sender.
    tail: AtomicUsize,
}

// SAFETY: a message moves from the sender's thread to the receiver's, so T must be Send; a slot is
// touched by one side at a time, which head and tail decide.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

/// The end that puts messages.
pub struct Sender<T> {
    ring: Arc<Ring<T>>,
    /// The tail, which only we store.
    tail: usize,
}

/// The end that takes messages.
pub struct Receiver<T> {
    ring: Arc<Ring<T>>,
    /// The head, which only we store.
    head: usize,
}

/// A queue for up to `capacity` messages.
///
/// # Panics
/// If `capacity` is zero.
#[must_use]
pub fn channel<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a mailbox holds at least one message");
    let ring = Arc::new(Ring {
        slots: (0..capacity)
            .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
            .collect(),
        head: AtomicUsize::new(0),
        tail: AtomicUsize::new(0),
    });
    let sender = Sender {
        ring: ring.clone(),
        tail: 0,
    };
    (sender, Receiver { ring, head: 0 })
}

impl<T: Send> Sender<T> {
    /// Puts a message, or gives it back when the mailbox is full.
    ///
    /// # Errors
    /// The message, when there is no room.
    pub fn try_send(&mut self, message: T) -> Result<(), T> {
        let (ring, tail) = (&*self.ring, self.tail);
        // Acquire: pairs with the receiver's Release store of head; its read of the slot is over
        // before we write it.
        let head = ring.head.load(Ordering::Acquire);
        if tail.wrapping_sub(head) == ring.slots.len() {
            return Err(message);
        }
        ring.slots[tail % ring.slots.len()].with_mut(|slot| {
            // SAFETY: the slot lies outside head..tail, so the receiver does not touch it; we are
            // the only sender.
            unsafe { (*slot).write(message) };
        });
        // Release: pairs with the receiver's Acquire load of tail; it sees the slot's message.
        self.tail = tail.wrapping_add(1);
        ring.tail.store(self.tail, Ordering::Release);
        Ok(())
    }
}

impl<T: Send> Receiver<T> {
    /// Takes the oldest message.
    pub fn try_recv(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let (ring, head) = (&*self.ring, self.head);
        let message = ring.slots[head % ring.slots.len()].with_mut(|slot| {
            // SAFETY: head < tail, seen with Acquire, so the sender has written the slot and leaves
            // it until we store head; we are the only receiver, so it is read once.
            unsafe { (*slot).assume_init_read() }
        });
        // Release: pairs with the sender's Acquire load of head; our read of the slot comes before
        // its next write.
        self.head = head.wrapping_add(1);
        ring.head.store(self.head, Ordering::Release);
        Some(message)
    }

    /// Whether the queue is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // Acquire: pairs with the sender's Release store of tail.
        self.ring.tail.load(Ordering::Acquire) == self.head
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let tail = self.tail.load(Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        while head != tail {
            self.slots[head % self.slots.len()].with_mut(|slot| {
                // SAFETY: both ends are gone; the slots from head to tail hold messages that the
                // receiver did not take.
                unsafe { (*slot).assume_init_drop() };
            });
            head = head.wrapping_add(1);
        }
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receiver")
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_bounded_vec_deque(capacity in 1usize..9, puts in prop::collection::vec(any::<bool>(), 0..200)) {
            let (mut sender, mut receiver) = channel(capacity);
            let mut model = VecDeque::new();
            for (number, put) in puts.into_iter().enumerate() {
                if put {
                    let sent = sender.try_send(number);
                    prop_assert_eq!(sent.is_ok(), model.len() < capacity);
                    if sent.is_ok() {
                        model.push_back(number);
                    }
                } else {
                    prop_assert_eq!(receiver.try_recv(), model.pop_front());
                }
                prop_assert_eq!(receiver.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn messages_that_nobody_took_are_dropped() {
        let count = std::sync::Arc::new(());
        let (mut sender, mut receiver) = channel(4);
        for _ in 0..3 {
            assert!(sender.try_send(count.clone()).is_ok());
        }
        drop(receiver.try_recv());
        drop((sender, receiver));
        assert_eq!(std::sync::Arc::strong_count(&count), 1);
    }
}
