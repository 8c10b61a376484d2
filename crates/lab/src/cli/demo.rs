//! `nvmirage demo`: runs a demonstration.

use api::config::Span;

use crate::demo;

const EXAMPLES: &str = "\
Examples:
  nvmirage demo
      About 20 seconds: two drives, every byte verified, one table
  nvmirage demo --json --time 300ms
      A shorter run, with JSON output
  nvmirage demo --vm
      A Debian guest formats, fills and verifies both drives; downloaded at the first run";

/// Run a demonstration: two drives, verified and measured
///
/// A server and a host, in separate processes, communicate over vfio-user sockets. The host
/// identifies two drives, one in memory and one in a file, writes them, reads them back, compares
/// every byte, and measures them. All files are removed at the end.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Demo {
    /// Duration of each job; default: 1s, or less if the total would exceed 20 s
    #[arg(long, value_name = "TIME")]
    time: Option<Span>,

    /// Boot a Debian guest on the drives instead, and show what it detects
    ///
    /// On Debian missing packages are downloaded into the user's cache.
    #[arg(long, conflicts_with = "time")]
    vm: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Demo {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let demo = demo::Demo {
            time: self.time.map(|time| time.0),
            json: self.json,
        };
        if self.vm { demo.run_vm() } else { demo.run() }
    }
}
