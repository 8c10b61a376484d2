//! Controllers that share a subsystem: what they have in common, and its validation.

use std::collections::HashSet;
use std::fmt::Display;

use subsystem::{DEFAULT_NAMESPACE_LIMIT, MAX_CONTROLLERS};

use super::index::{Index, before};
use super::problem::{Place, Problem, list};
use super::{Config, Controller, MediumKind, Namespace};

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

    /// The NQN that a controller of a subsystem has written for it.
    pub fn subnqn_of(&self, subsystem: &str) -> Option<&str> {
        let mut controllers = self.controllers_of(subsystem);
        controllers.find_map(|c| c.subnqn.as_deref())
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
        Index::new(self).namespaces_of(subsystem)
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
    pub(super) fn validate_subsystems(&self, objects: &Index<'_>, problems: &mut Vec<Problem>) {
        for controller in &self.controller {
            let mut place = Place {
                name: format!("controller {}", controller.name),
                problems,
            };
            controller.validate_name(objects, &mut place);
            controller.validate_pool(objects, &mut place);
            for other in before(objects.of_subsystem(controller.subsystem()), controller) {
                agree(controller, other, &mut place);
            }
            controller.validate_apart(objects, &mut place);
            controller.validate_media(objects, &mut place);
        }
        for name in self.subsystems() {
            let mut place = Place {
                name: format!("subsystem {name}"),
                problems,
            };
            let count = objects.namespaces_of(name).len();
            place.require(count <= MAX_NAMESPACES, || {
                format!("namespaces: {count} namespaces, more than the maximum of {MAX_NAMESPACES} per subsystem: remove some")
            });
            let count = objects.of_subsystem(name).len();
            place.require(count <= usize::from(MAX_CONTROLLERS), || {
                format!("{count} controllers, more than the maximum of {MAX_CONTROLLERS} per subsystem: remove some")
            });
        }
    }
}

impl Controller {
    fn validate_name(&self, objects: &Index<'_>, place: &mut Place<'_>) {
        let Some(name) = &self.subsystem else {
            return;
        };
        let mut all = objects.of_subsystem(name).iter();
        if all.any(|c| c.subsystem.is_none()) {
            place.problem(format!(
                "subsystem = \"{name}\": controller {name} has its own subsystem of that name; write the same subsystem there, or choose another name"
            ));
        }
    }

    fn validate_pool(&self, objects: &Index<'_>, place: &mut Place<'_>) {
        for (index, name) in self.pool.iter().enumerate() {
            place.require(!self.pool[..index].contains(name), || {
                format!("pool: \"{name}\" is listed twice")
            });
            let Some(medium) = objects.medium(name) else {
                let there_are = list("; there are", objects.config.media.iter().map(|m| &m.name));
                place.problem(format!("pool: there is no medium \"{name}\"{there_are}"));
                continue;
            };
            place.require(medium.zoned().is_none(), || {
                format!("pool: medium \"{name}\" has zones, in which hosts cannot create namespaces: remove it from the pool, and name it as `media` of a namespace")
            });
            place.require(medium.kind() != MediumKind::KeyValue, || {
                format!("pool: medium \"{name}\" holds keys and values, in which hosts cannot create namespaces: remove it from the pool")
            });
            let read_only = medium.file().is_some_and(|file| file.read_only);
            place.require(!read_only, || {
                format!("pool: medium \"{name}\" is read_only, and hosts need to write to the namespaces that they create: remove it from the pool")
            });
            let mut namespaces = objects.on_medium(name).iter();
            place.require(namespaces.all(|n| n.partition.is_none()), || {
                format!("pool: medium \"{name}\" has partitions, between which hosts cannot create namespaces: remove it from the pool")
            });
        }
    }

    /// Checks that controllers of other subsystems share neither its namespaces nor its pool.
    fn validate_apart(&self, objects: &Index<'_>, place: &mut Place<'_>) {
        let is_other = |c: &&Controller| c.subsystem() != self.subsystem();
        for name in &self.namespaces {
            for other in before(objects.with_namespace(name), self).filter(is_other) {
                place.problem(format!(
                    "namespaces: \"{name}\" is in controller {} already: to share it, write the same subsystem = \"NAME\" in both",
                    other.name
                ));
            }
        }
        for name in &self.pool {
            for other in before(objects.with_pool(name), self).filter(is_other) {
                place.problem(format!(
                    "pool: \"{name}\" is already in the pool of controller {} of another subsystem: keep a medium in the pool of one subsystem",
                    other.name
                ));
            }
        }
    }

    /// Rejects namespaces on a medium that is in the pool of another subsystem.
    fn validate_media(&self, objects: &Index<'_>, place: &mut Place<'_>) {
        for name in &self.namespaces {
            let Some(namespace) = objects.namespace(name) else {
                continue;
            };
            let owner = objects.with_pool(&namespace.media).first();
            let owner = owner.map(|c| c.subsystem());
            if let Some(owner) = owner.filter(|owner| *owner != self.subsystem()) {
                place.problem(format!(
                    "namespaces: \"{name}\" is on medium {}, in the pool of subsystem {owner}: give it another medium, or remove the medium from the pool",
                    namespace.media
                ));
            }
        }
    }

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

/// Each name once, in the order of first mention.
fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    all.filter(|one| seen.insert(*one)).collect()
}
