//! Packed virtqueues (VIRTIO 1.3, 2.8).

use anyhow::{Result, ensure};
use memory::{Buffer, full_fence};

use super::{DESCRIPTOR_LEN, INDIRECT, NEXT, Segment, Used, descriptor};
use crate::guest::Guest;

const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;
const MAX_SIZE: u16 = 32768;
/// Flags of an event suppression area (2.8.10).
const EVENT_ENABLE: u16 = 0;
const EVENT_DISABLE: u16 = 1;
const EVENT_DESCRIPTOR: u16 = 2;
const EVENT_LEN: usize = 4;
const EVENT_FLAGS: usize = 2;
const WRAP: u16 = 1 << 15;

/// A place in the ring with the wrap counter that a side has there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    slot: u16,
    wrap: bool,
}

impl Position {
    const FIRST: Position = Position {
        slot: 0,
        wrap: true,
    };

    fn advance(&mut self, count: u16, size: u16) {
        let slot = u32::from(self.slot) + u32::from(count);
        if slot >= u32::from(size) {
            self.slot = (slot - u32::from(size)) as u16;
            self.wrap = !self.wrap;
        } else {
            self.slot = slot as u16;
        }
    }

    /// Slot in bits 14:0, wrap counter in bit 15.
    fn encode(self) -> u16 {
        self.slot | if self.wrap { WRAP } else { 0 }
    }

    fn decode(word: u16) -> Self {
        Self {
            slot: word & !WRAP,
            wrap: word & WRAP != 0,
        }
    }

    /// Steps from `from` to this position, of two rounds of the ring.
    fn since(self, from: Position, size: u16) -> u32 {
        let size = u32::from(size);
        let number = |at: Position| u32::from(at.slot) + if at.wrap { 0 } else { size };
        (number(self) + 2 * size - number(from)) % (2 * size)
    }
}

/// The driver's side of a packed virtqueue.
#[derive(Debug)]
pub struct Packed {
    size: u16,
    event_idx: bool,
    ring: Buffer,
    driver_event: Buffer,
    device_event: Buffer,
    next: Position,
    /// `next` when the device was last considered for a notification.
    published: Position,
    used: Position,
    free: u16,
    free_ids: Vec<u16>,
    /// Descriptors of the chain in flight with each id; 0 when none is.
    chains: Vec<u16>,
}

impl Packed {
    /// An empty ring.
    ///
    /// # Errors
    /// The size is not 1 to 32768, or the memory is full.
    pub fn new(guest: &Guest, size: u16, event_idx: bool) -> Result<Self> {
        ensure!(
            (1..=MAX_SIZE).contains(&size),
            "a packed ring of {size}: the size is 1 to {MAX_SIZE}"
        );
        let mut ring = Self {
            size,
            event_idx,
            ring: guest.alloc(usize::from(size) * DESCRIPTOR_LEN, 4096)?,
            driver_event: guest.alloc(EVENT_LEN, 64)?,
            device_event: guest.alloc(EVENT_LEN, 64)?,
            next: Position::FIRST,
            published: Position::FIRST,
            used: Position::FIRST,
            free: 0,
            free_ids: Vec::new(),
            chains: Vec::new(),
        };
        ring.reset();
        Ok(ring)
    }

    /// Stores a descriptor, whatever it holds; its flags last.
    ///
    /// # Panics
    /// The ring has no such descriptor.
    pub fn store_descriptor(&self, slot: u16, address: u64, len: u32, id: u16, flags: u16) {
        let at = usize::from(slot) * DESCRIPTOR_LEN;
        let bytes = descriptor(address, len, [id, flags]);
        self.ring.write_from(at, &bytes[..14]);
        self.ring.store_u16(at + 14, flags);
    }

    /// The slot that the next chain begins in.
    #[must_use]
    pub fn next_slot(&self) -> u16 {
        self.next.slot
    }

    /// The two flags of an available descriptor at the next slot (2.8.1).
    #[must_use]
    pub fn available_flags(&self) -> u16 {
        if self.next.wrap { AVAILABLE } else { USED }
    }

    #[inline]
    pub(super) fn add(&mut self, chain: &[Segment], is_indirect: bool) -> Option<u16> {
        let count = u16::try_from(chain.len()).ok()?;
        if count == 0 || count > self.free {
            return None;
        }
        let id = self.free_ids.pop()?;
        let mut first = None;
        for (number, segment) in chain.iter().enumerate() {
            let mut flags = segment.write_flag() | self.available_flags();
            if is_indirect {
                flags |= INDIRECT;
            }
            if number + 1 < chain.len() {
                flags |= NEXT;
            }
            let slot = self.next.slot;
            if number == 0 {
                // 2.8.14: the flags of the first descriptor are stored behind all others.
                let bytes = descriptor(segment.address, segment.len, [id, 0]);
                let at = usize::from(slot) * DESCRIPTOR_LEN;
                self.ring.write_from(at, &bytes[..14]);
                first = Some((at + 14, flags));
            } else {
                self.store_descriptor(slot, segment.address, segment.len, id, flags);
            }
            self.next.advance(1, self.size);
        }
        self.free -= count;
        self.chains[usize::from(id)] = count;
        let (at, flags) = first?;
        self.ring.store_u16(at, flags);
        Some(id)
    }

    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next);
        if old == new {
            return false;
        }
        self.published = new;
        full_fence();
        let event = self.device_event.load_u32(0);
        match (event >> 16) as u16 & 3 {
            EVENT_DISABLE => false,
            EVENT_DESCRIPTOR if self.event_idx => {
                let event = Position::decode(event as u16);
                event.since(old, self.size) < new.since(old, self.size)
            }
            _ => true,
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Result<Option<Used>> {
        if !self.has_used() {
            return Ok(None);
        }
        let at = usize::from(self.used.slot) * DESCRIPTOR_LEN;
        let written = self.ring.load_u32(at + 8);
        let id = self.ring.load_u16(at + 12);
        let count = self.chains.get_mut(usize::from(id)).map(std::mem::take);
        let count = count.unwrap_or(0);
        ensure!(count > 0, "used buffer {id}: not in flight");
        self.used.advance(count, self.size);
        self.free += count;
        self.free_ids.push(id);
        Ok(Some(Used { id, written }))
    }

    /// Whether the descriptor at the used position is used: both flags equal the wrap counter.
    #[inline]
    fn has_used(&self) -> bool {
        let at = usize::from(self.used.slot) * DESCRIPTOR_LEN;
        let flags = self.ring.load_u16(at + 14);
        let both = AVAILABLE | USED;
        flags & both == if self.used.wrap { both } else { 0 }
    }

    pub(super) fn arm(&mut self) -> bool {
        if self.event_idx {
            self.driver_event.store_u16(0, self.used.encode());
            self.driver_event.store_u16(EVENT_FLAGS, EVENT_DESCRIPTOR);
        } else {
            self.driver_event.store_u16(EVENT_FLAGS, EVENT_ENABLE);
        }
        full_fence();
        self.has_used()
    }

    pub(super) fn suppress(&mut self) {
        self.driver_event.store_u16(EVENT_FLAGS, EVENT_DISABLE);
    }

    pub(super) fn used_base(&self) -> u32 {
        let used = u32::from(self.used.encode());
        used << 16 | used
    }

    pub(super) fn drained_base(&self) -> u32 {
        let next = u32::from(self.next.encode());
        next << 16 | next
    }

    pub(super) fn free(&self) -> u16 {
        self.free
    }

    pub(super) fn areas(&self) -> [&Buffer; 3] {
        [&self.ring, &self.driver_event, &self.device_event]
    }

    pub(super) fn reset(&mut self) {
        for area in self.areas() {
            area.zero();
        }
        self.next = Position::FIRST;
        self.published = Position::FIRST;
        self.used = Position::FIRST;
        self.free = self.size;
        self.free_ids = (0..self.size).rev().collect();
        self.chains = vec![0; usize::from(self.size)];
    }
}

pub(super) fn table(chain: &[Segment]) -> Vec<u8> {
    // 2.8.8: only the write flag counts, and the order is that of the table.
    let bytes = chain
        .iter()
        .map(|segment| descriptor(segment.address, segment.len, [0, segment.write_flag()]));
    bytes.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: Segment = Segment {
        address: 0x1_4000_0000,
        len: 1,
        is_writable: true,
    };

    fn ring(size: u16) -> Packed {
        let guest = Guest::new(1 << 20, 1).unwrap();
        Packed::new(&guest, size, true).unwrap()
    }

    #[test]
    fn a_device_that_uses_what_it_has_not_is_an_error() {
        let mut ring = ring(4);
        let id = ring.add(&[SEGMENT; 2], false).unwrap();
        assert_eq!(ring.pop().unwrap(), None);
        ring.store_descriptor(0, 0, 1, id + 1, AVAILABLE | USED);
        let error = ring.pop().unwrap_err().to_string();
        assert!(error.contains("not in flight"), "{error}");
        ring.store_descriptor(0, 0, 1, 4, AVAILABLE | USED);
        assert!(ring.pop().is_err());
        ring.store_descriptor(0, 0, 9, id, AVAILABLE | USED);
        assert_eq!(ring.pop().unwrap(), Some(Used { id, written: 9 }));
        assert_eq!(ring.used_base(), 0x8002_8002);
        assert_eq!(ring.pop().unwrap(), None);
    }

    #[test]
    fn descriptors_are_the_specifications_bytes() {
        let mut ring = ring(2);
        for flags in [0x0080, 0x8000, 0x0080] {
            let id = ring.add(&[SEGMENT; 2], false).unwrap();
            assert!(ring.add(&[SEGMENT], false).is_none());
            let mut bytes = [0; 32];
            ring.ring.read_into(0, &mut bytes);
            let end = |flags: u16| [id.to_le_bytes(), flags.to_le_bytes()].concat();
            assert_eq!(bytes[..12], [0, 0, 0, 0x40, 1, 0, 0, 0, 1, 0, 0, 0]);
            // Next and write in the first, write in the last (2.8.21).
            assert_eq!(bytes[12..16], end(flags | 3));
            assert_eq!(bytes[28..], end(flags | 2));
            let both = if flags == 0x80 { 0x8080 } else { 0 };
            ring.store_descriptor(0, 0, 1, id, both);
            assert!(ring.pop().unwrap().is_some());
        }
        assert_eq!(table(&[SEGMENT, SEGMENT])[12..16], [0, 0, 2, 0]);
    }

    #[test]
    fn a_notification_is_wanted_when_the_event_is_passed() {
        let mut ring = ring(4);
        let wish = |ring: &Packed, slot: u16, wrap: bool| {
            let at = Position { slot, wrap };
            ring.device_event.store_u16(0, at.encode());
            ring.device_event.store_u16(EVENT_FLAGS, EVENT_DESCRIPTOR);
        };
        wish(&ring, 0, true);
        let first = ring.add(&[SEGMENT; 3], false).unwrap();
        assert!(ring.publish());
        assert!(!ring.publish(), "nothing new");
        ring.store_descriptor(0, 0, 0, first, AVAILABLE | USED);
        ring.pop().unwrap().unwrap();
        // The second chain wraps: slot 3 of the first round, slots 0 and 1 of the second.
        for (slot, wrap, expected) in [
            (3, true, true),
            (0, false, true),
            (1, false, true),
            (2, false, false),
            (2, true, false),
            (0, true, false),
            (3, false, false),
        ] {
            let mut ring = Packed {
                published: ring.used,
                next: ring.used,
                ..self::ring(4)
            };
            wish(&ring, slot, wrap);
            ring.add(&[SEGMENT; 3], false).unwrap();
            assert_eq!(ring.publish(), expected, "slot {slot}, wrap {wrap}");
        }
    }
}
