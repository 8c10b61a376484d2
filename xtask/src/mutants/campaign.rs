//! Runs mutations in a copy of the tree, one after the other, with one target folder: each is an
//! incremental build and one test.
//!
//! Invariant: a mutation counts as caught only where it builds and its test runs and fails. A test
//! that does not end is none that fails: it would hold up whoever runs it.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::tree::Tree;
use super::{Mutation, Test};
use crate::process::{Ended, Interrupt, Run, run_to_end};
use crate::show::Line;
use crate::workspace::Workspace;

/// How long a build may take; the first one builds everything.
const BUILD: Duration = Duration::from_secs(20 * 60);
/// How long a test may take.
const TEST: Duration = Duration::from_secs(60);

/// What became of a mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its test failed.
    Caught,
    /// Its test passed.
    Survived,
    /// Its test did not end.
    Hung,
    /// The mutated code does not build.
    DoesNotBuild,
}

impl Fate {
    fn word(self) -> &'static str {
        match self {
            Fate::Caught => "caught",
            Fate::Survived => "SURVIVED",
            Fate::Hung => "HUNG",
            Fate::DoesNotBuild => "DOES NOT BUILD",
        }
    }
}

/// The copy, and how things are run in it.
struct Campaign<'a> {
    workspace: &'a Workspace,
    interrupt: &'a Interrupt,
    tree: Tree,
    line: &'a mut Line,
}

/// What became of mutations.
pub(super) struct Outcome(Vec<(&'static Mutation, Fate, Duration)>);

impl Outcome {
    /// How many were caught, and how many were not.
    pub(super) fn counts(&self) -> (usize, usize) {
        let is_caught = |(_, fate, _): &&(_, Fate, _)| *fate == Fate::Caught;
        let caught = self.0.iter().filter(is_caught).count();
        (caught, self.0.len() - caught)
    }

    /// The table of mutations: what became of each, seconds, name, and the test.
    pub(super) fn table(&self) -> String {
        let mut text = String::from("\n");
        for (mutation, fate, time) in &self.0 {
            text += &format!(
                "{:<14} {:>6.1} s  {:<32} {}\n",
                fate.word(),
                time.as_secs_f64(),
                mutation.name,
                mutation.test.name
            );
        }
        text + &format!("{} of {} caught\n", self.counts().0, self.0.len())
    }
}

/// Runs the mutations, one test program after the other, and says what became of each on the line.
/// With a budget none begins when that is spent; the first test program is built before it counts.
///
/// # Errors
/// See [`super::run`].
pub(super) fn run(
    workspace: &Workspace,
    interrupt: &Interrupt,
    line: &mut Line,
    mutations: &[&'static Mutation],
    budget: Option<Duration>,
) -> Result<Outcome> {
    let folder = workspace.target.join("mutants");
    let tree = Tree::copy(&workspace.root, folder.join("tree"))?;
    // All of them first: a list that does not fit the code is not worth an hour.
    for mutation in mutations {
        mutation.apply(&tree.read(mutation.file)?)?;
    }
    let mut campaign = Campaign {
        workspace,
        interrupt,
        tree,
        line,
    };
    let mut rows = Vec::new();
    let mut end = None;
    let is_over = |end: Option<Instant>| end.is_some_and(|end| Instant::now() >= end);
    for program in programs(mutations) {
        if is_over(end) {
            break;
        }
        campaign.check_unmutated(&program)?;
        end = end.or(budget.map(|budget| Instant::now() + budget));
        for mutation in program {
            if is_over(end) {
                break;
            }
            let start = Instant::now();
            let fate = campaign.mutate(mutation)?;
            rows.push((mutation, fate, start.elapsed()));
            campaign.line.note(&format!(
                "{:>3} of {}  {:<14} {}",
                rows.len(),
                mutations.len(),
                fate.word(),
                mutation.name
            ));
        }
    }
    Ok(Outcome(rows))
}

/// The mutations of each test program, in the order of its first one.
fn programs(mutations: &[&'static Mutation]) -> Vec<Vec<&'static Mutation>> {
    let mut programs: Vec<Vec<&Mutation>> = Vec::new();
    for mutation in mutations {
        let of = |test: &Test| (test.package, test.program);
        let is_same = |others: &&mut Vec<&Mutation>| of(&others[0].test) == of(&mutation.test);
        match programs.iter_mut().find(is_same) {
            Some(others) => others.push(mutation),
            None => programs.push(vec![mutation]),
        }
    }
    programs
}

impl Campaign<'_> {
    /// Every test that a mutation of one test program names is there and passes without it.
    fn check_unmutated(&mut self, mutations: &[&Mutation]) -> Result<()> {
        let mut tests = Vec::new();
        for Mutation { test, .. } in mutations {
            if !tests.contains(test) {
                tests.push(*test);
            }
        }
        let Test {
            package, program, ..
        } = tests[0];
        self.line.note(&format!(
            "{} tests of {package} without mutations",
            tests.len()
        ));
        let (said, ended) = self.build(&tests[0])?;
        if let Ended::Badly(why) = ended {
            bail!("{package} does not build without mutations: {why}\n{said}");
        }
        let (said, ended) = self.test(&tests)?;
        if let Ended::Badly(why) = ended {
            bail!("a test fails without mutations: {why}\n{said}");
        }
        if let Some(missing) = tests.iter().find(|test| !passed(&said, test)) {
            bail!(
                "{package} {} has no test {}: correct its name in xtask/src/mutants/list",
                program.join(" "),
                missing.name
            );
        }
        Ok(())
    }

    /// Runs a mutation, and takes it back.
    fn mutate(&mut self, mutation: &Mutation) -> Result<Fate> {
        let original = self.tree.read(mutation.file)?;
        self.tree
            .write(mutation.file, &mutation.apply(&original)?)?;
        let fate = self.try_mutated(&mutation.test);
        self.tree.write(mutation.file, &original)?;
        fate.with_context(|| format!("mutation {}", mutation.name))
    }

    fn try_mutated(&mut self, test: &Test) -> Result<Fate> {
        if let (_, Ended::Badly(_)) = self.build(test)? {
            return Ok(Fate::DoesNotBuild);
        }
        let start = Instant::now();
        Ok(match self.test(&[*test])? {
            (_, Ended::Well) => Fate::Survived,
            _ if start.elapsed() >= TEST => Fate::Hung,
            _ => Fate::Caught,
        })
    }

    fn build(&mut self, test: &Test) -> Result<(String, Ended)> {
        let mut command = self.cargo(test)?;
        command.arg("--no-run");
        self.run(&mut command, BUILD)
    }

    /// Runs tests of one program.
    fn test(&mut self, tests: &[Test]) -> Result<(String, Ended)> {
        let mut command = self.cargo(&tests[0])?;
        command
            .args(["--", "--exact"])
            .args(tests.iter().map(|test| test.name));
        self.run(&mut command, TEST * u32::try_from(tests.len())?)
    }

    fn cargo(&self, test: &Test) -> Result<Command> {
        // With the features of the whole workspace where the name of a file of tests is enough, so
        // that crates of others are those of all tests.
        let of: &[&str] = match test.program {
            ["--test", _] => &["--workspace"],
            _ => &["--package", test.package],
        };
        let mut command = self.workspace.cargo(&["test", "--locked"])?;
        let ours = self.workspace.target.join("mutants/target");
        command
            .args(of)
            .args(test.program)
            .current_dir(self.tree.root())
            // Programs of mutated code go elsewhere; what they are made of is beside ours, so that
            // crates of others are built once.
            .env("CARGO_TARGET_DIR", ours)
            .env("CARGO_BUILD_BUILD_DIR", &self.workspace.target)
            .env("CARGO_INCREMENTAL", "1")
            // No guard is in the dashboard, and it takes a while.
            .env("NVMIRAGE_WEB", "0")
            // What is built is run once.
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        Ok(command)
    }

    fn run(&mut self, command: &mut Command, bound: Duration) -> Result<(String, Ended)> {
        let log = self.workspace.logs().join("mutants.log");
        let line = &mut self.line;
        let live = &mut |text: &str| line.at(text);
        let mut with = Run {
            bound,
            log: &log,
            interrupt: self.interrupt,
            live,
        };
        run_to_end(command, &mut with)
    }
}

/// Whether libtest says in `output` that a test was run and passed.
fn passed(output: &str, test: &Test) -> bool {
    let name = test.name;
    let wanted = ["", " - should panic"].map(|manner| format!("test {name}{manner} ... ok"));
    output.lines().any(|line| wanted.iter().any(|w| w == line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::unit;

    #[test]
    fn a_test_that_was_not_run_has_not_passed() {
        let output = "running 3 tests\ntest a::b ... ok\ntest a::bc ... FAILED\n\
                      test a::d - should panic ... ok\n";
        for name in ["a::b", "a::d"] {
            assert!(passed(output, &unit("p", name)), "{name}");
        }
        for name in ["b", "a::bc", "a::c"] {
            assert!(!passed(output, &unit("p", name)), "{name}");
        }
    }

    const MUTATION: &Mutation = &Mutation {
        name: "a-guard",
        guard: "b",
        file: "c",
        from: "d",
        to: "e",
        test: unit("f", "g::h"),
    };
    const OF_ANOTHER: &Mutation = &Mutation {
        name: "another",
        test: unit("other", "g::h"),
        ..*MUTATION
    };
    const SECOND: &Mutation = &Mutation {
        name: "second",
        ..*MUTATION
    };

    #[test]
    fn mutations_of_a_test_program_come_together() {
        let groups = programs(&[MUTATION, OF_ANOTHER, SECOND]);
        let names: Vec<Vec<_>> = groups
            .iter()
            .map(|group| group.iter().map(|mutation| mutation.name).collect())
            .collect();
        assert_eq!(names, [vec!["a-guard", "second"], vec!["another"]]);
    }

    #[test]
    fn the_table_counts_what_was_caught() {
        let second = Duration::from_secs(1);
        let fates = [Fate::Caught, Fate::Survived, Fate::Hung, Fate::DoesNotBuild];
        let outcome = Outcome(fates.map(|fate| (MUTATION, fate, second)).into());
        assert_eq!(outcome.counts(), (1, 3));
        let text = outcome.table();
        for word in [
            "caught ",
            "SURVIVED ",
            "HUNG ",
            "DOES NOT BUILD ",
            "1 of 4 caught",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
