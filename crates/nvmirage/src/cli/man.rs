//! `nvmirage man`: writes one manual page per command.

use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;

const EXAMPLES: &str = "\
Examples:
  nvmirage man | man -l -
      Read the first page
  nvmirage man --out ~/.local/share/man/man1
      Install all of them";

/// Print the manual page, or write the pages of all commands
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Man {
    /// Folder for the pages of all commands; created if missing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let command = super::Cli::command();
        let Some(dir) = self.out else {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            return terminal::print(&String::from_utf8(page)?);
        };
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&dir)?;
            clap_mangen::generate_to(command, &dir)
        };
        write().with_context(|| format!("cannot write manual pages to {}", dir.display()))
    }
}
