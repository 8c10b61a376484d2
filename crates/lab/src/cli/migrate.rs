//! `nvmirage migrate`: moves a drive between two servers while it does I/O.

use std::num::NonZeroU16;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use api::config::Size;
use driver::bus::Bus as _;
use driver::bus::movable::Movable;
use driver::bus::place::Place;
use driver::io::Namespace;
use driver::workload::{Job, JobResult, Phase, Progress, Rw};
use driver::{Device, Doorbells, Options, Shutdown};
use load::moving::{self, Mover};
use serde::Serialize;
use terminal::interrupt::Interrupt;
use terminal::units;

use super::consent;

const EXAMPLES: &str = "\
Examples:
  nvmirage migrate --from vfio-user:/run/a.sock --to vfio-user:/run/b.sock
      Move the drive while it reads; nothing is written
  nvmirage migrate --from vfio-user:/run/a.sock --to vfio-user:/run/b.sock --verify --destroy-data
      Write and read before, during and after the move, and check every byte

Both servers have a controller with migration = true, the same identity and the same file. The
server of --to waits for the drive: start it while the other one serves. The command is the drive's
host, so the drive must have no other. It is without a host at the server of --to when the command
ends.";

/// Commands in flight that memory is reserved for.
const DEPTH_MAX: u16 = 1024;
/// Bytes of a command.
const BLOCK: u32 = 4096;
/// Memory shared with the drive beside the commands' data.
const MEMORY: usize = 32 << 20;
/// Move a drive from one server to another
///
/// Attaches to the drive at the first server as its host, and does I/O. Half-way it copies its
/// memory in rounds, each of the pages written since the one before. Then the server stops the
/// drive, its state goes to the second server, and the I/O goes on there, in the same queues, with
/// the copy. Prints how long the drive stood still. If the move fails, the drive goes on where it
/// was, and the exit status is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Migrate {
    /// Server that has the drive
    #[arg(long, value_name = "vfio-user:PATH", value_parser = socket)]
    from: PathBuf,

    /// Server that is to have it
    #[arg(long, value_name = "vfio-user:PATH", value_parser = socket)]
    to: PathBuf,

    /// Write, and check every byte that is read, and at the end every block that was written;
    /// overwrites data
    #[arg(long)]
    verify: bool,

    /// Allow --verify to overwrite the drive's data
    #[arg(long, requires = "verify")]
    destroy_data: bool,

    /// Part of the namespace that is used, from its start
    #[arg(long, default_value = "64MiB")]
    size: Size,

    /// Seconds of I/O; the move is in the middle
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    runtime: u32,

    /// Commands in flight
    #[arg(long, value_name = "N", default_value = "16")]
    qd: NonZeroU16,

    /// Namespace identifier; default: the first active namespace
    #[arg(long, value_name = "N")]
    nsid: Option<u32>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The socket of a server.
fn socket(text: &str) -> Result<PathBuf, String> {
    match text.parse()? {
        Place::VfioUser(path) => Ok(path),
        Place::Pci(_) => Err("a drive of this machine does not move: write vfio-user:PATH".into()),
        Place::NvmeTcp(_) => {
            Err("a drive behind a target does not move: write vfio-user:PATH".into())
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    from: PathBuf,
    to: PathBuf,
    state_bytes: u64,
    /// Rounds of the copy of the host's memory, with the last one, while the drive stood still.
    memory_rounds: u64,
    /// Pages of 4 KiB that were copied in all of them.
    memory_pages: u64,
    /// In the last one.
    memory_pages_stopped: u64,
    /// Until nothing was in flight, and the medium was durable.
    stop_ns: u64,
    /// Until the drive ran at the other server.
    pause_ns: u64,
    commands_before: u64,
    commands_after: u64,
    /// Logical blocks of which every byte was compared; none without `--verify`.
    blocks_verified: u64,
}

impl Migrate {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and where the drive is.
    pub fn run(self) -> anyhow::Result<()> {
        if self.verify && !self.destroy_data {
            return Err(consent::needed("--verify", "it writes to the drive").into());
        }
        ensure!(
            self.from != self.to,
            "--from and --to are the same server: name two"
        );
        ensure!(
            self.qd.get() <= DEPTH_MAX,
            "--qd {}: at most {DEPTH_MAX} commands",
            self.qd
        );
        let interrupt = Interrupt::install().context("cannot wait for signals")?;
        let options = Options {
            memory_len: MEMORY + usize::from(self.qd.get()) * 3 * BLOCK as usize,
            doorbells: Doorbells::Auto,
            transfer_len_max: BLOCK,
            ..Options::default()
        };
        let bus = Movable::connect(&self.from, options.timeout)?;
        let mut device = Device::open(bus, &options)?;
        device.enable()?;
        let namespace = self.namespace(&mut device)?;
        let depth = self.qd.get().min(device.depth_max());
        let mut queue = device.create_queue_pair(depth, false)?;
        let job = self.job(&namespace, depth)?;
        let bus = device.shared_bus().clone();
        let runtime_ns = u64::from(self.runtime) * 1_000_000_000;
        let mut mover = Mover::new(&bus, &self.to, bus.now_ns() + runtime_ns / 2);
        let mut progress = |progress: Progress| {
            // The blocks that were written are checked nevertheless.
            if interrupt.is_set() && progress.phase != Phase::Verify {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let memory = device.memory();
        let done = moving::run(
            &job,
            &namespace,
            &mut queue,
            memory,
            &mut mover,
            &mut progress,
        );
        let Mover {
            copy,
            moved,
            before,
            after,
            ..
        } = mover;
        let [rounds, pages, last_pages] =
            copy.map_or([0; 3], |copy| [copy.rounds, copy.pages, copy.last_pages]);
        let (moved, done) = match (moved, done) {
            (Some(Err(error)), Err(_)) => return Err(error.into()),
            (_, Err(error)) => return Err(error.into()),
            (None, Ok(_)) => bail!("interrupted before the move: the drive stays at its server"),
            (Some(moved), Ok(done)) => {
                check(&done)?;
                (moved?, done)
            }
        };
        device.shutdown(Shutdown::Normal)?;
        let report = Report {
            from: self.from,
            to: self.to,
            state_bytes: moved.state_len,
            memory_rounds: rounds,
            memory_pages: pages,
            memory_pages_stopped: last_pages,
            stop_ns: nanoseconds(moved.stop),
            pause_ns: nanoseconds(moved.pause),
            commands_before: before,
            commands_after: after,
            blocks_verified: done.blocks_verified,
        };
        if self.json {
            terminal::print_json(&report)?;
        } else {
            terminal::print(&report.in_words())?;
        }
        ensure!(!interrupt.is_set(), "interrupted after the move");
        Ok(())
    }

    fn namespace(&self, device: &mut Device<Movable>) -> anyhow::Result<Namespace> {
        let nsid = match self.nsid {
            Some(nsid) => nsid,
            None => *device
                .active_namespaces()?
                .first()
                .context("the drive has no namespace: attach one")?,
        };
        Ok(device.namespace(nsid)?)
    }

    fn job(&self, namespace: &Namespace, depth: u16) -> anyhow::Result<Job> {
        let unit = u64::from(BLOCK);
        let span = self.size.0.min(namespace.len()) / unit * unit;
        ensure!(
            span > 0,
            "--size {}: write at least {unit} bytes, and no more than the namespace has",
            self.size
        );
        Ok(Job {
            name: "migrate".to_owned(),
            rw: if self.verify {
                Rw::RandRw
            } else {
                Rw::RandRead
            },
            block_size: BLOCK,
            queue_depth: depth,
            runtime: Duration::from_secs(self.runtime.into()),
            verify: self.verify,
            span: Some(span),
            ..Job::default()
        })
    }
}

/// Fails where commands have failed, or bytes are wrong.
fn check(done: &JobResult) -> anyhow::Result<()> {
    if let Some(mismatch) = done.first_mismatch {
        bail!(
            "{} blocks read back wrong; the first: {mismatch}",
            done.errors
        );
    }
    if let Some(status) = done.first_error {
        bail!("{} commands failed; the first with {status}", done.errors);
    }
    ensure!(done.errors == 0, "{} commands failed", done.errors);
    Ok(())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    fn in_words(&self) -> String {
        let pause = units::nanoseconds(self.pause_ns as f64);
        let stop = units::nanoseconds(self.stop_ns as f64);
        let verified = match self.blocks_verified {
            0 => "none (--verify writes, and checks every byte)".to_owned(),
            blocks => format!("{blocks} blocks, every byte"),
        };
        format!(
            "moved from vfio-user:{} to vfio-user:{}\n  pause     {pause}, of which {stop} until nothing was in flight and the medium was durable\n  state     {}\n  memory    {} pages of 4 KiB in {} rounds, of which {} while the drive stood still\n  commands  {} before, {} after\n  verified  {verified}\n",
            self.from.display(),
            self.to.display(),
            units::bytes(self.state_bytes),
            self.memory_pages,
            self.memory_rounds,
            self.memory_pages_stopped,
            self.commands_before,
            self.commands_after,
        )
    }
}
