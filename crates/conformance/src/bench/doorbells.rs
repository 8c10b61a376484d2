//! Doorbells (PCIe Transport 1.1, 3.1.2), by each of the three ways.

use ::memory::full_fence;
use driver::Doorbells;
use driver::bus::MappedDoorbells;

use super::register::DOORBELLS;
use super::{Bench, Mem};
use crate::Verdict;
use crate::verdict::{check, not_supported};
use crate::wire::{Sqe, u16_at};

/// How doorbells are rung now.
pub(super) enum Ringing {
    Trapped,
    Mapped(MappedDoorbells),
    Shadow(Shadow),
}

/// The two pages of Doorbell Buffer Config (Base 2.1, 5.2.5).
#[derive(Clone, Debug)]
pub struct Shadow {
    /// Shadow doorbells: what the host writes.
    pub doorbells: Mem,
    /// EventIdx: what the controller writes.
    pub event_idx: Mem,
    /// The admin queue rings there, too. The specification leaves that to the host (Base 2.1, B.5).
    with_admin: bool,
}

/// Whether a doorbell that moves from `old` to `new` passes EventIdx, so that
/// the register has to be written (Base 2.1, B.5): EventIdx lies in `old..new`,
/// counted in 16 bits.
fn passes(event_idx: u32, old: u32, new: u32) -> bool {
    let low = |value: u32| u16::try_from(value & 0xffff).expect("it was masked");
    low(new).wrapping_sub(low(event_idx)).wrapping_sub(1) < low(new).wrapping_sub(low(old))
}

/// The number of a submission queue's tail doorbell.
#[must_use]
pub fn tail_of(sqid: u16) -> u32 {
    2 * u32::from(sqid)
}

/// The number of a completion queue's head doorbell.
#[must_use]
pub fn head_of(cqid: u16) -> u32 {
    2 * u32::from(cqid) + 1
}

impl Bench {
    /// Bytes from one doorbell to the next: 4 << CAP.DSTRD.
    #[must_use]
    pub fn doorbell_stride(&self) -> u64 {
        4 << self.cap_bits(35, 32)
    }

    /// Where in BAR0 a doorbell lies.
    #[must_use]
    pub fn doorbell_at(&self, number: u32) -> u64 {
        DOORBELLS + u64::from(number) * self.doorbell_stride()
    }

    /// Mapped doorbells are there from the start; shadow ones are set up when
    /// the first I/O queue is made.
    pub(super) fn choose_ringing(&mut self) {
        self.ringing = match (self.options.doorbells, self.bus.doorbells()) {
            (Doorbells::Auto | Doorbells::Mapped, Some(mapped)) => Ringing::Mapped(mapped),
            _ => Ringing::Trapped,
        };
    }

    /// Sets up the doorbell buffer where that is how doorbells are to be rung.
    pub(super) fn prepare_ringing(&mut self) -> Verdict {
        match (self.options.doorbells, &self.ringing) {
            (Doorbells::Mapped, Ringing::Trapped) => not_supported("the target maps no doorbells"),
            (Doorbells::Shadow, Ringing::Trapped) => {
                let identity = self.controller()?;
                if u16_at(&identity, 256) >> 8 & 1 == 0 {
                    return not_supported("OACS bit 8: no Doorbell Buffer Config");
                }
                self.set_up_shadow().map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Doorbell Buffer Config with two zeroed pages; I/O queues ring there from
    /// now on.
    ///
    /// # Errors
    /// The command fails.
    pub fn set_up_shadow(&mut self) -> Verdict<Shadow> {
        let shadow = Shadow {
            doorbells: self.mem(4096)?,
            event_idx: self.mem(4096)?,
            with_admin: false,
        };
        let sqe = Sqe::new(0x7c).prps((shadow.doorbells.iova(), shadow.event_idx.iova()));
        self.admin(sqe)?.ok()?;
        self.ringing = Ringing::Shadow(shadow.clone());
        Ok(shadow)
    }

    /// From now on the admin queue rings in the shadow, too.
    pub fn shadow_the_admin_queue(&mut self) {
        if let Ringing::Shadow(shadow) = &mut self.ringing {
            shadow.with_admin = true;
        }
    }

    /// Sets a shadow doorbell back before its queue is made.
    pub(super) fn reset_doorbell(&mut self, number: u32) {
        let at = self.shadow_at(number);
        if let Ringing::Shadow(shadow) = &self.ringing
            && let Some(at) = at
        {
            shadow.doorbells.store(at, 0);
            shadow.event_idx.store(at, 0);
        }
    }

    fn shadow_at(&self, number: u32) -> Option<usize> {
        let at = self.doorbell_at(number) - DOORBELLS;
        let at = usize::try_from(at).ok()?;
        let with_admin = matches!(&self.ringing, Ringing::Shadow(shadow) if shadow.with_admin);
        ((number >= 2 || with_admin) && at + 4 <= 4096).then_some(at)
    }

    /// Rings a doorbell.
    ///
    /// # Errors
    /// The bus does not.
    pub fn ring(&mut self, number: u32, value: u32) -> Verdict {
        let offset = self.doorbell_at(number);
        match &self.ringing {
            Ringing::Mapped(mapped) if let Some(slot) = mapped.slot(offset) => {
                mapped.pages.store(slot, value);
                Ok(())
            }
            Ringing::Shadow(shadow) if let Some(at) = self.shadow_at(number) => {
                let old = shadow.doorbells.load(at);
                shadow.doorbells.store(at, value);
                // The store above before the load below; the controller does the reverse.
                full_fence();
                if passes(shadow.event_idx.load(at), old, value) {
                    self.bus.ring(offset, value)?;
                }
                Ok(())
            }
            _ => Ok(self.bus.ring(offset, value)?),
        }
    }

    /// Rings a doorbell so that it is noticed at once, whatever EventIdx says:
    /// for values that no host may write.
    ///
    /// # Errors
    /// The bus does not.
    pub fn ring_loudly(&mut self, number: u32, value: u32) -> Verdict {
        self.ring(number, value)?;
        if matches!(self.ringing, Ringing::Shadow(_)) {
            self.bus.ring(self.doorbell_at(number), value)?;
        }
        Ok(())
    }

    /// Fails unless doorbells of `pairs` queue pairs lie inside BAR0.
    ///
    /// # Errors
    /// They do not.
    pub fn doorbells_fit(&self, pairs: u32) -> Verdict {
        let end = self.doorbell_at(2 * pairs + 1) + 4;
        let len = self.bus.bar_len(0)?;
        check(end <= len, || {
            format!(
                "BAR0 has {len:#x} bytes, and doorbells of {pairs} I/O queue pairs end at {end:#x}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::passes;

    #[test]
    fn the_register_is_written_when_event_idx_is_passed() {
        assert!(passes(0, 0, 1));
        assert!(!passes(1, 0, 1));
        assert!(passes(5, 3, 6));
        assert!(!passes(6, 3, 6));
        assert!(!passes(2, 3, 6));
        // around the end of a queue
        assert!(passes(62, 60, 1));
        assert!(!passes(3, 60, 1));
        assert!(!passes(7, 7, 7));
    }
}
