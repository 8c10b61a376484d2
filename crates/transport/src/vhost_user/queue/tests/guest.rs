//! A guest's memory with one ring in it.

use std::sync::Arc;

use memory::{Access, ClientMappings, DmaMap, DmaView, Hint, HostMemory, Iova};

use super::super::{Head, Inflight, Piece, Pieces, Queue, RingFault, Setup};

/// Where the parts of the ring are, and what else there is.
pub(super) const DESCRIPTORS: u64 = 0;
pub(super) const DRIVER: u64 = 0x9_0000;
pub(super) const DEVICE: u64 = 0xb_0000;
pub(super) const TABLES: u64 = 0x10_0000;
pub(super) const LEN: u64 = 0x40_0000;
/// Address of the memory for the guest.
pub(super) const BASE: u64 = 0x4000_0000;

pub(super) struct Guest {
    memory: HostMemory,
    pub(super) map: DmaMap,
    pub(super) setup: Setup,
    hint: Hint,
}

impl Guest {
    pub(super) fn new(size: u16, is_packed: bool) -> Self {
        let memory = HostMemory::new(LEN as usize).unwrap();
        let mut map = DmaMap::new(16);
        add(&mut map, &memory, BASE, LEN);
        let setup = Setup {
            size,
            descriptors: Iova(BASE + DESCRIPTORS),
            driver: Iova(BASE + DRIVER),
            device: Iova(BASE + DEVICE),
            // Both sides of a packed ring begin in the lap with counter 1.
            base: if is_packed { 0x8000_8000 } else { 0 },
            is_packed,
            has_event_idx: false,
            has_indirect: true,
        };
        Self {
            memory,
            map,
            setup,
            hint: Hint::default(),
        }
    }

    pub(super) fn memory(&self) -> &HostMemory {
        &self.memory
    }

    pub(super) fn view(&self) -> Arc<DmaView> {
        self.map.view()
    }

    pub(super) fn queue(&self) -> Result<Queue, RingFault> {
        Queue::new(&self.view(), &self.setup, None)
    }

    pub(super) fn tracked(&self, inflight: &Inflight) -> Result<Queue, RingFault> {
        Queue::new(&self.view(), &self.setup, inflight.record(0))
    }

    /// Takes the next request: it and its pieces.
    pub(super) fn take(
        &mut self,
        queue: &mut Queue,
    ) -> Result<Option<(Head, Vec<Piece>)>, RingFault> {
        let mut pieces = Pieces::new();
        let head = queue.take(&self.map.view(), &mut self.hint, &mut pieces)?;
        Ok(head.map(|head| (head, pieces.to_vec())))
    }

    /// The fault of the next request.
    pub(super) fn fault(&mut self, queue: &mut Queue) -> RingFault {
        self.take(queue).unwrap_err()
    }

    pub(super) fn put<const N: usize>(&self, at: u64, bytes: [u8; N]) {
        self.memory.write(at as usize, &bytes);
    }

    pub(super) fn get<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read(at as usize, &mut bytes);
        bytes
    }

    pub(super) fn put16(&self, at: u64, value: u16) {
        self.put(at, value.to_le_bytes());
    }

    pub(super) fn get16(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.get(at))
    }

    pub(super) fn get32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.get(at))
    }

    /// A descriptor: address, length, and the two fields that follow.
    pub(super) fn put_descriptor(&self, at: u64, addr: u64, len: u32, [third, fourth]: [u16; 2]) {
        self.put(at, addr.to_le_bytes());
        self.put(at + 8, len.to_le_bytes());
        self.put16(at + 12, third);
        self.put16(at + 14, fourth);
    }
}

/// Maps a memory at a guest address.
pub(super) fn add(map: &mut DmaMap, memory: &HostMemory, at: u64, len: u64) {
    let fd = memory.fd().try_clone_to_owned().unwrap();
    let mapping = ClientMappings::new().map(fd).unwrap();
    map.map(Iova(at), len, Access::READ_WRITE, Some((mapping, 0)))
        .unwrap();
}
