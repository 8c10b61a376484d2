//! A device's side of a packed virtqueue (VIRTIO 1.3, 2.8), over `vm-memory`.

use std::sync::atomic::{Ordering, fence};

use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// A chain that the driver made available.
pub(super) struct Chain {
    id: u16,
    /// Descriptors that it takes in the ring.
    slots: u16,
    /// Address and length of what the device reads, and of what it writes.
    pub(super) readable: Vec<(u64, usize)>,
    pub(super) writable: Vec<(u64, usize)>,
}

/// Addresses and positions.
pub(super) struct DeviceRing {
    pub(super) size: u16,
    pub(super) descriptors: u64,
    pub(super) driver_event: u64,
    pub(super) device_event: u64,
    /// Slot and wrap counter of the next available descriptor, and of the next used one.
    pub(super) available: (u16, bool),
    pub(super) used: (u16, bool),
}

impl DeviceRing {
    fn step(&self, (slot, wrap): (u16, bool), count: u16) -> (u16, bool) {
        match slot + count {
            next if next >= self.size => (next - self.size, !wrap),
            next => (next, wrap),
        }
    }

    /// The next chain.
    pub(super) fn take(&mut self, memory: &GuestMemoryMmap) -> Option<Chain> {
        let mut at = self.available;
        let mut chain = Chain {
            id: 0,
            slots: 0,
            readable: Vec::new(),
            writable: Vec::new(),
        };
        loop {
            let address = self.descriptors + 16 * u64::from(at.0);
            let flags = GuestAddress(address + 14);
            let flags: u16 = memory.load(flags, Ordering::Acquire).unwrap();
            if chain.slots == 0 {
                let (available, used) = (flags & AVAILABLE != 0, flags & USED != 0);
                if available != at.1 || used == at.1 {
                    return None;
                }
            }
            chain.slots += 1;
            let (address, len, id) = descriptor(memory, address);
            if flags & INDIRECT == 0 {
                chain.push(address, len, flags);
            } else {
                assert!(chain.slots == 1 && flags & NEXT == 0 && len % 16 == 0);
                for entry in (address..address + u64::from(len)).step_by(16) {
                    let flags: u16 = memory.read_obj(GuestAddress(entry + 14)).unwrap();
                    let (address, len, _) = descriptor(memory, entry);
                    chain.push(address, len, flags);
                }
            }
            at = self.step(at, 1);
            if flags & NEXT == 0 {
                chain.id = id;
                self.available = at;
                return Some(chain);
            }
            assert!(chain.slots < self.size, "a chain longer than the ring");
        }
    }

    /// Returns a chain to the driver.
    pub(super) fn give(&mut self, memory: &GuestMemoryMmap, chain: &Chain, written: u32) {
        let (slot, wrap) = self.used;
        let address = self.descriptors + 16 * u64::from(slot);
        memory
            .write_obj(written, GuestAddress(address + 8))
            .unwrap();
        memory
            .write_obj(chain.id, GuestAddress(address + 12))
            .unwrap();
        let flags = if wrap { AVAILABLE | USED } else { 0 };
        let at = GuestAddress(address + 14);
        memory.store(flags, at, Ordering::Release).unwrap();
        self.used = self.step(self.used, chain.slots);
    }

    /// Whether the driver wants an interrupt for what was used since `before`.
    pub(super) fn wants_interrupt(&self, memory: &GuestMemoryMmap, before: (u16, bool)) -> bool {
        fence(Ordering::SeqCst);
        let at = GuestAddress(self.driver_event);
        let event: u32 = memory.load(at, Ordering::Acquire).unwrap();
        match event >> 16 {
            0 => true,
            1 => false,
            _ => {
                let wanted = (event as u16 & 0x7fff, event & 0x8000 != 0);
                let mut position = before;
                while position != self.used {
                    if position == wanted {
                        return true;
                    }
                    position = self.step(position, 1);
                }
                false
            }
        }
    }

    /// Asks for no notifications, or for one of the next available chain: by its position, or of
    /// any.
    pub(super) fn ask(&self, memory: &GuestMemoryMmap, wish: Wish) {
        let flags: u16 = match wish {
            Wish::Nothing => 1,
            Wish::Any => 0,
            Wish::Position => 2,
        };
        if wish == Wish::Position {
            let (slot, wrap) = self.available;
            let word = slot | if wrap { 0x8000 } else { 0 };
            memory
                .store(word, GuestAddress(self.device_event), Ordering::Release)
                .unwrap();
        }
        memory
            .store(
                flags,
                GuestAddress(self.device_event + 2),
                Ordering::Release,
            )
            .unwrap();
        fence(Ordering::SeqCst);
    }
}

/// Notifications that the device wants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    Any,
    Position,
}

impl Chain {
    fn push(&mut self, address: u64, len: u32, flags: u16) {
        let piece = (address, len as usize);
        if flags & WRITE != 0 {
            self.writable.push(piece);
        } else {
            assert!(self.writable.is_empty(), "read behind written (2.8.17)");
            self.readable.push(piece);
        }
    }
}

fn descriptor(memory: &GuestMemoryMmap, at: u64) -> (u64, u32, u16) {
    let address = memory.read_obj(GuestAddress(at)).unwrap();
    let len = memory.read_obj(GuestAddress(at + 8)).unwrap();
    let id = memory.read_obj(GuestAddress(at + 12)).unwrap();
    (address, len, id)
}
