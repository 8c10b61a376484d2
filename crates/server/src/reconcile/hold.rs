//! Deferred changes: those that would take a drive from a host or data from memory, and all changes
//! that depend on them.

use std::collections::BTreeMap;

use api::config::{Config, Controller, Medium, Namespace};

use super::Actual;
use super::id::{ControllerId, Identified, MediumId, NamespaceId, ObjectId, TenantId};
use super::inventory::{Objects, find};
use super::outcome::{Growth, Outcome, growth, wide, wide_by};

/// Next step for an attached host.
pub(crate) const CONSENT: &str =
    "end its host first, or let it lose its drive with detach_hosts=true";

struct Holding<'a> {
    served: &'a Actual,
    /// The wanted configuration; parts that cannot change at run time are as served.
    target: Config,
    outcomes: &'a BTreeMap<ObjectId, Outcome>,
    consent: bool,
    held: BTreeMap<ObjectId, String>,
}

/// All deferred objects that would change, each with the reason. Objects in `before` were deferred
/// already: they stay deferred even if only the deferral of others would recreate them.
pub(super) fn all(
    served: &Actual,
    wanted: &Objects,
    outcomes: &BTreeMap<ObjectId, Outcome>,
    before: &BTreeMap<ObjectId, String>,
    consent: bool,
) -> BTreeMap<ObjectId, String> {
    let mut target = served.config.clone();
    wanted.clone().put_into(&mut target);
    let changes = |id: &ObjectId| {
        outcomes
            .get(id)
            .is_some_and(|outcome| *outcome != Outcome::Same)
    };
    let held = before.iter().filter(|(id, _)| changes(id));
    let mut holding = Holding {
        served,
        target,
        outcomes,
        consent,
        held: held.map(|(id, why)| (id.clone(), why.clone())).collect(),
    };
    holding.media();
    holding.namespaces();
    holding.controllers();
    while holding.spread() || holding.keep_subsystems() {}
    holding.held
}

/// The objects after the reload: deferred ones as they are now, the others as wanted.
pub(super) fn what_is_in_the_end(
    now: &Objects,
    wanted: &Objects,
    held: &BTreeMap<ObjectId, String>,
) -> Objects {
    fn kind<T: Identified>(now: &[T], wanted: &[T], held: &BTreeMap<ObjectId, String>) -> Vec<T> {
        let is_held = |one: &&T| held.contains_key(&one.id());
        let stays = |one: &T| {
            if is_held(&one) {
                find(now, one.name()).cloned()
            } else {
                Some(one.clone())
            }
        };
        let gone = now.iter().filter(|one| find(wanted, one.name()).is_none());
        let stay = gone.filter(is_held).cloned();
        wanted.iter().filter_map(stays).chain(stay).collect()
    }
    Objects {
        media: kind(&now.media, &wanted.media, held),
        namespace: kind(&now.namespace, &wanted.namespace, held),
        tenant: kind(&now.tenant, &wanted.tenant, held),
        controller: kind(&now.controller, &wanted.controller, held),
    }
}

impl Holding<'_> {
    fn outcome(&self, id: impl Into<ObjectId>) -> &Outcome {
        let outcome = self.outcomes.get(&id.into());
        outcome.unwrap_or(&Outcome::Same)
    }

    fn is_held(&self, id: impl Into<ObjectId>) -> bool {
        self.held.contains_key(&id.into())
    }

    /// Defers the change of an object, if it has one.
    fn hold(&mut self, id: impl Into<ObjectId>, why: String) {
        let id = id.into();
        let why = match self.outcomes.get(&id).unwrap_or(&Outcome::Same) {
            Outcome::Same => return,
            Outcome::Recreate(reason) => format!("{reason}, and {why}"),
            _ => why,
        };
        self.held.entry(id).or_insert(why);
    }

    /// A controller with an attached host that has the namespace.
    fn host_of(&self, namespace: &str) -> Option<&String> {
        let placed = self.served.placed.get(namespace)?;
        let mut users = placed.controllers.iter();
        users.find(|name| self.served.hosts.contains(*name))
    }

    fn media(&mut self) {
        for medium in self.served.config.media.clone() {
            let name = &medium.name;
            if !self.outcome(MediumId::new(name)).ends() {
                continue;
            }
            let placed = self.served.placed.iter();
            let mut of_hosts = placed.filter(|(_, p)| p.made_by_host && p.medium == *name);
            if let Some((namespace, _)) = of_hosts.next() {
                let why = format!(
                    "namespace {namespace} on it was created by a host: run `nvmirage delete namespace {namespace}` first"
                );
                self.hold(MediumId::new(name), why);
            }
            let is_recreated = matches!(self.outcome(MediumId::new(name)), Outcome::Recreate(_));
            if is_recreated && loses_bytes(&medium) {
                let why = format!(
                    "its data is in memory and would be lost: give the new one another name, or run `nvmirage delete media {name}` first"
                );
                self.hold(MediumId::new(name), why);
            }
        }
    }

    fn namespaces(&mut self) {
        for namespace in self.served.config.namespace.clone() {
            let name = &namespace.name;
            let wanted = find(&self.target.namespace, name).cloned();
            let stays = !self.outcome(MediumId::new(&namespace.media)).ends();
            if let Some(wanted) = wanted
                && stays
                && wanted.media == namespace.media
                && let Growth::Shrinks(range) = growth(&namespace, &wanted, self.served)
            {
                let size = api::config::Size(range.len());
                let first = if self.served.placed.contains_key(name) {
                    format!("nvmirage resize {name} {size} --shrink")
                } else {
                    format!("nvmirage delete namespace {name}")
                };
                let why =
                    format!("data behind {size} would be lost: to allow that, run `{first}` first");
                self.hold(NamespaceId::new(name), why);
            }
            if !self.outcome(NamespaceId::new(name)).ends() || self.consent {
                continue;
            }
            if let Some(user) = self.host_of(name).cloned() {
                let why = format!("controller {user} has it, where a host is attached: {CONSENT}");
                self.hold(NamespaceId::new(name), why);
            }
        }
    }

    fn controllers(&mut self) {
        for controller in self.served.config.controller.clone() {
            let name = &controller.name;
            let ends = self.outcome(ControllerId::new(name)).ends();
            if ends && !self.consent && self.served.hosts.contains(name) {
                let why = format!("a host is attached: {CONSENT}");
                self.hold(ControllerId::new(name), why);
            }
        }
        for controller in self.target.controller.clone() {
            if let Some(why) = self.another_reactor(&controller) {
                self.hold(ControllerId::new(&controller.name), why);
            }
        }
    }

    /// The reason to defer a controller that needs an open medium on a reactor other than the one
    /// that serves the medium.
    fn another_reactor(&self, controller: &Controller) -> Option<String> {
        let stays = |name: &str| {
            let outcome = self.outcome(MediumId::new(name));
            matches!(outcome, Outcome::Same | Outcome::Change)
        };
        let mut homes = self.served.homes.iter();
        let (medium, home) = homes.find(|(medium, home)| {
            let named = controller.reactor.iter().chain(&controller.reactors);
            let is_live = *self.outcome(ControllerId::new(&controller.name)) == Outcome::Change;
            let lives = self
                .served
                .reactors
                .get(controller.subsystem())
                .filter(|_| is_live);
            let mut all = named.chain(lives);
            stays(medium) && controller.uses(&self.target, medium) && all.any(|r| r != *home)
        })?;
        Some(format!(
            "medium {medium} is served by one reactor, which is {home} as long as it is open: write that one, or restart"
        ))
    }

    /// Defers changes that depend on deferred ones. Whether there were any.
    fn spread(&mut self) -> bool {
        let count = self.held.len();
        for controller in self.served.config.controller.clone() {
            if self.is_held(ControllerId::new(&controller.name)) {
                self.keep_what_it_uses(&controller);
            }
        }
        for namespace in self.served.config.namespace.clone() {
            if self.is_held(NamespaceId::new(&namespace.name)) {
                self.keep_with(&namespace);
            }
        }
        for medium in self.served.config.media.clone() {
            if self.is_held(MediumId::new(&medium.name)) {
                self.keep_on(&medium);
            }
        }
        self.held.len() > count
    }

    /// Defers what subsystems need to remain what they are. There is a choice, so this is done
    /// when nothing else is to be deferred. Whether there was anything.
    fn keep_subsystems(&mut self) -> bool {
        let count = self.held.len();
        for name in self.served.config.clone().subsystems() {
            self.keep_subsystem(name);
        }
        self.held.len() > count
    }

    /// A deferred controller keeps its namespaces, pool and tenant.
    fn keep_what_it_uses(&mut self, controller: &Controller) {
        let why = format!("controller {} stays as it is", controller.name);
        let attached = self.served.placed.iter();
        let attached = attached.filter(|(_, p)| p.controllers.contains(&controller.name));
        let attached: Vec<String> = attached.map(|(name, _)| name.clone()).collect();
        for name in controller.namespaces.iter().chain(&attached) {
            if self.outcome(NamespaceId::new(name)).ends() {
                self.hold(NamespaceId::new(name), why.clone());
            }
        }
        // a pool belongs to the whole subsystem, whichever controller lists it
        let config = self.served.config.clone();
        for name in config.pool_of(controller.subsystem()) {
            if self.outcome(MediumId::new(name)).ends() {
                self.hold(MediumId::new(name), why.clone());
            }
        }
        self.keep_tenant(controller.tenant.as_ref(), &why);
    }

    fn keep_tenant(&mut self, tenant: Option<&String>, why: &str) {
        if let Some(tenant) = tenant
            && *self.outcome(TenantId::new(tenant)) == Outcome::Delete
        {
            self.hold(TenantId::new(tenant), why.to_owned());
        }
    }

    /// A deferred namespace keeps its medium, its controllers, and its home: the subsystems that
    /// have its medium in their pools.
    fn keep_with(&mut self, namespace: &Namespace) {
        let name = &namespace.name;
        let why = format!("namespace {name} stays as it is");
        if self.outcome(MediumId::new(&namespace.media)).ends() {
            self.hold(MediumId::new(&namespace.media), why.clone());
        }
        self.keep_tenant(namespace.tenant.as_ref(), &why);
        if !self.outcome(NamespaceId::new(name)).ends() {
            return;
        }
        let lists = |config: &Config, controller: &str| {
            let found = find(&config.controller, controller);
            found.is_some_and(|c| c.namespaces.contains(name))
        };
        let (now, then) = (&self.served.config.controller, &self.target.controller);
        let all: Vec<String> = now.iter().chain(then).map(|c| c.name.clone()).collect();
        for controller in all {
            let then = lists(&self.target, &controller);
            let moves = then && {
                let then = find(&self.target.controller, &controller);
                let placed = self.served.placed.get(name);
                placed.is_some_and(|p| then.is_some_and(|c| c.subsystem() != p.subsystem))
            };
            if moves || lists(&self.served.config, &controller) != then {
                self.hold(ControllerId::new(&controller), why.clone());
            }
        }
        let (now, then) = (&self.served.config, &self.target);
        let is_in_pool = |config: &Config, subsystem: &str| {
            let pool = config.pool_of(subsystem);
            pool.contains(&namespace.media.as_str())
        };
        let all = now.controller.iter().chain(&then.controller);
        let all = all.filter(|controller| {
            let subsystem = controller.subsystem();
            is_in_pool(now, subsystem) != is_in_pool(then, subsystem)
        });
        let all: Vec<String> = all.map(|controller| controller.name.clone()).collect();
        for controller in all {
            self.hold(ControllerId::new(&controller), why.clone());
        }
    }

    /// A deferred medium keeps its namespaces and its pool's controllers: they cannot move to the
    /// new medium of that name yet.
    fn keep_on(&mut self, medium: &Medium) {
        let name = &medium.name;
        let why = format!("medium {name} stays as it is");
        for namespace in &self.served.config.namespace.clone() {
            let ends = self.outcome(NamespaceId::new(&namespace.name)).ends();
            if namespace.media == *name && ends {
                self.hold(NamespaceId::new(&namespace.name), why.clone());
            }
        }
        for controller in &self.served.config.controller.clone() {
            let pool = self.served.config.pool_of(controller.subsystem());
            if pool.contains(&name.as_str())
                && self.outcome(ControllerId::new(&controller.name)).ends()
            {
                self.hold(ControllerId::new(&controller.name), why.clone());
            }
        }
    }

    /// If one controller of a subsystem is deferred, and the subsystem's common properties would
    /// change, a controller that changes them is deferred.
    fn keep_subsystem(&mut self, name: &str) {
        let mut now = self.served.config.controllers_of(name);
        let Some(held) = now.find(|c| self.is_held(ControllerId::new(&c.name))) else {
            return;
        };
        let why = format!("controller {} of its subsystem stays as it is", held.name);
        let end = self.end();
        if wide(name, self.served, &end).is_some()
            && let Some(controller) = wide_by(name, self.served, &end)
        {
            self.hold(controller.id(), why);
        }
    }

    /// The wanted configuration with the controllers that are deferred so far.
    fn end(&self) -> Config {
        let (now, wanted) = (Objects::of(&self.served.config), Objects::of(&self.target));
        let mut end = self.target.clone();
        end.controller = what_is_in_the_end(&now, &wanted, &self.held).controller;
        end
    }
}

/// Whether closing a medium loses its data.
fn loses_bytes(medium: &Medium) -> bool {
    medium.is_in_memory() && medium.state().is_none()
}
