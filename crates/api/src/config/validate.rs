//! Validation of a configuration. It reports all problems at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::Parameters;

use super::object::{Bounds, Object};
use super::{Config, Controller, Direct, Listen, Medium, MediumKind, Namespace, Size};

/// Smallest medium: room for at least a partition table and a file system's first blocks.
const MIN_MEDIUM_LEN: u64 = 64 << 10;
/// Largest key-value medium.
const MAX_KEY_VALUE_LEN: u64 = 1 << 40;

/// One problem, and how to solve it.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    /// Object, as in `controller vm1`.
    pub place: String,
    /// Problem, and what to write.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Collects problems of one object.
pub(super) struct Place<'a> {
    pub(super) name: String,
    pub(super) problems: &'a mut Vec<Problem>,
}

impl Place<'_> {
    pub(super) fn problem(&mut self, what: impl Into<String>) {
        self.problems.push(Problem {
            place: self.name.clone(),
            what: what.into(),
        });
    }

    pub(super) fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.problem(what());
        }
    }

    /// Checks a name in an object without a table of keys.
    pub(super) fn name(&mut self, name: &str) {
        self.require(Bounds::Name.hold(&name.into()), || {
            format!("name = \"{name}\": write {}", Bounds::Name.words())
        });
    }

    /// Checks each key by itself.
    pub(super) fn keys(&mut self, object: &impl Object) {
        for wrong in object.wrong_keys() {
            self.problem(wrong);
        }
    }
}

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
        }
        for (index, namespace) in self.namespace.iter().enumerate() {
            namespace.validate(self, &self.namespace[..index], &mut problems);
        }
        for (index, controller) in self.controller.iter().enumerate() {
            controller.validate(self, &self.controller[..index], &mut problems);
        }
        names("tenant", self.tenant.iter().map(|t| &t.name), &mut problems);
        self.validate_tenants(&mut problems);
        self.validate_subsystems(&mut problems);
        problems
    }
}

/// Checks that names are unique within a kind, and the names of media, which have no table of keys.
fn names<'a>(kind: &str, names: impl Iterator<Item = &'a String>, problems: &mut Vec<Problem>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        let mut place = Place {
            name: format!("{kind} {name}"),
            problems,
        };
        if kind == "media" {
            place.name(name);
        }
        let count = seen.entry(name).or_default();
        *count += 1;
        place.require(*count != 2, || {
            format!("the name is used twice; give each {kind} its own name")
        });
    }
}

impl Medium {
    /// Reason why only one reactor may serve it: a timing model, zones, or keys.
    fn why_single(&self) -> Option<&'static str> {
        if self.timing.is_some() {
            Some("timing")
        } else if self.zoned.is_some() {
            Some("zones")
        } else {
            (self.kind == MediumKind::KeyValue).then_some("keys")
        }
    }

    /// Appends what is wrong with it.
    pub fn validate(&self, problems: &mut Vec<Problem>) {
        let mut place = Place {
            name: format!("media {}", self.name),
            problems,
        };
        match self.kind {
            MediumKind::File => {
                place.require(self.path.is_some(), || {
                    "a file needs a path: write path = \"disk.img\"".into()
                });
                let polls_cache =
                    self.poll_completions == Some(true) && self.direct == Some(Direct::Off);
                let zoned = self.read_only == Some(true) && self.zoned.is_some();
                place.require(!zoned, || {
                    "read_only = true: zones write a log to the file: remove zoned, or read_only".into()
                });
                place.require(!polls_cache, || {
                    "poll_completions needs direct I/O: remove direct = \"off\", or poll_completions"
                        .into()
                });
            }
            MediumKind::Drive => self.validate_drive(&mut place),
            MediumKind::Null | MediumKind::Ram | MediumKind::KeyValue => {
                let has_path = self.kind == MediumKind::KeyValue || self.path.is_none();
                place.require(has_path, || {
                    "only kind = \"file\" and kind = \"keyvalue\" have a path: remove it or change the kind".into()
                });
                self.refuse_keys_of_files(&mut place);
                place.require(self.size.is_some(), || {
                    "it needs a size: write size = \"8GiB\"".into()
                });
            }
        }
        for (key, is_there) in [
            ("target", self.target.is_some()),
            ("nsid", self.nsid.is_some()),
            ("admin_allow", !self.admin_allow.is_empty()),
            ("awupf", self.awupf.is_some()),
            ("completions", self.completions.is_some()),
            ("heads", self.heads.is_some()),
        ] {
            place.require(self.kind == MediumKind::Drive || !is_there, || {
                format!("only kind = \"drive\" has `{key}`: remove it")
            });
        }
        let in_memory = self.kind == MediumKind::KeyValue && self.path.is_none();
        let keeps = self.kind == MediumKind::Ram || in_memory;
        place.require(self.state.is_none() || keeps, || {
            "`state` is only for media in memory (kind = \"ram\", and \"keyvalue\" without a path): remove it".into()
        });
        if let Some(zoned) = &self.zoned {
            zoned.validate(self, &mut place);
        }
        self.validate_keys(&mut place);
        if let Some(timing) = &self.timing {
            let size = self.size.map(|size| size.0);
            timing.validate(size, &mut place);
            timing.validate_record(self, &mut place);
            if let Some(zoned) = &self.zoned {
                timing.validate_zones(zoned, size, &mut place);
            }
        }
        if let Some(size) = self.size {
            place.require(size.0 >= MIN_MEDIUM_LEN, || {
                format!(
                    "size = \"{size}\": a medium has at least {}",
                    Size(MIN_MEDIUM_LEN)
                )
            });
            place.require(size.0.is_multiple_of(512), || {
                format!("size = \"{size}\": write a multiple of 512B")
            });
            place.require(size.0 <= i64::MAX as u64, || {
                format!("size = \"{size}\": larger than the maximum of 8 EiB; write a smaller size")
            });
        }
    }
}

impl Medium {
    /// Checks the keys of drives.
    fn validate_drive(&self, place: &mut Place<'_>) {
        match &self.target {
            None => place.problem(
                "a drive needs a target: write target = \"vfio-user:/run/drive.sock\", or \"pci:0000:01:00.0\"",

            ),
            Some(target) => {
                if let Err(error) = target.parse::<driver::bus::place::Place>() {
                    place.problem(format!("target = \"{target}\": {error}"));
                }
            }
        }
        let fits = self.nsid.is_none_or(|nsid| (1..u32::MAX).contains(&nsid));
        place.require(fits, || {
            "nsid: namespace identifiers of a drive start at 1".into()
        });
        place.require(self.path.is_none() && self.size.is_none(), || {
            "a drive has a target, and reports its own size: remove path and size".into()
        });
        super::allow::validate(&self.admin_allow, place);
        if let Some(awupf) = self.awupf {
            place.require(matches!(awupf.0, 512 | 4096), || {
                format!("awupf = \"{awupf}\": write \"512B\" or \"4KiB\", the sizes of a block")
            });
        }
        self.refuse_keys_of_files(place);
    }

    /// Checks the reactors of `completions` and `heads`.
    fn validate_relays(&self, reactors: usize, problems: &mut Vec<Problem>) {
        let mut place = Place {
            name: format!("media {}", self.name),
            problems,
        };
        for (key, reactor) in [("completions", self.completions), ("heads", self.heads)] {
            let there_is = reactor.is_none_or(|reactor| reactor < reactors);
            place.require(there_is, || {
                let reactor = reactor.unwrap_or_default();
                format!("{key} = {reactor}: there are {reactors}, counted from 0")
            });
        }
        place.require(self.heads.is_none() || self.completions.is_some(), || {
            "heads is only for a drive with `completions`: write completions = 1, or remove heads".into()
        });
        let differ = self.heads.is_none() || self.heads != self.completions;
        place.require(differ, || {
            "heads names the reactor of completions, which already writes the head doorbells: remove heads"
                .into()
        });
    }

    fn refuse_keys_of_files(&self, place: &mut Place<'_>) {
        for (key, is_there) in [
            ("direct", self.direct.is_some()),
            ("poll_submissions", self.poll_submissions.is_some()),
            ("poll_completions", self.poll_completions.is_some()),
            ("register_memory", self.register_memory.is_some()),
            ("read_only", self.read_only.is_some()),
        ] {
            place.require(!is_there, || {
                format!("only kind = \"file\" has `{key}`: remove it")
            });
        }
    }

    /// Checks the keys of key-value media.
    fn validate_keys(&self, place: &mut Place<'_>) {
        let is_key_value = self.kind == MediumKind::KeyValue;
        for (key, is_there) in [
            ("dialect", self.dialect.is_some()),
            ("max_keys", self.max_keys.is_some()),
        ] {
            place.require(is_key_value || !is_there, || {
                format!("only kind = \"keyvalue\" has `{key}`: remove it")
            });
        }
        if let Some(keys) = self.max_keys {
            place.require((1..u32::MAX).contains(&keys), || {
                format!("max_keys = {keys}: write 1 to {}", u32::MAX - 1)
            });
        }
        // Invalid combinations of other keys are reported elsewhere.
        let size = self.size.map_or(0, |size| size.0);
        let timing = self.timing.as_ref().and_then(|t| t.parameters(size).ok());
        if let Some(timing) = timing {
            let of_keys = matches!(timing, Parameters::Kv(_));
            place.require(of_keys || !is_key_value, || {
                "timing: a key-value medium needs a preset of kind kv, such as samsung-kvssd".into()
            });
            place.require(!of_keys || is_key_value, || {
                "timing: a preset of kind kv is only for kind = \"keyvalue\": choose another preset, or that kind".into()
            });
        }
        let fits = self.size.is_none_or(|size| size.0 <= MAX_KEY_VALUE_LEN);
        place.require(!is_key_value || fits, || {
            "the size of a key-value medium is at most 1TiB: write a smaller size".into()
        });
    }
}

impl Namespace {
    /// Whether it is a part of its medium.
    fn is_part(&self) -> bool {
        self.range.is_some() || self.partition.is_some()
    }

    /// Appends what is wrong with it, given the ones declared before it.
    pub fn validate(&self, config: &Config, earlier: &[Namespace], problems: &mut Vec<Problem>) {
        let mut place = Place {
            name: format!("namespace {}", self.name),
            problems,
        };
        place.keys(self);
        if let Some(range) = self.range {
            place.require(
                range.start.0.is_multiple_of(4096) && range.len() >= u64::from(self.lba_size),
                || format!("range = \"{range}\": write a start that is a multiple of 4KiB, and at least one block"),
            );
        }
        place.require(self.range.is_none() || self.partition.is_none(), || {
            "range: a partition defines its own range: remove range, or partition".into()
        });
        let Some(medium) = config.media.iter().find(|m| m.name == self.media) else {
            place.problem(format!(
                "media = \"{}\": there is no such medium{}",
                self.media,
                list("; there are", config.media.iter().map(|m| &m.name))
            ));
            return;
        };
        place.require(medium.zoned.is_none() || self.range.is_none(), || {
            format!(
                "range: media {} has zones, and its one namespace has all of them: remove range",
                self.media
            )
        });
        place.require(
            self.range.is_none() || medium.kind != MediumKind::KeyValue,
            || {
                "range: a key-value medium has one namespace, which is all of it: remove range"
                    .into()
            },
        );
        if self.partition.is_some() {
            let has_some = matches!(medium.kind, MediumKind::Drive | MediumKind::File);
            place.require(has_some && medium.zoned.is_none(), || {
                format!(
                    "partition: only drives, and files without zones, have partitions, and media {} is neither: remove it",
                    self.media
                )
            });
        }
        if let (Some(range), Some(size)) = (self.range, medium.size) {
            place.require(range.end <= size, || {
                format!("range = \"{range}\" ends beyond the medium's size of {size}: write a smaller end")
            });
        }
        for other in earlier.iter().filter(|n| n.media == self.media) {
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
    pub fn validate(&self, config: &Config, earlier: &[Controller], problems: &mut Vec<Problem>) {
        let mut place = Place {
            name: format!("controller {}", self.name),
            problems,
        };
        place.keys(self);
        self.validate_own(&mut place);
        for (index, name) in self.namespaces.iter().enumerate() {
            place.require(config.namespace.iter().any(|n| &n.name == name), || {
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
                format!("reactor = {reactor}: there are {count}, counted from 0")
            });
        }
        for (index, reactor) in self.reactors.iter().enumerate() {
            let count = config.reactor.len().max(1);
            place.require(*reactor < count, || {
                format!("reactors: {reactor}: there are {count}, counted from 0")
            });
            place.require(!self.reactors[..index].contains(reactor), || {
                format!("reactors: {reactor} is listed twice")
            });
        }
        self.validate_single(config, earlier, &mut place);
        for other in earlier.iter().filter(|c| c.listen == self.listen) {
            place.problem(format!(
                "listen = \"{}\" is used by controller {} already",
                self.listen, other.name
            ));
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
                    "media {} has {why}, so one reactor serves it: write the same `reactor` for all controllers that use it, and no other one in `reactors`",
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

    fn validate_own(&self, place: &mut Place<'_>) {
        place.require(!matches!(self.listen, Listen::Unix(_)), || {
            format!(
                "listen = \"{}\": write vfio-user:PATH, or fuse:FOLDER",
                self.listen
            )
        });
        let is_mounted = matches!(self.listen, Listen::Fuse(_));
        place.require(is_mounted || self.fuse.is_none(), || {
            "fuse: only for a controller with listen = \"fuse:FOLDER\": remove it, or change listen".into()
        });
        place.require(!is_mounted || !self.intx, || {
            "intx: a mount uses no interrupt pin: remove it".into()
        });
        place.require(!is_mounted || self.msix, || {
            "msix: a mount uses no interrupts: remove it".into()
        });
        if let Some(subnqn) = &self.subnqn {
            place.require(subnqn.starts_with("nqn.") && !subnqn.contains(' '), || {
                format!("subnqn = \"{subnqn}\": write nqn.YYYY-MM.reverse.domain:name")
            });
        }
    }
}

/// `prefix a, b, c`, or nothing where there are none.
pub(super) fn list<'a>(prefix: &str, names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("{prefix} {}", names.join(", "))
}
