//! Controllers that share a subsystem: what they have in common, and its validation.

use std::fmt::Display;

use controller::config::DEFAULT_NAMESPACE_LIMIT;
use controller::subsystem::MAX_CONTROLLERS;

use super::validate::{Place, list};
use super::{Config, Controller, Medium, MediumKind, Namespace, Problem};

/// Most namespaces of a subsystem.
const MAX_NAMESPACES: usize = DEFAULT_NAMESPACE_LIMIT as usize;

impl Config {
    /// The names of all subsystems, in the order of first mention.
    pub fn subsystems(&self) -> Vec<&str> {
        distinct(self.controller.iter().map(Controller::subsystem))
    }

    /// The controllers of a subsystem.
    pub fn controllers_of<'a>(&'a self, subsystem: &str) -> impl Iterator<Item = &'a Controller> {
        let controllers = self.controller.iter();
        controllers.filter(move |c| c.subsystem() == subsystem)
    }

    /// The media in whose space hosts of a subsystem may create namespaces.
    pub fn pool_of(&self, subsystem: &str) -> Vec<&str> {
        let controllers = self.controllers_of(subsystem);
        distinct(controllers.flat_map(|c| c.pool.iter().map(String::as_str)))
    }

    /// The subsystem that has a medium in its pool.
    pub fn pool_owner(&self, medium: &str) -> Option<&str> {
        let mut controllers = self.controller.iter();
        let owner = controllers.find(|c| c.pool.iter().any(|m| m == medium));
        owner.map(Controller::subsystem)
    }

    /// The namespaces of a subsystem in the order of their identifiers: those that its controllers
    /// name, then those that lie on its pool.
    pub fn namespaces_of(&self, subsystem: &str) -> Vec<&Namespace> {
        let controllers = self.controllers_of(subsystem);
        let named = controllers.flat_map(|c| c.namespaces.iter().map(String::as_str));
        let pool = self.pool_of(subsystem);
        let in_pool = self.namespace.iter();
        let in_pool = in_pool.filter(|n| pool.contains(&n.media.as_str()));
        let names = distinct(named.chain(in_pool.map(|n| n.name.as_str())));
        let find = |name: &str| self.namespace.iter().find(|n| n.name == name);
        names.into_iter().filter_map(find).collect()
    }

    /// Removes a controller. Another controller of its subsystem takes over the keys that apply to
    /// the whole subsystem, because these stay in force until the last controller is removed.
    pub fn remove_controller(&mut self, name: &str) -> Option<Controller> {
        let at = self.controller.iter().position(|c| c.name == name)?;
        let gone = self.controller.remove(at);
        let mut stay = self.controller.iter_mut();
        if let Some(heir) = stay.find(|c| c.subsystem() == gone.subsystem()) {
            heir.say_too(&gone);
        }
        Some(gone)
    }

    /// Appends what is wrong with controllers that share something.
    pub(super) fn validate_subsystems(&self, problems: &mut Vec<Problem>) {
        for (index, controller) in self.controller.iter().enumerate() {
            let mut place = Place {
                name: format!("controller {}", controller.name),
                problems,
            };
            self.validate_name(controller, &mut place);
            self.validate_pool(controller, &mut place);
            for other in &self.controller[..index] {
                if other.subsystem() == controller.subsystem() {
                    agree(controller, other, &mut place);
                } else {
                    are_apart(controller, other, &mut place);
                }
            }
            self.validate_media(controller, &mut place);
        }
        for name in self.subsystems() {
            let mut place = Place {
                name: format!("subsystem {name}"),
                problems,
            };
            let count = self.namespaces_of(name).len();
            place.require(count <= MAX_NAMESPACES, || {
                format!("namespaces: {count} namespaces, more than the maximum of {MAX_NAMESPACES} per subsystem: remove some")
            });
            let count = self.controllers_of(name).count();
            place.require(count <= usize::from(MAX_CONTROLLERS), || {
                format!("{count} controllers, more than the maximum of {MAX_CONTROLLERS} per subsystem: remove some")
            });
        }
    }

    fn validate_name(&self, controller: &Controller, place: &mut Place<'_>) {
        let Some(name) = &controller.subsystem else {
            return;
        };
        let alone = |c: &&Controller| c.subsystem.is_none() && &c.name == name;
        if self.controller.iter().any(|c| alone(&c)) {
            place.problem(format!(
                "subsystem = \"{name}\": controller {name} has its own subsystem of that name; write the same subsystem there, or choose another name"
            ));
        }
    }

    fn validate_pool(&self, controller: &Controller, place: &mut Place<'_>) {
        for (index, name) in controller.pool.iter().enumerate() {
            place.require(self.media.iter().any(|m| &m.name == name), || {
                let there_are = list("; there are", self.media.iter().map(|m| &m.name));
                format!("pool: there is no medium \"{name}\"{there_are}")
            });
            let zoned = self
                .media
                .iter()
                .any(|m| m.name == *name && m.zoned().is_some());
            place.require(!zoned, || {
                format!("pool: media \"{name}\" has zones, in which hosts cannot create namespaces: remove it from the pool, and name it as `media` of a namespace")
            });
            let key_value = |m: &&Medium| m.name == *name && m.kind() == MediumKind::KeyValue;
            place.require(!self.media.iter().any(|m| key_value(&m)), || {
                format!("pool: media \"{name}\" holds keys and values, in which hosts cannot create namespaces: remove it from the pool")
            });
            let read_only =
                |m: &&Medium| m.name == *name && m.file().is_some_and(|file| file.read_only);
            place.require(!self.media.iter().any(|m| read_only(&m)), || {
                format!("pool: media \"{name}\" is read_only, and hosts need to write to the namespaces that they create: remove it from the pool")
            });
            let mut namespaces = self.namespace.iter();
            let partitioned = namespaces.any(|n| n.media == *name && n.partition.is_some());
            place.require(!partitioned, || {
                format!("pool: media \"{name}\" has partitions, between which hosts cannot create namespaces: remove it from the pool")
            });
            place.require(!controller.pool[..index].contains(name), || {
                format!("pool: \"{name}\" is listed twice")
            });
        }
    }

    /// Rejects namespaces on a medium that is in the pool of another subsystem.
    fn validate_media(&self, controller: &Controller, place: &mut Place<'_>) {
        for name in &controller.namespaces {
            let Some(namespace) = self.namespace.iter().find(|n| &n.name == name) else {
                continue;
            };
            let owner = self.pool_owner(&namespace.media);
            if let Some(owner) = owner.filter(|owner| *owner != controller.subsystem()) {
                place.problem(format!(
                    "namespaces: \"{name}\" is on media {}, in the pool of subsystem {owner}: give it another medium, or remove the medium from the pool",
                    namespace.media
                ));
            }
        }
    }
}

impl Controller {
    /// Adds the subsystem-wide keys of another controller, where this one does not set them.
    pub fn say_too(&mut self, other: &Controller) {
        let mut pool = other.pool.clone();
        pool.retain(|medium| !self.pool.contains(medium));
        self.pool.append(&mut pool);
        self.reactor = self.reactor.or(other.reactor);
        self.serial = self.serial.take().or_else(|| other.serial.clone());
        self.subnqn = self.subnqn.take().or_else(|| other.subnqn.clone());
    }
}

/// Checks that two controllers of a subsystem name the same reactor and the same identity.
fn agree(this: &Controller, other: &Controller, place: &mut Place<'_>) {
    let mut same = |key: &str, mine: Option<&dyn Display>, theirs: Option<&dyn Display>| {
        if let (Some(mine), Some(theirs)) = (mine, theirs)
            && mine.to_string() != theirs.to_string()
        {
            place.problem(format!(
                "{key} = {mine}, but controller {} of the same subsystem has {theirs}: write the same in both",
                other.name
            ));
        }
    };
    fn shown<T: Display>(value: Option<&T>) -> Option<&dyn Display> {
        value.map(|value| value as &dyn Display)
    }
    same(
        "reactor",
        shown(this.reactor.as_ref()),
        shown(other.reactor.as_ref()),
    );
    same(
        "serial",
        shown(this.serial.as_ref()),
        shown(other.serial.as_ref()),
    );
    same(
        "subnqn",
        shown(this.subnqn.as_ref()),
        shown(other.subnqn.as_ref()),
    );
    same(
        "model_number",
        Some(&this.model_number),
        Some(&other.model_number),
    );
    same(
        "firmware_revision",
        Some(&this.firmware_revision),
        Some(&other.firmware_revision),
    );
}

/// Checks that controllers of different subsystems share neither namespaces nor pools.
fn are_apart(this: &Controller, other: &Controller, place: &mut Place<'_>) {
    for name in this
        .namespaces
        .iter()
        .filter(|n| other.namespaces.contains(n))
    {
        place.problem(format!(
            "namespaces: \"{name}\" is in controller {} already: to share it, write the same subsystem = \"NAME\" in both",
            other.name
        ));
    }
    for name in this.pool.iter().filter(|m| other.pool.contains(m)) {
        place.problem(format!(
            "pool: \"{name}\" is already in the pool of controller {} of another subsystem: keep a medium in the pool of one subsystem",
            other.name
        ));
    }
}

/// Each name once, in the order of first mention.
fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}
