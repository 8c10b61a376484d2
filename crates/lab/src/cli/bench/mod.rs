//! `nvmirage bench`: loads a drive over vfio-user, or one of this machine, and measures it.

mod beside;

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use api::config::{Size, Span};
use beside::{BesideArgs, Besides, cold_report};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use driver::Doorbells;
use driver::bus::place::Place;
use driver::io::Namespace;
use driver::workload::{Job, JobZones, Neighbour, Ring, Rw};
use driver::zoned::Zone;
use load::beside::Beside;
use load::placement::Pair;
use load::record::Recorder;
use load::{Host, Needs, Queue};
use machine::cpu;
use nvme_spec::opcode::Csi;
use serde::Serialize;
use terminal::interrupt::Interrupt;
use terminal::progress;

use super::as_host::AsHost;
use super::floor::Floor;
use super::wait::WaitArg;
use super::{UsageError, consent};
use crate::job::{AlsoReport, JobReport};
use crate::line::Line;

const EXAMPLES: &str = "\
Examples:
  nvmirage bench --target vfio-user:/tmp/nvme.sock
      4 KiB random reads, one at a time, for 5 seconds
  nvmirage bench --target vfio-user:/tmp/nvme.sock --destroy-data --rw randwrite --bs 4k,128k --qd 1,32 --cpu 1
      Four jobs, one after the other, on CPU 1
  nvmirage bench --target vfio-user:/tmp/nvme.sock --destroy-data --rw randrw --qd 32 --verify --json
      Check every byte, and print JSON
  nvmirage bench --target vfio-user:/tmp/nvme.sock --idle-queues 60 --cold-every 10ms --qd 32
      With idle queue pairs, and one that is used rarely
  nvmirage bench --target vfio-user:/tmp/zns.sock --destroy-data --rw append --bs 16k --qd 16
      Appends to the zones of a zoned drive, which are reset
  nvmirage bench --target pci:0000:01:00.0 --qd 1,32
      A drive of this machine, after nvmirage drive bind
  nvmirage bench floor
      The machine's own lower bound, for comparison

Writing jobs, and --verify, overwrite what is on the drive: they need --destroy-data.";

/// Measure an NVMe drive of any vendor, over vfio-user, NVMe/TCP or on this machine
///
/// The load generator polls: for meaningful figures give server and host a CPU each. Lists of --bs
/// and --qd multiply into jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Bench {
    #[command(subcommand)]
    other: Option<Other>,

    /// Address of the drive: a server's socket, a subsystem behind a target, or a PCI function
    /// bound to vfio-pci
    #[arg(
        long,
        value_name = "vfio-user:PATH|nvme-tcp:HOST:PORT/NQN|pci:ADDRESS",
        required = true
    )]
    target: Option<Place>,

    /// Kind of I/O: random or sequential reads, writes, or both; or appends to zones. In zones,
    /// write uses one zone for each command in flight
    #[arg(long, value_name = "KIND", value_parser = rw(), default_value = "randread")]
    rw: Rw,

    /// Number of zones that append uses at a time; default: 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    open_zones: Option<u16>,

    /// Share of reads in randrw, in percent; default: 50
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=100))]
    reads: Option<u8>,

    /// Block size of commands; several separated by commas
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "4k")]
    bs: Vec<Size>,

    /// Queue depth: commands in flight per queue pair; several separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    qd: Vec<u16>,

    /// Queue pairs per job, each with --qd commands in flight
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    queues: u16,

    /// Total size of the buffers, used in turn; default: one buffer per command in flight
    #[arg(long, value_name = "SIZE")]
    buffers: Option<Size>,

    /// Idle time after each batch: wait until everything submitted is completed, then pause
    #[arg(long, value_name = "TIME")]
    pause: Option<Span>,

    /// Duration of each job, without verification
    #[arg(long, value_name = "TIME", default_value = "5s")]
    time: Span,

    /// CPU to run on; default: any
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,

    /// CPU that the server polls on, to check the placement; default: one on another core than
    /// --cpu
    #[arg(long, value_name = "N")]
    server_cpu: Option<u32>,

    /// Doorbell method; auto takes the fastest that the drive supports
    #[arg(long, value_name = "HOW", value_parser = doorbells(), default_value = "auto")]
    doorbells: Doorbells,

    /// Writes of the submission queue's doorbell: one for all commands that replace those
    /// completed together, or one for each command
    #[arg(long, value_name = "WHEN", value_parser = ring(), default_value = "batch")]
    ring: Ring,

    /// Allow data to be overwritten; required by jobs that write, and by --verify
    #[arg(long)]
    destroy_data: bool,

    /// Verify every byte written; the range that jobs use is written first
    #[arg(long)]
    verify: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Namespace identifier
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nsid: u32,

    /// Seed of random offsets and data; the same seed repeats the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Size of the range that is used, from the start of the namespace; default: all
    #[arg(long, value_name = "SIZE")]
    span: Option<Size>,

    /// File for a trace of what was submitted and when, as input of `nvmirage simulate`
    #[arg(long, value_name = "FILE")]
    record_trace: Option<PathBuf>,

    #[command(flatten)]
    wait: WaitArg,

    #[command(flatten)]
    as_host: AsHost,

    #[command(flatten)]
    beside: BesideArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Other {
    Floor(Floor),
}

fn rw() -> impl TypedValueParser<Value = Rw> {
    PossibleValuesParser::new(Rw::ALL.map(Rw::name)).try_map(|word| {
        let found = Rw::ALL.into_iter().find(|rw| rw.name() == word);
        found.ok_or("no such kind")
    })
}

fn doorbells() -> impl TypedValueParser<Value = Doorbells> {
    PossibleValuesParser::new(["auto", "mapped", "shadow", "trapped"]).map(|word| {
        match word.as_str() {
            "mapped" => Doorbells::Mapped,
            "shadow" => Doorbells::Shadow,
            "trapped" => Doorbells::Trapped,
            _ => Doorbells::Auto,
        }
    })
}

fn ring() -> impl TypedValueParser<Value = Ring> {
    PossibleValuesParser::new(Ring::ALL.map(Ring::name)).try_map(|word| {
        let found = Ring::ALL.into_iter().find(|ring| ring.name() == word);
        found.ok_or("no such word")
    })
}

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct Output {
    target: String,
    nsid: u32,
    /// Doorbell method in use.
    doorbells: &'static str,
    /// When they are written: `batch` or `command`.
    ring: &'static str,
    /// Idle queue pairs beside those of the jobs.
    idle_queues: u32,
    jobs: Vec<JobReport>,
}

impl Bench {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        self.as_host.assume(self.target.as_ref())?;
        match self.other {
            Some(Other::Floor(floor)) => floor.run(),
            None => self.load(),
        }
    }

    fn load(self) -> anyhow::Result<()> {
        let target = self.target.as_ref().context("--target is missing")?;
        let jobs = self.jobs()?;
        self.refuse_without_consent(target)?;
        self.refuse_memory(&jobs)?;
        // before the job, not after it
        let record = self.record_trace.as_deref().map(writable).transpose()?;
        // Called before this thread is pinned: a pinned thread sees only its own CPU.
        let pair = Pair::new(self.cpu, self.server_cpu)?;
        if let Some(cpu) = self.cpu {
            cpu::pin_or_say(cpu)?;
        }
        let needs = Needs {
            queue_depth: jobs.iter().map(|j| j.queue_depth).max().unwrap_or(1),
            block_size: jobs.iter().map(|j| j.block_size).max().unwrap_or(4096),
            queues: self.queues,
            buffers: self.buffers.map_or(0, |size| size.0),
            idle: self.beside.idle_queues.min(load::host::idle::MAX_QUEUES),
            wait: self.wait.get(),
        };
        let mut host = Host::connect(target, self.doorbells, needs)?;
        // Installed only now, so that the first signal ends a command that waits for a drive.
        let interrupt = Interrupt::install()?;
        let mut output = Output {
            target: target.to_string(),
            nsid: self.nsid,
            doorbells: host
                .device()
                .doorbells()
                .map_or("none", load::host::doorbells_name),
            ring: self.ring.name(),
            idle_queues: self.beside.idle_queues,
            jobs: Vec::new(),
        };
        let done = self.measure(
            &mut host,
            needs,
            &jobs,
            &pair,
            &interrupt,
            (&mut output.jobs, record),
        );
        // If a later job failed, show the results of the earlier ones.
        match (output.jobs.is_empty(), self.json) {
            (true, _) => {}
            (false, true) => terminal::print_json(&output)?,
            (false, false) => {
                terminal::print(&crate::job::table(&output.jobs).to_string())?;
                let notes = output.jobs.iter().filter_map(JobReport::note);
                notes.for_each(|note| progress::note(&note));
            }
        }
        done?;
        host.leave_measured()?;
        verdict(&output.jobs)
    }

    /// Runs the jobs one after the other on the same queue pairs.
    fn measure(
        &self,
        host: &mut Host,
        needs: Needs,
        jobs: &[Job],
        pair: &Pair,
        interrupt: &Interrupt,
        (reports, record): (&mut Vec<JobReport>, Option<File>),
    ) -> anyhow::Result<()> {
        let csi = host.command_set(self.nsid)?;
        ensure!(
            csi != Csi::KEY_VALUE,
            "namespace {} holds keys and values: measure it with `nvmirage kv --target {} bench`",
            self.nsid,
            self.target.as_ref().context("--target is missing")?
        );
        let namespace = host.device().namespace(self.nsid)?;
        let mut queues: Vec<Queue> = (0..needs.queues)
            .map(|_| host.device().create_queue_pair(needs.queue_depth, false))
            .collect::<Result<_, _>>()?;
        let zones = match csi {
            Csi::ZONED_NAMESPACE => Some(self.zones(host, &mut queues[0], &namespace)?),
            _ => None,
        };
        if self.verify {
            let span = self.span.map_or(namespace.len(), |span| span.0);
            let span = span.min(namespace.len());
            host.refuse_forgetful(&mut queues[0], &namespace, span)?;
        }
        let mut besides = self.beside.open(host, self.doorbells, (needs, self.nsid))?;
        let mut recorder = record.is_some().then(Recorder::default);
        for job in jobs {
            let job = &Job {
                zones: zones.clone(),
                ..job.clone()
            };
            let report = one(
                host,
                &mut queues,
                &namespace,
                job,
                pair,
                (&mut besides, &mut recorder),
                interrupt,
            )?;
            reports.push(report);
            if interrupt.is_set() {
                bail!("interrupted: the last job's figures are of the time until then");
            }
        }
        for queue in queues {
            host.device().delete_queue_pair(queue)?;
        }
        besides.leave()?;
        match (recorder, record, &self.record_trace) {
            (Some(recorder), Some(file), Some(path)) => recorder.write(file, path),
            _ => Ok(()),
        }
    }

    /// Buffers that this machine has no memory for would end other programs.
    fn refuse_memory(&self, jobs: &[Job]) -> anyhow::Result<()> {
        let of_job = |job: &Job| {
            let in_flight = u64::from(job.queue_depth) * u64::from(self.queues);
            let needed = in_flight.saturating_mul(job.block_size.into());
            job.buffers.map_or(needed, |buffers| buffers.max(needed))
        };
        let needed = jobs.iter().map(of_job).max().unwrap_or(0);
        match available_memory() {
            Some(available) if needed > available => bail!(
                "the buffers of a job take {}, and this machine has {} of memory available: use fewer commands in flight, smaller blocks or smaller --buffers",
                Size(needed),
                Size(available)
            ),
            _ => Ok(()),
        }
    }

    /// The zones that jobs use: those that lie in `--span` as a whole.
    fn zones(
        &self,
        host: &mut Host,
        queue: &mut Queue,
        namespace: &Namespace,
    ) -> anyhow::Result<JobZones> {
        let nsid = self.nsid;
        ensure!(
            !self.verify,
            "--verify: namespace {nsid} has zones, whose blocks are written only once: remove the option"
        );
        let (common, mut zones) = host.zones(queue, namespace)?;
        let bytes = |blocks: u64| blocks.saturating_mul(namespace.block_len.into());
        let end = |zone: &Zone| bytes(zone.start + common.blocks);
        if let Some(span) = self.span {
            zones.retain(|zone| end(zone) <= span.0);
            let size = Size(bytes(common.blocks));
            ensure!(
                !zones.is_empty() || !self.rw.writes(),
                "--span {span}: zones of namespace {nsid} have {size}: write at least that"
            );
        }
        ensure!(
            !self.rw.writes() || self.beside.also().next().is_none(),
            "--also: jobs that write zones run on one drive: remove the option"
        );
        Ok(JobZones {
            common,
            zones,
            open: self.open_zones.unwrap_or(1),
        })
    }

    /// Rejects jobs that overwrite data unless `--destroy-data` is given.
    fn refuse_without_consent(&self, target: &Place) -> anyhow::Result<()> {
        let writes = match self.rw {
            Rw::RandRead | Rw::Read => false,
            Rw::RandRw => self.reads.is_none_or(|reads| reads < 100),
            Rw::RandWrite | Rw::Write | Rw::Append => true,
        };
        if self.destroy_data || !(writes || self.verify) {
            return Ok(());
        }
        let option = if writes {
            format!("--rw {}", self.rw)
        } else {
            "--verify".to_owned()
        };
        let places = std::iter::once(target).chain(self.beside.also());
        let places: Vec<String> = places.map(Place::to_string).collect();
        let part = self
            .span
            .map_or_else(String::new, |span| format!("the first {span} of "));
        let what = format!("{part}namespace {} of {}", self.nsid, places.join(", "));
        Err(consent::needed(&option, &what).into())
    }

    /// The jobs of the command line.
    ///
    /// # Errors
    /// Options that do not go together.
    pub fn jobs(&self) -> anyhow::Result<Vec<Job>> {
        if self.rw != Rw::Append && self.open_zones.is_some() {
            let text =
                "--open-zones is for --rw append; other jobs use a zone for each command in flight";
            return Err(UsageError(text.to_owned()).into());
        }
        if self.rw != Rw::RandRw && self.reads.is_some() {
            let text = "--reads is for --rw randrw: remove it";
            return Err(UsageError(text.to_owned()).into());
        }
        if self.time.0 < Duration::from_millis(1) {
            return Err(UsageError(format!("--time {}: write at least 1ms", self.time)).into());
        }
        if self.rw == Rw::Append && self.record_trace.is_some() {
            let text = "--record-trace: the drive chooses where an append writes, so a trace of them does not tell: use --rw write";
            return Err(UsageError(text.to_owned()).into());
        }
        let mut jobs = Vec::new();
        for bs in &self.bs {
            let block_size = load::host::check_block_size(bs.0)
                .map_err(|error| UsageError(format!("--bs {bs}: {error}")))?;
            for &queue_depth in &self.qd {
                jobs.push(Job {
                    name: format!("{}-{bs}-qd{queue_depth}", self.rw),
                    rw: self.rw,
                    reads_percent: self.reads.unwrap_or(50),
                    block_size,
                    queue_depth,
                    runtime: self.time.0,
                    verify: self.verify,
                    seed: self.seed,
                    span: self.span.map(|span| span.0),
                    buffers: self.buffers.map(|size| size.0),
                    pause: self.pause.map_or(Duration::ZERO, |span| span.0),
                    ring: self.ring,
                    zones: None,
                });
            }
        }
        Ok(jobs)
    }
}

/// Memory that can be allocated without swapping, in bytes.
fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let rest = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A file to be written later. Its contents stay until then.
fn writable(path: &Path) -> anyhow::Result<File> {
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(false).open(path);
    file.with_context(|| format!("cannot write {}", path.display()))
}

/// Runs one job with a progress line, and checks the placement before and after.
fn one(
    host: &mut Host,
    queues: &mut [Queue],
    namespace: &Namespace,
    job: &Job,
    pair: &Pair,
    (besides, recorder): (&mut Besides, &mut Option<Recorder>),
    interrupt: &Interrupt,
) -> anyhow::Result<JobReport> {
    let title = crate::job::title(job.rw.name(), job.block_size, job.queue_depth);
    let before = pair.look();
    let line = Line::new(&title, job.runtime);
    let clock = host.ticks();
    let others = besides.also();
    let mut beside = besides.of_job(host, namespace, job, &clock)?;
    let mut all = Beside::new(&mut beside, recorder.as_mut());
    let report = host.measure_on(queues, namespace, job, &mut all, &mut |now| {
        line.update(now);
        if interrupt.is_set() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    line.clear();
    let report = JobReport::of(&report?);
    let ((cold, _), also) = &mut beside;
    also.iter_mut().try_for_each(Neighbour::finish)?;
    let also = others.into_iter().zip(&*also).map(|(target, its)| {
        let report = JobReport::new(&its.result(), None);
        AlsoReport { target, report }
    });
    Ok(JobReport {
        also: also.collect(),
        queues: u16::try_from(queues.len())?,
        placement: Some(before.and(pair.look())),
        cold: cold.as_ref().and_then(cold_report),
        ..report
    })
}

/// The command fails if any job had errors.
fn verdict(jobs: &[JobReport]) -> anyhow::Result<()> {
    let all = |job: &'_ JobReport| {
        let also = job.also.iter().map(|other| other.report.clone());
        std::iter::once(job.clone()).chain(also).collect::<Vec<_>>()
    };
    let failed: Vec<String> = jobs
        .iter()
        .flat_map(all)
        .filter(|job| job.errors > 0)
        .map(|job| {
            let first = job.first_error.as_deref().unwrap_or("unknown status");
            format!("{}: {} errors; {first}", job.title(), job.errors)
        })
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    bail!("commands ended with errors\n{}", failed.join("\n"))
}
