//! Validation of a configuration. It reports all problems at once.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::index::{Index, before};
use super::problem::{Place, Problem, list};
use super::tenant::MAX_TENANTS;
use super::{
    Config, Controller, Listen, MediumKind, Mode, Namespace, Reactor, SocketMode, reactors_in_words,
};

impl Config {
    /// Everything that is wrong with it; empty when it is valid.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if let Some(control) = &self.control {
            control.validate(&mut problems);
        }
        for (index, reactor) in self.reactor.iter().enumerate() {
            let mut place = Place {
                name: format!("reactor {index}"),
                problems: &mut problems,
            };
            place.keys(reactor);
            let usual = Reactor::default();
            let spins = reactor.mode == Mode::Adaptive;
            place.require(spins || reactor.spin == usual.spin, || {
                format!("spin: only mode = \"adaptive\" spins for a while, and this is mode = \"{}\": remove it", reactor.mode.name())
            });
            place.require(spins || reactor.budget == usual.budget, || {
                format!("budget: only mode = \"adaptive\" spins on a budget, and this is mode = \"{}\": remove it", reactor.mode.name())
            });
        }
        names("media", self.media.iter().map(|m| &m.name), &mut problems);
        names(
            "namespace",
            self.namespace.iter().map(|n| &n.name),
            &mut problems,
        );
        names(
            "controller",
            self.controller.iter().map(|c| &c.name),
            &mut problems,
        );
        for medium in &self.media {
            medium.validate(&mut problems);
            medium.validate_relays(self.reactor.len().max(1), &mut problems);
            medium.validate_elsewhere(self, &mut problems);
            medium.validate_allowance(self, &mut problems);
        }
        let objects = Index::new(self);
        for namespace in &self.namespace {
            namespace.validate(&objects, &mut problems);
        }
        for (index, controller) in self.controller.iter().enumerate() {
            controller.validate(&objects, &self.controller[..index], &mut problems);
        }
        names("tenant", self.tenant.iter().map(|t| &t.name), &mut problems);
        self.validate_tenants(&mut problems);
        self.validate_hosts(&mut problems);
        self.validate_subsystems(&objects, &mut problems);
        problems
    }

    /// Appends what is wrong with tenants, and with references to them.
    fn validate_tenants(&self, problems: &mut Vec<Problem>) {
        let tenants = &self.tenant;
        if tenants.len() > MAX_TENANTS {
            problems.push(Problem {
                place: "tenant".into(),
                what: format!(
                    "{} tenants, more than the maximum of {MAX_TENANTS}: remove some",
                    tenants.len()
                ),
            });
        }
        tenants.iter().for_each(|tenant| tenant.validate(problems));
        let controllers = self.controller.iter();
        let controllers = controllers.map(|c| (format!("controller {}", c.name), &c.tenant));
        let namespaces = self.namespace.iter();
        let namespaces = namespaces.map(|n| (format!("namespace {}", n.name), &n.tenant));
        let known: HashSet<&String> = tenants.iter().map(|tenant| &tenant.name).collect();
        for (name, tenant) in controllers.chain(namespaces) {
            let mut place = Place { name, problems };
            if let Some(tenant) = tenant
                && !known.contains(tenant)
            {
                place.problem(format!(
                    "tenant = \"{tenant}\": there is no such tenant: write a [[tenant]] with that name"
                ));
            }
        }
    }
}

/// Checks that names are unique within a kind.
fn names<'a>(kind: &str, names: impl Iterator<Item = &'a String>, problems: &mut Vec<Problem>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        let mut place = Place {
            name: format!("{kind} {name}"),
            problems,
        };
        let count = seen.entry(name).or_default();
        *count += 1;
        place.require(*count != 2, || {
            "the name is used twice; give each its own name".into()
        });
    }
}

impl Namespace {
    /// Whether it is a part of its medium.
    fn is_part(&self) -> bool {
        self.range.is_some() || self.partition.is_some()
    }

    /// Appends what is wrong with it.
    fn validate(&self, objects: &Index<'_>, problems: &mut Vec<Problem>) {
        let mut place = Place {
            name: format!("namespace {}", self.name),
            problems,
        };
        place.keys(self);
        let hosts = self.hosts.as_deref().unwrap_or_default();
        objects.config.validate_listed("hosts", hosts, &mut place);
        if let Some(range) = self.range {
            place.require(
                range.start.0.is_multiple_of(4096) && range.len() >= u64::from(self.lba_size),
                || format!("range = \"{range}\": write a start that is a multiple of 4KiB, and at least one block"),
            );
        }
        place.require(self.range.is_none() || self.partition.is_none(), || {
            "range: a partition defines its own range: remove range, or partition".into()
        });
        let Some(medium) = objects.medium(&self.media) else {
            place.problem(format!(
                "media = \"{}\": there is no such medium{}",
                self.media,
                list("; there are", objects.config.media.iter().map(|m| &m.name))
            ));
            return;
        };
        place.require(medium.zoned().is_none() || self.range.is_none(), || {
            format!(
                "range: medium {} has zones, and its one namespace has all of them: remove range",
                self.media
            )
        });
        place.require(
            self.range.is_none() || medium.kind() != MediumKind::KeyValue,
            || {
                "range: a key-value medium has one namespace, which is all of it: remove range"
                    .into()
            },
        );
        if self.partition.is_some() {
            let has_some = matches!(medium.kind(), MediumKind::Drive | MediumKind::File);
            place.require(has_some && medium.zoned().is_none(), || {
                format!(
                    "partition: only drives, and files without zones, have partitions, and medium {} is neither: remove it",
                    self.media
                )
            });
        }
        if let (Some(range), Some(size)) = (self.range, medium.size()) {
            place.require(range.end <= size, || {
                format!("range = \"{range}\" ends beyond the medium's size of {size}: write a smaller end")
            });
        }
        for other in before(objects.on_medium(&self.media), self) {
            let apart = match (self.range, other.range) {
                (Some(mine), Some(theirs)) => !mine.overlaps(theirs),
                // Partitions are known only when the medium is open.
                _ => {
                    self.is_part() && other.is_part() && {
                        self.partition.is_none() || self.partition != other.partition
                    }
                }
            };
            place.require(apart, || {
                format!(
                    "the range overlaps namespace {} on medium {}: give each its own range",
                    other.name, self.media
                )
            });
        }
    }
}

impl Controller {
    /// Appends what is wrong with it, given the ones declared before it.
    fn validate(&self, objects: &Index<'_>, earlier: &[Controller], problems: &mut Vec<Problem>) {
        let config = objects.config;
        let mut place = Place {
            name: format!("controller {}", self.name),
            problems,
        };
        place.keys(self);
        self.validate_own(objects, &mut place);
        self.validate_migration(config, &mut place);
        for (index, name) in self.namespaces.iter().enumerate() {
            place.require(objects.namespace(name).is_some(), || {
                let there_are = list("; there are", config.namespace.iter().map(|n| &n.name));
                format!("namespaces: there is no namespace \"{name}\"{there_are}")
            });
            place.require(!self.namespaces[..index].contains(name), || {
                format!("namespaces: \"{name}\" is listed twice")
            });
        }
        if let Some(reactor) = self.reactor {
            let count = config.reactor.len().max(1);
            place.require(reactor < count, || {
                format!("reactor = {reactor}: {}", reactors_in_words(count))
            });
        }
        for (index, reactor) in self.reactors.iter().enumerate() {
            let count = config.reactor.len().max(1);
            place.require(*reactor < count, || {
                format!("reactors: {reactor}: {}", reactors_in_words(count))
            });
            place.require(!self.reactors[..index].contains(reactor), || {
                format!("reactors: {reactor} is listed twice")
            });
        }
        self.validate_single(config, earlier, &mut place);
        let same = before(objects.at(&self.listen), self);
        for other in same.filter(|other| other.listen.overlaps(&self.listen)) {
            let next = match self.listen {
                Listen::Ublk(_) => ": write another ID, or `ublk:` for an unused one",
                _ => "",
            };
            place.problem(format!(
                "listen = \"{}\" is used by controller {} already{next}",
                self.listen, other.name
            ));
        }
        let earlier = before(objects.beside(&self.listen), self);
        let mut different = earlier.filter(|other| other.listen != self.listen);
        if let Some(other) = different.find(|other| other.listen.overlaps(&self.listen)) {
            let (listen, theirs) = (&self.listen, &other.listen);
            place.problem(match listen.tcp() {
                Some(_) => format!(
                    "listen = \"{listen}\": one of this address and \"{theirs}\" of controller {} includes the other: write another port",
                    other.name
                ),
                None => format!(
                    "listen = \"{listen}\": controller {} has the same socket, \"{theirs}\": write another path",
                    other.name
                ),
            });
        }
    }

    /// A medium that only one reactor may serve is used on one reactor.
    fn validate_single(&self, config: &Config, earlier: &[Controller], place: &mut Place<'_>) {
        for medium in &config.media {
            let Some(why) = medium.why_single() else {
                continue;
            };
            if !self.uses(config, &medium.name) {
                continue;
            }
            let others = earlier.iter().filter(|c| c.uses(config, &medium.name));
            let mut named: BTreeSet<usize> = BTreeSet::new();
            for controller in others.chain([self]) {
                named.extend(controller.reactor.iter().chain(&controller.reactors));
            }
            place.require(named.len() < 2, || {
                format!(
                    "medium {} has {why}, so one reactor serves it: write the same `reactor` for all controllers that use it, and no other one in `reactors`",
                    medium.name,
                )
            });
        }
    }

    /// Whether it has a namespace on a medium, or the medium in its pool.
    pub fn uses(&self, config: &Config, medium: &str) -> bool {
        let mut mine = config
            .namespace
            .iter()
            .filter(|n| self.namespaces.contains(&n.name));
        mine.any(|n| n.media == medium) || self.pool.iter().any(|name| name == medium)
    }

    /// Whether it has a medium with zones.
    pub fn has_zones(&self, config: &Config) -> bool {
        let mut zoned = config.media.iter().filter(|it| it.zoned().is_some());
        zoned.any(|medium| self.uses(config, &medium.name))
    }

    fn validate_own(&self, objects: &Index<'_>, place: &mut Place<'_>) {
        place.require(!matches!(self.listen, Listen::Unix(_)), || {
            format!(
                "listen = \"{}\": write vfio-user:PATH, fuse:FOLDER, nvme-tcp:ADDRESS:PORT, nbd:PATH, nbd:ADDRESS:PORT, vhost-user-blk:PATH, ublk: or ublk:ID",
                self.listen
            )
        });
        let is_mounted = matches!(self.listen, Listen::Fuse(_));
        place.require(is_mounted || self.fuse.is_none(), || {
            "fuse: only for a controller with listen = \"fuse:FOLDER\": remove it, or change listen".into()
        });
        self.validate_tcp(objects.config, place);
        self.validate_nbd(objects, place);
        self.validate_vhost(objects, place);
        self.validate_ublk(objects, place);
        self.validate_single_namespace(place);
        place.require(!is_mounted || !self.intx, || {
            "intx: a mount uses no interrupt pin: remove it".into()
        });
        place.require(!is_mounted || self.msix, || {
            "msix: a mount uses no interrupts: remove it".into()
        });
        place.require(!is_mounted || self.socket_mode == SocketMode::default(), || {
            "socket_mode: a mount has no socket: remove it, and write allow_other in its `fuse` for other users".into()
        });
        if let Some(subnqn) = &self.subnqn {
            place.require(subnqn.starts_with("nqn.") && !subnqn.contains(' '), || {
                format!("subnqn = \"{subnqn}\": write nqn.YYYY-MM.reverse.domain:name")
            });
        }
    }
}
