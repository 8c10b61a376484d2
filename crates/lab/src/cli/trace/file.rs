//! Recorded traces: dump, stat, plot, export.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context;
use api::config::Span;
use load::trace::reading::{self, Loaded, Part};
use nvme_spec::Status;
use serde::Serialize;
use terminal::table::{Align, Table};
use terminal::{progress, units};
use trace_file::export::{self, LeftOut};
use trace_file::stats::{self, Latencies, Stats};
use trace_file::{Record, STAGES, Tail};

use super::plot;

/// A trace, and which commands of it.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// Trace file
    file: PathBuf,

    /// Include only commands of this submission queue
    #[arg(long, value_name = "N")]
    queue: Option<u16>,

    /// Include only commands to this namespace
    #[arg(long, value_name = "N")]
    nsid: Option<u32>,

    /// Start of the included time, from the start of the recording
    #[arg(long, value_name = "TIME", default_value = "0s")]
    from: Span,

    /// Length of the included time
    #[arg(long, value_name = "TIME")]
    within: Option<Span>,
}

impl Source {
    /// Reads the trace; prints its notes to standard error.
    pub(super) fn load(&self) -> anyhow::Result<Loaded> {
        let part = Part {
            queue: self.queue,
            nsid: self.nsid,
            from: self.from.0,
            within: self.within.map(|time| time.0),
        };
        let loaded = reading::load(&self.file, &part)?;
        loaded.notes().iter().for_each(|note| progress::note(note));
        let is_part = self.queue.is_some() || self.nsid.is_some() || self.within.is_some();
        if loaded.records.is_empty() && (is_part || !self.from.0.is_zero()) {
            progress::note(
                "no command is in that part: change --queue, --nsid, --from or --within",
            );
        }
        Ok(loaded)
    }
}

const DUMP_EXAMPLES: &str = "\
Examples:
  nvmirage trace dump vm1.trace --from 2s --within 10ms
      Ten milliseconds of it, one line per command
  nvmirage trace dump vm1.trace --json | jq 'select(.latency_ns > 1000000)'
      Commands that took more than a millisecond";

/// Print every command of a trace
#[derive(Debug, clap::Args)]
#[command(after_help = DUMP_EXAMPLES)]
pub struct Dump {
    #[command(flatten)]
    source: Source,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

impl Dump {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let loaded = self.source.load()?;
        let start = loaded.header.start_ns;
        let mut text = String::new();
        if !self.json {
            text += "        time s queue   cid nsid                   lba   blocks depth      latency command\n";
        }
        for record in &loaded.records {
            if self.json {
                writeln!(
                    text,
                    "{}",
                    serde_json::to_string(&Shown::of(record, start))?
                )?
            } else {
                line(record, start, &mut text)?
            }
            if text.len() > 1 << 16 {
                terminal::print(&text)?;
                text.clear();
            }
        }
        terminal::print(&text)
    }
}

/// A command as `dump --json` shows it.
#[derive(Serialize)]
struct Shown {
    time_ns: u64,
    cq: u16,
    queue: u16,
    cid: u16,
    command: String,
    opcode: u8,
    nsid: u32,
    lba: u64,
    blocks: u32,
    lba_size: u32,
    bytes: u32,
    fua: bool,
    detail: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    depth: u16,
    status: String,
    latency_ns: u64,
    stages: serde_json::Map<String, serde_json::Value>,
}

impl Shown {
    fn of(record: &Record, start: u64) -> Self {
        let stages = STAGES.iter().zip(record.stages);
        Shown {
            time_ns: record.at_ns.saturating_sub(start),
            cq: record.cqid,
            queue: record.sqid,
            cid: record.cid,
            command: record.name(),
            opcode: record.opcode,
            nsid: record.nsid,
            lba: record.slba,
            blocks: record.blocks,
            lba_size: match record.lba_shift {
                shift @ 9..=16 => 1 << shift,
                _ => 0,
            },
            bytes: record.bytes,
            fua: record.fua,
            detail: record.detail,
            key: record.key().map(|key| key.to_string()),
            depth: record.depth,
            status: Status(record.status).to_string(),
            latency_ns: record.latency_ns(),
            stages: stages
                .map(|(stage, ns)| ((*stage).to_owned(), ns.into()))
                .collect(),
        }
    }
}

fn line(record: &Record, start: u64, text: &mut String) -> anyhow::Result<()> {
    let at = record.at_ns.saturating_sub(start);
    let (seconds, part) = (at / 1_000_000_000, at % 1_000_000_000);
    let took = STAGES.iter().zip(record.stages);
    let took = took.filter(|(_, ns)| *ns > 0);
    let took: Vec<_> = took
        .map(|(stage, ns)| format!("{stage} {}", units::nanoseconds(f64::from(ns))))
        .collect();
    let fua = if record.fua { " FUA" } else { "" };
    let key = record.key().map_or(String::new(), |key| format!(" {key}"));
    write!(
        text,
        "{seconds:>4}.{part:09} {:>5} {:>5} {:>4} {:>21} {:>8} {:>5} {:>12} {}{fua}{key} ({})",
        record.sqid,
        record.cid,
        record.nsid,
        record.slba,
        record.blocks,
        record.depth,
        units::nanoseconds(record.latency_ns() as f64),
        record.name(),
        took.join(", "),
    )?;
    if !record.is_success() {
        write!(text, " {}", Status(record.status))?;
    }
    text.push('\n');
    Ok(())
}

const STAT_EXAMPLES: &str = "\
Examples:
  nvmirage trace stat vm1.trace
      Percentiles, stages, queue depths, sequential share, hottest ranges and errors
  nvmirage trace stat vm1.trace --queue 1 --json | jq .lost
      Of one queue, as JSON";

/// Print statistics of a trace: latencies, stages, errors, queue depths, offsets
#[derive(Debug, clap::Args)]
#[command(after_help = STAT_EXAMPLES)]
pub struct Stat {
    #[command(flatten)]
    source: Source,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Output of `stat --json`.
#[derive(Serialize)]
struct StatReport<'a> {
    #[serde(flatten)]
    header: &'a trace_file::Header,
    /// Why the recording ended; absent if the file is cut off or damaged.
    ended: Option<&'a str>,
    /// Bytes after the last complete block, if the file is cut off.
    cut_off_bytes: Option<u64>,
    /// Position and kind of damage; records after it do not count.
    damaged: Option<&'a str>,
    lost: u64,
    #[serde(flatten)]
    stats: &'a Stats,
}

impl Stat {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let loaded = self.source.load()?;
        let stats = stats::of(&loaded.records);
        let (ended, cut_off_bytes) = match &loaded.tail {
            Some(Tail::Ended(end)) => (Some(&*end.reason), None),
            Some(Tail::CutOff(bytes)) => (None, Some(*bytes)),
            None => (None, None),
        };
        if self.json {
            return terminal::print_json(&StatReport {
                header: &loaded.header,
                ended,
                cut_off_bytes,
                damaged: loaded.damaged.as_deref(),
                lost: loaded.lost,
                stats: &stats,
            });
        }
        let ended = match (ended, &loaded.damaged) {
            (Some(reason), _) => format!("ended: {reason}"),
            (None, Some(_)) => "it is damaged".to_owned(),
            (None, None) => "it is truncated".to_owned(),
        };
        let mut text = format!(
            "trace of controller {}: {} commands in {}, {} lost; {ended}\n\n",
            loaded.header.controller,
            stats.commands,
            units::nanoseconds(stats.span_ns as f64),
            loaded.lost,
        );
        if stats.commands > 0 {
            tables(&stats, &mut text);
        }
        terminal::print(&text)
    }
}

fn tables(stats: &Stats, text: &mut String) {
    *text += &latencies(stats).to_string();
    let mut table = Table::new(&[
        ("stage", Align::Left),
        ("mean", Align::Right),
        ("share", Align::Right),
    ]);
    for stage in &stats.stages {
        table.row(vec![
            stage.stage.into(),
            units::nanoseconds(stage.mean_ns),
            format!("{:.1} %", stage.percent),
        ]);
    }
    *text += &format!("\n{table}");
    let mut table = Table::new(&[
        ("queue", Align::Right),
        ("commands", Align::Right),
        ("mean depth", Align::Right),
        ("most", Align::Right),
    ]);
    for queue in &stats.queues {
        table.row(vec![
            queue.queue.to_string(),
            queue.commands.to_string(),
            format!("{:.1}", queue.depth_mean),
            queue.depth_max.to_string(),
        ]);
    }
    *text += &format!("\n{table}");
    if let Some(percent) = stats.sequential_percent {
        *text += &format!("\nsequential: {percent:.1} % of reads and writes\n");
        let mut table = Table::new(&[
            ("hottest MiB: nsid", Align::Right),
            ("from byte", Align::Right),
            ("commands", Align::Right),
            ("moved", Align::Right),
        ]);
        for range in &stats.hottest {
            table.row(vec![
                range.nsid.to_string(),
                range.start.to_string(),
                range.commands.to_string(),
                units::bytes(range.bytes),
            ]);
        }
        *text += &format!("\n{table}");
    }
    if !stats.errors.is_empty() {
        let mut table = Table::new(&[("errors", Align::Right), ("status", Align::Left)]);
        for (status, count) in &stats.errors {
            table.row(vec![count.to_string(), Status(*status).to_string()]);
        }
        *text += &format!("\n{table}");
    }
}

fn latencies(stats: &Stats) -> Table {
    let mut table = Table::new(&[
        ("command", Align::Left),
        ("count", Align::Right),
        ("moved", Align::Right),
        ("errors", Align::Right),
        ("mean", Align::Right),
        ("p50", Align::Right),
        ("p90", Align::Right),
        ("p99", Align::Right),
        ("p99.9", Align::Right),
        ("max", Align::Right),
    ]);
    for one in &stats.operations {
        let Latencies {
            mean_ns,
            p50_ns,
            p90_ns,
            p99_ns,
            p99_9_ns,
            max_ns,
        } = one.latency;
        let mut row = vec![
            one.name.clone(),
            one.count.to_string(),
            units::bytes(one.bytes),
            one.errors.to_string(),
            units::nanoseconds(mean_ns),
        ];
        let ranks = [p50_ns, p90_ns, p99_ns, p99_9_ns, max_ns];
        row.extend(ranks.map(|ns| units::nanoseconds(ns as f64)));
        table.row(row);
    }
    table
}

const PLOT_EXAMPLES: &str = "\
Examples:
  nvmirage trace plot vm1.trace --output vm1.svg
      Four panels over the same time";

/// Plot a trace: latencies, commands per second, commands in flight and offsets over time
#[derive(Debug, clap::Args)]
#[command(after_help = PLOT_EXAMPLES)]
pub struct Plot {
    #[command(flatten)]
    source: Source,

    /// Output file, SVG
    #[arg(long, short, value_name = "FILE", value_parser = crate::cli::picture::file)]
    output: PathBuf,
}

impl Plot {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let loaded = self.source.load()?;
        anyhow::ensure!(!loaded.records.is_empty(), "no command to plot");
        let svg = plot::svg(&loaded);
        std::fs::write(&self.output, svg)
            .with_context(|| format!("cannot write {}", self.output.display()))
    }
}

/// A format of another program, or of the simulator.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// fio's iolog, version 3, for `fio --read_iolog=FILE --replay_redirect=DEVICE`
    Fio,
    /// Text as blkparse writes it
    Blktrace,
    /// JSON for chrome://tracing and ui.perfetto.dev
    Chrome,
    /// Text for `nvmirage simulate`, which also reads the trace itself
    Simulate,
    /// Comma-separated values
    Csv,
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  nvmirage trace export vm1.trace --format fio --output vm1.iolog
      For fio, which replays it on any block device
  nvmirage trace export vm1.trace --format chrome --within 100ms --output vm1.json
      The first 100 ms, to open in ui.perfetto.dev
  nvmirage trace export vm1.trace --format csv | head
      To standard output";

/// Convert a trace to the format of another program
///
/// Commands that the format cannot express are left out, and counted on standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub struct Export {
    #[command(flatten)]
    source: Source,

    /// Output format
    #[arg(long, value_enum)]
    format: Format,

    /// Output file; default: standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Export {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let loaded = self.source.load()?;
        let left_out = match &self.output {
            None => match self.write(&loaded, &mut io::stdout().lock()) {
                Err(error) if is_broken_pipe(&error) => return Ok(()),
                written => written?,
            },
            Some(path) => {
                let place = || format!("cannot write {}", path.display());
                let mut out = File::create(path).with_context(place)?;
                self.write(&loaded, &mut out).with_context(place)?
            }
        };
        if let Some(said) = reading::said(&left_out) {
            progress::note(&said);
        }
        Ok(())
    }

    fn write(&self, loaded: &Loaded, out: &mut impl Write) -> anyhow::Result<LeftOut> {
        let mut out = BufWriter::new(out);
        let records = &loaded.records;
        let left_out = match self.format {
            Format::Fio => export::fio(&mut out, records)?,
            Format::Blktrace => export::blktrace(&mut out, records)?,
            Format::Chrome => {
                export::chrome(&mut out, &loaded.header, records)?;
                LeftOut::new()
            }
            Format::Csv => {
                export::csv(&mut out, loaded.header.start_ns, records)?;
                LeftOut::new()
            }
            Format::Simulate => {
                let (text, left_out) = reading::as_text(records)?;
                out.write_all(text.as_bytes())?;
                left_out
            }
        };
        out.flush()?;
        Ok(left_out)
    }
}

/// The reader has closed the pipe, as in `| head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
