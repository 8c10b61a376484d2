//! Drives that a timing model imitates: the program's own presets, and preset files for other
//! drives.
//!
//! A name that contains `/` or ends with `.toml` is the path of a file. A file gives every
//! parameter of its kind, except mechanisms that are off by default, and the source of each value;
//! `nvmirage calibrate` writes such files.
//!
//! The path is used as written: there is no search path.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use model::preset::{self, MeasuredBy, Preset, Source};
use model::{Kind, Parameters};
use serde::{Deserialize, Serialize};

use super::parameter::parameter_error;
use super::read::nearest_word;
use super::{Read, Size};

/// Version of the format; no other is read.
pub const FILE_VERSION: u32 = 1;
/// Longest file that is read.
const FILE_MAX: u64 = 1 << 20;

/// A drive that a timing model imitates.
#[derive(Clone, Debug)]
pub enum Drive {
    /// One of the program's presets.
    Known(&'static Preset),
    /// A preset file.
    File(Arc<PresetFile>),
}

/// A value and its source.
#[derive(Clone, Debug)]
pub struct Given {
    /// As it was published or measured.
    pub value: String,
    /// Source of the value.
    pub source: String,
    /// Part of the value that the host took, in nanoseconds; it is subtracted.
    pub host_ns: u64,
    /// Confidence interval of a measured value.
    pub interval: Option<[String; 2]>,
}

/// A figure of the real drive.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The quantity.
    pub what: String,
    /// Its value, with a unit.
    pub figure: String,
    /// The origin of the value.
    pub source: String,
}

/// Content of a preset file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetFile {
    /// Version of the format.
    pub nvmirage_preset: u32,
    /// The drive's name.
    pub name: String,
    /// Description, in one line.
    pub about: String,
    /// Kind of its model, as in `kind = "nvm"`.
    pub kind: String,
    /// Size of the real drive.
    pub size: Size,
    /// Its parameters, by name.
    pub parameters: BTreeMap<String, FileValue>,
}

/// A parameter in a preset's file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileValue {
    /// Value with its unit.
    pub value: String,
    /// Source of the value.
    pub source: String,
    /// Confidence interval of a measured value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[String; 2]>,
}

/// Whether a preset is the path of a file.
pub fn is_file(name: &str) -> bool {
    name.contains('/') || name.ends_with(".toml")
}

impl Drive {
    /// The drive of a preset's name or file.
    ///
    /// # Errors
    /// No preset has that name: the message names similar ones, or all. The file cannot be used.
    pub fn find(name: &str, read: Read) -> Result<Self, String> {
        if is_file(name) {
            PresetFile::read(Path::new(name), read).map(|file| Drive::File(Arc::new(file)))
        } else {
            find_preset(name).map(Drive::Known)
        }
    }

    /// Its name, with its variant.
    pub fn name(&self) -> String {
        match self {
            Drive::Known(preset) => preset.full_name(),
            Drive::File(file) => file.name.clone(),
        }
    }

    /// Description, in one line.
    pub fn about(&self) -> &str {
        match self {
            Drive::Known(preset) => preset.about,
            Drive::File(file) => &file.about,
        }
    }

    /// The kind of its model.
    pub fn kind(&self) -> Kind {
        match self {
            Drive::Known(preset) => preset.kind,
            Drive::File(file) => file.kind().expect("checked when it was read"),
        }
    }

    /// Size of the real drive.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Drive::Known(preset) => preset.size_bytes,
            Drive::File(file) => file.size.0,
        }
    }

    /// Source of the size.
    pub fn size_source(&self) -> String {
        match self {
            Drive::Known(preset) => shown(preset.size_source),
            Drive::File(_) => "file: as it says".to_owned(),
        }
    }

    /// Published figures of the real drive.
    pub fn published(&self) -> Vec<Figure> {
        let Drive::Known(preset) = self else {
            return Vec::new();
        };
        let figures = preset.published.iter().map(|p| Figure {
            what: p.what.to_owned(),
            figure: p.figure.to_owned(),
            source: shown(p.source),
        });
        figures.collect()
    }

    /// The value that the drive gives a parameter; `None` where the parameter is off by default.
    pub fn given(&self, name: &str) -> Option<Given> {
        match self {
            Drive::Known(preset) => {
                let value = preset.values().find(|v| v.name == name)?;
                Some(Given {
                    value: value.value.to_owned(),
                    source: shown(value.source),
                    host_ns: value.host_ns,
                    interval: None,
                })
            }
            Drive::File(file) => {
                let value = file.parameters.get(name)?.clone();
                Some(Given {
                    value: value.value,
                    source: value.source,
                    host_ns: 0,
                    interval: value.interval,
                })
            }
        }
    }

    /// The parameters of such a drive of `size_bytes`. `by` is the point at which its latencies
    /// were measured; `None`: the one that their source names.
    ///
    /// # Errors
    /// The host's share is at least as long as a latency.
    pub fn parameters(
        &self,
        size_bytes: u64,
        by: Option<MeasuredBy>,
    ) -> Result<Parameters, String> {
        match self {
            Drive::Known(preset) => preset.parameters(size_bytes, by),
            Drive::File(file) => file.parameters(size_bytes).and_then(|mut parameters| {
                for name in file.parameters.keys() {
                    let host_ns = by.unwrap_or_default().host_ns(name).unwrap_or(0);
                    parameters.subtract_host(name, host_ns)?;
                }
                Ok(parameters)
            }),
        }
        .map_err(|error| parameter_error(&error))
    }
}

impl PresetFile {
    /// Reads a preset file.
    ///
    /// # Errors
    /// The file cannot be read, has another version, or does not describe a drive; the message
    /// includes the next step.
    pub fn read(path: &Path, read: Read) -> Result<Self, String> {
        let shown = path.display();
        let text = read(path, FILE_MAX)
            .map_err(|error| format!("cannot read the preset {shown}: {error}"))?;
        Self::parse(&text).map_err(|why| format!("the preset {shown} cannot be used: {why}"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        /// The version alone, so that a file of a later format gets a clear error.
        #[derive(Deserialize)]
        struct Version {
            nvmirage_preset: Option<u32>,
        }
        let version: Version = toml::from_str(text).map_err(|error| error.to_string())?;
        match version.nvmirage_preset {
            Some(FILE_VERSION) => {}
            Some(other) => {
                return Err(format!(
                    "unsupported version {other}; this program reads version {FILE_VERSION}"
                ));
            }
            None => {
                return Err(format!(
                    "nvmirage_preset = {FILE_VERSION} is missing, so it is not a preset; nvmirage calibrate writes presets"
                ));
            }
        }
        let file: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        file.kind()?;
        let parameters = file
            .parameters(file.size.0)
            .map_err(|error| parameter_error(&error))?;
        parameters.check().map_err(|error| error.to_string())?;
        Ok(file)
    }

    fn kind(&self) -> Result<Kind, String> {
        let mut kinds = Kind::ALL.into_iter();
        kinds.find(|kind| kind.name() == self.kind).ok_or_else(|| {
            let names = Kind::ALL.map(Kind::name);
            format!(
                "kind = \"{}\": write one of {}",
                self.kind,
                names.join(", ")
            )
        })
    }

    fn parameters(&self, size_bytes: u64) -> Result<Parameters, model::InvalidParameter> {
        let kind = self.kind().expect("checked when it was read");
        let values = self.parameters.iter();
        let values = values.map(|(name, value)| (name.as_str(), value.value.as_str()));
        Parameters::given(kind, size_bytes, values)
    }

    /// The text of its file, with the parameters in the order of their table.
    pub fn to_text(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let mut text = format!(
            "# A drive for nvmirage: [media.timing] preset = \"FILE\", nvmirage explain FILE, nvmirage simulate --preset FILE\n\
             nvmirage_preset = {}\nname = {}\nabout = {}\nkind = {}\nsize = \"{}\"\n",
            self.nvmirage_preset,
            quoted(&self.name),
            quoted(&self.about),
            quoted(&self.kind),
            self.size
        );
        let order = self.kind().into_iter().flat_map(Kind::parameters);
        for parameter in order {
            let Some(given) = self.parameters.get(parameter.name) else {
                continue;
            };
            let _ = write!(
                text,
                "\n[parameters.{}]\nvalue = {}\nsource = {}\n",
                parameter.name,
                quoted(&given.value),
                quoted(&given.source)
            );
            if let Some([low, high]) = &given.interval {
                let _ = writeln!(text, "interval = [{}, {}]", quoted(low), quoted(high));
            }
        }
        text
    }
}

fn shown(source: Source) -> String {
    format!("{}: {}", source.word(), source.text())
}

/// The program's preset of that name.
fn find_preset(name: &str) -> Result<&'static Preset, String> {
    if let Some(found) = preset::preset(name) {
        return Ok(found);
    }
    let mut names: Vec<String> = Vec::new();
    for preset in preset::presets() {
        for name in [preset.name.to_owned(), preset.full_name()] {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let all = || names.iter().map(String::as_str);
    // A substring, as in `970-pro`, is a better suggestion than its edit distance says.
    let has_it = |word: &&str| name.len() >= 3 && word.contains(name);
    Err(
        match all().find(has_it).or_else(|| nearest_word(name, all())) {
            Some(word) => format!("there is no preset `{name}`; did you mean `{word}`?"),
            None => format!(
                "there is no preset `{name}`: there are {}, and files, whose names hold a / or end with .toml",
                names.join(", ")
            ),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Optane in a file.
    fn optane() -> PresetFile {
        let preset = preset::preset("optane-p4800x").unwrap();
        let values = preset.values().map(|v| {
            let value = FileValue {
                value: v.value.to_owned(),
                source: "measured: \"here\"".to_owned(),
                interval: (v.name == "read_rate").then(|| ["549K/s".into(), "551K/s".into()]),
            };
            (v.name.to_owned(), value)
        });
        PresetFile {
            nvmirage_preset: FILE_VERSION,
            name: "mine".into(),
            about: "a drive \\ of mine".into(),
            kind: "nvm".into(),
            size: Size(375_000_000_000),
            parameters: values.collect(),
        }
    }

    #[test]
    fn a_file_reads_back_as_it_was_written() {
        let file = optane();
        let read = PresetFile::parse(&file.to_text()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{file:?}"));
        let drive = Drive::File(Arc::new(read));
        assert_eq!(drive.kind(), Kind::Nvm);
        let given = drive.given("read_rate").unwrap();
        assert_eq!(given.interval.unwrap()[1], "551K/s");
        // A file's latencies were measured at the device, unless `as_measured_by` says otherwise.
        let latency = |by| {
            let parameters = drive.parameters(1 << 30, by).unwrap();
            parameters.get("read_latency").unwrap().to_string()
        };
        assert_eq!(latency(None), "12us");
        assert_eq!(latency(Some(MeasuredBy::Linux)), "5390ns");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told() {
        let good = optane().to_text();
        let with = |from: &str, to: &str| {
            assert!(good.contains(from), "{from}");
            PresetFile::parse(&good.replacen(from, to, 1)).unwrap_err()
        };
        for (from, to, says) in [
            ("nvmirage_preset = 1", "nvmirage_preset = 2", "version 2"),
            (
                "nvmirage_preset = 1\n",
                "",
                "nvmirage_preset = 1 is missing",
            ),
            ("\"nvm\"", "\"nvme\"", "one of nvm, kv, flash, zns"),
            ("about", "abuot", "abuot"),
            ("value = \"12us\"", "value = \"12\"", "with its unit"),
            ("value = \"12us\"", "value = \"1us\"", "shorter than"),
            (
                "[parameters.read_latency]",
                "[parameters.read_latncy]",
                "did you mean `read_latency`?",
            ),
        ] {
            let error = with(from, to);
            assert!(error.contains(says), "{error}");
        }
        let cut = good.split("\n[parameters.write_rate]").next().unwrap();
        let error = PresetFile::parse(cut).unwrap_err();
        assert!(
            error.contains("needs these parameters, too: write_rate"),
            "{error}"
        );
        let error = Drive::find("/nonexistent.toml", |_, _| {
            Err(std::io::ErrorKind::NotFound.into())
        })
        .unwrap_err();
        assert!(
            error.contains("cannot read the preset /nonexistent.toml"),
            "{error}"
        );
    }
}
