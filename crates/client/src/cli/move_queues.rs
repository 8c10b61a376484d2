//! `nvmirage move`: moves the queues of a controller to other reactors while hosts use them.

use api::NewPlacement;

use super::live;
use super::parse::Control;
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage move vm1 0 1
      Its first queue to reactor 0, the second one to reactor 1, the third one to reactor 0, and so
      on
  nvmirage move vm1 1 --queue 3
      Only queue 3, until its host deletes it
  nvmirage ls --json | jq '.controllers[] | {name, placement}'
      Where every queue is";

/// Move queues of a controller of a running server to other reactors
///
/// The move is transparent to the host: a queue pauses until its commands in flight have completed.
/// A queue whose commands do not complete within one second stays on its reactor. Queues that hosts
/// create later are placed on the same reactors.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Move {
    /// Name of the controller
    #[arg(add = live::controllers())]
    controller: String,

    /// Numbers of the reactors, from 0; queues are assigned to them in turn
    #[arg(required = true, value_name = "REACTOR", add = live::reactors())]
    reactors: Vec<usize>,

    /// Completion queue to move, with the submission queues that complete into it; default: all
    #[arg(long, value_name = "QID")]
    queue: Option<u16>,

    #[command(flatten)]
    control: Control,
}

impl Move {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let placement = NewPlacement {
            reactors: self.reactors,
            queue: self.queue,
        };
        requests::move_queues(&self.control.to_change()?, &self.controller, &placement)?;
        terminal::print(&format!("moved queues of controller {}\n", self.controller))
    }
}
