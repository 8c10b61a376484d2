//! Rings as a host has them, and the commands that are out.

use super::Host;
use super::ram::{PAGE, Pages, RINGS_IOVA, Ram};
use crate::ledger::{Effect, Span};
use crate::reservations::Act;
use crate::zones::{self, Task};

/// Entries of an I/O submission queue at most: what fits into a page.
pub(super) const SQ_ENTRIES: u32 = 64;
/// Entries of a completion queue at most.
pub(super) const CQ_ENTRIES: u32 = 256;
/// Completion queues for I/O at most.
pub(super) const CQS: usize = 4;
/// Submission queues for I/O at most.
pub(super) const SQS: usize = 8;

/// The pages of the doorbell buffers in the area of the rings.
pub(super) const SHADOW_PAGE: usize = 4;
/// As above.
pub(super) const EVENT_IDX_PAGE: usize = 5;
/// A page for what Identify tells.
pub(super) const IDENTIFY_PAGE: usize = 30;
/// A page for what a host says of its behavior.
pub(super) const BEHAVIOR_PAGE: usize = 31;
const CQ_PAGES: usize = 6;
const SQ_PAGES: usize = CQ_PAGES + 2 * CQS;

/// Effect of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Flush.
    Flush,
    /// Write.
    Write,
    /// Read.
    Read,
    /// Compare.
    Compare,
    /// Write Zeroes.
    Zeroes,
    /// Dataset Management, Deallocate.
    Deallocate,
    /// Copy.
    Copy {
        /// Its sources name their namespaces.
        across: bool,
    },
    /// Something to a zone.
    Zone(Task),
    /// A reservation command.
    Reserve(Act),
}

/// Why a command may fail.
pub(super) mod excuse {
    /// Its memory is being taken away.
    pub(in crate::host) const UNMAP: u8 = 1;
    /// It is to be aborted.
    pub(in crate::host) const ABORT: u8 = 2;
    /// Its queue is being deleted.
    pub(in crate::host) const DELETE: u8 = 4;
    /// The controller is being shut down.
    pub(in crate::host) const SHUTDOWN: u8 = 16;
}

/// A command that is out.
#[derive(Clone, Debug)]
pub(super) struct Command {
    /// Its identifier.
    pub(super) cid: u16,
    /// Its effect.
    pub(super) kind: Kind,
    /// Which of the host's namespaces.
    pub(super) space: usize,
    /// Its blocks; the first range of several.
    pub(super) span: Span,
    /// Further ranges.
    pub(super) more: Vec<Span>,
    /// Blocks that a copy reads.
    pub(super) sources: Vec<Span>,
    /// The moment from which on a copy has read.
    pub(super) reads_since: u64,
    /// The number of the write, or the moment at which a read was submitted.
    pub(super) mark: u64,
    /// When it was submitted.
    pub(super) since: u64,
    /// Its data.
    pub(super) pages: Option<Pages>,
    /// Its memory was taken away meanwhile.
    pub(super) lost: bool,
    /// Why it may fail.
    pub(super) excuses: u8,
    /// Data that a Compare expects.
    pub(super) expected: Vec<u64>,
}

impl Kind {
    /// Its opcode (Base 2.1, NVM 1.1, ZNS 1.1).
    pub(super) fn opcode(self) -> u64 {
        match self {
            Kind::Flush => 0x00,
            Kind::Write => 0x01,
            Kind::Read => 0x02,
            Kind::Compare => 0x05,
            Kind::Zeroes => 0x08,
            Kind::Deallocate => 0x09,
            Kind::Copy { .. } => 0x19,
            Kind::Reserve(act) => Host::reservation_words(act).0,
            Kind::Zone(task) => match task.act {
                zones::Act::Write { write: 0, .. } => 0x08,
                zones::Act::Write { .. } => 0x01,
                zones::Act::Append { .. } => 0x7d,
                zones::Act::Read { .. } => 0x02,
                zones::Act::Send(_) => 0x79,
                zones::Act::Report => 0x7a,
            },
        }
    }

    /// Whether it writes blocks, of which the ledger knows.
    pub(super) fn writes(self) -> bool {
        let copies = matches!(self, Kind::Copy { .. });
        copies || matches!(self, Kind::Write | Kind::Zeroes | Kind::Deallocate)
    }
}

impl Command {
    /// Its effect on the blocks that it writes.
    pub(super) fn effect(&self) -> Effect {
        match self.kind {
            Kind::Copy { .. } => Effect::Copy(self.sources.clone(), self.reads_since),
            Kind::Zeroes | Kind::Deallocate => Effect::Zeroes,
            _ => Effect::Data,
        }
    }
}

/// The two places of a ring, one of them in use, the other one poisoned after its first use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    page: usize,
    second: bool,
    poisoned: bool,
}

impl Place {
    fn new(page: usize) -> Self {
        Place {
            page,
            second: true,
            poisoned: false,
        }
    }

    fn page(self) -> usize {
        self.page + usize::from(self.second)
    }

    /// The byte in the area of the rings.
    #[inline]
    pub(super) fn at(self) -> usize {
        self.page() * PAGE
    }

    /// The address for the device.
    #[must_use]
    pub(super) fn iova(self) -> u64 {
        RINGS_IOVA + self.at() as u64
    }

    /// The other place from now on; whether it is unchanged since it was left.
    #[must_use]
    pub(super) fn change(&mut self, ram: &Ram) -> bool {
        let left = self.page();
        self.second = !self.second;
        let intact = !self.poisoned || ram.is_ring_page_poisoned(self.page());
        self.poisoned = true;
        ram.fill_ring_page(left, true);
        ram.fill_ring_page(self.page(), false);
        intact
    }
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    /// Its ring.
    pub(super) place: Place,
    /// Its size.
    pub(super) entries: u32,
    /// The next entry to be taken.
    pub(super) head: u32,
    /// The phase tag of a new entry.
    pub(super) phase: bool,
    /// The head that the controller was told.
    pub(super) told: u32,
    /// The host waits for interrupts, and looks at no other time.
    pub(super) interrupts: bool,
    /// When the host looks.
    pub(super) look_at: Option<u64>,
    /// When it has found something last.
    pub(super) found_at: u64,
}

/// A submission queue.
#[derive(Debug)]
pub(super) struct Sq {
    /// Its ring.
    pub(super) place: Place,
    /// Its size.
    pub(super) entries: u32,
    /// The next entry to be filled.
    pub(super) tail: u32,
    /// The value that the controller was given.
    pub(super) told: u32,
    /// The head up to which the controller has fetched, by its own account.
    pub(super) head: u32,
    /// Which completion queue, as an index.
    pub(super) cq: usize,
    /// The controller has it, and commands may be submitted.
    pub(super) open: bool,
    /// Commands by the lower byte of their identifiers.
    pub(super) slots: Vec<Option<Command>>,
    free: Vec<u8>,
    rounds: u8,
    /// Commands that are out.
    pub(super) out: usize,
    /// As many commands as the host wants out.
    pub(super) depth: usize,
}

impl Cq {
    /// The admin queue's.
    #[must_use]
    pub(super) fn admin() -> Self {
        Self::at(2)
    }

    /// That of an index.
    #[must_use]
    pub(super) fn new(index: usize) -> Self {
        Self::at(CQ_PAGES + 2 * index)
    }

    fn at(page: usize) -> Self {
        Cq {
            place: Place::new(page),
            entries: 2,
            head: 0,
            phase: true,
            told: 0,
            interrupts: true,
            look_at: None,
            found_at: 0,
        }
    }

    /// A new ring; whether the one before the last is unchanged.
    #[must_use]
    pub(super) fn renew(&mut self, ram: &Ram, entries: u32) -> bool {
        self.entries = entries;
        (self.head, self.told, self.phase) = (0, 0, true);
        self.look_at = None;
        self.place.change(ram)
    }

    /// The next completion.
    #[inline]
    pub(super) fn take(&mut self, ram: &Ram) -> Option<Completion> {
        let entry: [u8; 16] = ram.get_ring(self.place.at() + 16 * self.head as usize);
        let entry = u128::from_le_bytes(entry);
        let completion = Completion::of(entry);
        if completion.phase != self.phase {
            return None;
        }
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
        Some(completion)
    }
}

/// A completion (Base 2.1, 4.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    /// How far the controller has fetched.
    pub(super) sq_head: u16,
    /// Which submission queue.
    pub(super) sqid: u16,
    /// Which command.
    pub(super) cid: u16,
    phase: bool,
    /// Dwords 0 and 1.
    pub(super) result: u64,
    /// Status Code Type and Status Code.
    pub(super) status: u16,
}

impl Completion {
    #[inline]
    fn of(entry: u128) -> Self {
        Completion {
            sq_head: (entry >> 64) as u16,
            sqid: (entry >> 80) as u16,
            cid: (entry >> 96) as u16,
            phase: entry >> 112 & 1 == 1,
            result: entry as u64,
            status: (entry >> 113) as u16 & 0x7ff,
        }
    }
}

impl Sq {
    /// The admin queue's.
    #[must_use]
    pub(super) fn admin() -> Self {
        Self::at(0, 0)
    }

    /// That of an index, which completes into that completion queue.
    #[must_use]
    pub(super) fn new(index: usize, cq: usize) -> Self {
        Self::at(SQ_PAGES + 2 * index, cq)
    }

    fn at(page: usize, cq: usize) -> Self {
        Sq {
            place: Place::new(page),
            entries: 2,
            tail: 0,
            told: 0,
            head: 0,
            cq,
            open: false,
            slots: vec![None; SQ_ENTRIES as usize],
            free: (0..SQ_ENTRIES as u8).rev().collect(),
            rounds: 0,
            out: 0,
            depth: 1,
        }
    }

    /// A new ring; whether the one before the last is unchanged.
    #[must_use]
    pub(super) fn renew(&mut self, ram: &Ram, entries: u32) -> bool {
        self.entries = entries;
        (self.tail, self.told, self.head) = (0, 0, 0);
        self.open = false;
        self.place.change(ram)
    }

    /// Whether another command may be put in.
    #[inline]
    #[must_use]
    pub(super) fn has_room(&self) -> bool {
        self.out < self.depth
            && (self.tail + 1) % self.entries != self.head
            && !self.free.is_empty()
    }

    /// An identifier for a command: its lower byte is the slot. It is not used again soon.
    #[inline]
    pub(super) fn take_cid(&mut self) -> u16 {
        let slot = self.free.pop().expect("there is room");
        self.rounds = self.rounds.wrapping_add(1);
        u16::from(self.rounds) << 8 | u16::from(slot)
    }

    /// Puts an entry in.
    #[inline]
    pub(super) fn put(&mut self, ram: &Ram, words: [u64; 8]) {
        let mut bytes = [0; 64];
        for (into, word) in bytes.chunks_exact_mut(8).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        ram.put_ring(self.place.at() + 64 * self.tail as usize, &bytes);
        self.tail = (self.tail + 1) % self.entries;
    }

    /// Takes the command of an identifier out.
    #[inline]
    pub(super) fn take(&mut self, cid: u16) -> Option<Command> {
        let slot = self.slots.get_mut(usize::from(cid & 0xff))?;
        let command = slot.take_if(|command| command.cid == cid)?;
        self.free.push(cid as u8);
        self.out -= 1;
        Some(command)
    }

    /// The controller has fetched up to here; whether that can be.
    #[inline]
    pub(super) fn fetched(&mut self, head: u16) -> bool {
        let distance = |to: u32| (to + self.entries - self.head) % self.entries;
        let head = u32::from(head);
        let can = head < self.entries && distance(head) <= distance(self.tail);
        self.head = head;
        can
    }

    /// Takes any command out, for a caller that drops all of them.
    pub(super) fn take_any(&mut self) -> Option<Command> {
        let mut slots = self.slots.iter().flatten();
        let cid = slots.next()?.cid;
        self.take(cid)
    }
}
