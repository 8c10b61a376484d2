//! Durability of pairs: commands change pairs in memory and append to the log; a flush, or a
//! command that must be durable, waits until the log is written, and then for a flush of the file.

use std::collections::VecDeque;
use std::sync::Arc;

use memory::DmaView;
use port::ticket::{Parked, Ticket, TicketId};
use port::{Added, Channel as Port, Done, Outcome, Request};

use super::log::Log;
use super::logged::LoggedPairs;
use crate::journal::{BLOCK, Journal, Writable};

/// Whether a changing command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admits {
    Yes,
    /// The log has no room for it yet.
    Later,
    /// The log cannot be written.
    Never(Outcome),
}

/// Event that a ticket waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Until all changes are durable.
    Flushed,
    /// Until they are in the file, so that a death of the process does not lose them.
    Written,
    /// The same, for a command that has changed nothing, but has seen them.
    SeenIsWritten,
}

/// A ticket that waits for the log.
#[derive(Debug)]
struct Held {
    ticket: Parked,
    /// How far the log must be written.
    until: u64,
    waits: Until,
    /// Its outcome if that succeeds.
    outcome: Outcome,
}

/// A ticket for which the file is flushed.
#[derive(Debug)]
struct Flushing {
    id: TicketId,
    /// How it ends where that succeeds.
    outcome: Outcome,
}

/// The channel of a file, and who waits for it.
#[derive(Debug)]
pub(super) struct Durable<C> {
    below: C,
    /// Tickets that wait for the log, in its order.
    held: VecDeque<Held>,
    /// Those that wait for a flush.
    flushing: Vec<Flushing>,
    /// Requests that ended without the file.
    ended: Vec<Done>,
    /// Requests that the file has completed.
    reaped: Vec<Done>,
    depth: usize,
    /// Bytes that a checkpoint appends per turn, and the rest in this turn.
    slice: u32,
    left: u32,
    /// View for requests without data.
    nothing: Arc<DmaView>,
}

impl<C> Durable<C> {
    pub(super) fn new(below: C, depth: u16) -> Self {
        let depth = usize::from(depth);
        Durable {
            below,
            held: VecDeque::with_capacity(depth),
            flushing: Vec::with_capacity(depth),
            ended: Vec::with_capacity(depth),
            reaped: Vec::with_capacity(depth),
            depth,
            slice: 0,
            left: 0,
            nothing: DmaView::empty(),
        }
    }

    pub(super) fn below(&self) -> &C {
        &self.below
    }

    pub(super) fn below_mut(&mut self) -> &mut C {
        &mut self.below
    }

    /// Sets the bytes that a checkpoint appends per turn, which is also the limit of log writes.
    pub(super) fn set_slice(&mut self, slice: u32, log: &mut Log) {
        (self.slice, self.left) = (slice, slice);
        log.journal.set_slice(slice.next_multiple_of(BLOCK as u32));
    }

    /// Gives up what has ended and was not taken: the channel ends.
    pub(super) fn give_up(&mut self) {
        for done in self.ended.drain(..) {
            done.ticket.retire();
        }
    }

    fn waits(&self) -> usize {
        self.held.len() + self.flushing.len() + self.ended.len()
    }

    /// Whether the log has work that does not wait for a request.
    pub(super) fn is_due(&self, pairs: &mut LoggedPairs) -> bool {
        pairs.log_mut().is_some_and(|log| {
            let idle = log.journal.in_flight() == 0 && log.journal.stalled().is_none();
            idle && (log.is_in_checkpoint() || !log.journal.is_settled())
        })
    }

    /// Continues a checkpoint, up to `most` bytes and the rest of this turn.
    fn checkpoint(&mut self, pairs: &mut LoggedPairs, most: impl FnOnce(&Log) -> u64) {
        let left = &mut self.left;
        pairs.record(|log, pairs| {
            let now = most(log).min((*left).into()) as u32;
            log.checkpoint(pairs, now);
            *left -= now;
        });
    }
}

impl<C: Port> Durable<C> {
    /// Tickets and requests in flight.
    pub(super) fn in_flight(&self) -> u32 {
        self.below.in_flight() + (self.held.len() + self.ended.len()) as u32
    }

    /// Whether a changing command may run, and is then possibly held. A command that takes no space
    /// runs even while the log cannot be written, and its record waits in memory.
    pub(super) fn admits(&self, pairs: &mut LoggedPairs, holds: bool, frees: bool) -> Admits {
        let Some(log) = pairs.log_mut() else {
            return Admits::Yes;
        };
        let has_room = log.has_room() && (!holds || self.has_place());
        if frees && has_room {
            log.journal.retry();
            return Admits::Yes;
        }
        match log.journal.writable() {
            Writable::No(outcome) => Admits::Never(outcome),
            Writable::Yes if has_room => Admits::Yes,
            Writable::Yes | Writable::Later => Admits::Later,
        }
    }

    /// Called after a change that is in the log. `copied`: the turn copied a slice for it, and a
    /// checkpoint must wait.
    pub(super) fn changed(&mut self, pairs: &mut LoggedPairs, copied: bool) {
        self.checkpoint(pairs, |log| if copied { 0 } else { log.owes() });
        // If every change waits for its frame, the end of the batch writes one for all of them.
        if !pairs.outlives() {
            self.drive(pairs);
        }
    }

    /// Whether a command that has seen the pairs has to wait for the log: a change that it has seen
    /// may otherwise be lost with the process, or happen again in another order.
    pub(super) fn sees_unwritten(&self, pairs: &LoggedPairs) -> bool {
        let is_unwritten = |log: &Log| !log.journal.is_settled() && log.journal.stalled().is_none();
        pairs.outlives() && pairs.log().is_some_and(is_unwritten)
    }

    /// Whether one more ticket may wait.
    pub(super) fn has_place(&self) -> bool {
        self.waits() < self.depth
    }

    /// Completes a ticket with this outcome once all changes are where it waits for them.
    pub(super) fn hold(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        pairs: &mut LoggedPairs,
        waits: Until,
    ) {
        if waits != Until::SeenIsWritten
            && let Some(log) = pairs.log_mut()
        {
            log.journal.retry();
        }
        self.held.push_back(Held {
            ticket: ticket.park(),
            until: u64::MAX,
            waits,
            outcome,
        });
    }

    /// A host's flush.
    pub(super) fn flush(&mut self, ticket: Ticket, pairs: &mut LoggedPairs) -> Added {
        if !self.has_place() {
            return Added::Full(ticket);
        }
        self.hold(ticket, Outcome::OK, pairs, Until::Flushed);
        self.drive(pairs);
        Added::Pending
    }

    pub(super) fn submit(&mut self, pairs: &mut LoggedPairs) {
        self.drive(pairs);
        self.below.submit();
    }

    /// Periodic work: writes records that no request waits for, and continues a checkpoint.
    pub(super) fn tend(&mut self, pairs: &mut LoggedPairs) {
        if !self.is_due(pairs) {
            return;
        }
        if let Some(log) = pairs.log_mut()
            && !log.is_in_checkpoint()
        {
            log.journal.seal();
        }
        self.end_turn(pairs, false);
    }

    /// Runs the checkpoint's share of a turn, and ends the turn. `copied`: the turn copied a
    /// command's slice.
    fn end_turn(&mut self, pairs: &mut LoggedPairs, copied: bool) {
        // A checkpoint in between could use the room in the log that the command needs.
        if !copied {
            self.checkpoint(pairs, |_| u64::MAX);
        }
        self.submit(pairs);
        self.left = self.slice;
        if let Some(log) = pairs.log_mut() {
            log.journal.begin_turn();
        }
    }

    /// Hands pending work to the file, as far as it has room.
    fn drive(&mut self, pairs: &mut LoggedPairs) {
        let Some(log) = pairs.log_mut() else {
            return;
        };
        let journal = &mut log.journal;
        // A frame does not end before its last record.
        if self.held.back().is_some_and(|held| held.until == u64::MAX) && journal.is_whole() {
            journal.seal();
            let end = journal.end();
            let unknown = self.held.iter_mut().rev();
            for held in unknown.take_while(|held| held.until == u64::MAX) {
                held.until = end;
            }
        }
        journal.drive(&mut self.below);
        let stalled = journal.stalled();
        let is_due = |held: &mut Held| stalled.is_some() || held.until <= journal.settled();
        while let Some(held) = self.held.pop_front_if(is_due) {
            let Held {
                ticket,
                until,
                waits,
                outcome,
            } = held;
            let (ticket, wanted) = (ticket.unpark(), outcome);
            let id = ticket.id();
            let failed = stalled.filter(|_| until > journal.settled());
            if waits == Until::SeenIsWritten || (waits == Until::Written && failed.is_none()) {
                self.ended.push(Done { ticket, outcome });
                continue;
            }
            if let Some(outcome) = failed {
                self.ended.push(Done { ticket, outcome });
                continue;
            }
            match self.below.add(ticket, &Request::Flush, &[], &self.nothing) {
                Added::Pending => self.flushing.push(Flushing {
                    id,
                    outcome: wanted,
                }),
                Added::Done(ticket, flushed) => {
                    let outcome = ends(wanted, flushed);
                    self.ended.push(Done { ticket, outcome });
                }
                Added::Full(ticket) => {
                    self.held.push_front(Held {
                        ticket: ticket.park(),
                        until,
                        waits,
                        outcome: wanted,
                    });
                    break;
                }
            }
        }
    }

    /// Takes completions of the file, at the end of a turn. `copied`: see [`Durable::changed`].
    pub(super) fn reap(&mut self, pairs: &mut LoggedPairs, done: &mut Vec<Done>, copied: bool) {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.below.reap(&mut reaped);
        for Done { ticket, outcome } in reaped.drain(..) {
            if Journal::owns(&ticket) {
                if let Some(log) = pairs.log_mut() {
                    log.journal.complete(ticket, outcome);
                } else {
                    ticket.retire();
                }
                continue;
            }
            let id = ticket.id();
            let at = self.flushing.iter().position(|flushing| flushing.id == id);
            let outcome = at.map_or(outcome, |at| {
                ends(self.flushing.swap_remove(at).outcome, outcome)
            });
            done.push(Done { ticket, outcome });
        }
        self.reaped = reaped;
        self.end_turn(pairs, copied);
        done.append(&mut self.ended);
    }
}

/// How a ticket ends that is to end as `wanted` where a flush succeeds, which ended as `flushed`.
fn ends(wanted: Outcome, flushed: Outcome) -> Outcome {
    if flushed.cause == Outcome::OK.cause {
        wanted
    } else {
        flushed
    }
}
