//! Words that the project does not use, each with its replacement, and words with which no sentence
//! begins.
//!
//! In pages only prose is checked: no code block, code span, comment or link target. In sources
//! comments are checked, and the literals of what is not a test. The changelog keeps the words of
//! its time. A phrase that is broken over two lines is not found.

use super::Finding;
use super::lexer::split;

/// The changelog, whose older entries stay as they are.
const HISTORY: &str = "CHANGELOG.md";

/// Phrases in lower case, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("anew", "again, or recreated"),
    ("are told", "are notified, or name who sends or reports it"),
    ("asks for completions", "polls"),
    ("brought near", "prefetched"),
    ("but for", "except"),
    ("given up", "aborted, or abandoned"),
    ("goes first", "is in the latency class, or has priority"),
    ("gone when the program ends", "not persistent"),
    ("held back", "deferred, or rejected"),
    ("holds back", "defers, or rejects"),
    ("is told", "is notified, or name who sends or reports it"),
    (
        "its keeper",
        "the drive supervisor, or the name of the type",
    ),
    ("knob", "parameter"),
    ("knobs", "parameters"),
    ("let go of", "release"),
    ("lets go of", "releases"),
    ("looks for submissions", "polls"),
    (
        "nobody",
        "the host, the reactor, the operator or the caller that does not",
    ),
    ("nothing of", "none of, or say what there is"),
    ("of before", "previous"),
    ("over the host's head", "bypassing the host"),
    ("past us", "bypassing the server"),
    ("put aside", "renamed to its new name"),
    ("said of", "reported of"),
    ("says of itself", "reports"),
    ("stands in the queue", "is queued"),
    ("taken back", "unmapped, released, or undone"),
    ("takes too long", "times out"),
    ("the time of a drive", "the timing model"),
    ("under way", "in flight"),
    ("what it is worth", "the quantity"),
    ("who polls", "the reactor or the host that polls"),
    (
        "whoever",
        "the host, the reactor, the operator or the caller",
    ),
];

/// Words with which a question begins, and no other sentence: its subject would be a clause.
const QUESTIONS: [&str; 2] = ["What", "Who"];
/// Sources of crates and tests whose comments are not held to that yet.
const NOT_HELD: [&str; 11] = [
    "crates/controller/src/lane/restore.rs",
    "crates/controller/src/state/",
    "crates/subsystem/",
    "crates/transport/src/ublk/",
    "crates/transport/tests/transport/ublk/",
    "crates/transport/tests/transport/vhost_user/",
    "crates/ublk/",
    "crates/vhost-user/",
    "tests/fuzz/",
    "tests/vhost-front/",
    "tests/vm/",
];

/// Checks a page.
pub(super) fn check(name: &str, text: &str) -> Vec<Finding> {
    if name == HISTORY {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut fenced = false;
    let mut commented = false;
    let mut ended = true;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            ended = true;
            continue;
        }
        if fenced {
            continue;
        }
        let prose = prose(line, &mut commented);
        findings.extend(phrases(name, number, &prose));
        findings.extend(clauses(name, number, &prose, &mut ended));
    }
    findings
}

/// Checks a Rust source: its comments, and, tests apart, its literals.
pub(super) fn check_source(name: &str, text: &str) -> Vec<Finding> {
    let split = split(text);
    let is_test = |line: &str| line.trim() == "#[cfg(test)]";
    let production = if is_of_tests(name) {
        0
    } else {
        text.lines().take_while(|line| !is_test(line)).count()
    };
    let mut findings = Vec::new();
    let is_held = (name.starts_with("crates/") || name.starts_with("tests/"))
        && !NOT_HELD.iter().any(|folder| name.starts_with(folder));
    let mut ended = true;
    let lines = split.comments.lines().zip(split.literals.lines());
    for (number, (comment, literal)) in (1..).zip(lines) {
        let comment = prose(comment, &mut false);
        findings.extend(phrases(name, number, &comment));
        if is_held {
            findings.extend(clauses(name, number, &comment, &mut ended));
        }
        if number <= production {
            findings.extend(phrases(name, number, literal));
        }
    }
    findings
}

/// Whether a source is of tests alone, or is this list.
fn is_of_tests(name: &str) -> bool {
    let is_test = |part: &str| matches!(part, "tests" | "tests.rs") || part.starts_with("tests-");
    name.split('/').any(is_test) || name.ends_with("tidy/prose.rs")
}

fn phrases(name: &str, number: usize, line: &str) -> Vec<Finding> {
    let line = line.to_lowercase();
    let found = PHRASES.iter().filter(|(phrase, _)| holds(&line, phrase));
    let finding = |(phrase, replacement): &(&str, &str)| Finding {
        file: name.to_owned(),
        line: number,
        what: format!("{phrase:?}: write {replacement:?}"),
    };
    found.map(finding).collect()
}

/// Sentences of a line that begin as a question does and are none. `ended` says whether the text
/// before the line has ended its sentence, and then whether the line does.
fn clauses(name: &str, number: usize, line: &str, ended: &mut bool) -> Vec<Finding> {
    // What marks headings, lists, tables, comments and emphasis.
    let is_mark = |c: char| c.is_whitespace() || "#*_-|>[(/!".contains(c);
    let is_end = |text: &str| text.ends_with(['.', ':', ';', '|']);
    let is_new = *ended || line.trim_start().starts_with(['#', '-', '|', '*']);
    let begins = |at: usize| {
        let before = &line[..at];
        let text = before.trim_end_matches(is_mark);
        let is_cell = before[text.len()..].contains('|');
        (text.is_empty() && is_new) || (!text.is_empty() && (is_end(text) || is_cell))
    };
    let mut findings = Vec::new();
    for word in QUESTIONS {
        let is_whole = |at: usize| line[at + word.len()..].starts_with(' ');
        let mut places = line.match_indices(word);
        if !line.contains('?') && places.any(|(at, _)| is_whole(at) && begins(at)) {
            findings.push(Finding {
                file: name.to_owned(),
                line: number,
                what: format!("a sentence begins with {word:?}: begin with its noun"),
            });
        }
    }
    let text = line.trim_matches(is_mark);
    *ended = text.is_empty() || is_end(text) || line.starts_with('#');
    findings
}

/// A line without its code spans, comments and link targets.
fn prose(line: &str, commented: &mut bool) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        if *commented {
            let Some((_, after)) = rest.split_once("-->") else {
                return kept;
            };
            *commented = false;
            rest = after;
            continue;
        }
        let starts = [("<!--", ""), ("`", "`"), ("](", ")")];
        let first = starts
            .iter()
            .filter_map(|(start, end)| Some((rest.find(start)?, *start, *end)));
        let Some((at, start, end)) = first.min_by_key(|(at, ..)| *at) else {
            kept.push_str(rest);
            break;
        };
        kept.push_str(&rest[..at]);
        rest = &rest[at + start.len()..];
        *commented = end.is_empty();
        if !end.is_empty() {
            rest = rest.split_once(end).map_or("", |(_, after)| after);
        }
    }
    kept
}

/// Whether the phrase stands in the line as whole words.
fn holds(line: &str, phrase: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric();
    line.match_indices(phrase).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + phrase.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let findings = check("book/src/page.md", text);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_phrase_is_found_with_its_line() {
        assert_eq!(lines("One.\nNobody waits, but for\nthe host."), [2, 2]);
        let what = &check("README.md", "served anew")[0].what;
        assert!(what.contains("recreated"), "{what}");
    }

    #[test]
    fn whole_words_of_prose_alone_are_looked_at() {
        assert!(lines("a whatnobody and doorknobs").is_empty());
        assert!(lines("`nobody` and [text](images/knob.png)").is_empty());
        assert!(lines("```sh\nuseradd nobody\n```\n<!-- nobody\nnobody --> fine").is_empty());
        assert_eq!(lines("<!-- x --> nobody"), [1]);
    }

    #[test]
    fn comments_and_messages_of_sources_are_looked_at() {
        let source = concat!(
            "//! Nobody waits.\n",
            "fn nobody() -> u8 {\n",
            "    fail(\"served anew\") // `nobody` reads this\n",
            "}\n",
            "#[cfg(test)]\n",
            "mod tests {\n",
            "    const TEXT: &str = \"nobody\"; // whoever\n",
            "}\n",
        );
        let lines = |name: &str| -> Vec<usize> {
            let findings = check_source(name, source);
            findings.iter().map(|finding| finding.line).collect()
        };
        assert_eq!(lines("crates/x/src/a.rs"), [1, 3, 7]);
        assert_eq!(lines("crates/x/src/a/tests.rs"), [1, 7]);
        assert_eq!(lines("crates/tests-x/src/a.rs"), [1, 7]);
    }

    #[test]
    fn a_sentence_begins_with_a_clause_only_where_it_asks() {
        for text in [
            "What a host writes is kept.",
            "It ends. Who waits is released.",
            "It ends.\nWhat waits goes on.",
            "## What it needs",
            "- Who reads it",
            "| event | What follows |",
            "**What it costs.** Two of them.",
            "[What a drive needs](drive.md)",
        ] {
            assert_eq!(lines(text).len(), 1, "{text}");
        }
        for text in [
            "What does it need?",
            "It ends with\nWhat and Who as names.",
            "It is what a host writes.",
            "```sh\nWhat it is\n```",
        ] {
            assert!(lines(text).is_empty(), "{text}");
        }
        let source = "//! What it is.\n\n/// What it does, and for\n/// What reason.\nfn f() {}\n";
        assert_eq!(check_source("crates/server/src/a.rs", source).len(), 2);
        assert_eq!(check_source("crates/media/src/a.rs", source).len(), 2);
        assert!(check_source("crates/ublk/src/a.rs", source).is_empty());
        assert!(check_source("xtask/src/a.rs", source).is_empty());
    }

    #[test]
    fn the_changelog_keeps_its_words() {
        assert!(check("CHANGELOG.md", "nobody").is_empty());
    }
}
