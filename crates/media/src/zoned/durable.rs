//! Durability of zones on a file. Nothing here applies to zones in memory.
//!
//! - A flush, and the end of a durable write, wait until all changes are in the log, and written;
//!   then the medium below is flushed, which makes bytes and log durable together.
//! - A reset is in the log, and durable, before its bytes are erased: a zone never comes back in
//!   its old state without its bytes. The erasure is durable before the reset ends: old data never
//!   comes back before a later write pointer. One reset runs at a time.
//! - Changes without a flush are recorded periodically ([`ZonedChannel::tend`]).

use std::collections::VecDeque;
use std::sync::Arc;

use memory::DmaView;
use port::ticket::{Parked, Ticket};
use port::{Added, Cause, Channel as Port, Done, Outcome, Request};

use super::keeper::Keeper;
use super::{Out, Taken, ZonedChannel};
use crate::journal::Journal;

/// Tickets that wait for the log.
#[derive(Debug)]
pub(super) struct Waiting {
    /// By ticket: the position up to which the log must be written, `None` if that is not known
    /// before the changes are recorded.
    held: VecDeque<Held>,
    /// Ranges of the current reset that are erased; `None` while the reset is not durable.
    erased: Option<usize>,
    /// Completions without the medium below.
    failed: Vec<Done>,
    /// Completions of the medium below.
    below: Vec<Done>,
    depth: usize,
    /// View for requests without data.
    nothing: Arc<DmaView>,
}

#[derive(Debug)]
struct Held {
    ticket: Parked,
    until: Option<u64>,
    what: Step,
}

/// Step after the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A flush, of a host, or for a durable write with this result.
    Flush(Option<u64>),
    /// A flush for a reset, and then its ranges.
    Reset,
}

impl Waiting {
    pub(super) fn new(depth: u16) -> Self {
        let depth = usize::from(depth);
        Waiting {
            // Up to `depth` flushes, and as many durable writes.
            held: VecDeque::with_capacity(2 * depth),
            erased: None,
            failed: Vec::with_capacity(2 * depth),
            below: Vec::with_capacity(depth),
            depth,
            nothing: DmaView::empty(),
        }
    }

    /// Tickets held here, without those of the medium below.
    pub(super) fn count(&self) -> u32 {
        (self.held.len() + self.failed.len()) as u32
    }

    /// Whether no more flushes are accepted.
    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= self.depth
    }

    fn hold(&mut self, ticket: Ticket, what: Step) {
        self.held.push_back(Held {
            ticket: ticket.park(),
            until: None,
            what,
        });
    }
}

impl<C> ZonedChannel<C> {
    /// Whether the zones have a log.
    pub(super) fn is_kept(&self) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|state| state.keeper.is_some())
    }

    /// The keeper of zones with a log.
    pub(super) fn keeper(&mut self) -> Option<&mut Keeper> {
        self.state().keeper.as_mut()
    }

    /// Whether a flush must wait for the log.
    pub(super) fn is_behind(&mut self) -> bool {
        self.keeper().is_some_and(|keeper| !keeper.is_clean())
    }

    /// Holds a host's flush, which waits for the log.
    pub(super) fn hold_flush(&mut self, ticket: Ticket) {
        self.retry();
        self.waiting.hold(ticket, Step::Flush(None));
    }

    /// Holds a write that must be durable before it ends with this result.
    pub(super) fn hold_write(&mut self, ticket: Ticket, result: u64) {
        self.retry();
        self.waiting.hold(ticket, Step::Flush(Some(result)));
    }

    /// Holds a reset of zones that are empty from now on, whose ranges are known. No other reset
    /// begins meanwhile.
    pub(super) fn hold_reset(&mut self, ticket: Ticket) {
        self.retry();
        self.waiting.erased = None;
        self.waiting.hold(ticket, Step::Reset);
    }

    /// Retries a stalled log: for tickets that wait for it, or because a successful write shows
    /// that there is room.
    fn retry(&mut self) {
        if let Some(keeper) = self.keeper() {
            keeper.journal.retry();
        }
    }

    /// Whether the log has work that does not wait for a request; [`ZonedChannel::tend`] does it.
    pub(crate) fn has_to_record(&self) -> bool {
        let state = self.state.as_ref();
        let keeper = state.and_then(|state| state.keeper.as_ref());
        keeper.is_some_and(Keeper::is_due)
    }
}

impl<C: Port> ZonedChannel<C> {
    /// Periodic work: records changes, also if no request waits for them.
    pub(crate) fn tend(&mut self) {
        if self.has_to_record() {
            if let Some(keeper) = self.keeper() {
                keeper.journal.begin_turn();
            }
            self.record();
            self.drive();
            self.below.submit();
        }
    }

    /// Records changes; returns false if some remain.
    fn record(&mut self) -> bool {
        let Some(state) = &mut self.state else {
            return true;
        };
        let all = state.record(&self.out);
        if let Some(keeper) = &mut state.keeper {
            keeper.journal.seal();
        }
        all
    }

    /// Hands the work of the log, and of the tickets that wait for it, to the medium below, as far
    /// as it has room.
    pub(super) fn drive(&mut self) {
        if !self.is_kept() {
            return;
        }
        if self.waiting.held.iter().any(|held| held.until.is_none()) && self.record() {
            let end = self.keeper().map(|keeper| keeper.journal.end());
            let unknown = self.waiting.held.iter_mut();
            for held in unknown.filter(|held| held.until.is_none()) {
                held.until = end;
            }
        }
        let below = &mut self.below;
        let Some(keeper) = self.state.as_mut().and_then(|state| state.keeper.as_mut()) else {
            return;
        };
        keeper.journal.drive(below);
        let (settled, stalled) = (keeper.journal.settled(), keeper.journal.stalled());
        let is_due = |held: &mut Held| held.until.is_some_and(|until| until <= settled);
        while let Some(held) = self.waiting.held.pop_front_if(is_due) {
            if let Some(held) = self.go_on(held) {
                self.waiting.held.push_front(held);
                break;
            }
        }
        if let Some(outcome) = stalled {
            self.fail_held(settled, outcome);
        }
    }

    /// The next step of what has waited for the log. It comes back where the medium below has no
    /// room.
    fn go_on(&mut self, held: Held) -> Option<Held> {
        let Held {
            ticket,
            until,
            what,
        } = held;
        let request = match (what, self.waiting.erased) {
            (Step::Reset, Some(erased)) => {
                let range = self.ranges[erased];
                Request::WriteZeroes {
                    offset: range.offset,
                    len: range.len,
                    deallocate: true,
                    fua: erased + 1 == self.ranges.len(),
                }
            }
            _ => Request::Flush,
        };
        let ticket = ticket.unpark();
        let id = Some(ticket.id());
        match self.below.add(ticket, &request, &[], &self.waiting.nothing) {
            Added::Full(ticket) => {
                let ticket = ticket.park();
                return Some(Held {
                    ticket,
                    until,
                    what,
                });
            }
            Added::Pending => {
                if let Step::Flush(Some(result)) = what {
                    let what = Taken::Synced { result };
                    self.out.push(Out { id, what });
                }
            }
            Added::Done(ticket, outcome) => {
                if let Step::Flush(Some(result)) = what {
                    let outcome = self.ended(Taken::Synced { result }, outcome);
                    self.waiting.failed.push(Done { ticket, outcome });
                } else if let Some(done) = self.below_ended(Done { ticket, outcome }) {
                    self.waiting.failed.push(done);
                }
            }
        }
        None
    }

    /// The log cannot be written now: fails everything that waits for unwritten records.
    fn fail_held(&mut self, settled: u64, outcome: Outcome) {
        let waits = |held: &mut Held| held.until.is_none_or(|until| until > settled);
        while let Some(held) = self.waiting.held.pop_back_if(waits) {
            let ticket = held.ticket.unpark();
            let outcome = match self.take_out(&ticket) {
                Some(what) => self.ended(what, outcome),
                None => outcome,
            };
            self.waiting.failed.push(Done { ticket, outcome });
        }
    }

    /// Takes completions of the medium below.
    pub(super) fn reap_kept(&mut self, done: &mut Vec<Done>) {
        if let Some(keeper) = self.keeper() {
            keeper.journal.begin_turn();
        }
        let mut below = std::mem::take(&mut self.waiting.below);
        self.below.reap(&mut below);
        let any = !below.is_empty();
        for ended in below.drain(..) {
            if !Journal::owns(&ended.ticket) {
                done.extend(self.below_ended(ended));
            } else if let Some(keeper) = self.keeper() {
                keeper.journal.complete(ended.ticket, ended.outcome);
            }
        }
        self.waiting.below = below;
        if any || !self.waiting.held.is_empty() {
            self.drive();
            self.below.submit();
        }
        done.append(&mut self.waiting.failed);
    }

    /// Handles a host's request that the medium below has completed: returns it, or continues with
    /// its next part.
    pub(super) fn below_ended(&mut self, Done { ticket, outcome }: Done) -> Option<Done> {
        let succeeded = outcome.cause == Outcome::OK.cause;
        let Some(what) = self.take_out(&ticket) else {
            return Some(Done { ticket, outcome });
        };
        match what {
            Taken::Write {
                zone,
                moves_to,
                result,
                fua,
                from,
            } => {
                if outcome.cause == Cause::NoSpace && self.is_kept() {
                    let range = (zone, from, moves_to);
                    return self.undo(ticket, range, outcome);
                }
                if let Some(keeper) = self.keeper()
                    && succeeded
                {
                    keeper.moved(zone, moves_to);
                    keeper.journal.retry();
                    if self.rewinds {
                        self.rewind(zone, true);
                    }
                    if fua {
                        self.hold_write(ticket, result);
                        return None;
                    }
                }
            }
            Taken::Undo { zone, .. } => self.rewind(zone, succeeded),
            Taken::Erase { .. } if succeeded && self.is_kept() => {
                let erased = self.waiting.erased.map_or(0, |erased| erased + 1);
                if erased < self.ranges.len() {
                    self.waiting.erased = Some(erased);
                    let id = Some(ticket.id());
                    self.out.push(Out { id, what });
                    // Nothing is to be recorded before it.
                    self.waiting.held.push_front(Held {
                        ticket: ticket.park(),
                        until: Some(0),
                        what: Step::Reset,
                    });
                    return None;
                }
            }
            _ => {}
        }
        let outcome = self.ended(what, outcome);
        Some(Done { ticket, outcome })
    }

    /// A write found no space: zeroes the part that was written, before the write ends with this
    /// outcome.
    fn undo(
        &mut self,
        ticket: Ticket,
        (zone, from, to): (u32, u64, u64),
        outcome: Outcome,
    ) -> Option<Done> {
        let request = Request::WriteZeroes {
            offset: self.zones().start(zone) + from,
            len: to.saturating_sub(from),
            deallocate: true,
            fua: false,
        };
        let id = Some(ticket.id());
        let is_whole = to > from && !self.zones().get(zone).random;
        let added = if is_whole {
            self.below.add(ticket, &request, &[], &self.waiting.nothing)
        } else {
            Added::Full(ticket)
        };
        match added {
            Added::Pending => {
                let what = Taken::Undo { zone, outcome };
                self.out.push(Out { id, what });
                None
            }
            Added::Done(ticket, undone) => {
                self.rewind(zone, undone.cause == Outcome::OK.cause);
                Some(Done { ticket, outcome })
            }
            Added::Full(ticket) => {
                self.rewind(zone, false);
                Some(Done { ticket, outcome })
            }
        }
    }

    /// Moves a zone's write pointer back to the end of the successful writes, once none is in
    /// flight to the zone.
    fn rewind(&mut self, zone: u32, is_clean: bool) {
        self.rewinds = true;
        if self.out.iter().any(|out| out.what.is_write_to(zone)) {
            return;
        }
        let Some(to) = self.keeper().map(|keeper| keeper.ended(zone)) else {
            return;
        };
        self.zones().rewind(zone, to, is_clean);
        if let Some(keeper) = self.keeper() {
            keeper.touch(zone);
        }
    }

    pub(super) fn take_out(&mut self, ticket: &Ticket) -> Option<Taken> {
        let at = self.out.iter().position(|out| out.is_for(ticket))?;
        Some(self.out.swap_remove(at).what)
    }
}
