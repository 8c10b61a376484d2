//! Links between pages of Markdown: what a relative link leads to is there, and so is the heading
//! that it names.
//!
//! A path of the project in code spans (`crates/memory/src/bell.rs`) is a link, too: the book leads
//! into the source by them. Addresses on the web are not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::Finding;

/// Folders of the project that paths in code spans begin with.
const FOLDERS: &[&str] = &[
    "book/",
    "crates/",
    "examples/",
    "fuzz/",
    "package/",
    "tests/",
    "web/",
    "xtask/",
];
/// What is said there was so then.
const HISTORY: &str = "CHANGELOG.md";

/// Checks the pages (path from the root, and text); `exists` says of a path from the root whether
/// something is there.
pub(super) fn check(
    pages: &BTreeMap<String, String>,
    exists: &dyn Fn(&Path) -> bool,
) -> Vec<Finding> {
    let anchors: BTreeMap<&str, BTreeSet<String>> = pages
        .iter()
        .map(|(name, text)| (name.as_str(), anchors(text)))
        .collect();
    let mut findings = Vec::new();
    for (name, text) in pages {
        for (line, place) in places(text) {
            let wrong = match place {
                Place::Link(target) => wrong_link(name, &target, &anchors, exists),
                Place::Path(path) if name != HISTORY && !exists(Path::new(&path)) => {
                    Some(format!("names {path}, which is not there"))
                }
                Place::Path(_) => None,
            };
            findings.extend(wrong.map(|what| Finding {
                file: name.clone(),
                line,
                what,
            }));
        }
    }
    findings
}

fn wrong_link(
    page: &str,
    target: &str,
    anchors: &BTreeMap<&str, BTreeSet<String>>,
    exists: &dyn Fn(&Path) -> bool,
) -> Option<String> {
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let path = if file.is_empty() {
        PathBuf::from(page)
    } else {
        resolved(&folder.join(file))
    };
    if !exists(&path) {
        return Some(format!("leads to {target}, which is not there"));
    }
    let anchor = anchor?;
    let of_page = anchors.get(path.to_str()?)?;
    (!of_page.contains(anchor)).then(|| {
        let path = path.display();
        format!("leads to #{anchor}, and {path} has no such heading")
    })
}

/// The path without `.` and `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if whole.file_name().is_some() => {
                whole.pop();
            }
            Component::CurDir => {}
            other => whole.push(other),
        }
    }
    whole
}

/// Something that has to be there.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// The target of a link.
    Link(String),
    /// A path of the project in a code span.
    Path(String),
}

/// What the text leads to, each with its line.
fn places(text: &str) -> Vec<(usize, Place)> {
    let mut found = Vec::new();
    for (number, line) in outside_of_fences(text) {
        let mut prose = String::new();
        for (index, part) in line.split('`').enumerate() {
            if index % 2 == 0 {
                prose += part;
            } else if is_path(part) {
                found.push((number, Place::Path(part.to_owned())));
            }
        }
        let links = prose.split("](").skip(1);
        let targets = links.filter_map(|rest| rest.split([')', ' ']).next());
        let local =
            targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
        found.extend(local.map(|target| (number, Place::Link(target.to_owned()))));
    }
    found
}

/// Whether a code span is a path of the project, and not a pattern or a name with something to fill
/// in.
fn is_path(code: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let in_folder = FOLDERS.iter().any(|folder| code.starts_with(folder));
    in_folder && code.chars().all(plain) && !code.contains("..")
}

/// The lines that are no part of a fenced block, with their numbers from 1.
fn outside_of_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        (!is_fence && !inside).then_some((index + 1, line))
    })
}

/// The names of a page's headings, as mdBook and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (_, line) in outside_of_fences(text) {
        for id in line.split("<a id=\"").skip(1) {
            all.extend(id.split('"').next().map(str::to_owned));
        }
        let heading = line.trim_start_matches('#');
        let Some(heading) = heading.strip_prefix(' ').filter(|_| line.starts_with('#')) else {
            continue;
        };
        let name = anchor(heading.trim());
        let second = format!("{name}-1");
        if !all.insert(name) {
            all.insert(second);
        }
    }
    all
}

fn anchor(heading: &str) -> String {
    // of a link only its text is heard
    let mut text = String::new();
    for (index, part) in heading.split("](").enumerate() {
        let part = match index {
            0 => part,
            _ => part.split_once(')').map_or("", |(_, rest)| rest),
        };
        text += part;
    }
    text.chars()
        .filter_map(|c| match c {
            c if c.is_whitespace() => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let pages: BTreeMap<_, _> = pages
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        let there = [
            "book/src/a.md",
            "book/src/b/c.md",
            "crates/x/src/lib.rs",
            "web/",
        ];
        let exists = |path: &Path| there.iter().any(|one| Path::new(one) == path);
        check(&pages, &exists)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn links_lead_to_what_is_there() {
        let a = "# A\n[c](b/c.md) [d](b/c.md#two-words) [e](#a) [w](https://x/y)\n```text\n[no](no.md)\n```\n`[no](no.md)`";
        let c = "# C\n\n## Two `words`\n[up](../a.md#a), `crates/x/src/lib.rs`, `crates/*/src`, `cargo x`";
        assert_eq!(
            found(&[("book/src/a.md", a), ("book/src/b/c.md", c)]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn links_to_nothing_are_found() {
        let a = "# A\n[x](x.md)\n\n[c](b/c.md#three) and [e](#b)\n`crates/y/lib.rs`\n`web/no.ts`, `web/`";
        let all = found(&[("book/src/a.md", a), ("book/src/b/c.md", "# C\n")]);
        assert_eq!(
            all,
            [
                "book/src/a.md:2: leads to x.md, which is not there",
                "book/src/a.md:4: leads to #three, and book/src/b/c.md has no such heading",
                "book/src/a.md:4: leads to #b, and book/src/a.md has no such heading",
                "book/src/a.md:5: names crates/y/lib.rs, which is not there",
                "book/src/a.md:6: names web/no.ts, which is not there",
            ]
        );
    }

    #[test]
    fn headings_have_the_names_that_mdbook_gives_them() {
        assert_eq!(
            anchor("`up PRESET|KIND --size SIZE`"),
            "up-presetkind---size-size"
        );
        assert_eq!(
            anchor("The paper's three threads"),
            "the-papers-three-threads"
        );
        assert_eq!(anchor("See [this](x.md) too"), "see-this-too");
        let twice = anchors("# A\n## B\n## B\n<a id=\"z\"></a>\n#no\n");
        let twice: Vec<_> = twice.iter().map(String::as_str).collect();
        assert_eq!(twice, ["a", "b", "b-1", "z"]);
    }
}
