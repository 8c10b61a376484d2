//! `nvmirage calibrate`: fits the parameters of a model to measurements of a drive.

mod document;
mod shown;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::config::drive::{self, Drive};
use api::config::timing::Timing;
use api::config::{Size, Span};
use machine::files::read_text;
use model::Parameters;
use terminal::{progress, units};

use self::document::{Document, Like};
use super::{UsageError, drive_size, read_at_most};
use crate::calibrate::{self, Given, Sample};

const EXAMPLES: &str = "\
Examples:
  nvmirage calibrate --from reads.json writes.json --size 375GB --name mine --output mine.toml
      A drive of latency, bandwidth and rate, from what nvmirage bench --json or fio
      --output-format=json has printed
  nvmirage calibrate --from reads.json --like optane-p4800x
      Values that were not measured are a preset's; nothing is written
  nvmirage calibrate --from fio.json --like samsung-970-pro --output mine.toml
      A flash drive: channels, dies and cells are the preset's, times are fitted
  nvmirage calibrate --from zones.json --like wd-zn540 --set zone_size=2GiB --set zone_capacity=1077MiB
      A zoned drive; identify shows its zone size
  nvmirage calibrate --from value-*.json --size 3840GB --output keys.toml
      A drive with keys, from what nvmirage kv bench --json has printed
  nvmirage explain mine.toml
      The calibrated drive, with confidence intervals";

/// Fit the parameters of a model to measurements of a drive
///
/// Reports which sweeps the fit needs and which are present; estimates the parameters that they
/// identify, with confidence intervals; lists those that they do not identify; and predicts points
/// that were left out of the fit. Reads JSON from nvmirage bench, nvmirage kv bench, nvmirage
/// simulate and fio.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Calibrate {
    /// Files with measurements
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    from: Vec<PathBuf>,

    /// Preset, or file that describes a drive: gives the kind, the geometry, and every parameter
    /// that was not measured; without it the kind is nvm, or kv if keys were measured
    #[arg(long, value_name = "PRESET")]
    like: Option<String>,

    /// Parameter known to differ from --like, such as the zone size; may be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "like")]
    set: Vec<String>,

    /// Size of the drive; default: that of --like
    #[arg(long, value_parser = drive_size)]
    size: Option<Size>,

    /// Host software overhead in each measured command
    #[arg(long, value_name = "TIME", default_value = "0ns")]
    host_cost: Span,

    /// Name of the calibrated drive
    #[arg(long, default_value = "calibrated")]
    name: String,

    /// Output file for the drive; must not exist
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Maximum size of a measurement file.
const FILE_MAX: u64 = 1 << 28;

impl Calibrate {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let like = self.like().map_err(UsageError)?;
        let (like, timing) = (
            like.as_ref().map(|like| &like.0),
            like.as_ref().map(|like| &like.1),
        );
        let size = self.size.or(like.map(|drive| Size(drive.size_bytes())));
        if self.output.is_some() && size.is_none() {
            return Err(UsageError("--size is missing: write the size of the drive".into()).into());
        }
        self.check_files()?;
        let (samples, passed_over) = self.samples()?;
        self.check_host_cost(&samples)?;
        let given = Given {
            samples: &samples,
            like: timing
                .zip(size)
                .map(|(timing, size)| of_size(timing, size))
                .transpose()?,
            host_ns: u64::try_from(self.host_cost.0.as_nanos())?,
            effort: 1,
        };
        let _line = progress::waiting("looking for the drive");
        let found = calibrate::calibrate(&given).map_err(|error| anyhow::anyhow!(error));
        let found = found.with_context(|| not_enough(samples.len(), &passed_over))?;
        let mut document = Document::new(&found, &samples, passed_over);
        if let (Some(path), Some(size)) = (&self.output, size) {
            let like = like.map(|drive| Like {
                drive,
                set: &self.set,
            });
            let file = document.preset(&found, &self.name, like, size);
            write_new(path, &file.to_text())?;
            document.written = Some(path.display().to_string());
        }
        if self.json {
            terminal::print_json(&document)
        } else {
            terminal::print(&shown::text(&document))
        }
    }

    /// A file that is named twice would make its noise appear smaller.
    fn check_files(&self) -> Result<(), UsageError> {
        let mut files = BTreeSet::new();
        let known = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        match self.from.iter().find(|path| !files.insert(known(path))) {
            None => Ok(()),
            Some(path) => Err(UsageError(format!(
                "--from: {} is named twice: its points would count twice",
                path.display()
            ))),
        }
    }

    /// A command takes longer than the host's part of it.
    fn check_host_cost(&self, samples: &[Sample]) -> Result<(), UsageError> {
        let host_ns = self.host_cost.0.as_nanos() as f64;
        match samples.iter().find(|sample| sample.mean_ns <= host_ns) {
            None => Ok(()),
            Some(sample) => Err(UsageError(format!(
                "--host-cost {}: a command of {} took {} as a whole; write the time of the host's software alone",
                self.host_cost,
                sample.title(),
                units::nanoseconds(sample.mean_ns)
            ))),
        }
    }

    /// The drive named by `--like`, with the values of `--set`.
    fn like(&self) -> Result<Option<(Drive, Timing)>, String> {
        let Some(name) = &self.like else {
            return Ok(None);
        };
        let mut timing = Timing::of(name.clone());
        let drive = timing.find(read_text)?.clone();
        for change in &self.set {
            let known = change.split_once('=');
            let known = known.filter(|(name, _)| drive.kind().parameter(name).is_ok());
            let (name, value) = known.ok_or_else(|| {
                format!(
                    "--set {change}: write NAME=VALUE, with a parameter of kind {}",
                    drive.kind().name()
                )
            })?;
            timing.write(name, value)?;
        }
        Ok(Some((drive, timing)))
    }

    /// All usable measurements, and the reasons why others are not usable.
    fn samples(&self) -> anyhow::Result<(Vec<Sample>, Vec<String>)> {
        let mut samples = Vec::new();
        let mut passed_over = Vec::new();
        for path in &self.from {
            let shown = path.display();
            let bytes = read_at_most(path, FILE_MAX)?;
            let read = calibrate::read(&bytes);
            let read =
                read.map_err(|why| anyhow::anyhow!("{shown} is not a measurement: {why}"))?;
            samples.extend(read.samples);
            let of_file = read.passed_over.iter();
            passed_over.extend(of_file.map(|why| format!("{shown}: {why}")));
        }
        Ok((samples, passed_over))
    }
}

/// Reasons shown at most with an error.
const REASONS: usize = 20;

/// Why no drive comes out, with what was found of the points that were passed over.
fn not_enough(points: usize, passed_over: &[String]) -> String {
    let are = if points == 1 { "is" } else { "are" };
    let points = document::points_in_words(points);
    let mut text = format!("{points} {are} not enough for a drive");
    for why in passed_over.iter().take(REASONS) {
        text += &format!("\npassed over: {why}");
    }
    if let Some(more) = passed_over.len().checked_sub(REASONS + 1) {
        text += &format!("\npassed over: {} more", more + 1);
    }
    text
}

/// The parameters of a drive of `size`.
fn of_size(timing: &Timing, size: Size) -> anyhow::Result<Parameters> {
    let parameters = timing.parameters(size.0);
    parameters.map_err(|problems| anyhow::anyhow!(problems.join("\n")))
}

/// Writes a file that does not exist yet.
fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let shown = path.display();
    let name = path.to_string_lossy();
    if !drive::is_file(&name) {
        return Err(UsageError(format!(
            "--output {shown}: the name of a preset's file contains a / or ends with .toml: write {shown}.toml"
        ))
        .into());
    }
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path);
    let mut file = file.with_context(|| format!("cannot create {shown}"))?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    written.with_context(|| format!("cannot write {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_points_were_passed_over_is_told_where_no_drive_comes_out() {
        assert!(!not_enough(1, &[]).contains("passed over"));
        let why = |count: usize| -> Vec<String> { (1..=count).map(|n| format!("w{n}")).collect() };
        let text = not_enough(0, &why(20));
        assert!(text.ends_with("\npassed over: w20"), "{text}");
        let text = not_enough(0, &why(22));
        assert!(text.ends_with("\npassed over: 2 more"), "{text}");
    }
}
