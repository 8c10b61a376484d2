//! The size of a crate: above the limit it has more than one subject.
//!
//! Lines of what is not a test count, comments and blank lines among them.

use std::collections::BTreeMap;

use super::Finding;

/// Lines that a crate may have, its tests apart.
pub(super) const MAX_CRATE_LINES: usize = 25_000;

/// Checks the sources of crates, by their path from the root of the project.
pub(super) fn check(sources: &BTreeMap<String, String>) -> Vec<Finding> {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, source) in sources {
        let Some((krate, file)) = path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        if !file
            .split('/')
            .any(|part| matches!(part, "tests" | "tests.rs"))
        {
            *lines.entry(krate).or_default() += production(source);
        }
    }
    let large = lines
        .into_iter()
        .filter(|(_, lines)| *lines > MAX_CRATE_LINES);
    large
        .map(|(krate, lines)| Finding {
            file: format!("crates/{krate}"),
            line: 0,
            what: format!(
                "has {lines} lines beside its tests, and {MAX_CRATE_LINES} is the limit: split it by subject"
            ),
        })
        .collect()
}

/// Lines before the module of tests, which stands last.
fn production(source: &str) -> usize {
    let is_test = |line: &str| line == "#[cfg(test)]";
    let lines: Vec<&str> = source.lines().collect();
    let tests = lines
        .windows(2)
        .position(|two| is_test(two[0]) && two[1].starts_with("mod tests"));
    tests.unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_crate_is_found_and_tests_do_not_count() {
        let large = "x\n".repeat(MAX_CRATE_LINES);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{large}}}\n");
        let source = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let mut sources = BTreeMap::from([
            source("crates/a/src/lib.rs", &large),
            source("crates/a/src/one.rs", &tests),
            source("crates/a/src/one/tests.rs", &large),
            source("crates/a/tests/x.rs", &large),
            source("crates/b/src/lib.rs", "x\n"),
        ]);
        assert_eq!(check(&sources), []);
        sources.extend([source("crates/a/src/two.rs", "x\n")]);
        let found = check(&sources);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("has 25001 lines"), "{}", found[0]);
    }
}
