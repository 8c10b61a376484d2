//! The gate of one lane: how it asks for admission, and the cleanup of its commands when it ends.

use controller::gate::{FlowId, Gate, Pass, Work};
use port::namespace::Namespace;
use port::time::Time;

use super::{NamespaceKey, TenantId, Tenants};

/// Commands that media had of lanes when these ended.
#[derive(Debug, Default)]
pub(crate) struct Left(pub(super) Vec<(FlowId, Work, Time)>);

impl Gate for Left {
    const HOLDS: bool = true;

    fn pass(&mut self, _: &Namespace) -> Pass {
        Pass::Free
    }

    fn pass_again(&mut self, _: FlowId) -> bool {
        false
    }

    fn held(&mut self, _: FlowId) {}

    fn issued(&mut self, _: FlowId, _: Work, _: bool) -> Time {
        Time(0)
    }

    fn ended(&mut self, flow: FlowId, work: Work, since: Time) {
        self.0.push((flow, work, since));
    }
}

/// The gate of one lane.
pub(crate) struct TenantGate<'t> {
    pub(super) tenants: &'t mut Tenants,
    pub(super) tenant: Option<TenantId>,
}

impl Gate for TenantGate<'_> {
    const HOLDS: bool = true;

    fn pass(&mut self, namespace: &Namespace) -> Pass {
        let key = NamespaceKey {
            channel: namespace.channel,
            start: namespace.start,
        };
        match self.tenants.flow_of(self.tenant, key) {
            None => Pass::Free,
            Some(flow) if self.tenants.admit(flow) => Pass::Go(flow),
            Some(flow) => Pass::Wait(flow),
        }
    }

    fn pass_again(&mut self, flow: FlowId) -> bool {
        self.tenants.admit(flow)
    }

    fn held(&mut self, flow: FlowId) {
        self.tenants.held(flow);
    }

    fn issued(&mut self, flow: FlowId, work: Work, pending: bool) -> Time {
        self.tenants.issued(flow, work, pending)
    }

    fn ended(&mut self, flow: FlowId, work: Work, since: Time) {
        self.tenants.ended(flow, work, since);
    }
}
