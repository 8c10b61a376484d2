//! A medium with latencies in virtual time: bytes in memory, and commands that end some time after
//! they were added, in any order, after a long time, or with an error.
//!
//! A request takes effect at one moment, when it is added or when it ends, and so requests that
//! share bytes never mix. One that hangs takes effect when it is added, so that it touches no
//! memory after it was aborted. Until a request ends it keeps the addresses and the view that it
//! came with and uses them then: this detects code that unmaps memory without waiting for the
//! request.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::Arc;

use memory::{DmaView, Hint, Iova, Need, Segment};
use port::ticket::Ticket;
use port::time::Time;
use port::{Added, Cause, Channel, Done, MediumTraits, Outcome, Request};

use crate::random::Random;

/// The time, for media, which are not asked with it.
#[derive(Debug, Default)]
pub struct Clock {
    /// Virtual nanoseconds.
    pub now_ns: Cell<u64>,
    /// The last moment of the ledger.
    pub moment: Cell<u64>,
}

/// How a medium behaves. Chances are one in so many requests; 0 is never.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Requests that end at once.
    pub at_once: u64,
    /// The usual latency is up to this.
    pub usual_ns: u64,
    /// Requests that take up to a hundred times as long.
    pub slow: u64,
    /// Requests that hang for [`HANG_NS`] or twice that.
    pub hangs: u64,
    /// Requests that fail.
    pub fails: u64,
    /// Requests that are returned as full.
    pub full: u64,
    /// Requests in flight at most.
    pub depth: usize,
}

/// How long a request hangs at least: longer than anybody waits for it.
pub const HANG_NS: u64 = 6_000_000_000;

impl Habits {
    /// The longest that a request takes, where it does not hang.
    #[must_use]
    pub fn longest_ns(&self) -> u64 {
        100 * self.usual_ns
    }
}

/// The bytes behind the channels of a medium.
#[derive(Debug)]
pub struct Disk {
    bytes: Vec<u8>,
    random: Random,
    habits: Habits,
    /// Requests that hung.
    pub hung: u64,
    /// No request hangs any more.
    pub calm: bool,
}

impl Disk {
    /// A disk of zeroes.
    #[must_use]
    pub fn new(len: usize, habits: Habits, random: Random) -> Rc<RefCell<Disk>> {
        Rc::new(RefCell::new(Disk {
            bytes: vec![0; len],
            random,
            habits,
            hung: 0,
            calm: false,
        }))
    }

    /// Bytes of it.
    #[must_use]
    pub fn bytes(&self, at: u64, len: usize) -> &[u8] {
        &self.bytes[at as usize..][..len]
    }

    fn chance(&mut self, once_in: u64) -> bool {
        once_in > 0 && self.random.once_in(once_in)
    }
}

/// Properties that such media report.
pub const TRAITS: MediumTraits = MediumTraits {
    deallocate: true,
    deallocated_reads_zero: true,
    volatile_cache: true,
    optimal_bytes: 4096,
    read_only: false,
    notes: false,
    allocation: false,
    erases: false,
};

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
    Compare,
    CompareAndWrite,
    Zero,
    Nothing,
}

/// Bytes of the host; those without an address go nowhere.
#[derive(Clone, Copy, Debug)]
struct Piece {
    at: Option<Iova>,
    len: u32,
}

#[derive(Debug)]
struct Op {
    ticket: Option<Ticket>,
    kind: Kind,
    /// Its ranges of the disk: one, except for Deallocate.
    ranges: Vec<(u64, u64)>,
    pieces: Vec<Piece>,
    view: Arc<DmaView>,
    /// Cause that it ends with, where it has taken effect.
    cause: Option<Cause>,
    fails: bool,
    /// The moment at which it was added.
    added: u64,
}

/// A reactor's handle on a disk.
#[derive(Debug)]
pub struct SimChannel {
    disk: Rc<RefCell<Disk>>,
    clock: Rc<Clock>,
    ops: Vec<Op>,
    free: Vec<usize>,
    due: BinaryHeap<Reverse<(u64, usize)>>,
    scratch: Vec<u8>,
}

impl SimChannel {
    /// A handle.
    #[must_use]
    pub fn new(disk: &Rc<RefCell<Disk>>, clock: &Rc<Clock>) -> Self {
        SimChannel {
            disk: disk.clone(),
            clock: clock.clone(),
            ops: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            scratch: Vec::new(),
        }
    }

    /// When the next request ends.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((due, _))| *due)
    }

    /// The moment at which the oldest request in flight was added.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        let in_flight = self.due.iter().map(|Reverse((_, index))| *index);
        let oldest = in_flight.map(|index| self.ops[index].added).min();
        oldest.unwrap_or(u64::MAX)
    }

    /// The process of this channel has died: what is in flight takes effect now, or never.
    pub fn die(&mut self) {
        while let Some(Reverse((_, index))) = self.due.pop() {
            let lands = self.disk.borrow_mut().random.once_in(2);
            if lands {
                self.apply(index);
            }
        }
    }

    fn take_op(&mut self, view: &Arc<DmaView>) -> usize {
        if let Some(index) = self.free.pop() {
            self.ops[index].view = view.clone();
            return index;
        }
        self.ops.push(Op {
            ticket: None,
            kind: Kind::Nothing,
            ranges: Vec::new(),
            pieces: Vec::new(),
            view: view.clone(),
            cause: None,
            fails: false,
            added: 0,
        });
        self.ops.len() - 1
    }

    /// Lets a request take effect, once.
    fn apply(&mut self, index: usize) -> Cause {
        let op = &mut self.ops[index];
        if let Some(cause) = op.cause {
            return cause;
        }
        let disk = &mut *self.disk.borrow_mut();
        let cause = if op.fails {
            op.fail(disk, &mut self.scratch)
        } else {
            op.run(disk, &mut self.scratch)
        };
        op.cause = Some(cause);
        cause
    }

    fn end(&mut self, index: usize) -> Option<Done> {
        let outcome = Outcome::of(self.apply(index));
        let op = &mut self.ops[index];
        op.pieces.clear();
        op.ranges.clear();
        op.cause = None;
        self.free.push(index);
        let ticket = op.ticket.take()?;
        Some(Done { ticket, outcome })
    }
}

impl Op {
    fn set(&mut self, request: &Request<'_>, segments: &[Segment<'_>]) {
        let (kind, range) = match *request {
            Request::Read { offset, len } => (Kind::Read, (offset, len.into())),
            Request::Write { offset, len, .. } => (Kind::Write, (offset, len.into())),
            Request::Compare { offset, len } => (Kind::Compare, (offset, len.into())),
            Request::CompareAndWrite { offset, len, .. } => {
                (Kind::CompareAndWrite, (offset, len.into()))
            }
            Request::WriteZeroes { offset, len, .. } => (Kind::Zero, (offset, len)),
            Request::Deallocate { ranges } => {
                self.ranges
                    .extend(ranges.iter().map(|range| (range.offset, range.len)));
                (Kind::Zero, (0, 0))
            }
            // Its namespaces have no command set of their own.
            Request::Flush | Request::Command { .. } | Request::Renew { .. } => {
                (Kind::Nothing, (0, 0))
            }
        };
        self.kind = kind;
        if range.1 > 0 {
            self.ranges.push(range);
        }
        self.pieces.extend(segments.iter().map(|segment| Piece {
            at: (!segment.is_sink()).then(|| segment.iova()),
            len: segment.len(),
        }));
    }

    /// Calls `each` with the host's memory, piece by piece, and where it lies in the data.
    fn host_bytes(&self, need: Need, mut each: impl FnMut(&Segment<'_>, usize)) {
        let (mut hint, mut at) = (Hint::default(), 0);
        for piece in &self.pieces {
            let mut done = 0;
            while let Some(iova) = piece.at.filter(|_| done < piece.len) {
                let iova = Iova(iova.0 + u64::from(done));
                let left = piece.len - done;
                let segment = self.view.translate(&mut hint, iova, left, need);
                let segment = segment.expect("the view that it was found in does not change");
                each(&segment, at + done as usize);
                done += segment.len();
            }
            at += piece.len as usize;
        }
    }

    /// The host's bytes, to `scratch`.
    fn gather(&self, scratch: &mut Vec<u8>) {
        let len: u32 = self.pieces.iter().map(|piece| piece.len).sum();
        scratch.resize(len as usize, 0);
        self.host_bytes(Need::DeviceReads, |segment, at| {
            let len = segment.len() as usize;
            segment.read_into(0, &mut scratch[at..at + len]);
        });
    }

    fn run(&self, disk: &mut Disk, scratch: &mut Vec<u8>) -> Cause {
        let (offset, len) = self.ranges.first().copied().unwrap_or((0, 0));
        let (offset, len) = (offset as usize, len as usize);
        match self.kind {
            Kind::Read => {
                let data = &disk.bytes[offset..offset + len];
                self.host_bytes(Need::DeviceWrites, |segment, at| {
                    segment.write_from(0, &data[at..at + segment.len() as usize]);
                });
            }
            Kind::Write => {
                let data = &mut disk.bytes[offset..offset + len];
                self.host_bytes(Need::DeviceReads, |segment, at| {
                    segment.read_into(0, &mut data[at..at + segment.len() as usize]);
                });
            }
            Kind::Compare => {
                self.gather(scratch);
                if disk.bytes[offset..offset + len] != scratch[..] {
                    return Cause::CompareMismatch;
                }
            }
            Kind::CompareAndWrite => {
                self.gather(scratch);
                let (old, new) = scratch.split_at(len);
                let data = &mut disk.bytes[offset..offset + len];
                if data != old {
                    return Cause::CompareMismatch;
                }
                data.copy_from_slice(new);
            }
            Kind::Zero => {
                for (offset, len) in &self.ranges {
                    disk.bytes[*offset as usize..(offset + len) as usize].fill(0);
                }
            }
            Kind::Nothing => {}
        }
        Cause::None
    }

    /// It ends with an error, and what it changes is changed or is not.
    fn fail(&self, disk: &mut Disk, scratch: &mut Vec<u8>) -> Cause {
        if disk.random.once_in(2) {
            self.run(disk, scratch);
        }
        match self.kind {
            Kind::Read | Kind::Compare => Cause::ReadFailed,
            _ => Cause::WriteFailed,
        }
    }
}

impl Channel for SimChannel {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        let mut disk = self.disk.borrow_mut();
        let habits = disk.habits;
        let in_flight = self.due.len();
        // With nothing in flight no reap would tell that there is room again.
        if in_flight >= habits.depth || in_flight > 0 && disk.chance(habits.full) {
            return Added::Full(ticket);
        }
        let at_once = disk.chance(habits.at_once);
        let hangs = !at_once && !disk.calm && disk.chance(habits.hangs);
        let early = hangs || disk.random.once_in(2);
        let fails = disk.chance(habits.fails);
        let latency_ns = match disk.chance(habits.slow) {
            _ if hangs => disk.random.between(HANG_NS, 2 * HANG_NS),
            true => disk.random.between(1, 100 * habits.usual_ns),
            false => disk.random.between(1, habits.usual_ns),
        };
        disk.hung += u64::from(hangs);
        drop(disk);
        let index = self.take_op(view);
        let op = &mut self.ops[index];
        op.ticket = Some(ticket);
        op.fails = fails;
        op.added = self.clock.moment.get();
        op.set(request, segments);
        if at_once {
            let Done { ticket, outcome } = self.end(index).expect("it has its ticket");
            return Added::Done(ticket, outcome);
        }
        if early {
            self.apply(index);
        }
        let due = self.clock.now_ns.get() + latency_ns;
        self.due.push(Reverse((due, index)));
        Added::Pending
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut Vec<Done>) {
        let now = self.clock.now_ns.get();
        while let Some(Reverse((due, index))) = self.due.peek().copied() {
            if due > now {
                break;
            }
            self.due.pop();
            done.extend(self.end(index));
        }
    }

    fn in_flight(&self) -> u32 {
        self.due.len() as u32
    }
}

/// The end of a simulation does not wait for requests in flight.
impl Drop for SimChannel {
    fn drop(&mut self) {
        for op in &mut self.ops {
            if let Some(ticket) = op.ticket.take() {
                ticket.retire();
            }
        }
    }
}

/// A channel of the simulation: of a medium of its own, or of the real one in memory.
#[derive(Debug)]
pub enum Port {
    /// In virtual time.
    Sim(SimChannel),
    /// The program's channel to memory.
    Ram(media::Channel),
}

impl Port {
    /// When something ends that wakes a reactor.
    #[must_use]
    pub fn wakes_at(&self) -> Option<u64> {
        match self {
            Port::Sim(channel) => channel.next_due(),
            Port::Ram(channel) => channel.next_due().map(|due| due.0),
        }
    }

    /// The moment at which the oldest request in flight was added, or an earlier one.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        match self {
            Port::Sim(channel) => channel.oldest(),
            Port::Ram(channel) if channel.in_flight() == 0 => u64::MAX,
            Port::Ram(_) => 0,
        }
    }

    /// Whether completions are found only by polling.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        match self {
            Port::Sim(_) => false,
            Port::Ram(channel) => channel.is_polled(),
        }
    }

    /// Work to be done now and then, whether or not anything is in flight.
    pub fn tend(&mut self) {
        if let Port::Ram(channel) = self {
            channel.tend();
        }
    }

    /// Whether a reap has something to do now; a sleeper is woken by what comes later.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        match self {
            Port::Sim(channel) => channel.next_due().is_some_and(|due| due <= now_ns),
            Port::Ram(channel) => channel.is_due(),
        }
    }
}

impl Channel for Port {
    #[inline]
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        match self {
            Port::Sim(channel) => channel.add(ticket, request, segments, view),
            Port::Ram(channel) => channel.add(ticket, request, segments, view),
        }
    }

    fn submit(&mut self) {
        match self {
            Port::Sim(channel) => channel.submit(),
            Port::Ram(channel) => channel.submit(),
        }
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Done>) {
        match self {
            Port::Sim(channel) => channel.reap(done),
            Port::Ram(channel) => channel.reap(done),
        }
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        match self {
            Port::Sim(channel) => channel.in_flight(),
            Port::Ram(channel) => channel.in_flight(),
        }
    }

    fn note(&self, request: &Request<'_>) -> Option<u64> {
        match self {
            Port::Sim(channel) => channel.note(request),
            Port::Ram(channel) => channel.note(request),
        }
    }

    fn uses_note(&self, note: u64) -> bool {
        match self {
            Port::Sim(channel) => channel.uses_note(note),
            Port::Ram(channel) => channel.uses_note(note),
        }
    }

    fn has_begun(&self, request: &Request<'_>, note: u64) -> bool {
        match self {
            Port::Sim(channel) => channel.has_begun(request, note),
            Port::Ram(channel) => channel.has_begun(request, note),
        }
    }

    fn add_again(
        &mut self,
        ticket: Ticket,
        noted: (&Request<'_>, u64),
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        match self {
            Port::Sim(channel) => channel.add_again(ticket, noted, segments, view),
            Port::Ram(channel) => channel.add_again(ticket, noted, segments, view),
        }
    }

    fn copies(&self) -> bool {
        match self {
            Port::Sim(channel) => channel.copies(),
            Port::Ram(channel) => channel.copies(),
        }
    }

    fn is_full(&self, request: &Request<'_>) -> bool {
        match self {
            Port::Sim(channel) => channel.is_full(request),
            Port::Ram(channel) => channel.is_full(request),
        }
    }

    fn keeps_time(&self) -> bool {
        match self {
            Port::Sim(_) => false,
            Port::Ram(channel) => channel.keeps_time(),
        }
    }

    fn set_time(&mut self, now: Time, done: &mut Vec<Done>) {
        if let Port::Ram(channel) = self {
            channel.set_time(now, done);
        }
    }

    fn arrive(&mut self) {
        if let Port::Ram(channel) = self {
            channel.arrive();
        }
    }

    fn next_due(&self) -> Option<Time> {
        match self {
            // Its requests end without being told the time.
            Port::Sim(_) => None,
            Port::Ram(channel) => channel.next_due(),
        }
    }
}
