//! Reservations of a completion queue's entries.
//!
//! A lane fetches a command only with a reservation, and completes it by passing the reservation to
//! [`Cq::post`] or [`Cq::release`]. The type cannot be copied and only this module creates it, one
//! value for each entry that the queue counted. No build can therefore post twice for one command,
//! or post without room.
//!
//! While a medium executes a command, the state of the command's slot ([`crate::state`]) stands for
//! its reservation. The states `FETCHED`, `IN_FLIGHT`, `STEPPING` and `FUSED` have one.
//!
//! [`Cq::post`]: super::Cq::post
//! [`Cq::release`]: super::Cq::release
//! [`Cq::reserve`]: super::Cq::reserve

use crate::state::{CommandState, SlotState};

/// One reserved entry of a completion queue. 0 bytes.
#[must_use = "dropping a reservation loses its entry of the queue"]
#[derive(Debug)]
pub struct Reservation(());

impl Reservation {
    /// Only for the queue that has counted it.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Reservation(())
    }

    /// The queue counts it as posted or as free from now on.
    #[inline(always)]
    pub(super) fn consume(self) {
        std::mem::forget(self);
    }
}

#[cfg(debug_assertions)]
impl Drop for Reservation {
    fn drop(&mut self) {
        assert!(
            std::thread::panicking(),
            "a reservation of a completion queue entry was dropped"
        );
    }
}

/// Several reserved entries of a completion queue, for commands that are fetched together. 4 bytes.
#[must_use = "the rest of a batch is released"]
#[derive(Debug)]
pub(crate) struct Batch(u32);

impl Batch {
    /// Only for the queue that has counted them.
    #[inline(always)]
    pub(super) fn new(entries: u32) -> Self {
        Batch(entries)
    }

    /// One of them.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Reservation> {
        self.0 = self.0.checked_sub(1)?;
        Some(Reservation::new())
    }

    /// Returns one that was not needed.
    #[inline(always)]
    pub(crate) fn put_back(&mut self, reservation: Reservation) {
        reservation.consume();
        self.0 += 1;
    }

    /// Number left.
    #[inline(always)]
    pub(crate) fn left(&self) -> u32 {
        self.0
    }
}

impl SlotState {
    /// Keeps the reservation of the command in this slot, which was fetched.
    #[inline(always)]
    pub(crate) fn park(&self, reservation: Reservation) {
        debug_assert!(self.state().has_reservation());
        reservation.consume();
    }

    /// Keeps the reservation of a command of a process that died, whose completion may have been
    /// being written.
    pub(crate) fn keep(&self, reservation: Reservation) {
        debug_assert!(self.state().has_reservation() || self.state() == CommandState::POSTING);
        reservation.consume();
    }

    /// As [`SlotState::claim`], of a command whose completion a process that died was writing.
    pub(crate) fn claim_posting(&mut self) -> Option<Claim<'_>> {
        let was_posting = self.state() == CommandState::POSTING;
        was_posting.then(|| Claim {
            slot: self,
            entry: Reservation::new(),
        })
    }

    /// Returns the reservation of the command in this slot with the slot, or none if the command
    /// has completed. The caller completes the command and changes the slot's state.
    #[inline(always)]
    pub(crate) fn claim(&mut self) -> Option<Claim<'_>> {
        let has_reservation = self.state().has_reservation();
        has_reservation.then(|| Claim {
            slot: self,
            entry: Reservation::new(),
        })
    }
}

/// The reservation of the command in a slot, and the slot: while one is claimed no other claim of
/// it exists. [`Cq::post_from`] and [`Cq::release`] consume its reservation.
///
/// [`Cq::post_from`]: super::Cq::post_from
/// [`Cq::release`]: super::Cq::release
#[must_use = "dropping a reservation loses its entry of the queue"]
#[derive(Debug)]
pub(crate) struct Claim<'s> {
    pub(crate) slot: &'s mut SlotState,
    pub(crate) entry: Reservation,
}

/// The reservations of admin commands that have not completed. They have no slots: one is as good
/// as another.
#[derive(Debug, Default)]
pub(crate) struct Pool(u32);

impl Pool {
    /// Keeps one.
    pub(crate) fn park(&mut self, reservation: Reservation) {
        self.0 += 1;
        reservation.consume();
    }

    /// Returns one, or none if every command has completed.
    pub(crate) fn claim(&mut self) -> Option<Reservation> {
        self.0 = self.0.checked_sub(1)?;
        Some(Reservation::new())
    }
}

const _: () = assert!(size_of::<Reservation>() == 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_completes_once() {
        let mut slot = SlotState::in_state(CommandState::FETCHED);
        slot.park(Reservation::new());
        slot.claim().expect("it was parked").entry.consume();
        for state in [
            CommandState::POSTING,
            CommandState::ZOMBIE,
            CommandState::FREE,
        ] {
            let mut slot = SlotState::in_state(state);
            assert!(slot.claim().is_none(), "it has completed: {state:?}");
        }

        let mut batch = Batch::new(1);
        let reservation = batch.take().expect("there is one");
        assert!(batch.take().is_none());
        batch.put_back(reservation);
        assert_eq!(batch.left(), 1);

        let mut pool = Pool::default();
        pool.park(Reservation::new());
        pool.claim().expect("it was parked").consume();
        assert!(pool.claim().is_none());
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "was dropped")]
    fn a_dropped_reservation_shows() {
        drop(Reservation::new());
    }
}
