//! Commands in flight, and the current time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Due;
use crate::moving::{Moving, Slot};

/// Completions by time; at the same time, in the order of submission.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    now: u64,
    submitted: u64,
    /// How long before their time completions with fixed times come out.
    early: u64,
    due: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// Completions whose times may still become later.
    moving: Moving<u64>,
}

/// Completion time of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) at: u64,
    /// Set if the time may become later.
    pub(crate) slot: Option<Slot>,
}

impl From<u64> for At {
    fn from(at: u64) -> Self {
        Self { at, slot: None }
    }
}

/// Position of a command in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(u64);

impl Pending {
    /// The current time after a call at `now`: time never decreases.
    pub(crate) fn at(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        self.now
    }

    /// Has completions with fixed times come out so long before their time. No other time of the
    /// model changes.
    pub(crate) fn set_early(&mut self, ns: u64) {
        self.early = ns;
    }

    /// The next position in the order of submission.
    pub(crate) fn turn(&mut self) -> Turn {
        self.submitted += 1;
        Turn(self.submitted)
    }

    /// Command `id` completes at `at`.
    pub(crate) fn push(&mut self, at: u64, turn: Turn, id: u64) {
        self.due.push(Reverse((at, turn.0, id)));
    }

    /// Reserves a slot for a command whose time may become later; [`Pending::push_at`] follows.
    pub(crate) fn reserve(&mut self) -> Slot {
        self.moving.reserve()
    }

    /// Command `id`, the next in the order of submission, completes then.
    pub(crate) fn push_at(&mut self, at: At, id: u64) {
        let turn = self.turn();
        match at.slot {
            None => self.push(at.at, turn, id),
            Some(slot) => self.moving.put(slot, at.at, turn.0, id),
        }
    }

    /// Postpones the command in this slot to `at`.
    pub(crate) fn postpone(&mut self, slot: Slot, at: u64) {
        self.moving.postpone(slot, at);
    }

    /// When the next completion comes out.
    pub(crate) fn next(&self) -> Option<u64> {
        let due = self.due.peek();
        let due = due.map(|Reverse((at, ..))| at.saturating_sub(self.early));
        match self.moving.next() {
            None => due,
            Some((moving, _)) => Some(due.map_or(moving, |due| due.min(moving))),
        }
    }

    /// Appends completions at `now` or before, and those that come out early.
    pub(crate) fn reap(&mut self, now: u64, done: &mut Vec<Due>) {
        while let Some(moving) = self.moving.next().filter(|&(at, _)| at <= now) {
            self.reap_before(moving, done);
            done.extend(self.moving.pop(now).map(|(at, id)| Due { at, id }));
        }
        let end = now.saturating_add(self.early);
        self.reap_before((end, u64::MAX), done);
    }

    /// Appends completions with fixed times, up to a time and a position.
    fn reap_before(&mut self, end: (u64, u64), done: &mut Vec<Due>) {
        while let Some(Reverse((at, turn, id))) = self.due.peek().copied() {
            if (at, turn) > end {
                break;
            }
            self.due.pop();
            done.push(Due { at, id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_out_by_time_and_then_by_their_turn() {
        let mut pending = Pending::default();
        let early = pending.turn();
        let late = pending.turn();
        pending.push(10, late, 1);
        pending.push(10, early, 2);
        pending.push(5, late, 3);
        pending.push(11, early, 4);
        let mut done = Vec::new();
        assert_eq!(pending.next(), Some(5));
        pending.reap(10, &mut done);
        assert_eq!(
            done.iter().map(|due| (due.at, due.id)).collect::<Vec<_>>(),
            [(5, 3), (10, 2), (10, 1)]
        );
        assert_eq!(pending.next(), Some(11));
        assert_eq!((pending.at(7), pending.at(3)), (7, 7));
    }

    #[test]
    fn completions_come_out_early_unless_their_times_may_change() {
        let mut pending = Pending::default();
        pending.set_early(4);
        let slot = Some(pending.reserve());
        pending.push_at(At { at: 10, slot }, 1);
        for (at, id) in [(10, 2), (3, 3), (11, 4)] {
            pending.push_at(at.into(), id);
        }
        let reap = |pending: &mut Pending, now| {
            let mut done = Vec::new();
            pending.reap(now, &mut done);
            let done: Vec<_> = done.iter().map(|due| (due.at, due.id)).collect();
            (done, pending.next())
        };
        assert_eq!(pending.next(), Some(0));
        assert_eq!(reap(&mut pending, 0), (vec![(3, 3)], Some(6)));
        assert_eq!(reap(&mut pending, 5), (vec![], Some(6)));
        assert_eq!(reap(&mut pending, 6), (vec![(10, 2)], Some(7)));
        assert_eq!(reap(&mut pending, 9), (vec![(11, 4)], Some(10)));
        assert_eq!(reap(&mut pending, 10), (vec![(10, 1)], None));
    }
}
