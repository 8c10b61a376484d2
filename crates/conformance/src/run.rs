//! Runs tests, one after the other.

use crate::chapters::{CHAPTERS, Chapter, Test};
use crate::{Bench, Miss, Verdict};

/// A name that no chapter and no test has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName(pub String);

/// Which tests are run.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Names of chapters, of tests, and `chapter/test`; empty: all.
    names: Vec<String>,
}

impl Selection {
    /// Those with one of these names: a chapter's, a test's, or `chapter/test`.
    /// None at all: every test.
    ///
    /// # Errors
    /// A name that no chapter and no test has.
    pub fn of(names: &[String]) -> Result<Self, UnknownName> {
        for name in names {
            let known = every().any(|(chapter, test)| named(name, chapter, test));
            if !known {
                return Err(UnknownName(name.clone()));
            }
        }
        Ok(Self {
            names: names.to_vec(),
        })
    }

    /// The tests, in order, each with its chapter.
    pub fn tests(&self) -> impl Iterator<Item = (&'static Chapter, &'static Test)> {
        every().filter(|(chapter, test)| {
            self.names.is_empty() || self.names.iter().any(|name| named(name, chapter, test))
        })
    }
}

fn every() -> impl Iterator<Item = (&'static Chapter, &'static Test)> {
    let of = |chapter: &'static Chapter| chapter.tests.iter().map(move |test| (chapter, test));
    CHAPTERS.iter().flat_map(of)
}

fn named(name: &str, chapter: &Chapter, test: &Test) -> bool {
    match name.split_once('/') {
        Some((of, name)) => of == chapter.name && name == test.name,
        None => name == chapter.name || name == test.name,
    }
}

/// Outcome of a test.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its chapter's name.
    pub chapter: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Source of the demand.
    pub section: &'static str,
    /// Its statement.
    pub title: &'static str,
    /// Whether that is so.
    pub verdict: Verdict,
}

/// Runs the selected tests and hands each outcome to `tell`, which says whether
/// to go on.
///
/// The controller is left disabled.
pub fn run(bench: &mut Bench, selection: &Selection, tell: &mut dyn FnMut(Outcome) -> bool) {
    for (chapter, test) in selection.tests() {
        let over_fabrics = bench.is_over_fabrics();
        let scopes = [chapter.scope, test.scope()];
        let excluded = scopes.iter().find_map(|scope| scope.excludes(over_fabrics));
        let verdict = match excluded {
            Some(why) => Err(Miss::NotApplicable(why)),
            None => {
                let ready = bench.recover().and_then(|()| bench.start());
                ready.and_then(|()| (test.run)(bench))
            }
        };
        let outcome = Outcome {
            chapter: chapter.name,
            name: test.name,
            section: test.section,
            title: test.title,
            verdict,
        };
        if !tell(outcome) {
            break;
        }
    }
    // A controller that cannot even be disabled has failed tests already.
    let _ = bench.recover();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_titles_are_there() {
        let mut names = BTreeSet::new();
        for (chapter, test) in every() {
            assert!(names.insert((chapter.name, test.name)), "{}", test.name);
            assert_ne!(chapter.name, test.name);
            assert!(!test.title.is_empty() && !test.title.ends_with('.'));
            let known = [
                "Base 2.1, ",
                "NVM 1.1, ",
                "KV 1.1, ",
                "ZNS 1.1, ",
                "ZNS 1.2, ",
                "PCIe Transport 1.1, ",
                "PCI 3.0, ",
                "TCP 1.1, ",
            ];
            let section = known.iter().find_map(|of| test.section.strip_prefix(of));
            let section = section.unwrap_or_else(|| panic!("{}: {}", test.name, test.section));
            let first = section.chars().next();
            assert!(
                first.is_some_and(|c| c.is_ascii_digit() || c == 'B'),
                "{}: {}",
                test.name,
                test.section
            );
        }
    }

    #[test]
    fn tests_of_pcie_are_not_for_controllers_over_fabrics() {
        let applies = |name: &str, over_fabrics| {
            let selection = Selection::of(&[name.to_owned()]).unwrap();
            let (chapter, test) = selection.tests().next().unwrap();
            let scopes = [chapter.scope, test.scope()];
            scopes
                .iter()
                .all(|scope| scope.excludes(over_fabrics).is_none())
        };
        for (name, pcie, fabrics) in [
            ("io/fua", true, true),
            // By its chapter, by its section, by its own row.
            ("queues/laps", true, false),
            ("admin/sgl_for_admin", true, false),
            ("identify/identify_prp_rules", true, false),
            ("fabrics/connect_twice", false, true),
        ] {
            assert_eq!(applies(name, false), pcie, "{name}");
            assert_eq!(applies(name, true), fabrics, "{name}");
        }
    }

    #[test]
    fn a_selection_is_by_chapter_test_or_both() {
        let all = Selection::of(&[]).unwrap().tests().count();
        let (chapter, test) = every().next().unwrap();
        let of = |name: &str| Selection::of(&[name.to_owned()]);
        assert_eq!(
            of(chapter.name).unwrap().tests().count(),
            chapter.tests.len()
        );
        assert!(of(chapter.name).unwrap().tests().count() <= all);
        let both = format!("{}/{}", chapter.name, test.name);
        assert_eq!(of(&both).unwrap().tests().count(), 1);
        assert_eq!(of("nothing").unwrap_err(), UnknownName("nothing".into()));
    }
}
