//! Runs mutations in a copy of the tree, one after the other, with one target folder: each is an
//! incremental build and one test.
//!
//! Invariants:
//! - a mutation counts as caught only where it builds and its test runs and fails. A test that does
//!   not end has not failed;
//! - a test's time is its own: its program is run without cargo, which would wait for the builds of
//!   others.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

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
        let built = match self.build(&tests[0])? {
            Build::Done(program) => program,
            Build::Failed(why) => bail!("{package} does not build without mutations: {why}"),
        };
        let (said, ended) = self.test(&built, &tests)?;
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
        let Build::Done(built) = self.build(test)? else {
            return Ok(Fate::DoesNotBuild);
        };
        let start = Instant::now();
        Ok(match self.test(&built, &[*test])? {
            (_, Ended::Well) => Fate::Survived,
            _ if start.elapsed() >= TEST => Fate::Hung,
            _ => Fate::Caught,
        })
    }

    /// Builds a program of tests.
    fn build(&mut self, test: &Test) -> Result<Build> {
        // With the features of the whole workspace where the name of a file of tests is enough, so
        // that crates of others are those of all tests.
        let of: &[&str] = match test.program {
            ["--test", _] => &["--workspace"],
            _ => &["--package", test.package],
        };
        let mut command = self.cargo(&["test", "--locked", "--no-run"])?;
        command.args(of).args(test.program);
        let (said, ended) = self.run(&mut command, BUILD)?;
        Ok(match ended {
            Ended::Well => Build::Done(executable(&said)?),
            Ended::Badly(why) => Build::Failed(format!("{why}\n{said}")),
        })
    }

    /// Runs tests of a program that was built.
    fn test(&mut self, program: &Path, tests: &[Test]) -> Result<(String, Ended)> {
        let folder = self.folder(tests[0].package)?;
        let mut command = self.workspace.command(program)?;
        command
            .arg("--exact")
            .args(tests.iter().map(|test| test.name))
            .current_dir(folder);
        self.run(&mut command, TEST * u32::try_from(tests.len())?)
    }

    /// The folder of a package in the copy, where cargo runs its tests.
    fn folder(&self, package: &str) -> Result<PathBuf> {
        let output = self
            .cargo(&["metadata", "--no-deps", "--format-version=1", "--offline"])?
            .output()?;
        folder_of(package, &output.stdout).with_context(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("cargo metadata names no folder of {package}: {said}")
        })
    }

    fn cargo(&self, args: &[&str]) -> Result<Command> {
        let mut command = self.workspace.cargo(args)?;
        let ours = self.workspace.target.join("mutants/target");
        command
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

/// What became of the build of a program of tests.
enum Build {
    /// The program.
    Done(PathBuf),
    /// Why there is none, and what the compiler said.
    Failed(String),
}

/// The program that cargo says it built, as in `  Executable tests/vectors.rs (/a/vectors-1f)`.
///
/// # Errors
/// It says none, or more than one.
fn executable(output: &str) -> Result<PathBuf> {
    let of_line = |line: &str| {
        let (_, path) = line.trim().strip_prefix("Executable ")?.split_once(" (")?;
        Some(PathBuf::from(path.strip_suffix(')')?))
    };
    let mut all = output.lines().filter_map(of_line);
    match (all.next(), all.next()) {
        (Some(program), None) => Ok(program),
        _ => bail!("cargo does not say which program of tests it built:\n{output}"),
    }
}

/// The folder of a package in what `cargo metadata` says.
fn folder_of(package: &str, metadata: &[u8]) -> Option<PathBuf> {
    let metadata: Value = serde_json::from_slice(metadata).ok()?;
    let packages = metadata["packages"].as_array()?;
    let ours = packages.iter().find(|other| other["name"] == package)?;
    let manifest = Path::new(ours["manifest_path"].as_str()?);
    manifest.parent().map(Path::to_owned)
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
    fn the_program_and_its_folder_are_those_that_cargo_names() {
        let line = "  Executable unittests src/lib.rs (/a b/deps/model-1f)\n";
        let built = format!("   Compiling model v0.1.0 (/a b)\n    Finished in 1 s\n{line}");
        assert_eq!(executable(&built).unwrap(), Path::new("/a b/deps/model-1f"));
        assert!(executable("    Finished in 1 s\n").is_err());
        assert!(executable(&line.repeat(2)).is_err());
        let metadata = br#"{"packages": [{"name": "a", "manifest_path": "/a b/Cargo.toml"}]}"#;
        assert_eq!(folder_of("a", metadata).unwrap(), Path::new("/a b"));
        assert_eq!(folder_of("b", metadata), None);
    }

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
