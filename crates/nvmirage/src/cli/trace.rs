//! `nvmirage trace`: records the commands of a controller's hosts into a file, and analyses it.

use client::cli::trace as control;
use lab::cli::trace::{file, replay};

const EXAMPLES: &str = "\
Examples:
  nvmirage trace start vm1 --file boot.trace --max-time 60s
      Record every command of controller vm1 for a minute, into a file of the server's folder
  nvmirage trace stop vm1
      Stop it early
  nvmirage trace stat boot.trace
      Commands, latencies, and time by stage
  nvmirage trace replay boot.trace --target vfio-user:/tmp/test.sock --write
      Replay it on another drive, at the same times";

/// Record the commands of a controller; inspect, export and replay the trace
///
/// A trace has every I/O command of all queues, or a sample of them, with times by stage; it has no
/// admin commands. It is a compressed binary file with a version, readable up to its last complete
/// block if the server is killed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TraceCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Start(control::Start),
    Stop(control::Stop),
    Ls(control::Ls),
    Dump(file::Dump),
    Stat(file::Stat),
    Plot(file::Plot),
    Export(file::Export),
    Replay(replay::Replay),
}

impl TraceCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.what {
            What::Start(start) => start.run(),
            What::Stop(stop) => stop.run(),
            What::Ls(ls) => ls.run(),
            What::Dump(dump) => dump.run(),
            What::Stat(stat) => stat.run(),
            What::Plot(plot) => plot.run(),
            What::Export(export) => export.run(),
            What::Replay(replay) => replay.run(),
        }
    }
}
