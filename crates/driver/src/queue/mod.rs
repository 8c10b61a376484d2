//! One submission queue and the completion queue that belongs to it.
//!
//! Invariants:
//! - The submission queue has one entry more than commands may be in flight, so that it is never
//!   full; the completion queue has the same size and therefore always has a free entry.
//! - A command identifier is the number of a slot; it is free, in flight, or completed. It becomes
//!   free when its completion is handed out, one by one ([`QueuePair::next_completion`]), so a
//!   command submitted in between never has the identifier of a completion that the caller has not
//!   seen. A completion for an identifier that is not in flight is the drive's mistake and an error
//!   here, never a panic.
//! - A command allocates nothing and makes no system call.
//!
//! A queue pair does not interpret its commands; the helpers for the NVM command set are in
//! [`crate::io`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use memory::{Buffer, EventFd, HostCq, HostSq, Iova};
use nvme_spec::{Cqe, Sqe};

use crate::DriverError;
use crate::bus::Bus;
use crate::doorbell::{Doorbell, Rang};

mod carrier;
mod pointers;

pub(crate) use carrier::CarrierParts;
pub use carrier::{Carrier, HeadCarrier};
pub use pointers::DataPointer;

/// Empty looks between two questions whether the server is still there: about
/// every millisecond of polling in vain, never while there is work.
const LOOKS_PER_ALIVE_CHECK: u32 = 1 << 16;
/// The same where the bus may nap between looks.
const NAPS_PER_ALIVE_CHECK: u32 = 1 << 10;
/// Completions that one poll takes at most.
const BATCH: usize = 64;

/// As many commands are in flight as the queue pair allows: poll first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full; poll for completions first")]
pub struct Full;

/// How often a queue pair has notified its controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rung {
    /// New commands: moves of the submission queue's tail.
    pub submissions: u64,
    /// Register writes among those, and among the moves of the completion queue's head: each costs
    /// a guest an exit, and sends a server a message.
    pub messages: u64,
}

/// The interrupt of a queue pair, for a thread that waits while others use the
/// queue pair.
pub struct QueueInterrupt<B> {
    bus: Arc<B>,
    eventfd: EventFd,
}

impl<B: Bus> QueueInterrupt<B> {
    /// Waits until something was posted, or [`Self::wake`] was called, since the
    /// last time: true; or until the time is over: false.
    ///
    /// # Errors
    /// [`DriverError::Gone`] as soon as the server is.
    pub fn wait(&self, timeout: Duration) -> Result<bool, DriverError> {
        self.bus.wait(&self.eventfd, timeout)
    }

    /// Ends a wait, as an interrupt does.
    ///
    /// # Errors
    /// [`DriverError::System`].
    pub fn wake(&self) -> Result<(), DriverError> {
        self.eventfd.signal().map_err(|source| DriverError::System {
            what: "signal an eventfd",
            source,
        })
    }
}

/// Memory of a queue pair's rings and lists. The device keeps it too, until the controller has
/// deleted the queue: it may write here that long.
pub(crate) struct QueueMemory {
    pub(crate) sq: HostSq,
    /// The queue from which completions are read.
    pub(crate) cq: HostCq,
    /// The queue to which the controller posts them, if another: a [`Carrier`] copies them.
    pub(crate) posted: Option<HostCq>,
    /// `list_pages` pages per command.
    lists: Option<Buffer>,
    list_pages: u64,
}

impl QueueMemory {
    pub(crate) fn new(sq: HostSq, cq: HostCq, lists: Option<Buffer>, list_pages: u64) -> Self {
        Self {
            sq,
            cq,
            posted: None,
            lists,
            list_pages,
        }
    }

    /// The controller posts completions somewhere else.
    pub(crate) fn posted_to(mut self, posted: HostCq) -> Self {
        self.posted = Some(posted);
        self
    }
}

/// Parts of a new queue pair.
pub(crate) struct Parts<B> {
    pub(crate) bus: Arc<B>,
    pub(crate) qid: u16,
    pub(crate) depth: u16,
    pub(crate) base: Iova,
    pub(crate) memory: Arc<QueueMemory>,
    pub(crate) sq_tail: Doorbell,
    pub(crate) cq_head: Doorbell,
    pub(crate) vector: Option<u16>,
    pub(crate) interrupt: Option<EventFd>,
    pub(crate) timeout: Duration,
    pub(crate) transfer_len: u32,
    pub(crate) current: Arc<AtomicBool>,
}

/// A submission queue with its completion queue, used by one thread at a time.
pub struct QueuePair<B: Bus> {
    bus: Arc<B>,
    qid: u16,
    depth: u16,
    base: Iova,
    memory: Arc<QueueMemory>,
    sq_tail: Doorbell,
    cq_head: Doorbell,
    /// The vector of its interrupt: queues have one each, by number.
    vector: Option<u16>,
    /// Signalled by that, for who waits with the queue pair itself.
    interrupt: Option<EventFd>,
    timeout: Duration,
    transfer_len: u32,
    /// The controller has not been disabled since the queue was made.
    current: Arc<AtomicBool>,
    /// Entries of both rings.
    entries: u32,
    tail: u32,
    head: u32,
    /// The phase tag that a new completion has.
    phase: bool,
    /// Entries were written since the doorbell was rung.
    tail_moved: bool,
    /// Completions were taken since the doorbell was rung.
    head_moved: bool,
    /// Free command identifiers; the one used next is the last.
    free: Vec<u16>,
    /// The drive has the command, by identifier.
    in_flight: Vec<bool>,
    /// Completions taken by the last poll, of which the first `handed` are
    /// handed out: copies, because the drive may write its own again.
    taken: [[u64; 2]; BATCH],
    taken_len: usize,
    handed: usize,
    /// Looks in vain since the last completion.
    empty: u32,
    submitted: u64,
    rung: Rung,
}

impl<B: Bus> QueuePair<B> {
    /// Completions that one [`Self::poll`] takes at most.
    pub const BATCH: usize = BATCH;

    pub(crate) fn new(parts: Parts<B>) -> Self {
        let Parts {
            bus,
            qid,
            depth,
            base,
            memory,
            sq_tail,
            cq_head,
            vector,
            interrupt,
            timeout,
            transfer_len,
            current,
        } = parts;
        Self {
            bus,
            qid,
            depth,
            base,
            memory,
            sq_tail,
            cq_head,
            vector,
            interrupt,
            timeout,
            transfer_len,
            current,
            entries: u32::from(depth) + 1,
            tail: 0,
            head: 0,
            phase: true,
            tail_moved: false,
            head_moved: false,
            free: (0..depth).rev().collect(),
            in_flight: vec![false; usize::from(depth)],
            taken: [[0; 2]; BATCH],
            taken_len: 0,
            handed: 0,
            empty: 0,
            submitted: 0,
            rung: Rung::default(),
        }
    }

    /// The queue identifier.
    #[must_use]
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// Commands that may be in flight at once.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Commands submitted whose completions have not been handed out.
    #[must_use]
    pub fn in_flight(&self) -> u16 {
        let free = u16::try_from(self.free.len()).expect("as many as the depth, which is 16 bits");
        self.depth - free
    }

    /// Bytes that one command may move.
    #[must_use]
    pub fn transfer_len(&self) -> u32 {
        self.transfer_len
    }

    /// Commands submitted so far.
    #[must_use]
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Counts of its doorbell rings.
    #[must_use]
    pub fn rung(&self) -> Rung {
        self.rung
    }

    /// The wait handle for a thread other than the queue pair's; `None` for a queue pair created
    /// without an interrupt.
    #[must_use]
    pub fn interrupt(&self) -> Option<QueueInterrupt<B>> {
        Some(QueueInterrupt {
            bus: self.bus.clone(),
            eventfd: self.interrupt.clone()?,
        })
    }

    /// Offsets of its doorbell registers in BAR0: the submission queue's tail, and the completion
    /// queue's head.
    #[must_use]
    pub fn doorbell_offsets(&self) -> [u64; 2] {
        [self.sq_tail.offset(), self.cq_head.offset()]
    }

    /// The bus that this queue pair uses.
    #[must_use]
    pub fn bus(&self) -> &B {
        &self.bus
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn memory(&self) -> &Arc<QueueMemory> {
        &self.memory
    }

    /// Address of the submission queue for the controller.
    pub(crate) fn sq_iova(&self) -> Iova {
        self.memory.sq.buffer().iova(self.base)
    }

    /// Address of the completion queue for the controller.
    pub(crate) fn cq_iova(&self) -> Iova {
        let cq = self.memory.posted.as_ref().unwrap_or(&self.memory.cq);
        cq.buffer().iova(self.base)
    }

    /// The vector of the queue's interrupt, where it has one.
    #[must_use]
    pub fn interrupt_vector(&self) -> Option<u16> {
        self.vector
    }

    /// Has the next commands use the slots from 0 on: as many as are in flight
    /// at once, and no others.
    ///
    /// # Panics
    /// When a command is in flight.
    pub(crate) fn order_slots(&mut self) {
        assert_eq!(self.in_flight(), 0, "slots in use keep their order");
        self.free.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Address of `buffer`'s first byte for the drive.
    #[must_use]
    pub fn iova(&self, buffer: &Buffer) -> Iova {
        buffer.iova(self.base)
    }

    /// The command identifier that the next [`Self::submit`] gives; it is also
    /// the number of the slot whose list [`Self::pointer`] fills.
    #[must_use]
    pub fn next_cid(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// Puts a command into the queue and gives its identifier. The controller
    /// Puts a command into the queue and gives its identifier, which replaces the one in `sqe`. The
    /// controller learns of it by [`Self::ring`].
    /// # Errors
    /// [`Full`].
    #[inline]
    pub fn submit(&mut self, sqe: Sqe) -> Result<u16, Full> {
        self.submit_words(sqe.to_words())
    }

    /// As [`Self::submit`], for an entry as eight little-endian words.
    ///
    /// # Errors
    /// [`Full`].
    #[inline]
    pub fn submit_words(&mut self, mut words: [u64; 8]) -> Result<u16, Full> {
        let cid = self.free.pop().ok_or(Full)?;
        self.in_flight[usize::from(cid)] = true;
        words[0] = words[0] & !(0xffff << 16) | u64::from(cid) << 16;
        self.memory.sq.store(self.tail, words);
        self.tail = self.after(self.tail);
        self.tail_moved = true;
        self.submitted += 1;
        Ok(cid)
    }

    /// Tells the controller of everything submitted, and of the completions
    /// taken, each by one doorbell.
    ///
    /// # Errors
    /// [`DriverError::Unsupported`] after a reset of the controller: its doorbell
    /// belongs to another queue now. Those of a register write, where the
    /// doorbell needs one.
    #[inline]
    pub fn ring(&mut self) -> Result<(), DriverError> {
        self.ring_by(|bus, offset, value| bus.ring(offset, value).map(|()| true))
            .map(drop)
    }

    /// As [`Self::ring`], but never blocks: returns false if a register write would block. Call it
    /// again then.
    ///
    /// # Errors
    /// As [`Self::ring`].
    #[inline]
    pub fn try_ring(&mut self) -> Result<bool, DriverError> {
        self.ring_by(B::try_ring)
    }

    #[inline]
    fn ring_by(
        &mut self,
        write: impl Fn(&B, u64, u32) -> Result<bool, DriverError>,
    ) -> Result<bool, DriverError> {
        let is_told = self.ring_head(&write)?;
        if self.tail_moved {
            self.check_current()?;
            let rang = self.sq_tail.ring(&*self.bus, self.tail, &write)?;
            self.tail_moved = rang == Rang::NotYet;
            self.rung.submissions += u64::from(!self.tail_moved);
            self.rung.messages += u64::from(rang == Rang::Written);
        }
        Ok(is_told && !self.tail_moved)
    }

    #[inline]
    fn ring_head(
        &mut self,
        write: impl Fn(&B, u64, u32) -> Result<bool, DriverError>,
    ) -> Result<bool, DriverError> {
        if self.head_moved {
            self.check_current()?;
            let rang = self.cq_head.ring(&*self.bus, self.head, write)?;
            self.head_moved = rang == Rang::NotYet;
            self.rung.messages += u64::from(rang == Rang::Written);
        }
        Ok(!self.head_moved)
    }

    #[inline]
    /// Whether the controller has the queue: it was not reset since.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.check_current().is_ok()
    }

    fn check_current(&self) -> Result<(), DriverError> {
        check_current(&self.current, self.qid)
    }

    /// Between two looks for a completion that is waited for.
    ///
    /// # Errors
    /// [`DriverError::Gone`].
    pub(crate) fn relax(&self) -> Result<(), DriverError> {
        if self.empty.is_multiple_of(NAPS_PER_ALIVE_CHECK) {
            self.bus.check_alive()?;
        }
        self.bus.relax(self.empty);
        Ok(())
    }

    /// Takes completions, at most [`Self::BATCH`], and returns their number:
    /// [`Self::next_completion`] hands them out. Never blocks. While some of the last batch are
    /// left, it returns their number and takes no others.
    ///
    /// The controller learns that the entries are free by the next call of
    /// this or of [`Self::ring`], whichever is first: both doorbells then move
    /// together between the processors' caches.
    ///
    /// # Errors
    /// [`DriverError::Gone`], found out now and then while nothing completes;
    /// [`DriverError::Broken`] for a completion that fits no command.
    #[inline]
    pub fn poll(&mut self) -> Result<usize, DriverError> {
        self.poll_up_to(BATCH)
    }

    /// As [`Self::poll`], for at most so many.
    ///
    /// # Errors
    /// As [`Self::poll`].
    #[inline]
    pub fn poll_up_to(&mut self, most: usize) -> Result<usize, DriverError> {
        if self.handed < self.taken_len {
            return Ok(self.taken_len - self.handed);
        }
        self.ring_head(B::try_ring)?;
        self.bus.turn();
        let most = most.min(BATCH);
        let mut taken = 0;
        while taken < most {
            let words = self.memory.cq.load(self.head);
            if (words[1] >> 48 & 1 == 1) != self.phase {
                break;
            }
            if let Err(error) = self.check(words[1]) {
                (self.taken_len, self.handed) = (taken, 0);
                return Err(error);
            }
            self.taken[taken] = words;
            taken += 1;
            self.head = self.after(self.head);
            if self.head == 0 {
                self.phase = !self.phase;
            }
        }
        (self.taken_len, self.handed) = (taken, 0);
        if taken == 0 {
            self.empty = self.empty.wrapping_add(1);
            if self.empty.is_multiple_of(LOOKS_PER_ALIVE_CHECK) {
                self.bus.check_alive()?;
            }
        } else {
            self.head_moved = true;
            self.empty = 0;
        }
        Ok(taken)
    }

    /// Hands out the next completion of the last [`Self::poll`], and frees its
    /// identifier; `None` when there is none left.
    #[inline]
    pub fn next_completion(&mut self) -> Option<Cqe> {
        if self.handed == self.taken_len {
            return None;
        }
        let words = *self.taken.get(self.handed)?;
        self.handed += 1;
        self.free.push(identifiers(words[1])[1]);
        Some(Cqe::from_words(words))
    }

    /// Notes that the drive has answered a command, given dwords 2 and 3 of its
    /// completion: from the word as loaded, because an entry put together in
    /// memory only to be looked at costs more than all the rest.
    #[inline]
    fn check(&mut self, high: u64) -> Result<(), DriverError> {
        let [sqid, cid] = identifiers(high);
        match self.in_flight.get_mut(usize::from(cid)) {
            Some(in_flight) if *in_flight && sqid == self.qid => {
                *in_flight = false;
                Ok(())
            }
            _ => Err(DriverError::Broken(format!(
                "queue {} received a completion for command {cid} of queue {sqid}, which is not in flight",
                self.qid
            ))),
        }
    }

    #[inline]
    fn after(&self, index: u32) -> u32 {
        let next = index + 1;
        if next == self.entries { 0 } else { next }
    }

    /// Whether the command with that identifier is in flight.
    #[must_use]
    pub fn is_in_flight(&self, cid: u16) -> bool {
        self.in_flight.get(usize::from(cid)) == Some(&true)
    }

    /// Whether a poll would find a completion.
    #[must_use]
    pub fn is_posted(&self) -> bool {
        let words = self.memory.cq.load(self.head);
        self.handed < self.taken_len || (words[1] >> 48 & 1 == 1) == self.phase
    }

    /// Looks in vain since the last completion.
    #[must_use]
    pub fn empty_looks(&self) -> u32 {
        self.empty
    }

    /// As [`Self::poll`], and waits for the queue's interrupt when there is
    /// nothing: at most `timeout`, after which the result is 0.
    ///
    /// # Errors
    /// As [`Self::poll`]; [`DriverError::Unsupported`] for a queue pair made
    /// without an interrupt.
    pub fn wait(&mut self, timeout: Duration) -> Result<usize, DriverError> {
        let taken = self.poll()?;
        if taken > 0 {
            return Ok(taken);
        }
        let deadline = self.deadline(timeout);
        loop {
            let left = Duration::from_nanos(deadline.saturating_sub(self.bus.now_ns()));
            let interrupt = self.interrupt.as_ref().ok_or_else(|| {
                DriverError::Unsupported(format!(
                    "queue {} was created without an interrupt and can only be polled",
                    self.qid
                ))
            })?;
            // It clears the signal before the look: what is posted after that
            // signals again.
            let signalled = self.bus.wait(interrupt, left)?;
            let taken = self.poll()?;
            if taken > 0 || !signalled {
                return Ok(taken);
            }
        }
    }

    /// Submits a command and polls until it is done. Nothing else may be in
    /// flight in this queue pair.
    ///
    /// # Errors
    /// [`DriverError::Status`] when it fails, [`DriverError::Timeout`] when it
    /// does not finish: its buffers then belong to the controller until the
    /// queue is deleted or the controller reset.
    pub fn run(&mut self, command: &'static str, sqe: Sqe) -> Result<Cqe, DriverError> {
        if self.in_flight() != 0 {
            return Err(DriverError::Unsupported(format!(
                "{command} must run alone, but {} commands are in flight in queue {}; poll them first",
                self.in_flight(),
                self.qid
            )));
        }
        self.submit(sqe)
            .expect("nothing is in flight, and a queue holds one command");
        self.ring()?;
        let deadline = self.deadline(self.timeout);
        let cqe = loop {
            self.poll()?;
            if let Some(cqe) = self.next_completion() {
                break cqe;
            }
            if self.bus.now_ns() > deadline {
                return Err(DriverError::Timeout {
                    what: command,
                    after: self.timeout,
                });
            }
            self.relax()?;
        };
        self.ring()?;
        DriverError::check(command, cqe.status.status())?;
        Ok(cqe)
    }

    /// Sets the timeout of [`Self::run`], in place of the one that the device was opened with.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The point in the bus's time that is `timeout` from now.
    pub(crate) fn deadline(&self, timeout: Duration) -> u64 {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.bus.now_ns().saturating_add(timeout)
    }
}

/// The submission queue and the command of a completion, of its dwords 2 and 3.
#[inline]
fn identifiers(high: u64) -> [u16; 2] {
    let [_, _, c, d, e, f, _, _] = high.to_le_bytes();
    [u16::from_le_bytes([c, d]), u16::from_le_bytes([e, f])]
}

#[inline]
fn check_current(current: &AtomicBool, qid: u16) -> Result<(), DriverError> {
    // Relaxed: it is set by the thread that has the device, before queues of
    // the same number are made there and handed to this one.
    if current.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(DriverError::Unsupported(format!(
        "queue {qid} ended when its device was reset or dropped; create a new one"
    )))
}

#[cfg(test)]
mod tests;
