//! The stages of `cargo xtask test`, cheap before dear.

mod long;
mod schedule;
mod since;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use schedule::Uses;
use serde_json::Value;
use since::Changes;

use crate::counts::{self, Counts};
use crate::process::{Ended, Interrupt, Run, run, run_to_end};
use crate::show::{self, Line, NAME_WIDTH};
use crate::workspace::Workspace;
use crate::{
    book, fuzz, golden, instructions, mutants, oracle, package, setup, simulate, soak, tidy, web,
};

/// A stage: its name, what it is, how long it may take (with nothing built yet, on two cores),
/// whether it runs with `--all` (or by its name) only, what it uses of the machine, and how it is
/// run.
pub(crate) struct Stage {
    name: &'static str,
    about: &'static str,
    minutes: u64,
    slow: bool,
    uses: Uses,
    run: fn(&mut Context<'_>) -> Result<Counts>,
}

const STAGES: &[Stage] = &[
    Stage {
        name: "setup",
        about: "fetch what is missing",
        minutes: 25,
        slow: false,
        uses: Uses::Machine,
        run: set_up,
    },
    Stage {
        name: "fmt",
        about: "cargo fmt",
        minutes: 1,
        slow: false,
        uses: Uses::Machine,
        run: fmt,
    },
    Stage {
        name: "clippy",
        about: "lints, warnings are errors",
        minutes: 12,
        slow: false,
        uses: Uses::Machine,
        run: clippy,
    },
    Stage {
        name: "tidy",
        about: "rules that no compiler checks",
        minutes: 1,
        slow: false,
        uses: Uses::Machine,
        run: check_tidy,
    },
    Stage {
        name: "deny",
        about: "licences and sources of dependencies",
        minutes: 2,
        slow: false,
        uses: Uses::Machine,
        run: deny,
    },
    Stage {
        name: "build",
        about: "the program, and its Debian package",
        minutes: 15,
        slow: false,
        uses: Uses::Machine,
        run: build,
    },
    Stage {
        name: "unit",
        about: "unit and property tests",
        minutes: 30,
        slow: false,
        uses: Uses::Machine,
        run: unit,
    },
    Stage {
        name: "counts",
        about: "instructions of the command path",
        minutes: 10,
        slow: false,
        uses: Uses::Arithmetic,
        run: instructions::stage,
    },
    Stage {
        name: "loom",
        about: "orderings of shared memory, all interleavings",
        minutes: 5,
        slow: false,
        uses: Uses::Arithmetic,
        run: loom,
    },
    Stage {
        name: "oracle",
        about: "timing models against a second reading of their definition",
        minutes: 12,
        slow: false,
        uses: Uses::Arithmetic,
        run: oracle::stage,
    },
    Stage {
        name: "sim",
        about: "hosts and reactors in virtual time, by seed",
        minutes: 8,
        slow: false,
        uses: Uses::Arithmetic,
        run: simulate::stage,
    },
    Stage {
        name: "golden",
        about: "the simulations' hashes on a second machine: aarch64, under qemu-user",
        minutes: 8,
        slow: false,
        uses: Uses::Arithmetic,
        run: golden::stage,
    },
    Stage {
        name: "fuzz",
        about: "the committed inputs of each fuzz target",
        minutes: 8,
        slow: false,
        uses: Uses::Arithmetic,
        run: fuzz_corpus,
    },
    Stage {
        name: "protocol",
        about: "vfio-user, message by message, without and with a holder",
        minutes: 8,
        slow: false,
        uses: Uses::Clock,
        run: protocol,
    },
    Stage {
        name: "web",
        about: "the dashboard: types, what it computes, and all of it in Chromium",
        minutes: 12,
        slow: false,
        uses: Uses::Clock,
        run: web::stage,
    },
    Stage {
        name: "soak",
        about: "a daemon and hosts that reset, unmap, move and die",
        minutes: 8,
        slow: false,
        uses: Uses::Clock,
        run: soak::stage,
    },
    Stage {
        name: "book",
        about: "what the book says, as a reader does it",
        minutes: 15,
        slow: false,
        uses: Uses::Clock,
        run: book::stage,
    },
    Stage {
        name: "mutants",
        about: "a sample of the guards, each broken once: their tests fail",
        minutes: 15,
        slow: false,
        uses: Uses::Arithmetic,
        run: mutants::stage,
    },
    Stage {
        name: "fuzz-search",
        about: "new inputs for each fuzz target, with the address sanitizer",
        minutes: 12,
        slow: true,
        uses: Uses::Machine,
        run: fuzz::stage,
    },
    Stage {
        name: "guests",
        about: "real guests under QEMU",
        minutes: 30,
        slow: false,
        uses: Uses::Machine,
        run: long::guests,
    },
    Stage {
        name: "guests-slow",
        about: "real guests, the tests in modules named `slow`",
        minutes: 30,
        slow: true,
        uses: Uses::Machine,
        run: guests_slow,
    },
    Stage {
        name: "demo",
        about: "the first command of the README, and with a guest",
        minutes: 6,
        slow: false,
        uses: Uses::Machine,
        run: demo,
    },
];

/// What a stage works with.
pub(crate) struct Context<'a> {
    /// The project's folders.
    pub(crate) workspace: &'a Workspace,
    /// What changed, where a run is for that alone.
    pub(crate) changes: Option<&'a Changes>,
    /// Whether a stage does all that it can.
    pub(crate) all: bool,
    /// Set when we are asked to stop.
    pub(crate) interrupt: &'a Interrupt,
    /// The stage's bound on each of its commands.
    pub(crate) bound: Duration,
    /// The stage's log.
    pub(crate) log: PathBuf,
    /// The stage's line.
    pub(crate) line: &'a mut Line,
}

impl Context<'_> {
    /// The files that changed: since the commit that the run is for, else in the newest one.
    pub(crate) fn changed(&self) -> Vec<String> {
        let newest = || Changes::newest(self.workspace);
        self.changes
            .map_or_else(newest, |changes| changes.files.clone())
    }

    /// Runs a command of the stage, and returns its output.
    ///
    /// # Errors
    /// It fails.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result<String> {
        let live = &mut |text: &str| self.line.at(text);
        let mut with = Run {
            bound: self.bound,
            log: &self.log,
            interrupt: self.interrupt,
            live,
        };
        run(command, &mut with)
    }

    /// Runs a command that tests, and reads its counts with `read`. A failure that no test has is
    /// counted as one.
    ///
    /// # Errors
    /// It cannot be run.
    pub(crate) fn run_tests(
        &mut self,
        command: &mut Command,
        read: fn(&str) -> Counts,
    ) -> Result<Counts> {
        let live = &mut |text: &str| self.line.at(text);
        let mut with = Run {
            bound: self.bound,
            log: &self.log,
            interrupt: self.interrupt,
            live,
        };
        let (output, ended) = run_to_end(command, &mut with)?;
        let mut counts = read(&output);
        if let Ended::Badly(why) = ended {
            self.line.note(&why);
            counts.failed = counts.failed.max(1);
        }
        if counts.ignored > 0 {
            self.line.note(&format!(
                "{} tests are ignored: a test runs, or it goes",
                counts.ignored
            ));
            counts.failed += counts.ignored;
        }
        Ok(counts)
    }
}

/// The stages, one a line.
pub(crate) fn list() -> String {
    let line = |stage: &Stage| {
        let slow = if stage.slow { " (only with --all)" } else { "" };
        format!("{:<NAME_WIDTH$} {}{slow}\n", stage.name, stage.about)
    };
    STAGES.iter().map(line).collect()
}

/// What a run is asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked<'a> {
    /// These stages.
    pub(crate) only: &'a [String],
    /// Slow stages, too, and all that a stage can do.
    pub(crate) all: bool,
    /// What changed since this commit, alone.
    pub(crate) since: Option<&'a str>,
}

fn names() -> impl Iterator<Item = &'static str> {
    STAGES.iter().map(|stage| stage.name)
}

/// The stages that a run has: those that are named, all of them, or those of them that are not slow
/// and look at what changed. Set-up always comes first: it is quick where nothing is missing, and
/// the others rely on it.
///
/// # Errors
/// A stage that is named does not exist.
fn choose(asked: &Asked<'_>, changes: Option<&Changes>) -> Result<Vec<&'static Stage>> {
    let mut named = asked.only.iter();
    if let Some(unknown) = named.find(|name| names().all(|known| known != **name)) {
        bail!("there is no stage {unknown}: `cargo xtask test --list` names them");
    }
    let is_needed = |name| changes.is_none_or(|changes| changes.needs(name));
    let is_chosen = |stage: &&Stage| match asked.only {
        [] => (asked.all || !stage.slow) && is_needed(stage.name),
        only => stage.name == "setup" || only.iter().any(|name| name == stage.name),
    };
    Ok(STAGES.iter().filter(is_chosen).collect())
}

/// Runs the stages that are asked for, and prints the table. Whether all of them passed.
///
/// # Errors
/// There is no such stage or commit, we are asked to stop, or logs cannot be written.
pub(crate) fn test(
    workspace: &Workspace,
    interrupt: &Interrupt,
    asked: &Asked<'_>,
) -> Result<bool> {
    let changes = asked.since.map(|commit| Changes::since(workspace, commit));
    let changes = changes.transpose()?;
    let mut stages = choose(asked, changes.as_ref())?;
    long::leave_out(&mut stages, workspace, asked)?;
    if let Some(changes) = &changes {
        let names: Vec<_> = stages.iter().map(|stage| stage.name).collect();
        println!(
            "{} files changed: {}",
            changes.files.len(),
            names.join(", ")
        );
    }
    fs::create_dir_all(workspace.logs())?;
    let start = Instant::now();
    let run_one = |stage: &Stage| run_stage(workspace, interrupt, asked, changes.as_ref(), stage);
    let mut rows = Vec::new();
    for part in schedule::parts(&stages) {
        rows.extend(schedule::run(&part, run_one)?);
    }
    rows.sort_by_key(|(name, _, _)| names().position(|known| known == name));
    print!("{}", show::table(&rows));
    let mut sum = Counts::default();
    rows.iter().for_each(|(_, _, counts)| sum += *counts);
    let seconds = start.elapsed().as_secs();
    println!(
        "{} passed, {} failed, in {seconds} s",
        sum.passed, sum.failed
    );
    Ok(sum.failed == 0)
}

/// A stage's row of the table.
type Row = (String, Duration, Counts);

/// Runs a stage, and prints the end of its log where it fails.
///
/// # Errors
/// We are asked to stop, or the log cannot be written.
fn run_stage(
    workspace: &Workspace,
    interrupt: &Interrupt,
    asked: &Asked<'_>,
    changes: Option<&Changes>,
    stage: &Stage,
) -> Result<Row> {
    let mut line = Line::begin(stage.name);
    let log = workspace.logs().join(format!("{}.log", stage.name));
    fs::write(&log, "").with_context(|| format!("cannot write {}", log.display()))?;
    let bound = Duration::from_secs(60 * stage.minutes);
    let mut context = Context {
        workspace,
        changes,
        all: asked.all,
        interrupt,
        bound,
        log,
        line: &mut line,
    };
    let result = (stage.run)(&mut context);
    let log = context.log;
    if interrupt.is_set() {
        bail!("interrupted in the stage {}", stage.name);
    }
    let counts = result.unwrap_or_else(|error| {
        line.note(&format!("{error:#}"));
        Counts {
            failed: 1,
            ..Counts::default()
        }
    });
    let time = line.end(counts);
    if counts.failed > 0 {
        print_tail(&log);
    }
    Ok((stage.name.to_owned(), time, counts))
}

/// How much of a log is printed after a failure.
const TAIL: usize = 250;

fn print_tail(log: &std::path::Path) {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    if lines.is_empty() {
        return;
    }
    let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
    // At once: another stage may print, too.
    println!("--- the last lines of {}\n{tail}\n---", log.display());
}

fn set_up(context: &mut Context<'_>) -> Result<Counts> {
    let line = &mut *context.line;
    setup::prepare(&mut |text| line.note(text))?;
    Ok(Counts::ONE)
}

/// Formatting of the workspace and of the fuzz targets, which are a workspace of their own.
fn fmt(context: &mut Context<'_>) -> Result<Counts> {
    for manifest in ["Cargo.toml", FUZZ_MANIFEST] {
        let args = [
            "fmt",
            "--all",
            "--check",
            "--manifest-path",
            manifest,
            "--",
            "--color=never",
        ];
        context.run(&mut context.workspace.cargo(&args)?)?;
    }
    Ok(Counts::ONE)
}

const FUZZ_MANIFEST: &str = "fuzz/Cargo.toml";

fn clippy(context: &mut Context<'_>) -> Result<Counts> {
    let args = [
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    context.run(&mut context.workspace.cargo(&args)?)?;
    Ok(Counts::ONE)
}

fn check_tidy(context: &mut Context<'_>) -> Result<Counts> {
    let findings = tidy::run(&context.workspace.root)?;
    let lines: String = findings
        .iter()
        .map(|finding| format!("{finding}\n"))
        .collect();
    fs::write(&context.log, lines)?;
    let failed = u32::try_from(findings.len())?;
    Ok(if failed == 0 {
        Counts::ONE
    } else {
        Counts {
            failed,
            ..Counts::default()
        }
    })
}

fn deny(context: &mut Context<'_>) -> Result<Counts> {
    for manifest in ["Cargo.toml", FUZZ_MANIFEST] {
        let args = [
            "deny",
            "--locked",
            "--manifest-path",
            manifest,
            "--config",
            "deny.toml",
            "check",
        ];
        let mut command = context.workspace.cargo(&args)?;
        context.run(command.args(["bans", "licenses", "sources"]))?;
    }
    Ok(Counts::ONE)
}

fn build(context: &mut Context<'_>) -> Result<Counts> {
    context.run(&mut context.workspace.cargo(&[
        "build",
        "--locked",
        "--release",
        "-p",
        "nvmirage",
    ])?)?;
    ensure!(
        context.workspace.program().is_file(),
        "cargo built no {}",
        context.workspace.program().display()
    );
    context.line.at("the package");
    package::run(context.workspace)?;
    Ok(Counts::ONE)
}

fn unit(context: &mut Context<'_>) -> Result<Counts> {
    let packages = context
        .changes
        .and_then(|changes| changes.packages.as_ref());
    let packages: Option<Vec<&str>> =
        packages.map(|names| names.iter().map(String::as_str).collect());
    units(context, packages.as_deref())
}

/// Runs the tests that need no guest, three for each two processors: many of them wait, for times
/// that a drive takes or bounds that end, and use a processor for three quarters of their time.
fn units(context: &mut Context<'_>, packages: Option<&[&str]>) -> Result<Counts> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = (processors + processors / 2).to_string();
    let mut filter = format!("default() + {}", long::slow_units(context)?);
    if let Some(packages) = packages {
        filter = format!("({filter}) & ({})", filter_of(packages));
    }
    let args = [
        "--test-threads",
        &threads,
        "--no-tests=pass",
        "--ignore-default-filter",
        "-E",
        &filter,
    ];
    nextest_with(context, "default", &args)
}

/// What has tests, named every time, so that it is built once. The counts of instructions have
/// none, and need crates of others that nothing else needs.
const TESTED: [&str; 3] = ["--workspace", "--exclude", "tests-counts"];

/// Runs the tests that a profile of .config/nextest.toml selects.
fn nextest(context: &mut Context<'_>, profile: &str) -> Result<Counts> {
    nextest_with(context, profile, &[])
}

/// The filter that selects packages.
fn filter_of(packages: &[&str]) -> String {
    let of = packages.iter().map(|name| format!("package({name})"));
    of.collect::<Vec<_>>().join(" + ")
}

fn nextest_with(context: &mut Context<'_>, profile: &str, more: &[&str]) -> Result<Counts> {
    let args = [
        "nextest",
        "run",
        "--locked",
        "--no-fail-fast",
        "--profile",
        profile,
    ];
    let mut command = context.workspace.cargo(&args)?;
    command.args(TESTED).args(more);
    context.run_tests(&mut command, counts::nextest)
}

fn loom(context: &mut Context<'_>) -> Result<Counts> {
    // With the program's features, so that what both are made of is not built again.
    let args = [
        "test",
        "--locked",
        "--release",
        "--package",
        "nvmirage",
        "--package",
        "memory",
        "--features",
        "memory/loom",
        "--test",
        "loom",
    ];
    let counts = context.run_tests(&mut context.workspace.cargo(&args)?, counts::libtest)?;
    ensure!(counts != Counts::default(), "no test was run");
    Ok(counts)
}

fn protocol(context: &mut Context<'_>) -> Result<Counts> {
    nextest(context, "protocol")
}

fn guests_slow(context: &mut Context<'_>) -> Result<Counts> {
    nextest(context, "guests-slow")
}

fn fuzz_corpus(context: &mut Context<'_>) -> Result<Counts> {
    nextest(context, "fuzz")
}

/// The README's first command, as a person types it, and its output for machines.
fn demo(context: &mut Context<'_>) -> Result<Counts> {
    let args = ["run", "--locked", "--release", "--", "demo"];
    context.run(&mut context.workspace.cargo(&args)?)?;
    // Only standard output is for machines; progress goes to the other.
    let file = context.workspace.logs().join("demo.json");
    let mut shell = context.workspace.command("sh".as_ref())?;
    shell
        .args(["-c", r#""$NVMIRAGE_BIN" demo --json --time 300ms >"$0""#])
        .arg(&file);
    context.run(&mut shell)?;
    let text = fs::read_to_string(&file)?;
    let value: BTreeMap<String, Value> = serde_json::from_str(&text)
        .context("`demo --json` prints something else than a JSON object")?;
    ensure!(!value.is_empty(), "`demo --json` prints an empty object");
    let args = ["run", "--locked", "--release", "--", "demo", "--vm"];
    let said = context.run(&mut context.workspace.cargo(&args)?)?;
    ensure!(
        said.contains("nvme0n1") && said.contains("steps passed"),
        "`demo --vm` does not show what its guest sees"
    );
    Ok(Counts {
        passed: 3,
        ..Counts::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(only: &[&str], all: bool) -> Vec<&'static str> {
        let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
        let asked = Asked {
            only: &only,
            all,
            since: None,
        };
        let stages = choose(&asked, None).unwrap();
        stages.iter().map(|stage| stage.name).collect()
    }

    #[test]
    fn slow_stages_run_with_all_or_by_name() {
        assert!(!chosen(&[], false).contains(&"fuzz-search"));
        assert!(chosen(&[], false).contains(&"fuzz"));
        assert_eq!(chosen(&[], true).len(), STAGES.len());
        assert_eq!(chosen(&["fuzz-search"], false), ["setup", "fuzz-search"]);
    }

    #[test]
    fn a_stage_that_does_not_exist_is_an_error() {
        let only = ["nothing".to_owned()];
        let asked = Asked {
            only: &only,
            ..Asked::default()
        };
        let error = choose(&asked, None).err().unwrap();
        assert!(error.to_string().contains("no stage nothing"), "{error}");
    }

    #[test]
    fn the_list_marks_slow_stages_only() {
        let list = list();
        let marked: Vec<_> = list
            .lines()
            .filter(|line| line.ends_with(" (only with --all)"))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(marked, ["fuzz-search", "guests-slow"]);
        assert_eq!(list.lines().count(), STAGES.len());
    }
}
