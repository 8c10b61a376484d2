//! Rings one doorbell: by a store into the server's page, by the shadow buffer
//! of Doorbell Buffer Config (Base 2.1, 5.2.5 and B.5), or by a register write.
//!
//! Invariants: entries of a queue are written before its doorbell is rung, and
//! every way of ringing orders them so. A shadow doorbell is written before
//! EventIdx is read, with a full fence between: the controller does the reverse
//! (writes EventIdx, fence, reads the shadow), so one of the two sees the other.

use std::sync::Arc;

use memory::{Buffer, DoorbellPages, Iova, full_fence};

use crate::DriverError;
use crate::bus::Bus;
use crate::options::Doorbells;

/// The two pages that the host shares by Doorbell Buffer Config.
pub(crate) struct ShadowBuffers {
    shadow: Buffer,
    event_idx: Buffer,
}

impl ShadowBuffers {
    /// Takes two buffers of a page each, page aligned.
    pub(crate) fn new(shadow: Buffer, event_idx: Buffer) -> Self {
        shadow.zero();
        event_idx.zero();
        Self { shadow, event_idx }
    }

    /// Addresses of the pages for the controller: shadow, EventIdx.
    pub(crate) fn iovas(&self, base: Iova) -> (Iova, Iova) {
        (self.shadow.iova(base), self.event_idx.iova(base))
    }

    fn reset(&self, at: usize) {
        self.shadow.store_u32(at, 0);
        self.event_idx.store_u32(at, 0);
    }
}

/// How a device's queues ring.
#[derive(Clone)]
pub(crate) enum Ringing {
    Mapped(crate::bus::MappedDoorbells),
    Shadow(Arc<ShadowBuffers>),
    Trapped,
}

impl Ringing {
    /// The corresponding choice of [`Doorbells`].
    pub(crate) fn mode(&self) -> Doorbells {
        match self {
            Self::Mapped(_) => Doorbells::Mapped,
            Self::Shadow(_) => Doorbells::Shadow,
            Self::Trapped => Doorbells::Trapped,
        }
    }
}

enum Way {
    Mapped {
        pages: Arc<DoorbellPages>,
        slot: usize,
    },
    Shadow {
        buffers: Arc<ShadowBuffers>,
        at: usize,
    },
    Trapped,
}

/// Effort of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rang {
    /// No register write.
    Stored,
    /// One.
    Written,
    /// One is needed, but not possible now: the controller may not know yet.
    NotYet,
}

/// One doorbell.
pub(crate) struct Doorbell {
    way: Way,
    /// Offset of its register in BAR0.
    offset: u64,
    /// The value last rung.
    last: u32,
}

impl Doorbell {
    /// The doorbell whose register lies at `offset` in BAR0, and at
    /// `shadow_at` in the shadow buffers. Its value is 0.
    pub(crate) fn new(ringing: &Ringing, offset: u64, shadow_at: usize) -> Self {
        let way = match ringing {
            Ringing::Mapped(mapped) => match mapped.slot(offset) {
                Some(slot) => Way::Mapped {
                    pages: mapped.pages.clone(),
                    slot,
                },
                // The server may map fewer doorbells than it has queues.
                None => Way::Trapped,
            },
            Ringing::Shadow(buffers) if shadow_at + 4 <= buffers.shadow.len() => {
                buffers.reset(shadow_at);
                Way::Shadow {
                    buffers: buffers.clone(),
                    at: shadow_at,
                }
            }
            Ringing::Shadow(_) | Ringing::Trapped => Way::Trapped,
        };
        Self {
            way,
            offset,
            last: 0,
        }
    }

    /// Offset of its register in BAR0.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Tells the controller the new value. `write` is [`Bus::ring`] or
    /// [`Bus::try_ring`].
    ///
    /// # Errors
    /// Those of a register write, where one is needed.
    #[inline]
    pub(crate) fn ring<B: Bus>(
        &mut self,
        bus: &B,
        value: u32,
        write: impl Fn(&B, u64, u32) -> Result<bool, DriverError>,
    ) -> Result<Rang, DriverError> {
        let old = std::mem::replace(&mut self.last, value);
        let is_wanted = match &self.way {
            Way::Mapped { pages, slot } => {
                // Release: the entries are seen before the tail that covers them.
                pages.store(*slot, value);
                false
            }
            Way::Shadow { buffers, at } => {
                buffers.shadow.store_u32(*at, value);
                // The store above before the load below: without the fence both
                // sides may read the old value, and the controller sleeps on.
                full_fence();
                let event_idx = buffers.event_idx.load_u32(*at);
                passes(event_idx, old, value)
            }
            Way::Trapped => true,
        };
        if !is_wanted {
            return Ok(Rang::Stored);
        }
        if write(bus, self.offset, value)? {
            return Ok(Rang::Written);
        }
        // The next range to pass begins where this one did.
        self.last = old;
        Ok(Rang::NotYet)
    }
}

/// Whether a doorbell that moves from `old` to `new` passes `event_idx`: then
/// the controller wants the register written (Base 2.1, B.5). It does when
/// EventIdx lies in `old..new`, which goes around the end of the queue when
/// `new` is below `old`; a doorbell that stays passes nothing.
///
/// The comparison is in 16 bits, the width of a queue entry's index. Values
/// between the queue's size and 2^16 do not occur, so that going around the end
/// of the queue and around 2^16 pass the same indices.
#[inline]
fn passes(event_idx: u32, old: u32, new: u32) -> bool {
    let low = |value: u32| {
        let [a, b, ..] = value.to_le_bytes();
        u16::from_le_bytes([a, b])
    };
    let (event_idx, old, new) = (low(event_idx), low(old), low(new));
    new.wrapping_sub(event_idx).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests {
    use memory::HostMemory;

    use super::*;

    /// Walks the indices one by one, as a queue of `size` entries does.
    fn walked(event_idx: u32, old: u32, new: u32, size: u32) -> bool {
        let mut at = old;
        while at != new {
            if at == event_idx {
                return true;
            }
            at = if at + 1 == size { 0 } else { at + 1 };
        }
        false
    }

    #[test]
    fn agrees_with_a_walk_over_the_queue() {
        for size in [2, 3, 5, 8, 17] {
            for event_idx in 0..size {
                for old in 0..size {
                    for new in 0..size {
                        assert_eq!(
                            passes(event_idx, old, new),
                            walked(event_idx, old, new, size),
                            "EventIdx {event_idx}, {old} to {new}, {size} entries"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_new_queues_words_are_zero_and_its_neighbours_untouched() {
        let memory = HostMemory::new(8192).unwrap();
        let page = || memory.alloc(4096, 4096).unwrap();
        let buffers = Arc::new(ShadowBuffers::new(page(), page()));
        for at in [4, 8, 12] {
            buffers.shadow.store_u32(at, 7);
            buffers.event_idx.store_u32(at, 9);
        }
        Doorbell::new(&Ringing::Shadow(buffers.clone()), 0x1008, 8);
        let words = |buffer: &Buffer| [4, 8, 12].map(|at| buffer.load_u32(at));
        assert_eq!(words(&buffers.shadow), [7, 0, 7]);
        assert_eq!(words(&buffers.event_idx), [9, 0, 9]);
    }

    #[test]
    fn known_values() {
        // EventIdx as the controller arms it at the tail it has seen: the next
        // entry rings, whatever comes before does not.
        assert!(passes(5, 5, 6));
        assert!(passes(5, 5, 9));
        assert!(!passes(5, 6, 9));
        assert!(!passes(9, 5, 9), "the value itself is reached, not passed");
        assert!(passes(8, 5, 9));
        assert!(!passes(4, 5, 9));
        assert!(!passes(7, 7, 7), "nothing moved");
        // Around the end of a queue of 1024 entries.
        assert!(passes(1023, 1022, 2));
        assert!(passes(0, 1022, 2));
        assert!(passes(1, 1022, 2));
        assert!(!passes(2, 1022, 2));
        assert!(!passes(1021, 1022, 2));
        assert!(!passes(500, 1022, 2));
        // And of the largest queue, 65536 entries.
        assert!(passes(65535, 65535, 0));
        assert!(!passes(0, 65535, 0));
        assert!(passes(65535, 65534, 65533));
    }
}
