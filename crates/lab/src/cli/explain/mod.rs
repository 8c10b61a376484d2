//! `nvmirage explain`: shows the parameters of a preset, the performance that follows from them at
//! a size, and published figures of the real drive.

mod shown;

use api::config::drive::{Drive, Figure};
use api::config::{Size, Timing};
use machine::files::read_text;
use model::parameter::{PAGE_BYTES, Shape};
use model::preset::{self, Preset};
use model::{Ceiling, Explanation, Latency, Parameters, ZoneShape};
use serde::Serialize;

use super::UsageError;
use super::set::{State, set_all};
use crate::amplification::Amplification;

const EXAMPLES: &str = "\
Examples:
  nvmirage explain
      The presets
  nvmirage explain samsung-970-pro --size 64GiB
      Geometry, latencies, limits and every value with its source, for that size
  nvmirage explain optane-p4800x --set read_latency=8us --json | jq '.ceilings'
      With another latency, as JSON";

/// Show the parameters of a drive's model, and the performance that follows from them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Explain {
    /// Preset, or file that describes a drive; default: list all presets
    #[arg(add = super::presets())]
    preset: Option<String>,

    /// Size of the drive; default: the real drive's
    #[arg(long, requires = "preset", value_parser = super::drive_size)]
    size: Option<Size>,

    /// Parameter that differs from the preset; may be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "preset")]
    set: Vec<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Everything that the command reports about a drive.
#[derive(Debug, Serialize)]
struct Report {
    preset: String,
    about: String,
    kind: &'static str,
    default_of_its_name: bool,
    variants: Vec<String>,
    size_bytes: u64,
    real: Real,
    #[serde(skip_serializing_if = "Option::is_none")]
    geometry: Option<Geometry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zones: Option<Zones>,
    latencies: Vec<Alone>,
    ceilings: Vec<Most>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_amplification: Option<Amplification>,
    parameters: Vec<Row>,
}

/// The real drive that the preset describes.
#[derive(Debug, Serialize)]
struct Real {
    size_bytes: u64,
    size_source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    geometry: Option<Geometry>,
    published: Vec<Figure>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Geometry {
    dies: u64,
    dies_per_partition: u64,
    pages_per_block: u64,
    pages_per_line: u64,
    lines: u64,
    lines_before_rounding: f64,
    logical_pages_per_partition: u64,
    spare_lines: f64,
}

impl Geometry {
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    fn of(shape: &Shape) -> Self {
        let pages = (shape.lines * shape.pages_per_line) as f64;
        let spare = (pages - shape.logical_pages as f64) / shape.pages_per_line as f64;
        Geometry {
            dies: shape.dies,
            dies_per_partition: shape.dies_per_partition,
            pages_per_block: shape.pages_per_block,
            pages_per_line: shape.pages_per_line,
            lines: shape.lines,
            lines_before_rounding: shape.lines_asked_thousandths as f64 / 1000.0,
            logical_pages_per_partition: shape.logical_pages,
            spare_lines: spare,
        }
    }
}

#[derive(Debug, Serialize)]
struct Zones {
    zones: u64,
    capacity_bytes: u64,
    dies: u64,
    wordlines_per_zone: u64,
    blocks_per_zone: u64,
}

impl Zones {
    fn of(zones: &ZoneShape) -> Self {
        Zones {
            zones: zones.zones,
            capacity_bytes: zones.capacity_bytes,
            dies: zones.dies,
            wordlines_per_zone: zones.wordlines,
            blocks_per_zone: zones.blocks,
        }
    }
}

#[derive(Debug, Serialize)]
struct Alone {
    what: &'static str,
    bytes: u64,
    least_ns: u64,
    most_ns: u64,
}

impl Alone {
    fn of(latency: &Latency) -> Self {
        Alone {
            what: latency.what,
            bytes: latency.bytes,
            least_ns: latency.least_ns,
            most_ns: latency.most_ns,
        }
    }
}

#[derive(Debug, Serialize)]
struct Most {
    what: &'static str,
    bytes: u64,
    per_s: Option<u64>,
    bytes_per_s: Option<u64>,
    limited_by: &'static str,
}

impl Most {
    fn of(ceiling: &Ceiling) -> Self {
        Most {
            what: ceiling.what,
            bytes: ceiling.bytes,
            per_s: ceiling.per_s,
            bytes_per_s: ceiling.bytes_per_s,
            limited_by: ceiling.limit,
        }
    }
}

/// One parameter.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    value: String,
    number: u64,
    change: &'static str,
    about: &'static str,
    /// The published figure, if a host's share was subtracted from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    published_as: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_ns: Option<u64>,
    /// Bounds of the value, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<[String; 2]>,
    source: String,
}

impl Explain {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let Some(name) = &self.preset else {
            return list(self.json);
        };
        let mut timing = Timing::of(name.clone());
        let drive = timing
            .find(read_text)
            .map_err(|error| anyhow::anyhow!(error))?;
        let drive = drive.clone();
        let size_bytes = self.size.map_or(drive.size_bytes(), |size| size.0);
        set_all(&mut timing, &self.set, ("explain", State::Unused))?;
        let wrong = |problems: Vec<String>| anyhow::anyhow!(problems.join("\n"));
        let parameters = timing.parameters(size_bytes).map_err(wrong)?;
        if self.size.is_some() && matches!(parameters, Parameters::Nvm(_) | Parameters::Kv(_)) {
            return Err(UsageError(format!(
                "--size: no parameter of {name} depends on its size: remove --size"
            ))
            .into());
        }
        let report = Report::of(&drive, &timing, &parameters, size_bytes)?;
        if self.json {
            return terminal::print_json(&report);
        }
        terminal::print(&report.in_words())
    }
}

impl Report {
    fn of(
        drive: &Drive,
        timing: &Timing,
        parameters: &Parameters,
        size_bytes: u64,
    ) -> anyhow::Result<Self> {
        let explanation: Explanation = parameters.explain()?;
        let real = drive.parameters(drive.size_bytes(), None);
        let real = real.map_err(|error| anyhow::anyhow!(error))?;
        let real = real.explain()?.shape.as_ref().map(Geometry::of);
        let shape = explanation.shape.as_ref();
        let write_amplification = match (shape, parameters) {
            (Some(shape), Parameters::Flash(flash)) => Some(Amplification::expected(shape, flash)),
            _ => None,
        };
        let name = drive.name();
        let of_its_name = match drive {
            Drive::Known(known) => preset::presets()
                .filter(|p| p.name == known.name)
                .map(Preset::full_name)
                .collect(),
            Drive::File(_) => vec![name.clone()],
        };
        Ok(Report {
            preset: name,
            about: drive.about().to_owned(),
            kind: drive.kind().name(),
            default_of_its_name: match drive {
                Drive::Known(known) => known.is_default,
                Drive::File(_) => true,
            },
            variants: of_its_name,
            size_bytes,
            real: Real {
                size_bytes: drive.size_bytes(),
                size_source: drive.size_source(),
                geometry: real,
                published: drive.published(),
            },
            geometry: shape.map(Geometry::of),
            zones: explanation.zones.as_ref().map(Zones::of),
            latencies: explanation.latencies.iter().map(Alone::of).collect(),
            ceilings: explanation.ceilings.iter().map(Most::of).collect(),
            write_amplification,
            parameters: rows(drive, timing, parameters),
        })
    }
}

fn rows(drive: &Drive, timing: &Timing, parameters: &Parameters) -> Vec<Row> {
    let row = |parameter: &'static model::parameter::Parameter| {
        let is_set = timing.changes.contains_key(parameter.name);
        let given = drive.given(parameter.name).filter(|_| !is_set);
        let value = parameter.get(parameters);
        let host = given.as_ref().filter(|v| v.host_ns != 0);
        Row {
            name: parameter.name,
            value: value.to_string(),
            number: value.raw,
            change: parameter.change.name(),
            about: parameter.about,
            published_as: host.map(|v| v.value.clone()),
            host_ns: host.map(|v| v.host_ns),
            interval: given.as_ref().and_then(|v| v.interval.clone()),
            source: match (given, is_set) {
                (Some(given), _) => given.source,
                (None, true) => "set: here".to_owned(),
                (None, false) => "assumed: off unless it is asked for".to_owned(),
            },
        }
    };
    drive.kind().parameters().map(row).collect()
}

/// One preset in the list.
#[derive(Debug, Serialize)]
struct Listed {
    preset: String,
    is_default: bool,
    kind: &'static str,
    size_bytes: u64,
    about: &'static str,
}

fn list(json: bool) -> anyhow::Result<()> {
    let all: Vec<Listed> = preset::presets()
        .map(|p| Listed {
            preset: p.full_name(),
            is_default: p.is_default,
            kind: p.kind.name(),
            size_bytes: p.size_bytes,
            about: p.about,
        })
        .collect();
    if json {
        return terminal::print_json(&all);
    }
    terminal::print(&shown::list(&all))
}

/// Bytes of this many pages.
fn bytes_of_pages(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_BYTES)
}
