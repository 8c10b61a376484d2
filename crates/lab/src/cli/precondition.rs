//! `nvmirage precondition`: brings a modelled flash drive into the steady state of long use,
//! without hours of writes by a host.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use api::config::{self, Size, Timing};
use indicatif::{ProgressBar, ProgressStyle};
use machine::files::{may_be_regular, read_text};
use model::{Flash, FlashParameters, Method, Parameters, Progress};
use serde::Serialize;

use super::UsageError;
use super::set::{self, State};

const EXAMPLES: &str = "\
Examples:
  nvmirage precondition pro --config nvmirage.toml
      Medium `pro` of a configuration that is not served: its next start finds a drive in steady
      state
  nvmirage precondition --preset samsung-970-pro --size 64GiB --state pro.timing
      A state for [media.timing] state = \"pro.timing\" of any such drive

Every page is written in order, and then capacities of 4 KiB at random until write amplification
changes by less than 2 % from one to the next. Up to 64GiB every page operation is done; of a larger
drive the state is written down from that of a small one that was played (seeded), which the state
says, too.";

/// Functions of the server that the command calls.
#[derive(Clone, Copy)]
pub struct Media {
    /// The size in bytes of an existing medium, which is opened as a server does.
    pub size_of: fn(&config::Medium) -> anyhow::Result<u64>,
    /// Takes the file of a timing model's state, which may have up to so many bytes, and reads it.
    pub take: fn(&Path, u64) -> anyhow::Result<Taken>,
}

/// Replaces the content of a file.
pub type Replace = dyn FnMut(&[u8]) -> anyhow::Result<()>;

/// A state file that no server can take as long as this exists.
pub struct Taken {
    /// Contents of the file, if it exists.
    pub before: Option<Vec<u8>>,
    /// Replaces it.
    pub replace: Box<Replace>,
}

/// Drives of up to this many bytes are prepared by simulated writes; larger ones are seeded.
const PLAYED: u64 = 64 << 30;
/// Bins of the histogram of valid pages.
const BINS: usize = 10;

/// Bring a modelled flash drive into steady state
///
/// The drive's data is unchanged: only the page mapping and the wear, which determine latencies,
/// are written.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    group = clap::ArgGroup::new("which").required(true).args(["config", "preset"])
)]
pub struct Precondition {
    /// Medium of the configuration
    #[arg(requires = "config")]
    medium: Option<String>,

    /// Configuration file in TOML; no server may be using the medium
    #[arg(long, value_name = "FILE", requires = "medium")]
    config: Option<PathBuf>,

    /// Drive without a medium: PRESET[,NAME=VALUE...]
    #[arg(
        long,
        value_name = "PRESET",
        value_parser = without_a_medium,
        requires = "size",
        requires = "state",
        conflicts_with = "medium"
    )]
    preset: Option<Timing>,

    /// Size of the drive
    #[arg(long, requires = "preset")]
    size: Option<Size>,

    /// File for its state
    #[arg(long, value_name = "FILE", requires = "preset")]
    state: Option<PathBuf>,

    /// Extrapolate the state from that of a small drive, for any size
    #[arg(long)]
    seeded: bool,

    /// Seed of the random writes
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A drive that no configuration names. Its state is in the file of `--state`.
fn without_a_medium(text: &str) -> Result<Timing, String> {
    let timing = Timing::parse(text, read_text)?;
    if timing.state.is_some() {
        return Err("state: write --state FILE".to_owned());
    }
    set::check(&timing, ("precondition", State::Unused))?;
    Ok(timing)
}

/// A drive to prepare.
struct Drive {
    parameters: Box<FlashParameters>,
    state: PathBuf,
}

#[derive(Debug, Serialize)]
struct Report {
    method: &'static str,
    size_bytes: u64,
    write_amplification: f64,
    rounds: u32,
    page_operations: u64,
    seconds: f64,
    page_operations_per_s: f64,
    free_lines: usize,
    /// Share of full lines by their fraction of valid pages; bin `i` of ten starts at `i` tenths.
    lines_by_valid_pages: Vec<f64>,
    state: PathBuf,
    state_bytes: usize,
}

impl Precondition {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self, media: Media) -> anyhow::Result<()> {
        let Drive { parameters, state } = self.drive(media)?;
        let longest = Flash::max_state_len(parameters.size_bytes);
        let mut taken = (media.take)(&state, longest)?;
        if let Some(before) = taken.before
            && matches!(
                Flash::restore(&parameters, &before),
                Err(model::StateError::Unknown)
            )
        {
            bail!(
                "{} is not the state of a timing model: name another file, or remove it",
                state.display()
            );
        }
        let begun = Instant::now();
        let is_seeded = self.seeded || parameters.size_bytes > PLAYED;
        let (flash, prepared) = if is_seeded {
            Flash::seeded(&parameters, self.seed)?
        } else {
            let mut flash = Flash::new(&parameters)?;
            let bar = Bar::new();
            let prepared =
                flash.precondition_telling(self.seed, &mut |progress| bar.update(progress));
            bar.0.finish_and_clear();
            (flash, prepared)
        };
        let seconds = begun.elapsed().as_secs_f64();
        let mut bytes = Vec::new();
        flash.save(&mut bytes);
        (taken.replace)(&bytes)?;
        let state = std::path::absolute(state)?;
        let report = Report::of(&flash, prepared, seconds, state, bytes.len());
        if self.json {
            terminal::print_json(&report)
        } else {
            terminal::print(&report.in_words())
        }
    }

    fn drive(&self, media: Media) -> anyhow::Result<Drive> {
        let (timing, size, state) = match (&self.preset, self.size, &self.state, &self.config) {
            (Some(timing), Some(size), Some(state), _) => (timing.clone(), size.0, state.clone()),
            (.., Some(config)) => self.of_medium(config, media)?,
            _ => {
                return Err(UsageError(
                    "write MEDIUM --config FILE, or --preset, --size and --state".into(),
                )
                .into());
            }
        };
        let wrong = |problems: Vec<String>| anyhow::anyhow!(problems.join("\n"));
        match timing.parameters(size).map_err(wrong)? {
            Parameters::Flash(parameters) => Ok(Drive {
                parameters: Box::new(parameters),
                state,
            }),
            _ => bail!(
                "{} is not conventional flash: only that has a steady state",
                timing.preset
            ),
        }
    }

    fn of_medium(&self, file: &Path, media: Media) -> anyhow::Result<(Timing, u64, PathBuf)> {
        let name = self.medium.as_deref().unwrap_or_default();
        let config = config::from_file(file, read_text)?;
        let medium = config.media.into_iter().find(|medium| medium.name == name);
        let medium =
            medium.with_context(|| format!("{} has no medium `{name}`", file.display()))?;
        let timing = medium.timing.clone().with_context(|| {
            format!("medium {name} has no timing model, so preconditioning has no effect: add [media.timing]")
        })?;
        // Rejects what a server would reject: a file of another size, or with other contents.
        let found = match medium.file().filter(|file| file.path.exists()) {
            Some(_) => {
                let size = (media.size_of)(&medium);
                Some(size.with_context(|| format!("media {name}"))?)
            }
            None => None,
        };
        let size = medium.size().map(|size| size.0).or(found);
        let size =
            size.with_context(|| format!("medium {name} has no size: write size = \"64GiB\""))?;
        let state = medium.timing_state_file(may_be_regular).with_context(|| {
            format!("medium {name} does not save the state of its timing model: write state = \"{name}.timing\" under [media.timing]")
        })?;
        Ok((timing, size, state))
    }
}

/// Progress bar, on a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        // hidden where standard error is no terminal
        let bar = ProgressBar::new(1);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent}% {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Bar(bar)
    }

    fn update(&self, progress: Progress) {
        self.0.set_length(progress.pages);
        self.0.set_position(progress.written);
        self.0.set_message(match progress.round {
            0 => "written in order".to_owned(),
            1 => "of the first capacity at random".to_owned(),
            round => format!(
                "of capacity {round} at random; write amplification {}",
                ratio(progress.write_amplification_permille)
            ),
        });
    }
}

fn ratio(permille: u64) -> String {
    format!("{}.{:03}", permille / 1000, permille % 1000)
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    fn of(
        flash: &Flash,
        prepared: model::Prepared,
        seconds: f64,
        state: PathBuf,
        state_bytes: usize,
    ) -> Self {
        let lines = flash.valid_histogram(BINS);
        let all: u64 = lines.iter().sum();
        let share = |count: u64| count as f64 / all.max(1) as f64;
        Report {
            method: match prepared.method {
                Method::Played => "played",
                Method::Seeded => "seeded",
            },
            size_bytes: flash.geometry().pages() * 4096,
            write_amplification: prepared.write_amplification_permille as f64 / 1000.0,
            rounds: prepared.rounds,
            page_operations: prepared.page_operations,
            seconds,
            page_operations_per_s: prepared.page_operations as f64 / seconds,
            free_lines: flash.free_lines(),
            lines_by_valid_pages: lines.into_iter().map(share).collect(),
            state,
            state_bytes,
        }
    }

    fn in_words(&self) -> String {
        let how = match self.method {
            "played" => "every page operation was done",
            _ => {
                "written down from a small drive that was played; no line says how often it was erased"
            }
        };
        let mut words = format!(
            "{}: {how}\nwrite amplification {:.3}, after {} capacities of random 4 KiB\n{} page operations in {:.1} s, {:.1} million a second\n",
            self.method,
            self.write_amplification,
            self.rounds,
            self.page_operations,
            self.seconds,
            self.page_operations_per_s / 1e6
        );
        words += "full lines by valid pages:";
        for (bin, share) in self.lines_by_valid_pages.iter().enumerate() {
            if *share > 0.0 {
                words += &format!("  {}0%: {:.1}%", bin, share * 100.0);
            }
        }
        words += &format!(
            "\nits state is in {}, {}\n",
            self.state.display(),
            terminal::units::bytes(self.state_bytes as u64)
        );
        words
    }
}
