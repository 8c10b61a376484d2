//! Tickets: the obligation to complete one command exactly once.
//!
//! A lane creates a ticket when it passes a command to a medium, and the medium returns the same
//! ticket with the outcome. A ticket cannot be copied, and one that is dropped unfulfilled panics
//! in debug builds, so that a lost completion is found where it was lost and not as a host that
//! hangs.
//!
//! A ticket names its owner (a lane, or a controller for its own flushes), the owner's slot, and
//! the slot's generation, so that a ticket that comes back after its slot was reused is recognised.

/// Owner of a ticket: the top bit marks a controller (its own flushes), the two top bits a
/// subsystem (its erasures); otherwise it is a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerKey(u32);

impl OwnerKey {
    const CONTROLLER: u32 = 0b10 << 30;
    const SUBSYSTEM: u32 = 0b11 << 30;

    /// Numbers that fit into a key: `0..LIMIT`.
    pub const LIMIT: u32 = 1 << 30;

    /// The key of lane `number`. Numbers from [`OwnerKey::LIMIT`] on wrap around.
    #[must_use]
    pub const fn lane(number: u32) -> OwnerKey {
        OwnerKey(number % Self::LIMIT)
    }

    /// The key of controller `number`. Numbers from [`OwnerKey::LIMIT`] on wrap around.
    #[must_use]
    pub const fn controller(number: u32) -> OwnerKey {
        OwnerKey((number % Self::LIMIT) | Self::CONTROLLER)
    }

    /// The key of subsystem `number`. Numbers from [`OwnerKey::LIMIT`] on wrap around.
    #[must_use]
    pub const fn subsystem(number: u32) -> OwnerKey {
        OwnerKey((number % Self::LIMIT) | Self::SUBSYSTEM)
    }

    /// True for a lane.
    #[must_use]
    #[inline]
    pub const fn is_lane(self) -> bool {
        self.0 & Self::CONTROLLER == 0
    }

    /// True for a controller.
    #[must_use]
    pub const fn is_controller(self) -> bool {
        self.0 & Self::SUBSYSTEM == Self::CONTROLLER
    }

    /// True for a subsystem.
    #[must_use]
    pub const fn is_subsystem(self) -> bool {
        self.0 & Self::SUBSYSTEM == Self::SUBSYSTEM
    }

    /// The number it was made from.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 & !Self::SUBSYSTEM
    }
}

/// The duty to complete one command exactly once. 8 bytes.
#[must_use = "a ticket that is dropped is a command that never completes"]
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    owner: OwnerKey,
    slot: u16,
    generation: u16,
}

impl Ticket {
    /// A ticket of `owner` for its `slot` in the slot's present `generation`.
    pub(crate) fn new(owner: OwnerKey, slot: u16, generation: u16) -> Ticket {
        Ticket {
            owner,
            slot,
            generation,
        }
    }

    /// Whose it is: where the outcome goes.
    #[must_use]
    pub fn owner(&self) -> OwnerKey {
        self.owner
    }

    /// Its slot, and the slot's generation.
    pub(crate) fn place(&self) -> (u16, u16) {
        (self.slot, self.generation)
    }

    /// As 64 bits, to know it again. The duty stays here.
    #[must_use]
    pub fn bits(&self) -> u64 {
        u64::from(self.owner.0) << 32 | u64::from(self.slot) << 16 | u64::from(self.generation)
    }

    /// As 64 bits, for a medium that keeps it in a user-data word. The duty goes with the bits.
    #[must_use]
    pub fn into_bits(self) -> u64 {
        let bits = self.bits();
        std::mem::forget(self);
        bits
    }

    /// Recreates the ticket from the result of [`Ticket::into_bits`]. Once for each call.
    pub fn from_bits(bits: u64) -> Ticket {
        Ticket {
            owner: OwnerKey((bits >> 32) as u32),
            slot: (bits >> 16) as u16,
            generation: bits as u16,
        }
    }

    /// Ends the obligation because the owner is gone: a late completion for a lane that was
    /// deleted, or for a controller that left.
    pub fn retire(self) {
        std::mem::forget(self);
    }

    /// Ends the duty: (slot, generation) for the owner, who completes the command now.
    pub(crate) fn fulfil(self) -> (u16, u16) {
        let parts = (self.slot, self.generation);
        std::mem::forget(self);
        parts
    }
}

#[cfg(debug_assertions)]
impl Drop for Ticket {
    fn drop(&mut self) {
        assert!(
            std::thread::panicking(),
            "a ticket was dropped unfulfilled: owner {:?}, slot {}",
            self.owner,
            self.slot
        );
    }
}

const _: () = assert!(size_of::<Ticket>() == 8);

#[cfg(test)]
mod tests {
    use super::{OwnerKey, Ticket};

    #[test]
    fn bits_round_trip() {
        let bits = Ticket::new(OwnerKey::controller(77), 0xBEEF, 0xCAFE).into_bits();
        let ticket = Ticket::from_bits(bits);
        assert_eq!(ticket.owner(), OwnerKey::controller(77));
        assert!(ticket.owner().is_controller());
        assert_eq!(ticket.owner().number(), 77);
        assert_eq!(ticket.fulfil(), (0xBEEF, 0xCAFE));
        assert!(!OwnerKey::lane(77).is_controller());
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "dropped unfulfilled")]
    fn a_dropped_ticket_shows() {
        drop(Ticket::new(OwnerKey::lane(1), 2, 3));
    }
}
