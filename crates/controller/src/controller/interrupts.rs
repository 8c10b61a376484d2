//! Interrupts of a host, and their timing (Base 2.1, 3.1.4.3, 3.1.4.4, 5.1.25.2.2 and 5.1.25.2.3;
//! PCIe Transport 1.1, 3.5).
//!
//! Configuration space selects the mechanism. With MSI-X, a posted completion raises its vector,
//! unless the host has consumed it already (`lane::polling`). With MSI and the pin, INTMS masks,
//! and an interrupt is requested while a completion queue has entries that the host has not
//! acknowledged by its head doorbell: that is derived from the queues whenever it is needed, and
//! stored nowhere. So no interrupt can be lost between a mask and its end: code that removes an
//! obstacle to interrupts (INTMC, the end of a mask, a change of mechanism) has the queues checked
//! again.
//!
//! Coalescing counts and times per vector, for I/O queues only. An interrupt that it withholds has
//! its own deadline. A host that has consumed everything meanwhile still gets it, but not by MSI or
//! the pin. A second check of the queues does not withhold what a first one did: Aggregation Time
//! is a recommended maximum.
//!
//! A monitor without kernel support for the pin (QEMU's VFIO devices) takes any access to a BAR as
//! the end of the interrupt, so another processor's submission ends it while the handler is still
//! busy. If it were asserted again at once, the monitor would assert its line after the handler has
//! acknowledged everything, and the guest's driver, which finds no work, would touch no register:
//! an interrupt storm. So entries that the handler is about to find are not signalled again yet:
//! not within [`HANDLER_NS`] of the last time if nothing was acknowledged since, nor within
//! [`NEXT_QUEUE_NS`] of an acknowledgement, as the handler goes on to the next queue. An unmask by
//! eventfd, which comes after the handlers, and the end of a mask are no reason to wait.
//!
//! It does NOT deliver: the transport does, and keeps interrupts that MSI-X cannot deliver yet, in
//! the pending bits.

use memory::DoorbellPages;
use nvme_spec::features::InterruptCoalescing;
use port::ticket::OwnerKey;
use port::time::Time;

use super::Controller;
use super::admin::AdminQueue;
use crate::lane::{Lane, LaneTable, Posted};
use crate::pci::Mechanism;

/// Aggregation Time is in units of 100 us.
const TIME_UNIT_NS: u64 = 100_000;
/// How long after a report of the pin's level a host is expected to acknowledge entries.
const HANDLER_NS: u64 = 10_000_000;
/// How long after an acknowledgement a host is expected to check its other queues.
const NEXT_QUEUE_NS: u64 = 200_000;
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

/// Settings of Interrupt Coalescing.
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

/// Withheld interrupts of a vector.
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

/// The last report of an asserted pin to the host.
#[derive(Clone, Copy, Debug)]
struct Told {
    at: Time,
    /// Sum of all heads then: it differs after the host has acknowledged an entry.
    heads: u64,
}

/// The state of a controller's interrupts.
#[derive(Debug)]
pub(super) struct Interrupts {
    mechanism: Mechanism,
    coalescing: Coalescing,
    /// Posted entries raise their vector unconditionally: MSI-X and no coalescing.
    plain: bool,
    withheld: Box<[Withheld]>,
    /// When the first withheld interrupt is due.
    due: Option<Time>,
    /// Every queue must be checked again.
    look_again: bool,
    told: Option<Told>,
    /// The sum of all heads at the last check.
    heads: u64,
    /// When a look found that the host has acknowledged something, and its handler may go on.
    acknowledged: Option<Time>,
    /// Its handlers have ended since the last look.
    handled: bool,
    /// The time when a deferred level is reported.
    held: Option<Time>,
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
            told: None,
            heads: 0,
            acknowledged: None,
            handled: false,
            held: None,
        }
    }

    /// Requests another check of every queue.
    #[inline]
    pub(super) fn recheck(&mut self) {
        self.look_again = true;
    }

    /// The host's handlers have ended: they are no reason to wait with the level any more.
    fn forget_handler(&mut self) {
        (self.told, self.acknowledged, self.held) = (None, None, None);
        self.handled = true;
    }

    pub(super) fn has_work(&self) -> bool {
        self.look_again
    }
}

impl AdminQueue {
    /// Whether the host has yet to acknowledge entries.
    fn is_unacknowledged(&self, doorbells: &DoorbellPages) -> bool {
        self.cq.is_unacknowledged(self.bells(doorbells))
    }
}

impl Controller {
    /// The interrupt to raise for the entries that `lane` has posted; `None` if there is none now.
    /// Call it once for each lane and turn, so that a batch raises one interrupt. Withheld
    /// interrupts come from [`Controller::take_interrupts`].
    #[inline]
    pub fn interrupt(&mut self, posted: Posted, lane: &mut Lane, now: Time) -> Option<Interrupt> {
        if self.interrupts.plain {
            if lane.host_polls(posted) {
                return None;
            }
            lane.counters().interrupts.add(1);
            return Some(Interrupt::Vector(posted.vector));
        }
        if self.withholds(posted, now) {
            return None;
        }
        self.delivery(lane)
    }

    /// The same for a lane on another reactor, which has reported its posted entries.
    pub fn interrupt_for_visitor(&mut self, posted: Posted, now: Time) -> Option<Interrupt> {
        if self.interrupts.plain {
            return Some(Interrupt::Vector(posted.vector));
        }
        if self.withholds(posted, now) {
            return None;
        }
        self.delivery_for_visitor(posted.vector)
    }

    /// Whether posted entries raise their MSI-X vector without further conditions: then a lane on
    /// another reactor may raise it there.
    #[must_use]
    pub fn interrupts_plainly(&self) -> bool {
        self.interrupts.plain
    }

    /// Whether a lane may live on another reactor. By MSI and by the pin, interrupts follow from
    /// what hosts have acknowledged in every queue, and weighted round robin from what all of them
    /// hold: those need the lanes at home.
    #[must_use]
    pub fn may_visit(&self, key: OwnerKey) -> bool {
        let unheard = self.queues.vector_of(key).is_none();
        (unheard || self.lanes_may_part()) && self.arbiter.is_none()
    }

    /// Whether lanes with interrupts may, as far as interrupts are concerned.
    #[must_use]
    pub fn lanes_may_part(&self) -> bool {
        matches!(
            self.interrupts.mechanism,
            Mechanism::Vectors | Mechanism::Silent
        )
    }

    /// All other interrupts: for the admin queue, those withheld long enough, those that a mask
    /// deferred, and all of the pin. Due after each turn of the controller, and at
    /// [`Controller::interrupts_due`].
    pub fn take_interrupts(
        &mut self,
        now: Time,
        lanes: &mut impl LaneTable,
        mut raise: impl FnMut(Interrupt),
    ) {
        self.settle();
        let admin = self.admin.queue.as_mut();
        if admin.is_some_and(|admin| std::mem::take(&mut admin.posted))
            && let Some(interrupt) = self.admin_delivery()
        {
            raise(interrupt);
        }
        if self.interrupts.due.is_some() {
            self.raise_withheld(now, lanes, &mut raise);
        }
        let state = &mut self.interrupts;
        let held = state.held.take_if(|until| now >= *until);
        if std::mem::take(&mut state.look_again) || held.is_some() {
            self.look_again(now, lanes, raise);
        }
    }

    /// The time when [`Controller::take_interrupts`] has an interrupt that no event announces.
    #[must_use]
    pub fn interrupts_due(&self) -> Option<Time> {
        let state = &self.interrupts;
        let now = state.look_again.then_some(Time(0));
        now.into_iter().chain(state.due).chain(state.held).min()
    }

    /// Something that held interrupts back outside has gone: the host has unmasked its interrupt,
    /// or waits for it only now. The next turn looks at every queue again. `handled`: whatever
    /// handles interrupts there has ended.
    pub fn recheck_interrupts(&mut self, handled: bool) {
        self.interrupts.recheck();
        if handled {
            self.interrupts.forget_handler();
        }
    }

    /// Whether such a check is still to come.
    #[must_use]
    pub fn rechecks_interrupts(&self) -> bool {
        self.interrupts.has_work()
    }

    /// Shows in the Status register whether the pin would be asserted now, whether or not it is
    /// disabled. To be asked for before a host may read it.
    pub fn refresh_interrupt_status(&mut self, lanes: &mut impl LaneTable) {
        if self.function.config_space.has_pin() {
            let by_pin = matches!(
                self.interrupts.mechanism,
                Mechanism::Pin | Mechanism::Silent
            );
            let pending = by_pin && self.is_asserted(lanes);
            self.function.config_space.set_interrupt_status(pending);
        }
    }

    /// Whether every vector of MSI-X is masked.
    #[must_use]
    pub fn msix_masked(&self) -> bool {
        self.function.config_space.msix_masked()
    }

    /// Applies the state of registers, configuration space and features.
    fn settle(&mut self) {
        let mechanism = self.function.config_space.mechanism();
        let coalescing = Coalescing::from(self.features.interrupt_coalescing());
        let unmasked = self.registers.take_unmasked();
        let state = &mut self.interrupts;
        if unmasked || mechanism != state.mechanism {
            state.look_again = true;
            state.forget_handler();
        }
        state.plain = mechanism == Mechanism::Vectors && !coalescing.is_on();
        (state.mechanism, state.coalescing) = (mechanism, coalescing);
        if self.admin.queue.is_none() {
            state.withheld.fill(Withheld::default());
            state.due = None;
            state.forget_handler();
        }
    }

    /// Whether the host has masked the vector by INTMS (Base 2.1, 3.1.4.3).
    pub(super) fn is_masked(&self, vector: u16) -> bool {
        let bit = u32::from(vector);
        let by_msix = self.interrupts.mechanism == Mechanism::Vectors;
        !by_msix && bit < u32::BITS && self.registers.interrupt_mask() >> bit & 1 == 1
    }

    /// Counts posted entries if their vector is coalesced; returns whether the interrupt waits for
    /// more.
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

    /// Raises withheld interrupts that are due, by now or by the current features.
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
            for cqid in 1..=self.config.queues {
                let of_vector = |key: &OwnerKey| self.queues.vector_of(*key) == Some(vector);
                let Some(key) = self.queues.lane_of_cq(cqid).filter(of_vector) else {
                    continue;
                };
                let interrupt = match lanes.local(key) {
                    Some(lane) => self.delivery(lane),
                    None => self.delivery_for_visitor(vector),
                };
                interrupt.into_iter().for_each(&mut raise);
            }
        }
    }

    /// Raises the interrupts that every queue requests. Not by MSI-X, whose pending bits remember.
    fn look_again(
        &mut self,
        now: Time,
        lanes: &mut impl LaneTable,
        mut raise: impl FnMut(Interrupt),
    ) {
        if self.function.config_space.has_pin() {
            self.look_at_pin(now, lanes, &mut raise);
        }
        if matches!(self.interrupts.mechanism, Mechanism::Messages { .. }) {
            let keys = self.queues.lanes();
            let asking = keys.filter_map(|key| {
                let lane = lanes.local(key);
                // A visitor is about to come home; meanwhile one message too many does no harm.
                let asks = || lane.is_none_or(|lane| lane.is_unacknowledged());
                self.way(self.queues.vector_of(key)?, asks)
            });
            let admin = self.admin.queue.as_ref().and_then(|admin| {
                self.way(ADMIN_VECTOR, || {
                    admin.is_unacknowledged(&self.doorbells.pages)
                })
            });
            admin.into_iter().chain(asking).for_each(raise);
        }
    }

    /// Reports the level of the pin, unless the host is about to react to the previous report.
    fn look_at_pin(
        &mut self,
        now: Time,
        lanes: &mut impl LaneTable,
        raise: &mut impl FnMut(Interrupt),
    ) {
        let by_pin = self.interrupts.mechanism == Mechanism::Pin;
        let asserted = by_pin && self.is_asserted(lanes);
        let heads = self.heads(lanes);
        let state = &mut self.interrupts;
        let moved = std::mem::replace(&mut state.heads, heads) != heads;
        if !std::mem::take(&mut state.handled) && moved {
            state.acknowledged = Some(now);
        }
        state.held = None;
        if !asserted {
            return raise(Interrupt::Pin(false));
        }
        let told = state.told.filter(|told| told.heads == heads);
        let told = told.map(|told| told.at + HANDLER_NS);
        let acknowledged = state.acknowledged.map(|at| at + NEXT_QUEUE_NS);
        match told.max(acknowledged) {
            Some(until) if now < until => state.held = Some(until),
            _ => {
                state.told = Some(Told { at: now, heads });
                raise(Interrupt::Pin(true));
            }
        }
    }

    /// The sum of all heads of completion queues.
    fn heads(&self, lanes: &mut impl LaneTable) -> u64 {
        let admin = self.admin.queue.as_ref();
        let admin = admin.map_or(0, |admin| {
            admin.cq.told_head(admin.bells(&self.doorbells.pages))
        });
        self.queues.lanes().fold(u64::from(admin), |sum, key| {
            sum + lanes.local(key).map_or(0, |lane| u64::from(lane.head()))
        })
    }

    /// The interrupt for a lane's new entries.
    fn delivery(&mut self, lane: &mut Lane) -> Option<Interrupt> {
        lane.counters().interrupts.add(1);
        let vector = lane.vector()?;
        if self.interrupts.mechanism == Mechanism::Pin {
            // It is one for all queues.
            self.interrupts.recheck();
            return None;
        }
        self.way(vector, || lane.is_unacknowledged())
    }

    /// The interrupt for a visitor's entries. The host's acknowledgements are not known here.
    fn delivery_for_visitor(&mut self, vector: u16) -> Option<Interrupt> {
        if self.interrupts.mechanism == Mechanism::Pin {
            self.interrupts.recheck();
            return None;
        }
        self.way(vector, || true)
    }

    /// The interrupt for new entries of the admin queue.
    fn admin_delivery(&mut self) -> Option<Interrupt> {
        if self.interrupts.mechanism == Mechanism::Pin {
            self.interrupts.recheck();
            return None;
        }
        let admin = self.admin.queue.as_ref()?;
        self.way(ADMIN_VECTOR, || {
            admin.is_unacknowledged(&self.doorbells.pages)
        })
    }

    /// The way that a vector's interrupts go; `None` where they go nowhere now.
    fn way(&self, vector: u16, is_unacknowledged: impl FnOnce() -> bool) -> Option<Interrupt> {
        let interrupt = match self.interrupts.mechanism {
            Mechanism::Vectors => return Some(Interrupt::Vector(vector)),
            // The pin is set elsewhere, and only where it is not disabled.
            Mechanism::Pin | Mechanism::Silent => return None,
            // Fewer messages than vectors: a message carries several (PCI 3.0, 6.8.1.3, leaves the
            // folding to the function).
            Mechanism::Messages { count } => Interrupt::Message(vector % count),
        };
        (!self.is_masked(vector) && is_unacknowledged()).then_some(interrupt)
    }

    /// Whether some queue asserts the pin.
    fn is_asserted(&self, lanes: &mut impl LaneTable) -> bool {
        let admin = self.admin.queue.as_ref().is_some_and(|admin| {
            !self.is_masked(ADMIN_VECTOR) && admin.is_unacknowledged(&self.doorbells.pages)
        });
        // Each is looked at, as a look asks the host to ring.
        self.queues.lanes().fold(admin, |asserted, key| {
            let of_lane = lanes.local(key).is_some_and(|lane| {
                let masked = lane.vector().is_some_and(|vector| self.is_masked(vector));
                lane.asserts_pin() && !masked
            });
            asserted | of_lane
        })
    }
}
