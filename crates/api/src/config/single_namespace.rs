//! Rules for controllers whose protocol serves exactly one namespace: vhost-user-blk and ublk.
//!
//! An operator may detach the namespace from a served controller. So only a configuration that is
//! read, or a controller that is created, must have one ([`Config::problems_of_new`]), and
//! [`Config::validate`] accepts a controller without.

use super::problem::{Place, Problem};
use super::{Config, Controller, Listen};

impl Config {
    /// Everything that is wrong with it where it has just been read: also controllers that lack a
    /// namespace. Empty when it is valid.
    pub fn problems_of_new(&self) -> Vec<Problem> {
        let mut problems = self.validate();
        for controller in &self.controller {
            if let Some(what) = controller.lack() {
                problems.push(Problem {
                    place: format!("controller {}", controller.name),
                    what,
                });
            }
        }
        problems
    }
}

impl Controller {
    /// The name of its protocol, where that serves exactly one namespace.
    pub fn single_namespace(&self) -> Option<&'static str> {
        match self.listen {
            Listen::VhostUserBlk(_) => Some("vhost-user-blk"),
            Listen::Ublk(_) => Some("ublk"),
            _ => None,
        }
    }

    /// End of the advice to create another controller for another namespace: the address that it
    /// needs, or nothing.
    fn of_its_own(&self) -> &'static str {
        match self.listen {
            Listen::Ublk(_) => "",
            _ => " with its own socket",
        }
    }

    /// The error of a new controller that lacks its namespace, with the key to write.
    pub fn lack(&self) -> Option<String> {
        let protocol = self.single_namespace();
        let protocol = protocol.filter(|_| self.namespaces.is_empty())?;
        Some(format!(
            "namespaces: {protocol} serves exactly one namespace, and there is none: write namespaces = [\"NAME\"]"
        ))
    }

    /// Appends that there is more than one namespace.
    pub(super) fn validate_single_namespace(&self, place: &mut Place<'_>) {
        let Some(protocol) = self.single_namespace() else {
            return;
        };
        place.require(self.namespaces.len() < 2, || {
            format!(
                "namespaces: {protocol} serves exactly one namespace, and there are {}: keep one here, and write a [[controller]]{} for each other one",
                self.namespaces.len(),
                self.of_its_own()
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::config::from_toml;

    const UNIX: &str = "vhost-user-blk:/run/x.sock";
    const MEDIA: &str = r#"
        [[media]]
        name = "m"
        kind = "ram"
        size = "64MiB"
        [[namespace]]
        name = "a"
        media = "m"
        range = "0MiB..32MiB"
        [[namespace]]
        name = "b"
        media = "m"
        range = "32MiB..64MiB"
    "#;

    /// Problems of a controller with these lines.
    fn problems(listen: &str, lines: &str) -> Vec<String> {
        let text = format!("{MEDIA}[[controller]]\nname = \"c\"\nlisten = \"{listen}\"\n{lines}\n");
        let Err(error) = from_toml(&text) else {
            return Vec::new();
        };
        error.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn exactly_one_namespace_is_served() {
        for listen in [UNIX, "ublk:", "ublk:1"] {
            assert_eq!(problems(listen, "namespaces = [\"a\"]"), [""; 0]);
        }
        for (lines, why, next) in [
            ("", "and there is none", "write namespaces = [\"NAME\"]"),
            (
                "namespaces = []",
                "and there is none",
                "write namespaces = [\"NAME\"]",
            ),
            (
                "namespaces = [\"a\", \"b\"]",
                "and there are 2",
                "a [[controller]] with its own socket",
            ),
        ] {
            for (listen, protocol) in [(UNIX, "vhost-user-blk"), ("ublk:", "ublk")] {
                let found = problems(listen, lines);
                assert_eq!(found.len(), 1, "{found:?}");
                let start = format!("controller c: namespaces: {protocol} serves exactly");
                assert!(found[0].starts_with(&start), "{found:?}");
                assert!(found[0].contains(why), "{found:?}");
                let own = found[0].contains("with its own socket");
                assert!(!own || listen == UNIX, "{found:?}");
                let next = if listen == UNIX { next } else { &next[..10] };
                assert!(found[0].contains(next), "{found:?}");
            }
        }
        for other in ["vfio-user:/a", "nbd:/a"] {
            assert_eq!(problems(other, ""), [""; 0]);
            assert_eq!(problems(other, "namespaces = [\"a\", \"b\"]"), [""; 0]);
        }
    }

    #[test]
    fn a_served_controller_may_lose_its_namespace() {
        for listen in [UNIX, "ublk:"] {
            let text = format!(
                "{MEDIA}[[controller]]\nname = \"c\"\nlisten = \"{listen}\"\nnamespaces = [\"a\"]"
            );
            let mut config = from_toml(&text).unwrap();
            assert_eq!(config.controller[0].lack(), None);
            config.controller[0].namespaces.clear();
            assert_eq!(config.validate(), []);
            assert_eq!(config.problems_of_new().len(), 1);
            assert!(config.controller[0].lack().is_some());
        }
    }
}
