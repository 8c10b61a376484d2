//! `nvmirage calibrate`: the parameters of a model, from what was measured of a drive.

mod document;
mod shown;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use model::Parameters;

use self::document::Document;
use super::UsageError;
use crate::{
    calibrate::{self, Given, Sample},
    config::{
        Size, Span,
        drive::{self, Drive},
    },
    report,
};

const EXAMPLES: &str = "\
Examples:
  nvmirage calibrate --from reads.json writes.json --size 375GB --name mine --output mine.toml
      A drive of latency, bandwidth and rate, from what nvmirage bench --json or fio
      --output-format=json has printed
  nvmirage calibrate --from reads.json --like optane-p4800x
      What was not measured is that of a preset; nothing is written
  nvmirage calibrate --from fio.json --like samsung-970-pro --output mine.toml
      A drive of flash: channels, dies and cells are the preset's, times are looked for
  nvmirage explain mine.toml
      What was written, with intervals";

/// Find the parameters of a model from measurements of a drive
///
/// Says which sweeps it needs and which are there, finds what they identify, with intervals, says what they do not,
/// and how well points that took no part are foretold. Takes the JSON of nvmirage bench, nvmirage simulate and fio.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Calibrate {
    /// Measurements
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    from: Vec<PathBuf>,

    /// A preset, or a file that describes one: the kind of the drive, its shape, and all that was not measured; without one
    /// it is of kind nvm
    #[arg(long, value_name = "PRESET")]
    like: Option<String>,

    /// Size of the drive; default: that of --like
    #[arg(long)]
    size: Option<Size>,

    /// What a host's software added to each command that was measured
    #[arg(long, value_name = "TIME", default_value = "0ns")]
    host_cost: Span,

    /// What the drive is called
    #[arg(long, default_value = "calibrated")]
    name: String,

    /// Write the drive into this file, which must not exist
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Longest file of measurements.
const FILE_MAX: u64 = 1 << 28;

impl Calibrate {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let like = self.like.as_deref().map(Drive::find).transpose();
        let like = like.map_err(UsageError)?;
        let size = self
            .size
            .or(like.as_ref().map(|drive| Size(drive.size_bytes())));
        if self.output.is_some() && size.is_none() {
            return Err(UsageError("--size is missing: write that of the drive".into()).into());
        }
        let (samples, passed_over) = self.samples()?;
        let given = Given {
            samples: &samples,
            like: like
                .as_ref()
                .map(|drive| of_size(drive, size))
                .transpose()?,
            host_ns: u64::try_from(self.host_cost.0.as_nanos())?,
            effort: 1,
        };
        let found = calibrate::calibrate(&given).map_err(|error| anyhow::anyhow!(error));
        let found =
            found.with_context(|| format!("{} points do not make a drive", samples.len()))?;
        let mut document = Document::new(&found, &samples, passed_over);
        if let (Some(path), Some(size)) = (&self.output, size) {
            let file = document.preset(&found, &self.name, like.as_ref(), size);
            write_new(path, &file.to_text())?;
            document.written = Some(path.display().to_string());
        }
        match self.json {
            true => report::print_json(&document),
            false => report::print(&shown::text(&document)),
        }
    }

    /// Everything that was measured, and what of it is of no use.
    fn samples(&self) -> anyhow::Result<(Vec<Sample>, Vec<String>)> {
        let mut samples = Vec::new();
        let mut passed_over = Vec::new();
        for path in &self.from {
            let shown = path.display();
            let len = fs::metadata(path).map(|data| data.len());
            let len = len.with_context(|| format!("cannot read {shown}"))?;
            anyhow::ensure!(len <= FILE_MAX, "{shown} has more than {FILE_MAX} bytes");
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
            let read = calibrate::read(&text);
            let read = read.map_err(|why| anyhow::anyhow!("{shown} is no measurement: {why}"))?;
            samples.extend(read.samples);
            let of_file = read.passed_over.iter();
            passed_over.extend(of_file.map(|why| format!("{shown}: {why}")));
        }
        Ok((samples, passed_over))
    }
}

/// The parameters of a drive of `size`, or of its own.
fn of_size(drive: &Drive, size: Option<Size>) -> anyhow::Result<Parameters> {
    let size = size.map_or(drive.size_bytes(), |size| size.0);
    let parameters = drive.parameters(size, None);
    let parameters = parameters.map_err(|error| anyhow::anyhow!(error))?;
    parameters.check()?;
    Ok(parameters)
}

/// Writes a file that does not exist yet.
fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let shown = path.display();
    let name = path.to_string_lossy();
    if !drive::is_file(&name) {
        return Err(UsageError(format!(
            "--output {shown}: a preset's file has a name with a / or one that ends with .toml: write {shown}.toml"
        ))
        .into());
    }
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path);
    let mut file = file.with_context(|| format!("cannot make {shown}"))?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    written.with_context(|| format!("cannot write {shown}"))
}
