//! Pages of the book that are generated from the program or checked against it: the reference pages
//! of all keys and options, and tables of other pages.
//!
//! A generated page differs from the program after a change to only one of them; the failing test
//! says how to regenerate the page.

mod dashboard;
mod keys;
mod options;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../book/src/reference")
        .join(name)
}

/// Compares a page with its generated text, or writes it if `UPDATE_BOOK` is set.
#[track_caller]
fn check(name: &str, text: &str) {
    let path = reference(name);
    if std::env::var_os("UPDATE_BOOK").is_some() {
        fs::write(&path, text).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == text,
        "book/src/reference/{name} is not what the program has: renew it with UPDATE_BOOK=1 cargo test -p nvmirage --bin nvmirage book::"
    );
}

/// A hand-written page.
fn page(name: &str) -> String {
    fs::read_to_string(reference(name)).unwrap()
}

/// The text from a heading to the next heading of the same or a higher level.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let level = heading.bytes().take_while(|byte| *byte == b'#').count();
    let start = page
        .lines()
        .scan(0, |at, line| {
            let here = *at;
            *at += line.len() + 1;
            Some((here, line))
        })
        .find(|(_, line)| *line == heading)
        .unwrap_or_else(|| panic!("no heading {heading}"))
        .0;
    let text = &page[start..];
    let end = text[heading.len()..]
        .match_indices("\n#")
        .find(|(at, _)| {
            let rest = text[heading.len() + at + 1..].trim_start_matches('#');
            let depth = text[heading.len() + at + 1..].len() - rest.len();
            depth <= level && rest.starts_with(' ')
        })
        .map_or(text.len(), |(at, _)| heading.len() + at);
    &text[..end]
}

/// The code spans in the first column of all tables of a text.
fn first_column(text: &str) -> BTreeSet<String> {
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once(" |"));
    let cells = rows.map(|(cell, _)| format!("`{cell}"));
    cells
        .flat_map(|cell| {
            let words: Vec<String> = cell
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect();
            words
        })
        .collect()
}

#[test]
fn a_section_ends_at_the_next_heading_of_its_level() {
    let text = "# A\n## B\nb\n### C\n| `c`, `d` | x |\n## D\n| `e` |\n";
    assert_eq!(section(text, "## B"), "## B\nb\n### C\n| `c`, `d` | x |");
    assert_eq!(section(text, "### C"), "### C\n| `c`, `d` | x |");
    let words: Vec<_> = first_column(text).into_iter().collect();
    assert_eq!(words, ["c", "d", "e"]);
}
