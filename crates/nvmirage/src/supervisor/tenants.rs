//! Tenants: what reactors know of them is what the configuration says, after each change of it.

use std::sync::Arc;

use controller::port::ChannelId;
use engine::{
    ControllerSlot, Engine, EngineId,
    tenants::{Budget, NamespaceKey, TenantId},
};

use super::{State, refuse_problems};
use crate::{clock::Clock, config::tenant::default_weight, control::Refusal};

/// What reactors were told.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// By the place of the tenant in the configuration.
    budgets: Vec<Arc<Budget>>,
    namespaces: Vec<NamespaceKey>,
    controllers: Vec<(EngineId, ControllerSlot)>,
}

/// What a reactor is told.
#[derive(Clone, Debug)]
pub(crate) enum TenantNews {
    /// There is a tenant, or it is another one now.
    Tenant(TenantId, engine::tenants::TenantSpec, Arc<Budget>),
    /// Whose a namespace is, and its weight beside others.
    Namespace(NamespaceKey, Option<TenantId>, u32),
    /// Whose a controller is.
    Controller(EngineId, ControllerSlot, Option<TenantId>),
}

impl TenantNews {
    /// Tells an engine.
    pub(crate) fn tell<C: controller::port::Channel>(self, engine: &mut Engine<C>) {
        match self {
            TenantNews::Tenant(id, spec, budget) => engine.set_tenant(id, spec, budget),
            TenantNews::Namespace(key, tenant, weight) => {
                engine.assign_namespace(key, tenant, weight);
            }
            TenantNews::Controller(home, slot, tenant) => {
                engine.assign_controller(home, slot, tenant);
            }
        }
    }
}

impl State {
    /// Tells every reactor of all tenants, and of what is theirs. Nothing where there are none.
    pub(super) fn tell_tenants(&mut self) -> anyhow::Result<()> {
        let tenants = &self.config.tenant;
        if tenants.is_empty() {
            return Ok(());
        }
        let id_of = |name: &Option<String>| {
            let at = tenants
                .iter()
                .position(|tenant| Some(&tenant.name) == name.as_ref())?;
            u16::try_from(at).ok().map(TenantId)
        };
        let mut news = Vec::new();
        let now = Clock::of_process().now();
        for (at, tenant) in (0..).zip(tenants) {
            if self.tenants.budgets.len() <= usize::from(at) {
                self.tenants.budgets.push(Arc::default());
            }
            let budget = &self.tenants.budgets[usize::from(at)];
            let (commands, bytes) = tenant.caps();
            budget.set(commands, bytes, now);
            let spec = tenant.spec();
            news.push(TenantNews::Tenant(TenantId(at), spec, budget.clone()));
        }
        // What is somebody's no longer is told first: others may have its place by now.
        let gone = self.tenants.namespaces.drain(..);
        news.extend(gone.map(|key| TenantNews::Namespace(key, None, default_weight())));
        let gone = self.tenants.controllers.drain(..);
        news.extend(gone.map(|(home, slot)| TenantNews::Controller(home, slot, None)));
        for namespace in &self.config.namespace {
            if namespace.tenant.is_none() && namespace.weight.is_none() {
                continue;
            }
            let key = NamespaceKey {
                channel: self.channel_of(&namespace.media),
                start: self.extent(namespace)?.start.0,
            };
            let weight = namespace.weight.unwrap_or_else(default_weight);
            news.push(TenantNews::Namespace(key, id_of(&namespace.tenant), weight));
            self.tenants.namespaces.push(key);
        }
        for served in &self.controllers {
            let mut configs = self.config.controller.iter();
            let config = configs.find(|config| config.name == served.name);
            let tenant = config.and_then(|config| id_of(&config.tenant));
            if tenant.is_some() {
                let home = EngineId(served.reactor as u16);
                news.push(TenantNews::Controller(home, served.slot, tenant));
                self.tenants.controllers.push((home, served.slot));
            }
        }
        for reactor in &self.reactors {
            reactor.tell_tenants(news.clone())?;
        }
        Ok(())
    }

    /// The same, for who asked for a change.
    pub(super) fn tell_of_tenants(&mut self) -> Result<(), Refusal> {
        self.tell_tenants().map_err(|error| Refusal::failed(&error))
    }

    /// The channel that a medium has on every reactor.
    fn channel_of(&self, medium: &str) -> ChannelId {
        let mut media = self.media.iter();
        let open = media.find(|open| open.name == medium);
        open.map_or(ChannelId(u16::MAX), |open| open.channel)
    }

    /// Changes a tenant while it is served.
    pub(super) fn change_tenant(
        &mut self,
        name: &str,
        changes: &[(String, String)],
    ) -> Result<(), Refusal> {
        let mut tenants = self.config.tenant.iter();
        let Some(at) = tenants.position(|tenant| tenant.name == name) else {
            return Err(Refusal::not_found("tenant", name));
        };
        let changed = self.config.tenant[at].changed(changes);
        let mut next = self.config.clone();
        next.tenant[at] = changed.map_err(Refusal::invalid)?;
        refuse_problems(&next)?;
        self.config = next;
        self.tell_of_tenants()
    }
}
