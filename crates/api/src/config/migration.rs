//! Rules for a controller with `migration = true`: what its two servers can have in turn.

use super::problem::Place;
use super::{Backing, Config, Controller, Listen, Medium};

impl Config {
    /// Whether a medium is used by a controller that may move.
    pub fn migrates(&self, medium: &str) -> bool {
        let mut controllers = self.controller.iter();
        controllers.any(|c| c.migration && c.uses(self, medium))
    }
}

impl Controller {
    pub(super) fn validate_migration(&self, config: &Config, place: &mut Place<'_>) {
        if !self.migration {
            return;
        }
        place.require(matches!(self.listen, Listen::VfioUser(_)), || {
            "migration: only hosts over vfio-user move a controller: remove it, or change listen"
                .into()
        });
        place.require(self.pool.is_empty(), || {
            "migration: namespaces that hosts create do not move: remove it, or pool".into()
        });
        place.require(!self.namespaces.is_empty(), || {
            "migration: the lock of a medium is what tells two servers apart: give the controller a namespace".into()
        });
        let mut others = config.controllers_of(self.subsystem());
        if let Some(other) = others.find(|other| other.name != self.name) {
            place.problem(format!(
                "migration: controller {} is in the same subsystem, whose state does not move: give each its own subsystem",
                other.name
            ));
        }
        for medium in config.media.iter().filter(|m| self.uses(config, &m.name)) {
            if let Some(why) = obstacle(medium) {
                place.problem(format!(
                    "migration: medium {} {why}: only files without these can be used by two servers in turn",
                    medium.name
                ));
            }
            let mut namespaces = config.namespace.iter();
            let other =
                namespaces.find(|n| n.media == medium.name && !self.namespaces.contains(&n.name));
            if let Some(other) = other {
                place.problem(format!(
                    "migration: medium {} has namespace {} too, which does not move with this controller: give it another medium",
                    medium.name, other.name
                ));
            }
            let mut others = config.controller.iter();
            let other = others.find(|c| c.name != self.name && c.uses(config, &medium.name));
            if let Some(other) = other {
                place.problem(format!(
                    "migration: medium {} is used by controller {} too: give each its own medium",
                    medium.name, other.name
                ));
            }
        }
        let mut partitions = config.namespace.iter();
        let partition =
            partitions.find(|n| self.namespaces.contains(&n.name) && n.partition.is_some());
        if let Some(namespace) = partition {
            place.problem(format!(
                "migration: namespace {} is a partition, whose table is in this server's state folder: write a range",
                namespace.name
            ));
        }
    }
}

/// Why two servers cannot use a medium in turn.
fn obstacle(medium: &Medium) -> Option<&'static str> {
    match &medium.backing {
        Backing::File(file) if file.read_only => Some("is read-only, and has no lock of its own"),
        Backing::File(_) => {
            if medium.timing.is_some() {
                Some("has a timing model, whose state is in this server's memory")
            } else if medium.zoned().is_some() {
                Some("has zones, whose state is in this server's memory")
            } else if medium.vendor.is_some() {
                Some("has vendor commands, whose state is in this server's memory")
            } else {
                None
            }
        }
        Backing::Null { .. } => Some("has no file"),
        Backing::Ram { .. } => Some("is this server's memory"),
        Backing::Drive(_) => Some("is a drive, which one server has"),
        Backing::KeyValue(_) => Some("has keys, whose index is in this server's memory"),
    }
}
