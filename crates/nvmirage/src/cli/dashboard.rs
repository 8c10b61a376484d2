//! `nvmirage dashboard`: serves a running server's dashboard while the command runs.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use anyhow::Context;
use client::cli::parse::Control;
use server::{dashboard, proxy};

const EXAMPLES: &str = "\
Examples:
  nvmirage dashboard --open
      Open the dashboard of this machine's server in the browser
  nvmirage dashboard --address 127.0.0.1:9601
      Serve it at a fixed port, as for `ssh -L 9601:127.0.0.1:9601 HOST`";

/// Serve a running server's dashboard to a browser
///
/// The dashboard listens only on an address of this machine, and passes requests on to the control
/// socket until it is interrupted. The address that it prints carries a token behind `#`, valid for
/// this run; anyone who has the token can control the server.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Dashboard {
    /// Address of this machine to listen on; port 0 takes any free port
    #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    address: SocketAddr,

    /// Open the dashboard in the browser
    #[arg(long)]
    open: bool,

    #[command(flatten)]
    control: Control,
}

impl Dashboard {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let socket = self.control.to_read()?;
        UnixStream::connect(socket.path()).with_context(|| socket.nobody())?;
        if !dashboard::is_built() {
            tracing::warn!("this program was built without the dashboard: use a build with it");
        }
        proxy::run(self.address, socket.path().to_owned(), |url| {
            terminal::print(&format!("{url}\n"))?;
            self.open.then(|| open(url)).transpose()
        })
    }
}

/// Asks the desktop to open `url`. The URL holds a token, and other users can see a command's
/// arguments, so it is passed in a file that only its user can read; dropping the returned handle
/// removes the file. Without a desktop this does nothing: the printed address serves a browser
/// elsewhere.
fn open(url: &str) -> anyhow::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix("nvmirage-")
        .suffix(".html")
        .tempfile()?;
    writeln!(
        file,
        "<!doctype html><meta http-equiv=refresh content=\"0;url={url}\"><a href=\"{url}\">nvmirage</a>"
    )?;
    let mut command = Command::new("xdg-open");
    command
        .arg(file.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => {
            // The child may be the browser itself and run for a long time.
            std::thread::spawn(move || child.wait());
        }
        Err(error) => tracing::warn!("cannot open a browser: xdg-open: {error}"),
    }
    Ok(file)
}
