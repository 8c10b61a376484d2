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
            "migration: two servers exclude each other by the lock of a medium: give the controller a namespace".into()
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

#[cfg(test)]
mod tests {
    use crate::config::from_toml;

    const RIGHT: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "disk.img"
size = "64MiB"
[[namespace]]
name = "ns"
media = "disk"
[[controller]]
name = "vm1"
namespaces = ["ns"]
listen = "vfio-user:/run/vm1.sock"
migration = true
"#;
    const RAM: &str = "kind = \"ram\"\nsize = \"64MiB\"\n";
    const FILE: &str = "kind = \"file\"\npath = \"disk.img\"\nsize = \"64MiB\"\n";
    const NS: &str = "namespaces = [\"ns\"]\nlisten = \"vfio-user:/run/vm1.sock\"\n";

    /// The error after one part of the text is replaced and more is appended.
    fn problem((from, to): (&str, &str), more: &str) -> String {
        assert!(RIGHT.contains(from), "{from}");
        let text = RIGHT.replacen(from, to, 1) + more;
        match from_toml(&text) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn only_what_two_servers_can_have_in_turn_is_accepted() {
        from_toml(RIGHT).unwrap();
        let file = |more: &str| format!("{FILE}{more}\n");
        let wrong = [
            ((FILE, RAM.to_owned()), "", "is this server's memory"),
            (
                (FILE, "kind = \"null\"\nsize = \"64MiB\"\n".to_owned()),
                "",
                "has no file",
            ),
            (
                (FILE, "kind = \"keyvalue\"\nsize = \"64MiB\"\n".to_owned()),
                "",
                "has keys",
            ),
            (
                (
                    FILE,
                    "kind = \"drive\"\ntarget = \"vfio-user:/x\"\n".to_owned(),
                ),
                "",
                "is a drive",
            ),
            ((FILE, file("read_only = true")), "", "is read-only"),
            (
                (FILE, file("[media.timing]\npreset = \"samsung-970-pro\"")),
                "",
                "has a timing model",
            ),
            (
                (FILE, file("[media.zoned]\nzone_size = \"4MiB\"")),
                "",
                "has zones",
            ),
            (
                (FILE, file("vendor = \"fetch_add\"")),
                "",
                "has vendor commands",
            ),
            (
                (NS, "listen = \"vfio-user:/run/vm1.sock\"\n".to_owned()),
                "",
                "give the controller a namespace",
            ),
            (
                (
                    NS,
                    "namespaces = [\"ns\"]\nlisten = \"fuse:/mnt/x\"\n".to_owned(),
                ),
                "",
                "only hosts over vfio-user",
            ),
            (
                (
                    "media = \"disk\"",
                    "media = \"disk\"\nrange = \"0MiB..32MiB\"".to_owned(),
                ),
                "[[namespace]]\nname = \"two\"\nmedia = \"disk\"\nrange = \"32MiB..64MiB\"\n",
                "has namespace two too",
            ),
            (
                (NS, format!("{NS}subsystem = \"s\"\n")),
                "[[controller]]\nname = \"vm2\"\nsubsystem = \"s\"\nlisten = \"vfio-user:/run/vm2.sock\"\n",
                "controller vm2 is in the same subsystem",
            ),
            (
                (NS, format!("{NS}pool = [\"disk\"]\n")),
                "",
                "namespaces that hosts create do not move",
            ),
            (
                (
                    "media = \"disk\"",
                    "media = \"disk\"\npartition = \"p\"".to_owned(),
                ),
                "",
                "is a partition",
            ),
        ];
        for ((from, to), more, why) in wrong {
            let found = problem((from, &to), more);
            assert!(found.contains("migration: "), "{found}");
            assert!(found.contains(why), "{why}: {found}");
        }
    }
}
