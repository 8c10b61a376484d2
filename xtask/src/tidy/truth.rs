//! Statements of the documentation that a program can check: the numbers of decisions, and limits
//! that tidy itself enforces.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::text::MAX_LINES;

/// The folder of the decisions, and the page that lists numbers without one.
const DECISIONS: &str = "book/src/adr/";
const INDEX: &str = "book/src/adr/README.md";
/// The beginning of the paragraph that lists them.
const UNUSED: &str = "Unused numbers: ";

/// Checks pages, by their path from the root.
pub(super) fn check(pages: &BTreeMap<String, String>) -> Vec<Finding> {
    let mut findings = decisions(pages);
    let limit = format!("Files to {MAX_LINES} lines");
    if pages
        .get("CONTRIBUTING.md")
        .is_some_and(|page| !page.contains(&limit))
    {
        findings.push(finding(
            "CONTRIBUTING.md",
            format!("does not say {limit:?}, as tidy checks"),
        ));
    }
    findings
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

    fn pages(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        texts.iter().map(owned).collect()
    }

    #[test]
    fn a_number_has_a_page_or_is_listed() {
        let with = |index: &str| {
            check(&pages(&[
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
    fn the_limit_that_is_written_is_the_one_that_is_checked() {
        let page = format!("- Files to {MAX_LINES} lines, functions to 70.");
        assert!(check(&pages(&[("CONTRIBUTING.md", &page)])).is_empty());
        assert_eq!(
            check(&pages(&[("CONTRIBUTING.md", "- Files to 1 lines")])).len(),
            1
        );
    }
}
