//! `--media KIND[:KEY=VALUE,…]`: a medium in one argument.
//!
//! Its keys are those of a medium in the configuration, read from the same table, except tables:
//! the timing model is `preset`, and `timing.` followed by a parameter's name.

use std::ffi::OsStr;
use std::str::FromStr;

use api::config::object::{Key, Object, Shape};
use api::config::{self, MediumKeys, MediumKind, Namespace, Timing};
use clap_complete::{ArgValueCompleter, CompletionCandidate};
use serde_json::{Map, Value};

/// One `--media` argument: a medium without a name, and the block size of its namespace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MediaArg {
    pub(super) medium: MediumKeys,
    pub(super) lba_size: Option<u32>,
}

/// Keys that are in the table, and no keys of the argument.
const WITHOUT: [&str; 3] = ["name", "kind", "timing"];

/// Keys with a value of their own.
fn keys() -> impl Iterator<Item = &'static Key> {
    let of_medium = MediumKeys::KEYS.iter();
    let of_medium = of_medium.filter(|key| key.table.is_empty() && !WITHOUT.contains(&key.name));
    let of_namespace = Namespace::KEYS.iter().filter(|key| key.name == "lba_size");
    of_medium.chain(of_namespace)
}

/// The words of all kinds.
fn kinds() -> &'static [&'static str] {
    match Shape::of::<MediumKind>() {
        Shape::Words(words) => words,
        _ => &[],
    }
}

/// `a, b or c`.
fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// Text of `--help`.
pub(super) fn help() -> String {
    let keys: Vec<String> = keys().map(|key| format!("{}=", key.name)).collect();
    format!(
        "Medium: {}, with {}, preset= and timing.NAME=",
        listed(kinds()),
        keys.join(", ")
    )
}

/// Completes kinds, and the keys of a kind.
pub(super) fn completer() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let offered = offered(&current.to_string_lossy()).into_iter();
        let candidates = offered.map(|(text, about)| {
            let about = (!about.is_empty()).then(|| about.into());
            CompletionCandidate::new(text).help(about)
        });
        candidates.collect()
    })
}

/// The texts that continue `current`, each with its description.
fn offered(current: &str) -> Vec<(String, String)> {
    let Some((kind, _)) = current.split_once(':') else {
        let fits = kinds().iter().filter(|word| word.starts_with(current));
        return fits
            .map(|word| ((*word).to_owned(), String::new()))
            .collect();
    };
    let (before, part) = current.split_at(current.rfind([':', ',']).map_or(0, |at| at + 1));
    let has =
        |key: &&Key| key.kinds.is_empty() || key.kinds.iter().any(|one| one.to_string() == kind);
    let own = keys().filter(has);
    let own = own.map(|key| (key.name, key.about.trim()));
    let all = own.chain([("preset", "Timing model: a preset of a drive.")]);
    let fits = all.filter(|(name, _)| name.starts_with(part));
    fits.map(|(name, about)| (format!("{before}{name}="), about.to_owned()))
        .collect()
}

impl FromStr for MediaArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        if !kinds().contains(&kind) {
            return Err(format!(
                "unknown media kind `{kind}`: write {}, as in ram:size=8GiB or file:path=disk.img,size=8GiB",
                listed(kinds())
            ));
        }
        let mut values = Map::new();
        values.insert("name".to_owned(), "".into());
        values.insert("kind".to_owned(), kind.into());
        let mut timing = None;
        let mut seen = Vec::new();
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| {
                format!("`{part}` is not key=value; a path with a comma needs a configuration file")
            })?;
            if seen.contains(&name) {
                return Err(format!("{name} is given twice: remove one"));
            }
            seen.push(name);
            match (name.strip_prefix("timing."), &mut timing) {
                (Some(name), Some(timing)) => Timing::write(timing, name, value)?,
                (Some(_), None) => return Err(format!("{name}: write it after preset=NAME")),
                (None, _) if name == "preset" => timing = Some(Timing::of(value.to_owned())),
                (None, _) => {
                    let key = keys().find(|key| key.name == name);
                    let key = key.ok_or_else(|| unknown(name))?;
                    values.insert(name.to_owned(), read(key, value)?);
                }
            }
        }
        let lba_size = values.remove("lba_size");
        let lba_size = lba_size.and_then(|size| u32::try_from(size.as_u64()?).ok());
        let medium = serde_json::from_value(Value::Object(values));
        let mut medium: MediumKeys = medium.map_err(|error| error.to_string())?;
        medium.timing = timing;
        Ok(MediaArg { medium, lba_size })
    }
}

impl MediaArg {
    /// The configuration of the medium, named `name`.
    pub(super) fn medium(&self, name: String) -> config::Medium {
        let keys = MediumKeys {
            name,
            ..self.medium.clone()
        };
        keys.into()
    }
}

/// Reads the value of a key.
fn read(key: &Key, value: &str) -> Result<Value, String> {
    key.parse(value).map_err(|error| {
        let name = key.name;
        match (key.shape)() {
            Shape::Words(words) => format!("{name}={value}: write {}", listed(words)),
            Shape::Flag => format!("{name}={value}: write true or false"),
            Shape::Whole if key.range().is_empty() => {
                format!("{name}={value}: write a whole number")
            }
            Shape::Whole => format!("{name}={value}: write {}", key.range()),
            Shape::Text | Shape::List | Shape::Table => format!("{name}: {error}"),
        }
    })
}

fn unknown(key: &str) -> String {
    let names = || keys().map(|key| key.name).chain(["preset"]);
    let nearest = names()
        .map(|word| (strsim::damerau_levenshtein(key, word), word))
        .filter(|(distance, word)| *distance <= word.len() / 2)
        .min();
    match nearest {
        Some((_, word)) => format!("there is no key `{key}`; did you mean `{word}`?"),
        None => {
            let all: Vec<&str> = names().collect();
            format!("there is no key `{key}`: there are {}", all.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use api::config::{Dialect, Direct, Size};

    use super::*;

    fn parse(text: &str) -> MediaArg {
        text.parse().unwrap()
    }

    fn error(text: &str) -> String {
        text.parse::<MediaArg>().unwrap_err()
    }

    #[test]
    fn kinds_with_and_without_keys() {
        assert_eq!(parse("null").medium.kind, MediumKind::Null);
        let ram = parse("ram:size=8GiB").medium;
        assert_eq!((ram.kind, ram.size), (MediumKind::Ram, Some(Size(8 << 30))));
        let file = parse("file:path=/a/b=c.img,size=1GiB,direct=off,lba_size=512");
        assert_eq!(file.lba_size, Some(512));
        let file = file.medium;
        assert_eq!(file.path, Some("/a/b=c.img".into()));
        assert_eq!(file.size, Some(Size(1 << 30)));
        assert_eq!(file.direct, Some(Direct::Off));
        let drive = parse("drive:target=pci:0000:01:00.0,nsid=2,awupf=4KiB").medium;
        assert_eq!(drive.target, Some("pci:0000:01:00.0".into()));
        assert_eq!((drive.nsid, drive.awupf), (Some(2), Some(Size(4096))));
        let keys = parse("keyvalue:size=1GiB,dialect=samsung,max_keys=1000").medium("k".into());
        let keys = MediumKeys::from(keys);
        assert_eq!(
            (keys.kind, keys.size),
            (MediumKind::KeyValue, Some(Size(1 << 30)))
        );
        assert_eq!(
            (keys.dialect, keys.max_keys),
            (Some(Dialect::Samsung), Some(1000))
        );
        let polled = parse("file:path=a,poll_submissions=true,poll_completions=false");
        let medium = polled.medium("d".to_owned());
        let file = medium.file().unwrap();
        let io = (file.poll_submissions, file.poll_completions);
        assert_eq!((io, file.register_memory), ((true, false), true));
    }

    #[test]
    fn a_preset_and_what_differs_from_it() {
        let text = "ram:size=8GiB,preset=samsung-970-pro,timing.program=200us";
        let timing = parse(text).medium("d".to_owned()).timing.unwrap();
        let parameters = timing.parameters(8 << 30).unwrap();
        assert_eq!(parameters.get("program").unwrap().to_string(), "200us");
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(error("rma:size=1GiB").contains("write null, ram, file, drive or keyvalue"));
        assert!(error("keyvalue:dialect=latin").contains("nvme or samsung"));
        assert!(error("keyvalue:max_keys=many").contains("=many: write 1 to 4294967294"));
        assert!(error("ram:size=8").contains("has no unit"));
        assert!(error("ram:sise=8GiB").contains("did you mean `size`?"));
        assert!(error("ram:colour=red").contains("there are path, size, target"));
        assert!(error("file:path=a,b").contains("`b` is not key=value"));
        assert!(error("ram:size=1GiB,size=2GiB").contains("twice"));
        assert!(error("file:direct=maybe").contains("auto, on or off"));
        assert!(error("file:poll_completions=1").contains("true or false"));
        assert!(error("ram:lba_size=x").contains("lba_size=x: write 512 or 4096"));
        assert!(error("ram:zoned=1GiB").contains("no key `zoned`"));
        assert!(error("drive:completions=x").contains("completions=x: write a whole number"));
        assert!(error("ram:timing.program=1us").contains("write it after preset=NAME"));
    }

    #[test]
    fn what_a_kind_has_is_offered() {
        let offered = |current: &str| -> Vec<String> {
            let all = offered(current).into_iter();
            all.map(|(text, _)| text).collect()
        };
        assert_eq!(offered(""), ["null", "ram", "file", "drive", "keyvalue"]);
        assert_eq!(offered("k"), ["keyvalue"]);
        assert_eq!(
            offered("ram:"),
            [
                "ram:size=",
                "ram:state=",
                "ram:preallocate=",
                "ram:vendor=",
                "ram:lba_size=",
                "ram:preset="
            ]
        );
        assert_eq!(offered("file:size=1GiB,pa"), ["file:size=1GiB,path="]);
        assert_eq!(offered("file:size=1G"), [""; 0]);
    }

    #[test]
    fn the_help_has_every_key() {
        let help = help();
        for words in [
            "Medium: null, ram, file, drive or keyvalue, with path=, size=",
            "max_keys=",
            "lba_size=, preset= and timing.NAME=",
        ] {
            assert!(help.contains(words), "{words}: {help}");
        }
    }
}
