//! `nvmirage move`: which reactors serve the queues of a controller, while hosts use them.

use super::{live, parse::Control};
use crate::control::{self, NewPlacement};

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
/// Its host notices nothing: a queue is not served for as long as its commands take that are in flight. One whose commands
/// do not end within a second stays where it is. Queues that hosts make later go to the same reactors.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Move {
    /// The controller
    #[arg(add = live::controllers())]
    controller: String,

    /// The reactors, counted from 0: queues are dealt out to them in turn
    #[arg(required = true, value_name = "REACTOR", add = live::reactors())]
    reactors: Vec<usize>,

    /// Move only this completion queue, with the submission queues that complete into it
    #[arg(long, value_name = "QID")]
    queue: Option<u16>,

    #[command(flatten)]
    control: Control,
}

impl Move {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let placement = NewPlacement {
            reactors: self.reactors,
            queue: self.queue,
        };
        control::client::move_queues(&self.control.to_change()?, &self.controller, &placement)
    }
}
