//! Events: a ring of the last ones, and a notification of new ones.
//!
//! Any thread may report an event, as with the log; the command path never does. The ring is
//! bounded: a reader that is too slow learns how many events it has missed.

use std::collections::VecDeque;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use api::{Event, What};
use tokio::sync::watch;

/// Events that are kept.
const KEPT: usize = 1024;

static EVENTS: LazyLock<Events> = LazyLock::new(|| Events::new(KEPT));

/// The ring of events.
#[derive(Debug)]
pub(crate) struct Events {
    ring: Mutex<VecDeque<Event>>,
    kept: usize,
    /// Number of the last event.
    last: watch::Sender<u64>,
}

impl Events {
    fn new(kept: usize) -> Self {
        Events {
            ring: Mutex::default(),
            kept,
            last: watch::Sender::new(0),
        }
    }

    fn ring(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, event: What, (kind, name): (&str, &str), cause: Option<&str>) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let time_ns = time.map_or(0, |time| time.as_nanos());
        let mut ring = self.ring();
        let id = *self.last.borrow() + 1;
        if ring.len() == self.kept {
            ring.pop_front();
        }
        ring.push_back(Event {
            id,
            time_ns: u64::try_from(time_ns).unwrap_or(u64::MAX),
            event,
            kind: kind.to_owned(),
            name: name.to_owned(),
            cause: cause.map(str::to_owned),
        });
        self.last.send_replace(id);
    }

    /// Up to `most` events after number `id`, and how many before them were discarded.
    pub(crate) fn since(&self, id: u64, most: usize) -> (u64, Vec<Event>) {
        let ring = self.ring();
        let Some(first) = ring.front().map(|event| event.id) else {
            return (0, Vec::new());
        };
        let lost = first.saturating_sub(id.saturating_add(1));
        let behind = ring.iter().filter(|event| event.id > id);
        (lost, behind.take(most).cloned().collect())
    }

    /// Number of the newest event; 0 before the first.
    pub(crate) fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// A receiver that is notified of new events.
    pub(crate) fn bell(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }
}

/// The events of this process.
pub(crate) fn all() -> &'static Events {
    &EVENTS
}

/// Reports an event of an object.
pub(crate) fn tell(event: What, kind: &str, name: &str) {
    EVENTS.add(event, (kind, name), None);
}

/// Reports an event of an object, with its cause.
pub(crate) fn tell_cause(event: What, kind: &str, name: &str, cause: &str) {
    EVENTS.add(event, (kind, name), Some(cause));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_kept_and_who_is_late_is_told() {
        let events = Events::new(4);
        assert_eq!(events.since(0, 9), (0, Vec::new()));
        for index in 1..=6 {
            events.add(What::Created, ("media", &format!("m{index}")), None);
        }
        let ids = |since, most| {
            let (lost, events) = events.since(since, most);
            (
                lost,
                events.iter().map(|event| event.id).collect::<Vec<_>>(),
            )
        };
        assert_eq!(ids(0, 9), (2, vec![3, 4, 5, 6]));
        assert_eq!(ids(2, 9), (0, vec![3, 4, 5, 6]));
        assert_eq!(ids(3, 2), (0, vec![4, 5]));
        assert_eq!(ids(6, 9), (0, vec![]));
        assert_eq!(ids(u64::MAX, 9), (0, vec![]));
        assert_eq!(*events.bell().borrow(), 6);
    }
}
