//! `nvmirage attach` and `nvmirage detach`: attach and detach namespaces of a controller while
//! hosts use it.

use super::live;
use super::parse::Control;
use crate::requests;

const ATTACH_EXAMPLES: &str = "\
Examples:
  nvmirage attach data vm1
      Hot-add a namespace to the guest of vm1
  nvmirage attach vm1:3 vm2
      Attach a namespace that a host created to a second controller of its subsystem";

const DETACH_EXAMPLES: &str = "\
Examples:
  nvmirage detach data vm1
      Rejected while a host is attached to vm1
  nvmirage detach data vm1 --detach-hosts
      Unmount it in the guest first";

/// Attach a namespace to a controller of a running server
///
/// An asynchronous event notifies the controller's host. The attachment survives a restart, unless
/// the configuration no longer has the namespace.
#[derive(Debug, clap::Args)]
#[command(after_help = ATTACH_EXAMPLES)]
pub struct Attach {
    #[command(flatten)]
    pair: Pair,
}

/// Detach a namespace from a controller of a running server
///
/// An asynchronous event notifies the controller's host; commands that it still sends there fail.
/// The command returns when no earlier command is in flight. The namespace stays in its subsystem.
#[derive(Debug, clap::Args)]
#[command(after_help = DETACH_EXAMPLES)]
pub struct Detach {
    /// Detach the namespace even while a host is attached to the controller
    #[arg(long)]
    detach_hosts: bool,

    #[command(flatten)]
    pair: Pair,
}

#[derive(Debug, clap::Args)]
struct Pair {
    /// Name of the namespace; SUBSYSTEM:NSID for one that a host created
    #[arg(add = live::namespaces())]
    namespace: String,

    /// Name of the controller
    #[arg(add = live::controllers())]
    controller: String,

    #[command(flatten)]
    control: Control,
}

impl Attach {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let pair = self.pair;
        let (namespace, controller) = (&pair.namespace, &pair.controller);
        requests::attach(&pair.control.to_change()?, namespace, controller)?;
        terminal::print(&format!(
            "attached namespace {namespace} to controller {controller}\n"
        ))
    }
}

impl Detach {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let pair = self.pair;
        let (namespace, controller) = (&pair.namespace, &pair.controller);
        requests::detach(
            &pair.control.to_change()?,
            namespace,
            controller,
            self.detach_hosts,
        )?;
        terminal::print(&format!(
            "detached namespace {namespace} from controller {controller}\n"
        ))
    }
}
