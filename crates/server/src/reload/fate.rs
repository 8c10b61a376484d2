//! The outcome of a reload for each object.

use std::collections::BTreeMap;

use api::config::object::{Object, When};
use api::config::{Config, Controller, Medium, Namespace, Range, Size};
use model::parameter::Change;

use super::id::{Identified, MediumId, ObjectId};
use super::{Served, words};
use crate::saved::merge::{Objects, find};

/// Outcome of a reload for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays as it is.
    Same,
    /// It is created.
    Create,
    /// It is deleted.
    Delete,
    /// It changes while hosts use it.
    Change,
    /// It is deleted and recreated, for this reason.
    Remake(String),
}

impl Fate {
    /// Whether the current object is deleted.
    pub(super) fn ends(&self) -> bool {
        matches!(self, Fate::Delete | Fate::Remake(_))
    }

    /// Whether the wanted object must be created.
    pub(super) fn begins(&self) -> bool {
        matches!(self, Fate::Create | Fate::Remake(_))
    }
}

/// The outcome of every object that is served or wanted.
pub(super) fn all(served: &Served, wanted: &Objects) -> BTreeMap<ObjectId, Fate> {
    let mut target = served.config.clone();
    wanted.clone().put_into(&mut target);
    let now = &served.config;
    let mut fates = BTreeMap::new();
    let media = &mut |a: &Medium, b: &Medium| medium(a, b, served.sizes.get(&a.name).copied());
    of_kind(&now.media, &wanted.media, &mut fates, media);
    let tenants = &mut |_: &_, _: &_| Fate::Change;
    of_kind(&now.tenant, &wanted.tenant, &mut fates, tenants);
    for one in &now.namespace {
        let fate = match find(&wanted.namespace, &one.name) {
            Some(other) => namespace(one, other, served, &target, &fates),
            None => Fate::Delete,
        };
        fates.insert(one.id(), fate);
    }
    for one in &wanted.namespace {
        fates.entry(one.id()).or_insert(Fate::Create);
    }
    let controllers = &mut |a: &Controller, b: &Controller| controller(a, b, served, &target);
    of_kind(&now.controller, &wanted.controller, &mut fates, controllers);
    subsystems(served, &target, &mut fates);
    fates
}

fn of_kind<T: Identified>(
    now: &[T],
    wanted: &[T],
    fates: &mut BTreeMap<ObjectId, Fate>,
    change: &mut dyn FnMut(&T, &T) -> Fate,
) {
    for one in now {
        let fate = match find(wanted, one.name()) {
            None => Fate::Delete,
            Some(other) if one == other => Fate::Same,
            Some(other) => change(one, other),
        };
        fates.insert(one.id(), fate);
    }
    for one in wanted.iter().filter(|one| find(now, one.name()).is_none()) {
        fates.insert(one.id(), Fate::Create);
    }
}

fn medium(now: &Medium, wanted: &Medium, size: Option<u64>) -> Fate {
    let remake = || Fate::Remake(format!("{} cannot change", words::names(now, wanted)));
    let mut rest = wanted.clone();
    rest.timing.clone_from(&now.timing);
    let (Some(a), Some(b), Some(size)) = (&now.timing, &wanted.timing, size) else {
        return remake();
    };
    let files =
        (&a.state, &a.state_interval, &a.record) == (&b.state, &b.state_interval, &b.record);
    if rest != *now || !files {
        return remake();
    }
    let (Ok(a), Ok(b)) = (a.parameters(size), b.parameters(size)) else {
        return remake();
    };
    if a.kind() != b.kind() {
        return remake();
    }
    let differ = |p: &&model::parameter::Parameter| p.get(&a) != p.get(&b);
    let mut fixed = a.kind().parameters().filter(differ);
    match fixed.find(|parameter| parameter.change != Change::Live) {
        Some(parameter) => Fate::Remake(format!(
            "timing.{} cannot change while the medium is open",
            parameter.name
        )),
        None => Fate::Change,
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

pub(super) fn growth(now: &Namespace, wanted: &Namespace, served: &Served) -> Growth {
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
    served: &Served,
    target: &Config,
    fates: &BTreeMap<ObjectId, Fate>,
) -> Fate {
    let medium = fates.get(&MediumId::new(&now.media).into());
    if medium.is_some_and(|fate| matches!(fate, Fate::Remake(_))) {
        return Fate::Remake(format!("media {} is recreated", now.media));
    }
    let placed = served.placed.get(&now.name);
    if let (Some(placed), Some(home)) = (placed, home(target, wanted))
        && placed.subsystem != home
    {
        return Fate::Remake(format!("it moves to subsystem {home}"));
    }
    if now == wanted {
        return Fate::Same;
    }
    if let Some(why) = fixed(now, wanted) {
        return Fate::Remake(why);
    }
    match growth(now, wanted, served) {
        Growth::Same => Fate::Change,
        Growth::Grows(_) if placed.is_some() => Fate::Change,
        _ => Fate::Remake("range can only be extended".into()),
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

fn controller(now: &Controller, wanted: &Controller, served: &Served, target: &Config) -> Fate {
    // `wide` compares the keys that a subsystem's controllers state together
    let wanted = Controller {
        reactor: now.reactor,
        pool: now.pool.clone(),
        serial: now.serial.clone(),
        subnqn: now.subnqn.clone(),
        ..wanted.clone()
    };
    if let Some(why) = fixed(now, &wanted) {
        return Fate::Remake(why);
    }
    match wide(now.subsystem(), served, target) {
        Some(why) => Fate::Remake(why),
        None => Fate::Change,
    }
}

/// Recreates all controllers of a subsystem whose common properties change: these are fixed while a
/// controller is served.
fn subsystems(served: &Served, target: &Config, fates: &mut BTreeMap<ObjectId, Fate>) {
    for name in served.config.subsystems() {
        let remade = |medium: &&str| {
            let fate = fates.get(&MediumId::new(medium).into());
            fate.is_some_and(Fate::ends)
        };
        let pool = served.config.pool_of(name).into_iter().find(remade);
        let of_pool = pool.map(|medium| format!("media {medium} of its pool is recreated"));
        let Some(why) = of_pool.or_else(|| wide(name, served, target)) else {
            continue;
        };
        for controller in served.config.controllers_of(name) {
            let fate = fates.get_mut(&controller.id());
            if let Some(fate) = fate.filter(|fate| matches!(fate, Fate::Same | Fate::Change)) {
                *fate = Fate::Remake(why.clone());
            }
        }
    }
}

/// The reason why a subsystem cannot change to its wanted state while a controller of it is served.
pub(super) fn wide(subsystem: &str, served: &Served, target: &Config) -> Option<String> {
    let now = &served.config;
    let is_there = |config: &Config| config.controllers_of(subsystem).next().is_some();
    if !is_there(now) || !is_there(target) {
        return None;
    }
    let word = |config: &Config, of: fn(&Controller) -> Option<&String>| {
        config.controllers_of(subsystem).find_map(of).cloned()
    };
    let pool = |config: &Config| {
        let mut pool: Vec<String> = config
            .pool_of(subsystem)
            .into_iter()
            .map(str::to_owned)
            .collect();
        pool.sort();
        pool
    };
    let serial: fn(&Controller) -> Option<&String> = |c| c.serial.as_ref();
    let subnqn: fn(&Controller) -> Option<&String> = |c| c.subnqn.as_ref();
    let reactor = target.controllers_of(subsystem).find_map(|c| c.reactor);
    let lives = served.reactors.get(subsystem).copied();
    let differs = [
        ("pool", pool(now) != pool(target)),
        ("serial", word(now, serial) != word(target, serial)),
        ("subnqn", word(now, subnqn) != word(target, subnqn)),
        (
            "reactor",
            lives.is_some() && reactor.is_some() && reactor != lives,
        ),
    ];
    let key = differs.iter().find(|(_, differs)| *differs)?.0;
    Some(format!(
        "{key} cannot change while a controller of subsystem {subsystem} is served"
    ))
}
