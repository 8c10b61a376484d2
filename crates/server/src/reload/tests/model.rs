//! A model of a server for plans: it carries out steps as an operator's requests, and refuses what
//! a server refuses.

use std::collections::{BTreeMap, BTreeSet};

use api::Kind;
use api::config::object::{Object, When};
use api::config::{Config, Controller, Namespace, Range, Size};

use super::super::id::ControllerId;
use super::super::{Deed, Placed, Plan, Served, Step, as_made, let_go, settle};
use crate::saved::merge::{Named, Objects, find};

/// The state of a server. Steps are carried out as an operator's requests; invalid ones are
/// refused.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) served: Served,
    pub(super) consent: bool,
    /// Subsystems, while a controller of each is served.
    fixed: BTreeMap<String, Wide>,
    /// The objects after the reload; the lists show which namespaces remaining controllers lose.
    end: Objects,
    /// The namespaces that recreated controllers get back, by controller.
    kept: BTreeMap<ControllerId, BTreeSet<String>>,
}

/// Properties of a subsystem that are fixed while one of its controllers is served.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wide {
    pool: BTreeSet<String>,
    serial: Option<String>,
    subnqn: Option<String>,
}

impl Wide {
    /// The properties that the controllers of a subsystem state together.
    fn of(config: &Config, subsystem: &str) -> Self {
        let its = || config.controllers_of(subsystem);
        Wide {
            pool: its().flat_map(|c| c.pool.iter().cloned()).collect(),
            serial: its().find_map(|c| c.serial.clone()),
            subnqn: its().find_map(|c| c.subnqn.clone()),
        }
    }
}

impl Model {
    /// A server after its start with a configuration.
    pub(super) fn of(config: &Config) -> Self {
        let mut model = Model {
            served: Served::default(),
            consent: true,
            fixed: BTreeMap::new(),
            end: Objects::of(config),
            kept: BTreeMap::new(),
        };
        for medium in &config.media {
            model.create(Kind::Media, &medium.name).unwrap();
        }
        for tenant in &config.tenant {
            model.create(Kind::Tenant, &tenant.name).unwrap();
        }
        for namespace in &config.namespace {
            model.create(Kind::Namespace, &namespace.name).unwrap();
        }
        for controller in &config.controller {
            model.create(Kind::Controller, &controller.name).unwrap();
        }
        model
            .served
            .config
            .controller
            .clone_from(&config.controller);
        model
    }

    pub(super) fn do_all(&mut self, plan: &Plan, count: usize) {
        self.end = plan.end.clone();
        self.kept = plan.kept.clone();
        let mut gone = false;
        for step in &plan.steps[..count] {
            if !gone && !matches!(step.deed, Deed::Detach(_)) {
                let_go(&mut self.served.config, &plan.end);
                gone = true;
            }
            if let Err(why) = self.do_step(step) {
                panic!("{step:?}: {why}\nof {:#?}", plan.steps);
            }
            let problems = self.served.config.validate();
            assert_eq!(problems, [], "after {step:?}");
        }
        settle(&mut self.served.config, &plan.end, &plan.steps[count..]);
        for (subsystem, fixed) in &self.fixed {
            let config = &self.served.config;
            let said = Wide::of(config, subsystem);
            let is_live = config.controllers_of(subsystem).next().is_some();
            assert!(
                !is_live || said == *fixed,
                "{subsystem}: {fixed:?} is served, {said:?} is said"
            );
        }
    }

    fn do_step(&mut self, step: &Step) -> Result<(), String> {
        let (kind, name) = (step.id.kind(), step.id.name());
        let end = self.end.clone();
        match &step.deed {
            Deed::Create => self.create(kind, name),
            Deed::Delete => self.delete(kind, name),
            Deed::Attach(controller) => self.attach(name, controller.as_str()),
            Deed::Detach(controller) => self.detach(name, controller.as_str()),
            Deed::Resize(size) => {
                let at = position(&self.served.config.namespace, name)?;
                if !self.served.placed.contains_key(name) {
                    return Err("it is in no subsystem".into());
                }
                let medium = self.served.sizes[&self.served.config.namespace[at].media];
                let one = &mut self.served.config.namespace[at];
                let start = one.range.map_or(Size(0), |range| range.start);
                let before = one.range.map_or(medium, |range| range.len());
                if size.0 <= before {
                    return Err("it does not grow".into());
                }
                one.range = Some(Range {
                    start,
                    end: Size(start.0 + size.0),
                });
                Ok(())
            }
            Deed::Retune => {
                let at = position(&self.served.config.media, name)?;
                let timing = find(&end.media, name).unwrap().timing.clone();
                self.served.config.media[at].timing = timing;
                Ok(())
            }
            Deed::Assign => self.assign(kind, name),
            Deed::Move => {
                let at = position(&self.served.config.controller, name)?;
                let then = find(&end.controller, name).unwrap();
                self.served.config.controller[at].reactors = then.reactors.clone();
                Ok(())
            }
            Deed::Log => Ok(()),
        }
    }

    fn assign(&mut self, kind: Kind, name: &str) -> Result<(), String> {
        let config = &mut self.served.config;
        let tenant = match kind {
            Kind::Tenant => {
                let at = position(&config.tenant, name)?;
                config.tenant[at] = find(&self.end.tenant, name).unwrap().clone();
                None
            }
            Kind::Namespace => {
                let at = position(&config.namespace, name)?;
                let then = find(&self.end.namespace, name).unwrap();
                let one = &mut config.namespace[at];
                *one = one.with(then, When::Live);
                one.tenant.clone()
            }
            _ => {
                let at = position(&config.controller, name)?;
                let then = find(&self.end.controller, name).unwrap();
                let one = &mut config.controller[at];
                *one = one.with(then, When::Live);
                one.tenant.clone()
            }
        };
        match tenant.filter(|tenant| find(&config.tenant, tenant).is_none()) {
            Some(tenant) => Err(format!("there is no tenant {tenant}")),
            None => Ok(()),
        }
    }

    fn create(&mut self, kind: Kind, name: &str) -> Result<(), String> {
        let end = self.end.clone();
        let config = &mut self.served.config;
        match kind {
            Kind::Media => {
                let one = new(&config.media, &end.media, name)?;
                self.served
                    .sizes
                    .insert(name.to_owned(), one.size().unwrap().0);
                config.media.push(one);
            }
            Kind::Tenant => {
                let one = new(&config.tenant, &end.tenant, name)?;
                config.tenant.push(one);
            }
            Kind::Namespace => {
                let one = new(&config.namespace, &end.namespace, name)?;
                find(&config.media, &one.media).ok_or("no medium")?;
                config.namespace.push(one.clone());
                if let Some(owner) = config.pool_owner(&one.media).map(str::to_owned) {
                    self.place(&one, &owner);
                }
            }
            _ => {
                let mut one = as_made(new(&config.controller, &end.controller, name)?, &end);
                let kept = self.kept.get(&ControllerId::new(name));
                if let Some(kept) = kept {
                    one.namespaces.retain(|listed| kept.contains(listed));
                }
                let subsystem = one.subsystem().to_owned();
                let is_live = config.controllers_of(&subsystem).next().is_some();
                config.controller.push(one.clone());
                let said = Wide::of(config, &subsystem);
                match self.fixed.get(&subsystem).filter(|_| is_live) {
                    Some(fixed) if said != *fixed => {
                        return Err(format!("{fixed:?} is served"));
                    }
                    Some(_) => {}
                    None => {
                        self.fixed.insert(subsystem.clone(), said);
                    }
                }
                // a recreated controller then gets what it had, listed or not
                let kept = kept.cloned().unwrap_or_default();
                let unlisted = kept.iter().filter(|name| !one.namespaces.contains(name));
                for namespace in one.namespaces.iter().chain(unlisted) {
                    self.attach(namespace, name)?;
                }
                let config = self.served.config.clone();
                let pool = config.pool_of(&subsystem);
                for namespace in &config.namespace {
                    let is_placed = self.served.placed.contains_key(&namespace.name);
                    if pool.contains(&namespace.media.as_str()) && !is_placed {
                        self.place(namespace, &subsystem);
                    }
                }
            }
        }
        Ok(())
    }

    fn place(&mut self, namespace: &Namespace, subsystem: &str) {
        let placed = Placed {
            medium: namespace.media.clone(),
            subsystem: subsystem.to_owned(),
            controllers: BTreeSet::new(),
            made_by_host: false,
        };
        self.served.placed.insert(namespace.name.clone(), placed);
    }

    fn delete(&mut self, kind: Kind, name: &str) -> Result<(), String> {
        let served = &mut self.served;
        match kind {
            Kind::Media => {
                let at = position(&served.config.media, name)?;
                let mut users = served.config.namespace.iter().filter(|n| n.media == name);
                if users.next().is_some() || served.placed.values().any(|p| p.medium == name) {
                    return Err("a namespace is on it".into());
                }
                if served.config.pool_owner(name).is_some() {
                    return Err("it is in a pool".into());
                }
                served.config.media.remove(at);
                served.sizes.remove(name);
            }
            Kind::Tenant => {
                let at = position(&served.config.tenant, name)?;
                let is_its = |tenant: &Option<String>| tenant.as_deref() == Some(name);
                let (controllers, namespaces) =
                    (&served.config.controller, &served.config.namespace);
                if controllers.iter().any(|c| is_its(&c.tenant))
                    || namespaces.iter().any(|n| is_its(&n.tenant))
                {
                    return Err("somebody is its".into());
                }
                served.config.tenant.remove(at);
            }
            Kind::Namespace => {
                let at = position(&served.config.namespace, name)?;
                let placed = served.placed.remove(name);
                if placed.is_some_and(|placed| !placed.controllers.is_empty()) {
                    return Err("a controller has it".into());
                }
                served.config.namespace.remove(at);
                for controller in &mut served.config.controller {
                    controller.namespaces.retain(|n| n != name);
                }
            }
            _ => {
                if served.hosts.contains(name) && !self.consent {
                    return Err("a host is attached".into());
                }
                served.hosts.remove(name);
                let gone = served.config.remove_controller(name);
                let gone = gone.ok_or_else(|| format!("there is no controller {name}"))?;
                for placed in served.placed.values_mut() {
                    placed.controllers.remove(name);
                }
                let subsystem = gone.subsystem();
                if served.config.controllers_of(subsystem).next().is_none() {
                    served
                        .placed
                        .retain(|_, placed| placed.subsystem != subsystem);
                }
            }
        }
        Ok(())
    }

    fn attach(&mut self, name: &str, controller: &str) -> Result<(), String> {
        let namespace = find(&self.served.config.namespace, name).cloned();
        let namespace = namespace.ok_or("no such namespace")?;
        let found = find(&self.served.config.controller, controller);
        let subsystem = found.ok_or("no such controller")?.subsystem().to_owned();
        if !self.served.placed.contains_key(name) {
            self.place(&namespace, &subsystem);
        }
        let placed = self.served.placed.get_mut(name).unwrap();
        if placed.subsystem != subsystem {
            return Err(format!("it is in subsystem {}", placed.subsystem));
        }
        if placed.controllers.insert(controller.to_owned()) {
            Ok(())
        } else {
            Err("it is attached already".into())
        }
    }

    fn detach(&mut self, name: &str, controller: &str) -> Result<(), String> {
        let placed = self.served.placed.get_mut(name).ok_or("in no subsystem")?;
        if !placed.controllers.remove(controller) {
            return Err("it is not attached".into());
        }
        // a host continues without it if its controller no longer lists it, not because of a
        // deletion
        let lists = |all: &[Controller]| {
            find(all, controller).is_some_and(|c| c.namespaces.iter().any(|n| n == name))
        };
        let is_said = lists(&self.served.config.controller) && !lists(&self.end.controller);
        let stays = is_said && find(&self.end.namespace, name).is_some();
        let is_hosts = self.served.hosts.contains(controller);
        if is_hosts && !self.consent && !stays {
            Err("a host has it".into())
        } else {
            Ok(())
        }
    }
}

fn position<T: Named>(all: &[T], name: &str) -> Result<usize, String> {
    let at = all.iter().position(|one| one.name() == name);
    at.ok_or_else(|| format!("there is no {} {name}", T::KIND))
}

fn new<T: Named>(now: &[T], end: &[T], name: &str) -> Result<T, String> {
    if find(now, name).is_some() {
        return Err("it is there already".into());
    }
    find(end, name)
        .cloned()
        .ok_or_else(|| "it is not to be".into())
}
