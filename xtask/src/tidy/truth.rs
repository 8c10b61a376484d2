//! Statements of the documentation that a program can check: the numbers of decisions, limits that
//! tidy itself enforces, the arrows between crates, and the names of modules and items.

use std::collections::{BTreeMap, BTreeSet};

use super::size::MAX_CRATE_LINES;
use super::text::{COMMENT_COLUMNS, MAX_LINES};
use super::{Finding, arrows};

/// The folder of the decisions, and the page that lists numbers without one.
const DECISIONS: &str = "book/src/adr/";
const INDEX: &str = "book/src/adr/README.md";
/// The beginning of the paragraph that lists them.
const UNUSED: &str = "Unused numbers: ";

/// The page of the crates, and the folder of the pages about the inside.
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const INTERNALS: &str = "book/src/internals/";
/// The page that names the tests of faults that users met.
const FAULTS: &str = "book/src/internals/faults.md";

/// Checks pages against each other and against sources; both by their path from the root.
pub(super) fn check(
    pages: &BTreeMap<String, String>,
    sources: &BTreeMap<String, String>,
) -> Vec<Finding> {
    let mut findings = decisions(pages);
    if let Some(page) = pages.get(ARCHITECTURE) {
        findings.extend(crates(page, arrows::ALLOWED));
    }
    if let Some(page) = pages.get(FAULTS) {
        findings.extend(tests_of_faults(page, sources));
    }
    for (name, page) in pages.iter().filter(|(name, _)| *name != FAULTS) {
        if name == ARCHITECTURE || name.starts_with(INTERNALS) {
            findings.extend(items(name, page, sources));
        }
    }
    if let Some(page) = pages.get("CONTRIBUTING.md") {
        let missing = limits().into_iter().filter(|limit| !page.contains(limit));
        findings.extend(missing.map(|limit| {
            let what = format!("does not say {limit:?}, as tidy checks");
            finding("CONTRIBUTING.md", what)
        }));
    }
    findings
}

/// The limits that tidy enforces, in the words of the page.
fn limits() -> [String; 3] {
    let thousands = MAX_CRATE_LINES / 1000;
    let rest = MAX_CRATE_LINES % 1000;
    [
        format!("Files to {MAX_LINES} lines"),
        format!("crates to {thousands},{rest:03}"),
        format!("comments to {COMMENT_COLUMNS} columns"),
    ]
}

/// Each number up to the last decision has a page, or is listed as unused.
fn decisions(pages: &BTreeMap<String, String>) -> Vec<Finding> {
    let Some(index) = pages.get(INDEX) else {
        return Vec::new();
    };
    let names = pages.keys().filter_map(|path| path.strip_prefix(DECISIONS));
    let used: BTreeSet<u32> = names
        .filter_map(|name| name.split('-').next()?.parse().ok())
        .collect();
    let listed = index.lines().find_map(|line| line.strip_prefix(UNUSED));
    let listed: BTreeSet<u32> = listed
        .unwrap_or_default()
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    let last = used.last().copied().unwrap_or_default();
    let missing: BTreeSet<u32> = (1..=last).filter(|number| !used.contains(number)).collect();
    missing
        .symmetric_difference(&listed)
        .map(|number| {
            let what = match used.contains(number) {
                true => format!("lists number {number} as unused, and the decision exists"),
                false if *number > last => {
                    format!("lists number {number}, which is above the last decision")
                }
                false => format!("decision {number} does not exist: list it behind {UNUSED:?}"),
            };
            finding(INDEX, what)
        })
        .collect()
}

/// The arrows that the page draws are those that tidy allows, tests and tools apart.
fn crates(page: &str, allowed: arrows::Table<'_>) -> Vec<Finding> {
    let drawn = page.lines().filter(|line| line.contains(" -> "));
    let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for arrow in drawn.flat_map(|line| line.split("  ")) {
        let Some((from, to)) = arrow.trim().split_once(" -> ") else {
            continue;
        };
        let to = to.split(", ").filter(|to| *to != "none of ours");
        let to: BTreeSet<&str> = to.collect();
        arrows.extend(from.split(", ").map(|from| (from, to.clone())));
    }
    let mut findings = Vec::new();
    let is_drawn = |from: &str| !from.starts_with("tests-") && !from.starts_with("xtask");
    for (from, to) in allowed.iter().filter(|(from, _)| is_drawn(from)) {
        let to = to.iter().copied().collect();
        match arrows.remove(from) {
            Some(drawn) if drawn == to => {}
            drawn => findings.push(finding(
                ARCHITECTURE,
                format!("draws {from} -> {drawn:?}, and tidy allows {to:?}"),
            )),
        }
    }
    let unknown = arrows.into_keys();
    findings.extend(unknown.map(|from| {
        let what = format!("draws arrows from {from}, which tidy does not know");
        finding(ARCHITECTURE, what)
    }));
    findings
}

/// Each path in a code span that begins with one of our crates names a module or an item of it.
fn items(name: &str, page: &str, sources: &BTreeMap<String, String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        for span in line.split('`').skip(1).step_by(2) {
            let Some((krate, path)) = span.split_once("::") else {
                continue;
            };
            let folder = format!("crates/{}/src/", krate.replace('_', "-"));
            let own: Vec<(&str, &String)> = sources
                .iter()
                .filter_map(|(path, text)| Some((path.strip_prefix(&folder)?, text)))
                .collect();
            let mut missing = path.split("::").filter(|part| !is_there(part, &own));
            if !own.is_empty()
                && let Some(part) = missing.next()
            {
                findings.push(Finding {
                    file: name.to_owned(),
                    line: number,
                    what: format!("`{span}`: the crate has no module or item {part}"),
                });
            }
        }
    }
    findings
}

/// Each path in a code span names tests: modules, and a function or (with `*`) those that begin so.
fn tests_of_faults(page: &str, sources: &BTreeMap<String, String>) -> Vec<Finding> {
    let is_module = |name: &str| {
        let mut paths = sources.keys().flat_map(|path| path.split('/'));
        paths.any(|part| part.strip_suffix(".rs").unwrap_or(part) == name)
    };
    let is_there = |part: &str| match part.strip_suffix('*') {
        Some("") => true,
        Some(start) => sources
            .values()
            .any(|text| text.contains(&format!("fn {start}"))),
        None => {
            let function = format!("fn {part}(");
            is_module(part) || sources.values().any(|text| text.contains(&function))
        }
    };
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        let spans = line.split('`').skip(1).step_by(2);
        for span in spans.filter(|span| span.contains("::") && !span.starts_with(':')) {
            let crates = |part: &&str| is_module(&part.replace('_', "-"));
            let missing = span
                .split("::")
                .find(|part| !is_there(part) && !crates(part));
            findings.extend(missing.map(|part| Finding {
                file: FAULTS.to_owned(),
                line: number,
                what: format!("`{span}`: there is no module or test {part}"),
            }));
        }
    }
    findings
}

/// Whether a line declares a variant of an enum.
fn is_variant(line: &str, name: &str) -> bool {
    let rest = line.strip_prefix(name).unwrap_or("x");
    rest.is_empty() || rest.starts_with([',', '(']) || rest.starts_with(" {")
}

/// Whether a crate has a module or an item of that name.
fn is_there(name: &str, sources: &[(&str, &String)]) -> bool {
    let is_module = |path: &str| {
        path.split('/')
            .any(|part| part.strip_suffix(".rs").unwrap_or(part) == name)
    };
    let kinds = ["fn", "struct", "enum", "trait", "type", "const", "mod"];
    let is_item = |text: &str| {
        text.lines().any(|line| {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.any(|word| kinds.contains(&word)) && words.next() == Some(name)
                || is_variant(line.trim(), name)
        })
    };
    sources
        .iter()
        .any(|(path, text)| is_module(path) || is_item(text))
}

fn finding(file: &str, what: String) -> Finding {
    Finding {
        file: file.to_owned(),
        line: 0,
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &BTreeMap<String, String>) -> Vec<Finding> {
        check(pages, &BTreeMap::new())
    }

    fn pages(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        texts.iter().map(owned).collect()
    }

    #[test]
    fn a_number_has_a_page_or_is_listed() {
        let with = |index: &str| {
            found(&pages(&[
                (INDEX, index),
                ("book/src/adr/0001-a.md", ""),
                ("book/src/adr/0004-b.md", ""),
            ]))
        };
        assert!(with("Text\n\nUnused numbers: 2, 3.\n").is_empty());
        assert_eq!(with("").len(), 2);
        assert_eq!(with("Unused numbers: 2.").len(), 1);
        assert_eq!(with("Unused numbers: 2, 3, 4.").len(), 1, "4 exists");
        assert_eq!(
            with("Unused numbers: 2, 3, 5.").len(),
            1,
            "5 is above the last"
        );
    }

    #[test]
    fn the_limits_that_are_written_are_those_that_are_checked() {
        let page = "- Files to 700 lines, crates to 25,000, comments to 100 columns.";
        assert!(found(&pages(&[("CONTRIBUTING.md", page)])).is_empty());
        for (written, other) in [("700", "600"), ("25,000", "20,000"), ("100 c", "80 c")] {
            let page = page.replace(written, other);
            assert_eq!(found(&pages(&[("CONTRIBUTING.md", &page)])).len(), 1);
        }
    }

    #[test]
    fn the_arrows_that_are_drawn_are_those_that_are_allowed() {
        let allowed: arrows::Table<'_> = &[
            ("a", &["b", "c"]),
            ("b", &[]),
            ("c", &[]),
            ("tests-x", &["a"]),
        ];
        let said = |page: &str| -> Vec<String> {
            let findings = crates(page, allowed);
            findings.iter().map(Finding::to_string).collect()
        };
        let none = "b, c -> none of ours";
        assert_eq!(said(&format!("a -> c, b\n{none}")), [""; 0]);
        assert_eq!(said(&format!("a -> c, b    {none}")), [""; 0]);
        assert!(said(&format!("a -> b\n{none}"))[0].contains("draws a -> "));
        assert!(said(none)[0].contains("draws a -> None"));
        let more = said(&format!("a -> b, c\n{none}\nd -> a"));
        assert!(more[0].contains("arrows from d"), "{more:?}");
    }

    #[test]
    fn a_name_of_a_crate_is_there() {
        let sources = pages(&[(
            "crates/a-b/src/one/two.rs",
            "pub(crate) fn go() {}\npub struct Item<T>;\n    Variant { x: u8 },\n",
        )]);
        let lines = |page: &str| items("ARCHITECTURE.md", page, &sources).len();
        for there in ["a_b::one", "a_b::one::two", "a_b::go", "a_b::Item::Variant"] {
            assert_eq!(lines(&format!("See `{there}` and `other::name`.")), 0);
        }
        for missing in ["a_b::three", "a_b::one::gone", "a_b::Ite"] {
            assert_eq!(lines(&format!("- x\n- `{missing}`")), 1, "{missing}");
        }
    }
    #[test]
    fn a_test_of_a_fault_is_there() {
        let sources = pages(&[("crates/a/tests/program/one.rs", "fn it_is_mended() {}\n")]);
        let said = |page: &str| tests_of_faults(page, &sources).len();
        assert_eq!(said("| `one::it_is_mended`, `a::one::*`, `one::it_*` |"), 0);
        for missing in ["one::it_is", "two::*", "one::was_*"] {
            assert_eq!(said(&format!("| `{missing}` |")), 1, "{missing}");
        }
    }
}
