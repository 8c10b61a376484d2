//! `nvmirage resize`: another size for a namespace, while hosts use it.

use super::{live, parse::Control};
use crate::{config::Size, control};

const EXAMPLES: &str = "\
Examples:
  nvmirage resize root 32GiB
      Its host learns of it; then grow partitions and file systems there
  nvmirage resize root 8GiB --shrink
      Shrink file systems and partitions in the guest first";

/// Give a namespace of a running server another size
///
/// It keeps its start and grows into what follows it in its medium, where no other namespace is. Its host learns of it by
/// an asynchronous event.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Resize {
    /// The namespace; one that a host has made is called SUBSYSTEM:NSID
    #[arg(add = live::namespaces())]
    namespace: String,

    /// Its size from now on: a multiple of its blocks
    size: Size,

    /// It may become smaller: what lies behind its new end is lost
    #[arg(long)]
    shrink: bool,

    #[command(flatten)]
    control: Control,
}

impl Resize {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let socket = self.control.to_change()?;
        control::client::resize(&socket, &self.namespace, self.size, self.shrink)
    }
}
