//! `nvmirage completions`: prints the shell code that completes commands, options, and names of a
//! running server.

use clap_complete::Shell;
use client::cli::live;

use super::UsageError;

const EXAMPLES: &str = "\
Examples:
  nvmirage completions bash > ~/.local/share/bash-completion/completions/nvmirage
      From the next shell on: nvmirage set media <TAB> offers the media of the running server
  nvmirage completions zsh > \"${fpath[1]}/_nvmirage\"
  nvmirage completions fish > ~/.config/fish/completions/nvmirage.fish

The shell asks this program, and that asks the server, for a third of a second at most. Write it
again after an upgrade.";

/// Print shell completions
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Completions {
    /// Shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let name = self.shell.to_string();
        let shells = live::shells();
        let shell = shells.completer(&name);
        let shell = shell.ok_or_else(|| UsageError(format!("unknown command {name}")))?;
        let mut script = Vec::new();
        shell.write_registration(
            live::VARIABLE,
            "nvmirage",
            "nvmirage",
            "nvmirage",
            &mut script,
        )?;
        terminal::print(&String::from_utf8(script)?)
    }
}
