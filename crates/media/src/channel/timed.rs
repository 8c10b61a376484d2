//! A medium with the timing of another drive: the bytes are on the medium below, and a model
//! determines completion times.
//!
//! A command completes when its bytes have moved and its modelled time has come, whichever is
//! later; where its hosts see completions later, so long before that time
//! ([`Model::release_early`]). Bytes move on arrival, as without timing, so a read returns the
//! contents at that time.
//!
//! One reactor has the channel, because a drive's behaviour depends on the order in which commands
//! arrive, and that order is the reactor's. While the model is stalled (its write buffer is full)
//! the channel reports no room, so that no more of the queue behind the command is fetched.
//!
//! Time comes in with [`Port::set_time`], once per turn, and a completion is found in the first
//! turn after it is due. A command arrives at the time of its turn, or with a clock
//! ([`TimedChannel::set_clock`]) at the time at which its lane found its host's notification
//! ([`Port::arrive`]).

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use memory::{DmaView, Segment};
use model::{
    Admission, Due, Flash, Model, Op, ParameterError, Parameters, Room, Snapshot, Timing as _,
};
use nvme_spec::command::DSM_RANGES_MAX;
use port::ticket::{Parked, Ticket};
use port::time::Time;
use port::{Added, Cause, Channel as Port, Done, Outcome, Request};

use super::Channel;
use super::lent::Lent;
use super::ops::{DEALLOCATED_PER_TURN, is_large, ops};
use crate::look::{Asked, Stalls, TimingLook};

/// Pages of a state snapshot copied in one turn: each takes about a nanosecond.
const SNAPSHOT_PER_TURN: u32 = 2048;
/// Maximum number of deallocated pieces that wait for their turns.
const PIECES: usize = 4 * DSM_RANGES_MAX;
/// Zone operations of one command passed to a model in one turn: a host may reset all zones with
/// one.
const TOLD_PER_TURN: usize = 256;

/// A deallocated range that must still be passed to the model.
#[derive(Clone, Copy, Debug)]
struct Piece {
    number: u32,
    offset: u64,
    len: u64,
}

/// A command with more operations than are passed to a model in one turn. They are still recorded
/// in the channel below, which gets no other command before all are passed on, so that the model
/// receives them in order.
#[derive(Clone, Copy, Debug)]
struct Untold {
    number: u32,
    /// Number of operations passed on.
    told: usize,
}

/// A command that was taken and is not done.
#[derive(Debug, Default)]
struct Held {
    /// The owner's ticket.
    ticket: Option<Parked>,
    outcome: Outcome,
    /// Number of pending events: its bytes, and each operation in the model.
    awaited: u32,
    /// Whether its operations are known only after its bytes have moved.
    asks_later: bool,
}

/// Clock for arrival times.
struct Clock(Box<dyn Fn() -> Time + Send>);

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clock({:?})", (self.0)())
    }
}

/// A reactor's handle on a medium with timing.
#[derive(Debug)]
pub(crate) struct TimedChannel {
    inner: Box<Channel>,
    model: Lent,
    /// The completed snapshot, until it is taken.
    snapshot: Option<Snapshot>,
    now: Time,
    /// Clock for arrival times; without one, commands arrive at the time of the turn.
    clock: Option<Clock>,
    /// Maximum number of commands.
    depth: usize,
    /// By number, which is a command's ticket in the channel below, and its identifier in the
    /// model.
    held: Vec<Held>,
    free: Vec<u32>,
    due: Vec<Due>,
    /// Pieces of large deallocations, in order.
    pieces: VecDeque<Piece>,
    untold: Option<Untold>,
    moved: Vec<Done>,
    /// Completed commands that were not reaped yet.
    done: Vec<Done>,
    asked: Asked,
    stalls: Cell<Stalls>,
    /// Start of the model's current stall, and the operation without room.
    stalled: Cell<Option<(Time, Op<'static>)>>,
}

impl TimedChannel {
    /// Creates a channel over `inner`, for at most `depth` commands.
    pub(crate) fn new(inner: Channel, model: Lent, depth: u16) -> Self {
        let depth = usize::from(depth);
        TimedChannel {
            inner: Box::new(inner),
            model,
            snapshot: None,
            now: Time(0),
            clock: None,
            depth,
            held: Vec::with_capacity(depth),
            free: Vec::with_capacity(depth),
            due: Vec::with_capacity(depth),
            pieces: VecDeque::with_capacity(PIECES),
            untold: None,
            moved: Vec::with_capacity(depth),
            done: Vec::with_capacity(depth),
            asked: Asked::default(),
            stalls: Cell::default(),
            stalled: Cell::new(None),
        }
    }

    /// The timing model.
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// Its model, with counters of the operations.
    pub(crate) fn look(&self) -> TimingLook<'_> {
        TimingLook {
            model: &self.model,
            asked: self.asked,
            stalls: self.stalls.get(),
        }
    }

    /// Submits an operation to the model; returns whether it was accepted.
    #[inline]
    fn submit_to_model(&mut self, number: u32, op: &Op<'_>) -> bool {
        let taken = self.model.submit(self.now.0, number.into(), op) == Admission::Accepted;
        if taken {
            self.asked.count(op);
        }
        taken
    }

    /// Records that the model has no room for an operation.
    #[cold]
    fn note_stall(&self, op: Op<'static>) {
        if self.stalled.get().is_none() {
            self.stalled.set(Some((self.now, op)));
            let Stalls { count, time_ns } = self.stalls.get();
            let count = count + 1;
            self.stalls.set(Stalls { count, time_ns });
        }
    }

    /// Ends a stall when the model has room, whether or not the operation is submitted again.
    #[cold]
    fn end_stall(&self, since: Time) {
        self.stalled.set(None);
        let Stalls { count, time_ns } = self.stalls.get();
        let time_ns = time_ns.saturating_add(self.now.since(since));
        self.stalls.set(Stalls { count, time_ns });
    }

    /// Changes the drive to another one of the same shape.
    pub(crate) fn retune(&mut self, timing: &Parameters) -> Result<(), ParameterError> {
        self.model.retune(timing)
    }

    /// See [`Channel::begin_snapshot`].
    pub(crate) fn begin_snapshot(&mut self, room: Room) {
        self.snapshot = None;
        if let Some(flash) = self.model.flash_mut() {
            flash.begin_snapshot(room);
        }
    }

    /// See [`Channel::take_snapshot`].
    pub(crate) fn take_snapshot(&mut self) -> Option<Snapshot> {
        self.snapshot.take()
    }

    /// Copies a part of the snapshot, if one is in progress.
    fn continue_snapshot(&mut self) {
        if let Some(flash) = self.model.flash_mut()
            && flash.takes_snapshot()
        {
            self.snapshot = flash.continue_snapshot(SNAPSHOT_PER_TURN);
        }
    }

    /// The channel below.
    pub(crate) fn inner(&self) -> &Channel {
        &self.inner
    }

    /// The channel below.
    pub(crate) fn inner_mut(&mut self) -> &mut Channel {
        &mut self.inner
    }

    /// See [`Channel::is_due`].
    pub(crate) fn is_due(&mut self) -> bool {
        !self.done.is_empty() || self.has_to_tell() || self.inner.is_due()
    }

    /// Whether the model has room for all operations of a request.
    fn has_room(&self, request: &Request<'_>) -> bool {
        let pieces = if is_large(request) {
            ops(request).count()
        } else {
            0
        };
        let needed = self.inner.needs(request);
        let mut ops = ops(request).chain(needed);
        if let Some(op) = ops.find(|op| !self.model.has_room(op)) {
            self.note_stall(op);
            return false;
        }
        self.untold.is_none() && self.pieces.len() + pieces <= PIECES
    }

    /// Whether operations must be passed to the model in the next turn.
    fn has_to_tell(&self) -> bool {
        !self.pieces.is_empty() || self.untold.is_some()
    }

    /// Number of commands.
    fn holds(&self) -> usize {
        self.held.len() - self.free.len() + self.done.len()
    }

    /// A number for a command; `None` where all are taken.
    fn number(&mut self) -> Option<u32> {
        // Those that are done and not told count: who reaps has room for so many.
        if self.holds() >= self.depth {
            return None;
        }
        if let Some(number) = self.free.pop() {
            return Some(number);
        }
        self.held.push(Held::default());
        u32::try_from(self.held.len() - 1).ok()
    }

    /// Handles one of a command's pending events.
    fn happened(&mut self, number: u32) {
        let held = &mut self.held[number as usize];
        held.awaited -= 1;
        if held.awaited == 0
            && let Some(parked) = held.ticket.take()
        {
            self.free.push(number);
            self.done.push(Done {
                ticket: parked.unpark(),
                outcome: held.outcome,
            });
        }
    }

    /// Submits all operations of a request to the model.
    fn ask(&mut self, number: u32, request: &Request<'_>) {
        let large = is_large(request);
        for op in ops(request) {
            if let Op::Deallocate { offset, len } = op
                && large
            {
                self.held[number as usize].awaited += 1;
                self.pieces.push_back(Piece {
                    number,
                    offset,
                    len,
                });
                continue;
            }
            // There was room for each of them, but the first of several may have used it; an
            // operation without room is not waited for.
            if self.submit_to_model(number, &op) {
                self.held[number as usize].awaited += 1;
            }
        }
    }

    /// Submits the operations that the channel below performed for a command, or the next part of
    /// them.
    fn tell(&mut self, Untold { number, told }: Untold) {
        let Some(happened) = self.inner.happened() else {
            return;
        };
        let parts = happened.iter().skip(told).take(TOLD_PER_TURN);
        for op in parts {
            // There was room before the command; an operation without room is not waited for.
            if self.model.submit(self.now.0, number.into(), op) == Admission::Accepted {
                self.asked.count(op);
                self.held[number as usize].awaited += 1;
            }
        }
        let told = told + TOLD_PER_TURN;
        self.untold = (told < happened.len()).then_some(Untold { number, told });
    }

    /// Continues to submit postponed operations.
    fn tell_more(&mut self) {
        let Some(untold) = self.untold else {
            return;
        };
        self.tell(untold);
        if self.untold.is_none() {
            self.happened(untold.number);
        }
    }

    /// Submits a part of the deallocated ranges.
    fn deallocate(&mut self) {
        let mut left = DEALLOCATED_PER_TURN;
        while left > 0
            && let Some(piece) = self.pieces.front_mut()
        {
            let Piece { number, offset, .. } = *piece;
            let len = piece.len.min(left);
            left -= len;
            piece.offset += len;
            piece.len -= len;
            let ended = piece.len == 0;
            let op = Op::Deallocate { offset, len };
            if self.submit_to_model(number, &op) {
                self.held[number as usize].awaited += 1;
            }
            if ended {
                self.pieces.pop_front();
                self.happened(number);
            }
        }
    }

    /// See [`Channel::set_clock`].
    pub(crate) fn set_clock(&mut self, clock: impl Fn() -> Time + Send + 'static) {
        self.clock = Some(Clock(Box::new(clock)));
    }

    /// Advances the model to the current time, and takes its completions.
    fn advance(&mut self) {
        self.model.advance(self.now.0, &mut self.due);
        for at in 0..self.due.len() {
            self.happened(self.due[at].id as u32);
        }
        self.due.clear();
        if let Some((since, op)) = self.stalled.get()
            && self.model.has_room(&op)
        {
            self.end_stall(since);
        }
    }

    /// Submits the operations of the last key-value command, which are known only after it was
    /// performed. Returns false if they are unknown, or not yet known: the number of returned keys
    /// is known at the end.
    fn ask_what_was_done(&mut self, number: u32) -> bool {
        let Some(op) = self.inner.last_op() else {
            return false;
        };
        if self.model.submit(self.now.0, number.into(), &op) == Admission::Accepted {
            self.asked.count(&op);
            self.held[number as usize].awaited += 1;
        }
        true
    }

    /// Handles the end of a command's data transfer.
    fn bytes_moved(&mut self, ticket: Ticket, outcome: Outcome) {
        let Some(number) = ticket.number() else {
            debug_assert!(false, "not one of ours: {ticket:?}");
            return ticket.retire();
        };
        ticket.retire();
        let held = &mut self.held[number as usize];
        held.outcome = outcome;
        if std::mem::take(&mut held.asks_later) {
            self.ask_what_was_done(number);
        }
        self.happened(number);
    }
}

impl TimedChannel {
    /// [`Port::add`]; [`Port::add_again`] of a request with a note.
    #[inline]
    fn take(
        &mut self,
        ticket: Ticket,
        (request, note): (&Request<'_>, Option<u64>),
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        if !self.has_room(request) {
            return Added::Full(ticket);
        }
        let Some(number) = self.number() else {
            return Added::Full(ticket);
        };
        let below = Ticket::numbered(number);
        let added = match note {
            Some(note) => self.inner.add_again(below, (request, note), segments, view),
            None => self.inner.add(below, request, segments, view),
        };
        let moved = match added {
            Added::Full(below) => {
                below.retire();
                self.free.push(number);
                return Added::Full(ticket);
            }
            Added::Pending => None,
            Added::Done(below, outcome) => Some((below, outcome)),
        };
        self.held[number as usize] = Held {
            ticket: Some(ticket.park()),
            outcome: Outcome::OK,
            awaited: 1,
            asks_later: false,
        };
        // A request that failed at once takes no time of the drive's.
        if !matches!(moved, Some((_, outcome)) if is_refused(outcome)) {
            if self.inner.happened().is_some() {
                self.tell(Untold { number, told: 0 });
                // The command does not complete before all of its operations are submitted.
                self.held[number as usize].awaited += u32::from(self.untold.is_some());
            } else {
                self.ask(number, request)
            }
        }
        // The operations of a key-value command follow from its effects. A missing key takes as
        // much time as an existing one.
        if matches!(request, Request::Command { .. }) && !self.ask_what_was_done(number) {
            self.held[number as usize].asks_later = moved.is_none();
        }
        if let Some((below, outcome)) = moved {
            self.bytes_moved(below, outcome);
        }
        Added::Pending
    }
}

impl Port for TimedChannel {
    #[inline(never)]
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        self.take(ticket, (request, None), segments, view)
    }

    fn note(&self, request: &Request<'_>) -> Option<u64> {
        self.inner.note(request)
    }

    fn uses_note(&self, note: u64) -> bool {
        self.inner.uses_note(note)
    }

    fn has_begun(&self, request: &Request<'_>, note: u64) -> bool {
        self.inner.has_begun(request, note)
    }

    #[cold]
    fn add_again(
        &mut self,
        ticket: Ticket,
        (request, note): (&Request<'_>, u64),
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        self.take(ticket, (request, Some(note)), segments, view)
    }

    fn submit(&mut self) {
        self.inner.submit();
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.inner.in_flight() > 0 {
            let mut moved = std::mem::take(&mut self.moved);
            self.inner.reap(&mut moved);
            for Done { ticket, outcome } in moved.drain(..) {
                self.bytes_moved(ticket, outcome);
            }
            self.moved = moved;
        }
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> u32 {
        // The channel below may have requests of its own in flight, which must be reaped, too.
        (self.holds() as u32).max(self.inner.in_flight())
    }

    fn is_full(&self, request: &Request<'_>) -> bool {
        !self.has_room(request) || self.inner.is_full(request)
    }

    fn copies(&self) -> bool {
        self.inner.copies()
    }

    fn expect(&self, offset: u64, len: u64) {
        self.inner.expect(offset, len);
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn set_time(&mut self, now: Time, done: &mut Vec<Done>) {
        self.now = self.now.max(now);
        self.advance();
        self.deallocate();
        self.tell_more();
        self.continue_snapshot();
        done.append(&mut self.done);
    }

    /// Sets the arrival time: not before the host's notification, and not after it was found. An
    /// interrupted turn may find commands younger than its own time, which would complete too
    /// early, and fetching an entry takes long.
    fn arrive(&mut self) {
        if let Some(Clock(clock)) = &self.clock {
            self.now = self.now.max(clock());
            self.advance();
        }
    }

    fn next_due(&self) -> Option<Time> {
        let snapshot = self.model.flash().is_some_and(Flash::takes_snapshot);
        let copying = self.inner.copies() && self.inner.in_flight() > 0;
        let at_once = copying || snapshot || !self.done.is_empty() || self.has_to_tell();
        let told = at_once.then_some(self.now);
        told.or(self.model.next_event().map(Time))
    }
}

/// Whether a request had no effect at all.
fn is_refused(outcome: Outcome) -> bool {
    matches!(outcome.cause, Cause::Unsupported | Cause::Status(_))
}
