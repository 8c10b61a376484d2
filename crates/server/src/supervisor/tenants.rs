//! Tenants: after each change, every reactor gets the configured tenants and assignments.

use std::sync::Arc;

use api::config::tenant::{Tenant, default_weight};
use api::{Refusal, TenantChange, TenantStatus, config};
use engine::tenants::{Budget, NamespaceKey, TenantFigures, TenantId};
use engine::{ControllerSlot, EngineId};
use machine::clock::Clock;
use port::ChannelId;
use reactor::TenantNews;

use super::State;
use crate::reconcile::inventory::find;

/// State of tenants as sent to reactors.
#[derive(Debug, Default)]
pub(super) struct SentTenants {
    /// By number; a tenant keeps its number as long as it exists.
    tenants: Vec<Option<(String, Arc<Budget>)>>,
    namespaces: Vec<NamespaceKey>,
    controllers: Vec<(EngineId, ControllerSlot)>,
}

impl SentTenants {
    fn number_of(&self, name: &str) -> Option<usize> {
        let is_its = |one: &Option<(String, _)>| one.as_ref().is_some_and(|(its, _)| its == name);
        self.tenants.iter().position(is_its)
    }

    fn id_of(&self, name: Option<&String>) -> Option<TenantId> {
        let number = self.number_of(name?)?;
        u16::try_from(number).ok().map(TenantId)
    }

    /// A tenant's number and budget. A new tenant gets the lowest free number.
    fn place(&mut self, name: &str) -> (usize, Arc<Budget>) {
        let free = || self.tenants.iter().position(Option::is_none);
        let number = self.number_of(name).or_else(free);
        let number = number.unwrap_or_else(|| {
            self.tenants.push(None);
            self.tenants.len() - 1
        });
        let place = &mut self.tenants[number];
        let (_, budget) = place.get_or_insert_with(|| (name.to_owned(), Arc::default()));
        (number, budget.clone())
    }
}

impl State {
    /// Sends every reactor all tenants and assignments. Does nothing without tenants.
    pub(super) fn tell_tenants(&mut self) -> anyhow::Result<()> {
        if self.config.tenant.is_empty() && self.tenants.tenants.is_empty() {
            return Ok(());
        }
        let mut news = self.news_of_tenants();
        // Removed assignments go first: their keys may have been reused.
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
            let tenant = self.tenants.id_of(namespace.tenant.as_ref());
            news.push(TenantNews::Namespace(key, tenant, weight));
            self.tenants.namespaces.push(key);
        }
        for served in &self.controllers {
            let mut configs = self.config.controller.iter();
            let config = configs.find(|config| config.name == served.name);
            let tenant = config.and_then(|config| self.tenants.id_of(config.tenant.as_ref()));
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

    /// Updates for deleted tenants, then for existing ones.
    fn news_of_tenants(&mut self) -> Vec<TenantNews> {
        let mut news = Vec::new();
        let (told, tenants) = (&mut self.tenants, &self.config.tenant);
        let id = |number: usize| TenantId(u16::try_from(number).expect("1024 at most"));
        for (number, place) in told.tenants.iter_mut().enumerate() {
            let is_there = |(name, _): &mut (String, _)| tenants.iter().any(|t| t.name == *name);
            if place.is_some() && place.take_if(|one| !is_there(one)).is_some() {
                news.push(TenantNews::Gone(id(number)));
            }
        }
        let now = Clock::of_process().now();
        for tenant in tenants {
            let (number, budget) = told.place(&tenant.name);
            let (commands, bytes) = tenant.caps();
            budget.set(commands, bytes, now);
            news.push(TenantNews::Tenant(id(number), tenant.spec(), budget));
        }
        news
    }

    /// The same, with the error that a client gets.
    pub(super) fn tell_of_tenants(&mut self) -> Result<(), Refusal> {
        self.tell_tenants().map_err(|error| Refusal::failed(&error))
    }

    /// The channel identifier of a medium, the same on every reactor.
    fn channel_of(&self, medium: &str) -> ChannelId {
        let mut media = self.media.iter();
        let open = media.find(|open| open.name == medium);
        open.map_or(ChannelId(u16::MAX), |open| open.channel)
    }

    /// Status of all tenants.
    pub(super) fn tenant_statuses(&self) -> Vec<TenantStatus> {
        let status = |config: &config::tenant::Tenant| {
            let number = self.tenants.number_of(&config.name)?;
            let (_, budget) = self.tenants.tenants[number].as_ref()?;
            let TenantFigures {
                commands,
                bytes,
                capped,
                held,
                in_flight,
            } = budget.figures();
            Some(TenantStatus {
                config: config.clone(),
                commands,
                bytes,
                capped,
                held,
                at_media: in_flight,
            })
        };
        self.config.tenant.iter().filter_map(status).collect()
    }

    /// Deletes a tenant that no object names.
    pub(super) fn delete_tenant(&mut self, name: &str) -> Result<(), Refusal> {
        let mut tenants = self.config.tenant.iter();
        let at = tenants.position(|tenant| tenant.name == name);
        let at = at.ok_or_else(|| Refusal::not_found("tenant", name))?;
        let is_its = |tenant: &Option<String>| tenant.as_deref() == Some(name);
        let mut controllers = self.config.controller.iter();
        if let Some(user) = controllers.find(|c| is_its(&c.tenant)) {
            let user = &user.name;
            return Err(Refusal::conflict(format!(
                "tenant `{name}` is used by controller `{user}`: delete that first"
            )));
        }
        let mut namespaces = self.config.namespace.iter();
        if let Some(user) = namespaces.find(|n| is_its(&n.tenant)) {
            let user = &user.name;
            return Err(Refusal::conflict(format!(
                "tenant `{name}` is used by namespace `{user}`: delete that first"
            )));
        }
        self.config.tenant.remove(at);
        Ok(())
    }

    /// A tenant with changes of its keys.
    pub(super) fn tenant_with(&self, name: &str, change: &TenantChange) -> Result<Tenant, Refusal> {
        let tenant = find(&self.config.tenant, name);
        let tenant = tenant.ok_or_else(|| Refusal::not_found("tenant", name))?;
        let changes = change.changes.iter();
        let changes = changes.map(|(key, text)| (key.clone(), text.as_str().into()));
        api::changed(tenant, &changes.collect(), "/changes")
    }
}
