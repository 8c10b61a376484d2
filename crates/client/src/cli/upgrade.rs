//! `nvmirage upgrade`: another program takes the place of a running server.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use api::ProcessStatus;
use terminal::progress;

use super::parse::Control;
use crate::{Address, requests};

const EXAMPLES: &str = "\
Examples:
  nvmirage upgrade
      The program that runs this command takes over, such as the one of a new package
  nvmirage upgrade target/release/nvmirage
      This program takes over
  nvmirage upgrade /usr/bin/nvmirage --control unix:/run/nvmirage/control.sock
      For the server of that socket

Hosts stay attached, and no command fails. The server must have been started with
`nvmirage serve --survive`.";

/// How long the other program may take.
const BOUND: Duration = Duration::from_secs(30);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Replace the program of a running server while hosts are attached
///
/// The program is started and checked first: one that cannot go on with the server's state is
/// refused, and nothing changes. Commands in flight complete; then it takes over. If it does not
/// serve within 1 s, the last program goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Upgrade {
    /// The program; default: the one that runs this command
    #[arg(value_name = "PROGRAM")]
    program: Option<PathBuf>,

    #[command(flatten)]
    control: Control,
}

impl Upgrade {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let program = match &self.program {
            Some(program) => std::path::absolute(program)?,
            None => std::env::current_exe().context("cannot find this program's file")?,
        };
        let socket = self.control.to_change()?;
        let before = requests::process(&socket)?;
        let upgrading = requests::upgrade(&socket, &program)?;
        for device in &upgrading.not_quiesced {
            progress::note(&format!("warning: not quiesced: {device}"));
        }
        let now = next_process(&socket, &before)?;
        let Some(ended) = &now.before else {
            bail!("the server was started again, without its hosts: see its log");
        };
        if ended.cause != "upgrade" {
            bail!(
                "{} {} did not serve ({}): the program before goes on as process {}; see the server's log",
                program.display(),
                upgrading.version,
                ended.cause,
                now.pid
            );
        }
        terminal::print(&format!(
            "upgraded server: {} {} is process {}, after a pause of {} ms\n",
            program.display(),
            now.version,
            now.pid,
            ended.pause_ms
        ))
    }
}

/// Waits for the process after `before`.
fn next_process(socket: &Address, before: &ProcessStatus) -> anyhow::Result<ProcessStatus> {
    let deadline = Instant::now() + BOUND;
    loop {
        // Between the two there is no socket.
        let now = requests::process(socket);
        match now {
            Ok(now) if now.pid != before.pid => return Ok(now),
            Err(error) if Instant::now() >= deadline => return Err(error),
            _ => {}
        }
        if Instant::now() >= deadline {
            bail!(
                "process {} still serves after {} s: see the server's log",
                before.pid,
                BOUND.as_secs()
            );
        }
        thread::sleep(PAUSE);
    }
}
