//! Plans for a configuration reload.
//!
//! [`plan`] compares the served objects with the wanted ones and computes the steps between them,
//! in order. It changes nothing, so a plan can be shown first. `supervisor::reload` collects the
//! current state and carries out a plan.
//!
//! - An object is deleted after its users, and created after the objects it uses.
//! - A change that would take a drive from a host, or data from memory, is deferred together with
//!   all changes that depend on it; the next reload tries again.
//! - Every intermediate configuration passes [`Config::validate`](api::config::Config::validate).

mod fate;
mod hold;
pub(crate) mod id;
mod order;
mod words;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use api::config::{self, Config, Controller, Problem, Size};
use api::{Held, Kind, PlannedStep, StepAction};
pub(crate) use hold::CONSENT;

use self::id::{ControllerId, Identified, NamespaceId, ObjectId};
use crate::saved::merge::{Named, Objects, find};

/// The state that a plan depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    /// The configuration, with operators' changes.
    pub(crate) config: Config,
    /// Controllers that hosts are attached to.
    pub(crate) hosts: BTreeSet<String>,
    /// Namespaces of subsystems, by name.
    pub(crate) placed: BTreeMap<String, Placed>,
    /// Sizes of media in bytes, by name.
    pub(crate) sizes: BTreeMap<String, u64>,
    /// The reactor of each medium that only one may serve, once it is served.
    pub(crate) homes: BTreeMap<String, usize>,
    /// The reactor of each subsystem that is served.
    pub(crate) reactors: BTreeMap<String, usize>,
}

/// A namespace of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The medium that it lies on.
    pub(crate) medium: String,
    /// The subsystem that it stays in until it is deleted.
    pub(crate) subsystem: String,
    /// The controllers that have it attached.
    pub(crate) controllers: BTreeSet<String>,
    /// Whether a host created it; it is then in no configuration.
    pub(crate) made_by_host: bool,
}

/// Action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Detach the namespace from a controller.
    Detach(ControllerId),
    /// Delete the object.
    Delete,
    /// Create the object.
    Create,
    /// Change timing parameters of the medium.
    Retune,
    /// Extend the namespace.
    Resize(Size),
    /// Change a tenant; or the tenant, weight or sampling rate of a namespace or controller.
    Assign,
    /// Attach the namespace to a controller.
    Attach(ControllerId),
    /// Move the controller's queues to other reactors.
    Move,
    /// Change the log filter or format.
    Log,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The object.
    pub(crate) id: ObjectId,
    /// Action on the object.
    pub(crate) deed: Deed,
    /// Details, in words.
    pub(crate) detail: String,
}

impl From<&Step> for PlannedStep {
    fn from(step: &Step) -> Self {
        let (action, controller) = match &step.deed {
            Deed::Create => (StepAction::Create, None),
            Deed::Delete => (StepAction::Delete, None),
            Deed::Attach(controller) => (StepAction::Attach, Some(controller.as_str().to_owned())),
            Deed::Detach(controller) => (StepAction::Detach, Some(controller.as_str().to_owned())),
            Deed::Retune | Deed::Resize(_) | Deed::Assign | Deed::Move | Deed::Log => {
                (StepAction::Change, None)
            }
        };
        PlannedStep {
            action,
            kind: step.id.kind(),
            name: step.id.name().to_owned(),
            controller,
            detail: step.detail.clone(),
        }
    }
}

/// Plan of a reload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Steps, in order.
    pub(crate) steps: Vec<Step>,
    /// Deferred changes.
    pub(crate) held: Vec<Held>,
    /// The objects after the reload.
    pub(crate) end: Objects,
    /// Namespaces that recreated controllers get back, by controller.
    pub(crate) kept: BTreeMap<ControllerId, BTreeSet<String>>,
}

/// Plans the steps from `served` to `wanted`. With `consent`, hosts may lose controllers and
/// namespaces.
///
/// # Errors
/// The result, with deferred changes, would be invalid: all problems, and the deferred changes.
pub(crate) fn plan(
    served: &Served,
    wanted: &Objects,
    consent: bool,
) -> Result<Plan, (Vec<Problem>, Vec<Held>)> {
    let now = Objects::of(&served.config);
    let mut aim = wanted.clone();
    let mut held = BTreeMap::new();
    // deferring a change can make other changes possible, or unnecessary, or necessary
    let fates = loop {
        let mut fates = fate::all(served, &aim);
        let more = hold::all(served, &aim, &fates, &held, consent);
        fates.retain(|id, _| !more.contains_key(id));
        let next = hold::what_is_in_the_end(&now, &aim, &more);
        for (id, why) in more {
            held.entry(id).or_insert(why);
        }
        if next == aim {
            break fates;
        }
        aim = next;
    };
    let shown = held
        .into_iter()
        .filter(|(id, _)| differs(id, &now, wanted))
        .map(|(id, why)| Held {
            kind: id.kind(),
            name: id.name().to_owned(),
            why,
        })
        .collect();
    let mut config = served.config.clone();
    aim.clone().put_into(&mut config);
    let problems = config.validate();
    if !problems.is_empty() {
        return Err((problems, shown));
    }
    Ok(Plan {
        steps: order::steps(served, &config, &fates),
        kept: order::kept(served, &config, &fates),
        held: shown,
        end: aim,
    })
}

/// Whether an object differs between the two.
fn differs(id: &ObjectId, now: &Objects, wanted: &Objects) -> bool {
    fn kind<T: Named>(name: &str, now: &[T], wanted: &[T]) -> bool {
        find(now, name) != find(wanted, name)
    }
    match id {
        ObjectId::Media(id) => kind(id.as_str(), &now.media, &wanted.media),
        ObjectId::Namespace(id) => kind(id.as_str(), &now.namespace, &wanted.namespace),
        ObjectId::Tenant(id) => kind(id.as_str(), &now.tenant, &wanted.tenant),
        ObjectId::Controller(id) => kind(id.as_str(), &now.controller, &wanted.controller),
        ObjectId::Log => false,
    }
}

/// Removes the namespaces that controllers are about to lose from their lists, so that other
/// controllers may list them.
pub(crate) fn let_go(config: &mut Config, end: &Objects) {
    for controller in &mut config.controller {
        if let Some(then) = find(&end.controller, &controller.name) {
            let listed = |name: &String| then.namespaces.contains(name);
            controller.namespaces.retain(listed);
        }
    }
}

/// The configuration with which a controller is created. It includes the subsystem-wide keys of all
/// controllers of its subsystem, because the first controller fixes them. [`settle`] restores its
/// own keys later.
pub(crate) fn as_made(mut controller: Controller, end: &Objects) -> Controller {
    for one in &end.controller {
        if one.subsystem() == controller.subsystem() {
            controller.say_too(one);
        }
    }
    controller
}

/// Makes the configuration of each object the requested one, except for steps in `undone`.
pub(crate) fn settle(config: &mut Config, end: &Objects, undone: &[Step]) {
    fn kind<T: Identified>(now: &mut [T], end: &[T], undone: &BTreeSet<ObjectId>) {
        for one in now {
            if let Some(then) = find(end, one.name()).filter(|_| !undone.contains(&one.id())) {
                *one = then.clone();
            }
        }
    }
    let left = &unfinished(undone, end);
    kind(&mut config.media, &end.media, left);
    kind(&mut config.namespace, &end.namespace, left);
    kind(&mut config.tenant, &end.tenant, left);
    kind(&mut config.controller, &end.controller, left);
}

/// The objects that undone steps would have changed, and those that depend on them.
pub(crate) fn unfinished(undone: &[Step], end: &Objects) -> BTreeSet<ObjectId> {
    let mut all: BTreeSet<ObjectId> = undone.iter().map(|step| step.id.clone()).collect();
    all.extend(undone.iter().filter_map(|step| match &step.deed {
        Deed::Attach(controller) | Deed::Detach(controller) => Some(controller.clone().into()),
        _ => None,
    }));
    // a controller that lists a missing namespace would be invalid
    let lists = |controller: &&Controller| {
        let mut names = controller.namespaces.iter();
        names.any(|name| all.contains(&NamespaceId::new(name).into()))
    };
    let listing = end.controller.iter().filter(lists);
    let listing: Vec<ObjectId> = listing.map(Identified::id).collect();
    all.extend(listing);
    // a controller may still have a subsystem-wide key that a missing controller will have
    let is_whole = |subsystem: &str| {
        let mut its = end.controller.iter().filter(|c| c.subsystem() == subsystem);
        its.all(|controller| !all.contains(&controller.id()))
    };
    let beside = end.controller.iter().filter(|c| !is_whole(c.subsystem()));
    let beside: Vec<ObjectId> = beside.map(Identified::id).collect();
    all.extend(beside);
    all
}

/// The current objects, with `pending` ones in their wanted state: these may be deleted at the
/// moment, between deletion and recreation.
pub(crate) fn and_pending(mut now: Objects, pending: &Objects) -> Objects {
    fn kind<T: Named>(now: &mut Vec<T>, pending: &[T]) {
        for one in pending {
            match now.iter_mut().find(|other| other.name() == one.name()) {
                Some(other) => *other = one.clone(),
                None => now.push(one.clone()),
            }
        }
    }
    kind(&mut now.media, &pending.media);
    kind(&mut now.namespace, &pending.namespace);
    kind(&mut now.tenant, &pending.tenant);
    kind(&mut now.controller, &pending.controller);
    now
}

/// The objects that existed `before`, are wanted in the `end`, and have `undone` steps.
pub(crate) fn pending(before: &Objects, end: &Objects, undone: &[Step]) -> Objects {
    fn kind<T: Identified>(before: &[T], end: &[T], undone: &BTreeSet<ObjectId>) -> Vec<T> {
        let both = end.iter().filter(|one| {
            let is_undone = undone.contains(&one.id());
            is_undone && find(before, one.name()).is_some()
        });
        both.cloned().collect()
    }
    let undone = &unfinished(undone, end);
    Objects {
        media: kind(&before.media, &end.media, undone),
        namespace: kind(&before.namespace, &end.namespace, undone),
        tenant: kind(&before.tenant, &end.tenant, undone),
        controller: kind(&before.controller, &end.controller, undone),
    }
}

/// The objects to compare the next reload with. An object that is now as `wanted` counts as in the
/// file; any other counts as it did `then`, so that the next reload finds the remaining work.
pub(crate) fn taken_over(
    then: &Objects,
    file: &Objects,
    wanted: &Objects,
    now: &Objects,
) -> Objects {
    fn kind<T: Named>(then: &[T], file: &[T], wanted: &[T], now: &[T]) -> Vec<T> {
        let gone = then.iter().filter(|one| find(file, one.name()).is_none());
        let names = file.iter().chain(gone).map(Named::name);
        let taken = names.filter_map(|name| {
            if find(wanted, name) == find(now, name) {
                find(file, name)
            } else {
                find(then, name)
            }
        });
        taken.cloned().collect()
    }
    Objects {
        media: kind(&then.media, &file.media, &wanted.media, &now.media),
        namespace: kind(
            &then.namespace,
            &file.namespace,
            &wanted.namespace,
            &now.namespace,
        ),
        tenant: kind(&then.tenant, &file.tenant, &wanted.tenant, &now.tenant),
        controller: kind(
            &then.controller,
            &file.controller,
            &wanted.controller,
            &now.controller,
        ),
    }
}

/// Keys of the file that take effect only at the next start.
pub(crate) fn needs_restart(running: &Config, file: &Config) -> Vec<&'static str> {
    let with_one = |config: &Config| {
        if config.reactor.is_empty() {
            vec![config::Reactor::default()]
        } else {
            config.reactor.clone()
        }
    };
    [
        ("state_dir", running.state_dir != file.state_dir),
        ("control", running.control != file.control),
        ("huge_pages", running.huge_pages != file.huge_pages),
        ("reactor", with_one(running) != with_one(file)),
    ]
    .into_iter()
    .filter_map(|(key, differs)| differs.then_some(key))
    .collect()
}
