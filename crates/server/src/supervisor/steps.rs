//! The executor: how each step is carried out, whether a start, a reload or a request of an
//! operator asks for it.
//!
//! Two configurations are kept: `config` is what is served, `desired` is what is wanted. They
//! differ while steps are carried out, and after a plan that did not end. The desired objects are
//! saved before the first step, with what the plan takes away for a time ([`Unfinished`]).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use api::config::object::{Object as Keys, When};
use api::config::{Config, Controller, Medium, Namespace, Problem, Timing};
use api::{Kind, Refusal, What};

use super::{State, Supervisor, exists, refuse_problems, refused};
use crate::reconcile::id::{NamespaceId, ObjectId};
use crate::reconcile::inventory::{Named, Objects, find};
use crate::reconcile::merge::merge;
use crate::reconcile::step::{Object, Step};
use crate::reconcile::unfinished::Unfinished;
use crate::reconcile::{self, Actual};
use crate::{events, logging};

impl Supervisor {
    /// Carries out a request of an operator, which is one step.
    pub(super) fn request(&self, step: &Step, consent: bool) -> Result<(), Refusal> {
        let (what, id) = step.event();
        self.change(what, (id.kind().name(), id.name()), |state| {
            state.request(step, consent)
        })
    }

    /// Carries out a step of a plan.
    pub(super) fn carry_out_step(&self, step: &Step) -> Result<(), Refusal> {
        if let Step::Log(log) = step {
            // a filter from the command line or the environment stays in force
            return logging::configure_anew(log).map_err(Refusal::invalid);
        }
        let (what, id) = step.event();
        self.change(what, (id.kind().name(), id.name()), |state| {
            state.apply(step, true)?;
            state.tell_of_tenants()?;
            state.unfinished.done(step);
            state.note_placed()
        })
    }

    /// Changes an object, saves what has changed even if the change fails half-way, and reports the
    /// event.
    pub(super) fn change<T>(
        &self,
        what: What,
        (kind, name): (&str, &str),
        work: impl FnOnce(&mut State) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut state = self.lock();
        state.refuse_while_ending()?;
        let before = Objects::of(&state.config);
        let done = work(&mut state);
        if !state.is_reconciling {
            state.follow(&before);
        }
        let kept = state.keep();
        let kept = kept.context(
            "the change is applied, but cannot be saved: it will be lost at the next start unless a later change is saved",
        );
        if let Err(error) = &kept {
            tracing::error!("{error:#}");
        }
        // a refused change is answered with its refusal, whether or not saving worked
        let done = done?;
        events::tell(what, kind, name);
        kept.map_err(|error| Refusal::failed(&error))?;
        Ok(done)
    }
}

impl State {
    pub(super) fn refuse_while_ending(&self) -> Result<(), Refusal> {
        if self.is_ending {
            return Err(Refusal::conflict(
                "the server is stopping and accepts no changes",
            ));
        }
        Ok(())
    }

    /// Serves all objects of a configuration: carries out the plan from nothing. `unfinished` is
    /// what the last plan of an earlier process has not given back.
    pub(super) fn serve_all(
        &mut self,
        config: &Config,
        unfinished: Unfinished,
    ) -> anyhow::Result<()> {
        self.desired = Objects::of(config);
        self.unfinished = unfinished;
        let nothing = Actual {
            config: self.config.clone(),
            ..Actual::default()
        };
        let plan = reconcile::plan(&nothing, &self.desired, true);
        let plan = plan
            .map_err(|(problems, _)| anyhow::Error::msg(Refusal::of_problems(&problems).detail))?;
        for planned in &plan.steps {
            let applied = self.apply(&planned.step, true);
            applied.map_err(|refusal| anyhow::Error::msg(refusal.detail))?;
        }
        self.tell_tenants()?;
        self.config.controller.clone_from(&plan.end.controller);
        // ranges may be larger than written, after earlier resizes
        self.desired = Objects::of(&self.config);
        self.unfinished = Unfinished::default();
        Ok(())
    }

    /// Carries out a request of an operator.
    pub(super) fn request(&mut self, step: &Step, consent: bool) -> Result<(), Refusal> {
        if let Step::Create(object) | Step::Assign(object) = step {
            let id = object.id();
            if matches!(step, Step::Create(_)) && has(&Objects::of(&self.config), &id) {
                return Err(exists(id.kind().name(), id.name()));
            }
            let mut next = self.config.clone();
            let mut objects = Objects::of(&next);
            object.put_into(&mut objects);
            objects.put_into(&mut next);
            refuse_problems(&next)?;
        }
        if let Step::Create(Object::Controller(controller)) = step
            && let Some(what) = controller.lack()
        {
            let place = format!("controller {}", controller.name);
            return Err(Refusal::of_problems(&[Problem { place, what }]));
        }
        match step {
            Step::Delete(id) if self.is_only_desired(id) => self.give_up(id)?,
            Step::Create(Object::Controller(controller)) if self.expects(controller) => {
                self.apply(step, consent)?;
                // its subsystem was started with the list of the last plan, which may differ
                let listed = controller.namespaces.iter().map(String::as_str);
                self.have(controller, &listed.collect())?;
                self.tell_of_tenants()?;
            }
            _ => {
                self.apply(step, consent)?;
                self.tell_of_tenants()?;
            }
        }
        self.unfinished.overruled(step);
        self.note_placed()
    }

    /// Notes which of the namespaces that a plan recreates are in a subsystem again: from then on
    /// hosts may change them, and a restart must not replace them.
    fn note_placed(&mut self) -> Result<(), Refusal> {
        let missing = self.unfinished.deleted.difference(&self.unfinished.placed);
        let missing: Vec<String> = missing.cloned().collect();
        for name in missing {
            if self.find(&name)?.is_some() {
                self.unfinished.placed.insert(name);
            }
        }
        Ok(())
    }

    /// Carries out a step. With `consent`, hosts may lose controllers and namespaces, and data
    /// behind the new end of a namespace is lost.
    pub(super) fn apply(&mut self, step: &Step, consent: bool) -> Result<(), Refusal> {
        match step {
            Step::Create(Object::Media(medium)) => self.create_medium(medium),
            Step::Create(Object::Namespace(namespace)) => self.create_namespace(namespace),
            Step::Create(Object::Tenant(tenant)) => {
                self.config.tenant.push((**tenant).clone());
                Ok(())
            }
            Step::Create(Object::Controller(controller)) => self.create_controller(controller),
            Step::Restore(controller, kept) => self.restore_controller(controller, kept),
            Step::Delete(ObjectId::Media(id)) => self.delete_medium(id.as_str()),
            Step::Delete(ObjectId::Namespace(id)) => self.delete_namespace(id.as_str()),
            Step::Delete(ObjectId::Tenant(id)) => self.delete_tenant(id.as_str()),
            Step::Delete(ObjectId::Controller(id)) => self.delete_controller(id.as_str(), consent),
            Step::Attach(namespace, controller) => {
                self.attach(namespace.as_str(), controller.as_str())
            }
            Step::Detach(namespace, controller) => {
                let (namespace, controller) = (namespace.as_str(), controller.as_str());
                self.check_detach(namespace, controller)?;
                self.spare_host(controller, consent)?;
                self.detach(namespace, controller)
            }
            Step::Assign(object) => self.assign(object),
            Step::Retune(medium, timing) => self.retune(medium.as_str(), timing),
            Step::Resize(namespace, size) => self.resize(namespace.as_str(), *size, consent),
            Step::Move(controller, reactors) => {
                let name = controller.as_str();
                let own = self.reactor_of(name).filter(|_| reactors.is_empty());
                let reactors: Vec<usize> = reactors.iter().copied().chain(own).collect();
                self.move_queues(name, &reactors, None)
            }
            Step::Allow(hosts) => self.allow(hosts).map_err(refused),
            Step::Renew(controller) => self.renew_tls(controller.as_str()).map_err(refused),
            Step::Log(_) | Step::Delete(ObjectId::Hosts | ObjectId::Log) => Ok(()),
        }
    }

    fn create_medium(&mut self, medium: &Medium) -> Result<(), Refusal> {
        self.open_medium(medium.clone()).map_err(refused)
    }

    fn create_namespace(&mut self, namespace: &Namespace) -> Result<(), Refusal> {
        self.check_namespace(namespace).map_err(refused)?;
        self.check_space(namespace)?;
        self.config.namespace.push(namespace.clone());
        let given = self.give_to_pool(&namespace.name);
        if given.is_err() {
            self.config.namespace.pop();
        }
        given
    }

    fn create_controller(&mut self, controller: &Controller) -> Result<(), Refusal> {
        // the first controller of a subsystem fixes what its later ones say, too
        let controller = match self.live(controller.subsystem()) {
            Some(_) => controller.clone(),
            None => reconcile::as_created(controller.clone(), &self.desired),
        };
        let before = self.config.clone();
        self.config.controller.push(controller.clone());
        let served = self.add_controller(&controller, &before);
        if served.is_err() {
            self.config = before;
        }
        served
    }

    fn restore_controller(
        &mut self,
        controller: &Controller,
        kept: &[NamespaceId],
    ) -> Result<(), Refusal> {
        let kept: BTreeSet<&str> = kept.iter().map(NamespaceId::as_str).collect();
        let mut listing = controller.clone();
        // a subsystem that starts with it knows what it gets; one that it joins attaches its list
        if self.live(controller.subsystem()).is_some() && !self.expects(controller) {
            let is_kept = |listed: &String| kept.contains(listed.as_str());
            listing.namespaces.retain(is_kept);
        }
        self.create_controller(&listing)?;
        self.have(&listing, &kept)?;
        // it lists what was detached, too, or the next plan would take it for added
        let its = self.config.controller.iter_mut();
        for one in its.filter(|one| one.name == controller.name) {
            one.namespaces.clone_from(&controller.namespaces);
        }
        Ok(())
    }

    /// Attaches exactly these namespaces to a recreated controller, and recreates the ones that
    /// were deleted with it.
    fn have(&mut self, controller: &Controller, names: &BTreeSet<&str>) -> Result<(), Refusal> {
        let name = &controller.name;
        let has = self.attached_to(name)?;
        for namespace in has.iter().filter(|has| !names.contains(has.as_str())) {
            self.detach(namespace, name)?;
        }
        // in list order, which determines their identifiers
        let listed = controller.namespaces.iter().map(String::as_str);
        let is_listed = |name: &str| controller.namespaces.iter().any(|listed| listed == name);
        let unlisted = names.iter().copied().filter(|name| !is_listed(name));
        for namespace in listed.chain(unlisted) {
            if names.contains(namespace) && !has.contains(namespace) {
                self.attach(namespace, name)?;
            }
        }
        let pool = self.config.namespaces_of(controller.subsystem());
        let pool: Vec<String> = pool.into_iter().map(|n| n.name.clone()).collect();
        for namespace in pool {
            if self.find(&namespace)?.is_none() {
                self.give_to_pool(&namespace)?;
            }
        }
        Ok(())
    }

    fn attached_to(&self, controller: &str) -> Result<BTreeSet<String>, Refusal> {
        let failed = |error: anyhow::Error| Refusal::failed(&error);
        let views = self.views().map_err(failed)?;
        let statuses = self.namespaces(&views).map_err(failed)?.into_iter();
        let its = statuses.filter(|n| n.controllers.iter().any(|c| c == controller));
        Ok(its.map(|n| n.config.name).collect())
    }

    /// Closes a medium that no namespace uses.
    fn delete_medium(&mut self, name: &str) -> Result<(), Refusal> {
        let at = self.media.iter().position(|m| m.name == name);
        let at = at.ok_or_else(|| Refusal::not_found("media", name))?;
        self.refuse_use_of_medium(name)?;
        let config = self.config.media.iter().find(|medium| medium.name == name);
        let mark = config.map(|medium| self.mark_of(medium));
        self.close_medium(at)
            .map_err(|error| Refusal::failed(&error))?;
        // Its file may go now. One that is gone already may be missed: the medium may come again in
        // the same reload.
        if let Some(Ok(Some(mark))) = mark
            && !mark.is_gone()
        {
            mark.remove();
        }
        Ok(())
    }

    /// Deletes a controller. An attached host loses the drive only with `consent`.
    fn delete_controller(&mut self, name: &str, consent: bool) -> Result<(), Refusal> {
        let at = self.controllers.iter().position(|c| c.name == name);
        let at = at.ok_or_else(|| Refusal::not_found("controller", name))?;
        self.spare_host(name, consent)?;
        if !consent {
            self.unmount(at)?;
        }
        let before = self.config.controller.clone();
        self.end(at).map_err(|error| Refusal::failed(&error))?;
        let changed = |one: &&Controller| !before.contains(one);
        for heir in self.config.controller.iter().filter(changed) {
            events::tell(What::Changed, "controller", &heir.name);
        }
        self.detach_all(name)
    }

    /// Applies the live keys of a tenant, a namespace or a controller.
    fn assign(&mut self, object: &Object) -> Result<(), Refusal> {
        fn put<T: Named>(
            all: &mut [T],
            name: &str,
            to: impl FnOnce(&T) -> T,
        ) -> Result<(), Refusal> {
            let one = all.iter_mut().find(|one| one.name() == name);
            let one = one.ok_or_else(|| Refusal::not_found(T::KIND, name))?;
            *one = to(one);
            Ok(())
        }
        let before = self.config.clone();
        match object {
            Object::Tenant(one) => put(&mut self.config.tenant, &one.name, |_| (**one).clone()),
            Object::Namespace(one) => put(&mut self.config.namespace, &one.name, |now| {
                now.with(one, When::Live)
            }),
            Object::Controller(one) => put(&mut self.config.controller, &one.name, |now| {
                now.with(one, When::Live)
            }),
            Object::Media(one) => Err(Refusal::not_found("live keys of media", &one.name)),
        }?;
        let told = match object {
            Object::Controller(one) => self.tell_of_controller(&one.name),
            _ => Ok(()),
        };
        if told.is_err() {
            self.config = before;
        }
        told
    }

    /// Applies a timing model that differs only in parameters that can change at run time.
    fn retune(&mut self, name: &str, timing: &Timing) -> Result<(), Refusal> {
        let at = self.config.media.iter().position(|m| m.name == name);
        let at = at.ok_or_else(|| Refusal::not_found("media", name))?;
        let failed = |error: anyhow::Error| Refusal::failed(&error);
        let size = self.medium(name).map_err(failed)?.size();
        let parameters = timing.parameters(size);
        let parameters = parameters.map_err(|problems| Refusal::invalid(problems.join("; ")))?;
        self.retune_on_reactor(name, parameters).map_err(failed)?;
        self.config.media[at].timing = Some(timing.clone());
        Ok(())
    }

    /// The reactor that serves a controller.
    fn reactor_of(&self, controller: &str) -> Option<usize> {
        let mut served = self.controllers.iter();
        served.find(|c| c.name == controller).map(|c| c.reactor)
    }

    /// The served objects and the desired controllers that are not served: subsystems as they are
    /// when all of their controllers are served.
    pub(super) fn aim(&self) -> Config {
        let mut aim = self.config.clone();
        let is_missing = |one: &&Controller| find(&self.config.controller, &one.name).is_none();
        let missing = self.desired.controller.iter().filter(is_missing);
        aim.controller.extend(missing.cloned());
        // in the order of the configuration, which determines identifiers
        let places = self.desired.controller.iter().enumerate();
        let places: BTreeMap<&str, usize> =
            places.map(|(at, one)| (one.name.as_str(), at)).collect();
        let place = |one: &Controller| places.get(one.name.as_str()).copied();
        aim.controller
            .sort_by_key(|one| place(one).unwrap_or(usize::MAX));
        aim
    }

    /// Whether an earlier plan was to create an object and did not.
    fn is_only_desired(&self, id: &ObjectId) -> bool {
        has(&self.desired, id) && !has(&Objects::of(&self.config), id)
    }

    /// An object that an earlier plan did not create is wanted no longer.
    fn give_up(&mut self, id: &ObjectId) -> Result<(), Refusal> {
        let mut next = self.desired.clone();
        let name = id.name();
        match id.kind() {
            Kind::Media => next.media.retain(|one| one.name != name),
            Kind::Tenant => next.tenant.retain(|one| one.name != name),
            Kind::Controller => next.controller.retain(|one| one.name != name),
            Kind::Namespace => {
                next.namespace.retain(|one| one.name != name);
                for controller in &mut next.controller {
                    controller.namespaces.retain(|listed| listed != name);
                }
            }
            Kind::Host | Kind::Log => {}
        }
        let mut together = self.config.clone();
        next.clone().put_into(&mut together);
        refuse_problems(&together)?;
        self.desired = next;
        Ok(())
    }

    /// Takes what has changed in the served objects since `before` into the desired ones. Where the
    /// last plan did not end, an operator's change counts, and the rest of the plan stays desired.
    fn follow(&mut self, before: &Objects) {
        let now = Objects::of(&self.config);
        if now == *before {
            return;
        }
        if self.desired == *before {
            self.desired = now;
            return;
        }
        let merged = merge(before, &self.desired, &now);
        let mut together = self.config.clone();
        merged.objects.clone().put_into(&mut together);
        let problems = together.validate();
        if let Some(problem) = problems.first() {
            tracing::warn!(
                "the rest of the last reload does not fit this change and is dropped: {problem}"
            );
            self.desired = now;
            self.unfinished = Unfinished::default();
        } else {
            self.desired = merged.objects;
        }
    }

    /// Saves the desired objects, and what is unfinished.
    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
        match &mut self.saved {
            Some(saved) => saved.keep(&self.desired, &self.unfinished),
            None => Ok(()),
        }
    }
}

fn has(all: &Objects, id: &ObjectId) -> bool {
    let name = id.name();
    match id.kind() {
        Kind::Media => find(&all.media, name).is_some(),
        Kind::Namespace => find(&all.namespace, name).is_some(),
        Kind::Tenant => find(&all.tenant, name).is_some(),
        Kind::Controller => find(&all.controller, name).is_some(),
        Kind::Host | Kind::Log => false,
    }
}
