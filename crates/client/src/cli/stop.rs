//! `nvmirage stop`: stops a running server.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use terminal::progress;

use super::parse::Control;
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage stop
      Rejected while hosts are attached; run-time changes are restored at the next start
  nvmirage stop --detach-hosts
      Hosts lose their drives";

/// Time limit for the server: commands in flight get 4 s, and each medium 5 s to become durable.
const BOUND: Duration = Duration::from_secs(120);
/// Time before the first progress message.
const PATIENCE: Duration = Duration::from_secs(1);

/// Stop a running server, and wait until it has exited
///
/// SIGTERM does the same without checking for hosts: commands in flight complete, and media are
/// made durable. QEMU may exit when its drive disappears.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Stop {
    /// Stop even while hosts are attached, which lose their drives
    #[arg(long)]
    detach_hosts: bool,

    #[command(flatten)]
    control: Control,
}

impl Stop {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let stopping = requests::stop(&self.control.to_change()?, self.detach_hosts)?;
        let pid = i32::try_from(stopping.pid).ok().and_then(Pid::from_raw);
        let pid = pid.context("the server did not report its process id")?;
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => return stopped(stopping.pid),
            Err(error) => return Err(error).context("cannot monitor the server's process"),
        };
        let deadline = Instant::now() + BOUND;
        let mut is_told = false;
        while Instant::now() < deadline {
            let wait = Timespec::try_from(PATIENCE)?;
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            match poll(&mut ended, Some(&wait)) {
                Ok(0) if !is_told => {
                    progress::note("commands complete, and media are made durable");
                    is_told = true;
                }
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return stopped(stopping.pid),
                Err(error) => return Err(error).context("cannot wait for the server"),
            }
        }
        bail!(
            "the server, process {pid:?}, has not exited within {} s: see its log",
            BOUND.as_secs()
        )
    }
}

fn stopped(pid: u32) -> anyhow::Result<()> {
    terminal::print(&format!("stopped server, process {pid}\n"))
}
