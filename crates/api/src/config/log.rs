//! `[log]`: which log lines are written, and how.
//!
//! A filter is a list of directives, `level` or `target=level`. Each names a level and a module
//! that exist: the subscriber takes an unknown word for the name of a module, and then logs
//! nothing. `--log`, `NVMIRAGE_LOG`, `[log]` and the control socket share this check.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::object;

object! {
    /// Log filter and format. Both can change while the server runs.
    #[derive(Default, Eq)]
    pub struct Log(LogKeys, "log") {
        /// Log level (error, warn, info, debug, trace, off), and levels of single modules:
        /// `info,transport=debug`.
        #[schema(value_type = Option<String>)]
        filter: Option<Filter> | unset => Live { unset: "`info`" };
        /// Format of a log line.
        format: Option<Format> | unset => Live {
            unset: "`journal` where standard error is the journal's, else `text`",
        };
    }
}

/// A log filter that was checked, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Filter(String);

impl Filter {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Filter {
    fn default() -> Self {
        Filter("info".to_owned())
    }
}

impl TryFrom<String> for Filter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        filter(&text)?;
        Ok(Filter(text))
    }
}

impl From<Filter> for String {
    fn from(filter: Filter) -> String {
        filter.0
    }
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Time, level and text, in color on a terminal.
    Text,
    /// One JSON object per line.
    Json,
    /// Text with a priority prefix, as sd-daemon(3) defines it, and without a time, which the
    /// journal adds.
    Journal,
}

impl Format {
    /// All of them, by the word for each.
    pub const ALL: [(&str, Self); 3] = [
        ("text", Format::Text),
        ("json", Format::Json),
        ("journal", Format::Journal),
    ];
}

/// Levels, from nothing to everything.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Our own crates.
const CRATES: [&str; 35] = [
    "api",
    "authentication",
    "client",
    "command_path",
    "conformance",
    "controller",
    "driver",
    "engine",
    "fuse",
    "guest_rig",
    "holder",
    "lab",
    "load",
    "loopback",
    "machine",
    "media",
    "memory",
    "model",
    "nbd",
    "nvme_spec",
    "nvme_tcp",
    "nvmirage",
    "plot",
    "port",
    "reactor",
    "server",
    "simulate",
    "subsystem",
    "terminal",
    "tls",
    "trace_file",
    "transport",
    "ublk",
    "vfio_user",
    "vhost_user",
];

/// The program's crate, and its modules.
const PROGRAM: (&str, [&str; 2]) = ("nvmirage", ["book", "cli"]);
/// Crates that a directive for the program stands for, beside its own: they are the program,
/// divided.
const PARTS: [&str; 9] = [
    "api", "client", "fuse", "holder", "lab", "machine", "reactor", "server", "terminal",
];
/// The server's crate. `nvmirage::M` stands for each of its modules, too.
const SERVER: &str = "server";
/// The server's modules: a test of that crate compares them.
pub const MODULES: [&str; 16] = [
    "control",
    "events",
    "identity",
    "interrupt",
    "keep",
    "logging",
    "observe",
    "partition",
    "process",
    "reconcile",
    "saved",
    "service",
    "supervisor",
    "survival",
    "trace",
    "trouble",
];

/// Modules that were the server's, and what they are now.
const MOVED: [(&str, &str); 5] = [
    ("fuse", "fuse"),
    ("looks", "reactor::maps"),
    ("memory_care", "reactor::memory_care"),
    ("nodes", "reactor::nodes"),
    ("reactor", "reactor"),
];

/// Dependencies that write log lines, or do so in some of their versions.
const DEPENDENCIES: [&str; 10] = [
    "axum",
    "fuser",
    "h2",
    "hyper",
    "hyper_util",
    "mio",
    "rustix",
    "tokio",
    "tower",
    "tower_http",
];

/// Parses a filter, and returns it in the subscriber's words: a directive for the program is one
/// for each of the crates that it consists of.
///
/// # Errors
/// The text is not a filter: the message says why, and what to write.
pub fn filter(text: &str) -> Result<String, String> {
    let directives: Vec<&str> = text.split(',').map(str::trim).collect();
    let checked = match directives.first() {
        Some(&"") | None => Err("its first directive is empty".to_owned()),
        Some(_) => {
            let mut said = directives.iter().filter(|one| !one.is_empty());
            said.try_for_each(|one| check(one))
        }
    };
    checked
        .map(|()| {
            // The subscriber takes an empty directive for the level `error`.
            let said = directives.iter().filter(|one| !one.is_empty());
            said.map(|one| expanded(one)).collect::<Vec<_>>().join(",")
        })
        .map_err(|why| {
            format!(
                "invalid log filter `{text}`: {why}; write a level (error, warn, info, debug, trace, off) or module=level, separated by commas"
            )
        })
}

/// A directive that was checked, with the crates that it stands for.
fn expanded(directive: &str) -> String {
    let (program, _) = PROGRAM;
    let Some((target, level)) = directive.split_once('=') else {
        return directive.to_owned();
    };
    if target == program {
        let parts = PARTS.iter().chain([&program]);
        let all: Vec<String> = parts.map(|part| format!("{part}={level}")).collect();
        return all.join(",");
    }
    let below = [program, SERVER].into_iter().find_map(|name| {
        let rest = target.strip_prefix(name)?.strip_prefix("::")?;
        Some(rest.split_once("::").unwrap_or((rest, "")))
    });
    let (module, rest) = below.unwrap_or_default();
    let moved = MOVED.iter().find(|(before, _)| *before == module);
    let target = match moved {
        Some((_, now)) => (*now).to_owned(),
        None if MODULES.contains(&module) => format!("{SERVER}::{module}"),
        None => return directive.to_owned(),
    };
    let separator = if rest.is_empty() { "" } else { "::" };
    format!("{target}{separator}{rest}={level}")
}

/// Checks that a directive names a level and a module that exist.
fn check(directive: &str) -> Result<(), String> {
    let level = match directive.rsplit_once('=') {
        Some((target, level)) => {
            check_target(target)?;
            level
        }
        None if is_target(directive) => {
            return Err(format!(
                "`{directive}` is a module without a level: write {directive}=debug"
            ));
        }
        None => directive,
    };
    if LEVELS.iter().any(|one| level.eq_ignore_ascii_case(one)) {
        Ok(())
    } else {
        Err(format!(
            "unknown level `{level}`{}",
            suggestion(&level.to_ascii_lowercase(), LEVELS.into_iter())
        ))
    }
}

fn is_target(word: &str) -> bool {
    check_target(word).is_ok()
}

/// Checks that a module exists: the crate, and in the program and the server the module below it.
fn check_target(target: &str) -> Result<(), String> {
    let mut parts = target.split("::");
    let name = parts.next().unwrap_or_default();
    let crates = || CRATES.into_iter().chain(DEPENDENCIES);
    if !crates().any(|one| one == name) {
        let hint = suggestion(name, crates());
        return Err(format!("there is no module `{name}` in this program{hint}"));
    }
    let rest: Vec<&str> = parts.collect();
    let is_word = |part: &&str| {
        let letters = |b: u8| b == b'_' || b.is_ascii_lowercase() || b.is_ascii_digit();
        !part.is_empty() && part.bytes().all(letters)
    };
    if let Some(wrong) = rest.iter().find(|part| !is_word(part)) {
        return Err(format!("`{target}`: `{wrong}` is not a module name"));
    }
    let (program, own) = PROGRAM;
    let known = || {
        let own = own.into_iter().filter(|_| name == program);
        own.chain(MODULES)
            .chain(MOVED.into_iter().map(|(before, _)| before))
    };
    let is_checked = name == program || name == SERVER;
    match rest.first().filter(|_| is_checked) {
        Some(module) if !known().any(|one| one == *module) => Err(format!(
            "there is no module `{module}` in {name}{}",
            suggestion(module, known())
        )),
        _ => Ok(()),
    }
}

fn suggestion<'a>(found: &str, words: impl Iterator<Item = &'a str>) -> String {
    super::read::nearest_word(found, words)
        .map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn filters_of_levels_and_modules_that_exist_are_taken() {
        for text in [
            "info",
            "WARN",
            "off",
            "warn,transport=debug",
            "off,nvmirage::control=info",
            "info, hyper=off, axum::serve=debug,tokio=warn,",
            "nvmirage::control::server=trace",
            "nvmirage::cli=debug",
            "server::reactor=debug",
            "nvme_spec=debug",
        ] {
            assert!(filter(text).is_ok(), "{text}: {:?}", filter(text).err());
        }
        // blanks are no part of a module's name
        let spaced = filter("info, hyper = off");
        assert!(spaced.is_err(), "{spaced:?}");
        assert_eq!(filter("info, hyper=off,").unwrap(), "info,hyper=off");
    }

    /// The program was one crate once, and filters of then mean the same.
    #[test]
    fn a_directive_for_the_program_is_one_for_each_of_its_crates() {
        let parsed = |text| filter(text).unwrap();
        assert_eq!(
            parsed("nvmirage=debug,warn"),
            "api=debug,client=debug,fuse=debug,holder=debug,lab=debug,machine=debug,reactor=debug,server=debug,terminal=debug,nvmirage=debug,warn"
        );
        assert_eq!(
            parsed("off,nvmirage::control=info"),
            "off,server::control=info"
        );
        assert_eq!(
            parsed("nvmirage::control::routes=info,nvmirage::cli=debug"),
            "server::control::routes=info,nvmirage::cli=debug"
        );
        assert_eq!(
            parsed("nvmirage::reactor::run=debug,server::reactor=info,server::looks=warn"),
            "reactor::run=debug,reactor=info,reactor::maps=warn"
        );
    }

    #[test]
    fn a_filter_that_would_log_nothing_by_a_typo_is_refused() {
        for (text, says) in [
            ("inof", "unknown level `inof` (did you mean `info`?)"),
            ("wrn", "did you mean `warn`?"),
            ("warnn", "did you mean `warn`?"),
            ("loud", "unknown level `loud`"),
            ("info,debgu", "did you mean `debug`?"),
            ("transport", "write transport=debug"),
            ("nvmirage::control", "write nvmirage::control=debug"),
            ("transprot=debug", "did you mean `transport`?"),
            ("transport=debgu", "did you mean `debug`?"),
            ("transport=", "unknown level ``"),
            ("nvmirage::contrl=debug", "did you mean `control`?"),
            ("server::contrl=debug", "did you mean `control`?"),
            ("server::cli=debug", "there is no module `cli` in server"),
            ("nvmirage::=debug", "is not a module name"),
            ("vfio-user=debug", "did you mean `vfio_user`?"),
            ("=debug", "there is no module ``"),
            ("[span]=debug", "there is no module `[span]`"),
            ("nvmirage[a{b=c}]=debug", "there is no module"),
            ("info;debug", "unknown level"),
            ("3", "unknown level `3`"),
            ("", "its first directive is empty"),
            (",info", "its first directive is empty"),
        ] {
            let why = filter(text).expect_err(text);
            assert!(why.contains(says), "{text}: {why}");
            assert!(why.contains("invalid log filter"), "{text}: {why}");
        }
    }

    /// Crates that can write a log line, by the lock file: each is known here.
    #[test]
    fn every_crate_that_logs_is_known() {
        let lock = include_str!("../../../../Cargo.lock");
        let lock: toml::Table = lock.parse().unwrap();
        let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut ours = BTreeSet::new();
        for package in lock["package"].as_array().unwrap() {
            let name = package["name"].as_str().unwrap();
            let all = needs.entry(name).or_default();
            let words = package.get("dependencies").and_then(|d| d.as_array());
            for word in words.into_iter().flatten() {
                all.extend(word.as_str().unwrap().split(' ').next());
            }
            if package.get("source").is_none() {
                ours.insert(name);
            }
        }
        let mut reached = BTreeSet::new();
        let mut next = vec!["nvmirage"];
        while let Some(name) = next.pop() {
            // The lock file has what tests need as well: their crates are not in the program.
            if !name.starts_with("tests-") && reached.insert(name) {
                next.extend(&needs[name]);
            }
        }
        let as_module = |name: &&str| name.replace('-', "_");
        let own: Vec<String> = reached.intersection(&ours).map(as_module).collect();
        assert_eq!(own, CRATES);
        // These crates only forward log lines, or are used in tests only.
        let carriers = ["generator", "loom", "tracing"];
        let logs =
            |name: &&&str| needs[**name].contains("log") || needs[**name].contains("tracing");
        for name in reached.iter().filter(logs) {
            let known = is_target(&as_module(name));
            let carries = carriers.contains(name) || name.starts_with("tracing-");
            assert!(known || carries, "{name} logs: add it to DEPENDENCIES");
        }
    }
}
