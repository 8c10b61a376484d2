//! From what is served to what is wanted.
//!
//! A start, a restart, a reload of the configuration and a request of an operator are the same act.
//! [`plan`] compares the [`Actual`] state with the wanted objects and computes the [`step::Step`]s
//! between them, in order. It changes nothing, so a plan can be shown first. The supervisor
//! collects the actual state and carries out steps. It has one function for each kind of step, for
//! a start, a reload and a request alike: a start plans from nothing, and a request is one step.
//!
//! - An object is deleted after its users, and created after the objects it uses.
//! - A change that would take a drive from a host, or data from memory, is deferred together with
//!   all changes that depend on it; the next plan tries again.
//! - Every intermediate configuration passes [`Config::validate`](api::config::Config::validate).
//! - Objects that a plan takes away for a time are [`Unfinished`] until they are given back, also
//!   by a restart.
//!
//! The wanted objects come from a [`merge`] of three versions of every object.

mod hold;
pub(crate) mod id;
pub(crate) mod inventory;
pub(crate) mod merge;
mod order;
mod outcome;
pub(crate) mod step;
pub(crate) mod unfinished;
mod words;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use api::Held;
use api::config::{self, Config, Controller, Problem};
pub(crate) use hold::CONSENT;

use self::id::{Identified, ObjectId};
use self::inventory::{Named, Objects, find};
use self::step::{Planned, Step};
use self::unfinished::Unfinished;

/// The state that a plan depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Actual {
    /// The configuration that is served, with operators' changes.
    pub(crate) config: Config,
    /// Aim of the last plan. It differs from what is served if the plan did not end.
    pub(crate) desired: Objects,
    /// Objects that the last plan has taken away and not given back.
    pub(crate) unfinished: Unfinished,
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

/// A plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Steps, in order.
    pub(crate) steps: Vec<Planned>,
    /// Deferred changes.
    pub(crate) held: Vec<Held>,
    /// The objects after the last step.
    pub(crate) end: Objects,
    /// Objects that the steps take away until a later step gives them back.
    pub(crate) unfinished: Unfinished,
}

/// Plans the steps from `served` to `wanted`. With `consent`, hosts may lose controllers and
/// namespaces.
///
/// # Errors
/// The result, with deferred changes, would be invalid: all problems, and the deferred changes.
pub(crate) fn plan(
    served: &Actual,
    wanted: &Objects,
    consent: bool,
) -> Result<Plan, (Vec<Problem>, Vec<Held>)> {
    let now = Objects::of(&served.config);
    let mut aim = wanted.clone();
    let mut held = BTreeMap::new();
    // deferring a change can make other changes possible, or unnecessary, or necessary
    let outcomes = loop {
        let mut outcomes = outcome::all(served, &aim);
        let more = hold::all(served, &aim, &outcomes, &held, consent);
        outcomes.retain(|id, _| !more.contains_key(id));
        let next = hold::what_is_in_the_end(&now, &aim, &more);
        for (id, why) in more {
            held.entry(id).or_insert(why);
        }
        if next == aim {
            break outcomes;
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
    let (steps, unfinished) = order::steps(served, &config, &outcomes);
    Ok(Plan {
        steps,
        held: shown,
        end: aim,
        unfinished,
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
        ObjectId::Hosts | ObjectId::Log => false,
    }
}

/// Removes the namespaces that controllers have just lost from their lists, so that other
/// controllers may list them. A controller that is deleted keeps its list: what it had is known by
/// it.
pub(crate) fn shorten_lists(config: &mut Config, plan: &Plan) {
    for controller in &mut config.controller {
        let delete = Step::Delete(controller.id());
        let stays = plan.steps.iter().all(|planned| planned.step != delete);
        let then = find(&plan.end.controller, &controller.name);
        if let Some(then) = then.filter(|_| stays) {
            let listed = |name: &String| then.namespaces.contains(name);
            controller.namespaces.retain(listed);
        }
    }
}

/// The configuration with which a controller is created. It includes the subsystem-wide keys of all
/// controllers of its subsystem, because the first controller fixes them. Once all controllers are
/// served, each has its own text again.
pub(crate) fn as_created(mut controller: Controller, end: &Objects) -> Controller {
    for one in &end.controller {
        if one.subsystem() == controller.subsystem() {
            controller.say_too(one);
        }
    }
    controller
}

/// The file's objects to compare the next reload with. A deferred object counts as it did `then`,
/// so that the next reload finds what remains to be done.
pub(crate) fn taken_over(then: &Objects, file: &Objects, held: &[Held]) -> Objects {
    fn kind<T: Named>(then: &[T], file: &[T], held: &[Held]) -> Vec<T> {
        let is_held = |name: &str| {
            let mut held = held.iter();
            held.any(|one| (one.kind.name(), one.name.as_str()) == (T::KIND, name))
        };
        let gone = then.iter().filter(|one| find(file, one.name()).is_none());
        let names = file.iter().chain(gone).map(Named::name);
        let taken = names.filter_map(|name| find(if is_held(name) { then } else { file }, name));
        taken.cloned().collect()
    }
    Objects {
        media: kind(&then.media, &file.media, held),
        namespace: kind(&then.namespace, &file.namespace, held),
        tenant: kind(&then.tenant, &file.tenant, held),
        controller: kind(&then.controller, &file.controller, held),
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
        ("survival", running.survival != file.survival),
        ("reactor", with_one(running) != with_one(file)),
    ]
    .into_iter()
    .filter_map(|(key, differs)| differs.then_some(key))
    .collect()
}
