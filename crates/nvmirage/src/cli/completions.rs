//! `nvmirage completions`: what a shell needs to complete commands and options.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::report;

const EXAMPLES: &str = "\
Examples:
  nvmirage completions bash > ~/.local/share/bash-completion/completions/nvmirage
  nvmirage completions zsh > \"${fpath[1]}/_nvmirage\"
  nvmirage completions fish > ~/.config/fish/completions/nvmirage.fish";

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(
            self.shell,
            &mut super::Cli::command(),
            "nvmirage",
            &mut script,
        );
        report::print(&String::from_utf8(script)?)
    }
}
