//! `nvmirage fidelity`: how close a modelled drive is to its target.
//!
//! The report keeps three claims apart: the model against an independent implementation of its
//! definition (the oracle), the host's clock against the model, and the model against real drives.

mod compound;
mod courses;
mod measure;
mod plots;
mod published;
mod real;
mod replay;
mod shown;
mod target;

use std::path::{Path, PathBuf};

use api::config::drive::Drive;
use driver::bus::place::Place;
use driver::workload::{Phase, Progress};
use machine::cpu;
use machine::files::read_text;
use model::Parameters;
use model::preset::{self, Preset};
use serde::Serialize;
use terminal::interrupt::Interrupt;

use self::compound::Compound;
use self::courses::Course;
pub use self::courses::interrupted;
use self::measure::{Errors, PointReport};
use self::real::Setup;
pub use self::real::{Serve, Stop};
use self::target::Behind;
use super::as_host::AsHost;
use super::{UsageError, consent};
use crate::line::Line;

const EXAMPLES: &str = "\
Examples:
  nvmirage fidelity --preset optane-p4800x
      All points of one drive, ten runs each
  nvmirage fidelity --no-real
      Without real runs: all drives against the oracle and against published figures
  nvmirage fidelity --json > fidelity.json
      Everything, as JSON
  nvmirage fidelity --replay recorded.trace
      Replay the recording of a served drive in virtual time
  nvmirage fidelity --target nvme-tcp:192.0.2.10:4420/nqn.2026-11.example:a --preset optane-p4800x --destroy-data
      A drive behind a transport: the error with it, and its part

The book's \"Accuracy of the timing models\" describes each column.";

/// Compare modelled drives with their definition, with host-side measurements, and with real drives
///
/// Each point is a closed loop of commands of one size. The oracle is a second implementation of
/// the models' definition, whose results are recorded. Virtual time runs driver, controller, engine
/// and model on a simulated clock. The real runs serve the drive from one CPU and load it from
/// another, beside a null drive.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Fidelity {
    /// Preset; may be repeated; default: all. nvmirage explain lists them
    #[arg(long, value_name = "NAME")]
    preset: Vec<String>,

    /// Text in the names of the points to run, as in "read 4096 qd1 "
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,

    /// Number of real runs per point
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    /// Skip the real runs
    #[arg(long)]
    no_real: bool,

    /// CPU of the host; default: one on another core than the drive's
    #[arg(long, value_name = "CPU")]
    cpu: Option<u32>,

    /// CPU of the drive
    #[arg(long, value_name = "CPU")]
    server_cpu: Option<u32>,

    /// Recording of a medium with `record` in its timing, to replay and compare completion times
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "only", "runs", "no_real", "cpu", "server_cpu", "plots"])]
    replay: Option<PathBuf>,

    /// Address of a served drive of the preset: its points are measured there, with the transport.
    /// Overwrites data
    #[arg(
        long,
        value_name = "nvme-tcp:HOST:PORT/NQN|vfio-user:PATH",
        value_parser = served,
        requires = "preset",
        conflicts_with_all = ["no_real", "server_cpu", "plots", "replay"]
    )]
    target: Option<Place>,

    /// Namespace of the drive behind --target
    #[arg(long, value_name = "N", default_value_t = 1, requires = "target", value_parser = clap::value_parser!(u32).range(1..))]
    nsid: u32,

    /// Namespace of a null medium without `timing` behind the same controller: measure the
    /// transport's part. Overwrites its data
    #[arg(long, value_name = "N", requires = "target", value_parser = clap::value_parser!(u32).range(1..))]
    null_nsid: Option<u32>,

    /// Allow data behind --target to be overwritten
    #[arg(long, requires = "target")]
    destroy_data: bool,

    #[command(flatten)]
    as_host: AsHost,

    /// Folder for SVG plots of the results, as the paper's figures 3, 4 and 5; those of 5b and 5c
    /// are measured for it
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The complete report.
#[derive(Debug, Serialize)]
struct Report {
    nvmirage: &'static str,
    /// Real runs of each point; 0 for none.
    runs: u32,
    points: Vec<PointReport>,
    /// Delays of commands as hosts saw them, and excluded ones, by preset.
    emulation: Vec<Emulation>,
    /// Eight stores of 4 KiB, separately and in one command, by the published program's rules.
    compound: Vec<Compound>,
    /// Throughput over time; only with figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    courses: Vec<Course>,
    /// Workers that append to one zone; only with figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    one_zone: Vec<PointReport>,
}

#[derive(Debug, Serialize)]
struct Emulation {
    preset: String,
    errors: Errors,
    excluded_commands: u64,
    host_stalls: u64,
    host_stalled_ns: u64,
    /// Runs that were repeated because the machine disturbed them.
    disturbed_runs: u64,
}

/// The address of a served drive.
fn served(text: &str) -> Result<Place, String> {
    match text.parse()? {
        Place::Pci(_) => Err("a drive of this machine has no model, and its data would be lost: write nvme-tcp:HOST:PORT/NQN or vfio-user:PATH".into()),
        place => Ok(place),
    }
}

impl Fidelity {
    /// Measures, and prints the report. `serve`: how the program serves a drive.
    ///
    /// # Errors
    /// A drive cannot be served or measured, or the report cannot be written.
    pub fn run(self, serve: Serve) -> anyhow::Result<()> {
        if self.target.is_none() && !self.as_host.is_default() {
            let text = "options such as --hostnqn and --hdr-digest say how to connect to a --target: add it, or leave them out";
            return Err(UsageError(text.to_owned()).into());
        }
        if let Some(file) = &self.replay {
            return replay::run(file, self.json);
        }
        let presets = self.presets()?;
        if let Some(place) = &self.target {
            return self.behind(place, &presets);
        }
        let interrupt = Interrupt::install()?;
        let cpus = if self.no_real {
            None
        } else {
            Some(self.setup(serve)?)
        };
        let mut report = Report {
            nvmirage: env!("CARGO_PKG_VERSION"),
            runs: if self.no_real { 0 } else { self.runs },
            points: Vec::new(),
            emulation: Vec::new(),
            compound: Vec::new(),
            courses: Vec::new(),
            one_zone: Vec::new(),
        };
        for preset in presets {
            self.look_at(preset, cpus, &interrupt, &mut report)?;
            if interrupt.is_set() {
                break;
            }
        }
        if report.points.is_empty() && report.courses.is_empty() && !interrupt.is_set() {
            return Err(self.no_point().into());
        }
        if self.json {
            terminal::print_json(&report)?;
        } else {
            terminal::print(&report.in_words())?;
        }
        report.verdict()
    }

    /// Measures a drive behind a transport.
    fn behind(&self, place: &Place, presets: &[&Preset]) -> anyhow::Result<()> {
        let [preset] = presets else {
            let text = "--target: write one --preset, that of the drive";
            return Err(UsageError(text.to_owned()).into());
        };
        let drive = measure::Drive::new(preset, &self.only, false)?;
        if matches!(drive.parameters, Parameters::Kv(_)) {
            let text = format!(
                "--target: {} holds keys, whose points are measured without a target only; `nvmirage kv bench` measures it there",
                preset.full_name()
            );
            return Err(UsageError(text).into());
        }
        if drive.points.measured.is_empty() {
            return Err(self.no_point().into());
        }
        if !self.destroy_data {
            let namespaces = match self.null_nsid {
                None => format!("namespace {}", self.nsid),
                Some(null) => format!("namespaces {} and {null}", self.nsid),
            };
            return Err(consent::needed("--target", &format!("{namespaces} of {place}")).into());
        }
        if self.null_nsid == Some(self.nsid) {
            let text = "--null-nsid: that is the drive: name a namespace of a null medium";
            return Err(UsageError(text.to_owned()).into());
        }
        self.as_host.assume(Some(place))?;
        if let Some(cpu) = self.cpu {
            cpu::pin_or_say(cpu)?;
        }
        let behind = Behind {
            place,
            nsid: self.nsid,
            null_nsid: self.null_nsid,
        };
        let interrupt = Interrupt::install()?;
        let progress = self.progress(preset, &interrupt);
        let report = target::run(&drive, preset, behind, self.runs, progress)?;
        if self.json {
            terminal::print_json(&report)
        } else {
            terminal::print(&report.in_words())
        }
    }

    /// Shows the numbers of finished runs and of commands, and returns whether to continue.
    fn progress(&self, preset: &Preset, interrupt: &Interrupt) -> impl FnMut(u64, u64) -> bool {
        let whole = std::time::Duration::from_secs(self.runs.into());
        let line = Line::new(&preset.full_name(), whole);
        let mut commands = 0;
        move |done, more| {
            commands += more;
            line.update(Progress {
                phase: Phase::Measure,
                commands,
                elapsed_ns: done * 1_000_000_000,
            });
            !interrupt.is_set()
        }
    }

    fn no_point(&self) -> UsageError {
        UsageError(format!(
            "--only {:?}: no point has that in its name; they are called as in \"read 4096 qd1 x1\"",
            self.only
        ))
    }

    fn presets(&self) -> anyhow::Result<Vec<&'static Preset>> {
        if self.preset.is_empty() {
            return Ok(preset::presets().collect());
        }
        let found = self.preset.iter().map(|name| match Drive::find(name, read_text)? {
            Drive::Known(preset) => Ok(preset),
            Drive::File(_) => Err(format!(
                "--preset {name}: the oracle was asked of the program's own presets only; nvmirage simulate takes files"
            )),
        });
        let found: Result<Vec<_>, String> = found.collect();
        Ok(found.map_err(UsageError)?)
    }

    fn setup(&self, serve: Serve) -> anyhow::Result<Setup> {
        let pair = match (self.cpu, self.server_cpu) {
            (Some(host), Some(server)) => Some((host, server)),
            (Some(host), None) => cpu::apart(host)?.map(|server| (host, server)),
            (None, Some(server)) => cpu::apart(server)?.map(|host| (host, server)),
            (None, None) => cpu::pair()?,
        };
        match pair.filter(|(host, server)| host != server) {
            Some((host, server)) => Ok(Setup {
                host,
                server,
                serve,
            }),
            None => Err(UsageError(
                "host and drive need a CPU each: give this process two, or --no-real".into(),
            )
            .into()),
        }
    }

    fn look_at(
        &self,
        preset: &Preset,
        cpus: Option<Setup>,
        interrupt: &Interrupt,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let mut drive = measure::Drive::new(preset, &self.only, self.plots.is_some())?;
        if let Some(cpus) = cpus {
            let progress = self.progress(preset, interrupt);
            drive.run_for_real(cpus, self.runs, progress)?;
            report.emulation.push(drive.emulation()?);
        }
        let points = drive.points()?;
        let compound = drive.compound()?;
        if let Some(folder) = &self.plots {
            plots::draw(folder, &drive, &points)?;
            plots::compound(folder, compound.as_ref(), &points)?;
            if !interrupt.is_set() {
                let real = cpus.map(|cpus| (cpus, interrupt));
                self.look_further(preset, real, folder, &points, report)?;
            }
        }
        report.points.extend(points);
        report.compound.extend(compound);
        Ok(())
    }

    /// Measures what only the figures show.
    fn look_further(
        &self,
        preset: &Preset,
        real: Option<(Setup, &Interrupt)>,
        folder: &Path,
        points: &[PointReport],
        report: &mut Report,
    ) -> anyhow::Result<()> {
        if let Some(course) = courses::collection(preset, real, &self.only)? {
            plots::collection(folder, &course)?;
            report.courses.push(course);
        }
        if let Some(zones) = courses::zones(preset, real, self.runs, &self.only)? {
            plots::zones(folder, points, &zones)?;
            report.courses.push(zones.course);
            report.one_zone.extend(zones.one_zone);
        }
        Ok(())
    }
}

impl Report {
    /// Only the first claim passes or fails; the others are figures.
    fn verdict(&self) -> anyhow::Result<()> {
        let differ = |point: &&PointReport| point.oracle_ns != Some(point.virtual_ns);
        let differing = self.points.iter().filter(differ).count();
        anyhow::ensure!(
            differing == 0,
            "{differing} points take another time than the oracle says: cargo xtask oracle shows the first difference"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_of_this_machine_is_not_overwritten() {
        for text in [
            "nvme-tcp:192.0.2.10:4420/nqn.2026-11.example:a",
            "vfio-user:/run/a.sock",
        ] {
            assert_eq!(served(text).unwrap().to_string(), text);
        }
        let error = served("pci:0000:01:00.0").unwrap_err();
        assert!(error.contains("has no model"), "{error}");
    }
}
