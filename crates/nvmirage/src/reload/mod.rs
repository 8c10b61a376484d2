//! A configuration that is read again: what is to be done so that what is served becomes what it
//! says.
//!
//! [`plan`] compares what is served with what is to be, and says in which order it can become so;
//! it touches nothing, so that a plan can be shown first. `supervisor::reload` looks at what is
//! served and carries a plan out.
//!
//! - Nothing is deleted before those who use it, and nothing is made before what it uses.
//! - What cannot be now, as a host would lose its drive or memory its bytes, is held back whole,
//!   with all that hangs on it: it stays as it is, and the next reload looks at it again.
//! - Each configuration on the way is one that
//!   [`Config::validate`](crate::config::Config::validate) accepts.

mod fate;
mod hold;
mod order;
mod words;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use hold::CONSENT;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::tenant::Tenant;
use crate::config::{self, Config, Controller, Medium, Namespace, Problem, Size};
use crate::saved::merge::{Named, Objects, find};

/// Kind of an object.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Medium.
    Media,
    /// Namespace.
    Namespace,
    /// Tenant.
    Tenant,
    /// Controller.
    Controller,
    /// The log.
    Log,
}

impl Kind {
    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Media => Medium::KIND,
            Kind::Namespace => Namespace::KIND,
            Kind::Tenant => Tenant::KIND,
            Kind::Controller => Controller::KIND,
            Kind::Log => "log",
        }
    }
}

/// An object: its kind and its name.
pub(crate) type Id = (Kind, String);

/// What is served, as far as a plan depends on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    /// As operators have said it.
    pub(crate) config: Config,
    /// Controllers that hosts are attached to.
    pub(crate) hosts: BTreeSet<String>,
    /// Namespaces of subsystems, by name.
    pub(crate) placed: BTreeMap<String, Placed>,
    /// How large media are, in bytes, by name.
    pub(crate) sizes: BTreeMap<String, u64>,
    /// The reactor of each medium that only one may serve, once it does.
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
    /// No configuration has it.
    pub(crate) made_by_host: bool,
}

/// What is done in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// The namespace is taken from a controller.
    Detach(String),
    /// The object is deleted.
    Delete,
    /// The object is made.
    Create,
    /// Parameters of a medium's timing change.
    Retune,
    /// The namespace is larger from now on.
    Resize(Size),
    /// It is another tenant's, or has another weight there; of another part of a controller's
    /// commands the times are taken; a tenant is another one.
    Assign,
    /// The namespace is given to a controller.
    Attach(String),
    /// The controller's queues live on other reactors.
    Move,
    /// Other lines are logged.
    Log,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The object.
    pub(crate) id: Id,
    /// What is done to it.
    pub(crate) deed: Deed,
    /// In words.
    pub(crate) detail: String,
}

/// Object whose change is deferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Held {
    /// Kind of the object.
    pub(crate) kind: Kind,
    /// Name of the object.
    pub(crate) name: String,
    /// Reason, and the next step.
    pub(crate) why: String,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// One after the other.
    pub(crate) steps: Vec<Step>,
    /// What stays as it is.
    pub(crate) held: Vec<Held>,
    /// What there is in the end.
    pub(crate) end: Objects,
    /// The namespaces that controllers have which are made anew, and are to have again.
    pub(crate) kept: BTreeMap<String, BTreeSet<String>>,
}

/// Plans how what is `served` becomes what is `wanted`. With `consent` hosts lose what stands in
/// the way.
///
/// # Errors
/// What is held back and the rest do not fit together: everything that is wrong with that.
pub(crate) fn plan(
    served: &Served,
    wanted: &Objects,
    consent: bool,
) -> Result<Plan, (Vec<Problem>, Vec<Held>)> {
    let now = Objects::of(&served.config);
    let mut aim = wanted.clone();
    let mut held = BTreeMap::new();
    // what is held back makes other things possible, or needless
    let fates = loop {
        let mut fates = fate::all(served, &aim);
        let more = hold::all(served, &aim, &fates, consent);
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
        .map(|((kind, name), why)| Held { kind, name, why })
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

/// Whether an object is to become another one.
fn differs((kind, name): &Id, now: &Objects, wanted: &Objects) -> bool {
    match kind {
        Kind::Media => find(&now.media, name) != find(&wanted.media, name),
        Kind::Namespace => find(&now.namespace, name) != find(&wanted.namespace, name),
        Kind::Tenant => find(&now.tenant, name) != find(&wanted.tenant, name),
        Kind::Controller => find(&now.controller, name) != find(&wanted.controller, name),
        Kind::Log => false,
    }
}

/// Controllers that go on list no more what they are to let go of, so that others may list it.
pub(crate) fn let_go(config: &mut Config, end: &Objects) {
    for controller in &mut config.controller {
        if let Some(then) = find(&end.controller, &controller.name) {
            let listed = |name: &String| then.namespaces.contains(name);
            controller.namespaces.retain(listed);
        }
    }
}

/// A controller as it is made: it says of its subsystem all that its controllers will say together,
/// as the first of them decides it for the others. In the end each says its own again ([`settle`]).
pub(crate) fn as_made(mut controller: Controller, end: &Objects) -> Controller {
    for one in &end.controller {
        if one.subsystem() == controller.subsystem() {
            controller.say_too(one);
        }
    }
    controller
}

/// What is served is what was said of it again, to the letter, but for what is `undone`.
pub(crate) fn settle(config: &mut Config, end: &Objects, undone: &[Step]) {
    fn kind<T: Named>(kind: Kind, now: &mut [T], end: &[T], undone: &BTreeSet<Id>) {
        for one in now {
            let id = (kind, one.name().to_owned());
            if let Some(then) = find(end, one.name()).filter(|_| !undone.contains(&id)) {
                *one = then.clone();
            }
        }
    }
    let left = &unfinished(undone, end);
    kind(Kind::Media, &mut config.media, &end.media, left);
    kind(Kind::Namespace, &mut config.namespace, &end.namespace, left);
    kind(Kind::Tenant, &mut config.tenant, &end.tenant, left);
    kind(
        Kind::Controller,
        &mut config.controller,
        &end.controller,
        left,
    );
}

/// The objects that steps would have changed, and those that cannot be what they are in the `end`
/// without them.
pub(crate) fn unfinished(undone: &[Step], end: &Objects) -> BTreeSet<Id> {
    let mut all: BTreeSet<Id> = undone.iter().map(|step| step.id.clone()).collect();
    all.extend(undone.iter().filter_map(|step| match &step.deed {
        Deed::Attach(controller) | Deed::Detach(controller) => {
            Some((Kind::Controller, controller.clone()))
        }
        _ => None,
    }));
    let id = |controller: &Controller| (Kind::Controller, controller.name.clone());
    // whoever lists what is not there is none that could be
    let lists = |controller: &&Controller| {
        let mut names = controller.namespaces.iter();
        names.any(|name| all.contains(&(Kind::Namespace, name.clone())))
    };
    let listing: Vec<Id> = end.controller.iter().filter(lists).map(id).collect();
    all.extend(listing);
    // one may say of its whole subsystem what another will say that is not there yet
    let is_whole = |subsystem: &str| {
        let mut its = end.controller.iter().filter(|c| c.subsystem() == subsystem);
        its.all(|controller| !all.contains(&id(controller)))
    };
    let beside = end.controller.iter().filter(|c| !is_whole(c.subsystem()));
    let beside: Vec<Id> = beside.map(id).collect();
    all.extend(beside);
    all
}

/// What there is, but that what is `pending` is told as it is to be: it may be gone for the moment,
/// to be made anew.
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

/// What was there `before`, will be in the `end`, and has steps that are `undone`.
pub(crate) fn pending(before: &Objects, end: &Objects, undone: &[Step]) -> Objects {
    fn kind<T: Named>(kind: Kind, before: &[T], end: &[T], undone: &BTreeSet<Id>) -> Vec<T> {
        let both = end.iter().filter(|one| {
            let is_undone = undone.contains(&(kind, one.name().to_owned()));
            is_undone && find(before, one.name()).is_some()
        });
        both.cloned().collect()
    }
    let undone = &unfinished(undone, end);
    Objects {
        media: kind(Kind::Media, &before.media, &end.media, undone),
        namespace: kind(Kind::Namespace, &before.namespace, &end.namespace, undone),
        tenant: kind(Kind::Tenant, &before.tenant, &end.tenant, undone),
        controller: kind(
            Kind::Controller,
            &before.controller,
            &end.controller,
            undone,
        ),
    }
}

/// What a configuration is taken to have had, once as much of it is served as is `now`: of an
/// object that is as it was `wanted` what the file has, of any other what it had then, so that the
/// next reload sees what is left to do.
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

/// What a configuration says that counts at the next start only: the key, and what to do.
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
