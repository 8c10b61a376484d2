//! `[media.timing]`: the timing model of a medium.
//!
//! A preset, and any of its parameters by name. The table `model::parameter` defines the valid
//! names; this file lists none of them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use model::preset::MeasuredBy;
use model::{Kind, Moment, Parameters};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::drive::{self, Drive};
use super::parameter::parameter_error;
use super::problem::Place;
use super::{Initial, Read, Size, Span, Zoned};

/// Default interval at which the state of a drive is saved while the drive works.
const STATE_INTERVAL: Duration = Duration::from_secs(60);

/// Longest time of a transport.
pub const MAX_ALLOWANCE: Duration = Duration::from_millis(10);

/// Timing model of a medium.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Timing {
    /// Preset of a drive, as `samsung-970-pro` or `samsung-970-pro@paper`, or a file that describes
    /// a drive (its name contains `/` or ends in `.toml`).
    pub preset: String,
    /// Drive of the preset, read once: later changes of its file do not affect this medium.
    #[serde(skip)]
    drive: Found,
    /// Point at which latencies were measured: `device` or `linux`. Only for presets of kind `nvm`
    /// and `kv`. Default: the preset's own for its latencies; `device` for those written here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_measured_by: Option<Measured>,
    /// File that keeps the model's state: page mapping and wear. Only for presets of kind `flash`.
    /// Default: for a regular file, its path with `.timing` appended; else none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub state: Option<PathBuf>,
    /// Interval at which the state is saved while the drive works; `0s` saves only at a clean stop.
    /// Only for presets of kind `flash`. Default: `60s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_interval: Option<Span>,
    /// State of a new drive: `fresh` (nothing is written, so that reads cost no sense), `filled`
    /// (every block was written once, in order) or `steady` (as after `nvmirage precondition`,
    /// which takes seconds to minutes). A restored state takes precedence. Only for presets of kind
    /// `flash`. Default: `filled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<Initial>,
    /// File that records the model's operations, written when the medium is closed, for
    /// `nvmirage fidelity --replay`; at most 4194304 operations. Needs a new drive. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub record: Option<PathBuf>,
    /// Time that NVMe/TCP adds to a command, between its host and the server: commands complete so
    /// much before the model's time, and not before their data have moved. Up to `10ms`. Only for
    /// media whose namespaces have hosts over NVMe/TCP alone. Default: `0s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport_allowance: Option<Span>,
    /// Parameters that differ from the preset.
    #[serde(flatten)]
    pub changes: BTreeMap<String, Text>,
}

/// A preset that was looked for. Not serialized.
#[derive(Clone, Debug, Default)]
struct Found(OnceLock<Result<Drive, String>>);

impl PartialEq for Found {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Timing {
    /// Reads `PRESET[,NAME=VALUE...]`, as on a command line.
    ///
    /// # Errors
    /// A part is no `NAME=VALUE`, or those of [`Timing::find`].
    pub fn parse(text: &str, read: Read) -> Result<Self, String> {
        let mut parts = text.split(',');
        let mut timing = Timing::of(parts.next().unwrap_or_default().to_owned());
        for part in parts {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}`: write NAME=VALUE, as in read_latency=8us"))?;
            timing.write(name, value)?;
        }
        timing.find(read)?;
        Ok(timing)
    }
}

/// Point at which a latency was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Measured {
    /// At the device.
    Device,
    /// By Linux, above the device.
    Linux,
}

impl From<Measured> for MeasuredBy {
    fn from(by: Measured) -> Self {
        match by {
            Measured::Device => MeasuredBy::Device,
            Measured::Linux => MeasuredBy::Linux,
        }
    }
}

/// Value as written: text, a whole number or a boolean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub String);

impl PartialSchema for Text {
    fn schema() -> RefOr<Schema> {
        let one_of = [Type::String, Type::Integer, Type::Boolean];
        ObjectBuilder::new()
            .schema_type(SchemaType::from_iter(one_of))
            .description(Some(
                "a parameter's value: text with its unit, a whole number, true or false",
            ))
            .into()
    }
}

impl ToSchema for Text {}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a parameter's value: text with its unit in quotes, a whole number, true or false",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Text, E> {
                Ok(Text(flag.to_string()))
            }
        }
        from.deserialize_any(Visitor)
    }
}

impl Timing {
    /// A preset without changes.
    pub fn of(preset: String) -> Self {
        Timing {
            preset,
            drive: Found::default(),
            as_measured_by: None,
            state: None,
            state_interval: None,
            initial: None,
            record: None,
            transport_allowance: None,
            changes: BTreeMap::new(),
        }
    }

    /// The drive of the preset; a preset's file is read, if it was not before.
    ///
    /// # Errors
    /// No such preset exists, or its file cannot be used.
    pub fn find(&self, read: Read) -> Result<&Drive, String> {
        let found = self.drive.0.get_or_init(|| Drive::find(&self.preset, read));
        found.as_ref().map_err(Clone::clone)
    }

    /// The same, of a preset's file that [`Timing::find`] has read.
    ///
    /// # Errors
    /// Those of [`Timing::find`].
    pub fn drive(&self) -> Result<&Drive, String> {
        if self.drive.0.get().is_none() && drive::is_file(&self.preset) {
            return Err(format!("the preset {} was not read", self.preset));
        }
        self.find(|_, _| Err(std::io::ErrorKind::Unsupported.into()))
    }

    /// The same for another process: the path of a preset's file is made absolute by `absolute`.
    ///
    /// # Errors
    /// Those of `absolute`.
    pub fn absolute(
        self,
        absolute: fn(&Path) -> std::io::Result<PathBuf>,
    ) -> std::io::Result<Self> {
        if !drive::is_file(&self.preset) {
            return Ok(self);
        }
        let path = absolute(Path::new(&self.preset))?;
        Ok(Timing {
            preset: path.to_string_lossy().into_owned(),
            ..self
        })
    }

    /// Sets `name = "value"`, as a configuration would.
    ///
    /// # Errors
    /// An invalid `as_measured_by`, `initial` or interval; other values are checked together with
    /// the rest.
    pub fn write(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "as_measured_by" => {
                self.as_measured_by = Some(match value {
                    "device" => Measured::Device,
                    "linux" => Measured::Linux,
                    _ => return Err(format!("as_measured_by={value}: write device or linux")),
                });
            }
            "initial" => {
                let found = Initial::ALL.into_iter().find(|one| one.name() == value);
                self.initial =
                    Some(found.ok_or_else(|| {
                        format!("initial={value}: write fresh, filled or steady")
                    })?);
            }
            "state" => self.state = Some(value.into()),
            "state_interval" => self.state_interval = Some(value.parse()?),
            "record" => self.record = Some(value.into()),
            "transport_allowance" => self.transport_allowance = Some(value.parse()?),
            _ => {
                self.changes.insert(name.to_owned(), Text(value.to_owned()));
            }
        }
        Ok(())
    }

    /// The preset with its changes as one command-line word. It has only what determines the
    /// model's latencies.
    pub fn in_one_word(&self) -> String {
        let by = self.as_measured_by.map(|by| match by {
            Measured::Device => ",as_measured_by=device",
            Measured::Linux => ",as_measured_by=linux",
        });
        let changes = self.changes.iter();
        let changes: String = changes
            .map(|(name, text)| format!(",{name}={}", text.0))
            .collect();
        let initial = self.initial();
        let initial = initial.map(|initial| format!(",initial={}", initial.name()));
        format!(
            "{}{}{changes}{}",
            self.preset,
            by.unwrap_or_default(),
            initial.unwrap_or_default()
        )
    }

    /// The parameters of a medium of `size_bytes`.
    ///
    /// # Errors
    /// Everything that is wrong, each with what to write.
    pub fn parameters(&self, size_bytes: u64) -> Result<Parameters, Vec<String>> {
        let parameters = self.applied(size_bytes)?;
        match parameters.check() {
            Ok(()) => Ok(parameters),
            Err(error) => Err(vec![error.to_string()]),
        }
    }

    /// The timing with parameters changed at run time: as written, and as all of its parameters.
    ///
    /// # Errors
    /// Everything that is wrong; for a parameter that cannot change now, the message says when it
    /// can.
    pub fn changed(
        &self,
        changes: &BTreeMap<String, Text>,
        size_bytes: u64,
    ) -> Result<(Timing, Parameters), Vec<String>> {
        let mut timing = self.clone();
        let mut parameters = self.parameters(size_bytes)?;
        let by = self.as_measured_by.map(MeasuredBy::from);
        let mut problems = Vec::new();
        for (name, text) in changes {
            if name == "transport_allowance" {
                problems.push("transport_allowance cannot change while the medium is open: delete the medium and create it again with another one".to_owned());
                continue;
            }
            if name == "initial" {
                problems.push("initial: the state of a new drive is fixed at creation: delete the medium and create it again with another one".to_owned());
                continue;
            }
            let set = parameters.set(name, &text.0, Moment::Running);
            let host_ns = by.unwrap_or_default().host_ns(name).unwrap_or(0);
            let set = set.and_then(|()| parameters.subtract_host(name, host_ns));
            problems.extend(set.err().map(|error| parameter_error(&error)));
            timing.changes.insert(name.clone(), text.clone());
        }
        problems.extend(parameters.check().err().map(|error| error.to_string()));
        if problems.is_empty() {
            Ok((timing, parameters))
        } else {
            Err(problems)
        }
    }

    /// The preset with the changes, unchecked against each other and the size.
    fn applied(&self, size_bytes: u64) -> Result<Parameters, Vec<String>> {
        let drive = self.drive().map_err(|error| vec![error])?;
        let kind = drive.kind();
        if self.as_measured_by.is_some() && matches!(kind, Kind::Flash | Kind::Zns) {
            return Err(vec![format!(
                "as_measured_by: only for presets of kind nvm and kv, and {} is of kind {}, whose latencies are those of its parts: remove it",
                self.preset,
                kind.name()
            )]);
        }
        if self.initial.is_some() && kind != Kind::Flash {
            return Err(vec![format!(
                "initial: only for presets of kind flash, and {} is of kind {}: remove it",
                self.preset,
                kind.name()
            )]);
        }
        let by = self.as_measured_by.map(MeasuredBy::from);
        let mut parameters = drive
            .parameters(size_bytes, by)
            .map_err(|error| vec![error])?;
        let mut problems = Vec::new();
        for (name, text) in &self.changes {
            let set = parameters.set(name, &text.0, Moment::Creation);
            let host_ns = by.unwrap_or_default().host_ns(name).unwrap_or(0);
            let set = set.and_then(|()| parameters.subtract_host(name, host_ns));
            problems.extend(set.err().map(|error| parameter_error(&error)));
        }
        if problems.is_empty() {
            Ok(parameters)
        } else {
            Err(problems)
        }
    }

    /// Appends what is wrong with it. Without `size`, what depends on the size is left to a later
    /// check.
    pub(super) fn validate(&self, size: Option<u64>, place: &mut Place<'_>) {
        let result = match size {
            Some(size) => self.parameters(size),
            None => self.applied(1 << 40),
        };
        for problem in result.err().into_iter().flatten() {
            place.problem(format!("timing: {problem}"));
        }
        if let Some(Span(allowance)) = self.transport_allowance {
            place.require(allowance <= MAX_ALLOWANCE, || {
                let most = Span(MAX_ALLOWANCE);
                format!("timing: transport_allowance: write up to {most}")
            });
        }
        for (key, is_there) in [
            ("state", self.state.is_some()),
            ("state_interval", self.state_interval.is_some()),
        ] {
            place.require(!is_there || self.has_state(), || {
                format!("timing: `{key}` is only for presets of kind flash: remove it")
            });
        }
    }

    /// How long before the model's time commands complete.
    pub fn transport_allowance_ns(&self) -> u64 {
        let span = self
            .transport_allowance
            .map_or(Duration::ZERO, |span| span.0);
        u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether the model has persistent state.
    pub fn has_state(&self) -> bool {
        self.drive().is_ok_and(|drive| drive.kind() == Kind::Flash)
    }

    /// State of a new drive; `None` for a model without such a state.
    pub fn initial(&self) -> Option<Initial> {
        self.has_state().then(|| self.initial.unwrap_or_default())
    }

    /// Interval at which the state is saved while the drive works; `None`: only at a clean stop.
    pub fn state_interval(&self) -> Option<Duration> {
        let interval = self.state_interval.map_or(STATE_INTERVAL, |span| span.0);
        (!interval.is_zero()).then_some(interval)
    }
}

impl Timing {
    /// Checks that the medium's zones are those of the model.
    pub(super) fn validate_zones(&self, zoned: &Zoned, size: Option<u64>, place: &mut Place<'_>) {
        let Ok(Parameters::Zones(zones)) = self.applied(size.unwrap_or(1 << 40)) else {
            return;
        };
        let (zone, capacity) = (Size(zones.zone_size_bytes), Size(zones.zone_capacity_bytes));
        let seen = zoned.zone_capacity.unwrap_or(zoned.zone_size);
        place.require((zoned.zone_size, seen) == (zone, capacity), || {
            format!(
                "zoned: the drive of timing.preset = \"{}\" has other zones: write zone_size = \"{zone}\" and zone_capacity = \"{capacity}\", or the same ones in timing",
                self.preset
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Timing, String> {
        Timing::parse(text, |_, _| Err(std::io::ErrorKind::NotFound.into()))
    }
    use crate::config::from_toml;

    fn media(kind: &str, timing: &str) -> Result<crate::config::Config, String> {
        let text = format!(
            "[[media]]\nname = \"d\"\nkind = \"ram\"\nsize = \"{kind}\"\n[media.timing]\n{timing}\n"
        );
        from_toml(&text).map_err(|error| format!("{error:#}"))
    }

    fn parameters(timing: &str) -> Parameters {
        let config = media("8GiB", timing).unwrap();
        let medium = &config.media[0];
        medium.timing.as_ref().unwrap().parameters(8 << 30).unwrap()
    }

    fn get(parameters: &Parameters, name: &str) -> String {
        parameters.get(name).unwrap().to_string()
    }

    #[test]
    fn a_preset_and_what_differs_from_it() {
        let flash = parameters(
            "preset = \"samsung-970-pro@paper\"\nprogram = \"200us\"\nchannels = 4\nearly_completion = false",
        );
        assert_eq!(get(&flash, "program"), "200us");
        assert_eq!(get(&flash, "channels"), "4");
        assert_eq!(get(&flash, "early_completion"), "false");
        assert_eq!(get(&flash, "read_cell0"), "36us");
        let code = parameters("preset = \"optane-p4800x\"\narithmetic = \"code\"");
        assert_eq!(get(&code, "arithmetic"), "code");
    }

    #[test]
    fn the_hosts_share_of_latencies() {
        let latency = |more: &str| {
            let text = format!("preset = \"optane-p4800x\"\n{more}");
            get(&parameters(&text), "read_latency")
        };
        assert_eq!(latency(""), "5390ns");
        assert_eq!(latency("as_measured_by = \"linux\""), "5390ns");
        assert_eq!(latency("as_measured_by = \"device\""), "12us");
        // a latency that is written here was measured at the device, unless `as_measured_by` says
        // otherwise
        assert_eq!(latency("read_latency = \"8900ns\""), "8900ns");
        let linux = "as_measured_by = \"linux\"\nread_latency = \"8900ns\"";
        assert_eq!(latency(linux), "2290ns");
    }

    #[test]
    fn what_is_wrong_is_told_all_at_once() {
        let pro = "preset = \"samsung-970-pro\"\n";
        let optane = "preset = \"optane-p4800x\"\n";
        for (size, timing, says) in [
            (
                "8GiB",
                "preset = \"samsung-970pro\"".to_owned(),
                "timing: there is no preset `samsung-970pro`; did you mean `samsung-970-pro`?",
            ),
            (
                "8GiB",
                "preset = \"xyz\"".to_owned(),
                "there are optane-p4800x, optane-p4800x@paper,",
            ),
            (
                "8GiB",
                "program = \"1us\"".to_owned(),
                "missing key `preset`",
            ),
            (
                "8GiB",
                format!("{pro}proggram = \"1us\""),
                "did you mean `program`?",
            ),
            (
                "8GiB",
                format!("{pro}read_latency = \"8us\""),
                "no parameter `read_latency` for a model of kind flash; the read latency of flash is the sum of its parts: set read_4k_cell0",
            ),
            (
                "8GiB",
                format!("{pro}zebra = \"8us\""),
                "for a model of kind flash; `nvmirage explain PRESET` lists them",
            ),
            (
                "8GiB",
                format!("{pro}program = \"1\""),
                "program = \"1\": write it with its unit",
            ),
            (
                "8GiB",
                format!("{pro}program = 1.5"),
                "a parameter's value: text with its unit in quotes",
            ),
            ("8GiB", format!("{pro}channels = -1"), "channels = \"-1\""),
            (
                "8GiB",
                format!("{pro}erase = \"1h\"\nchannels = 5000"),
                "channels = \"5000\": write 1 to 1024\nmedia d: timing: erase = \"1h\"",
            ),
            (
                "8GiB",
                format!("{pro}transport_allowance = \"11ms\""),
                "transport_allowance: write up to 10ms",
            ),
            (
                "8GiB",
                format!("{pro}as_measured_by = \"linux\""),
                "only for presets of kind nvm and kv",
            ),
            (
                "8GiB",
                format!("{pro}arithmetic = \"code\"\nlink_bandwidth = \"9GB/s\""),
                "with arithmetic = \"code\" write 32MB/s to 7782MiB/s",
            ),
            ("1GiB", pro.to_owned(), "write a size of at least"),
            (
                "8GiB",
                format!("{optane}as_measured_by = \"windows\""),
                "unknown value `windows`",
            ),
            (
                "8GiB",
                format!("{optane}as_measured_by = \"linux\"\nwrite_latency = \"9us\""),
                "nothing is left for the drive",
            ),
            (
                "8GiB",
                format!("{optane}read_latency = \"1us\""),
                "shorter than the",
            ),
            (
                "3GiB",
                "preset = \"wd-zn540\"".to_owned(),
                "no whole number of zones",
            ),
        ] {
            let message = media(size, &timing).unwrap_err();
            assert!(message.contains(says), "{timing}: {message}");
        }
    }

    #[test]
    fn in_one_word() {
        let timing: Timing = parse("optane-p4800x,as_measured_by=linux,read_latency=10us").unwrap();
        let parameters = timing.parameters(1 << 30).unwrap();
        assert_eq!(get(&parameters, "read_latency"), "3390ns");
        for (text, says) in [
            ("optan-p4800x", "did you mean `optane-p4800x`?"),
            ("optane-p4800x,8us", "write NAME=VALUE"),
            ("optane-p4800x,as_measured_by=me", "write device or linux"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn zones_of_hosts_are_those_of_the_model() {
        let zoned = |capacity: &str| {
            let zones = format!("[media.zoned]\nzone_size = \"2GiB\"\n{capacity}");
            media("8GiB", &format!("preset = \"wd-zn540\"\n{zones}"))
        };
        zoned("zone_capacity = \"1077MiB\"").unwrap();
        let message = zoned("").unwrap_err();
        let says = "write zone_size = \"2GiB\" and zone_capacity = \"1077MiB\"";
        assert!(message.contains(says), "{message}");
    }

    #[test]
    fn it_is_written_as_it_was_read() {
        let config = media(
            "8GiB",
            "preset = \"samsung-970-pro\"\nchannels = 4\nprogram = \"1us\"\ninitial = \"filled\"",
        );
        let config = config.unwrap();
        let again = from_toml(&config.with_defaults(|_| true)).unwrap();
        assert_eq!(again.media, config.media);
        let json = serde_json::to_string(&config.media[0]).unwrap();
        let from_json: crate::config::Medium = serde_json::from_slice(json.as_bytes()).unwrap();
        assert_eq!(from_json, config.media[0]);
    }
}
