//! Which interrupts a host gets, and when (Base 2.1, 3.1.4.3, 3.1.4.4, 5.1.25.2.2 and 5.1.25.2.3; PCIe Transport 1.1, 3.5).
//!
//! Configuration space says which way they go. By MSI-X, what was posted raises its vector. By MSI and by the pin, INTMS
//! masks, and an interrupt is asked for while a completion queue has entries that the host has not acknowledged by its
//! head doorbell: that is derived from the queues whenever it is needed, and kept nowhere. So nothing can be lost between
//! a mask and its end: whoever takes away what held interrupts back (INTMC, the end of a mask, another way that they go)
//! has the queues looked at again.
//!
//! Coalescing counts and times per vector, for I/O queues only. What it withholds has a deadline of its own, and a host
//! that has consumed everything meanwhile gets the interrupt all the same, but not by MSI or the pin. A second look at the
//! queues does not withhold what a first one did: Aggregation Time is a recommended maximum.
//!
//! It does NOT deliver: the transport does, and keeps what MSI-X cannot deliver yet, in the pending bits.

use memory::DoorbellPages;
use nvme_spec::features::InterruptCoalescing;

use super::Controller;
use crate::admin::AdminQueue;
use crate::lane::{Lane, LaneTable, Posted};
use crate::pci::Mechanism;
use crate::queue::Bells;
use crate::time::Time;

/// Aggregation Time is in units of 100 us.
const TIME_UNIT_NS: u64 = 100_000;
/// The admin completion queue's vector.
const ADMIN_VECTOR: u16 = 0;

/// An interrupt, as the transport delivers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// A vector of MSI-X.
    Vector(u16),
    /// A message of MSI.
    Message(u16),
    /// The pin is asserted, or is not. Told whenever it may be news, not only when it is.
    Pin(bool),
}

/// What Interrupt Coalescing asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Coalescing {
    threshold: u32,
    time_ns: u64,
}

impl From<InterruptCoalescing> for Coalescing {
    fn from(value: InterruptCoalescing) -> Self {
        Coalescing {
            threshold: u32::from(value.thr_z()) + 1,
            time_ns: u64::from(value.time()) * TIME_UNIT_NS,
        }
    }
}

impl Coalescing {
    /// No delay, or nothing to wait for, is none.
    fn is_on(self) -> bool {
        self.threshold > 1 && self.time_ns > 0
    }
}

/// What is withheld of a vector.
#[derive(Clone, Copy, Debug, Default)]
struct Withheld {
    entries: u32,
    /// When the first of them was posted.
    since: Time,
}

impl Withheld {
    fn is_due(self, coalescing: Coalescing, now: Time) -> bool {
        self.entries >= coalescing.threshold || now >= self.since + coalescing.time_ns
    }
}

/// The state of a controller's interrupts.
#[derive(Debug)]
pub(super) struct Interrupts {
    mechanism: Mechanism,
    coalescing: Coalescing,
    /// What is posted raises its vector, without a second thought: MSI-X and no coalescing.
    plain: bool,
    withheld: Box<[Withheld]>,
    /// When the first withheld interrupt is due.
    due: Option<Time>,
    /// Every queue is to be looked at again.
    look_again: bool,
}

impl Interrupts {
    pub(super) fn new(vectors: u16, mechanism: Mechanism) -> Self {
        Interrupts {
            mechanism,
            coalescing: InterruptCoalescing::new().into(),
            plain: mechanism == Mechanism::Vectors,
            withheld: vec![Withheld::default(); vectors.into()].into(),
            due: None,
            look_again: false,
        }
    }

    /// Every queue is to be looked at again.
    pub(super) fn recheck(&mut self) {
        self.look_again = true;
    }

    pub(super) fn has_work(&self) -> bool {
        self.look_again
    }
}

impl AdminQueue {
    /// Whether the host has yet to acknowledge entries. Queue 0 has no doorbell buffers.
    fn is_unacknowledged(&self, doorbells: &DoorbellPages) -> bool {
        let bells = Bells {
            pages: doorbells,
            shadow: None,
        };
        self.cq.is_unacknowledged(bells)
    }
}

impl Controller {
    /// The interrupt to raise because of what `lane` has posted; `None` where there is none now. To be asked once for each
    /// lane and turn, so that a batch raises one interrupt. What is withheld comes from
    /// [`Controller::take_interrupts`].
    #[inline]
    pub fn interrupt(&mut self, posted: Posted, lane: &mut Lane, now: Time) -> Option<Interrupt> {
        if self.interrupts.plain {
            lane.counters().interrupts.add(1);
            return Some(Interrupt::Vector(posted.vector));
        }
        if self.withholds(posted, now) {
            return None;
        }
        self.delivery(lane)
    }

    /// Everything else that there is to raise: for the admin queue, for what was withheld long enough, and for what a mask
    /// held back. Due after each turn of the controller, and at [`Controller::interrupts_due`].
    pub fn take_interrupts(
        &mut self,
        now: Time,
        lanes: &mut impl LaneTable,
        mut raise: impl FnMut(Interrupt),
    ) {
        self.settle();
        let admin_posted = self
            .admin
            .as_mut()
            .is_some_and(|admin| std::mem::take(&mut admin.posted));
        if std::mem::take(&mut self.interrupts.look_again) {
            self.look_again(lanes, &mut raise);
        }
        if admin_posted && let Some(interrupt) = self.admin_delivery() {
            raise(interrupt);
        }
        if self.interrupts.due.is_some() {
            self.raise_withheld(now, lanes, raise);
        }
    }

    /// When the first withheld interrupt is due.
    #[must_use]
    pub fn interrupts_due(&self) -> Option<Time> {
        self.interrupts.due
    }

    /// Something that held interrupts back outside has gone: the host has unmasked its interrupt, or waits for it only
    /// now. The next turn looks at every queue again.
    pub fn recheck_interrupts(&mut self) {
        self.interrupts.recheck();
    }

    /// Shows in the Status register whether the pin would be asserted now, whether or not it is disabled. To be asked
    /// for before a host may read it.
    pub fn refresh_interrupt_status(&mut self, lanes: &mut impl LaneTable) {
        if self.pci.has_pin() {
            let by_pin = matches!(
                self.interrupts.mechanism,
                Mechanism::Pin | Mechanism::Silent
            );
            let pending = by_pin && self.is_asserted(lanes);
            self.pci.set_interrupt_status(pending);
        }
    }

    /// Whether every vector of MSI-X is masked.
    #[must_use]
    pub fn msix_masked(&self) -> bool {
        self.pci.msix_masked()
    }

    /// Takes over what registers, configuration space and features say.
    fn settle(&mut self) {
        let mechanism = self.pci.mechanism();
        let coalescing = Coalescing::from(self.features.interrupt_coalescing());
        let unmasked = self.registers.take_unmasked();
        let state = &mut self.interrupts;
        state.look_again |= unmasked || mechanism != state.mechanism;
        state.plain = mechanism == Mechanism::Vectors && !coalescing.is_on();
        (state.mechanism, state.coalescing) = (mechanism, coalescing);
        if self.admin.is_none() {
            state.withheld.fill(Withheld::default());
            state.due = None;
        }
    }

    /// Whether the host has masked the vector by INTMS (Base 2.1, 3.1.4.3).
    pub(super) fn is_masked(&self, vector: u16) -> bool {
        let bit = u32::from(vector);
        let by_msix = self.interrupts.mechanism == Mechanism::Vectors;
        !by_msix && bit < u32::BITS && self.registers.interrupt_mask() >> bit & 1 == 1
    }

    /// Counts what was posted, where its vector is coalesced; whether it waits for more.
    fn withholds(&mut self, posted: Posted, now: Time) -> bool {
        let coalesced = self.is_coalesced(posted.vector);
        let state = &mut self.interrupts;
        let Some(withheld) = state.withheld.get_mut(usize::from(posted.vector)) else {
            return false;
        };
        if withheld.entries == 0 {
            withheld.since = now;
        }
        withheld.entries = withheld.entries.saturating_add(posted.entries);
        if !coalesced || posted.failed || withheld.is_due(state.coalescing, now) {
            // The deadline that may stand for it finds nothing.
            *withheld = Withheld::default();
            return false;
        }
        let due = withheld.since + state.coalescing.time_ns;
        state.due = Some(state.due.map_or(due, |first| first.min(due)));
        true
    }

    fn is_coalesced(&self, vector: u16) -> bool {
        self.interrupts.coalescing.is_on() && !self.features.coalescing_disabled(vector)
    }

    /// Raises what was withheld and is due, by now or by what the features say now.
    fn raise_withheld(
        &mut self,
        now: Time,
        lanes: &mut impl LaneTable,
        mut raise: impl FnMut(Interrupt),
    ) {
        self.interrupts.due = None;
        for vector in 0..self.vectors() {
            let coalesced = self.is_coalesced(vector);
            let state = &mut self.interrupts;
            let withheld = &mut state.withheld[usize::from(vector)];
            if withheld.entries == 0 {
                continue;
            }
            if coalesced && !withheld.is_due(state.coalescing, now) {
                let due = withheld.since + state.coalescing.time_ns;
                state.due = Some(state.due.map_or(due, |first| first.min(due)));
                continue;
            }
            *withheld = Withheld::default();
            for key in self.queues.lanes() {
                if let Some(lane) = lanes.get_mut(key)
                    && lane.vector() == Some(vector)
                    && let Some(interrupt) = self.delivery(lane)
                {
                    raise(interrupt);
                }
            }
        }
    }

    /// Raises what every queue asks for. Not by MSI-X, whose pending bits remember.
    fn look_again(&self, lanes: &mut impl LaneTable, raise: &mut impl FnMut(Interrupt)) {
        if self.pci.has_pin() {
            let by_pin = self.interrupts.mechanism == Mechanism::Pin;
            raise(Interrupt::Pin(by_pin && self.is_asserted(lanes)));
        }
        if matches!(self.interrupts.mechanism, Mechanism::Messages { .. }) {
            let of_lanes = self.queues.lanes();
            let of_lanes = of_lanes.filter_map(|key| self.delivery(lanes.get_mut(key)?));
            let all = self.admin_delivery().into_iter().chain(of_lanes);
            all.for_each(raise);
        }
    }

    /// What a lane's entries raise.
    fn delivery(&self, lane: &mut Lane) -> Option<Interrupt> {
        let interrupt = self.way(lane.vector()?, || lane.is_unacknowledged())?;
        lane.counters().interrupts.add(1);
        Some(interrupt)
    }

    /// What the admin queue's entries raise.
    fn admin_delivery(&self) -> Option<Interrupt> {
        let admin = self.admin.as_ref()?;
        self.way(ADMIN_VECTOR, || admin.is_unacknowledged(&self.doorbells))
    }

    /// The way that a vector's interrupts go; `None` where they go nowhere now.
    fn way(&self, vector: u16, is_unacknowledged: impl FnOnce() -> bool) -> Option<Interrupt> {
        let interrupt = match self.interrupts.mechanism {
            Mechanism::Vectors => return Some(Interrupt::Vector(vector)),
            Mechanism::Silent => return None,
            // Fewer messages than vectors: a message carries several (PCI 3.0, 6.8.1.3, leaves the folding to the function).
            Mechanism::Messages { count } => Interrupt::Message(vector % count),
            Mechanism::Pin => Interrupt::Pin(true),
        };
        (!self.is_masked(vector) && is_unacknowledged()).then_some(interrupt)
    }

    /// Whether some queue asserts the pin.
    fn is_asserted(&self, lanes: &mut impl LaneTable) -> bool {
        let admin = self.admin.as_ref().is_some_and(|admin| {
            !self.is_masked(ADMIN_VECTOR) && admin.is_unacknowledged(&self.doorbells)
        });
        // Each is looked at, as a look asks the host to ring.
        self.queues.lanes().fold(admin, |asserted, key| {
            let of_lane = lanes.get_mut(key).is_some_and(|lane| {
                let masked = lane.vector().is_some_and(|vector| self.is_masked(vector));
                lane.is_unacknowledged() && !masked
            });
            asserted | of_lane
        })
    }
}
