//! Mutations: for each guard that matters, one change of our code that a named test must notice.
//!
//! The list is written by hand, one mutation for each guard, and so answers one question: is there
//! a test that fails without this line? It does NOT look for lines that no test notices; nothing
//! here is generated.

mod campaign;
mod list;
mod tree;

use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::counts::Counts;
use crate::process::Interrupt;
use crate::show::Line;
use crate::simulate::seed_of_commit;
use crate::stages::Context;
use crate::workspace::Workspace;

/// Mutations of the stage, at most.
const SAMPLE: usize = 8;
/// How long the stage goes on beginning mutations.
const BUDGET: Duration = Duration::from_secs(50);

/// Which mutations to run.
#[derive(Debug, Args)]
pub(crate) struct MutantsArgs {
    /// Name the mutations with their guards and do nothing
    #[arg(long)]
    list: bool,
    /// Run only these
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
}

/// One change of our code, and the test that notices it.
#[derive(Debug)]
struct Mutation {
    /// What `--only` calls it.
    name: &'static str,
    /// The rule that the changed code keeps.
    guard: &'static str,
    /// The file, relative to the root of the project.
    file: &'static str,
    /// The text that is replaced. It is in the file exactly once.
    from: &'static str,
    /// What stands there instead.
    to: &'static str,
    /// The test that fails then.
    test: Test,
}

/// A test of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Test {
    package: &'static str,
    /// Which of the package's programs has it, as arguments of `cargo test`.
    program: &'static [&'static str],
    /// Its name with its modules, as the test program prints it.
    name: &'static str,
}

/// A test beside the code of a library.
const fn unit(package: &'static str, name: &'static str) -> Test {
    Test {
        package,
        program: &["--lib"],
        name,
    }
}

/// A test of the whole program.
const fn program(name: &'static str) -> Test {
    integration("nvmirage", &["--test", "program"], name)
}

/// A test in a file of its own.
const fn integration(
    package: &'static str,
    program: &'static [&'static str],
    name: &'static str,
) -> Test {
    Test {
        package,
        program,
        name,
    }
}

impl Mutation {
    /// The file's text with the mutation.
    ///
    /// # Errors
    /// What is to be replaced is not there exactly once.
    fn apply(&self, text: &str) -> Result<String> {
        let found = text.matches(self.from).count();
        ensure!(
            found == 1,
            "{}: its text is {found} times in {}, and must be there once: change xtask/src/mutants/list to fit the code",
            self.name,
            self.file
        );
        Ok(text.replacen(self.from, self.to, 1))
    }
}

/// Runs the mutations; whether all of them were noticed.
///
/// # Errors
/// There is no mutation of a name in `--only`, one does not fit the code, the tree cannot be
/// copied, or the tests do not pass without mutations.
pub(crate) fn run(
    workspace: &Workspace,
    interrupt: &Interrupt,
    args: &MutantsArgs,
) -> Result<bool> {
    let chosen = choose(&args.only)?;
    if args.list {
        print!("{}", table(&chosen));
        return Ok(true);
    }
    fs::create_dir_all(workspace.logs())?;
    fs::write(workspace.logs().join("mutants.log"), "")?;
    let line = &mut Line::begin("mutants");
    let outcome = campaign::run(workspace, interrupt, line, &chosen, None)?;
    print!("{}", outcome.table());
    Ok(outcome.counts().1 == 0)
}

/// A stage of the tests: a sample of the mutations, or all of them.
///
/// # Errors
/// As [`run`].
pub(crate) fn stage(context: &mut Context<'_>) -> Result<Counts> {
    let workspace = context.workspace;
    let (chosen, budget) = if context.all {
        (list::all().collect(), None)
    } else {
        let seed = seed_of_commit(workspace)?;
        let sample = sample(list::all(), &context.changed(), seed);
        (sample, Some(BUDGET))
    };
    let interrupt = context.interrupt;
    let outcome = campaign::run(workspace, interrupt, context.line, &chosen, budget)?;
    let (caught, missed) = outcome.counts();
    Ok(Counts {
        passed: u32::try_from(caught)?,
        failed: u32::try_from(missed)?,
        ignored: 0,
    })
}

/// Some mutations of the files that changed, or of all files where none of these has one, whose
/// tests are in one program: a build of another one takes longer than ten mutations. The seed says
/// which program, and which of its mutations.
fn sample(
    all: impl Iterator<Item = &'static Mutation>,
    changed: &[String],
    seed: u64,
) -> Vec<&'static Mutation> {
    let all: Vec<_> = all.collect();
    let is_changed =
        |mutation: &&&Mutation| changed.iter().any(|file| file.as_str() == mutation.file);
    let mut sample: Vec<_> = all.iter().filter(is_changed).copied().collect();
    if sample.is_empty() {
        sample = all;
    }
    let chance = |text: &[&str]| {
        let mut hasher = DefaultHasher::new();
        (seed, text).hash(&mut hasher);
        hasher.finish()
    };
    sample.sort_by_cached_key(|Mutation { name, test, .. }| {
        let program = chance(&[&[test.package], test.program].concat());
        (program, chance(&[name]))
    });
    if let Some(first) = sample.first().map(|mutation| mutation.test) {
        let of = |test: Test| (test.package, test.program);
        sample.retain(|mutation| of(mutation.test) == of(first));
    }
    sample.truncate(SAMPLE);
    sample
}

fn choose(only: &[String]) -> Result<Vec<&'static Mutation>> {
    if let Some(unknown) = only
        .iter()
        .find(|name| list::all().all(|mutation| mutation.name != **name))
    {
        bail!("there is no mutation {unknown}: `cargo xtask mutants --list` names them");
    }
    let wanted =
        |mutation: &&Mutation| only.is_empty() || only.iter().any(|name| name == mutation.name);
    Ok(list::all().filter(wanted).collect())
}

/// The mutations, one a line: name, guard, file, test.
fn table(mutations: &[&Mutation]) -> String {
    let mut text = String::new();
    for Mutation {
        name,
        guard,
        file,
        test,
        ..
    } in mutations
    {
        let _ = writeln!(
            text,
            "{name}\n    guard  {guard}\n    file   {file}\n    test   {} {}",
            test.package, test.name
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn sources(folder: &Path, into: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                into.push((path, text));
            }
        }
    }

    fn folder(package: &str) -> PathBuf {
        root().join(match package.strip_prefix("tests-") {
            Some(name) => format!("tests/{name}"),
            None if package == "xtask" => package.to_owned(),
            None => format!("crates/{package}"),
        })
    }

    /// The source files of a package, tests included.
    fn package(name: &str) -> Vec<(PathBuf, String)> {
        let mut files = Vec::new();
        sources(&folder(name), &mut files);
        files
    }

    /// Whether a test may be in a file: the modules before its name lead there, and perhaps on
    /// within the file.
    fn is_place(path: &Path, modules: &[&str]) -> bool {
        let path = path.with_extension("");
        let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
        let after = |folder: &str| parts.iter().rposition(|part| *part == folder);
        // Of a crate, or of a test program, whose name comes first.
        let own = match (after("src"), after("tests")) {
            (Some(at), _) => &parts[at + 1..],
            (None, Some(at)) => parts.get(at + 2..).unwrap_or_default(),
            (None, None) => &parts,
        };
        let own: Vec<_> = own
            .iter()
            .filter(|part| !matches!(**part, "mod" | "lib" | "main"))
            .copied()
            .collect();
        // A program that names its tests itself leaves the folder of all of them out.
        let named = own.strip_prefix(&["cases"]);
        modules.starts_with(&own) || named.is_some_and(|own| modules.starts_with(own))
    }

    #[test]
    fn every_mutation_fits_the_code() {
        let mut wrong = Vec::new();
        for mutation in list::all() {
            match fs::read_to_string(root().join(mutation.file)) {
                Ok(text) => match mutation.apply(&text) {
                    Ok(mutated) if mutated == text => {
                        wrong.push(format!("{}: changes nothing", mutation.name));
                    }
                    Ok(_) => (),
                    Err(error) => wrong.push(error.to_string()),
                },
                Err(error) => wrong.push(format!("{}: {error}", mutation.file)),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_mutation_names_a_test_that_there_is() {
        let missing: Vec<_> = list::all()
            .map(|mutation| (mutation.name, mutation.test))
            .filter(|(_, test)| {
                let path: Vec<&str> = test.name.split("::").collect();
                let (function, modules) = path.split_last().unwrap();
                let function = format!("fn {function}(");
                !package(test.package)
                    .iter()
                    .any(|(path, text)| is_place(path, modules) && text.contains(&function))
            })
            .map(|(name, test)| format!("{name}: {} has no test {}", test.package, test.name))
            .collect();
        assert!(missing.is_empty(), "{}", missing.join("\n"));
    }

    #[test]
    fn every_mutation_names_a_test_program_that_there_is() {
        let missing: Vec<_> = list::all()
            .filter_map(|mutation| {
                let Test {
                    package, program, ..
                } = mutation.test;
                let at = program.iter().position(|argument| *argument == "--test")?;
                let name = program[at + 1];
                let tests = folder(package).join("tests");
                let is_there = [format!("{name}.rs"), format!("{name}/main.rs")]
                    .iter()
                    .any(|file| tests.join(file).is_file());
                (!is_there).then(|| format!("{}: {package} has no --test {name}", mutation.name))
            })
            .collect();
        assert!(missing.is_empty(), "{}", missing.join("\n"));
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = list::all().map(|mutation| mutation.name).collect();
        assert_eq!(names.len(), list::all().count());
    }

    #[test]
    fn text_that_is_absent_or_ambiguous_is_an_error() {
        let mutation = Mutation {
            name: "a",
            guard: "b",
            file: "c",
            from: "x > 1",
            to: "x > 2",
            test: unit("d", "e"),
        };
        assert_eq!(mutation.apply("if x > 1 {").unwrap(), "if x > 2 {");
        for text in ["if x > 3 {", "x > 1 || x > 1"] {
            let error = mutation.apply(text).unwrap_err().to_string();
            assert!(error.starts_with("a: its text is"), "{error}");
        }
    }

    fn sampled(changed: &[&str], seed: u64) -> Vec<&'static Mutation> {
        let changed: Vec<_> = changed.iter().map(|file| (*file).to_owned()).collect();
        sample(list::all(), &changed, seed)
    }

    #[test]
    fn a_sample_is_of_the_files_that_changed() {
        let file = "crates/controller/src/queue/sq.rs";
        let sample = sampled(&[file, "README.md"], 1);
        assert!(!sample.is_empty() && sample.len() <= SAMPLE);
        assert!(sample.iter().all(|mutation| mutation.file == file));
        let names = |sample: &[&Mutation]| sample.iter().map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(
            names(&sample),
            names(&sampled(&[file], 1)),
            "it is repeatable"
        );
    }

    #[test]
    fn where_no_file_with_a_guard_changed_the_seed_chooses() {
        let programs: BTreeSet<_> = (0..40)
            .map(|seed| {
                let sample = sampled(&["README.md"], seed);
                assert!(!sample.is_empty() && sample.len() <= SAMPLE);
                let mut programs = sample
                    .iter()
                    .map(|one| (one.test.package, one.test.program));
                let first = programs.next().unwrap();
                assert!(
                    programs.all(|other| other == first),
                    "another program is built"
                );
                first
            })
            .collect();
        assert!(programs.len() > 5, "{programs:?}");
    }

    #[test]
    fn a_name_that_is_not_there_is_an_error() {
        let error = choose(&["nothing".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("no mutation nothing"), "{error}");
        let first = list::all().next().unwrap().name;
        assert_eq!(choose(&[first.to_owned()]).unwrap().len(), 1);
    }
}
