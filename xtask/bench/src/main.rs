//! `cargo xtask bench`: the program beside the floor of this machine and beside others that do the
//! same work, in one run.
//!
//! Rounds are interleaved over the subjects, and figures are medians of samples that had the same
//! placement of the two processors: a machine that is shared is slower at one moment than at the
//! next. What cannot be measured is said, and the rest goes on. Figures are reported and never
//! judged.

mod control;
mod database;
mod fio;
mod guest;
mod interrupts;
mod mediated;
mod mount;
mod nbd;
mod ours;
mod plot;
mod process;
mod reach;
mod report;
mod sample;
mod survive;
mod tcp;
mod vhost;
mod vhost_user;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use guest_rig::Rig;
use serde_json::Value;
use xtask_shared::process::Interrupt;
use xtask_shared::workspace::Workspace;

use self::control::ControlArgs;
use self::database::DatabaseArgs;
use self::mediated::MediatedArgs;
use self::mount::MountArgs;
use self::nbd::NbdArgs;
use self::ours::{Ours, Setup, output, placement};
use self::reach::ReachArgs;
use self::sample::{Results, Sample, Subject};
use self::survive::SurviveArgs;
use self::tcp::TcpArgs;
use self::vhost_user::VhostArgs;

/// Of each medium: much more than the caches hold, little enough to be written whole before it is
/// measured.
const SIZE: &str = "1GiB";
const SIZE_MIB: u64 = 1024;
/// Where files are memory.
const MEMORY: &str = "/dev/shm";
/// How many times the rounds there may be, so that there are enough of one placement.
const MORE_ROUNDS: u32 = 2;

/// What can be measured, in this order.
const PARTS: [&str; 7] = [
    "null",
    "ram",
    "file",
    "fio",
    "memory-file",
    "vhost",
    "guest",
];

/// Measure the program on this machine
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask bench", args_conflicts_with_subcommands = true)]
struct BenchArgs {
    #[command(subcommand)]
    other: Option<Other>,
    /// Only these: our drives of nothing, of memory and of a file on disk; fio on that file; our
    /// drive of a file in memory, and qemu-storage-daemon's; the drives of one guest
    #[arg(long, value_delimiter = ',', default_values = PARTS, value_parser = PARTS)]
    only: Vec<String>,
    /// Kinds of access
    #[arg(long, value_delimiter = ',', default_value = "randread,randwrite")]
    rw: Vec<String>,
    /// Queue depths
    #[arg(long, value_delimiter = ',', default_value = "1,32,128")]
    qd: Vec<u64>,
    /// Seconds for each figure
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How often everything is measured, at least; more often where placements differ
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    cpus: Cpus,
    /// Where the plot is written, as SVG; default: beside the logs of the tests
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Other {
    /// Measure what the program is meant to reach, a row each
    Reach(ReachArgs),
    /// Run databases on a modelled drive of this machine itself, by bandwidth and by latency (as
    /// root)
    Database(DatabaseArgs),
    /// Measure what abuse of the control socket costs hosts, beside a process that burns as much
    /// and does nothing with us
    Control(ControlArgs),
    /// Measure what a mounted drive costs, beside a file in memory (as root also what a loop device
    /// on it does)
    Mount(MountArgs),
    /// Measure what sharing a drive by mediated pass-through costs, and what each host gets of it
    Mediated(MediatedArgs),
    /// Measure what `serve --survive` costs while nothing dies
    Survive(SurviveArgs),
    /// Measure NVMe/TCP beside two threads that exchange the same bytes without NVMe
    Tcp(TcpArgs),
    /// Measure NBD beside qemu-storage-daemon and nbdkit, by the same clients
    Nbd(NbdArgs),
    /// Measure vhost-user-blk by a front end that polls: a null medium, memory beside vfio-user, a
    /// file beside qemu-storage-daemon, and idle front ends
    Vhost(VhostArgs),
}

/// Who runs where.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Cpus {
    /// The processor of the server
    #[arg(long, default_value_t = 0)]
    server_cpu: u32,
    /// The processor of the host
    #[arg(long, default_value_t = 1)]
    host_cpu: u32,
}

impl Cpus {
    fn pair(self) -> (u32, u32) {
        (self.server_cpu, self.host_cpu)
    }
}

fn main() -> ExitCode {
    let args = BenchArgs::parse();
    let run = || run(&Workspace::locate()?, &Interrupt::install()?, &args);
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the program, and measures.
///
/// # Errors
/// It cannot be built, results cannot be written, or somebody interrupts us.
fn run(workspace: &Workspace, interrupt: &Interrupt, args: &BenchArgs) -> Result<()> {
    if let Some(Other::Control(args)) = &args.other
        && args.is_child()?
    {
        return Ok(());
    }
    let status = workspace
        .cargo(&["build", "--release", "-p", "nvmirage"])?
        .status()?;
    ensure!(status.success(), "the program cannot be built");
    match &args.other {
        Some(Other::Reach(args)) => return reach::run(workspace, interrupt, args),
        Some(Other::Database(args)) => return database::run(workspace, interrupt, args),
        Some(Other::Control(args)) => return control::run(workspace, interrupt, args),
        Some(Other::Mount(args)) => return mount::run(workspace, interrupt, args),
        Some(Other::Mediated(args)) => return mediated::run(workspace, interrupt, args),
        Some(Other::Survive(args)) => return survive::run(workspace, interrupt, args),
        Some(Other::Tcp(args)) => return tcp::run(workspace, interrupt, args),
        Some(Other::Nbd(args)) => return nbd::run(workspace, interrupt, args),
        Some(Other::Vhost(args)) => return vhost_user::run(workspace, interrupt, args),
        None => {}
    }
    fs::create_dir_all(workspace.logs())?;
    // Not in the system's folder of temporary files, which may live in memory.
    let disk = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(&workspace.target)?;
    let mut bench = Bench {
        workspace,
        interrupt,
        args,
        rig: Rig::prepare(&mut |text| eprintln!("{text}")),
        disk: disk.path().join("disk"),
        results: Results::default(),
        floors: Vec::new(),
    };
    bench.rounds()?;
    if args.only.iter().any(|part| part == "guest") {
        bench.guest();
    }
    bench.report()
}

/// A run.
struct Bench<'a> {
    workspace: &'a Workspace,
    /// Looked at between measurements, so that files in memory are removed.
    interrupt: &'a Interrupt,
    args: &'a BenchArgs,
    /// What others' programs come from; where that cannot be had, those fail and ours do not.
    rig: Result<Rig>,
    disk: PathBuf,
    results: Results,
    floors: Vec<Value>,
}

impl Bench<'_> {
    fn rounds(&mut self) -> Result<()> {
        let wanted = usize::try_from(self.args.rounds)?;
        // in their own order: one may need what another has made
        let asked = |part: &&str| self.args.only.iter().any(|only| only == part);
        let parts: Vec<&str> = PARTS.into_iter().filter(asked).collect();
        for round in 1..=self.args.rounds * MORE_ROUNDS {
            let mut floor = self.workspace.command(&self.workspace.program())?;
            self.floors
                .push(output(floor.args(["bench", "floor", "--json"]))?);
            for &part in parts.iter().filter(|part| **part != "guest") {
                if self.results.failures.contains_key(part) {
                    continue;
                }
                eprintln!("round {round} of {}: {part}", self.args.rounds);
                let done = self.part(part, round == 1);
                // an interrupt also reaches the programs that this part has started
                ensure!(!self.interrupt.is_set(), "interrupted");
                if let Err(error) = done {
                    eprintln!("{part}: {error:#}");
                    self.results
                        .failures
                        .insert(part.to_owned(), format!("{error:#}"));
                }
            }
            let placement = self.results.usual_placement();
            if round >= self.args.rounds && self.results.enough(placement, wanted) {
                break;
            }
        }
        Ok(())
    }

    /// Measures one part once.
    fn part(&mut self, part: &str, first: bool) -> Result<()> {
        let file = |path: &Path| Setup {
            path: Some(path.to_owned()),
            ..Setup::new("file", SIZE)
        };
        match part {
            "null" => self.ours("nvmirage null", &Setup::new("null", SIZE), false),
            "ram" => self.ours("nvmirage ram", &Setup::new("ram", SIZE), true),
            "file" => self.ours("nvmirage file", &file(&self.disk.clone()), first),
            "fio" => self.fio(),
            "memory-file" => {
                let dir = memory_dir()?;
                // As the daemon that it is compared with, it sleeps where it can.
                let setup = Setup {
                    mode: "adaptive",
                    ..file(&dir.path().join("file"))
                };
                self.ours("nvmirage file in memory", &setup, true)
            }
            "vhost" => self.vhost(),
            other => anyhow::bail!("there is no part {other}"),
        }
    }

    fn cases(&self) -> Vec<(String, u64)> {
        let depths = |rw: &String| {
            let of = |depth: &u64| (rw.clone(), *depth);
            self.args.qd.iter().map(of).collect::<Vec<_>>()
        };
        self.args.rw.iter().flat_map(depths).collect()
    }

    fn ours(&mut self, name: &str, setup: &Setup, fill: bool) -> Result<()> {
        let ours = Ours::start(self.workspace, setup, self.args.cpus.pair())?;
        if fill {
            ours.fill(SIZE_MIB)?;
        }
        for (rw, depth) in self.cases() {
            let seconds = self.args.seconds;
            let args = format!("--rw {rw} --qd {depth} --time {seconds}s");
            let sample = ours.sample(&args)?;
            self.results.add(Subject::new(name, &rw, depth), sample);
        }
        ours.stop()
    }

    fn rig(&self) -> Result<Rig> {
        match &self.rig {
            Ok(rig) => Ok(rig.clone()),
            Err(error) => anyhow::bail!("its program cannot be had: {error:#}"),
        }
    }

    /// fio on the file that our drive is, so after it.
    fn fio(&mut self) -> Result<()> {
        let rig = self.rig()?;
        ensure!(
            self.disk.is_file(),
            "there is no file: it is made by our own drive, which was left out or failed"
        );
        for (rw, depth) in self.cases() {
            let sample = self.placed(|bench| {
                // where the drive's reactor was: on the other one it is as far from the disk's
                // interrupts
                let (seconds, cpu) = (bench.args.seconds, bench.args.cpus.server_cpu);
                let job = fio::Job {
                    engine: "io_uring",
                    rw: &rw,
                    depth,
                    seconds,
                };
                fio::measure(&rig, &bench.disk, &job, cpu)
            })?;
            let subject = Subject::new("fio io_uring on the file", &rw, depth);
            self.results.add(subject, sample);
        }
        Ok(())
    }

    fn vhost(&mut self) -> Result<()> {
        let rig = self.rig()?;
        let dir = memory_dir()?;
        let file = dir.path().join("file");
        write_file(&file, SIZE_MIB)?;
        let export = vhost::Export::start(&rig, &file, dir.path(), self.args.cpus.pair())?;
        for (rw, depth) in self.cases() {
            let sample = self.placed(|bench| export.measure(&rw, depth, bench.args.seconds))?;
            let subject = Subject::new("vhost-user-blk in memory", &rw, depth);
            self.results.add(subject, sample);
        }
        Ok(())
    }

    /// A measurement with a look at the placement before and after.
    fn placed(&self, measure: impl FnOnce(&Self) -> Result<Sample>) -> Result<Sample> {
        let before = placement(self.workspace, self.args.cpus)?;
        let sample = measure(self)?;
        let after = placement(self.workspace, self.args.cpus)?;
        let placement = if before == after {
            before
        } else {
            "mixed".into()
        };
        Ok(Sample {
            placement,
            ..sample
        })
    }

    fn guest(&mut self) {
        let rounds = (self.args.rounds, self.args.seconds);
        let done = self
            .rig()
            .and_then(|rig| guest::measure(&rig, Path::new(MEMORY), rounds, &mut self.results));
        if let Err(error) = done {
            eprintln!("guest: {error:#}");
            self.results
                .failures
                .insert("guest".into(), format!("{error:#}"));
        }
    }

    fn report(&self) -> Result<()> {
        let placement = self.results.usual_placement();
        let json = report::in_json(&self.results, &self.floors, placement);
        let file = self.workspace.logs().join("bench.json");
        fs::write(&file, format!("{json:#}\n"))?;
        let plot = self.workspace.logs().join("bench.svg");
        let plot = self.args.plot.as_ref().unwrap_or(&plot);
        plot::write(plot, &self.results, placement, &self.args.rw[0])?;
        if self.args.json {
            println!("{json:#}");
        } else {
            for floor in &self.floors {
                println!("floor: {floor}");
            }
            print!("{}", report::table(&self.results, placement));
            println!("{} and {} have all of it", file.display(), plot.display());
        }
        Ok(())
    }
}

/// A folder whose files are memory.
fn memory_dir() -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("nvmirage-")
        .tempdir_in(MEMORY)
        .with_context(|| format!("cannot make files in {MEMORY}"))
}

/// A file without holes.
fn write_file(path: &Path, mib: u64) -> Result<()> {
    use std::io::Write as _;
    let mut file = fs::File::create(path)?;
    let part: Vec<u8> = (0..1usize << 20)
        .map(|at| (at * 31 + at / 4096).to_le_bytes()[0])
        .collect();
    for _ in 0..mib {
        file.write_all(&part)?;
    }
    Ok(())
}
