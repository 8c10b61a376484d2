//! The private rings of a queue: this side is the host of the controller.

use std::mem::offset_of;

use controller::Controller;
use memory::{Buffer, HostCq, HostMemory, HostSq, Iova};
use nvme_spec::registers::{cq_head_offset, sq_tail_offset};
use nvme_spec::sqe::SQE_SIZE;
use nvme_spec::{Cqe, Sqe};
use port::namespace::NamespaceTable;

/// Address of the private memory for the controller: above all addresses of a guest.
pub(crate) const BASE: u64 = 1 << 62;
/// Bytes of a page.
pub(crate) const PAGE: usize = memory::PAGE as usize;

/// Bytes of a submission queue in whole pages.
const fn sq_len(entries: u32) -> usize {
    (entries as usize * size_of::<Sqe>()).next_multiple_of(PAGE)
}

/// Bytes of a completion queue in whole pages.
const fn cq_len(entries: u32) -> usize {
    (entries as usize * size_of::<Cqe>()).next_multiple_of(PAGE)
}

/// Bytes of both rings.
pub(crate) const fn rings_len(entries: u32) -> usize {
    sq_len(entries) + cq_len(entries)
}

/// Where the doorbells of a queue are rung.
pub(crate) trait Bells {
    /// The namespaces of its commands.
    fn namespaces(&self) -> &NamespaceTable;

    /// Rings both doorbells of a queue.
    fn ring(&mut self, qid: u16, tail: u32, head: u32);
}

impl Bells for Controller {
    fn namespaces(&self) -> &NamespaceTable {
        Controller::namespaces(self)
    }

    fn ring(&mut self, qid: u16, tail: u32, head: u32) {
        let mut both = [0; 8];
        both[..4].copy_from_slice(&tail.to_le_bytes());
        both[4..].copy_from_slice(&head.to_le_bytes());
        self.bar_write(0, sq_tail_offset(qid), &both);
    }
}

/// A submission queue and its completion queue.
#[derive(Debug)]
pub(crate) struct Rings {
    qid: u16,
    sq: HostSq,
    cq: HostCq,
    entries: u32,
    tail: u32,
    /// The controller has taken the entries before it, as completions say.
    head: u32,
    cq_head: u32,
    phase: bool,
    /// Tail and head that the controller was shown.
    rung: (u32, u32),
}

impl Rings {
    /// Rings of `entries` entries, with room for `most` as all such rings have: so a place that
    /// one has left takes any other.
    pub(crate) fn new(qid: u16, entries: u32, most: u32, memory: &HostMemory) -> Option<Self> {
        debug_assert!(entries <= most);
        Some(Self {
            qid,
            sq: HostSq::new(memory.alloc(sq_len(most), PAGE)?),
            cq: HostCq::new(memory.alloc(cq_len(most), PAGE)?),
            entries,
            tail: 0,
            head: 0,
            cq_head: 0,
            phase: true,
            rung: (0, 0),
        })
    }

    /// Entries of each of the two.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// Addresses of the submission and the completion queue for the controller.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        let address = |buffer: &Buffer| buffer.iova(Iova(BASE)).0;
        (address(self.sq.buffer()), address(self.cq.buffer()))
    }

    /// They are empty, as a controller expects them that is enabled.
    pub(crate) fn reset(&mut self) {
        self.sq.buffer().zero();
        self.cq.buffer().zero();
        (self.tail, self.head, self.cq_head) = (0, 0, 0);
        self.phase = true;
        self.rung = (0, 0);
    }

    /// Commands that can be stored now.
    pub(crate) fn room(&self) -> u32 {
        self.entries - 1 - distance(self.head, self.tail, self.entries)
    }

    /// Stores a command, for which there is room.
    #[inline]
    pub(crate) fn store(&mut self, sqe: &Sqe) {
        debug_assert!(self.room() > 0);
        self.sq.store(self.tail, sqe.to_words());
        self.tail = next(self.tail, self.entries);
    }

    /// Takes back the entries that the controller was not shown: identifiers of their commands.
    pub(crate) fn take_back(&mut self) -> impl Iterator<Item = u16> {
        std::iter::from_fn(|| {
            if self.tail == self.rung.0 {
                return None;
            }
            self.tail = self.tail.checked_sub(1).unwrap_or(self.entries - 1);
            let mut cid = [0; 2];
            let at = self.tail as usize * SQE_SIZE + offset_of!(Sqe, cid);
            self.sq.buffer().read_into(at, &mut cid);
            Some(u16::from_le_bytes(cid))
        })
    }

    /// Takes the next completion.
    pub(crate) fn take(&mut self) -> Option<Cqe> {
        let cqe = Cqe::from_words(self.cq.load(self.cq_head));
        if cqe.status.phase() != self.phase {
            return None;
        }
        self.cq_head = next(self.cq_head, self.entries);
        self.phase ^= self.cq_head == 0;
        let head = u32::from(cqe.sq_head);
        if head == self.head {
            return Some(cqe);
        }
        // A head only moves to what was stored.
        let stored = distance(self.head, self.tail, self.entries);
        if head < self.entries && distance(self.head, head, self.entries) <= stored {
            self.head = head;
        }
        Some(cqe)
    }

    /// Whether there is a completion.
    pub(crate) fn has_completion(&self) -> bool {
        Cqe::from_words(self.cq.load(self.cq_head)).status.phase() == self.phase
    }

    /// Rings both doorbells, which lie side by side, where there are new commands, or many entries
    /// of the completion queue to free. Half of that queue is enough for the controller to go on.
    pub(crate) fn ring(&mut self, bells: &mut impl Bells) -> bool {
        let freed = distance(self.rung.1, self.cq_head, self.entries);
        if self.tail == self.rung.0 && freed < self.entries.div_ceil(2) {
            return false;
        }
        self.rung = (self.tail, self.cq_head);
        bells.ring(self.qid, self.tail, self.cq_head);
        true
    }

    /// Frees the entries of the completion queue. The submission queue may be gone.
    pub(crate) fn ring_head(&mut self, controller: &mut Controller) {
        if self.cq_head != self.rung.1 {
            self.rung.1 = self.cq_head;
            let head = self.cq_head.to_le_bytes();
            controller.bar_write(0, cq_head_offset(self.qid), &head);
        }
    }
}

/// The index behind this one.
const fn next(index: u32, entries: u32) -> u32 {
    if index + 1 == entries { 0 } else { index + 1 }
}

/// Steps from an index to another one.
const fn distance(from: u32, to: u32, entries: u32) -> u32 {
    if to >= from {
        to - from
    } else {
        entries - from + to
    }
}
