//! `--media KIND[:KEY=VALUE,…]`: a medium in one argument.

use std::str::FromStr;

use api::config::{self, Dialect, Direct, MediumKeys, MediumKind, Size, Timing};

/// One `--media` argument: a medium, and the block size of its namespace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MediaArg {
    pub(super) kind: MediumKind,
    pub(super) size: Option<Size>,
    pub(super) path: Option<std::path::PathBuf>,
    target: Option<String>,
    nsid: Option<u32>,
    pub(super) direct: Option<Direct>,
    pub(super) lba_size: Option<u32>,
    poll_submissions: Option<bool>,
    poll_completions: Option<bool>,
    register_memory: Option<bool>,
    read_only: Option<bool>,
    timing: Option<Timing>,
    dialect: Option<Dialect>,
    max_keys: Option<u32>,
    state: Option<std::path::PathBuf>,
}

/// The keys of `--media`; with `preset`, also `timing.` followed by a parameter's name.
const KEYS: [&str; 14] = [
    "size",
    "path",
    "target",
    "nsid",
    "direct",
    "lba_size",
    "poll_submissions",
    "poll_completions",
    "register_memory",
    "read_only",
    "preset",
    "dialect",
    "max_keys",
    "state",
];

impl FromStr for MediaArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let kind = match kind {
            "null" => MediumKind::Null,
            "ram" => MediumKind::Ram,
            "file" => MediumKind::File,
            "drive" => MediumKind::Drive,
            "keyvalue" => MediumKind::KeyValue,
            _ => {
                return Err(format!(
                    "unknown media kind `{kind}`: write null, ram, file, drive or keyvalue, as in ram:size=8GiB or file:path=disk.img,size=8GiB"
                ));
            }
        };
        let mut arg = MediaArg {
            kind,
            size: None,
            path: None,
            target: None,
            nsid: None,
            direct: None,
            lba_size: None,
            poll_submissions: None,
            poll_completions: None,
            register_memory: None,
            read_only: None,
            timing: None,
            dialect: None,
            max_keys: None,
            state: None,
        };
        let mut seen = Vec::new();
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                format!("`{part}` is not key=value; a path with a comma needs a configuration file")
            })?;
            if seen.contains(&key) {
                return Err(format!("{key} is given twice: remove one"));
            }
            seen.push(key);
            arg.set(key, value)?;
        }
        Ok(arg)
    }
}

impl MediaArg {
    /// The configuration of the medium, named `name`.
    pub(super) fn medium(&self, name: String) -> config::Medium {
        let keys = MediumKeys {
            path: self.path.clone(),
            size: self.size,
            target: self.target.clone(),
            nsid: self.nsid,
            direct: self.direct,
            poll_submissions: self.poll_submissions,
            poll_completions: self.poll_completions,
            register_memory: self.register_memory,
            read_only: self.read_only,
            timing: self.timing.clone(),
            zoned: None,
            dialect: self.dialect,
            max_keys: self.max_keys,
            state: self.state.clone(),
            ..MediumKeys::new(name, self.kind)
        };
        keys.into()
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "size" => self.size = Some(value.parse()?),
            "path" => self.path = Some(value.into()),
            "state" => self.state = Some(value.into()),
            "target" => self.target = Some(value.to_owned()),
            "nsid" => {
                let wrong = |_| format!("nsid={value}: write a number");
                self.nsid = Some(value.parse().map_err(wrong)?);
            }
            "lba_size" => {
                let wrong = || format!("lba_size={value}: write 512 or 4096");
                self.lba_size = Some(value.parse().map_err(|_| wrong())?);
            }
            "direct" => {
                self.direct = Some(match value {
                    "auto" => Direct::Auto,
                    "on" => Direct::On,
                    "off" => Direct::Off,
                    _ => return Err(format!("direct={value}: write auto, on or off")),
                });
            }
            "poll_submissions" => self.poll_submissions = Some(yes_or_no(key, value)?),
            "poll_completions" => self.poll_completions = Some(yes_or_no(key, value)?),
            "register_memory" => self.register_memory = Some(yes_or_no(key, value)?),
            "read_only" => self.read_only = Some(yes_or_no(key, value)?),
            "dialect" => {
                self.dialect = Some(match value {
                    "nvme" => Dialect::Nvme,
                    "samsung" => Dialect::Samsung,
                    _ => return Err(format!("dialect={value}: write nvme or samsung")),
                });
            }
            "max_keys" => {
                let wrong = |_| format!("max_keys={value}: write a number");
                self.max_keys = Some(value.parse().map_err(wrong)?);
            }
            "preset" => self.timing = Some(Timing::of(value.to_owned())),
            _ => match (key.strip_prefix("timing."), &mut self.timing) {
                (Some(name), Some(timing)) => timing.write(name, value)?,
                (Some(_), None) => {
                    return Err(format!("{key}: write it after preset=NAME"));
                }
                (None, _) => return Err(unknown(key)),
            },
        }
        Ok(())
    }
}

fn yes_or_no(key: &str, value: &str) -> Result<bool, String> {
    let wrong = |_| format!("{key}={value}: write true or false");
    value.parse().map_err(wrong)
}

fn unknown(key: &str) -> String {
    let nearest = KEYS
        .iter()
        .map(|word| (strsim::damerau_levenshtein(key, word), word))
        .filter(|(distance, word)| *distance <= word.len() / 2)
        .min();
    match nearest {
        Some((_, word)) => format!("there is no key `{key}`; did you mean `{word}`?"),
        None => format!("there is no key `{key}`: there are {}", KEYS.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> MediaArg {
        text.parse().unwrap()
    }

    fn error(text: &str) -> String {
        text.parse::<MediaArg>().unwrap_err()
    }

    #[test]
    fn kinds_with_and_without_keys() {
        assert_eq!(parse("null").kind, MediumKind::Null);
        let ram = parse("ram:size=8GiB");
        assert_eq!((ram.kind, ram.size), (MediumKind::Ram, Some(Size(8 << 30))));
        let file = parse("file:path=/a/b=c.img,size=1GiB,direct=off,lba_size=512");
        assert_eq!(file.path, Some("/a/b=c.img".into()));
        assert_eq!(file.size, Some(Size(1 << 30)));
        assert_eq!(file.direct, Some(Direct::Off));
        assert_eq!(file.lba_size, Some(512));
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
        assert!(error("keyvalue:max_keys=many").contains("a number"));
        assert!(error("ram:size=8").contains("has no unit"));
        assert!(error("ram:sise=8GiB").contains("did you mean `size`?"));
        assert!(error("ram:colour=red").contains("there are size, path"));
        assert!(error("file:path=a,b").contains("`b` is not key=value"));
        assert!(error("ram:size=1GiB,size=2GiB").contains("twice"));
        assert!(error("file:direct=maybe").contains("auto, on or off"));
        assert!(error("file:poll_completions=1").contains("true or false"));
        assert!(error("ram:lba_size=x").contains("512 or 4096"));
        assert!(error("ram:timing.program=1us").contains("write it after preset=NAME"));
    }
}
