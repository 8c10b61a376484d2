//! The schedule of operations: which run in parallel, and how much of them in one turn.
//!
//! Operations on one namespace begin in order of arrival; those on different namespaces run in
//! parallel; one that concerns all of them waits for every earlier one, and every later one waits
//! for it. An operation that only waits (for commands in flight, for the record) delays no other:
//! so a thousand marks of uncorrectable blocks wait for one record, and not for a thousand. Waiting
//! operations are checked from the front, as generations and versions rise, so that a turn costs as
//! much as it moves, and not as much as there is: hosts decide how many operations there are.

use std::collections::{BTreeMap, VecDeque};

use nvme_spec::NSID_ALL;
use port::ticket::Ticket;
use port::time::Time;
use port::{Channel, Channels, Outcome};

use super::Subsystem;
use crate::DEADLINE_NS;
use crate::erase::{Budget, Erasing};
use crate::operation::{Moved, NSID_NONE, Operation, Running, Wait};

/// Operations that are begun, or go on, in one turn, so that a host that floods a namespace leaves
/// its neighbours theirs.
const MOVES_PER_TURN: usize = 256;

/// The operations that go on, or wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Operations {
    /// By namespace, in order of arrival: the first of each is the running one. [`NSID_ALL`] is one
    /// of them.
    queues: BTreeMap<u32, VecDeque<Running>>,
    /// Operations on no namespace: none waits for them.
    free: VecDeque<Running>,
    /// Those that wait for commands in flight, and then at most for the record; by rising
    /// generation.
    draining: VecDeque<Running>,
    /// Those that wait for the record alone, by rising version.
    keeping: VecDeque<Running>,
    /// Counts operations.
    count: u64,
    /// Counts turns: each begins with another namespace.
    turns: usize,
}

impl Operations {
    /// Whether there is none: nearly always, so that it is asked first.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
            && self.free.is_empty()
            && self.draining.is_empty()
            && self.keeping.is_empty()
    }

    pub(super) fn push(&mut self, operation: Operation) {
        self.count += 1;
        let nsid = operation.nsid;
        let running = Running {
            operation,
            wait: Wait::None,
            number: self.count,
        };
        match nsid {
            NSID_NONE => self.free.push_back(running),
            _ => self.queues.entry(nsid).or_default().push_back(running),
        }
    }

    pub(super) fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        let place = ticket.fulfil();
        let mut heads = self.queues.values_mut().filter_map(VecDeque::front_mut);
        let of_ticket = |running: &&mut Running| running.place() == place;
        if let Some(Running {
            wait: Wait::Erase(erasing),
            ..
        }) = heads.find(of_ticket)
        {
            erasing.complete(outcome);
        }
    }

    /// The erasure in progress of a namespace, or (`NSID_ALL`) of all of them.
    pub(super) fn erasing(&self, nsid: u32) -> Option<&Erasing> {
        match &self.queues.get(&nsid)?.front()?.wait {
            Wait::Erase(erasing) => Some(erasing),
            _ => None,
        }
    }

    /// Operations that have begun or may begin. The first of those that only wait stands for all of
    /// these.
    fn moving(&self) -> impl Iterator<Item = &Running> {
        let heads = self.queues.iter();
        let heads = heads.filter_map(|(nsid, queue)| queue.front().filter(|_| self.may_go(*nsid)));
        let waiting = self
            .draining
            .front()
            .into_iter()
            .chain(self.keeping.front());
        heads.chain(&self.free).chain(waiting)
    }

    fn drains(&self) -> impl Iterator<Item = (u64, Time)> {
        self.moving().filter_map(|r| match r.wait {
            Wait::Drain { generation, since } => Some((generation, since)),
            _ => None,
        })
    }

    /// The generation of a drain that has timed out.
    pub(super) fn late_drain(&self, now: Time) -> Option<u64> {
        let late = self
            .drains()
            .filter(|(_, since)| now >= *since + DEADLINE_NS);
        late.map(|(generation, _)| generation).max()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.drains().map(|(_, since)| since + DEADLINE_NS).min()
    }

    /// Whether the first operation of that namespace need not wait for an earlier one that is about
    /// all of them, or for all of the earlier ones where it is itself about all.
    fn may_go(&self, nsid: u32) -> bool {
        let first = |queue: &VecDeque<Running>| queue.front().map(|r| r.number);
        let Some(number) = self.queues.get(&nsid).and_then(first) else {
            return false;
        };
        match nsid {
            NSID_ALL => {
                let mut firsts = self.queues.values().filter_map(first);
                firsts.all(|other| other >= number)
            }
            _ => {
                let all = self.queues.get(&NSID_ALL).and_then(first);
                all.is_none_or(|all| all > number)
            }
        }
    }

    fn pop(&mut self, nsid: u32) -> Option<Running> {
        let queue = self.queues.get_mut(&nsid)?;
        let running = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&nsid);
        }
        running
    }

    /// Puts one that waits where it belongs; `false` where it is still the first of its namespace.
    fn put(&mut self, running: Running) -> bool {
        let released = running.operation.only_waits();
        match running.wait {
            Wait::Drain { .. } if released => self.draining.push_back(running),
            Wait::Keep { .. } if released => self.keeping.push_back(running),
            _ if running.operation.nsid == NSID_NONE => self.free.push_back(running),
            _ => {
                let queue = self.queues.entry(running.operation.nsid).or_default();
                queue.push_front(running);
                return false;
            }
        }
        true
    }
}

/// The rest of a turn.
struct Turn {
    erase: Budget,
    moves: usize,
    worked: bool,
}

impl Subsystem {
    pub(super) fn advance_operations<C: Channel>(&mut self, channels: &mut Channels<C>) -> bool {
        let mut turn = Turn {
            erase: Budget::TURN,
            moves: MOVES_PER_TURN,
            worked: false,
        };
        self.operations.turns = self.operations.turns.wrapping_add(1);
        let mut nsids: Vec<u32> = self.operations.queues.keys().copied().collect();
        if !nsids.is_empty() {
            let first = self.operations.turns % nsids.len();
            nsids.rotate_left(first);
        }
        for nsid in nsids {
            while turn.moves > 0
                && let Some(running) = self.take_first(nsid)
            {
                if !self.move_on(running, channels, &mut turn) {
                    break;
                }
            }
        }
        // What is created finds nothing that is left over from a namespace that had its identifier
        // before.
        for _ in 0..self.operations.free.len() {
            if turn.moves > 0
                && let Some(running) = self.operations.free.pop_front()
            {
                self.move_on(running, channels, &mut turn);
            }
        }
        self.advance_waiting(channels, &mut turn);
        turn.worked
    }

    /// Takes the first operation of a namespace out, where a turn moves it.
    fn take_first(&mut self, nsid: u32) -> Option<Running> {
        let first = self.operations.queues.get(&nsid)?.front()?;
        // A medium that was full may have room again.
        let tries = matches!(first.wait, Wait::Erase(_)) || self.can_move(first);
        if tries && self.operations.may_go(nsid) {
            self.operations.pop(nsid)
        } else {
            None
        }
    }

    /// Those that only wait, while the first of them has waited long enough.
    fn advance_waiting<C: Channel>(&mut self, channels: &mut Channels<C>, turn: &mut Turn) {
        let lists: [fn(&mut Self) -> &mut VecDeque<Running>; 2] = [
            |subsystem| &mut subsystem.operations.draining,
            |subsystem| &mut subsystem.operations.keeping,
        ];
        for list in lists {
            while turn.moves > 0
                && let Some(running) = list(self).pop_front()
            {
                if !self.can_move(&running) {
                    list(self).push_front(running);
                    break;
                }
                self.move_on(running, channels, turn);
            }
        }
    }

    /// Moves one on that was taken out; whether the next of its namespace may go on.
    fn move_on<C: Channel>(
        &mut self,
        mut running: Running,
        channels: &mut Channels<C>,
        turn: &mut Turn,
    ) -> bool {
        turn.moves = turn.moves.saturating_sub(1);
        match self.advance_one(&mut running, channels, &mut turn.erase) {
            Moved::Waits(worked) => {
                turn.worked |= worked;
                self.operations.put(running)
            }
            Moved::Ended(result) => {
                turn.worked = true;
                self.ended(running.operation.by.controller());
                self.answer(running.operation, result);
                true
            }
        }
    }

    /// Whether a turn would advance an operation.
    pub(super) fn operations_can_move(&self) -> bool {
        self.operations
            .moving()
            .any(|running| self.can_move(running))
    }
}
