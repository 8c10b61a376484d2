//! What the text of a file may hold.

use super::Finding;
use super::lexer::{Split, split};

/// Build outputs of `web/`, which are recreated wherever they are used.
const BUILT: [&str; 2] = ["web/dist/", "web/node_modules/"];

/// Lines that a file of code may have, its tests included.
pub(super) const MAX_LINES: usize = 700;

/// Columns of a line that has a comment.
pub(super) const COMMENT_COLUMNS: usize = 100;

/// Where unsafe code lives.
const UNSAFE_FOLDER: &str = "crates/memory/";
/// Calls of OpenSSL, which is in C.
const UNSAFE_CRATE: &str = "crates/tls/src/";
/// Calls of io_uring, and the memory that the ublk driver shares.
const UNSAFE_FILES: &[&str] = &[
    "crates/media/src/file/ring/mod.rs",
    "crates/ublk/src/control.rs",
    "crates/ublk/src/device.rs",
    "crates/ublk/src/ring.rs",
];

/// Crates that say themselves that they have none.
const SAFE_CRATES: &[&str] = &[
    "api",
    "client",
    "controller",
    "driver",
    "engine",
    "lab",
    "load",
    "loopback",
    "machine",
    "model",
    "nbd",
    "nvme-spec",
    "nvmirage",
    "port",
    "server",
    "simulate",
    "terminal",
    "trace-file",
    "transport",
    "vfio-user",
    "vhost-user",
];

/// Crates on the way of a command, which turn on the lists of clippy.toml.
const DATA_PATH_CRATES: &[&str] = &[
    "controller",
    "engine",
    "media",
    "memory",
    "nbd",
    "port",
    "transport",
    "ublk",
    "vhost-user",
];
const DATA_PATH_LINTS: [&str; 3] = [
    "disallowed_types",
    "disallowed_methods",
    "disallowed_macros",
];

/// Crates that read no file, clock or environment and start no thread: their callers do.
const DETACHED_FOLDERS: [&str; 5] = [
    "crates/api/src/",
    "crates/controller/src/",
    "crates/engine/src/",
    "crates/model/src/",
    "crates/port/src/",
];
const WORLD: [&str; 9] = [
    "std::fs",
    "std::env",
    "thread::spawn",
    "thread::sleep",
    "std::process",
    "Instant::now",
    "SystemTime",
    "path::absolute",
    "canonicalize",
];

const TEXT_EXTENSIONS: &[&str] = &[
    "css", "html", "js", "json", "lock", "log", "md", "py", "rs", "service", "sh", "svg", "toml",
    "ts", "tsx", "txt", "yaml", "yml",
];

/// Whether the file `name` is text by its name. What is none (corpora, recorded bytes) is not
/// checked.
pub(super) fn is_text(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    let known = match file.rsplit_once('.') {
        Some((_, extension)) => TEXT_EXTENSIONS.contains(&extension) || file == ".gitignore",
        None => true, // licences, scripts
    };
    known && !name.starts_with("fuzz/corpus/")
}

/// What no file may be called.
pub(super) fn check_name(name: &str) -> Option<Finding> {
    let built = BUILT.iter().any(|folder| name.starts_with(folder));
    built.then(|| finding(name, 0, "is built of others: it does not belong here"))
}

/// Checks one file.
pub(super) fn check(name: &str, bytes: &[u8]) -> Vec<Finding> {
    let Ok(source) = str::from_utf8(bytes) else {
        return vec![finding(name, 0, "is not UTF-8")];
    };
    let mut findings = characters(name, source);
    findings.extend(machine_paths(name, source));
    if [".ts", ".tsx", ".css"]
        .iter()
        .any(|end| name.ends_with(end))
    {
        findings.extend(length(name, source));
    }
    if name.ends_with(".rs") {
        let text = split(source);
        findings.extend(length(name, source));
        findings.extend(comment_width(name, source, &text));
        findings.extend(examples(name, &text));
        findings.extend(unsafe_places(name, &text));
        findings.extend(unsafe_reasons(name, &text));
        findings.extend(words(name, &text));
        findings.extend(crate_root(name, &text));
        findings.extend(detachment(name, &text));
    }
    findings
}

fn finding(file: &str, line: usize, what: impl Into<String>) -> Finding {
    Finding {
        file: file.to_owned(),
        line,
        what: what.into(),
    }
}

/// No control characters beside line feed and tab, and none that hide text or turn it around.
fn characters(name: &str, source: &str) -> Vec<Finding> {
    let hidden = |c: char| {
        c.is_control() && c != '\n' && c != '\t'
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let check = |(index, line): (usize, &str)| {
        let c = line.chars().find(|c| hidden(*c))?;
        Some(finding(
            name,
            index + 1,
            format!("has the control character U+{:04X}", u32::from(c)),
        ))
    };
    source.split('\n').enumerate().filter_map(check).collect()
}

/// No paths of the machine that somebody happened to write on.
fn machine_paths(name: &str, source: &str) -> Vec<Finding> {
    // In two parts each, so that this file passes its own check.
    const FOLDERS: [(&str, &str); 4] = [
        ("/ho", "me/"),
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("/Us", "ers/"),
    ];
    let check = |(index, line): (usize, &str)| {
        let found = FOLDERS
            .iter()
            .map(|(a, b)| format!("{a}{b}"))
            .find(|folder| {
                // A path starts there: "a/work/b" is a relative one, and "https://host/home/" an
                // address.
                line.match_indices(folder.as_str()).any(|(at, _)| {
                    let before = line[..at].chars().next_back();
                    !before.is_some_and(|c| c.is_alphanumeric() || "_-.~}$)".contains(c))
                })
            })?;
        Some(finding(
            name,
            index + 1,
            format!("has a path of somebody's machine: {found}"),
        ))
    };
    source.lines().enumerate().filter_map(check).collect()
}

fn length(name: &str, source: &str) -> Option<Finding> {
    let lines = source.lines().count();
    let what = || format!("has {lines} lines, and {MAX_LINES} is the limit: split it by concern");
    (lines > MAX_LINES).then(|| finding(name, 0, what()))
}

/// Comments are narrow enough to read, except rows of tables, which cannot be broken.
fn comment_width(name: &str, source: &str, text: &Split) -> Vec<Finding> {
    let is_wide = |line: &str, comment: &str| {
        let comment = comment.trim().trim_start_matches(['/', '!']).trim();
        !comment.is_empty() && !comment.starts_with('|') && line.chars().count() > COMMENT_COLUMNS
    };
    let lines = source.lines().zip(text.comments.lines()).enumerate();
    lines
        .filter(|(_, (line, comment))| is_wide(line, comment))
        .map(|(index, _)| {
            let what = format!("has a comment beyond column {COMMENT_COLUMNS}: wrap it");
            finding(name, index + 1, what)
        })
        .collect()
}

/// No documentation comment has an example of Rust: it would be a test that no stage runs.
fn examples(name: &str, text: &Split) -> Vec<Finding> {
    // Whether a line of a documentation comment opens a block, and in which language.
    let mut is_open = false;
    let mut opens = |line: &str| {
        let comment = line.trim();
        let Some(text) = ["///", "//!"]
            .iter()
            .find_map(|mark| comment.strip_prefix(mark))
        else {
            is_open = false;
            return false;
        };
        let Some(language) = text.trim().strip_prefix("```") else {
            return false;
        };
        is_open = !is_open;
        is_open && language != "text"
    };
    let lines = text.comments.lines().enumerate();
    lines
        .filter(|(_, line)| opens(line))
        .map(|(index, _)| {
            let what = "has an example in a comment, which no stage runs: write a test, or ```text";
            finding(name, index + 1, what)
        })
        .collect()
}

fn unsafe_places(name: &str, text: &Split) -> Vec<Finding> {
    let is_for_it = [UNSAFE_FOLDER, UNSAFE_CRATE]
        .iter()
        .any(|folder| name.starts_with(folder));
    if is_for_it || UNSAFE_FILES.contains(&name) {
        return Vec::new();
    }
    let files = UNSAFE_FILES.join(", ");
    let what = format!("unsafe code belongs in {UNSAFE_FOLDER} (or {UNSAFE_CRATE}, {files})");
    lines_with(&text.code, "unsafe")
        .map(|line| finding(name, line, what.clone()))
        .collect()
}

/// Each unsafe block and impl has a reason in the comment before it, or on its line.
fn unsafe_reasons(name: &str, text: &Split) -> Vec<Finding> {
    let code: Vec<_> = text.code.lines().map(str::trim).collect();
    let comments: Vec<_> = text.comments.lines().map(str::trim).collect();
    let needs_reason = |line: usize| {
        let after = code[line]
            .split("unsafe")
            .nth(1)
            .unwrap_or_default()
            .trim_start();
        after.starts_with('{') || after.starts_with("impl")
    };
    let has_reason = |line: usize| {
        if comments[line].contains("SAFETY:") {
            return true;
        }
        // Upwards over the comment, attributes, and the start of a statement that goes over several
        // lines.
        for at in (0..line).rev() {
            if comments[at].contains("SAFETY:") {
                return true;
            }
            let ends_before = code[at].ends_with([';', '{', '}', ','])
                || (code[at].is_empty() && comments[at].is_empty());
            if ends_before {
                return false;
            }
        }
        false
    };
    lines_with(&text.code, "unsafe")
        .filter(|line| needs_reason(line - 1) && !has_reason(line - 1))
        .map(|line| {
            finding(
                name,
                line,
                "unsafe without a reason: say why it is sound after `// SAFETY:`",
            )
        })
        .collect()
}

/// Words that have no place in finished code. Those of the first list count in comments too.
fn words(name: &str, text: &Split) -> Vec<Finding> {
    const ANYWHERE: [(&str, &str); 2] = [("FIX", "ME"), ("XX", "X")];
    const IN_CODE: [(&str, &str); 3] = [
        (
            "dead_code",
            "remove what nothing uses instead of allowing it",
        ),
        ("todo!", "write it, or leave it out"),
        ("unimplemented!", "write it, or leave it out"),
    ];
    let mut findings = Vec::new();
    for (a, b) in ANYWHERE {
        let word = format!("{a}{b}");
        let both = lines_with(&text.code, &word).chain(lines_with(&text.comments, &word));
        findings.extend(both.map(|line| finding(name, line, format!("{word}: solve it now"))));
    }
    for (word, what) in IN_CODE {
        findings.extend(
            lines_with(&text.code, word).map(|line| finding(name, line, format!("{word}: {what}"))),
        );
    }
    for (index, line) in text.code.lines().enumerate() {
        if line.contains("#[ignore") || line.contains("cfg_attr") && line.contains(", ignore") {
            findings.push(finding(
                name,
                index + 1,
                "a test that is not run: make it run, or remove it",
            ));
        }
    }
    findings
}

/// Crates declare their own strictness, so that it is seen where the code is.
fn crate_root(name: &str, text: &Split) -> Vec<Finding> {
    let is_root_of = |krate: &&str| {
        name == format!("crates/{krate}/src/lib.rs")
            || name == format!("crates/{krate}/src/main.rs")
    };
    let mut findings = Vec::new();
    if SAFE_CRATES.iter().any(is_root_of) && !text.code.contains("#![forbid(unsafe_code)]") {
        findings.push(finding(
            name,
            1,
            "the crate must start with #![forbid(unsafe_code)]",
        ));
    }
    let missing = |lint: &&str| !text.code.contains(&format!("clippy::{lint}"));
    if DATA_PATH_CRATES.iter().any(is_root_of) && DATA_PATH_LINTS.iter().any(missing) {
        let lints = DATA_PATH_LINTS
            .map(|lint| format!("clippy::{lint}"))
            .join(", ");
        findings.push(finding(
            name,
            1,
            format!("the crate must start with #![deny({lints})]"),
        ));
    }
    findings
}

/// Some crates have no part in the machine that they run on, except in their tests.
fn detachment(name: &str, text: &Split) -> Vec<Finding> {
    let is_test = name.ends_with("/tests.rs") || name.contains("/tests/");
    if is_test
        || !DETACHED_FOLDERS
            .iter()
            .any(|folder| name.starts_with(folder))
    {
        return Vec::new();
    }
    let code = text.code.split("#[cfg(test)]\nmod tests").next();
    let code = code.unwrap_or_default();
    let used = WORLD.iter().flat_map(|word| {
        lines_with(code, word).map(move |line| {
            finding(
                name,
                line,
                format!("{word}: this crate reads no file, clock or environment; have its caller do that"),
            )
        })
    });
    used.collect()
}

/// The lines (from 1) of `text` that have `word` as a word of its own.
fn lines_with<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.lines().enumerate().filter_map(move |(index, line)| {
        let found = line.match_indices(word).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        });
        found.then_some(index + 1)
    })
}

#[cfg(test)]
mod tests;
