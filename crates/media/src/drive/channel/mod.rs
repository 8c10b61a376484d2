//! Requests into commands of the drive, completions into outcomes.
//!
//! Each request is a small state machine over commands of the channel's queue pair:
//! - Data that the drive reaches moves between it and the host directly: the entries are built in
//!   our list from what was checked and translated, and the drive is asked for as much at a time as
//!   it takes. What it does not reach goes in rounds through a buffer of ours, as does what is
//!   compared.
//! - Write Zeroes is the drive's where it has that, and writes of zeros otherwise. Compare and
//!   Write reads, compares and writes. Both are as atomic as everything else: a request that must
//!   not meet another one ([`crate::order`]) begins when that has ended.
//! - A request for which there is no queue pair, no free command or no buffer waits in a row.
//! - A command has 4 s at the drive, some have more. A second before, the drive is asked to abort
//!   it, and the others of its queue go on where it does. One that is still there then costs its
//!   queue pair: the keeper deletes that, and what was in flight ends as interrupted, which hosts
//!   try again. What waits for longer than 4 s ends so, too.
//! - While its reactor is awake it polls, and the drive signals nobody. The first time that the
//!   reactor wants to sleep with commands at the drive, the keeper is asked for the queue pair's
//!   interrupt; from then on that signals what the keeper signals, too. A tick with much to do and
//!   no wish to sleep ends that, until there is one again: the reactor counts on no interrupt from
//!   when it says so, and asks for them as the first time.
//!
//! Nothing here waits, allocates for a command, or calls the system but to ring a doorbell that is
//! not mapped.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Weak};

use driver::QueuePair;
use driver::bus::Bus;
use memory::{DmaView, EventFd, Segment, ViewPins};
use nvme_spec::Cqe;
use port::ticket::Ticket;
use port::{Added, Cause, Channel, Done, DriveReport, Outcome, Request};

use super::Held;
use super::counts::Counting;
use super::data::{self, Pieces};
use super::facts::Facts;
use super::keeper::{BOUNCES, Job, News, Queue};
use super::op::{Cursor, Fused, Kind, Op, outcome_of};
use super::windows::Table;
use crate::order::Order;
use crate::overlap::Touched;
use crate::possible;

mod keep;

/// Ticks before its time is over at which the drive is asked to abort a command.
pub(super) const ABORT_TICKS: u32 = 4;
/// Commands of which that is asked at a time, at most: as many Aborts as drives take together as a
/// rule (ACL).
const ABORTS: usize = 4;

/// What a channel is made with.
pub(super) struct Parts<B: Bus> {
    pub(super) channel: u32,
    pub(super) facts: Arc<Facts>,
    pub(super) jobs: SyncSender<Job<B>>,
    pub(super) news: Receiver<News<B>>,
    pub(super) ticks: Arc<AtomicU32>,
    pub(super) wake: EventFd,
    pub(super) order: Order,
    pub(super) depth: u16,
    pub(super) held: Held,
    pub(super) counting: Arc<Counting>,
}

/// What comes after the drive's commands of a request.
enum Next {
    Again,
    End(Outcome),
}

/// Whether a request has been placed as far as it can be.
#[derive(PartialEq, Eq)]
enum Placed {
    All,
    /// There is no free command, or no buffer, for the rest of it.
    NoRoom,
}

/// A reactor's handle on a drive.
pub struct DriveChannel<B: Bus> {
    number: u32,
    pub(super) facts: Arc<Facts>,
    jobs: SyncSender<Job<B>>,
    /// Jobs that the keeper had no room for.
    late: VecDeque<Job<B>>,
    news: Receiver<News<B>>,
    ticks: Arc<AtomicU32>,
    wake: EventFd,
    /// `None` until the keeper has made one, and while it makes another.
    pub(super) queue: Option<Box<Queue<B>>>,
    /// Buffers of the queue pair that no command has.
    bounces: Vec<u16>,
    windows: Table,
    pub(super) ops: Box<[Op]>,
    pub(super) pieces: Pieces,
    /// The slot of each command at the drive.
    slots: Box<[u16]>,
    pub(super) order: Order,
    pub(super) pins: ViewPins,
    free: Vec<u16>,
    /// Slots that have something to ask the drive: those that need a buffer of ours for it, and the
    /// others.
    ready: VecDeque<u16>,
    ready_bounced: VecDeque<u16>,
    /// Slots that ended without the drive.
    ended: Vec<u16>,
    /// The drive is still to be told of commands.
    untold: bool,
    /// The keeper was asked for interrupts.
    sleeps: bool,
    /// The reactor has wanted to sleep since the last tick, until which the drive was sent so many
    /// commands.
    rested: bool,
    sent: u64,
    /// What seemed to hang was spared once, because there was something to be read.
    spared: bool,
    in_flight: u32,
    /// The tick that was looked at last.
    seen: u32,
    /// A view with memory that the drive does not reach yet, and those that were asked for.
    ask: Option<Arc<DmaView>>,
    asked: Vec<Weak<DmaView>>,
    /// What the drive said of itself last.
    pub(super) report: Arc<DriveReport>,
    /// Commands that the drive has answered, and those that it did not, which nobody else knows of.
    answered: u64,
    interrupted: u64,
    counting: Arc<Counting>,
    _held: Held,
}

impl<B: Bus> fmt::Debug for DriveChannel<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut channel = f.debug_struct("DriveChannel");
        channel
            .field("facts", &self.facts)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl<B: Bus> DriveChannel<B> {
    pub(super) fn new(parts: Parts<B>) -> Self {
        let slots = usize::from(parts.depth);
        DriveChannel {
            number: parts.channel,
            facts: parts.facts,
            jobs: parts.jobs,
            late: VecDeque::new(),
            news: parts.news,
            ticks: parts.ticks,
            wake: parts.wake,
            queue: None,
            bounces: Vec::with_capacity(BOUNCES.into()),
            windows: Table::default(),
            ops: (0..slots).map(|_| Op::idle()).collect(),
            pieces: Pieces::new(slots),
            slots: vec![0; slots].into(),
            order: parts.order,
            pins: ViewPins::new(),
            free: (0..parts.depth).rev().collect(),
            ready: VecDeque::with_capacity(slots),
            ready_bounced: VecDeque::with_capacity(slots),
            ended: Vec::with_capacity(slots),
            untold: false,
            sleeps: false,
            rested: true,
            sent: 0,
            spared: false,
            in_flight: 0,
            seen: 0,
            ask: None,
            asked: Vec::new(),
            report: Arc::default(),
            answered: 0,
            interrupted: 0,
            counting: parts.counting,
            _held: parts.held,
        }
    }

    /// The outcome of a request that needs no command, or cannot have one.
    #[inline]
    fn at_once(&self, request: &Request<'_>, segments: &[Segment<'_>]) -> Option<Outcome> {
        let facts = &self.facts;
        let unit = u64::from(facts.block_bytes());
        possible::refuse(request, segments, (facts.size(), unit)).or_else(|| {
            let is_nothing = match request {
                Request::Deallocate { .. } => !facts.deallocates,
                Request::Flush => !facts.volatile_cache,
                _ => false,
            };
            is_nothing.then_some(Outcome::OK)
        })
    }

    /// Fills a slot's state from a request.
    #[inline]
    fn fill(
        &mut self,
        slot: u16,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) {
        let (kind, offset, left, fua) = match *request {
            Request::Read { offset, len } => (Kind::Read, offset, len.into(), false),
            Request::Write { offset, len, fua } => (Kind::Write, offset, len.into(), fua),
            Request::Compare { offset, len } => (Kind::Compare, offset, len.into(), false),
            Request::CompareAndWrite {
                offset,
                len,
                commit,
                fua,
            } => {
                let stage = if commit && self.facts.volatile_cache {
                    Fused::Commit
                } else {
                    Fused::Compare
                };
                (Kind::Fused { stage, len }, offset, len.into(), fua)
            }
            Request::WriteZeroes {
                offset,
                len,
                deallocate,
                fua,
            } => {
                if self.facts.zeroes_len > 0 {
                    (Kind::Zeroes { deallocate }, offset, len, fua)
                } else {
                    (Kind::ZeroWrites, offset, len, fua)
                }
            }
            Request::Deallocate { ranges } => {
                self.order.set_ranges(slot, ranges);
                let ranges = ranges.len() as u16;
                (Kind::Deallocate { ranges }, 0, 1, false)
            }
            // The others were refused.
            Request::Flush | Request::Command { .. } | Request::Renew { .. } => {
                (Kind::Flush, 0, 1, false)
            }
        };
        let bounced = match kind {
            Kind::Read | Kind::Write => {
                let is_direct = self.pieces.set_direct(slot, segments, &mut self.windows);
                if !is_direct {
                    self.want(segments, view);
                }
                !is_direct
            }
            Kind::Compare | Kind::Fused { .. } | Kind::Deallocate { .. } => true,
            Kind::Zeroes { .. } | Kind::ZeroWrites | Kind::Flush => false,
        };
        if bounced {
            self.pieces.set_bounced(slot, segments);
        }
        let pin = (!segments.is_empty()).then(|| self.pins.pin(view));
        let op = &mut self.ops[usize::from(slot)];
        (op.kind, op.offset, op.left, op.fua) = (kind, offset, left, fua);
        (op.bounced, op.pin) = (bounced, pin);
        op.cursor = Cursor::default();
        (op.outstanding, op.bounce, op.outcome) = (0, None, Outcome::OK);
        (op.since, op.is_aborted) = (self.seen, false);
    }

    /// The bytes that a request touches; `None` where it does not matter which.
    #[inline]
    fn touched(&self, slot: u16) -> Option<Touched> {
        let op = &self.ops[usize::from(slot)];
        match op.kind {
            Kind::Flush => None,
            Kind::Deallocate { ranges } => {
                let pieces = self.order.ranges(slot, ranges.into()).iter();
                let start = pieces.clone().map(|[offset, _]| *offset).min();
                let end = pieces.map(|[offset, len]| offset + len).max();
                Some(Touched {
                    start: start.unwrap_or(0),
                    end: end.unwrap_or(1),
                    changes: true,
                    ranges,
                })
            }
            kind => Some(Touched {
                start: op.offset,
                end: op.offset + op.left,
                changes: kind.changes(),
                ranges: 0,
            }),
        }
    }

    #[inline]
    fn make_ready(&mut self, slot: u16) {
        let op = &mut self.ops[usize::from(slot)];
        op.is_queued = true;
        if op.bounced {
            self.ready_bounced.push_back(slot)
        } else {
            self.ready.push_back(slot)
        }
    }

    /// Asks the drive for what is ready, as far as there is room.
    fn place_ready(&mut self) {
        while let Some(&slot) = self.ready.front() {
            if self.place(slot) == Placed::NoRoom {
                break;
            }
            self.ready.pop_front();
        }
        while let Some(&slot) = self.ready_bounced.front() {
            if self.place(slot) == Placed::NoRoom {
                break;
            }
            self.ready_bounced.pop_front();
        }
    }

    /// Asks the drive for the next of a request: all of what needs no buffer of ours, one round of
    /// what does.
    fn place(&mut self, slot: u16) -> Placed {
        let Some(queue) = &mut self.queue else {
            return Placed::NoRoom;
        };
        let op = &mut self.ops[usize::from(slot)];
        while op.left > 0 && !op.has_failed() {
            let bounce = if op.bounced && !op.kind_needs_no_data() {
                match self.bounces.last() {
                    Some(bounce) => Some(*bounce),
                    None => return Placed::NoRoom,
                }
            } else {
                None
            };
            let Some(cid) = queue.pair.next_cid() else {
                return Placed::NoRoom;
            };
            let view = op.pin.map(|pin| self.pins.view(pin));
            let ranges = self.order.ranges(slot, op.ranges());
            let made = super::command::make(
                (&self.facts, &**queue, &self.pieces, ranges),
                (slot, op, view),
                (cid, bounce),
            );
            let Some(made) = made else {
                op.outcome = Outcome::of(Cause::Unsupported);
                break;
            };
            if queue.pair.submit(made.sqe).is_err() {
                return Placed::NoRoom;
            }
            self.slots[usize::from(cid)] = slot;
            op.outstanding += 1;
            op.since = self.seen;
            (op.round, op.bounce) = (made.data, bounce);
            if bounce.is_some() {
                self.bounces.pop();
            }
            op.left -= made.bytes;
            op.offset += made.bytes;
            if op.bounced {
                break;
            }
            op.cursor = made.cursor;
        }
        op.is_queued = false;
        if op.outstanding == 0 {
            self.ended.push(slot);
        }
        Placed::All
    }

    /// The drive has answered a command.
    #[inline]
    fn answered(&mut self, cqe: &Cqe, done: &mut Vec<Done>) {
        let slot = self.slots[usize::from(cqe.cid)];
        let op = &mut self.ops[usize::from(slot)];
        debug_assert!(op.ticket.is_some() && op.outstanding > 0);
        op.outstanding -= 1;
        let status = cqe.status.status();
        if !status.is_success() && !op.has_failed() {
            tracing::debug!(%status, kind = ?op.kind, "a drive fails a command");
            op.outcome = outcome_of(status, op.kind);
        }
        if op.outstanding > 0 || op.is_queued {
            return;
        }
        match self.step(slot) {
            Next::Again => self.make_ready(slot),
            Next::End(outcome) => self.end(slot, outcome, done),
        }
    }

    /// Everything that the drive was asked for is answered: what comes then.
    #[inline]
    fn step(&mut self, slot: u16) -> Next {
        let op = &mut self.ops[usize::from(slot)];
        if !op.bounced {
            return if op.left > 0 && !op.has_failed() {
                Next::Again
            } else {
                Next::End(op.outcome)
            };
        }
        self.step_bounced(slot)
    }

    fn step_bounced(&mut self, slot: u16) -> Next {
        let op = &mut self.ops[usize::from(slot)];
        let bounce = op.bounce.take();
        self.bounces.extend(bounce);
        if op.has_failed() {
            return Next::End(op.outcome);
        }
        let (round, from) = (op.round, op.cursor);
        let run = || self.pieces.run(slot, from, round);
        let buffer = bounce.zip(self.queue.as_ref());
        let buffer = buffer.map(|(index, queue)| &queue.bounce[usize::from(index)]);
        let view = op.pin.map(|pin| self.pins.view(pin));
        let data = buffer.zip(view);
        match op.kind {
            Kind::Fused {
                stage: Fused::Commit,
                len,
            } => {
                return op.go_on_to(Fused::Compare, len);
            }
            Kind::Read
                if !data.is_some_and(|(buffer, view)| data::scatter(run(), view, buffer)) =>
            {
                return Next::End(Outcome::of(Cause::ReadFailed));
            }
            Kind::Compare
            | Kind::Fused {
                stage: Fused::Compare,
                ..
            } if !data.is_some_and(|(buffer, view)| data::equal(run(), view, buffer)) => {
                return Next::End(Outcome::of(Cause::CompareMismatch));
            }
            _ => {}
        }
        op.cursor = self.pieces.after(slot, from, round);
        match op.kind {
            _ if op.left > 0 => Next::Again,
            // The bytes to write are behind those that were compared.
            Kind::Fused {
                stage: Fused::Compare,
                len,
            } => op.go_on_to(Fused::Write, len),
            _ => Next::End(Outcome::OK),
        }
    }

    /// Gives a slot back, and lets those begin that waited for it.
    #[inline]
    fn end(&mut self, slot: u16, outcome: Outcome, done: &mut Vec<Done>) {
        let op = &mut self.ops[usize::from(slot)];
        if let Some(pin) = op.pin.take() {
            self.pins.unpin(pin);
        }
        match outcome.cause {
            Cause::None if op.kind.moves() => self.counting.troubles.succeeded(op.kind.reads()),
            Cause::None => {}
            _ => self.counting.troubles.note(&outcome),
        }
        let (parked, touches) = (op.ticket.take(), op.touches);
        self.in_flight -= 1;
        if touches {
            self.order.end(slot);
            self.begin_free();
        }
        self.free.push(slot);
        done.extend(parked.map(|parked| Done {
            ticket: parked.unpark(),
            outcome,
        }));
    }

    /// Lets those begin that nobody is in the way of any more.
    fn begin_free(&mut self) {
        while let Some(slot) = self.order.next_free() {
            self.ops[usize::from(slot)].since = self.seen;
            self.make_ready(slot);
        }
    }

    /// Takes the drive's answers.
    fn poll(&mut self, done: &mut Vec<Done>) {
        loop {
            let Some(queue) = &mut self.queue else { return };
            let taken = match queue.pair.poll() {
                Ok(taken) => taken,
                Err(error) => return self.give_up(&error.to_string()),
            };
            self.answered += taken as u64;
            while let Some(cqe) = self.next_completion() {
                self.answered(&cqe, done);
            }
            if taken < QueuePair::<B>::BATCH {
                return;
            }
        }
    }

    #[inline]
    fn next_completion(&mut self) -> Option<Cqe> {
        self.queue.as_mut()?.pair.next_completion()
    }
}

impl Op {
    /// Its command at the drive has no data.
    fn kind_needs_no_data(&self) -> bool {
        matches!(
            self.kind,
            Kind::Fused {
                stage: Fused::Commit,
                ..
            }
        )
    }

    /// Ranges of a Deallocate.
    fn ranges(&self) -> usize {
        match self.kind {
            Kind::Deallocate { ranges } => ranges.into(),
            _ => 0,
        }
    }

    /// A Compare and Write goes on to a stage that moves all of its bytes.
    fn go_on_to(&mut self, stage: Fused, len: u32) -> Next {
        if stage == Fused::Write {
            self.offset -= u64::from(len);
        }
        self.left = len.into();
        self.kind = Kind::Fused { stage, len };
        Next::Again
    }
}

impl<B: Bus> Channel for DriveChannel<B> {
    // By itself: what it needs of registers, every command to any medium would save.
    #[inline(never)]
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        if let Some(outcome) = self.at_once(request, segments) {
            return Added::Done(ticket, outcome);
        }
        let Some(slot) = self.free.pop() else {
            return Added::Full(ticket);
        };
        self.fill(slot, request, segments, view);
        let touched = self.touched(slot);
        let op = &mut self.ops[usize::from(slot)];
        op.ticket = Some(ticket.park());
        op.touches = touched.is_some();
        self.in_flight += 1;
        if touched.is_none_or(|touched| self.order.begin(slot, touched)) {
            self.make_ready(slot);
        }
        Added::Pending
    }

    fn submit(&mut self) {
        if self.ready.is_empty() && self.ready_bounced.is_empty() && !self.untold {
            return;
        }
        self.place_ready();
        self.untold = false;
        if let Some(queue) = &mut self.queue {
            match queue.pair.try_ring() {
                Ok(is_told) => self.untold = !is_told,
                Err(error) => self.give_up(&error.to_string()),
            }
        }
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.in_flight == 0 {
            return;
        }
        if self.order.is_waiting() {
            self.order.retry();
            self.begin_free();
        }
        self.poll(done);
        self.submit();
        while let Some(slot) = self.ended.pop() {
            let outcome = self.ops[usize::from(slot)].outcome;
            self.end(slot, outcome, done);
        }
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn is_full(&self, _request: &Request<'_>) -> bool {
        self.free.is_empty()
    }
}
