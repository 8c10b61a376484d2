//! Copies completions from the controller's completion queue to one that the thread with the queue
//! pair reads: the part of mediation that may run on its own thread.
//!
//! Between the two threads is a completion queue in our memory with as many entries as the
//! controller's. The carrier acts as its controller: an entry goes to the same place with the same
//! phase (Base 2.1, 4.2.4), and the reader returns its head by a doorbell. So the queue pair works
//! as with any controller.
//!
//! Invariants:
//! - An entry is copied once, and in order. The controller learns that its place is free when the
//!   entry has been copied, or, with a [`HeadCarrier`], when the reader has consumed it.
//! - An entry that the reader has not consumed is never overwritten: a controller that posts more
//!   than it was asked for waits.
//! - It never blocks, allocates, or makes a system call, except for a register write where the
//!   doorbell needs one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use memory::DoorbellPages;

use super::{LOOKS_PER_ALIVE_CHECK, QueueMemory, check_current};
use crate::DriverError;
use crate::bus::Bus;
use crate::doorbell::{Doorbell, Rang};

/// Entries that are brought at a time.
const BATCH: usize = 32;

/// Parts of a carrier.
pub(crate) struct CarrierParts<B> {
    pub(crate) bus: Arc<B>,
    pub(crate) qid: u16,
    pub(crate) depth: u16,
    pub(crate) memory: Arc<QueueMemory>,
    /// The controller's.
    pub(crate) cq_head: Doorbell,
    /// The reader's, in slot 0.
    pub(crate) heads: Arc<DoorbellPages>,
    pub(crate) current: Arc<AtomicBool>,
}

/// Copies the completions of a queue pair to its reader.
pub struct Carrier<B: Bus> {
    bus: Arc<B>,
    qid: u16,
    memory: Arc<QueueMemory>,
    heads: Arc<DoorbellPages>,
    /// `None`: a [`HeadCarrier`] has it.
    cq_head: Option<HeadBell>,
    current: Arc<AtomicBool>,
    entries: u32,
    /// The next entry, and the phase that it has when it is new: in both queues.
    at: u32,
    phase: bool,
    /// Looks in vain since the last entry.
    empty: u32,
}

/// The doorbell of the controller's completion queue, and whether the controller has the last value
/// of it.
struct HeadBell {
    doorbell: Doorbell,
    moved: bool,
}

impl HeadBell {
    fn ring<B: Bus>(&mut self, bus: &B, value: u32) -> Result<(), DriverError> {
        self.moved = self.doorbell.ring(bus, value, B::try_ring)? == Rang::NotYet;
        Ok(())
    }
}

impl<B: Bus> Carrier<B> {
    pub(crate) fn new(parts: CarrierParts<B>) -> Self {
        let CarrierParts {
            bus,
            qid,
            depth,
            memory,
            cq_head,
            heads,
            current,
        } = parts;
        assert!(memory.posted.is_some(), "a queue to bring entries from");
        Carrier {
            bus,
            qid,
            memory,
            heads,
            cq_head: Some(HeadBell {
                doorbell: cq_head,
                moved: false,
            }),
            current,
            entries: u32::from(depth) + 1,
            at: 0,
            phase: true,
            empty: 0,
        }
    }

    /// The queue pair's identifier.
    #[must_use]
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// Splits off head updates, for a third thread: from then on the controller receives the
    /// reader's own head.
    ///
    /// # Panics
    /// Where that was done before, or something was brought.
    #[must_use]
    pub fn split_heads(&mut self) -> HeadCarrier<B> {
        assert!(self.at == 0 && self.phase, "nothing was brought yet");
        HeadCarrier {
            bus: self.bus.clone(),
            qid: self.qid,
            memory: self.memory.clone(),
            heads: self.heads.clone(),
            cq_head: self.cq_head.take().expect("it is taken apart once"),
            current: self.current.clone(),
            entries: self.entries,
            told: 0,
            phase: true,
        }
    }

    /// Copies posted entries, as far as there is room and at most a batch; returns their number.
    /// Never blocks.
    ///
    /// # Errors
    /// [`DriverError::Gone`], found out now and then while nothing completes;
    /// [`DriverError::Unsupported`] after a reset of the controller.
    #[inline]
    pub fn carry(&mut self) -> Result<usize, DriverError> {
        self.tell_head()?;
        self.bus.turn();
        let posted = posted(&self.memory);
        let taken = self.heads.load(0);
        let mut brought = 0;
        while brought < BATCH {
            let words = posted.load(self.at);
            let next = after(self.at, self.entries);
            if !is_new(words, self.phase) || next == taken {
                break;
            }
            self.memory.cq.store(self.at, words);
            brought += 1;
            self.at = next;
            self.phase ^= next == 0;
        }
        if brought > 0 {
            self.empty = 0;
            if let Some(head) = &mut self.cq_head {
                head.moved = true;
            }
            self.tell_head()?;
        } else {
            self.empty = self.empty.wrapping_add(1);
            if self.empty.is_multiple_of(LOOKS_PER_ALIVE_CHECK) {
                self.bus.check_alive()?;
            }
        }
        Ok(brought)
    }

    /// Tells the controller which places are free, where it does not know.
    ///
    /// # Errors
    /// As [`Self::carry`].
    #[inline]
    fn tell_head(&mut self) -> Result<(), DriverError> {
        match &mut self.cq_head {
            Some(head) if head.moved => {
                check_current(&self.current, self.qid)?;
                head.ring(&*self.bus, self.at)
            }
            _ => Ok(()),
        }
    }

    /// Whether [`Self::carry`] has work: posted entries for which there is room, or free places to
    /// report to the controller.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let is_untold = self.cq_head.as_ref().is_some_and(|head| head.moved);
        let is_posted = is_new(posted(&self.memory).load(self.at), self.phase);
        is_untold || is_posted && after(self.at, self.entries) != self.heads.load(0)
    }
}

/// Reports to the controller of a queue pair which completions its reader has consumed.
pub struct HeadCarrier<B: Bus> {
    bus: Arc<B>,
    qid: u16,
    memory: Arc<QueueMemory>,
    heads: Arc<DoorbellPages>,
    cq_head: HeadBell,
    current: Arc<AtomicBool>,
    entries: u32,
    /// The head last reported to the controller, and the phase of new entries there.
    told: u32,
    phase: bool,
}

impl<B: Bus> HeadCarrier<B> {
    /// The queue pair's identifier.
    #[must_use]
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// Reports newly consumed entries to the controller; returns whether there were any. Never
    /// blocks.
    ///
    /// # Errors
    /// As [`Carrier::carry`].
    #[inline]
    pub fn carry(&mut self) -> Result<bool, DriverError> {
        let head = self.heads.load(0);
        if head == self.told && !self.cq_head.moved {
            return Ok(false);
        }
        check_current(&self.current, self.qid)?;
        self.cq_head.ring(&*self.bus, head)?;
        self.phase ^= head < self.told;
        self.told = head;
        Ok(true)
    }

    /// Whether entries were copied whose consumption was not reported to the controller yet: that
    /// follows soon, and no event announces it.
    #[must_use]
    pub fn is_due(&self) -> bool {
        debug_assert!(self.told < self.entries);
        self.cq_head.moved || is_new(self.memory.cq.load(self.told), self.phase)
    }
}

#[inline]
fn posted(memory: &QueueMemory) -> &memory::HostCq {
    memory.posted.as_ref().expect("looked at when it was made")
}

#[inline]
fn is_new(words: [u64; 2], phase: bool) -> bool {
    (words[1] >> 48 & 1 == 1) == phase
}

#[inline]
fn after(at: u32, entries: u32) -> u32 {
    if at + 1 == entries { 0 } else { at + 1 }
}
