//! A model of a server for plans: it carries out steps as an operator's requests, and refuses what
//! a server refuses.

use std::collections::{BTreeMap, BTreeSet};

use api::Kind;
use api::config::object::{Object, When};
use api::config::{Config, Controller, Namespace, Range, Size};

use super::super::inventory::{Named, Objects, find};
use super::super::step::{Object as Whole, Step};
use super::super::unfinished::Unfinished;
use super::super::{Actual, Placed, Plan, as_created, shorten_lists};

/// The state of a server. Steps are carried out as an operator's requests; invalid ones are
/// refused.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) served: Actual,
    pub(super) consent: bool,
    /// Subsystems, while a controller of each is served.
    fixed: BTreeMap<String, Wide>,
    /// The objects after the reload; the lists show which namespaces remaining controllers lose.
    end: Objects,
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
            served: Actual::default(),
            consent: true,
            fixed: BTreeMap::new(),
            end: Objects::of(config),
        };
        let media = config.media.iter().map(|one| one.clone().into());
        let tenants = config.tenant.iter().map(|one| one.clone().into());
        let namespaces = config.namespace.iter().map(|one| one.clone().into());
        let controllers = config.controller.iter().map(|one| one.clone().into());
        let all: Vec<Whole> = media
            .chain(tenants)
            .chain(namespaces)
            .chain(controllers)
            .collect();
        for one in &all {
            model.create(one, None).unwrap();
        }
        model.is_as_wanted();
        model
    }

    /// Every step of a plan is done.
    fn is_as_wanted(&mut self) {
        self.end.clone().put_into(&mut self.served.config);
        self.served.desired = self.end.clone();
        self.served.unfinished = Unfinished::default();
    }

    /// Carries out the first steps of a plan.
    pub(super) fn do_all(&mut self, plan: &Plan, count: usize) {
        self.end = plan.end.clone();
        self.served.desired = plan.end.clone();
        self.served.unfinished = plan.unfinished.clone();
        let mut are_short = false;
        for planned in &plan.steps[..count] {
            if !are_short && !matches!(planned.step, Step::Detach(..)) {
                shorten_lists(&mut self.served.config, plan);
                are_short = true;
            }
            if let Err(why) = self.do_step(&planned.step) {
                panic!("{planned:?}: {why}\nof {:#?}", plan.steps);
            }
            self.served.unfinished.done(&planned.step);
            let problems = self.served.config.validate();
            assert_eq!(problems, [], "after {planned:?}");
        }
        if count == plan.steps.len() {
            self.is_as_wanted();
        }
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
        let id = step.id();
        let name = id.name();
        match step {
            Step::Create(one) => self.create(one, None),
            Step::Restore(one, kept) => {
                let kept = kept.iter().map(|id| id.as_str().to_owned());
                self.create(&Whole::Controller(one.clone()), Some(kept.collect()))
            }
            Step::Delete(id) => self.delete(id.kind(), name),
            Step::Attach(_, controller) => self.attach(name, controller.as_str()),
            Step::Detach(_, controller) => self.detach(name, controller.as_str()),
            Step::Resize(_, size) => self.resize(name, *size),
            Step::Retune(_, timing) => {
                let at = position(&self.served.config.media, name)?;
                self.served.config.media[at].timing = Some((**timing).clone());
                Ok(())
            }
            Step::Assign(one) => self.assign(one),
            Step::Move(_, reactors) => {
                let at = position(&self.served.config.controller, name)?;
                self.served.config.controller[at]
                    .reactors
                    .clone_from(reactors);
                Ok(())
            }
            Step::Allow(_) | Step::Renew(_) | Step::Log(_) => Ok(()),
        }
    }

    fn resize(&mut self, name: &str, size: Size) -> Result<(), String> {
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

    fn assign(&mut self, one: &Whole) -> Result<(), String> {
        let config = &mut self.served.config;
        let tenant = match one {
            Whole::Tenant(then) => {
                let at = position(&config.tenant, &then.name)?;
                config.tenant[at] = (**then).clone();
                None
            }
            Whole::Namespace(then) => {
                let at = position(&config.namespace, &then.name)?;
                let one = &mut config.namespace[at];
                *one = one.with(then, When::Live);
                one.tenant.clone()
            }
            Whole::Controller(then) => {
                let at = position(&config.controller, &then.name)?;
                let one = &mut config.controller[at];
                *one = one.with(then, When::Live);
                one.tenant.clone()
            }
            Whole::Media(_) => return Err("a medium has no live keys".into()),
        };
        match tenant.filter(|tenant| find(&config.tenant, tenant).is_none()) {
            Some(tenant) => Err(format!("there is no tenant {tenant}")),
            None => Ok(()),
        }
    }

    fn create(&mut self, one: &Whole, kept: Option<BTreeSet<String>>) -> Result<(), String> {
        let end = self.end.clone();
        let config = &mut self.served.config;
        match one {
            Whole::Media(one) => {
                is_new(&config.media, one)?;
                self.served
                    .sizes
                    .insert(one.name.clone(), one.size().unwrap().0);
                config.media.push((**one).clone());
            }
            Whole::Tenant(one) => {
                is_new(&config.tenant, one)?;
                config.tenant.push((**one).clone());
            }
            Whole::Namespace(one) => {
                is_new(&config.namespace, one)?;
                find(&config.media, &one.media).ok_or("no medium")?;
                config.namespace.push((**one).clone());
                if let Some(owner) = config.pool_owner(&one.media).map(str::to_owned) {
                    self.place(one, &owner);
                }
            }
            Whole::Controller(one) => {
                is_new(&config.controller, one)?;
                let (name, full) = (&one.name, &one.namespaces);
                let is_live = config.controllers_of(one.subsystem()).next().is_some();
                let mut one = (**one).clone();
                if !is_live {
                    one = as_created(one, &end);
                }
                if let Some(kept) = &kept {
                    one.namespaces.retain(|listed| kept.contains(listed));
                }
                let subsystem = one.subsystem().to_owned();
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
                let kept = kept.unwrap_or_default();
                let unlisted = kept.iter().filter(|name| !one.namespaces.contains(name));
                for namespace in one.namespaces.iter().chain(unlisted) {
                    self.attach(namespace, name)?;
                }
                if let Some(one) = self.served.config.controller.last_mut() {
                    one.namespaces.clone_from(full);
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

fn is_new<T: Named>(now: &[T], one: &T) -> Result<(), String> {
    match find(now, one.name()) {
        Some(_) => Err("it is there already".into()),
        None => Ok(()),
    }
}
