//! Words that the project does not use in its documentation, each with its replacement.
//!
//! Only prose is checked: no code block, code span, comment or link target. The changelog keeps the
//! words of its time.

use super::Finding;

/// The changelog, whose older entries stay as they are.
const HISTORY: &str = "CHANGELOG.md";

/// Phrases in lower case, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("anew", "again, or recreated"),
    ("brought near", "prefetched"),
    ("but for", "except"),
    ("knob", "parameter"),
    ("let go of", "release"),
    ("lets go of", "releases"),
    (
        "nobody",
        "the host, the reactor, the operator or the caller that does not",
    ),
    ("put aside", "renamed to its new name"),
    ("under way", "in flight"),
    (
        "whoever",
        "the host, the reactor, the operator or the caller",
    ),
];

/// Checks a page.
pub(super) fn check(name: &str, text: &str) -> Vec<Finding> {
    if name == HISTORY {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut fenced = false;
    let mut commented = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let line = prose(line, &mut commented).to_lowercase();
        for (phrase, replacement) in PHRASES.iter().filter(|(phrase, _)| holds(&line, phrase)) {
            findings.push(Finding {
                file: name.to_owned(),
                line: number,
                what: format!("{phrase:?}: write {replacement:?}"),
            });
        }
    }
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
        assert!(lines("a whatnobody and knobs").is_empty());
        assert!(lines("`nobody` and [text](images/knob.png)").is_empty());
        assert!(lines("```sh\nuseradd nobody\n```\n<!-- nobody\nnobody --> fine").is_empty());
        assert_eq!(lines("<!-- x --> nobody"), [1]);
    }

    #[test]
    fn the_changelog_keeps_its_words() {
        assert!(check("CHANGELOG.md", "nobody").is_empty());
    }
}
