//! Translates requests into commands of the drive, and completions into outcomes.
//!
//! Each request is a small state machine over commands of the channel's queue pair:
//! - Data that the drive reaches moves directly between drive and host: the PRP entries are built
//!   in our list from checked and translated addresses, and each command moves as much as the drive
//!   accepts. Other data, and data to compare, goes through a bounce buffer in rounds.
//! - Write Zeroes uses the drive's command if it has one, and writes of zeros otherwise. Compare
//!   and Write reads, compares and writes. Both are as atomic as everything else: a request that
//!   must not overlap another one ([`crate::order`]) begins when that has ended.
//! - A request without a queue pair, free command or buffer waits in a row.
//! - A command has 4 s at the drive, some kinds more. One second before, the channel asks the drive
//!   to abort it; if that succeeds, the other commands of the queue continue. If not, the queue
//!   pair is lost: the keeper deletes it, and the commands in flight end as interrupted, which
//!   hosts retry. A request that waits longer than 4 s ends the same way.
//! - While its reactor is awake, the channel polls, and drive interrupts are masked. The first time
//!   that the reactor wants to sleep with commands at the drive, the channel asks the keeper for
//!   the queue pair's interrupt, which then signals the same descriptor as the keeper. A tick with
//!   much work and no wish to sleep masks the interrupt again: from that request on the reactor
//!   relies on no interrupt, and asks for it again like the first time.
//!
//! Nothing here waits, allocates per command, or makes a system call except to ring an unmapped
//! doorbell.

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
use super::message::{Job, News};
use super::op::{Cursor, Fused, Kind, Op, outcome_of};
use super::queue::{BOUNCES, Queue};
use super::windows::Table;
use crate::order::Order;
use crate::overlap::Touched;
use crate::possible;

mod keep;

/// Ticks before a command's timeout at which the drive is asked to abort it.
pub(super) const ABORT_TICKS: u32 = 4;
/// Maximum number of aborts at a time: as many as drives usually accept together (ACL).
const ABORTS: usize = 4;

/// Parameters of a new channel.
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

/// Next step of a request after the drive has answered all of its commands.
enum Next {
    Again,
    End(Outcome),
}

/// Whether all possible commands of a request were placed.
#[derive(PartialEq, Eq)]
enum Placed {
    All,
    /// No free command or buffer for the rest of it.
    NoRoom,
}

/// A reactor's handle on a drive.
pub struct DriveChannel<B: Bus> {
    number: u32,
    pub(super) facts: Arc<Facts>,
    jobs: SyncSender<Job<B>>,
    /// Jobs for which the keeper had no room.
    late: VecDeque<Job<B>>,
    news: Receiver<News<B>>,
    ticks: Arc<AtomicU32>,
    wake: EventFd,
    /// `None` until the keeper has created one, and while it recreates one.
    pub(super) queue: Option<Box<Queue<B>>>,
    /// Free bounce buffers of the queue pair.
    bounces: Vec<u16>,
    windows: Table,
    pub(super) ops: Box<[Op]>,
    pub(super) pieces: Pieces,
    /// The slot of each command at the drive.
    slots: Box<[u16]>,
    pub(super) order: Order,
    pub(super) pins: ViewPins,
    free: Vec<u16>,
    /// Slots with more commands for the drive: those that need a bounce buffer, and the others.
    ready: VecDeque<u16>,
    ready_bounced: VecDeque<u16>,
    /// Slots that ended without the drive.
    ended: Vec<u16>,
    /// Whether the submission doorbell must still be rung.
    untold: bool,
    /// Whether interrupts were requested.
    sleeps: bool,
    /// Whether the reactor wanted to sleep since the last tick, and the number of commands
    /// submitted until that tick.
    rested: bool,
    sent: u64,
    /// Whether the timeout was postponed once because completions were waiting.
    spared: bool,
    in_flight: u32,
    /// The tick that was handled last.
    seen: u32,
    /// A view with memory that the drive does not reach yet, and the requested regions.
    ask: Option<Arc<DmaView>>,
    asked: Vec<Weak<DmaView>>,
    /// The latest health report.
    pub(super) report: Arc<DriveReport>,
    /// Answered commands, and those without an answer, not yet added to the shared counters.
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

    /// The outcome of a request that needs no command, or is invalid.
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
            // The others were rejected before.
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

    /// The bytes that a request touches; `None` if they do not matter.
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

    /// Submits the commands of ready slots, as far as there is room.
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

    /// Submits the next commands of a request: all that need no bounce buffer, or one round through
    /// a bounce buffer.
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

    /// Handles the drive's answer to a command.
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

    /// Chooses the next step after the drive has answered everything.
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
            // The bytes to write follow those that were compared.
            Kind::Fused {
                stage: Fused::Compare,
                len,
            } => op.go_on_to(Fused::Write, len),
            _ => Next::End(Outcome::OK),
        }
    }

    /// Frees a slot, and starts requests that waited for it.
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
        let touches = op.touches;
        let Some(parked) = op.ticket.take() else {
            debug_assert!(false, "slot {slot} ended twice");
            return;
        };
        self.in_flight -= 1;
        if touches {
            self.order.end(slot);
            self.begin_free();
        }
        self.free.push(slot);
        let ticket = parked.unpark();
        done.push(Done { ticket, outcome });
    }

    /// Starts requests that no other request blocks any more.
    fn begin_free(&mut self) {
        while let Some(slot) = self.order.next_free() {
            self.ops[usize::from(slot)].since = self.seen;
            self.make_ready(slot);
        }
    }

    /// Takes completions from the drive.
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
    /// Whether its command at the drive has no data.
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

    /// Advances a Compare and Write to a stage that moves all of its bytes.
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
    // Not inlined: otherwise the commands to all media would save the registers that this needs.
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
