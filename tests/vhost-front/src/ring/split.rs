//! Split virtqueues (VIRTIO 1.3, 2.7).

use anyhow::{Result, ensure};
use memory::{Buffer, full_fence};

use super::{DESCRIPTOR_LEN, INDIRECT, NEXT, Segment, Used, descriptor};
use crate::guest::Guest;

/// `flags` of both rings: no notifications, if event indexes are not negotiated.
const NO_NOTIFICATION: u16 = 1;
const FLAGS: usize = 0;
const IDX: usize = 2;
const ENTRIES: usize = 4;
const USED_ENTRY_LEN: usize = 8;
/// How often the used event is moved along while interrupts are suppressed: it has to stay less
/// than 2^15 entries behind.
const SUPPRESSED_EVERY: u16 = 0x2000;

/// The driver's side of a split virtqueue.
#[derive(Debug)]
pub struct Split {
    size: u16,
    event_idx: bool,
    table: Buffer,
    available: Buffer,
    used: Buffer,
    /// The next free descriptor of each free one, the next of the chain of each other.
    next: Vec<u16>,
    first_free: u16,
    free: u16,
    /// Descriptors of the chain that begins at each; 0 when none does.
    chains: Vec<u16>,
    /// Chains made available, modulo 2^16, and those of them that `idx` counts.
    added: u16,
    published: u16,
    /// Used entries seen, modulo 2^16.
    seen: u16,
    is_suppressed: bool,
}

impl Split {
    /// An empty ring.
    ///
    /// # Errors
    /// The size is no power of two of 1 to 32768, or the memory is full.
    pub fn new(guest: &Guest, size: u16, event_idx: bool) -> Result<Self> {
        ensure!(
            size.is_power_of_two(),
            "a split ring of {size}: the size is a power of two"
        );
        let count = usize::from(size);
        let mut ring = Self {
            size,
            event_idx,
            table: guest.alloc(count * DESCRIPTOR_LEN, 4096)?,
            available: guest.alloc(ENTRIES + 2 * count + 2, 4096)?,
            used: guest.alloc(ENTRIES + USED_ENTRY_LEN * count + 2, 4096)?,
            next: Vec::new(),
            first_free: 0,
            free: 0,
            chains: Vec::new(),
            added: 0,
            published: 0,
            seen: 0,
            is_suppressed: false,
        };
        ring.reset();
        Ok(ring)
    }

    /// Stores a descriptor, whatever it holds.
    ///
    /// # Panics
    /// The table has no such descriptor.
    pub fn store_descriptor(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        let at = usize::from(index) * DESCRIPTOR_LEN;
        let bytes = descriptor(address, len, [flags, next]);
        self.table.write_from(at, &bytes);
    }

    /// Stores an entry of the available ring, whatever it is.
    pub fn store_available(&self, index: u16, head: u16) {
        let slot = usize::from(index & (self.size - 1));
        self.available.store_u16(ENTRIES + 2 * slot, head);
    }

    /// Stores the available index, whatever it is.
    pub fn store_available_index(&self, index: u16) {
        self.available.store_u16(IDX, index);
    }

    /// The available index as the driver stored it last.
    #[must_use]
    pub fn available_index(&self) -> u16 {
        self.available.load_u16(IDX)
    }

    #[inline]
    pub(super) fn add(&mut self, chain: &[Segment], is_indirect: bool) -> Option<u16> {
        let count = u16::try_from(chain.len()).ok()?;
        if count == 0 || count > self.free {
            return None;
        }
        let head = self.first_free;
        let mut index = head;
        for (number, segment) in chain.iter().enumerate() {
            let next = self.next[usize::from(index)];
            let mut flags = segment.write_flag();
            if is_indirect {
                flags |= INDIRECT;
            }
            if number + 1 < chain.len() {
                flags |= NEXT;
            }
            self.store_descriptor(index, segment.address, segment.len, flags, next);
            index = next;
        }
        self.first_free = index;
        self.free -= count;
        self.chains[usize::from(head)] = count;
        self.store_available(self.added, head);
        self.added = self.added.wrapping_add(1);
        Some(head)
    }

    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.added);
        if old == new {
            return false;
        }
        self.published = new;
        self.store_available_index(new);
        // 2.7.13.4.1: the index before the look at the device's wish.
        full_fence();
        if self.event_idx {
            let at = ENTRIES + USED_ENTRY_LEN * usize::from(self.size);
            is_reached(self.used.load_u16(at), old, new)
        } else {
            self.used.load_u16(FLAGS) & NO_NOTIFICATION == 0
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Result<Option<Used>> {
        let index = self.used.load_u16(IDX);
        if index == self.seen {
            return Ok(None);
        }
        let in_flight = self.published.wrapping_sub(self.seen);
        ensure!(
            index.wrapping_sub(self.seen) <= in_flight,
            "used index {index}: {} entries seen, {} available",
            self.seen,
            self.published
        );
        let slot = usize::from(self.seen & (self.size - 1));
        let at = ENTRIES + USED_ENTRY_LEN * slot;
        let id = self.used.load_u32(at);
        let written = self.used.load_u32(at + 4);
        let count = self.chains.get_mut(id as usize).map(std::mem::take);
        let count = count.unwrap_or(0);
        ensure!(count > 0, "used chain {id}: not in flight");
        let id = id as u16;
        let mut last = id;
        for _ in 1..count {
            last = self.next[usize::from(last)];
        }
        self.next[usize::from(last)] = self.first_free;
        self.first_free = id;
        self.free += count;
        self.seen = self.seen.wrapping_add(1);
        if self.is_suppressed && self.event_idx && self.seen.is_multiple_of(SUPPRESSED_EVERY) {
            self.suppress();
        }
        Ok(Some(Used { id, written }))
    }

    pub(super) fn arm(&mut self) -> bool {
        self.is_suppressed = false;
        if self.event_idx {
            self.store_used_event(self.seen);
        } else {
            self.available.store_u16(FLAGS, 0);
        }
        full_fence();
        self.used.load_u16(IDX) != self.seen
    }

    pub(super) fn suppress(&mut self) {
        self.is_suppressed = true;
        if self.event_idx {
            // The entry behind the newest one seen is used already.
            self.store_used_event(self.seen.wrapping_sub(1));
        } else {
            self.available.store_u16(FLAGS, NO_NOTIFICATION);
        }
    }

    fn store_used_event(&self, index: u16) {
        let at = ENTRIES + 2 * usize::from(self.size);
        self.available.store_u16(at, index);
    }

    pub(super) fn used_base(&self) -> u32 {
        self.used.load_u16(IDX).into()
    }

    pub(super) fn drained_base(&self) -> u32 {
        self.published.into()
    }

    pub(super) fn free(&self) -> u16 {
        self.free
    }

    pub(super) fn areas(&self) -> [&Buffer; 3] {
        [&self.table, &self.available, &self.used]
    }

    pub(super) fn reset(&mut self) {
        for area in self.areas() {
            area.zero();
        }
        self.next = (1..=self.size).collect();
        self.chains = vec![0; usize::from(self.size)];
        self.first_free = 0;
        self.free = self.size;
        (self.added, self.published, self.seen) = (0, 0, 0);
        self.is_suppressed = false;
    }
}

/// Whether the entry that `event` names is one of those from `old` on and before `new` (2.7.7.2).
#[inline]
fn is_reached(event: u16, old: u16, new: u16) -> bool {
    event.wrapping_sub(old) < new.wrapping_sub(old)
}

pub(super) fn table(chain: &[Segment]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(chain.len() * DESCRIPTOR_LEN);
    for (number, segment) in chain.iter().enumerate() {
        let mut flags = segment.write_flag();
        let mut next = 0;
        if number + 1 < chain.len() {
            flags |= NEXT;
            next = number as u16 + 1;
        }
        bytes.extend_from_slice(&descriptor(segment.address, segment.len, [flags, next]));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: Segment = Segment {
        address: 0x1_4000_0000,
        len: 1,
        is_writable: true,
    };

    fn ring(size: u16, event_idx: bool) -> Split {
        let guest = Guest::new(1 << 20, 1).unwrap();
        Split::new(&guest, size, event_idx).unwrap()
    }

    /// A device that uses the chain of `id` as its entry `index`.
    fn give(ring: &Split, index: u16, id: u32) {
        let slot = usize::from(index % ring.size);
        ring.used.store_u32(ENTRIES + USED_ENTRY_LEN * slot, id);
        ring.used.store_u16(IDX, index.wrapping_add(1));
    }

    #[test]
    fn a_device_that_uses_what_it_has_not_is_an_error() {
        let mut ring = ring(8, false);
        let id = ring.add(&[SEGMENT; 2], false).unwrap();
        assert!(ring.publish());
        give(&ring, 0, u32::from(id) + 1);
        let error = ring.pop().unwrap_err().to_string();
        assert!(error.contains("not in flight"), "{error}");
        give(&ring, 0, 8);
        assert!(ring.pop().is_err());
        give(&ring, 0, id.into());
        assert_eq!(ring.pop().unwrap(), Some(Used { id, written: 0 }));
        assert_eq!((ring.free, ring.pop().unwrap()), (8, None));
        let _ = ring.add(&[SEGMENT], false).unwrap();
        ring.publish();
        ring.used.store_u16(IDX, 3);
        let error = ring.pop().unwrap_err().to_string();
        assert!(error.contains("used index 3"), "{error}");
    }

    #[test]
    fn a_full_ring_takes_no_more() {
        let mut ring = ring(4, false);
        assert!(ring.add(&[], false).is_none());
        assert!(ring.add(&[SEGMENT; 5], false).is_none());
        let first = ring.add(&[SEGMENT; 3], false).unwrap();
        assert!(ring.add(&[SEGMENT; 2], false).is_none());
        assert!(ring.add(&[SEGMENT], false).is_some());
        assert!(ring.add(&[SEGMENT], false).is_none());
        ring.publish();
        give(&ring, 0, first.into());
        assert!(ring.pop().unwrap().is_some());
        assert_eq!(ring.free, 3);
    }

    #[test]
    fn suppressed_interrupts_stay_suppressed() {
        let mut ring = ring(8, true);
        ring.suppress();
        for index in 0..200_000u32 {
            let id = ring.add(&[SEGMENT], false).unwrap();
            ring.publish();
            let event = ring.available.load_u16(ENTRIES + 2 * 8);
            let (old, new) = (index as u16, (index as u16).wrapping_add(1));
            // 2.7.7.2, as a device computes it.
            let is_wanted = new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old);
            assert!(!is_wanted, "request {index}, event {event}");
            give(&ring, old, id.into());
            ring.pop().unwrap().unwrap();
        }
        assert!(!ring.arm());
        assert_eq!(ring.available.load_u16(ENTRIES + 2 * 8), 200_000u32 as u16);
    }

    #[test]
    fn a_notification_is_wanted_when_the_event_is_passed() {
        for (event, old, new, expected) in [
            (5, 5, 6, true),
            (6, 5, 6, false),
            (5, 3, 9, true),
            (8, 3, 9, true),
            (9, 3, 9, false),
            (2, 3, 9, false),
            (u16::MAX, u16::MAX, 1, true),
            (0, u16::MAX, 1, true),
            (1, u16::MAX, 1, false),
        ] {
            assert_eq!(is_reached(event, old, new), expected, "{event} {old} {new}");
        }
    }

    #[test]
    fn descriptors_are_the_specifications_bytes() {
        let mut ring = ring(4, false);
        let read = Segment {
            address: 0x0102_0304_0506_0708,
            len: 0x1112_1314,
            is_writable: false,
        };
        ring.add(&[read, SEGMENT], false).unwrap();
        let mut bytes = [0; 32];
        ring.table.read_into(0, &mut bytes);
        let first = [8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 1, 0, 1, 0];
        assert_eq!(bytes[..16], first);
        assert_eq!(bytes[16..30], [0, 0, 0, 0x40, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0]);
        assert_eq!(table(&[read, SEGMENT])[..16], first);
        assert!(Split::new(&Guest::new(1 << 20, 1).unwrap(), 6, false).is_err());
    }
}
