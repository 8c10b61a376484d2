//! A host by hand: its memory, its rings, any entry in them, any value in its doorbells.

use std::sync::Arc;

use memory::{
    Access, Buffer, ClientMappings, DmaMap, DmaView, DoorbellPages, Hint, HostMemory, Iova,
    LostFlag, Mapping, Need,
};

use crate::PAGE;

/// Bytes of a host's memory.
const MEMORY_LEN: u64 = 5 << 20;
/// Bytes from here on are mapped for reading only, and from there on not at all: no command may
/// change either. Both regions that are mapped are large enough for windows.
const READ_ONLY_AT: u64 = 2 << 20;
const UNMAPPED_AT: u64 = 4 << 20;
/// Fill byte of the first of them, and how many.
const CANARY: u8 = 0x5c;
const CANARY_LEN: usize = 64 << 10;
/// Entries of every queue.
pub(crate) const ENTRIES: u16 = 32;
/// Queues, the admin queue among them.
pub(crate) const QUEUES: usize = 3;
/// The first page of data: the queues lie before it.
const DATA_PAGE: u64 = 16;

/// A submission queue entry, as eight little-endian words.
pub type Words = [u64; 8];

/// An entry of an I/O command: opcode, first block, blocks, and both data pointers.
#[must_use]
pub fn command(opcode: u8, lba: u64, blocks: u32, prps: [u64; 2]) -> Words {
    let count = u64::from(blocks.wrapping_sub(1) & 0xffff);
    let [prp1, prp2] = prps;
    [1 << 32 | u64::from(opcode), 0, 0, prp1, prp2, lba, count, 0]
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Command Identifier.
    pub cid: u16,
    /// Status, without the bits More and Do Not Retry.
    pub status: u16,
}

#[derive(Debug, Default, Clone, Copy)]
struct Ring {
    tail: u16,
    head: u16,
    wrapped: bool,
}

/// See the module.
pub struct Host {
    /// Its address of its memory's first byte.
    pub base: u64,
    memory: HostMemory,
    ram: Buffer,
    mappings: ClientMappings,
    mapping: Arc<Mapping>,
    map: DmaMap,
    pub(crate) doorbells: Arc<DoorbellPages>,
    rings: [Ring; QUEUES],
}

impl Host {
    pub(crate) fn new(base: u64, doorbells: Arc<DoorbellPages>) -> Host {
        let len = usize::try_from(MEMORY_LEN).expect("a few MiB");
        let memory = HostMemory::new(len).expect("memory");
        let ram = memory.alloc(len, 4096).expect("all of it");
        let mut mappings = ClientMappings::new();
        let fd = memory.fd().try_clone_to_owned().expect("a descriptor");
        let mapping = mappings.map(fd).expect("a memfd can be mapped");
        let host = Host {
            base,
            memory,
            ram,
            mappings,
            mapping,
            map: DmaMap::new(64),
            doorbells,
            rings: [Ring::default(); QUEUES],
        };
        for at in host.forbidden() {
            host.poke(at, &[CANARY; CANARY_LEN]);
        }
        host
    }

    /// Its memory's file.
    #[must_use]
    pub fn memory(&self) -> &HostMemory {
        &self.memory
    }

    /// Maps both of its regions for the controller, where they are not.
    pub fn map(&mut self) {
        for (start, end, access) in [
            (0, READ_ONLY_AT, Access::READ_WRITE),
            (READ_ONLY_AT, UNMAPPED_AT, Access::READ),
        ] {
            let backing = Some((self.mapping.clone(), start));
            let at = Iova(self.base + start);
            // It may be there.
            let _ = self.map.map(at, end - start, access, backing);
        }
    }

    /// Takes them away.
    pub fn unmap(&mut self) {
        self.map.unmap_all();
    }

    /// Memory that its controller may reach now.
    pub(crate) fn view(&self) -> (Arc<DmaView>, LostFlag) {
        (self.map.view(), self.mappings.lost())
    }

    /// Its memory once more, for another thread. As long as that has it, it is lent.
    #[must_use]
    pub fn meddler(&self) -> Meddler {
        Meddler::new(self)
    }

    /// The address of a page of its data.
    #[must_use]
    pub fn page(&self, number: u64) -> u64 {
        self.base + (DATA_PAGE + number) * PAGE
    }

    /// An address of its read-only memory, and one that is not mapped.
    #[must_use]
    pub fn forbidden(&self) -> [u64; 2] {
        [self.base + READ_ONLY_AT, self.base + UNMAPPED_AT]
    }

    /// Writes its own memory at an address.
    pub fn poke(&self, at: u64, bytes: &[u8]) {
        self.ram.write_from((at - self.base) as usize, bytes);
    }

    /// Reads its own memory at an address.
    #[must_use]
    pub fn peek(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.ram.read_into((at - self.base) as usize, &mut bytes);
        bytes
    }

    /// Whether the memory that no command may change is as it was.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        let is_so = |at| self.peek(at, CANARY_LEN) == [CANARY; CANARY_LEN];
        self.forbidden().into_iter().all(is_so)
    }

    /// The address of a submission queue.
    #[must_use]
    pub fn sq(&self, queue: usize) -> u64 {
        self.base + queue as u64 * PAGE
    }

    pub(crate) fn cq(&self, queue: usize) -> u64 {
        self.base + (8 + queue as u64) * PAGE
    }

    /// Forgets its rings: the controller has been reset.
    pub(crate) fn forget_rings(&mut self) {
        for queue in 0..QUEUES {
            self.forget_ring(queue);
        }
    }

    pub(crate) fn forget_ring(&mut self, queue: usize) {
        self.rings[queue] = Ring::default();
        self.poke(self.cq(queue), &[0; PAGE as usize]);
    }

    /// Puts an entry into a queue, and gives it an identifier. It is not rung yet.
    pub fn put(&mut self, queue: usize, cid: u16, words: Words) {
        let mut words = words;
        words[0] = words[0] & !(0xffff << 16) | u64::from(cid) << 16;
        let at = self.sq(queue) + u64::from(self.rings[queue].tail) * 64;
        for (word, value) in (0u64..).zip(words) {
            self.poke(at + word * 8, &value.to_le_bytes());
        }
        self.rings[queue].tail = (self.rings[queue].tail + 1) % ENTRIES;
    }

    /// Rings the bell of a submission queue.
    pub fn ring(&self, queue: usize) {
        self.bell(2 * queue, self.rings[queue].tail.into());
    }

    /// Stores any value into any doorbell.
    pub fn bell(&self, slot: usize, value: u32) {
        self.doorbells.store(slot, value);
    }

    /// Takes a queue's completions.
    pub fn reap(&mut self, queue: usize) -> Vec<Completion> {
        let mut taken = Vec::new();
        loop {
            let ring = self.rings[queue];
            let entry = self.peek(self.cq(queue) + u64::from(ring.head) * 16, 16);
            let status = u16::from_le_bytes([entry[14], entry[15]]);
            if (status & 1 == 1) == ring.wrapped {
                break;
            }
            taken.push(Completion {
                cid: u16::from_le_bytes([entry[12], entry[13]]),
                status: status >> 1 & 0x7ff,
            });
            let ring = &mut self.rings[queue];
            ring.head = (ring.head + 1) % ENTRIES;
            ring.wrapped ^= ring.head == 0;
        }
        if !taken.is_empty() {
            self.bell(2 * queue + 1, self.rings[queue].head.into());
        }
        taken
    }
}

/// A host's memory once more, for a thread that writes it meanwhile.
pub struct Meddler {
    view: Arc<DmaView>,
}

impl Meddler {
    pub(crate) fn new(host: &Host) -> Meddler {
        Meddler {
            view: host.map.view(),
        }
    }

    /// Writes a word at an address.
    pub fn poke(&self, at: u64, word: u64) {
        let segment = self
            .view
            .translate(&mut Hint::default(), Iova(at), 8, Need::DeviceWrites)
            .expect("memory of the host");
        segment.write_from(0, &word.to_le_bytes());
    }
}
