//! A medium with the time of another drive: its bytes are where they are, and a model says when
//! commands are done.
//!
//! A command is done here when its bytes have moved and its time has come, whichever is later.
//! Bytes move when it arrives, as on the medium without a time, so what is read is what was there
//! then.
//!
//! One reactor has the channel: what a drive does depends on the order in which commands arrive,
//! and that order is the reactor's. A stall of the model (its write buffer is full) is a channel
//! without room, so that the queue behind the command is not fetched further.
//!
//! Time comes in with [`Port::set_time`], once a turn, and what is done is found at the first turn
//! after it is due. What arrives in a turn arrives at its time, or where there is a clock
//! ([`TimedChannel::set_clock`]) at the time at which its lane found that its host has told of it
//! ([`Port::arrive`]).

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use memory::{DmaView, Segment};
use model::{
    Admission, Due, Flash, Model, Op, ParameterError, Parameters, Prepared, Recording, Room,
    Snapshot, Timing as _,
};
use nvme_spec::command::DSM_RANGES_MAX;
use port::ticket::{Parked, Ticket};
use port::time::Time;
use port::{Added, Cause, Channel as Port, Done, Outcome, Request};

use super::Channel;
use crate::look::{Asked, Stalls, TimingLook};
use crate::zoned::ZonedMedium;

/// Bytes of deallocations that a model is told of in one turn: to forget a page takes it 8 to
/// 25 ns, and a host may deallocate a whole drive with one command.
const DEALLOCATED_PER_TURN: u64 = 1 << 20;
/// Pages of a snapshot of the model's state that are taken in one turn: to copy what is known of
/// one takes about a nanosecond.
const SNAPSHOT_PER_TURN: u32 = 2048;
/// Pieces of deallocations that may wait for their turns.
const PIECES: usize = 4 * DSM_RANGES_MAX;
/// Things that one command has done to zones that a model is told of in one turn: a host may reset
/// all zones with one.
const TOLD_PER_TURN: usize = 256;

/// Bytes that a model has still to be told are deallocated.
#[derive(Clone, Copy, Debug)]
struct Piece {
    number: u32,
    offset: u64,
    len: u64,
}

/// A command that has done more than a model is told of in one turn. What it has done is still with
/// the channel below, which is asked for nothing else before all is told: the model learns it in
/// its order.
#[derive(Clone, Copy, Debug)]
struct Untold {
    number: u32,
    /// How much of it is told.
    told: usize,
}

/// A command that was taken and is not done.
#[derive(Debug, Default)]
struct Held {
    /// The owner's ticket.
    ticket: Option<Parked>,
    outcome: Outcome,
    /// What has still to happen: its bytes, and each part that the model was asked for.
    awaited: u32,
    /// What it is to the model is known when its bytes have moved.
    asks_later: bool,
}

/// The drive whose time a medium has, if any: for those who open channels and change it, not for
/// commands.
#[derive(Debug, Default)]
#[expect(clippy::disallowed_types, reason = "no command comes here")]
pub(crate) struct Timing(std::sync::Mutex<Option<Drive>>);

#[derive(Debug)]
struct Drive {
    parameters: Parameters,
    /// With a channel while there is one.
    model: Option<Model>,
}

impl Timing {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Drive>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn parameters(&self) -> Option<Parameters> {
        self.lock().as_ref().map(|drive| drive.parameters.clone())
    }

    pub(crate) fn is_there(&self) -> bool {
        self.lock().is_some()
    }

    /// Has the time of this drive from now on.
    pub(crate) fn put(&self, parameters: Parameters, model: Model) {
        *self.lock() = Some(Drive {
            parameters,
            model: Some(model),
        });
    }

    /// Tells the drive, where there is one that no channel has, what is written of its zones.
    pub(crate) fn tell_zones(&self, zones: &ZonedMedium) {
        let mut drive = self.lock();
        let model = drive.as_mut().and_then(|drive| drive.model.as_mut());
        if let Some(model) = model.and_then(Model::zones_mut) {
            zones.written(|zone, bytes, is_full| model.restore_fill(zone, bytes, is_full));
        }
    }

    /// Other parameters of the drive that is there, which a channel that has it knows already.
    pub(crate) fn retune(&self, parameters: Parameters) -> Result<(), ParameterError> {
        if let Some(drive) = &mut *self.lock() {
            if let Some(model) = &mut drive.model {
                model.retune(&parameters)?;
            }
            drive.parameters = parameters;
        }
        Ok(())
    }

    /// Looks at the drive that no channel has.
    pub(crate) fn at_rest<T>(&self, looks: impl FnOnce(&Model) -> T) -> Option<T> {
        let drive = self.lock();
        Some(looks(drive.as_ref()?.model.as_ref()?))
    }

    /// The drive, where there is one that no channel has.
    pub(crate) fn lend(self: &Arc<Self>) -> Option<Lent> {
        let model = self.lock().as_mut()?.model.take()?;
        Some(Lent {
            model: Some(model),
            home: Arc::clone(self),
        })
    }

    /// The state of the drive that no channel has, where it has one beside the medium's.
    pub(crate) fn state(&self) -> Option<Vec<u8>> {
        let drive = self.lock();
        let flash = drive.as_ref()?.model.as_ref()?.flash()?;
        let mut bytes = Vec::new();
        flash.save(&mut bytes);
        Some(bytes)
    }

    /// How the drive that no channel has was brought into its state, where that was no host.
    pub(crate) fn prepared(&self) -> Option<Prepared> {
        self.lock().as_ref()?.model.as_ref()?.flash()?.prepared()
    }

    pub(crate) fn record(&self, most: usize) {
        if let Some(drive) = &mut *self.lock() {
            drive.model = drive.model.take().map(|model| model.recorded(most));
        }
    }

    pub(crate) fn take_recording(&self) -> Option<Recording> {
        self.lock().as_mut()?.model.as_mut()?.take_recording()
    }

    /// The drive comes back, at rest.
    fn give_back(&self, mut model: Model) {
        if let Some(drive) = &mut *self.lock() {
            // The same parameters made it, and so they make it again.
            let rests = model.rest(&drive.parameters).is_ok();
            drive.model = rests.then_some(model);
        }
    }
}

/// The drive of a medium, with the right to its only channel, as long as it lives.
#[derive(Debug)]
pub(crate) struct Lent {
    /// Always there, until the drop.
    model: Option<Model>,
    home: Arc<Timing>,
}

impl std::ops::Deref for Lent {
    type Target = Model;

    fn deref(&self) -> &Model {
        self.model.as_ref().expect("there until the drop")
    }
}

impl std::ops::DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Model {
        self.model.as_mut().expect("there until the drop")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(model) = self.model.take() {
            self.home.give_back(model);
        }
    }
}

/// Tells the time, apart from the one that a turn has.
struct Clock(Box<dyn Fn() -> Time + Send>);

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clock({:?})", (self.0)())
    }
}

/// A reactor's handle on a medium with a time.
#[derive(Debug)]
pub(crate) struct TimedChannel {
    inner: Box<Channel>,
    model: Lent,
    /// What was taken of its state, until somebody asks for it.
    snapshot: Option<Snapshot>,
    now: Time,
    /// What says when commands arrive; without one they arrive at the time of the turn.
    clock: Option<Clock>,
    /// Most commands that it holds.
    depth: usize,
    /// By the number that a command has below, which is its ticket there, and its id with the
    /// model.
    held: Vec<Held>,
    free: Vec<u32>,
    due: Vec<Due>,
    /// Large deallocations, in order.
    pieces: VecDeque<Piece>,
    untold: Option<Untold>,
    moved: Vec<Done>,
    /// Commands that are done and were not told yet.
    done: Vec<Done>,
    asked: Asked,
    stalls: Cell<Stalls>,
    /// Since when the model has had no room, and for what.
    stalled: Cell<Option<(Time, Op<'static>)>>,
}

impl TimedChannel {
    /// Over `inner`, for at most `depth` commands.
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

    /// What says when commands are done.
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// Its drive, and what that was asked for.
    pub(crate) fn look(&self) -> TimingLook<'_> {
        TimingLook {
            model: &self.model,
            asked: self.asked,
            stalls: self.stalls.get(),
        }
    }

    /// Asks the model; whether it takes it.
    #[inline]
    fn submit_to_model(&mut self, number: u32, op: &Op<'_>) -> bool {
        let taken = self.model.submit(self.now.0, number.into(), op) == Admission::Accepted;
        if taken {
            self.asked.count(op);
        }
        taken
    }

    /// The model has no room for an operation.
    #[cold]
    fn note_stall(&self, op: Op<'static>) {
        if self.stalled.get().is_none() {
            self.stalled.set(Some((self.now, op)));
            let Stalls { count, time_ns } = self.stalls.get();
            let count = count + 1;
            self.stalls.set(Stalls { count, time_ns });
        }
    }

    /// The model has room for what it had none for, whether or not somebody asks for it again.
    #[cold]
    fn end_stall(&self, since: Time) {
        self.stalled.set(None);
        let Stalls { count, time_ns } = self.stalls.get();
        let time_ns = time_ns.saturating_add(self.now.since(since));
        self.stalls.set(Stalls { count, time_ns });
    }

    /// Another drive from now on, of the same shape.
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

    /// A part of the snapshot that is being taken, if one is.
    fn continue_snapshot(&mut self) {
        if let Some(flash) = self.model.flash_mut()
            && flash.takes_snapshot()
        {
            self.snapshot = flash.continue_snapshot(SNAPSHOT_PER_TURN);
        }
    }

    /// What it lies on.
    pub(crate) fn inner(&self) -> &Channel {
        &self.inner
    }

    /// What it lies on.
    pub(crate) fn inner_mut(&mut self) -> &mut Channel {
        &mut self.inner
    }

    /// See [`Channel::is_due`].
    pub(crate) fn is_due(&mut self) -> bool {
        !self.done.is_empty() || self.has_to_tell() || self.inner.is_due()
    }

    /// Whether the model has room for all that a request asks of it.
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

    /// Whether the model is to be told of something in the next turn.
    fn has_to_tell(&self) -> bool {
        !self.pieces.is_empty() || self.untold.is_some()
    }

    /// Commands that it has.
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

    /// One of the things that a command waited for has happened.
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

    /// Asks the model for all that a request is to it.
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
            // There was room for each of them; with several of them the first may have taken it,
            // and a part that finds none now is not waited for.
            if self.submit_to_model(number, &op) {
                self.held[number as usize].awaited += 1;
            }
        }
    }

    /// Tells the model what the channel below has done for a command, or the next part of it.
    fn tell(&mut self, Untold { number, told }: Untold) {
        let Some(happened) = self.inner.happened() else {
            return;
        };
        let parts = happened.iter().skip(told).take(TOLD_PER_TURN);
        for op in parts {
            // There was room for it before the command was done; a part that finds none is not
            // waited for.
            if self.model.submit(self.now.0, number.into(), op) == Admission::Accepted {
                self.asked.count(op);
                self.held[number as usize].awaited += 1;
            }
        }
        let told = told + TOLD_PER_TURN;
        self.untold = (told < happened.len()).then_some(Untold { number, told });
    }

    /// Goes on with what the model was not told yet.
    fn tell_more(&mut self) {
        let Some(untold) = self.untold else {
            return;
        };
        self.tell(untold);
        if self.untold.is_none() {
            self.happened(untold.number);
        }
    }

    /// Tells the model a part of what is deallocated.
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

    /// Takes what the model has done up to now.
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

    /// Asks the model for what the last command of keys has done, by which it is known what it is
    /// to the model. False where that is not known, or not yet: how many keys there are to return
    /// is known when they are returned.
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

    /// The bytes of a command have moved, or have not.
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

/// What a request is to a model.
fn ops<'r>(request: &Request<'r>) -> impl Iterator<Item = Op<'static>> + use<'r> {
    let mut one = None;
    let mut other = None;
    let mut ranges: &[_] = &[];
    match *request {
        Request::Read { offset, len } | Request::Compare { offset, len } => {
            one = Some(Op::Read { offset, len });
        }
        Request::Write { offset, len, fua } => one = Some(Op::Write { offset, len, fua }),
        Request::CompareAndWrite {
            offset, len, fua, ..
        } => {
            one = Some(Op::Write { offset, len, fua });
            other = Some(Op::Read { offset, len });
        }
        Request::WriteZeroes { offset, len, .. } => one = Some(Op::Deallocate { offset, len }),
        Request::Deallocate { ranges: all } => ranges = all,
        Request::Flush => one = Some(Op::Flush),
        // What it has done is told when it is done.
        Request::Command { .. } | Request::Renew { .. } => {}
    }
    let ranges = ranges.iter().map(|range| Op::Deallocate {
        offset: range.offset,
        len: range.len,
    });
    one.into_iter().chain(other).chain(ranges)
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
        if !self.has_room(request) {
            return Added::Full(ticket);
        }
        let Some(number) = self.number() else {
            return Added::Full(ticket);
        };
        let below = Ticket::numbered(number);
        let moved = match self.inner.add(below, request, segments, view) {
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
        // What failed at once takes no time of the drive's.
        if !matches!(moved, Some((_, outcome)) if is_refused(outcome)) {
            if self.inner.happened().is_some() {
                self.tell(Untold { number, told: 0 });
                // It is not done before all is told.
                self.held[number as usize].awaited += u32::from(self.untold.is_some());
            } else {
                self.ask(number, request)
            }
        }
        // What a key-value command is to the model, it is known by what it has done. That there is
        // no such key is found in as much time as another one.
        if matches!(request, Request::Command { .. }) && !self.ask_what_was_done(number) {
            self.held[number as usize].asks_later = moved.is_none();
        }
        if let Some((below, outcome)) = moved {
            self.bytes_moved(below, outcome);
        }
        Added::Pending
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
        // What it lies on may have something of its own under way, which wants to be reaped, too.
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

    /// Commands arrive no earlier than their host has told of them, and no later than that was
    /// seen: a turn that was interrupted after it had its time may find some that are younger than
    /// that, which would be done too early; and to fetch an entry takes long.
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

/// Whether a model is told of a request in parts.
fn is_large(request: &Request<'_>) -> bool {
    let bytes = match *request {
        Request::WriteZeroes { len, .. } => len,
        Request::Deallocate { ranges } => ranges
            .iter()
            .fold(0, |sum: u64, range| sum.saturating_add(range.len)),
        _ => 0,
    };
    bytes > DEALLOCATED_PER_TURN
}

/// Whether nothing was done for a request at all.
fn is_refused(outcome: Outcome) -> bool {
    matches!(outcome.cause, Cause::Unsupported | Cause::Status(_))
}
