//! Tenants: who shares which media, and how much of them each may use.
//!
//! A *tenant* is a name that controllers and namespaces carry. Commands of a namespace with a
//! tenant are that tenant's; all others of a controller are the controller's tenant's. Commands
//! with neither are not limited. A command that may not go waits in its lane
//! ([`controller::gate`]). This module decides which ones may go:
//! 1. within the tenant's caps of commands and bytes (`bucket`), on all reactors together;
//! 2. within its limit of commands in flight;
//! 3. of the latency class before all others, as long as it is ahead of its fair share by no more
//!    than [`AHEAD`];
//! 4. while the medium has no more in flight than keeps it busy (`window`);
//! 5. in the order of fair queueing by weight, of the tenants that share the medium and then of a
//!    tenant's namespaces on it (`claim`).
//!
//! Points 2 to 5 are each reactor's own: reactors share a medium as its channels do. Every setting
//! can change at any time.
//!
//! Invariants:
//! - An admitted command is charged to exactly one flow, and a flow's commands in a medium are
//!   those that were admitted and have not ended.
//! - A waiting command is admitted when no other flow wants the medium, unless its own tenant's
//!   caps or limit forbid it.
//! - None of this runs, or costs anything, before the first tenant exists.

mod bucket;
mod claim;
mod figures;
mod gate;
mod spec;
mod window;

use std::sync::Arc;

use controller::gate::{FlowId, Work};
use port::ChannelId;
use port::time::Time;

pub use self::bucket::Cap;
use self::bucket::Purse;
use self::claim::{Claim, GRACE_NS, Instant, stand};
use self::figures::Counted;
pub(crate) use self::gate::{Left, TenantGate};
pub use self::spec::{Budget, Class, NamespaceKey, TenantFigures, TenantId, TenantSpec};
use self::window::{Window, cost};

/// How far ahead of others with equal demand a tenant may be, if a medium completes commands at
/// once: a batch.
const QUANTUM: u64 = 256 << 10;
/// And where it takes its time.
const QUANTUM_LEAST: u64 = 8 << 10;
/// How far ahead of the others a tenant of the latency class may be and still has priority.
const AHEAD: u64 = 4 << 20;
/// A tenant with a command on a medium within this time counts as using it.
const USES_NS: u64 = 10_000_000;
/// Maximum number of a tenant's namespaces on a medium that are distinguished. A host that creates
/// and deletes namespaces would otherwise add new ones without end.
const FLOWS: usize = 64;
/// Default goal, as a multiple of the minimum latency of its commands.
const GOAL_TIMES: u64 = 2;

/// A tenant as an engine knows it.
#[derive(Debug)]
struct Tenant {
    spec: TenantSpec,
    budget: Arc<Budget>,
    commands: Purse,
    bytes: Purse,
    counted: Counted,
}

impl Tenant {
    /// Whether its caps are exhausted.
    fn is_dry(&self) -> bool {
        !(self.commands.has_some() && self.bytes.has_some())
    }

    fn goes_first(&self) -> bool {
        matches!(self.spec.class, Class::Latency { .. })
    }
}

/// A tenant on a medium.
#[derive(Debug)]
struct Share {
    tenant: TenantId,
    medium: usize,
    claim: Claim,
    flows: Vec<usize>,
    /// The tag that all of its namespaces have passed.
    reached: u128,
}

impl Share {
    fn uses(&self, now: Time) -> bool {
        let lately = |served| now.since(served) <= USES_NS;
        self.claim.in_flight > 0 || self.claim.served.is_some_and(lately)
    }
}

/// A medium that tenants share.
#[derive(Debug)]
struct Medium {
    channel: ChannelId,
    shares: Vec<usize>,
    reached: u128,
    /// Cost in flight of tenants that are not of the latency class.
    cost: u64,
    window: Window,
    /// Several tenants use it; one of them is of the class `latency`.
    shared: bool,
    beside_latency: bool,
}

/// A tenant's commands to one namespace.
#[derive(Debug)]
struct Flow {
    share: usize,
    start: u64,
    claim: Claim,
    /// Since the last refusal for its turn, for the class `latency`.
    went_first: bool,
}

/// The configured tenant of a namespace.
#[derive(Clone, Copy, Debug)]
struct Assigned {
    namespace: NamespaceKey,
    tenant: Option<TenantId>,
    weight: u32,
}

/// All tenants of an engine.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    instant: Option<Instant>,
    tenants: Vec<Option<Tenant>>,
    assigned: Vec<Assigned>,
    media: Vec<Medium>,
    shares: Vec<Share>,
    flows: Vec<Flow>,
    /// The flow that was asked for last.
    last: Option<(Option<TenantId>, NamespaceKey, Option<FlowId>)>,
    /// When something that waits may go, though nothing happens.
    retry_at: Option<Time>,
    /// The last refusal was for its tenant's caps.
    refused_by_cap: bool,
}

/// Why a command does not go.
enum Wait {
    /// Its tenant has nothing left until then.
    Capped(Time),
    /// Its tenant has as much in flight as it may.
    Full,
    /// It is not its turn. Maybe then, though nothing happens.
    Turn(Option<Time>),
}

impl Tenants {
    fn now(&self) -> Instant {
        self.instant.unwrap_or(Instant {
            turn: 0,
            now: Time(0),
        })
    }

    fn tenant(&self, id: TenantId) -> Option<&Tenant> {
        self.tenants.get(usize::from(id.0))?.as_ref()
    }

    fn tenant_mut(&mut self, id: TenantId) -> Option<&mut Tenant> {
        self.tenants.get_mut(usize::from(id.0))?.as_mut()
    }

    /// A turn begins.
    pub(crate) fn begin_turn(&mut self, now: Time, left: &mut Left) {
        let turn = self.now().turn + 1;
        self.instant = Some(Instant { turn, now });
        self.retry_at = None;
        for tenant in self.tenants.iter_mut().flatten() {
            tenant.commands.look(&tenant.budget.commands, now);
            tenant.bytes.look(&tenant.budget.bytes, now);
        }
        for (flow, work, since) in left.0.drain(..) {
            self.ended(flow, work, since);
        }
        for at in 0..self.media.len() {
            self.look_at_medium(at, now);
        }
    }

    /// Whether several tenants use a medium, and whether one is of the latency class.
    fn look_at_medium(&mut self, at: usize, now: Time) {
        let (mut users, mut beside_latency) = (0, false);
        for share in &self.media[at].shares {
            let share = &self.shares[*share];
            if share.uses(now) {
                users += 1;
                beside_latency |= self.tenant(share.tenant).is_some_and(Tenant::goes_first);
            }
        }
        let medium = &mut self.media[at];
        let shared = users > 1;
        if shared && !medium.shared {
            medium.window.begin(now);
        }
        (medium.shared, medium.beside_latency) = (shared, beside_latency);
        if shared {
            medium.window.turn(now);
        }
    }

    /// A turn ends.
    pub(crate) fn end_turn(&mut self) {
        for tenant in self.tenants.iter_mut().flatten() {
            tenant.commands.tell(&tenant.budget.commands);
            tenant.bytes.tell(&tenant.budget.bytes);
            tenant.counted.tell(&tenant.budget.had);
        }
    }

    /// When something that waits may go, though nothing happens until then.
    pub(crate) fn retry_at(&self) -> Option<Time> {
        self.retry_at
    }

    /// The gate of a lane whose controller has that tenant.
    pub(crate) fn gate(&mut self, tenant: Option<TenantId>) -> TenantGate<'_> {
        TenantGate {
            tenants: self,
            tenant,
        }
    }

    pub(crate) fn set(&mut self, id: TenantId, spec: TenantSpec, budget: Arc<Budget>) {
        let index = usize::from(id.0);
        if self.tenants.len() <= index {
            self.tenants.resize_with(index + 1, || None);
        }
        match &mut self.tenants[index] {
            Some(tenant) => (tenant.spec, tenant.budget) = (spec, budget),
            none => {
                *none = Some(Tenant {
                    spec,
                    budget,
                    commands: Purse::default(),
                    bytes: Purse::default(),
                    counted: Counted::default(),
                });
            }
        }
        for share in self.shares.iter_mut().filter(|share| share.tenant == id) {
            share.claim.set_weight(spec.weight);
        }
        self.last = None;
    }

    pub(crate) fn remove(&mut self, id: TenantId) {
        if let Some(tenant) = self.tenants.get_mut(usize::from(id.0)) {
            *tenant = None;
        }
        self.last = None;
    }

    pub(crate) fn assign(
        &mut self,
        namespace: NamespaceKey,
        tenant: Option<TenantId>,
        weight: u32,
    ) {
        self.assigned.retain(|other| other.namespace != namespace);
        if tenant.is_some() || weight != TenantSpec::default().weight {
            self.assigned.push(Assigned {
                namespace,
                tenant,
                weight,
            });
        }
        for flow in &mut self.flows {
            let medium = self.shares[flow.share].medium;
            if flow.start == namespace.start && self.media[medium].channel == namespace.channel {
                flow.claim.set_weight(weight);
            }
        }
        self.last = None;
    }

    /// The flow of commands to a namespace, of a lane whose controller has that tenant.
    fn flow_of(&mut self, tenant: Option<TenantId>, namespace: NamespaceKey) -> Option<FlowId> {
        if let Some((of, to, flow)) = self.last
            && (of, to) == (tenant, namespace)
        {
            return flow;
        }
        let assigned = self.assigned.iter().find(|one| one.namespace == namespace);
        let owner = assigned.and_then(|one| one.tenant).or(tenant);
        let owner = owner.filter(|id| self.tenant(*id).is_some());
        let weight = assigned.map_or(TenantSpec::default().weight, |one| one.weight);
        let flow = owner.and_then(|owner| self.place_flow(owner, namespace, weight));
        self.last = Some((tenant, namespace, flow));
        flow
    }

    /// The flow of a tenant's commands to a namespace, which is made where there is none.
    /// `None` where there are more than can be numbered.
    fn place_flow(
        &mut self,
        tenant: TenantId,
        namespace: NamespaceKey,
        weight: u32,
    ) -> Option<FlowId> {
        let NamespaceKey { channel, start } = namespace;
        let medium = self.media.iter().position(|one| one.channel == channel);
        let medium = medium.unwrap_or_else(|| {
            self.media.push(Medium {
                channel,
                shares: Vec::new(),
                reached: 0,
                cost: 0,
                window: Window::new(),
                shared: false,
                beside_latency: false,
            });
            self.media.len() - 1
        });
        let shares = self.media[medium].shares.iter().copied();
        let share = shares.clone().find(|at| self.shares[*at].tenant == tenant);
        let share = share.unwrap_or_else(|| {
            let weight = self.tenant(tenant).map_or(1, |one| one.spec.weight);
            self.shares.push(Share {
                tenant,
                medium,
                claim: Claim::new(weight),
                flows: Vec::new(),
                reached: 0,
            });
            self.media[medium].shares.push(self.shares.len() - 1);
            self.shares.len() - 1
        });
        let flows = &self.shares[share].flows;
        if let Some(flow) = flows.iter().find(|at| self.flows[**at].start == start) {
            return u16::try_from(*flow).ok().map(FlowId);
        }
        let flow = Flow {
            share,
            start,
            claim: Claim::new(weight),
            went_first: false,
        };
        if flows.len() < FLOWS {
            // A flow without a number goes uncounted: with 64 namespaces each, a thousand tenants
            // have one.
            if self.flows.len() >= FlowId::LIMIT {
                return None;
            }
            let id = self.flows.len() as u16;
            self.flows.push(flow);
            self.shares[share].flows.push(id.into());
            return Some(FlowId(id));
        }
        // Commands that still wait under this number are the same tenant's on the same medium.
        let idle = flows
            .iter()
            .find(|at| self.flows[**at].claim.in_flight == 0);
        let at = *idle.unwrap_or(&flows[0]);
        if idle.is_some() {
            self.flows[at] = flow;
        }
        u16::try_from(at).ok().map(FlowId)
    }

    /// Whether a command of that flow may go now.
    fn admit(&mut self, flow: FlowId) -> bool {
        let instant = self.now();
        let (index, share) = match self.flows.get(usize::from(flow.0)) {
            Some(flow_of) => (usize::from(flow.0), flow_of.share),
            None => return true,
        };
        let wait = match self.why_wait(index, share, instant) {
            None => return true,
            Some(wait) => wait,
        };
        let retry = match wait {
            Wait::Capped(at) => Some(at),
            Wait::Full => None,
            Wait::Turn(at) => {
                self.shares[share].claim.wait(instant);
                self.flows[index].claim.wait(instant);
                at
            }
        };
        self.refused_by_cap = matches!(wait, Wait::Capped(_));
        if let Some(at) = retry {
            self.retry_at = Some(self.retry_at.map_or(at, |other| other.min(at)));
        }
        false
    }

    /// A command that was just refused waits from now on.
    fn held(&mut self, flow: FlowId) {
        let by_cap = self.refused_by_cap;
        let Some(flow) = self.flows.get(usize::from(flow.0)) else {
            return;
        };
        let tenant = self.shares[flow.share].tenant;
        if let Some(tenant) = self.tenant_mut(tenant) {
            tenant.counted.waits(by_cap);
        }
    }

    fn why_wait(&mut self, flow: usize, share: usize, instant: Instant) -> Option<Wait> {
        let tenant = self.tenant(self.shares[share].tenant)?;
        if tenant.is_dry() {
            let at = tenant.commands.ready_at().max(tenant.bytes.ready_at());
            return Some(Wait::Capped(at.max(instant.now + 1)));
        }
        let (most, goes_first) = (tenant.spec.in_flight, tenant.goes_first());
        if most.is_some_and(|most| tenant.counted.in_flight() >= u64::from(most.max(1))) {
            return Some(Wait::Full);
        }
        let medium = self.shares[share].medium;
        if self.media[medium].shares.len() > 1 {
            let standing = self.stand_on_medium(share, medium, instant);
            self.flows[flow].went_first = goes_first && standing.ahead <= AHEAD;
            if !self.flows[flow].went_first {
                let medium = &self.media[medium];
                let width = medium.window.width(instant.now, medium.beside_latency);
                if medium.shared && medium.cost >= width {
                    return Some(Wait::Turn(None));
                }
                let quantum = match self.shares[share].claim.in_flight {
                    0 if medium.cost == 0 => QUANTUM,
                    _ => (width / 8).clamp(QUANTUM_LEAST, QUANTUM),
                };
                if standing.ahead > quantum {
                    return Some(Wait::Turn(Some(retry(standing.expected, instant))));
                }
            }
        }
        if self.shares[share].flows.len() > 1 {
            let standing = self.stand_in_share(flow, share, instant);
            if standing.ahead > QUANTUM {
                return Some(Wait::Turn(Some(retry(standing.expected, instant))));
            }
        }
        None
    }

    fn stand_on_medium(
        &mut self,
        share: usize,
        medium: usize,
        instant: Instant,
    ) -> claim::Standing {
        let mut claim = self.shares[share].claim;
        let mut reached = self.media[medium].reached;
        let others = self.media[medium].shares.iter();
        let others = others
            .filter(|other| **other != share)
            .map(|other| &self.shares[*other]);
        let can_go = |other: &&Share| self.tenant(other.tenant).is_some_and(|one| !one.is_dry());
        let claims = others.filter(can_go).map(|other| &other.claim);
        let standing = stand(&mut claim, claims, &mut reached, instant);
        self.shares[share].claim = claim;
        self.media[medium].reached = reached;
        standing
    }

    fn stand_in_share(&mut self, flow: usize, share: usize, instant: Instant) -> claim::Standing {
        let mut claim = self.flows[flow].claim;
        let mut reached = self.shares[share].reached;
        let others = self.shares[share].flows.iter();
        let claims = others
            .filter(|other| **other != flow)
            .map(|other| &self.flows[*other].claim);
        let standing = stand(&mut claim, claims, &mut reached, instant);
        self.flows[flow].claim = claim;
        self.shares[share].reached = reached;
        standing
    }

    fn issued(&mut self, flow: FlowId, work: Work, pending: bool) -> Time {
        let now = self.now().now;
        let Some(flow) = self.flows.get_mut(usize::from(flow.0)) else {
            return now;
        };
        let cost = cost(work);
        let share = &mut self.shares[flow.share];
        for claim in [&mut flow.claim, &mut share.claim] {
            claim.pay(cost);
            claim.served = Some(now);
            claim.in_flight += u32::from(pending);
        }
        let (id, medium) = (share.tenant, share.medium);
        let goes_first = self.tenant(id).is_some_and(Tenant::goes_first);
        if pending && !goes_first {
            self.media[medium].cost += cost;
        }
        if let Some(tenant) = self.tenant_mut(id) {
            tenant.commands.spend(1);
            tenant.bytes.spend(work.bytes.into());
            tenant.counted.went(work.bytes, pending);
        }
        now
    }

    fn ended(&mut self, flow: FlowId, work: Work, since: Time) {
        let now = self.now().now;
        let Some(flow) = self.flows.get_mut(usize::from(flow.0)) else {
            return;
        };
        let share = &mut self.shares[flow.share];
        for claim in [&mut flow.claim, &mut share.claim] {
            claim.in_flight = claim.in_flight.saturating_sub(1);
            claim.served = Some(now);
        }
        let went_first = flow.went_first;
        let (id, medium) = (share.tenant, share.medium);
        let class = self.tenant_mut(id).map(|tenant| {
            tenant.counted.ended();
            tenant.spec.class
        });
        let medium = &mut self.media[medium];
        let least_ns = medium.window.ended(work, since, now);
        match class {
            Some(Class::Latency { goal_ns }) => {
                let goal_ns = goal_ns.unwrap_or(least_ns.saturating_mul(GOAL_TIMES));
                if medium.shared && went_first {
                    medium.window.heard(now.since(since) > goal_ns);
                }
            }
            _ => medium.cost = medium.cost.saturating_sub(cost(work)),
        }
    }
}

/// When to ask again of a command that is not its turn.
fn retry(expected: bool, instant: Instant) -> Time {
    instant.now + if expected { GRACE_NS } else { 1 }
}

#[cfg(test)]
mod tests;
