//! `nvmirage man`: writes one manual page per command.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;

const EXAMPLES: &str = "\
Examples:
  nvmirage man | man -l -
      Read the first page
  nvmirage man --out ~/.local/share/man/man1
      Install all of them";

/// Sections that every page has, which clap knows nothing of.
const SECTIONS: &str = "\
.SH \"EXIT STATUS\"
0: everything requested was done. 1: something was not. 2: the command line is wrong. 128 + N:
signal N ended the command early, as 130 for SIGINT.
.SH ENVIRONMENT
.TP
NVMIRAGE_CONTROL
Control socket of the server, as unix:PATH; \\-\\-control takes precedence.
.TP
NVMIRAGE_LOG
Log filter; \\-\\-log takes precedence.
.TP
XDG_RUNTIME_DIR
Folder of your own server's control socket.
.TP
XDG_STATE_HOME, HOME
Folder of identities and saved state, where the configuration has no state_dir.
.SH FILES
.TP
/etc/nvmirage/nvmirage.toml
Configuration that `nvmirage serve` serves by default.
.TP
$XDG_RUNTIME_DIR/nvmirage/control.sock, /run/nvmirage/control.sock
Control socket: your own server's, the system's.
.TP
~/.local/state/nvmirage
Identities, changes at run time, and partition tables.
.SH \"SEE ALSO\"
nvmirage(1), qemu\\-system\\-x86_64(1), nvme(1), fio(1)
";

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
            page.extend_from_slice(SECTIONS.as_bytes());
            return terminal::print(&String::from_utf8(page)?);
        };
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&dir)?;
            clap_mangen::generate_to(command, &dir)?;
            for entry in std::fs::read_dir(&dir)? {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if name.starts_with("nvmirage") && name.ends_with(".1") {
                    let mut page = std::fs::OpenOptions::new().append(true).open(&path)?;
                    page.write_all(SECTIONS.as_bytes())?;
                }
            }
            Ok(())
        };
        write().with_context(|| format!("cannot write manual pages to {}", dir.display()))
    }
}
