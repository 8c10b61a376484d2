//! Traces of a running server: start, stop, ls.

use api::config::trace::Trace;
use api::{Condition, TraceStatus};
use terminal::table::{Align, Table};
use terminal::units;

use super::live;
use super::options::Options;
use super::parse::Control;
use crate::requests;

const START_EXAMPLES: &str = "\
Examples:
  nvmirage trace start vm1 --file vm1.trace
      Every command, until it is stopped or the file has 1 GiB
  nvmirage trace start vm1 --file day.trace --sample 64 --max-time 24h --max-size 8GiB
      One in 64 commands, for a day";

const STOP_EXAMPLES: &str = "\
Examples:
  nvmirage trace stop vm1
      The recorded commands are in its file, which is kept";

const LS_EXAMPLES: &str = "\
Examples:
  nvmirage trace ls
      Commands recorded and lost, and the reason for the end
  nvmirage trace ls --json | jq '.[].lost'
      One number of each";

/// Start recording a controller's commands
///
/// The server creates the file, readable only by its user, and never overwrites one; a relative
/// path starts at the server's working directory. Recording adds overhead to each command; commands
/// that cannot be recorded in time are counted as lost.
#[derive(Debug, clap::Args)]
#[command(after_help = START_EXAMPLES)]
pub struct Start {
    #[command(flatten)]
    trace: Options<Trace>,

    #[command(flatten)]
    control: Control,
}

impl Start {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let mut trace = self.trace.given;
        if let (None, Some(controller)) = (trace.get("name"), trace.get("controller")) {
            trace.insert("name".to_owned(), controller.clone());
        }
        let made = requests::create_trace(&self.control.to_change()?, &trace)?;
        terminal::print(&format!(
            "trace {} records into {}\n",
            made.config.name,
            made.config.file.display()
        ))
    }
}

/// Stop a trace, if it is running, and forget it
///
/// The file is kept, with every command completed before the stop.
#[derive(Debug, clap::Args)]
#[command(after_help = STOP_EXAMPLES)]
pub struct Stop {
    /// Name of the trace; default: the controller's name
    #[arg(add = live::traces())]
    name: String,

    #[command(flatten)]
    control: Control,
}

impl Stop {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        requests::delete(&self.control.to_change()?, "traces", &self.name)?;
        terminal::print(&format!("stopped trace {}\n", self.name))
    }
}

/// List the traces of a running server
#[derive(Debug, clap::Args)]
#[command(after_help = LS_EXAMPLES)]
pub struct Ls {
    #[command(flatten)]
    control: Control,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Ls {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let inventory = requests::inventory(&self.control.to_read()?)?;
        if self.json {
            return terminal::print_json(&inventory.traces);
        }
        let table = table(&inventory.traces);
        if table.is_empty() {
            terminal::print("no traces\n")
        } else {
            terminal::print(&table.to_string())
        }
    }
}

/// Table of traces with their progress.
pub(crate) fn table(traces: &[TraceStatus]) -> Table {
    let mut table = Table::new(&[
        ("trace", Align::Left),
        ("controller", Align::Left),
        ("commands", Align::Right),
        ("lost", Align::Right),
        ("size", Align::Right),
        ("state", Align::Left),
        ("file", Align::Left),
    ]);
    for trace in traces {
        table.row(vec![
            trace.config.name.clone(),
            trace.config.controller.clone(),
            trace.commands.to_string(),
            trace.lost.to_string(),
            units::bytes(trace.bytes),
            match (trace.state, &trace.reason) {
                (Condition::Recording, _) => "recording".into(),
                (Condition::Ended, None) => "ended".into(),
                (Condition::Ended, Some(reason)) => format!("ended: {reason}"),
            },
            trace.config.file.display().to_string(),
        ]);
    }
    table
}
