//! Tickets: the duty to complete one command exactly once.
//!
//! The caller that hands a command to a medium issues a ticket ([`Ticket::issue`]), and the medium
//! gives the very same ticket back with the outcome. A ticket cannot be copied. Its owner makes it,
//! for a slot in the slot's present generation; a medium can only keep and return it. One that is
//! dropped panics in debug builds, so that a lost completion shows where it was lost and not as a
//! host that hangs.
//!
//! A ticket names its owner (a lane, a controller for its own flushes, a subsystem for what it
//! erases, or a channel for what it asks of the medium below it), the owner's slot, and the slot's
//! generation. A ticket that comes back after its slot was given to another command is recognised.

use std::num::{NonZeroU32, NonZeroU64};

/// Whose ticket it is. The two top bits say what kind of owner: `10b` a lane, `11b` a controller,
/// `01b` a subsystem, `00b` a channel. Never 0, so that `Option<Ticket>` has 8 bytes, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerKey(NonZeroU32);

impl OwnerKey {
    const LANE: u32 = 0b10 << 30;
    const CONTROLLER: u32 = 0b11 << 30;
    const SUBSYSTEM: u32 = 0b01 << 30;
    const CHANNEL: OwnerKey = OwnerKey(NonZeroU32::MIN);

    /// Numbers that fit into a key: `0..LIMIT`.
    pub const LIMIT: u32 = 1 << 30;

    const fn of(kind: u32, number: u32) -> OwnerKey {
        match NonZeroU32::new(kind | (number % Self::LIMIT)) {
            Some(key) => OwnerKey(key),
            None => Self::CHANNEL,
        }
    }

    /// The key of lane `number`. Numbers from [`OwnerKey::LIMIT`] on wrap around.
    #[must_use]
    pub const fn lane(number: u32) -> OwnerKey {
        Self::of(Self::LANE, number)
    }

    /// The key of controller `number`. Numbers from [`OwnerKey::LIMIT`] on wrap around.
    #[must_use]
    pub const fn controller(number: u32) -> OwnerKey {
        Self::of(Self::CONTROLLER, number)
    }

    /// The key of subsystem `number`. Numbers from [`OwnerKey::LIMIT`] on wrap around.
    #[must_use]
    pub const fn subsystem(number: u32) -> OwnerKey {
        Self::of(Self::SUBSYSTEM, number)
    }

    const fn kind(self) -> u32 {
        self.0.get() & Self::CONTROLLER
    }

    /// True for a lane.
    #[must_use]
    #[inline]
    pub const fn is_lane(self) -> bool {
        // One signed comparison: no other kind is below the controllers.
        self.0.get().cast_signed() < Self::CONTROLLER.cast_signed()
    }

    /// True for a controller.
    #[must_use]
    pub const fn is_controller(self) -> bool {
        self.kind() == Self::CONTROLLER
    }

    /// True for a subsystem.
    #[must_use]
    pub const fn is_subsystem(self) -> bool {
        self.kind() == Self::SUBSYSTEM
    }

    /// The number it was made from.
    #[must_use]
    #[inline]
    pub const fn number(self) -> u32 {
        self.0.get() & !Self::CONTROLLER
    }
}

/// Lane 0, for a lane that has no key yet.
impl Default for OwnerKey {
    fn default() -> Self {
        Self::lane(0)
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
    /// For `slot` of its owner, in the slot's present `generation`. For the owner itself, which
    /// takes back every ticket that it issues.
    #[inline]
    pub fn issue(owner: OwnerKey, slot: u16, generation: u16) -> Ticket {
        Ticket {
            owner,
            slot,
            generation,
        }
    }

    /// For request `number` of a channel's own to the medium below it.
    #[inline]
    pub fn numbered(number: u32) -> Ticket {
        Ticket::issue(OwnerKey::CHANNEL, (number >> 16) as u16, number as u16)
    }

    /// The number of a channel's own request; `None` for the ticket of another kind of owner.
    #[must_use]
    #[inline]
    pub fn number(&self) -> Option<u32> {
        let number = u32::from(self.slot) << 16 | u32::from(self.generation);
        (self.owner == OwnerKey::CHANNEL).then_some(number)
    }

    /// Whose it is: where the outcome goes.
    #[must_use]
    #[inline]
    pub fn owner(&self) -> OwnerKey {
        self.owner
    }

    /// Its slot, and the slot's generation.
    #[must_use]
    #[inline]
    pub fn place(&self) -> (u16, u16) {
        (self.slot, self.generation)
    }

    /// The identifier that distinguishes it from all other tickets. The duty stays here.
    #[must_use]
    #[inline]
    pub fn id(&self) -> TicketId {
        TicketId(self.bits())
    }

    #[inline]
    fn bits(&self) -> NonZeroU64 {
        let place = u64::from(self.slot) << 48 | u64::from(self.generation) << 32;
        NonZeroU64::from(self.owner.0) | place
    }

    /// Keeps it in a channel's table until its request has ended.
    #[inline]
    pub fn park(self) -> Parked {
        let parked = Parked(self.bits());
        std::mem::forget(self);
        parked
    }

    /// Ends the duty because the owner is gone: a late completion for a lane that was deleted, or
    /// for a controller that left. No lane waits for it any more.
    #[inline]
    pub fn retire(self) {
        std::mem::forget(self);
    }

    /// Ends the duty: (slot, generation) for the owner, who completes the command now.
    #[inline]
    pub fn fulfil(self) -> (u16, u16) {
        let place = self.place();
        std::mem::forget(self);
        place
    }
}

/// Identifier that distinguishes one ticket from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(NonZeroU64);

/// A ticket that a channel keeps. Made of a ticket only, and gives it back once. 8 bytes, as is
/// `Option<Parked>`. A channel that is dropped takes those that it keeps with it.
#[must_use = "the duty is in here"]
#[derive(Debug, PartialEq, Eq)]
pub struct Parked(NonZeroU64);

impl Parked {
    /// The ticket.
    #[inline]
    pub fn unpark(self) -> Ticket {
        let bits = self.0.get();
        // The owner's half is never 0.
        let owner = NonZeroU32::new(bits as u32).map_or(OwnerKey::CHANNEL, OwnerKey);
        Ticket {
            owner,
            slot: (bits >> 48) as u16,
            generation: (bits >> 32) as u16,
        }
    }

    /// See [`Ticket::id`].
    #[must_use]
    #[inline]
    pub fn id(&self) -> TicketId {
        TicketId(self.0)
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

const _: () = assert!(size_of::<Option<Ticket>>() == 8);
const _: () = assert!(size_of::<Option<Parked>>() == 8);

#[cfg(test)]
mod tests {
    use super::{OwnerKey, Ticket};

    #[test]
    fn a_parked_ticket_is_the_same_ticket() {
        let parked = Ticket::issue(OwnerKey::controller(77), 0xBEEF, 0xCAFE).park();
        let id = parked.id();
        let ticket = parked.unpark();
        assert_eq!((ticket.id(), ticket.number()), (id, None));
        assert_eq!(ticket.owner(), OwnerKey::controller(77));
        assert_eq!(ticket.fulfil(), (0xBEEF, 0xCAFE));
    }

    #[test]
    fn an_owner_is_of_one_kind() {
        for number in [0, 1, 77, OwnerKey::LIMIT - 1] {
            let all = [
                (OwnerKey::lane(number), [true, false, false]),
                (OwnerKey::controller(number), [false, true, false]),
                (OwnerKey::subsystem(number), [false, false, true]),
            ];
            for (key, kind) in all {
                let is = [key.is_lane(), key.is_controller(), key.is_subsystem()];
                assert_eq!((is, key.number()), (kind, number), "{key:?}");
            }
        }
        assert_eq!(OwnerKey::lane(OwnerKey::LIMIT + 5), OwnerKey::lane(5));
    }

    #[test]
    fn a_channels_own_request_has_a_number_and_no_other_owner() {
        for number in [0, 7, 0xFFFF, 0x1_0000, u32::MAX] {
            let ticket = Ticket::numbered(number).park().unpark();
            assert_eq!(ticket.number(), Some(number));
            let owner = ticket.owner();
            assert!(!owner.is_lane() && !owner.is_controller() && !owner.is_subsystem());
            ticket.retire();
        }
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "dropped unfulfilled")]
    fn a_dropped_ticket_shows() {
        drop(Ticket::issue(OwnerKey::lane(1), 2, 3));
    }
}
