//! `nvmirage resize`: changes the size of a namespace while hosts use it.

use api::config::Size;

use super::live;
use super::parse::Control;
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage resize root 32GiB
      Its host is notified; then grow partitions and file systems there
  nvmirage resize root 8GiB --shrink
      Shrink file systems and partitions in the guest first";

/// Resize a namespace of a running server
///
/// The start is unchanged; the namespace grows into the space behind it in its medium, where there
/// is no other namespace. An asynchronous event notifies its host.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Resize {
    /// Name of the namespace; SUBSYSTEM:NSID for one that a host created
    #[arg(add = live::namespaces())]
    namespace: String,

    /// New size: a multiple of its block size
    size: Size,

    /// Allow the namespace to shrink; data behind its new end is lost
    #[arg(long)]
    shrink: bool,

    #[command(flatten)]
    control: Control,
}

impl Resize {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let socket = self.control.to_change()?;
        requests::resize(&socket, &self.namespace, self.size, self.shrink)?;
        terminal::print(&format!("resized namespace {}\n", self.namespace))
    }
}
