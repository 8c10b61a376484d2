//! Faults of a medium's configuration.

use model::{Kind, Parameters};

use super::{Backing, Direct, Drive, File, KeyValue, Medium, MediumKeys, Target};
use crate::config::object::Object;
use crate::config::problem::{Place, Problem};
use crate::config::{Config, Controller, MediumKind, Timing, allow, reactors_in_words};

/// Largest key-value medium.
const MAX_KEY_VALUE_LEN: u64 = 1 << 40;

impl Medium {
    /// Reason why only one reactor may serve it: a timing model, zones, vendor
    /// commands, or keys.
    pub(in crate::config) fn why_single(&self) -> Option<&'static str> {
        if self.timing.is_some() {
            Some("timing")
        } else if self.zoned().is_some() {
            Some("zones")
        } else if self.vendor.is_some() {
            Some("vendor commands")
        } else {
            (self.kind() == MediumKind::KeyValue).then_some("keys")
        }
    }

    /// Appends what is wrong with it.
    pub fn validate(&self, problems: &mut Vec<Problem>) {
        let mut place = Place {
            name: format!("media {}", self.name),
            problems,
        };
        for fault in &self.faults {
            place.problem(fault.clone());
        }
        match &self.backing {
            Backing::File(file) => file.validate(&mut place),
            Backing::Drive(drive) => drive.validate(&mut place),
            Backing::KeyValue(keys) => keys.validate(&mut place),
            Backing::Null { .. } | Backing::Ram { .. } => {}
        }
        let size = self.size();
        let written = MediumKeys::from(self.clone()).values();
        for key in MediumKeys::KEYS {
            // A missing size is a fault already.
            let is_known = key.name != "size" || size.is_some();
            if is_known && let Err(wrong) = key.check(&written[key.name]) {
                place.problem(wrong);
            }
        }
        if let Some(zoned) = self.zoned() {
            zoned.validate(size, &mut place);
            place.require(self.vendor.is_none(), || {
                "vendor: a medium with zones has no vendor commands: remove vendor, or zoned".into()
            });
        }
        self.validate_timing(&mut place);
    }

    fn validate_timing(&self, place: &mut Place<'_>) {
        let Some(timing) = &self.timing else {
            return;
        };
        let size = self.size().map(|size| size.0);
        let is_key_value = self.kind() == MediumKind::KeyValue;
        // Invalid combinations of other keys are reported elsewhere.
        if let Ok(parameters) = timing.parameters(size.unwrap_or(0)) {
            let of_keys = matches!(parameters, Parameters::Kv(_));
            place.require(of_keys || !is_key_value, || {
                "timing: a key-value medium needs a preset of kind kv, such as samsung-kvssd".into()
            });
            place.require(!of_keys || is_key_value, || {
                "timing: a preset of kind kv is only for kind = \"keyvalue\": choose another preset, or that kind".into()
            });
        }
        timing.validate(size, place);
        self.validate_record(timing, place);
        if let Some(zoned) = self.zoned() {
            timing.validate_zones(zoned, size, place);
        }
    }

    /// Recordings are replayed on a new drive, so the recorded drive must be new as well. A
    /// key-value model keeps no state and is always new.
    fn validate_record(&self, timing: &Timing, place: &mut Place<'_>) {
        let kind = timing.drive().map(|drive| drive.kind());
        let on_file = self.kind() == MediumKind::File || timing.state.is_some();
        let fresh = match kind {
            Ok(Kind::Kv) | Err(_) => true,
            Ok(Kind::Zns) => !on_file && self.state().is_none(),
            Ok(_) => !on_file,
        };
        place.require(timing.record.is_none() || fresh, || {
            "timing: `record` needs a new drive: remove it, or write kind = \"ram\" or \"null\", without `state`".into()
        });
    }

    /// Checks that a drive over NVMe/TCP is no controller of this configuration.
    pub(in crate::config) fn validate_elsewhere(
        &self,
        config: &Config,
        problems: &mut Vec<Problem>,
    ) {
        let Some(Target::NvmeTcp(target)) = self.drive().map(|drive| &drive.target) else {
            return;
        };
        let is_it = |controller: &&Controller| {
            let listens = controller.tcp_address().zip(controller.subnqn.as_deref());
            listens.is_some_and(|(address, nqn)| target.is_of(address, nqn))
        };
        let own = config.controller.iter().find(is_it);
        let mut place = Place {
            name: format!("media {}", self.name),
            problems,
        };
        place.require(own.is_none(), || {
            let name = own.map_or("", |controller| &controller.name);
            format!(
                "target = \"nvme-tcp:{target}\": that is controller {name} of this server: write the address of another server's drive"
            )
        });
    }

    /// Checks that hosts which see completions at once do not see them early.
    pub(in crate::config) fn validate_allowance(
        &self,
        config: &Config,
        problems: &mut Vec<Problem>,
    ) {
        let timing = self.timing.as_ref();
        if timing.is_none_or(|timing| timing.transport_allowance_ns() == 0) {
            return;
        }
        // Hosts of a subsystem with a pool attach its namespaces to any of its controllers.
        let reaches = |controller: &Controller| {
            let subsystem = controller.subsystem();
            let mut others = config.controllers_of(subsystem);
            let is_shared = !config.pool_of(subsystem).is_empty();
            controller.uses(config, &self.name)
                || is_shared && others.any(|other| other.uses(config, &self.name))
        };
        let is_near =
            |controller: &&Controller| controller.tcp_address().is_none() && reaches(controller);
        let near = config.controller.iter().find(is_near);
        let mut place = Place {
            name: format!("media {}", self.name),
            problems,
        };
        place.require(near.is_none(), || {
            let name = near.map_or("", |controller| &controller.name);
            format!(
                "timing: transport_allowance is for hosts over NVMe/TCP, and controller {name} has others, which would see commands complete too early: remove it, or serve the medium only to controllers with listen = \"nvme-tcp:…\", in a subsystem of their own where it has a pool"
            )
        });
    }

    /// Checks the reactors of `completions` and `heads`, of which there are `reactors`.
    pub(in crate::config) fn validate_relays(&self, reactors: usize, problems: &mut Vec<Problem>) {
        let Some(drive) = self.drive() else {
            return;
        };
        let mut place = Place {
            name: format!("media {}", self.name),
            problems,
        };
        for (key, reactor) in [("completions", drive.completions), ("heads", drive.heads)] {
            let there_is = reactor.is_none_or(|reactor| reactor < reactors);
            place.require(there_is, || {
                let reactor = reactor.unwrap_or_default();
                format!("{key} = {reactor}: {}", reactors_in_words(reactors))
            });
        }
        place.require(drive.heads.is_none() || drive.completions.is_some(), || {
            "heads is only for a drive with `completions`: write completions = 1, or remove heads".into()
        });
        let differ = drive.heads.is_none() || drive.heads != drive.completions;
        place.require(differ, || {
            "heads names the reactor of completions, which already writes the head doorbells: remove heads"
                .into()
        });
    }
}

impl File {
    fn validate(&self, place: &mut Place<'_>) {
        place.require(!(self.read_only && self.zoned.is_some()), || {
            "read_only = true: zones write a log to the file: remove zoned, or read_only".into()
        });
        let polls_cache = self.poll_completions && self.direct == Direct::Off;
        place.require(!polls_cache, || {
            "poll_completions needs direct I/O: remove direct = \"off\", or poll_completions".into()
        });
    }
}

impl Drive {
    fn validate(&self, place: &mut Place<'_>) {
        allow::validate(&self.admin_allow, place);
        self.validate_host(place);
    }

    /// Checks the keys of drives over NVMe/TCP, and those that such drives do not have.
    fn validate_host(&self, place: &mut Place<'_>) {
        let over_tcp = matches!(self.target, Target::NvmeTcp(_));
        let (key, ctrl_key) = (self.dhchap_key.is_some(), self.dhchap_ctrl_key.is_some());
        for (name, is_there) in [
            ("hostnqn", self.hostnqn.is_some()),
            ("dhchap_key", key),
            ("dhchap_ctrl_key", ctrl_key),
            ("tls_key", self.tls_key.is_some()),
            ("concat", self.concat),
            ("header_digest", self.header_digest),
            ("data_digest", self.data_digest),
        ] {
            place.require(over_tcp || !is_there, || {
                format!(
                    "{name}: only for a drive with target = \"nvme-tcp:HOST:PORT/NQN\": remove it"
                )
            });
        }
        if let Some(nqn) = &self.hostnqn {
            place.require(nqn.starts_with("nqn."), || {
                format!("hostnqn = \"{nqn}\": write nqn.YYYY-MM.reverse.domain:name")
            });
        }
        place.require(!key || self.hostnqn.is_some(), || {
            "dhchap_key: a secret is that of a host NQN: write hostnqn, too".into()
        });
        place.require(self.tls_key.is_none() || self.hostnqn.is_some(), || {
            "tls_key: a key is that of a host NQN: write hostnqn, too".into()
        });
        place.require(!self.concat || key, || {
            "concat: a key of TLS is made by DH-HMAC-CHAP: write dhchap_key, too".into()
        });
        place.require(!self.concat || self.tls_key.is_none(), || {
            "concat: a drive with a tls_key is connected with that: remove one of both".into()
        });
        place.require(!ctrl_key || key, || {
            "dhchap_ctrl_key: a controller authenticates itself only to hosts that do: write dhchap_key, too".into()
        });
        place.require(!over_tcp || self.completions.is_none(), || {
            "completions: the connections of a drive over NVMe/TCP are read by the reactors that use it: remove completions".into()
        });
    }
}

impl KeyValue {
    fn validate(&self, place: &mut Place<'_>) {
        place.require(self.size.0 <= MAX_KEY_VALUE_LEN, || {
            "the size of a key-value medium is at most 1TiB: write a smaller size".into()
        });
    }
}
