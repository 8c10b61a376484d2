//! `nvmirage simulate`: runs a workload on a modelled drive in virtual time.

mod plot;
mod shown;
mod sweep;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use api::config::drive::Drive;
use api::config::{Initial, Size, Span, Timing};
use driver::workload::{Phase, Progress as JobProgress};
use load::trace::reading::{self, Part};
use machine::files::read_text;
use model::Kind;
use serde_json::json;
use sha2::{Digest, Sha256};
use simulate::output::{self, Document, Run};
use simulate::{HostCost, Plan, Progress, Workload, fio, trace};
use terminal::interrupt::Interrupt;
use terminal::progress;

use self::sweep::{Key, Point, Sweep};
use super::set::{State, read_state, set_all};
use super::{UsageError, drive_size, read_at_most};
use crate::line::Line;

const EXAMPLES: &str = "\
Examples:
  nvmirage simulate --preset optane-p4800x --workload random-reads.fio --virtual-time 1s
      A fio job file on a drive, for one second of virtual time
  nvmirage simulate --preset samsung-970-pro --size 8GiB --workload fill-and-write.fio --virtual-time 10min --warmup 1min --plot out.svg
      Throughput over time, when collection starts
  nvmirage simulate --preset samsung-970-pro --size 8GiB --workload mix.fio --virtual-time 30s --sweep iodepth=1,4,16,64 --sweep overprovisioning=7%,28% --json
      Eight simulations, all depths with both values of overprovisioning
  nvmirage simulate --preset samsung-970-pro --size 8GiB --workload mix.fio --virtual-time 1s --sweep iodepth=1,4,16,64 --sweep bs=4k,64k --plot-sweep depth.svg
      Rate and latency over the depth, with a line for each size
  nvmirage simulate --preset optane-p4800x --workload recorded.trace --virtual-time 1h --set read_latency=8us
      Arrivals recorded by `nvmirage bench --record-trace`, on a faster drive
  nvmirage simulate --preset samsung-970-pro --size 64GiB --workload mix.fio --virtual-time 10s --set state=pro.timing
      A drive in the state that `nvmirage precondition --state pro.timing` has written
  nvmirage simulate --preset samsung-970-pro --trace vm1.trace --virtual-time 60s
      A guest's trace of `nvmirage trace start`, on a model of another drive
  nvmirage simulate --preset samsung-kvssd --workload mix.fio --virtual-time 10s --sweep bs=512,4k,64k
      The same job file on keys: a key for each place, a value as large as a command

The same command line gives the same output, bit for bit, on any machine.";

/// Simulate a workload on a modelled drive, in virtual time
///
/// The simulation does not wait: an hour of the drive's time takes as long as its computation.
/// Hosts, controller and engine are those that serve real drives; no data is moved.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Simulate {
    /// Preset, or file that describes a drive; nvmirage explain lists the presets
    #[arg(long, add = super::presets())]
    preset: String,

    /// Size of the drive; default: the real drive's
    #[arg(long, value_parser = drive_size)]
    size: Option<Size>,

    /// Parameter that differs from the preset, or state=FILE: the state that the drive begins with,
    /// written by nvmirage precondition, nvmirage clone or a server; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,

    /// Workload: a fio job file, or a trace
    #[arg(long, visible_alias = "trace", value_name = "FILE")]
    workload: PathBuf,

    /// Maximum duration in virtual time
    #[arg(long, value_name = "TIME")]
    virtual_time: Span,

    /// Warm-up time, excluded from the results; the series includes it
    #[arg(long, value_name = "TIME", default_value = "0s")]
    warmup: Span,

    /// Interval of the series; default: a hundredth of --virtual-time
    #[arg(long, value_name = "TIME")]
    interval: Option<Span>,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Host software overhead for each submission and each completion
    #[arg(long, value_name = "TIME[,TIME]", default_value = "0ns", value_parser = host_cost)]
    host_cost: HostCost,

    /// Values of a parameter or of a job-file key, one run each; several sweeps multiply
    #[arg(long, value_name = "KEY=A,B,C")]
    sweep: Vec<Sweep>,

    /// Device of a trace, or file (directory/filename) of sections of a job file, if there are
    /// several; a simulation has one drive
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Wrap offsets of a trace beyond the end of the drive
    #[arg(long)]
    wrap: bool,

    /// Queue depth per queue of a trace; default: 1023
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4095))]
    trace_depth: Option<u16>,

    /// Start with a preconditioned flash drive, as after `nvmirage precondition` (initial=steady);
    /// default: a drive of which every block was written once, in order (initial=filled)
    #[arg(long, conflicts_with = "fresh")]
    prepared: bool,

    /// Start with a flash drive on which nothing is written (initial=fresh): reads of blocks that
    /// the workload has not written cost no sense
    #[arg(long)]
    fresh: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// File for the series as a CSV table
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// File for a plot of the series as SVG
    #[arg(long, value_name = "FILE", value_parser = crate::cli::picture::file)]
    plot: Option<PathBuf>,

    /// File for a plot of the results over the values of the first --sweep as SVG; further sweeps
    /// are lines
    #[arg(long, value_name = "FILE", value_parser = crate::cli::picture::file, requires = "sweep")]
    plot_sweep: Option<PathBuf>,
}

fn host_cost(text: &str) -> Result<HostCost, String> {
    let mut times = text.split(',').map(|time| time.parse().map(nanoseconds));
    let submission_ns = times.next().unwrap_or(Ok(0))?;
    let completion_ns = times.next().unwrap_or(Ok(submission_ns))?;
    match times.next() {
        None => Ok(HostCost {
            submission_ns,
            completion_ns,
        }),
        Some(_) => Err("write one time, or two: for a submission and for a completion".into()),
    }
}

fn nanoseconds(span: Span) -> u64 {
    u64::try_from(span.0.as_nanos()).unwrap_or(u64::MAX)
}

/// Default of `--trace-depth`.
const TRACE_DEPTH: u16 = 1023;
/// Bytes of a job file or a trace at most: it is read as a whole.
const WORKLOAD_MAX: u64 = 4 << 30;
/// Rows of a series at most.
const ROWS_MAX: u64 = 1_000_000;

fn read(path: &Path) -> anyhow::Result<String> {
    let bytes = read_at_most(path, WORKLOAD_MAX)?;
    if trace::is_binary(&bytes) {
        let text = trace::text_of_binary(&bytes).map_err(|why| anyhow::anyhow!(why));
        return text.with_context(|| format!("cannot read {}", path.display()));
    }
    for (magic, what) in [
        (&b"\x1f\x8b"[..], "compressed by gzip"),
        (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
        (b"BZh", "compressed by bzip2"),
        (b"\xfd7zXZ", "compressed by xz"),
        (b"PK\x03\x04", "a zip archive"),
        (b"PAR1", "a Parquet table"),
    ] {
        anyhow::ensure!(
            !bytes.starts_with(magic),
            "{} is {what}, which is not read: unpack it into text first",
            path.display()
        );
    }
    if reading::is_recorded(&bytes) {
        let loaded = reading::load(path, &Part::default())?;
        loaded.notes().iter().for_each(|note| progress::note(note));
        let (text, left_out) = reading::as_text(&loaded.records)?;
        if let Some(said) = reading::said(&left_out) {
            progress::note(&said);
        }
        return Ok(text);
    }
    String::from_utf8(bytes).with_context(|| {
        format!(
            "{} is not a text file: name a fio job file or a trace",
            path.display()
        )
    })
}

impl Simulate {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let drive = Drive::find(&self.preset, read_text).map_err(UsageError)?;
        if let Some(flag) = self.flag()
            && drive.kind() != Kind::Flash
        {
            return Err(UsageError(format!(
                "{flag} is only for presets of kind flash, and {} is of kind {}: remove it",
                drive.name(),
                drive.kind().name()
            ))
            .into());
        }
        if self.warmup.0 >= self.virtual_time.0 {
            return Err(UsageError(format!(
                "--warmup {} leaves no time of --virtual-time {} to measure",
                self.warmup, self.virtual_time
            ))
            .into());
        }
        self.check_interval()?;
        let text = read(&self.workload)?;
        self.check_trace_options(&text)?;
        let state = self.state(&drive)?;
        let points = sweep::points(&self.sweep, drive.kind()).map_err(UsageError)?;
        if let Some(point) = points.first().filter(|_| !trace::is_trace(&text))
            && let Workload::Jobs(jobs) = self.workload(drive.kind(), &text, point)?
        {
            fio::notes(&jobs)
                .iter()
                .for_each(|note| progress::note(note));
        }
        let interrupt = Interrupt::install()?;
        let mut runs = Vec::new();
        for point in &points {
            let run = self.simulate(&drive, (&text, state.clone()), point, &interrupt)?;
            let interrupted = run.interrupted;
            runs.push(run);
            if interrupted {
                break;
            }
        }
        let document = Document {
            nvmirage: env!("CARGO_PKG_VERSION"),
            configuration: self.configuration(&drive, &text, state.as_deref())?,
            runs,
        };
        self.tell(&document)?;
        verdict(&document.runs)
    }

    /// The state that the drive begins with, read once for all runs.
    fn state(&self, drive: &Drive) -> anyhow::Result<Option<Arc<[u8]>>> {
        let timing = self.timing(&Point::default())?;
        let of_set = timing.initial.map(|_| "--set initial=");
        let of_state = timing.state.as_ref().map(|_| "--set state=FILE");
        let both = [self.flag(), of_set, of_state];
        if let [one, other, ..] = both.into_iter().flatten().collect::<Vec<_>>()[..] {
            return Err(UsageError(format!(
                "{one} and {other} both say how the drive begins: remove one of them"
            ))
            .into());
        }
        let Some(path) = timing.state else {
            return Ok(None);
        };
        let state = read_state(&path, self.size_of(drive))
            .with_context(|| format!("cannot begin with state={}", path.display()))?;
        Ok(Some(state.into()))
    }

    /// The flag that says how the drive begins.
    fn flag(&self) -> Option<&'static str> {
        match (self.prepared, self.fresh) {
            (true, _) => Some("--prepared"),
            (_, true) => Some("--fresh"),
            _ => None,
        }
    }

    /// The state of a new drive; `None` for a kind without one.
    fn initial(&self, timing: &Timing) -> Option<Initial> {
        let of_drive = timing.initial()?;
        Some(match (self.prepared, self.fresh) {
            (true, _) => Initial::Steady,
            (_, true) => Initial::Fresh,
            _ => of_drive,
        })
    }

    /// Runs one point of the sweep.
    fn simulate(
        &self,
        drive: &Drive,
        (text, state): (&str, Option<Arc<[u8]>>),
        point: &Point,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Run> {
        let size = self.size_of(drive);
        let timing = self.timing(point)?;
        let parameters = timing.parameters(size);
        let parameters = parameters.map_err(|problems| UsageError(problems.join("\n")))?;
        let initial = self.initial(&timing);
        let plan = Plan {
            warmup_ns: nanoseconds(self.warmup),
            interval_ns: self.interval_ns(),
            cost: self.host_cost,
            wrap: self.wrap,
            trace_depth: self.trace_depth.unwrap_or(TRACE_DEPTH),
            initial: initial.map_or(model::Initial::Fresh, Into::into),
            state,
            ..Plan::new(
                self.workload(drive.kind(), text, point)?,
                nanoseconds(self.virtual_time),
                self.seed,
            )
        };
        let line = Line::new(&point.title(&self.preset), self.virtual_time.0);
        let ran = simulate::run(&parameters, size, &plan, &mut |now: Progress| {
            line.update(JobProgress {
                phase: Phase::Measure,
                commands: now.commands,
                elapsed_ns: now.virtual_ns,
            });
            if interrupt.is_set() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        line.clear();
        let ran = ran.with_context(|| format!("cannot simulate {}", self.workload.display()))?;
        Ok(Run::new(&ran, point.named()))
    }

    fn size_of(&self, drive: &Drive) -> u64 {
        self.size.map_or(drive.size_bytes(), |size| size.0)
    }

    /// A series of an interval that is too short would fill the memory.
    fn check_interval(&self) -> Result<(), UsageError> {
        let Some(interval) = self.interval else {
            return Ok(());
        };
        let shortest = (nanoseconds(self.virtual_time) / ROWS_MAX).max(1);
        if nanoseconds(interval) < shortest {
            let at_least = Span(Duration::from_nanos(shortest));
            return Err(UsageError(format!(
                "--interval {interval}: write at least {at_least}, for {ROWS_MAX} rows in --virtual-time {}",
                self.virtual_time
            )));
        }
        Ok(())
    }

    /// Options of traces have no effect on a job file.
    fn check_trace_options(&self, text: &str) -> Result<(), UsageError> {
        let options = [
            ("--wrap", self.wrap),
            ("--trace-depth", self.trace_depth.is_some()),
        ];
        let given = options.into_iter().find(|(_, is_given)| *is_given);
        match given.filter(|_| !trace::is_trace(text)) {
            None => Ok(()),
            Some((option, _)) => Err(UsageError(format!(
                "{option} is only for traces, and {} is a job file: remove it",
                self.workload.display()
            ))),
        }
    }

    fn interval_ns(&self) -> u64 {
        let whole = nanoseconds(self.virtual_time);
        self.interval.map_or(whole / 100, nanoseconds).max(1)
    }

    /// The preset with the changes of `--set` and of the point.
    fn timing(&self, point: &Point) -> anyhow::Result<Timing> {
        let mut timing = Timing::of(self.preset.clone());
        set_all(&mut timing, &self.set, ("simulate", State::Read))?;
        for (name, value) in point.of(Key::Parameter) {
            timing.write(name, value).map_err(UsageError)?;
        }
        timing.find(read_text).map_err(UsageError)?;
        Ok(timing)
    }

    fn workload(&self, kind: Kind, text: &str, point: &Point) -> anyhow::Result<Workload> {
        let place = || self.workload.display().to_string();
        let overrides: Vec<(String, String)> = point
            .of(Key::Job)
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        if trace::is_trace(text) {
            if let Some((name, _)) = overrides.first() {
                return Err(UsageError(format!(
                    "--sweep {name}: a trace has no keys; sweep a parameter of the drive"
                ))
                .into());
            }
            let trace = trace::parse_of(text, self.device.as_deref());
            return Ok(Workload::Trace(trace.with_context(place)?));
        }
        if !fio::is_job_file(text) {
            return Err(anyhow::anyhow!(trace::not_a_trace(text))).with_context(place);
        }
        let with = fio::With {
            overrides: &overrides,
            keyed: kind == Kind::Kv,
            file: self.device.as_deref(),
        };
        let jobs = fio::parse_with(text, &with).with_context(place)?;
        Ok(Workload::Jobs(jobs))
    }

    /// Every input of the runs.
    fn configuration(
        &self,
        drive: &Drive,
        text: &str,
        state: Option<&[u8]>,
    ) -> anyhow::Result<serde_json::Value> {
        let size = self.size_of(drive);
        let timing = self.timing(&Point::default())?;
        let parameters = timing.parameters(size);
        let parameters = parameters.map_err(|problems| UsageError(problems.join("\n")))?;
        let rows = drive.kind().parameters();
        let values: serde_json::Map<String, serde_json::Value> = rows
            .map(|row| (row.name.to_owned(), row.get(&parameters).to_string().into()))
            .collect();
        Ok(json!({
            "preset": drive.name(),
            "size_bytes": size,
            "parameters": values,
            "workload_sha256": sha256(text.as_bytes()),
            "virtual_time_ns": nanoseconds(self.virtual_time),
            "warmup_ns": nanoseconds(self.warmup),
            "interval_ns": self.interval_ns(),
            "seed": self.seed,
            "host_submission_ns": self.host_cost.submission_ns,
            "host_completion_ns": self.host_cost.completion_ns,
            "device": self.device,
            "wrap": self.wrap,
            "trace_depth": self.trace_depth.unwrap_or(TRACE_DEPTH),
            "initial": self.initial(&timing).filter(|_| state.is_none()).map(Initial::name),
            "state_sha256": state.map(sha256),
        }))
    }

    fn tell(&self, document: &Document<'_>) -> anyhow::Result<()> {
        let write = |path: &Path, text: &str| {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        if let Some(path) = &self.csv {
            write(path, &output::csv(&document.runs))?;
        }
        if let Some(path) = &self.plot {
            write(path, &plot::svg(&self.preset, &document.runs)?)?;
        }
        if let Some(path) = &self.plot_sweep {
            write(path, &plot::swept(&self.preset, &document.runs)?)?;
        }
        if self.json {
            terminal::print_json(document)
        } else {
            terminal::print(&shown::text(&document.runs))
        }
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fails if any command failed.
fn verdict(runs: &[Run]) -> anyhow::Result<()> {
    let failed = runs
        .iter()
        .flat_map(|run| &run.jobs)
        .find(|job| job.errors > 0);
    if let Some(job) = failed {
        anyhow::bail!(
            "{} commands of [{}] failed, the first one with: {}",
            job.errors,
            job.name,
            job.first_error.as_deref().unwrap_or_default()
        );
    }
    if runs.iter().any(|run| run.interrupted) {
        anyhow::bail!("interrupted: the figures are of the time until then");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_costs_one_time_or_two() {
        let cost = |text| host_cost(text).map(|cost| (cost.submission_ns, cost.completion_ns));
        assert_eq!(cost("0ns"), Ok((0, 0)));
        assert_eq!(cost("2us"), Ok((2000, 2000)));
        assert_eq!(cost("2us,500ns"), Ok((2000, 500)));
        for wrong in ["", "2", "1us,2us,3us", "1us,"] {
            assert!(cost(wrong).is_err(), "{wrong}");
        }
    }
}
