//! `nvmirage man`: writes one manual page per command, and one of the configuration.

mod configuration;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context;

const EXAMPLES: &str = "\
Examples:
  nvmirage man | man -l -
      Read the first page
  nvmirage man --configuration | man -l -
      Read what a configuration file has
  nvmirage man --out ~/.local/share/man
      Install all of them, in man1 and man5";

/// Sections that every page has and clap does not generate.
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
nvmirage(1), nvmirage.toml(5), qemu\\-system\\-x86_64(1), nvme(1), fio(1)
";

/// Print a manual page, or write all of them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Man {
    /// Print nvmirage.toml(5), the page of configuration files, instead of nvmirage(1)
    #[arg(long, conflicts_with = "out")]
    configuration: bool,

    /// Folder for all pages, in its folders man1 (commands) and man5 (configuration); created if
    /// missing
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if self.configuration {
            return terminal::print(&configuration::page());
        }
        let command = super::command();
        let Some(dir) = self.out else {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            page.extend_from_slice(SECTIONS.as_bytes());
            return terminal::print(&String::from_utf8(page)?);
        };
        let write = || -> std::io::Result<()> {
            let (commands, formats) = (dir.join("man1"), dir.join("man5"));
            std::fs::create_dir_all(&commands)?;
            std::fs::create_dir_all(&formats)?;
            std::fs::write(formats.join("nvmirage.toml.5"), configuration::page())?;
            clap_mangen::generate_to(command, &commands)?;
            for entry in std::fs::read_dir(&commands)? {
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
