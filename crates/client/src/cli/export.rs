//! `nvmirage export`: prints the state of a running server as a configuration.

use super::parse::Control;
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage export > nvmirage.toml
      A file for `nvmirage serve --config` on another machine, or here with --forget";

/// Print the configuration of a running server
///
/// The output includes objects created and changed at run time. Namespaces created by hosts are
/// never part of a configuration.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Export {
    #[command(flatten)]
    control: Control,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Export {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let configuration = requests::configuration(&self.control.to_read()?)?;
        if self.json {
            return terminal::print_json(&configuration);
        }
        terminal::print(&configuration.as_toml())
    }
}
