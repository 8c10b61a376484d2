//! Shell completion of names that only a running server knows.
//!
//! The shell runs the program with [`VARIABLE`] set, and reads the candidates from its output. The
//! server has [`BOUND`] to answer; without a server, or with a slow one, the output is empty and
//! there is no message.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, io};

use api::Inventory;
use api::config::Controller;
use api::config::log::Log;
use api::config::object::{Object, When};
use api::config::tenant::Tenant;
use clap::ValueHint;
use clap_complete::env::{Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};
use clap_complete::{ArgValueCompleter, CompleteEnv};
use machine::files::read_text;
use model::Parameters;
use model::parameter::Change;
use terminal::complete::offer;

use super::parse;
use crate::{Address, Intent, requests};

/// Names the shell that requests completions.
pub const VARIABLE: &str = "_NVMIRAGE_COMPLETE";
/// The line up to the cursor, in bash.
const LINE: &str = "_NVMIRAGE_LINE";
/// Time limit for the server, because a user waits after a key press.
const BOUND: Duration = Duration::from_millis(300);
/// The command line as it stands.
static WORDS: OnceLock<Vec<String>> = OnceLock::new();

/// The supported shells, each with its protocol.
pub fn shells() -> Shells<'static> {
    Shells(&[&Bash, &Zsh, &Fish, &Elvish, &Powershell])
}

/// If a shell requests completions, answers it and exits.
pub fn complete(program: fn() -> clap::Command) {
    if env::var_os(VARIABLE).is_none() {
        return;
    }
    let words = match env::var(LINE) {
        Ok(line) => words_of(&line),
        Err(_) => {
            let args = env::args_os().skip_while(|arg| arg != "--").skip(1);
            args.map(|arg| arg.to_string_lossy().into_owned()).collect()
        }
    };
    let _ = WORDS.set(words);
    let of_program = CompleteEnv::with_factory(program).var(VARIABLE);
    of_program.shells(shells()).complete();
}

/// Splits the line again, because bash splits words at `:` and `=`, which occur in addresses and
/// values.
#[derive(Debug)]
struct Bash;

const SCRIPT: &str = r#"
_nvmirage() {
    mapfile -t COMPREPLY < <( LINE="${COMP_LINE:0:COMP_POINT}" VARIABLE=bash "COMPLETER" -- nvmirage 2>/dev/null )
    [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *[=/:] ]] || compopt +o nospace 2>/dev/null
}
complete -o nospace -o bashdefault -o default -F _nvmirage BIN
"#;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(
        &self,
        var: &str,
        _name: &str,
        bin: &str,
        completer: &str,
        to: &mut dyn io::Write,
    ) -> io::Result<()> {
        let script = SCRIPT.replace("LINE=", &format!("{LINE}="));
        let script = script.replace("VARIABLE", var).replace("BIN", bin);
        to.write_all(script.replace("COMPLETER", completer).as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut clap::Command,
        _args: Vec<OsString>,
        current_dir: Option<&Path>,
        to: &mut dyn io::Write,
    ) -> io::Result<()> {
        let words = WORDS.get().cloned().unwrap_or_default();
        let Some(current) = words.last() else {
            return Ok(());
        };
        // bash replaces only the text after the last of these characters
        let stays = current.rfind([':', '=']).map_or(0, |at| at + 1);
        let last = words.len() - 1;
        let args = words.iter().map(OsString::from).collect();
        let mut cmd = without_paths(cmd.clone());
        for candidate in clap_complete::engine::complete(&mut cmd, args, last, current_dir)? {
            let value = candidate.get_value().to_string_lossy();
            // options are offered only once one has been started
            if current.is_empty() && value.starts_with('-') {
                continue;
            }
            if let Some(rest) = value.get(stays..) {
                writeln!(to, "{rest}")?;
            }
        }
        Ok(())
    }
}

/// A command without completion of file names. If nothing else matches, bash completes files itself
/// and quotes them.
fn without_paths(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        if arg.get_action().takes_values() {
            arg.value_hint(ValueHint::Other)
        } else {
            arg
        }
    });
    command.mut_subcommands(without_paths)
}

/// The words of a line, of which the last is being typed; quotes keep spaces in a word.
fn words_of(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    let mut letters = line.trim_start().chars();
    while let Some(letter) = letters.next() {
        let word = words.last_mut().expect("there is one from the start");
        match (letter, quote) {
            ('\\', None | Some('"')) => word.extend(letters.next()),
            (_, Some(mark)) if letter == mark => quote = None,
            (_, Some(_)) => word.push(letter),
            ('\'' | '"', None) => quote = Some(letter),
            (' ' | '\t', None) => {
                if !word.is_empty() {
                    words.push(String::new());
                }
            }
            _ => word.push(letter),
        }
    }
    words
}

fn words() -> &'static [String] {
    WORDS.get().map_or(&[], Vec::as_slice)
}

/// The control socket on the line, or the default one.
fn socket() -> Option<Address> {
    let mut words = words().iter();
    while let Some(word) = words.next() {
        let value = match word.split_once('=') {
            Some(("--control", value)) => Some(value),
            _ if word == "--control" => words.next().map(String::as_str),
            _ => None,
        };
        if let Some(path) = value.and_then(|value| parse::unix(value).ok()) {
            return Address::find(Some(path), Intent::Read).ok();
        }
    }
    Address::find(None, Intent::Read).ok()
}

/// Objects of the server; empty if it does not answer in time.
fn served() -> Inventory {
    let inventory = socket().map(|socket| requests::inventory_within(BOUND, &socket));
    inventory.and_then(Result::ok).unwrap_or_default()
}

fn media_of(served: &Inventory) -> Vec<(String, String)> {
    let media = served.media.iter();
    media
        .map(|m| (m.config.name.clone(), m.description.clone()))
        .collect()
}

fn namespaces_of(served: &Inventory) -> Vec<(String, String)> {
    let all = served.namespaces.iter();
    all.map(|n| {
        (
            n.config.name.clone(),
            format!("on medium {}", n.config.media),
        )
    })
    .collect()
}

fn tenants_of(served: &Inventory) -> Vec<(String, String)> {
    let all = served.tenants.iter();
    all.map(|t| (t.config.name.clone(), String::new()))
        .collect()
}

fn controllers_of(served: &Inventory) -> Vec<(String, String)> {
    let all = served.controllers.iter();
    all.map(|c| (c.config.name.clone(), c.config.listen.to_string()))
        .collect()
}

fn reactors_of(served: &Inventory) -> Vec<(String, String)> {
    let all = served.reactors.iter();
    all.map(|r| (r.reactor.to_string(), r.config.mode.name().to_owned()))
        .collect()
}

/// Names of media.
pub fn media() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| offer(current, media_of(&served())))
}

/// Names of namespaces.
pub(crate) fn namespaces() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| offer(current, namespaces_of(&served())))
}

/// Names of tenants.
pub(crate) fn tenants() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| offer(current, tenants_of(&served())))
}

/// Names of controllers.
pub(crate) fn controllers() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| offer(current, controllers_of(&served())))
}

/// Names of traces.
pub(crate) fn traces() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let served = served();
        let all = served.traces.iter();
        let named = all.map(|t| (t.config.name.clone(), t.config.file.display().to_string()));
        offer(current, named)
    })
}

/// Numbers of reactors.
pub(crate) fn reactors() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| offer(current, reactors_of(&served())))
}

/// Names of partitions of the media that appear earlier on the line.
pub fn partitions() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let served = served();
        let named = |name: &str| words().iter().any(|word| word == name);
        let media = served.media.iter().filter(|m| named(&m.config.name));
        let partitions = media.flat_map(|m| &m.partitions);
        offer(
            current,
            partitions.map(|p| (p.name.clone(), p.range.to_string())),
        )
    })
}

/// Kind and name of the object on the line.
fn object() -> Option<(&'static str, &'static str)> {
    let words = words();
    let kinds = [
        "media",
        "namespace",
        "tenant",
        "controller",
        "reactor",
        "log",
    ];
    let at = words
        .iter()
        .position(|word| kinds.contains(&word.as_str()))?;
    let name = words.get(at + 1).map_or("", String::as_str);
    Some((&words[at], name))
}

/// Names of the kind on the line.
pub(crate) fn of_kind() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let Some((kind, _)) = object() else {
            return Vec::new();
        };
        if kind == "log" {
            return offer(current, live_keys::<Log>());
        }
        let served = served();
        offer(
            current,
            match kind {
                "media" => media_of(&served),
                "namespace" => namespaces_of(&served),
                "tenant" => tenants_of(&served),
                "reactor" => reactors_of(&served),
                _ => controllers_of(&served),
            },
        )
    })
}

/// Changes that `set` accepts for the object on the line.
pub(crate) fn changes() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| match object() {
        Some(("media", name)) => offer(current, live_parameters(name)),
        Some(("tenant", _)) => offer(current, live_keys::<Tenant>()),
        Some(("controller", _)) => offer(current, live_keys::<Controller>()),
        Some(("log", _)) => offer(current, live_keys::<Log>()),
        _ => Vec::new(),
    })
}

/// Keys of an object that may change while hosts use it.
fn live_keys<T: Object>() -> Vec<(String, String)> {
    let live = T::KEYS.iter().filter(|key| key.when == When::Live);
    live.map(|key| {
        let ends = if key.parts.is_empty() { '=' } else { '.' };
        (format!("{}{ends}", key.name), key.about.trim().to_owned())
    })
    .collect()
}

/// Timing parameters of a medium that may change while hosts use it.
fn live_parameters(medium: &str) -> Vec<(String, String)> {
    let served = served();
    let found = served.media.iter().find(|m| m.config.name == medium);
    let parameters: Option<Parameters> = found.and_then(|medium| {
        let timing = medium.config.timing.as_ref()?;
        timing.find(read_text).ok()?;
        timing.parameters(medium.bytes).ok()
    });
    let Some(parameters) = parameters else {
        return Vec::new();
    };
    let all = parameters.kind().parameters();
    let live = all.filter(|parameter| parameter.change == Change::Live);
    live.map(|p| (format!("timing.{}=", p.name), p.about.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_blanks_and_not_at_colons() {
        for (line, words) in [
            (
                "nvmirage ls --control unix:/a/b ",
                vec!["nvmirage", "ls", "--control", "unix:/a/b", ""],
            ),
            (
                "nvmirage set media m timing.r",
                vec!["nvmirage", "set", "media", "m", "timing.r"],
            ),
            (
                "a 'b c' \"d \\\" e\" f\\ g",
                vec!["a", "b c", "d \" e", "f g"],
            ),
            ("", vec![""]),
        ] {
            assert_eq!(words_of(line), words, "{line}");
        }
    }

    #[test]
    fn the_last_of_a_list_is_offered() {
        let all = || {
            [
                ("n1".to_owned(), String::new()),
                ("m1".to_owned(), String::new()),
            ]
        };
        let offered = |current: &str| -> Vec<String> {
            let offered = offer(OsStr::new(current), all());
            let values = offered
                .iter()
                .map(|c| c.get_value().to_string_lossy().into_owned());
            values.collect()
        };
        assert_eq!(offered("n"), ["n1"]);
        assert_eq!(offered("x,"), ["x,n1", "x,m1"]);
        assert_eq!(offered("z"), [""; 0]);
    }
}
