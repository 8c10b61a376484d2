//! The hosts of an entrance: their controllers, how many may be there, and what they have counted.

use std::io;
use std::sync::Arc;

use controller::ControllerConfig;
use controller::counters::{Counted, Past};
use engine::tenants::TenantId;
use engine::{ControllerSlot, SubsystemSlot};
use port::time::Time;

use crate::answer::Answer;
use crate::hosted::places::Places;
use crate::network::NetworkCounts;
use crate::presence::Presence;

/// Hosts of which the log tells in each [`TOLD_NS`]: hosts that connect again and again do not fill
/// it.
const TOLD_MAX: u32 = 30;
const TOLD_NS: u64 = 60_000_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Roster {
    name: String,
    /// Configuration of the hosts' controllers; each has another name.
    template: ControllerConfig,
    /// Controllers made so far, which their names count.
    made: u64,
    tenant: Option<TenantId>,
    subsystem: SubsystemSlot,
    /// The controllers of its hosts.
    places: Places,
    /// Of hosts that have left, and of connections that became none.
    counts: NetworkCounts,
    /// Counts of the queues of hosts that have left.
    past: Arc<Past>,
    presence: Arc<Presence>,
    /// A failure to accept was logged.
    logged: bool,
    /// Hosts that attached since then.
    recent: (Time, u32),
    /// Where to report the end of the removal.
    removal: Option<Answer<()>>,
}

impl Roster {
    /// No host; `hosts`: the maximum number of hosts.
    pub(in crate::hosted) fn new(
        template: ControllerConfig,
        subsystem: SubsystemSlot,
        hosts: usize,
        presence: Arc<Presence>,
    ) -> Self {
        Self {
            name: template.name.clone(),
            template,
            made: 0,
            tenant: None,
            subsystem,
            places: Places::new(hosts),
            counts: NetworkCounts::default(),
            past: Arc::default(),
            presence,
            logged: false,
            recent: (Time(0), 0),
            removal: None,
        }
    }

    /// Name of the entrance.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A host attaches. Whether the log tells of it.
    pub(crate) fn tells_of_host(&mut self, now: Time) -> bool {
        let (since, count) = &mut self.recent;
        if now.since(*since) >= TOLD_NS {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        if *count == TOLD_MAX + 1 {
            tracing::warn!(
                controller = self.name,
                "more than {TOLD_MAX} hosts attached within a minute: the log leaves others out until the minute is over"
            );
        }
        *count <= TOLD_MAX
    }

    /// A connection could not be accepted. The log has it once, until a host has come.
    pub(super) fn cannot_accept(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.logged, true) {
            tracing::error!(controller = self.name, "cannot accept a host: {error}");
        }
    }

    /// Whether there is room for one more host, which is to prove who it is or not.
    pub(crate) fn has_room(&self, is_asked: bool) -> bool {
        self.removal.is_none() && self.places.has_room(is_asked)
    }

    /// Hosts that may still come.
    pub(crate) fn free(&self) -> usize {
        if self.removal.is_none() {
            self.places.free()
        } else {
            0
        }
    }

    /// The configuration of the next host's controller.
    pub(crate) fn next_controller(&mut self) -> ControllerConfig {
        self.made += 1;
        ControllerConfig {
            name: format!("{}/{}", self.name, self.made),
            ..self.template.clone()
        }
    }

    /// Serial number of its hosts' controllers.
    pub(crate) fn serial(&self) -> &str {
        &self.template.serial
    }

    /// The tenant that the commands of its hosts count for.
    pub(crate) fn tenant(&self) -> Option<TenantId> {
        self.tenant
    }

    pub(crate) fn set_tenant(&mut self, tenant: Option<TenantId>) {
        self.tenant = tenant;
    }

    /// The subsystem of all of them.
    pub(crate) fn subsystem(&self) -> SubsystemSlot {
        self.subsystem
    }

    /// The controllers of its hosts, and of those that have proved nothing yet.
    pub(crate) fn associations(&self) -> &[ControllerSlot] {
        self.places.all()
    }

    /// Counts of hosts that have left and of refused connections.
    pub(crate) fn counts(&self) -> &NetworkCounts {
        &self.counts
    }

    pub(crate) fn counts_mut(&mut self) -> &mut NetworkCounts {
        &mut self.counts
    }

    /// Counts of the queues of hosts that have left.
    pub(crate) fn past(&self) -> &Arc<Past> {
        &self.past
    }

    /// One has come that is no host yet.
    pub(crate) fn associated(&mut self, slot: ControllerSlot) {
        self.places.add(slot);
        self.logged = false;
    }

    /// It has proved what it had to: it is a host. False where the hosts are too many by now.
    pub(crate) fn admit(&mut self, slot: ControllerSlot) -> bool {
        let is_admitted = self.places.admit(slot);
        self.counts.hosts += u64::from(is_admitted);
        is_admitted
    }

    /// A host has left, and its controller is soon gone: another one may come.
    pub(crate) fn vacate(&mut self, slot: ControllerSlot) {
        self.places.vacate(slot);
    }

    /// A host has left, and its controller is gone.
    pub(crate) fn dissociated(&mut self, slot: ControllerSlot, counted: &Counted) {
        self.counts.moved.add_moved(&counted.health);
        self.past = Arc::new(self.past.with(counted));
        self.places.remove(slot);
    }

    /// Where any thread sees its hosts.
    pub(crate) fn presence(&self) -> &Arc<Presence> {
        &self.presence
    }

    /// Begins the removal. False where it has begun before.
    pub(in crate::hosted) fn remove(&mut self, answer: Answer<()>) -> bool {
        self.removal.replace(answer).is_none()
    }

    /// Whether its hosts leave for the removal.
    pub(crate) fn is_leaving(&self) -> bool {
        self.removal.is_some()
    }

    /// Whether the removal is complete: the hosts' controllers are gone.
    pub(crate) fn is_removed(&self) -> bool {
        self.removal.is_some() && self.places.all().is_empty()
    }

    /// Reports the end of the removal.
    pub(in crate::hosted) fn finish(self) {
        if let Some(answer) = self.removal {
            answer.send(());
        }
    }
}
