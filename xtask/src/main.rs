//! Set-up, tests, benchmarks and checks of nvmirage: `cargo xtask`.

mod bench;
mod book;
mod counts;
mod fuzz;
mod golden;
mod instructions;
mod mutants;
mod oracle;
mod package;
mod record;
mod setup;
mod show;
mod simulate;
mod soak;
mod stages;
mod tidy;
mod vm;
mod web;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask_shared::{process, tools, workspace};

use crate::bench::BenchArgs;
use crate::book::BookArgs;
use crate::fuzz::FuzzArgs;
use crate::instructions::InstructionsArgs;
use crate::mutants::MutantsArgs;
use crate::oracle::OracleArgs;
use crate::process::Interrupt;
use crate::record::RecordArgs;
use crate::simulate::SimulateArgs;
use crate::soak::SoakArgs;
use crate::vm::VmArgs;
use crate::web::WebArgs;
use crate::workspace::Workspace;

/// Set-up, tests, benchmarks and checks of nvmirage.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Fetch what the tests and the demo use and this machine lacks, into the user's cache folder
    Setup,
    /// Run the tests, stage by stage
    Test {
        /// Also run the slow stages, which `--list` marks, and the others at full length
        #[arg(long)]
        all: bool,
        /// Run only set-up and these stages
        #[arg(long, value_delimiter = ',', value_name = "STAGE")]
        only: Vec<String>,
        /// Run only the stages and the unit tests that what changed since this commit needs
        #[arg(long, value_name = "COMMIT", conflicts_with = "only")]
        since: Option<String>,
        /// Name all stages and do nothing
        #[arg(long, conflicts_with_all = ["all", "only", "since"])]
        list: bool,
    },
    /// Check the rules that no compiler checks
    Tidy,
    /// Build the Debian package
    Package,
    /// Run what the book's pages say, as a reader does
    Book(BookArgs),
    /// Boot a guest: a shell on its console, or a job
    Vm(VmArgs),
    /// Measure the program on this machine
    #[command(disable_help_flag = true)]
    Bench(BenchArgs),
    /// Count the instructions of the command path, and compare with the baseline
    Instructions(InstructionsArgs),
    /// Record a session of QEMU with the server, as a fixture for the protocol tests
    Record(RecordArgs),
    /// Break each guard once, in a copy of the tree, and see the test that notices it fail
    Mutants(MutantsArgs),
    /// Run hosts, controllers and reactors in virtual time, by seed
    Simulate(SimulateArgs),
    /// Compare the timing models with their oracle, on random drives and commands
    Oracle(OracleArgs),
    /// Load a daemon with hosts that reset, unmap, move and are killed, and verify
    Soak(SoakArgs),
    /// Test the dashboard in a browser, against the release build
    Web(WebArgs),
    /// Search for inputs that break a fuzz target, or any of them
    Fuzz(FuzzArgs),
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all went well.
fn run(cli: &Cli) -> Result<bool> {
    let workspace = Workspace::locate()?;
    match &cli.command {
        Task::Setup => {
            let start = Instant::now();
            setup::prepare(&mut |text| {
                println!("{:>6.1} s  {text}", start.elapsed().as_secs_f64())
            })?;
            println!(
                "{:>6.1} s  everything is in place",
                start.elapsed().as_secs_f64()
            );
            Ok(true)
        }
        Task::Test { list: true, .. } => {
            print!("{}", stages::list());
            Ok(true)
        }
        Task::Test {
            only, all, since, ..
        } => {
            let asked = stages::Asked {
                only,
                all: *all,
                since: since.as_deref(),
            };
            stages::test(&workspace, &Interrupt::install()?, &asked)
        }
        Task::Tidy => {
            let findings = tidy::run(&workspace.root)?;
            findings.iter().for_each(|finding| println!("{finding}"));
            Ok(findings.is_empty())
        }
        Task::Package => {
            println!("{}", package::run(&workspace)?.display());
            Ok(true)
        }
        Task::Book(args) => book::run(&workspace, &Interrupt::install()?, args),
        Task::Vm(args) => {
            vm::run(args)?;
            Ok(true)
        }
        Task::Bench(args) => match bench::run(&workspace, args)? {},
        Task::Web(args) => web::run(&workspace, args),
        Task::Instructions(args) => instructions::run(&workspace, args),
        Task::Record(args) => {
            record::run(args)?;
            Ok(true)
        }
        Task::Mutants(args) => mutants::run(&workspace, &Interrupt::install()?, args),
        Task::Simulate(args) => simulate::run(&workspace, args),
        Task::Oracle(args) => oracle::run(&workspace, args),
        Task::Soak(args) => soak::run(&workspace, &Interrupt::install()?, args),
        Task::Fuzz(args) => fuzz::search(&workspace, args),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn the_list_of_stages_takes_no_choice() {
        for choice in ["--all", "--only=unit", "--since=HEAD"] {
            let line = ["xtask", "test", "--list", choice];
            assert!(Cli::try_parse_from(line).is_err(), "{choice}");
        }
    }

    #[test]
    fn arguments_of_the_benchmarks_are_theirs() {
        for line in [
            &["--help"][..],
            &["reach", "--help"],
            &["--only", "null,ram", "--json"],
            &["mediated", "--only=split"],
        ] {
            let words = ["xtask", "bench"].iter().chain(line);
            let Task::Bench(args) = Cli::try_parse_from(words).unwrap().command else {
                panic!("{line:?} is another task");
            };
            let expected: Vec<OsString> = line.iter().map(OsString::from).collect();
            assert_eq!(args.args, expected);
        }
    }
}
