//! The rings of a queue in the driver's memory, from the side of the drive that this bus plays.

use nvme_spec::cqe::CQE_SIZE;
use nvme_spec::sqe::SQE_SIZE;
use nvme_spec::{Cqe, Sqe};
use zerocopy::FromBytes;

use super::shared::Shared;

/// A submission queue.
pub(super) struct Sq {
    base: u64,
    entries: u32,
    head: u32,
    tail: u32,
    /// The identifier of its completion queue.
    pub(super) cqid: u16,
}

impl Sq {
    /// A queue at an address, if it is memory that there is.
    pub(super) fn new(shared: &Shared, base: u64, entries: u32, cqid: u16) -> Option<Self> {
        is_ring(shared, base, entries, SQE_SIZE).then_some(Self {
            base,
            entries,
            head: 0,
            tail: 0,
            cqid,
        })
    }

    /// Takes the tail of a doorbell; whether it lies in the queue.
    pub(super) fn set_tail(&mut self, tail: u32) -> bool {
        let inside = tail < self.entries;
        if inside {
            self.tail = tail;
        }
        inside
    }

    /// Whether there are entries to fetch.
    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Fetches the next entry.
    pub(super) fn fetch(&mut self, shared: &Shared) -> Option<Sqe> {
        if self.is_empty() {
            return None;
        }
        let mut bytes = [0; SQE_SIZE];
        shared.read(self.base + u64::from(self.head) * 64, &mut bytes);
        self.head = after(self.head, self.entries);
        Sqe::read_from_bytes(&bytes).ok()
    }

    /// SQHD of a completion.
    pub(super) fn head(&self) -> u16 {
        u16::try_from(self.head).expect("a queue has at most 65536 entries")
    }
}

/// A completion queue.
pub(super) struct Cq {
    base: u64,
    entries: u32,
    head: u32,
    tail: u32,
    phase: bool,
    /// The vector of its interrupt.
    pub(super) vector: Option<u16>,
}

impl Cq {
    /// A queue at an address, if it is memory that there is.
    pub(super) fn new(
        shared: &Shared,
        base: u64,
        entries: u32,
        vector: Option<u16>,
    ) -> Option<Self> {
        is_ring(shared, base, entries, CQE_SIZE).then_some(Self {
            base,
            entries,
            head: 0,
            tail: 0,
            phase: true,
            vector,
        })
    }

    /// Takes the head of a doorbell; whether it lies in the queue.
    pub(super) fn set_head(&mut self, head: u32) -> bool {
        let inside = head < self.entries;
        if inside {
            self.head = head;
        }
        inside
    }

    /// Whether an entry can be posted.
    pub(super) fn has_room(&self) -> bool {
        after(self.tail, self.entries) != self.head
    }

    /// Posts an entry with its phase. There is room.
    pub(super) fn post(&mut self, shared: &Shared, mut cqe: Cqe) {
        cqe.status.set_phase(self.phase);
        shared.post(self.base + u64::from(self.tail) * 16, cqe.to_words());
        self.tail = after(self.tail, self.entries);
        self.phase ^= self.tail == 0;
    }
}

/// Whether memory that the host has shared holds a whole ring at `base`, the start of a page.
fn is_ring(shared: &Shared, base: u64, entries: u32, entry: usize) -> bool {
    base.is_multiple_of(nvme_spec::prp::PAGE_SIZE)
        && (2..=1 << 16).contains(&entries)
        && usize::try_from(entries).is_ok_and(|entries| shared.has(base, entries * entry))
}

fn after(index: u32, entries: u32) -> u32 {
    if index + 1 < entries { index + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use memory::{HostCq, HostMemory, HostSq, Iova};

    use super::*;

    const BASE: Iova = Iova(1 << 32);

    #[test]
    fn entries_go_around_and_completions_change_their_phase() {
        let memory = HostMemory::new(16384).unwrap();
        let sq = HostSq::new(memory.alloc(4096, 4096).unwrap());
        let cq = HostCq::new(memory.alloc(4096, 4096).unwrap());
        let mut shared = Shared::default();
        shared.add(BASE, memory);
        let at = |buffer: &memory::Buffer| buffer.iova(BASE).0;
        let mut fetched = Sq::new(&shared, at(sq.buffer()), 3, 1).unwrap();
        let mut posted = Cq::new(&shared, at(cq.buffer()), 3, None).unwrap();
        assert!(!fetched.set_tail(3) && !posted.set_head(3));
        assert!(fetched.is_empty());
        for round in 0..7u32 {
            let index = round % 3;
            sq.store(index, [u64::from(round) << 32, 0, 0, 0, 0, 0, 0, 0]);
            assert!(fetched.set_tail((index + 1) % 3));
            assert_eq!(fetched.fetch(&shared).unwrap().nsid, round);
            assert!(fetched.fetch(&shared).is_none());
            assert_eq!(u32::from(fetched.head()), (index + 1) % 3);
            assert!(posted.has_room());
            let cqe = Cqe {
                dw0: round,
                ..Cqe::default()
            };
            posted.post(&shared, cqe);
            let [low, high] = cq.load(index);
            assert_eq!(low, u64::from(round));
            assert_eq!(high >> 48 & 1, u64::from(round / 3 % 2 == 0), "{round}");
            assert!(posted.set_head((index + 1) % 3));
        }
        // Two entries fill a ring of three.
        posted.post(&shared, Cqe::default());
        assert!(posted.has_room());
        posted.post(&shared, Cqe::default());
        assert!(!posted.has_room());
    }

    #[test]
    fn a_ring_lies_in_memory_that_there_is() {
        let mut shared = Shared::default();
        shared.add(BASE, HostMemory::new(8192).unwrap());
        let sq = |base, entries| Sq::new(&shared, base, entries, 1).is_some();
        assert!(sq(BASE.0, 128) && sq(BASE.0 + 4096, 64));
        assert!(!sq(BASE.0, 129) && !sq(BASE.0 + 4096, 65));
        assert!(!sq(BASE.0 + 64, 2), "not at a page");
        assert!(!sq(BASE.0, 1) && !sq(0, 2) && !sq(u64::MAX - 4095, 2));
    }
}
