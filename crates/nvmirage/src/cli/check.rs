//! `nvmirage check`: validates a configuration and shows its defaults.

use std::path::PathBuf;

use api::config;
use machine::files::{may_be_regular, read_text};

const EXAMPLES: &str = "\
Examples:
  nvmirage check nvmirage.toml
      Print the configuration with all defaults, or its errors
  nvmirage check nvmirage.toml > full.toml
      Start from a file with all keys written out

A configuration:
  [[media]]
  name = \"disk\"
  kind = \"file\"                  # null | ram | file
  path = \"disk.img\"              # created when it is missing
  size = \"64GiB\"
  [[namespace]]
  name = \"root\"
  media = \"disk\"
  [[controller]]
  name = \"vm1\"
  namespaces = [\"root\"]
  listen = \"vfio-user:/run/nvmirage/vm1.sock\"";

/// Validate a configuration and print it with all defaults
///
/// Nothing is opened or created: files that the configuration names may be missing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Check {
    /// Configuration file in TOML
    file: PathBuf,
}

impl Check {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let config = config::from_file(&self.file, read_text)?;
        terminal::print(&config.with_defaults(may_be_regular))?;
        if let Err(error) = server::check_tls(&config) {
            terminal::progress::note(&format!("warning: this machine cannot serve it: {error}"));
        }
        Ok(())
    }
}
