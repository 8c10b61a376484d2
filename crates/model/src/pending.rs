//! Commands under way, and the present.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Due;

/// What is due when. Commands come out by time, and where times are the same in the order in which they were submitted.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    now: u64,
    submitted: u64,
    due: BinaryHeap<Reverse<(u64, u64, u64)>>,
}

/// The place of a command in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(u64);

impl Pending {
    /// The present, once it is `now`: time never falls.
    pub(crate) fn at(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        self.now
    }

    /// The next place in the order of submission.
    pub(crate) fn turn(&mut self) -> Turn {
        self.submitted += 1;
        Turn(self.submitted)
    }

    /// The command `id` is done at `at`.
    pub(crate) fn push(&mut self, at: u64, turn: Turn, id: u64) {
        self.due.push(Reverse((at, turn.0, id)));
    }

    /// When the next one is done.
    pub(crate) fn next(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    /// Appends what is done at `now` or before.
    pub(crate) fn reap(&mut self, now: u64, done: &mut Vec<Due>) {
        while let Some(Reverse((at, _, id))) = self.due.peek().copied() {
            if at > now {
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
}
