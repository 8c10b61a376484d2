//! `nvmirage mount`: mounts the namespaces of any vfio-user server as files of this machine.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io, thread};

use anyhow::bail;
use api::config::Size;
use fuse::{End, Mount as Mounted, Options, process};
use lab::cli::wait::WaitArg;
use terminal::interrupt::Interrupt;

use super::parse;

const EXAMPLES: &str = "\
Examples:
  nvmirage mount --target vfio-user:/tmp/nvme.sock /mnt/drive
      Until stopped (Ctrl-C), /mnt/drive/ns1 is namespace 1
  losetup --find --show --direct-io=on --sector-size 4096 /mnt/drive/ns1
      A block device of it, for a file system
  nvmirage serve --media ram:size=8GiB --listen fuse:/mnt/drive
      A drive of this machine's server needs no second process";

/// Interval of checks for the end.
const PAUSE: Duration = Duration::from_millis(50);

/// Mount the namespaces of a drive over vfio-user as files
///
/// Each namespace is a file, ns1, ns2, …, with its size and the drive's latency; fsync makes writes
/// durable, and punched holes read as zeros. The folder must be empty. Mounting needs root, or
/// fusermount3 of the package fuse3.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Mount {
    /// Folder to mount on; must be empty
    folder: PathBuf,

    /// Socket of the server
    #[arg(long, value_name = "vfio-user:PATH", value_parser = parse::vfio_user)]
    target: PathBuf,

    /// Let other users open the files; except for root this needs user_allow_other in
    /// /etc/fuse.conf
    #[arg(long)]
    allow_other: bool,

    /// Use this machine's page cache for reads and writes, which hides the drive's latency
    #[arg(long)]
    page_cache: bool,

    /// Maximum number of queue pairs, with one thread each
    ///
    /// Default: one for every two CPUs, up to 8.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    queues: Option<u16>,

    #[command(flatten)]
    wait: WaitArg,

    /// Name in the list of mounts, for a server
    #[arg(long, hide = true)]
    name: Option<String>,

    /// Standard input is the socket of a server, which ends the mount
    #[arg(long, hide = true)]
    of_server: bool,
}

impl Mount {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let interrupt = Interrupt::install()?;
        let options = Options {
            allow_other: self.allow_other,
            page_cache: self.page_cache,
            queues: self.queues.map_or(usize::MAX, usize::from),
            name: (self.name.clone()).unwrap_or_else(|| self.target.display().to_string()),
            wait: self.wait.get(),
            interrupt: Some(interrupt.clone()),
        };
        if self.of_server {
            return self.run_for_server(&options, &interrupt);
        }
        let mounted = Mounted::start(&self.target, &self.folder, &options)?;
        let files = mounted.files();
        let files: Vec<String> = files
            .into_iter()
            .map(|(name, len)| format!("{name} {}", Size(len)))
            .collect();
        let dir = mounted.dir().display().to_string();
        terminal::print(&format!("ready: {dir}: {}\n", files.join(", ")))?;
        let end = loop {
            if let Some(end) = mounted.ended() {
                break Some(end);
            }
            if interrupt.is_set() {
                break None;
            }
            thread::sleep(PAUSE);
        };
        let stopped = mounted.stop();
        match end {
            Some(End::Lost) => bail!(
                "the drive at {} is lost; see its server's log",
                self.target.display()
            ),
            Some(End::Unmounted) | None => stopped,
        }
    }

    /// Mounts for a server whose process may be replaced. The drive's socket is in a folder of its
    /// own, which goes with the mount.
    fn run_for_server(&self, options: &Options, interrupt: &Interrupt) -> anyhow::Result<()> {
        let server = io::stdin().as_fd().try_clone_to_owned()?;
        let served = process::run(&server, interrupt, || {
            Mounted::start(&self.target, &self.folder, options)
        });
        if let Some(folder) = self.target.parent() {
            let mut lock = self.target.clone().into_os_string();
            lock.push(".lock");
            // After a clean stop, neither is there any more.
            let _ = fs::remove_file(&self.target);
            let _ = fs::remove_file(lock);
            let _ = fs::remove_dir(folder);
        }
        served
    }
}
