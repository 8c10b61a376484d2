//! Answers to messages: one value each, for which the asker waits a limited time.
//!
//! The value has a place, and a channel that carries no value says that it is there. A channel of
//! the values would be compiled again for each of their types, which was a third of this crate's
//! compilation.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Place<T> = Arc<Mutex<Option<T>>>;

/// Sends an answer. The asker stops waiting when this is dropped.
#[derive(Debug)]
pub struct Answer<T> {
    place: Place<T>,
    sent: SyncSender<()>,
}

/// An answer that is waited for.
#[derive(Debug)]
pub struct Answered<T> {
    place: Place<T>,
    sent: Receiver<()>,
}

/// Both ends of an answer.
#[must_use]
pub fn answer<T>() -> (Answer<T>, Answered<T>) {
    let place = Place::default();
    let (sent, receiver) = sync_channel(1);
    let answered = Answered {
        place: place.clone(),
        sent: receiver,
    };
    (Answer { place, sent }, answered)
}

impl<T> Answer<T> {
    /// Sends the answer, without waiting. The asker may have stopped waiting for it.
    pub fn send(&self, value: T) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        let _ = self.sent.try_send(());
    }
}

impl<T> Answered<T> {
    /// Waits for the answer, at most for this time. `None` if it does not come, or cannot come any
    /// more.
    #[must_use]
    pub fn within(&self, time: Duration) -> Option<T> {
        self.sent.recv_timeout(time).ok()?;
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        place.take()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_answer_comes_from_another_thread_or_not_in_time() {
        let (sender, answered) = answer();
        assert_eq!(answered.within(Duration::ZERO), None);
        let thread = std::thread::spawn(move || sender.send(vec![7]));
        assert_eq!(answered.within(LONG), Some(vec![7]));
        thread.join().unwrap();
    }

    #[test]
    fn an_asker_does_not_wait_for_a_reactor_that_has_ended() {
        let (sender, answered) = answer::<()>();
        let begun = Instant::now();
        drop(sender);
        assert_eq!(answered.within(LONG), None);
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn an_asker_may_have_stopped_waiting() {
        let (sender, answered) = answer();
        drop(answered);
        sender.send(1);
    }
}
