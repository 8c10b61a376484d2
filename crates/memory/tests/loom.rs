//! Every interleaving of the mailbox and of going to sleep, as loom sees them.

use loom::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use memory::{Bell, mailbox};

/// Every message arrives once and in order, through a mailbox smaller than their number.
#[test]
fn messages_arrive_once_and_in_order() {
    loom::model(|| {
        let (mut sender, mut receiver) = mailbox::channel(2);
        let sending = thread::spawn(move || {
            let mut sent = 0;
            for number in 1..=3u32 {
                // a full mailbox gives the message back
                if sender.try_send(number).is_ok() {
                    sent += 1;
                } else {
                    break;
                }
            }
            (sender, sent)
        });
        let mut received = Vec::new();
        for _ in 0..2 {
            received.extend(receiver.try_recv());
        }
        let (sender, sent) = sending.join().unwrap();
        received.extend(std::iter::from_fn(|| receiver.try_recv()));
        assert_eq!(received, (1..=sent).collect::<Vec<u32>>());
        drop(sender);
    });
}

/// A reactor that sleeps has no work: either it saw the message in its second look, or the sender wakes it.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let (mut sender, mut receiver) = mailbox::channel(1);
        let bell = Arc::new(Bell::new());
        let wakes = Arc::new(AtomicUsize::new(0));
        let sending = {
            let (bell, wakes) = (bell.clone(), wakes.clone());
            thread::spawn(move || {
                assert!(sender.try_send(1).is_ok());
                if bell.ring() {
                    wakes.fetch_add(1, Ordering::SeqCst);
                }
                sender
            })
        };
        bell.announce();
        let sleeps = receiver.is_empty();
        let sender = sending.join().unwrap();
        if sleeps {
            assert_eq!(
                wakes.load(Ordering::SeqCst),
                1,
                "asleep with a message waiting"
            );
        }
        bell.awake();
        assert_eq!(receiver.try_recv(), Some(1));
        drop(sender);
    });
}

/// The same sequence for a shadow doorbell: the host stores the tail and rings only past the event index; we store the
/// event index and look at the tail again. The fences are the ones the specification asks of both sides.
#[test]
fn no_submission_is_lost_past_the_event_index() {
    loom::model(|| {
        let tail = Arc::new(AtomicUsize::new(0));
        let event_index = Arc::new(AtomicUsize::new(usize::MAX));
        let rings = Arc::new(AtomicUsize::new(0));
        let host = {
            let (tail, event_index, rings) = (tail.clone(), event_index.clone(), rings.clone());
            thread::spawn(move || {
                tail.store(1, Ordering::Release);
                loom::sync::atomic::fence(Ordering::SeqCst);
                // the tail moves past index 0: a ring is due when the event index is 0
                if event_index.load(Ordering::Relaxed) == 0 {
                    rings.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        event_index.store(0, Ordering::Relaxed);
        memory::full_fence();
        let sleeps = tail.load(Ordering::Acquire) == 0;
        host.join().unwrap();
        if sleeps {
            assert_eq!(
                rings.load(Ordering::SeqCst),
                1,
                "asleep with a command waiting"
            );
        }
    });
}

/// Several producers and one sleep: the sleeper is woken, and by one of them only.
#[test]
fn one_sleep_is_woken_once() {
    loom::model(|| {
        let bell = Arc::new(Bell::new());
        bell.announce();
        let ringing: Vec<_> = (0..2)
            .map(|_| {
                let bell = bell.clone();
                thread::spawn(move || usize::from(bell.ring()))
            })
            .collect();
        let woken: usize = ringing.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(woken, 1);
    });
}
