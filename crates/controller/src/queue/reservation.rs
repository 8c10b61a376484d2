//! Reservations of a completion queue's entries.
//!
//! A command is fetched only with a reservation, and completes by handing it to [`Cq::post`] or [`Cq::release`]. The type
//! has one value for each entry that [`Cq::reserve`] counted, cannot be copied, and is made nowhere else, so that no build
//! can post twice for one command or post without room.
//!
//! While a command is with a medium its reservation is parked under the command's slot. It does NOT survive a restart: which
//! slots have one follows from their states ([`crate::state`]).
//!
//! [`Cq::post`]: super::Cq::post
//! [`Cq::release`]: super::Cq::release
//! [`Cq::reserve`]: super::Cq::reserve

/// One reserved entry of a completion queue. 0 bytes.
#[must_use = "a reservation that is dropped is an entry that nobody can use again"]
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

impl Drop for Reservation {
    #[cold]
    fn drop(&mut self) {
        const LOST: &str = "a reservation of a completion queue entry was dropped";
        tracing::error!("{LOST}: the queue has one entry less from now on");
        debug_assert!(std::thread::panicking(), "{LOST}");
    }
}

/// The reservations of commands that are under execution, by a number of each command below the size it was made with.
#[derive(Debug)]
pub(crate) struct Parked(Box<[bool]>);

impl Parked {
    /// None yet, for numbers below `len`.
    pub(crate) fn new(len: usize) -> Self {
        Parked(vec![false; len].into())
    }

    /// Keeps the reservation of a command that has none here.
    #[inline(always)]
    pub(crate) fn park(&mut self, number: u16, reservation: Reservation) {
        let place = &mut self.0[usize::from(number)];
        debug_assert!(!*place, "a command has one reservation");
        *place = true;
        reservation.consume();
    }

    /// Hands out the reservation of a command; none where the command has completed.
    #[inline(always)]
    pub(crate) fn claim(&mut self, number: u16) -> Option<Reservation> {
        let place = &mut self.0[usize::from(number)];
        std::mem::take(place).then(Reservation::new)
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|place| u32::from(*place)).sum()
    }
}

/// The reservations of admin commands that have not completed. They have no slots: one is as good as another.
#[derive(Debug, Default)]
pub(crate) struct Pool(u32);

impl Pool {
    /// Keeps one.
    pub(crate) fn park(&mut self, reservation: Reservation) {
        self.0 += 1;
        reservation.consume();
    }

    /// Hands one out; none where every command has completed.
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
        let mut parked = Parked::new(2);
        parked.park(1, Reservation::new());
        assert!(parked.claim(0).is_none());
        parked.claim(1).expect("it was parked").consume();
        assert!(parked.claim(1).is_none(), "it has completed");

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
