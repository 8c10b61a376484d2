//! `nvmirage attach` and `nvmirage detach`: which namespaces a controller has, while hosts use it.

use super::{live, parse::Control};
use crate::control;

const ATTACH_EXAMPLES: &str = "\
Examples:
  nvmirage attach data vm1
      The guest of vm1 gets a namespace while it runs
  nvmirage attach vm1:3 vm2
      One that a host has made, for a second controller of its subsystem";

const DETACH_EXAMPLES: &str = "\
Examples:
  nvmirage detach data vm1
      Refused while a host is attached to vm1
  nvmirage detach data vm1 --detach-hosts
      Unmount it in the guest first";

/// Give a namespace to a controller of a running server
///
/// Its host learns of it by an asynchronous event. It lasts over a restart, unless the configuration no longer has the
/// namespace.
#[derive(Debug, clap::Args)]
#[command(after_help = ATTACH_EXAMPLES)]
pub(super) struct Attach {
    #[command(flatten)]
    pair: Pair,
}

/// Take a namespace from a controller of a running server
///
/// Its host learns of it by an asynchronous event; commands that it still sends there fail. Returns when none of those
/// before is in flight. The namespace stays in its subsystem.
#[derive(Debug, clap::Args)]
#[command(after_help = DETACH_EXAMPLES)]
pub(super) struct Detach {
    /// Take it from a host that is attached, too
    #[arg(long)]
    detach_hosts: bool,

    #[command(flatten)]
    pair: Pair,
}

#[derive(Debug, clap::Args)]
struct Pair {
    /// The namespace; one that a host has made is called SUBSYSTEM:NSID
    #[arg(add = live::namespaces())]
    namespace: String,

    /// The controller
    #[arg(add = live::controllers())]
    controller: String,

    #[command(flatten)]
    control: Control,
}

impl Attach {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let pair = self.pair;
        control::client::attach(
            &pair.control.to_change()?,
            &pair.namespace,
            &pair.controller,
        )
    }
}

impl Detach {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let pair = self.pair;
        control::client::detach(
            &pair.control.to_change()?,
            &pair.namespace,
            &pair.controller,
            self.detach_hosts,
        )
    }
}
