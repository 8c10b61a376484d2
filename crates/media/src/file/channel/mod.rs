//! Translates requests into operations of the ring, and results into outcomes.
//!
//! Each command is a small state machine with one operation in the kernel at a time:
//! - Aligned data moves directly between the host's segments and the file, other data in rounds
//!   through a bounce buffer. After a partial result (short, or more than 1024 segments) the
//!   command continues from there. Compare always reads into the bounce buffer.
//! - Write Zeroes asks the file system or device to clear the range, and writes zeros if that is
//!   unsupported; with FUA a sync follows.
//! - Compare and Write reads and compares like Compare, and writes like Write.
//! - A command that must not overlap another one ([`crate::order`]) begins when that has ended.
//! - Deallocate punches range after range. It is a hint: without support it does nothing.
//! - An interrupted or temporarily rejected operation is retried a bounded number of times.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use memory::{Claimant, DmaView, EventFd, Segment};
use port::ticket::Ticket;
use port::{Added, Cause, Channel, Done, Outcome, Request};

use super::direct::{Access, Alignment};
use super::op::{Buffer, Fused, Io, Kind, Op, failed, moved_wrong, request_reads};
use super::pace::Pace;
use super::ring::{Ring, Way, ZEROS_BYTES};
use super::{Clear, FileCounts, FileMedium, IoCounts};
use crate::order::Order;
use crate::overlap::Touched;
use crate::possible;

/// Maximum number of retries of one operation.
const MAX_REPEATS: u8 = 100;
/// Operations of a large batch that the kernel gets first; then twice as many, and so on. It
/// collects a call's operations before it notifies the device, which would be idle while a whole
/// batch is prepared; up to two it passes on at once. The largest handful is its own maximum.
const FIRST_HANDFUL: u32 = 2;
const LARGEST_HANDFUL: u32 = 32;

/// Next step after a result.
enum Next {
    Again,
    End(Outcome),
}

/// A reactor's handle on a file.
#[derive(Debug)]
pub(crate) struct FileChannel {
    /// Declared before the medium, so that it is dropped first: operations in flight end under the
    /// lock.
    ring: Ring,
    medium: Arc<FileMedium>,
    /// Alignment that the file requires of segments and offsets; all ones if it is buffered.
    alignment: Alignment,
    ops: Box<[Op]>,
    /// Declared after the ring, which waits for the kernel when dropped: claims end after that.
    order: Order,
    free: Vec<u16>,
    /// Slots whose next operation goes into the ring with the next submission.
    ready: VecDeque<u16>,
    /// Whether one of them changes the file.
    ready_changes: bool,
    /// Slots that ended without the kernel.
    ended: Vec<(u16, Outcome)>,
    in_flight: u32,
    pace: Pace,
    /// Part of [`FileChannel::io_counts`] that was added to the medium's counters.
    told: IoCounts,
    /// Counts not yet added to the medium's counters.
    untold: FileCounts,
    /// Error that made the ring unusable.
    broken: Option<i32>,
}

impl FileChannel {
    pub(super) fn new(
        medium: Arc<FileMedium>,
        depth: u16,
        claimant: Claimant,
        slice: Option<u32>,
    ) -> io::Result<FileChannel> {
        let way = if medium.opened.is_memory {
            Way::Calls
        } else {
            Way::Rings(medium.looks)
        };
        let registers = medium.register_memory;
        let ring = Ring::new(medium.opened.fd.as_fd(), depth, way, registers).map_err(|error| {
            let advice = "a file needs Linux 5.15, kernel.io_uring_disabled = 0, and a container that lets io_uring through";
            io::Error::new(error.kind(), format!("cannot make an io_uring ({error}): {advice}"))
        })?;
        let alignment = match medium.opened.access {
            Access::Direct(alignment) => alignment,
            Access::Buffered(_) => Alignment {
                memory: 1,
                offset: 1,
            },
        };
        let slots = usize::from(depth);
        Ok(FileChannel {
            ring,
            alignment,
            ops: (0..slots).map(|_| Op::idle()).collect(),
            order: Order::new(slots, claimant),
            free: (0..depth).rev().collect(),
            ready: VecDeque::with_capacity(slots),
            ready_changes: false,
            ended: Vec::with_capacity(slots),
            in_flight: 0,
            pace: Pace::new(slice, &medium.opened),
            told: IoCounts::default(),
            untold: FileCounts::default(),
            broken: None,
            medium,
        })
    }

    /// Its descriptor is that of [`crate::Channel::wait_fd`].
    pub(crate) fn wake(&self) -> &EventFd {
        self.ring.wake()
    }

    /// See [`crate::Channel::tend`].
    #[inline]
    pub(crate) fn tend(&mut self) {
        self.ring.tend();
        let now = self.io_counts();
        if now != self.told {
            self.medium.add_counts(IoCounts {
                registered: now.registered - self.told.registered,
                plain: now.plain - self.told.plain,
            });
            self.told = now;
        }
        if self.untold != FileCounts::default() {
            self.medium.add_done(std::mem::take(&mut self.untold));
        }
        self.order.tend();
    }

    pub(crate) fn is_polled(&self) -> bool {
        self.ring.is_polled()
    }

    pub(crate) fn io_counts(&self) -> IoCounts {
        let [registered, plain] = self.ring.counts();
        IoCounts { registered, plain }
    }

    pub(crate) fn is_due(&mut self) -> bool {
        self.ring.arm();
        if self.in_flight == 0 {
            self.order.rest();
        }
        let due = !self.ready.is_empty() || !self.ended.is_empty() || self.order.is_waiting();
        due || self.ring.is_due()
    }

    /// The outcome of a request that needs no operation, or is invalid.
    fn at_once(&self, request: &Request<'_>, segments: &[Segment<'_>]) -> Option<Outcome> {
        let health = &self.medium.health;
        if health.shrank() {
            return Some(failed(request_reads(request), libc::EIO));
        }
        if let Some(errno) = self.broken {
            return Some(failed(request_reads(request), errno));
        }
        if let Some(errno) = health.flush_errno()
            && matches!(
                request,
                Request::Flush
                    | Request::Write { fua: true, .. }
                    | Request::CompareAndWrite { fua: true, .. }
                    | Request::CompareAndWrite { commit: true, .. }
                    | Request::WriteZeroes { fua: true, .. }
            )
        {
            // A Compare and Write did not compare anything.
            return Some(failed(request_reads(request), errno));
        }
        let unit = self.alignment.offset as u64;
        possible::refuse(request, segments, (self.medium.opened.size, unit))
    }

    /// Fills a slot's state from a request. Returns false if it must wait for another one.
    fn begin(
        &mut self,
        slot: u16,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> bool {
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
                let stage = if commit {
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
                let kind = match self.medium.clear(deallocate) {
                    Some(how) => Kind::Clear { how, deallocate },
                    None => Kind::Zeros,
                };
                (kind, offset, len, fua)
            }
            Request::Deallocate { ranges } => {
                self.order.set_ranges(slot, ranges);
                let kind = Kind::Deallocate {
                    next: 0,
                    ranges: ranges.len(),
                };
                (kind, 0, 0, false)
            }
            // The others were rejected before.
            Request::Flush | Request::Command { .. } | Request::Renew { .. } => {
                (Kind::Sync, 0, 0, false)
            }
        };
        let aligned = match kind {
            Kind::Read | Kind::Write | Kind::Compare | Kind::Fused { .. } => {
                self.ring.attach(slot, segments, view, self.alignment)
            }
            _ => true,
        };
        let op = &mut self.ops[usize::from(slot)];
        (op.kind, op.offset, op.left, op.fua) = (kind, offset, left, fua);
        op.bounced = !aligned || kind == Kind::Compare;
        op.sliced = self.pace.slices(left, op.bounced);
        op.bounced |= op.sliced;
        op.repeats = 0;
        let touched = self.touched(slot);
        self.ops[usize::from(slot)].touches = touched.is_some();
        touched.is_none_or(|touched| self.order.begin(slot, touched))
    }

    /// The bytes that a command touches; `None` if they do not matter.
    fn touched(&self, slot: u16) -> Option<Touched> {
        let op = &self.ops[usize::from(slot)];
        match op.kind {
            Kind::Sync => None,
            Kind::Deallocate { ranges, .. } => {
                let pieces = self.order.ranges(slot, ranges).iter();
                let start = pieces.clone().map(|[offset, _]| *offset).min();
                let end = pieces.map(|[offset, len]| offset + len).max();
                Some(Touched {
                    start: start.unwrap_or(0),
                    end: end.unwrap_or(1),
                    changes: true,
                    ranges: ranges as u16,
                })
            }
            kind => Some(Touched {
                start: op.offset,
                end: op.offset + op.left,
                changes: !matches!(kind, Kind::Read | Kind::Compare),
                ranges: 0,
            }),
        }
    }

    /// The next operation of a slot.
    fn operation(&mut self, slot: u16) -> Io {
        let op = &self.ops[usize::from(slot)];
        let (offset, left) = (op.offset, op.left);
        let round = self.pace.round(left);
        let durable = op.fua && !op.sliced;
        match op.kind {
            Kind::Fused {
                stage: Fused::Commit,
                ..
            } => Io::Sync,
            Kind::Fused {
                stage: Fused::Compare,
                ..
            } => Io::Read {
                into: Buffer::Bounce(round),
                offset,
            },
            Kind::Read | Kind::Compare if op.bounced => Io::Read {
                into: Buffer::Bounce(round),
                offset,
            },
            Kind::Read | Kind::Compare => Io::Read {
                into: Buffer::Segments,
                offset,
            },
            Kind::Write
            | Kind::Fused {
                stage: Fused::Write,
                ..
            } => {
                let from = if op.bounced {
                    self.ring.gather(slot, round);
                    Buffer::Bounce(round)
                } else {
                    Buffer::Segments
                };
                Io::Write {
                    from,
                    offset,
                    durable,
                }
            }
            Kind::Zeros => {
                let round = if op.sliced {
                    round
                } else {
                    left.min(ZEROS_BYTES.into()) as u32
                };
                Io::Write {
                    from: Buffer::Zeros(round),
                    offset,
                    durable,
                }
            }
            Kind::Clear { how, .. } => Io::Fallocate {
                mode: how.mode(),
                offset,
                len: left,
            },
            Kind::Deallocate { next, ranges } => {
                let [offset, len] = self.order.ranges(slot, ranges)[next];
                Io::Fallocate {
                    mode: Clear::Punch.mode(),
                    offset,
                    len,
                }
            }
            Kind::Sync => Io::Sync,
        }
    }

    fn make_ready(&mut self, slot: u16) {
        self.ready.push_back(slot);
        let kind = self.ops[usize::from(slot)].kind;
        self.ready_changes |= kind.changes();
    }

    /// Applies a result of the kernel to a slot's state.
    fn step(&mut self, slot: u16, result: i32) -> Next {
        if result < 0 {
            return self.step_error(slot, -result);
        }
        self.ops[usize::from(slot)].repeats = 0;
        match self.ops[usize::from(slot)].kind {
            Kind::Fused {
                stage: Fused::Commit,
                len,
            } => {
                if let Some(errno) = self.medium.health.flush_errno() {
                    return Next::End(failed(true, errno));
                }
                self.untold.flushes += 1;
                self.fused(slot, Fused::Compare, len)
            }
            Kind::Read | Kind::Write | Kind::Compare | Kind::Zeros | Kind::Fused { .. } => {
                self.step_moved(slot, result as u32)
            }
            Kind::Clear { .. } => self.after_all(slot),
            Kind::Deallocate { next, ranges } => self.after_range(slot, next, ranges),
            Kind::Sync => match self.medium.health.flush_errno() {
                // Another channel's flush received the error, which the kernel reports only once.
                Some(errno) => Next::End(failed(false, errno)),
                None => {
                    self.untold.flushes += 1;
                    Next::End(Outcome::OK)
                }
            },
        }
    }

    /// `moved` bytes were read or written.
    fn step_moved(&mut self, slot: u16, moved: u32) -> Next {
        let op = &mut self.ops[usize::from(slot)];
        let (kind, bounced) = (op.kind, op.bounced);
        let reads = kind.reads();
        let ended = moved == 0 || !moved.is_multiple_of(self.alignment.offset as u32);
        if ended || u64::from(moved) > op.left {
            // The file ends inside the medium's range. The command cannot continue.
            self.medium.look_shrunk();
            return Next::End(failed(reads, libc::EIO));
        }
        op.offset += u64::from(moved);
        op.left -= u64::from(moved);
        let left = op.left;
        match kind {
            Kind::Read if bounced => self.ring.scatter(slot, moved),
            Kind::Compare
            | Kind::Fused {
                stage: Fused::Compare,
                ..
            } if !self.ring.equal(slot, moved) => {
                return Next::End(Outcome::of(Cause::CompareMismatch));
            }
            _ => {}
        }
        if kind != Kind::Zeros {
            self.ring.advance(slot, moved as usize);
        }
        let sliced = op.sliced;
        match kind {
            _ if left > 0 => Next::Again,
            _ if sliced => self.after_all(slot),
            // The same bytes again: the cursor is at the bytes to write.
            Kind::Fused {
                stage: Fused::Compare,
                len,
            } => self.fused(slot, Fused::Write, len),
            _ => Next::End(Outcome::OK),
        }
    }

    /// Advances a Compare and Write to a stage that moves all of its bytes.
    fn fused(&mut self, slot: u16, stage: Fused, len: u32) -> Next {
        let op = &mut self.ops[usize::from(slot)];
        op.offset -= u64::from(len) - op.left;
        op.left = len.into();
        op.kind = Kind::Fused { stage, len };
        Next::Again
    }

    /// All slices are written, or the range is cleared: syncs once if the command must be durable.
    fn after_all(&mut self, slot: u16) -> Next {
        let op = &mut self.ops[usize::from(slot)];
        if !op.fua {
            return Next::End(Outcome::OK);
        }
        op.kind = Kind::Sync;
        Next::Again
    }

    /// A range was deallocated, or cannot be.
    fn after_range(&mut self, slot: u16, next: usize, ranges: usize) -> Next {
        let next = next + 1;
        if next == ranges {
            return Next::End(Outcome::OK);
        }
        self.ops[usize::from(slot)].kind = Kind::Deallocate { next, ranges };
        Next::Again
    }

    fn step_error(&mut self, slot: u16, errno: i32) -> Next {
        let is_block_device = self.medium.opened.is_block_device;
        let op = &mut self.ops[usize::from(slot)];
        if matches!(errno, libc::EINTR | libc::EAGAIN) && op.repeats < MAX_REPEATS {
            op.repeats += 1;
            return Next::Again;
        }
        let unsupported = matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS);
        // A block device answers this for ranges smaller than its logical blocks.
        let too_fine = is_block_device && errno == libc::EINVAL;
        match op.kind {
            Kind::Clear { how, deallocate } if unsupported => {
                self.medium.cannot(how);
                op.kind = match self.medium.clear(deallocate) {
                    Some(how) => Kind::Clear { how, deallocate },
                    None => Kind::Zeros,
                };
                Next::Again
            }
            Kind::Clear { .. } if too_fine => {
                op.kind = Kind::Zeros;
                Next::Again
            }
            Kind::Deallocate { .. } if unsupported => {
                self.medium.cannot(Clear::Punch);
                Next::End(Outcome::OK)
            }
            Kind::Deallocate { next, ranges } if too_fine => self.after_range(slot, next, ranges),
            Kind::Sync => {
                self.medium.flush_failed(errno);
                Next::End(failed(false, errno))
            }
            Kind::Fused {
                stage: Fused::Commit,
                ..
            } => {
                self.medium.flush_failed(errno);
                Next::End(failed(true, errno))
            }
            kind => Next::End(moved_wrong(kind.reads(), errno)),
        }
    }

    /// Submits queued operations to the kernel.
    fn hand_over(&mut self) {
        self.untold.submissions += 1;
        if let Err(error) = self.ring.submit() {
            self.break_down(&error);
        }
    }

    /// Performs ready operations by synchronous calls, up to a turn's bytes.
    fn perform_ready(&mut self) {
        let mut performed = 0;
        while self.pace.has_room()
            && let Some(slot) = self.ready.pop_front()
        {
            let io = self.operation(slot);
            let result = self.ring.perform(slot, io, self.medium.opened.fd.as_fd());
            performed += 1;
            let moved = u64::try_from(result).unwrap_or(0);
            self.pace.spend(moved);
            match self.step(slot, result) {
                Next::Again => self.ready.push_front(slot),
                Next::End(outcome) => self.ended.push((slot, outcome)),
            }
        }
        self.untold.submissions += performed;
        self.look_what_is_left();
    }

    /// Updates `ready_changes` for the operations that wait for the next turn.
    fn look_what_is_left(&mut self) {
        let mut ready = self.ready.iter();
        self.ready_changes = ready.any(|slot| self.ops[usize::from(*slot)].kind.changes());
    }

    fn reads(&self, slot: u16) -> bool {
        self.ops[usize::from(slot)].kind.reads()
    }

    /// Frees a slot, and starts commands that waited for it.
    fn end(&mut self, slot: u16, outcome: Outcome, done: &mut Vec<Done>) {
        self.ring.release(slot);
        if self.ops[usize::from(slot)].touches {
            self.order.end(slot);
            self.begin_free();
        }
        self.free.push(slot);
        self.give_back(slot, outcome, done);
    }

    /// Starts commands that no other command blocks any more.
    fn begin_free(&mut self) {
        while let Some(slot) = self.order.next_free() {
            self.make_ready(slot);
        }
    }

    fn give_back(&mut self, slot: u16, outcome: Outcome, done: &mut Vec<Done>) {
        let op = &mut self.ops[usize::from(slot)];
        self.medium.note(op.kind, &outcome);
        if let Some(parked) = op.ticket.take() {
            self.in_flight -= 1;
            let ticket = parked.unpark();
            done.push(Done { ticket, outcome });
        }
    }

    /// The ring fails for good: from now on every command fails.
    fn break_down(&mut self, error: &io::Error) {
        if self.broken.is_none() {
            tracing::error!(%error, "an io_uring cannot be used any more: its commands fail");
            self.broken = Some(error.raw_os_error().unwrap_or(libc::EIO));
        }
    }

    /// Ends every command of a broken ring. The slots are not reused: memory that the kernel may
    /// still access stays pinned until the ring is dropped.
    fn fail_all(&mut self, errno: i32, done: &mut Vec<Done>) {
        for slot in 0..self.ops.len() as u16 {
            if self.ops[usize::from(slot)].ticket.is_some() {
                let outcome = failed(self.reads(slot), errno);
                self.give_back(slot, outcome, done);
            }
        }
        self.ready.clear();
        self.ended.clear();
        self.order.forget();
    }
}

impl Channel for FileChannel {
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
            self.medium.note(Kind::Sync, &outcome);
            return Added::Done(ticket, outcome);
        }
        if matches!(request, Request::Deallocate { .. })
            && self.medium.clear(true) != Some(Clear::Punch)
        {
            return Added::Done(ticket, Outcome::OK);
        }
        let Some(slot) = self.free.pop() else {
            return Added::Full(ticket);
        };
        let op = &mut self.ops[usize::from(slot)];
        op.ticket = Some(ticket.park());
        self.in_flight += 1;
        if self.begin(slot, request, segments, view) {
            self.make_ready(slot);
        }
        Added::Pending
    }

    fn submit(&mut self) {
        if self.ready.is_empty() || self.broken.is_some() {
            return;
        }
        let shrank =
            self.medium.health.shrank() || (self.ready_changes && self.medium.look_shrunk());
        self.ready_changes = false;
        if self.ring.calls() && !shrank {
            self.perform_ready();
            return;
        }
        let (mut queued, mut handful) = (0, FIRST_HANDFUL);
        while self.pace.has_room()
            && let Some(slot) = self.ready.pop_front()
        {
            if shrank {
                self.ended.push((slot, failed(self.reads(slot), libc::EIO)));
                continue;
            }
            let io = self.operation(slot);
            self.pace.spend_on(io, self.ops[usize::from(slot)].left);
            self.ring.queue(slot, io);
            queued += 1;
            if queued == handful && !self.ready.is_empty() {
                (queued, handful) = (0, LARGEST_HANDFUL.min(2 * handful));
                self.hand_over();
            }
        }
        self.hand_over();
        if !self.ready.is_empty() {
            self.look_what_is_left();
        }
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        self.ring.disarm();
        if self.in_flight == 0 {
            return;
        }
        if let Err(error) = self.ring.run_completions() {
            self.break_down(&error);
        }
        if self.order.is_waiting() {
            self.order.retry();
            self.begin_free();
        }
        while self.pace.has_room()
            && let Some((slot, result)) = self.ring.next()
        {
            let op = &self.ops[usize::from(slot)];
            if op.bounced && op.kind.reads() {
                self.pace.spend(u64::try_from(result).unwrap_or(0));
            }
            match self.step(slot, result) {
                Next::Again => self.make_ready(slot),
                Next::End(outcome) => self.end(slot, outcome, done),
            }
        }
        self.submit();
        self.pace.renew();
        while let Some((slot, outcome)) = self.ended.pop() {
            self.end(slot, outcome, done);
        }
        if let Some(errno) = self.broken {
            self.fail_all(errno, done);
        }
    }

    fn is_full(&self, _request: &Request<'_>) -> bool {
        self.free.is_empty()
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }
}

#[cfg(test)]
mod tests;
