//! The command line: one file per subcommand, with its arguments and its implementation.
//!
//! Only results go to standard output; progress, warnings and errors go to standard error. The exit
//! status is 0 for complete success, 1 for a failure, 2 for a wrong command line, 128 plus the
//! number of the signal for a command that a signal ended early.

mod check;
mod completions;
mod dashboard;
mod down;
mod groups;
mod man;
mod media_arg;
mod mount;
mod objects;
mod partition;
mod serve;
mod state;
mod trace;
mod up;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use client::cli::{
    attach, disconnect, events, export, hosts, latency, live, ls, move_queues, parse, qemu_args,
    queues, reload, resize, set, show, stop, top, upgrade,
};
use lab::cli::{
    bench, calibrate, clone, conformance, demo, doctor, drive, explain, fidelity, identify, kv,
    migrate, precondition, simulate, zone,
};
use server::{logging, process};
pub(crate) use terminal::error::UsageError;
use terminal::progress;

const EXAMPLES: &str = "\
Examples:
  nvmirage demo
      Run a demonstration: two drives, verified and measured, in 20 seconds
  nvmirage serve --media ram:size=8GiB --listen vfio-user:/tmp/nvme.sock
      Serve a drive in memory
  nvmirage qemu-args nvme0
      Print the options for QEMU's command line, while the server runs
  nvmirage bench --target vfio-user:/tmp/nvme.sock --rw randread --qd 1,32
      Measure it without a guest

Each command has its own examples: nvmirage COMMAND --help. A command that asks a server takes
--control unix:PATH, anywhere in the line, or the environment variable NVMIRAGE_CONTROL.";

/// The version, and what it was built from.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("NVMIRAGE_COMMIT"),
    "\ntarget: ",
    env!("NVMIRAGE_TARGET"),
);

/// Software-emulated NVMe drives.
///
/// A virtual machine, or another process, sees an NVMe PCIe controller and uses it with its
/// existing NVMe driver; the controller is backed by memory, a file, or a block device. Hosts
/// attach over vfio-user or NVMe/TCP; NBD clients and virtio disks (vhost-user-blk) use single
/// namespaces. The server needs no kernel module and no privileges.
#[derive(Debug, Parser)]
#[command(name = "nvmirage", version, long_version = VERSION, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    /// Log filter for standard error, as in RUST_LOG: error, warn, info, debug, or
    /// nvmirage=debug,warn.
    ///
    /// Default: the environment variable NVMIRAGE_LOG; without it `serve` logs from level info,
    /// other commands from level warn.
    #[arg(long, global = true, value_name = "FILTER", help_heading = "Logging")]
    log: Option<String>,

    /// The server's control socket, anywhere on the line of a command with this option
    #[arg(long, global = true, hide = true, value_name = "unix:PATH", value_parser = parse::unix)]
    control: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Up(up::Up),
    Down(down::Down),
    Demo(demo::Demo),
    Bench(Box<bench::Bench>),
    Identify(identify::Identify),
    Kv(kv::Kv),
    Zone(zone::ZoneCommand),
    Conformance(conformance::Conformance),
    Migrate(migrate::Migrate),
    Simulate(simulate::Simulate),
    Calibrate(calibrate::Calibrate),
    Fidelity(fidelity::Fidelity),
    Mount(mount::Mount),
    QemuArgs(qemu_args::QemuArgs),
    Doctor(doctor::Doctor),
    Drive(drive::DriveCommand),
    Partition(partition::PartitionCommand),
    Check(check::Check),
    Explain(explain::Explain),
    Precondition(precondition::Precondition),
    Clone(clone::Clone),
    Ls(ls::Ls),
    Hosts(hosts::Hosts),
    Disconnect(disconnect::Disconnect),
    Show(show::Show),
    Latency(latency::LatencyCommand),
    Queues(queues::QueuesCommand),
    Top(top::Top),
    Trace(trace::TraceCommand),
    Export(export::Export),
    Create(objects::Create),
    Delete(objects::Delete),
    Attach(attach::Attach),
    Detach(attach::Detach),
    Resize(resize::Resize),
    Move(move_queues::Move),
    Set(set::Set),
    Events(events::Events),
    Reload(reload::ReloadCommand),
    Dashboard(dashboard::Dashboard),
    Stop(stop::Stop),
    Upgrade(upgrade::Upgrade),
    Completions(completions::Completions),
    Man(man::Man),
}

/// The program's command. Every command takes `--log`, and only the program's help explains it.
pub(crate) fn command() -> clap::Command {
    let log = || {
        clap::Arg::new("log")
            .long("log")
            .value_name("FILTER")
            .global(true)
            .hide(true)
    };
    groups::grouped(Cli::command()).mut_subcommands(|command| command.arg(log()))
}

/// Runs the program and reports its error.
pub(crate) fn main() -> ExitCode {
    live::complete(command);
    // If this fails, the signal ends the process, as it does by default.
    let _ = memory::survive_file_size_limit();
    let matches = command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match check_control(&cli, &matches).and_then(|()| run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress::note(&terminal::error::shown(&error));
            if error.is::<UsageError>() {
                ExitCode::from(2)
            } else {
                ExitCode::from(terminal::interrupt::status().unwrap_or(1))
            }
        }
    }
}

/// Accepts `--control` anywhere on the line, but only for commands that talk to a server.
fn check_control(cli: &Cli, matches: &ArgMatches) -> anyhow::Result<()> {
    if cli.control.is_none() {
        return Ok(());
    }
    let (mut command, mut matches) = (command(), matches);
    let mut names = Vec::new();
    while let Some((name, below)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name).cloned() else {
            break;
        };
        (command, matches) = (found, below);
        names.push(name);
    }
    let asks = command.get_arguments().any(|arg| arg.get_id() == "control");
    if !asks {
        let names = names.join(" ");
        let text =
            format!("--control: `nvmirage {names}` does not use a server: remove the option");
        return Err(UsageError(text).into());
    }
    Ok(())
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let default = match cli.command {
        Command::Serve(_) | Command::Up(_) => logging::Default::Info,
        _ => logging::Default::Warn,
    };
    logging::start(cli.log.as_deref(), default).map_err(UsageError)?;
    match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Up(up) => up.run(),
        Command::Down(down) => down.run(),
        Command::Demo(demo) => demo.run(),
        Command::Bench(bench) => bench.run(),
        Command::Identify(identify) => identify.run(),
        Command::Kv(kv) => kv.run(),
        Command::Zone(zone) => zone.run(),
        Command::Conformance(conformance) => conformance.run(),
        Command::Migrate(migrate) => migrate.run(),
        Command::Simulate(simulate) => simulate.run(),
        Command::Calibrate(calibrate) => calibrate.run(),
        Command::Fidelity(fidelity) => fidelity.run(process::in_process),
        Command::Mount(mount) => mount.run(),
        Command::QemuArgs(qemu_args) => qemu_args.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Drive(drive) => drive.run(),
        Command::Partition(partition) => partition.run(),
        Command::Check(check) => check.run(),
        Command::Explain(explain) => explain.run(),
        Command::Precondition(precondition) => precondition.run(state::MEDIA),
        Command::Clone(clone) => clone.run(),
        Command::Ls(ls) => ls.run(),
        Command::Hosts(hosts) => hosts.run(),
        Command::Disconnect(disconnect) => disconnect.run(),
        Command::Show(show) => show.run(),
        Command::Latency(latency) => latency.run(),
        Command::Queues(queues) => queues.run(),
        Command::Top(top) => top.run(),
        Command::Trace(trace) => trace.run(),
        Command::Export(export) => export.run(),
        Command::Create(create) => create.run(),
        Command::Delete(delete) => delete.run(),
        Command::Attach(attach) => attach.run(),
        Command::Detach(detach) => detach.run(),
        Command::Resize(resize) => resize.run(),
        Command::Move(moves) => moves.run(),
        Command::Set(set) => set.run(),
        Command::Events(events) => events.run(),
        Command::Reload(reload) => reload.run(),
        Command::Dashboard(dashboard) => dashboard.run(),
        Command::Stop(stop) => stop.run(),
        Command::Upgrade(upgrade) => upgrade.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
    }
}
