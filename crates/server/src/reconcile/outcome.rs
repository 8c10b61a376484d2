//! The outcome of a reload for each object.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use api::config::object::{Object, When};
use api::config::{Config, Controller, Medium, Namespace, Range, Size};
use model::parameter::Change;

use super::id::{Identified, MediumId, ObjectId};
use super::inventory::{Objects, find};
use super::{Actual, words};

/// Outcome of a reload for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It stays as it is.
    Same,
    /// It is created.
    Create,
    /// It is deleted.
    Delete,
    /// It changes while hosts use it.
    Change,
    /// It is deleted and recreated, for this reason.
    Recreate(String),
}

impl Outcome {
    /// Whether the current object is deleted.
    pub(super) fn ends(&self) -> bool {
        matches!(self, Outcome::Delete | Outcome::Recreate(_))
    }

    /// Whether the wanted object must be created.
    pub(super) fn begins(&self) -> bool {
        matches!(self, Outcome::Create | Outcome::Recreate(_))
    }
}

/// The outcome of every object that is served or wanted.
pub(super) fn all(served: &Actual, wanted: &Objects) -> BTreeMap<ObjectId, Outcome> {
    let mut target = served.config.clone();
    wanted.clone().put_into(&mut target);
    let now = &served.config;
    let mut outcomes = BTreeMap::new();
    let media = &mut |a: &Medium, b: &Medium| medium(a, b, served.sizes.get(&a.name).copied());
    of_kind(&now.media, &wanted.media, &mut outcomes, media);
    let tenants = &mut |_: &_, _: &_| Outcome::Change;
    of_kind(&now.tenant, &wanted.tenant, &mut outcomes, tenants);
    for one in &now.namespace {
        let outcome = match find(&wanted.namespace, &one.name) {
            Some(other) => namespace(one, other, served, &target, &outcomes),
            None => Outcome::Delete,
        };
        outcomes.insert(one.id(), outcome);
    }
    for one in &wanted.namespace {
        outcomes.entry(one.id()).or_insert(Outcome::Create);
    }
    let controllers = &mut |a: &Controller, b: &Controller| controller(a, b, served, &target);
    of_kind(
        &now.controller,
        &wanted.controller,
        &mut outcomes,
        controllers,
    );
    subsystems(served, &target, &mut outcomes);
    outcomes
}

fn of_kind<T: Identified>(
    now: &[T],
    wanted: &[T],
    outcomes: &mut BTreeMap<ObjectId, Outcome>,
    change: &mut dyn FnMut(&T, &T) -> Outcome,
) {
    for one in now {
        let outcome = match find(wanted, one.name()) {
            None => Outcome::Delete,
            Some(other) if one == other => Outcome::Same,
            Some(other) => change(one, other),
        };
        outcomes.insert(one.id(), outcome);
    }
    for one in wanted.iter().filter(|one| find(now, one.name()).is_none()) {
        outcomes.insert(one.id(), Outcome::Create);
    }
}

fn medium(now: &Medium, wanted: &Medium, size: Option<u64>) -> Outcome {
    let recreate = || Outcome::Recreate(format!("{} cannot change", words::names(now, wanted)));
    let mut rest = wanted.clone();
    rest.timing.clone_from(&now.timing);
    let (Some(a), Some(b), Some(size)) = (&now.timing, &wanted.timing, size) else {
        return recreate();
    };
    let files =
        (&a.state, &a.state_interval, &a.record) == (&b.state, &b.state_interval, &b.record);
    let is_as_early = a.transport_allowance_ns() == b.transport_allowance_ns();
    if rest != *now || !files || !is_as_early || a.initial() != b.initial() {
        return recreate();
    }
    let (Ok(a), Ok(b)) = (a.parameters(size), b.parameters(size)) else {
        return recreate();
    };
    if a.kind() != b.kind() {
        return recreate();
    }
    let differ = |p: &&model::parameter::Parameter| p.get(&a) != p.get(&b);
    let mut fixed = a.kind().parameters().filter(differ);
    match fixed.find(|parameter| parameter.change != Change::Live) {
        Some(parameter) => Outcome::Recreate(format!(
            "timing.{} cannot change while the medium is open",
            parameter.name
        )),
        None => Outcome::Change,
    }
}

/// The range of a namespace on a medium of that size; `None` if a partition determines it.
pub(super) fn extent(namespace: &Namespace, size: Option<u64>) -> Option<Range> {
    match (&namespace.partition, namespace.range) {
        (Some(_), _) => None,
        (None, Some(range)) => Some(range),
        (None, None) => size.map(|size| Range {
            start: Size(0),
            end: Size(size),
        }),
    }
}

/// How the range of a namespace changes.
pub(super) enum Growth {
    Same,
    Grows(Range),
    Shrinks(Range),
    /// It starts elsewhere, or its location is unknown.
    Moves,
}

pub(super) fn growth(now: &Namespace, wanted: &Namespace, served: &Actual) -> Growth {
    let size = served.sizes.get(&now.media).copied();
    if now.range == wanted.range {
        return Growth::Same;
    }
    match (extent(now, size), extent(wanted, size)) {
        (Some(a), Some(b)) if a == b => Growth::Same,
        (Some(a), Some(b)) if a.start == b.start && a.end < b.end => Growth::Grows(b),
        (Some(a), Some(b)) if a.start == b.start => Growth::Shrinks(b),
        _ => Growth::Moves,
    }
}

fn namespace(
    now: &Namespace,
    wanted: &Namespace,
    served: &Actual,
    target: &Config,
    outcomes: &BTreeMap<ObjectId, Outcome>,
) -> Outcome {
    let medium = outcomes.get(&MediumId::new(&now.media).into());
    if medium.is_some_and(|outcome| matches!(outcome, Outcome::Recreate(_))) {
        return Outcome::Recreate(format!("medium {} is recreated", now.media));
    }
    let placed = served.placed.get(&now.name);
    if let (Some(placed), Some(home)) = (placed, home(target, wanted))
        && placed.subsystem != home
    {
        return Outcome::Recreate(format!("it moves to subsystem {home}"));
    }
    if now == wanted {
        return Outcome::Same;
    }
    if let Some(why) = fixed(now, wanted) {
        return Outcome::Recreate(why);
    }
    match growth(now, wanted, served) {
        Growth::Same => Outcome::Change,
        Growth::Grows(_) if placed.is_some() => Outcome::Change,
        _ => Outcome::Recreate("range can only be extended".into()),
    }
}

/// The keys that differ and cannot change while the object is served, if any.
fn fixed<T: Object>(now: &T, wanted: &T) -> Option<String> {
    let near = wanted.with(now, When::Live).with(now, When::Step);
    (near != *now).then(|| format!("{} cannot change", words::names(now, &near)))
}

/// The subsystem of a namespace in the wanted configuration, if any.
pub(super) fn home<'a>(target: &'a Config, namespace: &Namespace) -> Option<&'a str> {
    let mut controllers = target.controller.iter();
    let user = controllers.find(|c| c.namespaces.contains(&namespace.name));
    let user = user.map(Controller::subsystem);
    user.or_else(|| target.pool_owner(&namespace.media))
}

fn controller(now: &Controller, wanted: &Controller, served: &Actual, target: &Config) -> Outcome {
    // `wide` compares the keys that a subsystem's controllers state together
    let wanted = Controller {
        reactor: now.reactor,
        pool: now.pool.clone(),
        serial: now.serial.clone(),
        subnqn: now.subnqn.clone(),
        ..wanted.clone()
    };
    if let Some(why) = fixed(now, &wanted) {
        return Outcome::Recreate(why);
    }
    match wide(now.subsystem(), served, target) {
        Some(why) => Outcome::Recreate(why),
        None => Outcome::Change,
    }
}

/// Recreates all controllers of a subsystem whose common properties change: these are fixed while a
/// controller is served.
fn subsystems(served: &Actual, target: &Config, outcomes: &mut BTreeMap<ObjectId, Outcome>) {
    for name in served.config.subsystems() {
        let recreated = |medium: &&str| {
            let outcome = outcomes.get(&MediumId::new(medium).into());
            outcome.is_some_and(Outcome::ends)
        };
        let pool = served.config.pool_of(name).into_iter().find(recreated);
        let of_pool = pool.map(|medium| format!("medium {medium} of its pool is recreated"));
        let Some(why) = of_pool.or_else(|| wide(name, served, target)) else {
            continue;
        };
        for controller in served.config.controllers_of(name) {
            let outcome = outcomes.get_mut(&controller.id());
            if let Some(outcome) =
                outcome.filter(|outcome| matches!(outcome, Outcome::Same | Outcome::Change))
            {
                *outcome = Outcome::Recreate(why.clone());
            }
        }
    }
}

/// Values of a subsystem that its controllers state, by key: fixed while one of them is served.
fn said<'a>(
    controllers: impl IntoIterator<Item = &'a Controller>,
) -> BTreeSet<(&'static str, &'a str)> {
    let of = |one: &'a Controller| {
        let pool = one.pool.iter().map(|medium| ("pool", medium.as_str()));
        let serial = one.serial.iter().map(|serial| ("serial", serial.as_str()));
        let subnqn = one.subnqn.iter().map(|subnqn| ("subnqn", subnqn.as_str()));
        pool.chain(serial).chain(subnqn)
    };
    controllers.into_iter().flat_map(of).collect()
}

/// Whether a controller names another reactor than the one that serves its subsystem.
fn is_elsewhere(controller: &Controller, served: &Actual) -> bool {
    let lives = served.reactors.get(controller.subsystem());
    lives.is_some() && controller.reactor.is_some() && controller.reactor.as_ref() != lives
}

/// The reason why a subsystem cannot change to its wanted state while a controller of it is served.
pub(super) fn wide(subsystem: &str, served: &Actual, target: &Config) -> Option<String> {
    let now = || served.config.controllers_of(subsystem);
    let then = || target.controllers_of(subsystem);
    if now().next().is_none() || then().next().is_none() {
        return None;
    }
    let (said_now, said_then) = (said(now()), said(then()));
    let mut differs = said_now.symmetric_difference(&said_then);
    let key = match differs.next() {
        Some((key, _)) => key,
        None if then().any(|one| is_elsewhere(one, served)) => "reactor",
        None => return None,
    };
    Some(format!(
        "{key} cannot change while a controller of subsystem {subsystem} is served"
    ))
}

/// A controller because of which [`wide`] has a reason: one that says something new, else the one
/// that says most of what would no longer be said, by name among equals. Others can join or leave
/// the subsystem.
pub(super) fn wide_by<'a>(
    subsystem: &'a str,
    served: &'a Actual,
    target: &'a Config,
) -> Option<&'a Controller> {
    let now = || served.config.controllers_of(subsystem);
    let then = || target.controllers_of(subsystem);
    let (said_now, said_then) = (said(now()), said(then()));
    let is_new =
        |one: &&Controller| !said([*one]).is_subset(&said_now) || is_elsewhere(one, served);
    let missed = |one: &Controller| said([one]).difference(&said_then).count();
    let most = || {
        let all = now().filter(|one| missed(one) > 0);
        all.min_by_key(|one| (Reverse(missed(one)), &one.name))
    };
    then().find(is_new).or_else(most)
}
