//! Traces: commands with their arrival times.
//!
//! Our own format, version 2, is text: a first line `nvmirage-trace 2`, then a line for each
//! command:
//!
//! ```text
//! TIME OP PLACE LEN [QUEUE [DUE]]
//! ```
//!
//! TIME is in nanoseconds from any start, OP the operation, PLACE and LEN its position and length
//! in bytes, QUEUE the queue, 0 if absent, and DUE the completion time, which [`crate::recording`]
//! uses and this module ignores. Lines that begin with `#` and empty ones are skipped. Times do not
//! decrease. The operations:
//!
//! | | PLACE | LEN |
//! |---|---|---|
//! | `R` (read), `W` (write), `WF` (write, FUA), `D` (deallocate) | first byte | bytes |
//! | `F` (flush) | 0 | 0 |
//! | `Z` (reset of a zone), `ZF` (finish), `ZO` (open), `ZC` (close) | first byte of the zone | its bytes |
//! | `KS` (store), `KA` (append), `KR` (retrieve) | a key | bytes of the value |
//! | `KD` (delete), `KE` (exist) | a key | 0 |
//! | `KL` (list, whichever command does it) | `-` | bytes that are returned |
//! | `KC` (several as one compound command) | `KS:KEY:LEN,KD:KEY:0`, eight at most | bytes of all values |
//!
//! A key is its bytes in hexadecimal digits, or `#` and its hash ([`model::key_hash`]) in
//! hexadecimal digits: a timing model knows only the hash. Version 1 had no keys, and of zones only
//! resets; it is still accepted.
//!
//! Traces of other programs are recognized by their first line ([`FORMATS`]), also behind a header
//! with the names of columns; blktrace's binary form is converted to blkparse's ([`binary`]). A
//! trace of several devices is rejected unless one is chosen: a simulation has one drive. Invalid
//! input is rejected with its line. Not included: changes of times; a trace runs as fast as it was
//! recorded.

mod binary;
mod foreign;
mod own;

use std::collections::BTreeMap;
use std::io::{self, Write};

pub use binary::{is_binary, text_of as text_of_binary};
use model::KvOp;
pub(crate) use own::put;

use crate::job::{Kind, Op};

/// First line of our format.
pub const HEADER: &str = "nvmirage-trace 2";
/// Its version, and the part of the line before it.
const VERSION: u8 = 2;
const NAME: &str = "nvmirage-trace ";

/// Maximum number of queues of a trace.
pub const QUEUES_MAX: u16 = 64;

/// A command with its arrival time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Nanoseconds since the first one.
    pub at: u64,
    /// The command.
    pub op: Op,
    /// The queue, from 0.
    pub queue: u16,
}

/// All arrivals, in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Format of the input.
    pub format: &'static str,
    /// The arrivals.
    pub arrivals: Vec<Arrival>,
    /// The parts of compound commands, by number ([`Op::offset`]).
    pub compounds: Vec<Vec<KvOp>>,
}

/// Error in a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TraceError {
    /// Line number, from 1.
    pub line: usize,
    /// The error.
    pub why: String,
}

/// A line of a trace, and its device; `None` if it contains no command.
type Parsed<'a> = Result<Option<(Arrival, &'a str)>, String>;

/// Parser of a line.
type ParseLine = for<'a> fn(&'a str) -> Parsed<'a>;

/// The formats of other programs.
pub const FORMATS: &str = "MSR Cambridge, Alibaba, Tencent, SYSTOR '17 and SPC (CSV), FIU, MQSim, blktrace (blkparse's text, or binary), fio's iolog (versions 2 and 3)";

/// Parser of a format's lines.
#[derive(Clone, Copy)]
enum Lines {
    /// Our format; the first line has the version.
    Own,
    Foreign(ParseLine),
    /// fio's iolog of this version.
    Iolog(u8),
}

/// The formats.
#[derive(Clone, Copy)]
struct Format {
    name: &'static str,
    lines: Lines,
    /// Whether several processors wrote it, so that lines are not quite in order.
    unordered: bool,
    /// Number of lines before the first command's.
    header: usize,
}

/// Whether a text is a trace, according to its first line.
#[must_use]
pub fn is_trace(text: &str) -> bool {
    format_of(text).is_some()
}

/// Why a text that is neither a trace nor a job file cannot be read.
#[must_use]
pub fn not_a_trace(text: &str) -> String {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty());
    let first = first.unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    let is_decimal = |word: &str| word.contains('.') && word.parse::<f64>().is_ok();
    let looks = match first {
        "" => "it is empty".to_owned(),
        _ if first.starts_with("fio version 1") => {
            "it looks like fio's iolog of version 1, which has no times: record it with fio 3.31 or newer".to_owned()
        }
        _ if words.len() == 5 && is_decimal(words[0]) => {
            "it looks like the ASCII form of DiskSim (time device sector sectors flags), not supported because its time has no fixed unit: write MQSim's form, with whole nanoseconds and 0 for a write, 1 for a read".to_owned()
        }
        _ if first.split(',').count() > 2 => {
            "it looks like a table (CSV), not supported because these columns are not those of a known trace".to_owned()
        }
        _ if first.starts_with('{') || first.starts_with("[{") => {
            "it looks like JSON, which no known trace is".to_owned()
        }
        _ => "it looks like neither a job file, which has sections as [name], nor a trace".to_owned(),
    };
    format!("{looks}; known traces are `{HEADER}`, recordings of nvmirage, {FORMATS}")
}

fn format_of(text: &str) -> Option<Format> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().map(str::trim).enumerate();
    let (header, first) = lines.find(|(_, line)| !line.is_empty())?;
    let named = |line: &str| {
        let line = line.to_ascii_lowercase();
        ["timestamp,", "device_id,", "asu,"]
            .iter()
            .any(|name| line.starts_with(name))
    };
    // The names of columns.
    let (header, first) = if named(first) {
        lines.find(|(_, line)| !line.is_empty())?
    } else {
        (header, first)
    };
    let format = |name, lines, unordered| {
        Some(Format {
            name,
            lines,
            unordered,
            header,
        })
    };
    if let Some(version) = first.strip_prefix("fio version ") {
        let version = version.strip_suffix(" iolog")?.parse().ok()?;
        return match version {
            2 | 3 => format("iolog", Lines::Iolog(version), false),
            _ => None,
        };
    }
    if let Some(csv) = csv_of(first) {
        let (name, lines) = csv;
        return format(name, Lines::Foreign(lines), true);
    }
    if first.starts_with(NAME.trim_end()) {
        return format("nvmirage", Lines::Own, false);
    }
    let numbers = || {
        first
            .split_whitespace()
            .map(|word| word.parse::<u64>().is_ok())
    };
    let words: Vec<&str> = first.split_whitespace().collect();
    if let [at, process, _, place, len, "R" | "W" | "r" | "w", ..] = words.as_slice()
        && words.len() >= 8
        && [at, process, place, len]
            .iter()
            .all(|word| word.parse::<u64>().is_ok())
    {
        return format("fiu", Lines::Foreign(foreign::fiu), true);
    }
    if numbers().count() == 5 && numbers().all(|is| is) {
        return format("mqsim", Lines::Foreign(foreign::mqsim), false);
    }
    let device = first
        .split_whitespace()
        .next()
        .and_then(|word| word.split_once(','));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if device.is_some_and(|(major, minor)| digits(major) && digits(minor)) {
        let issued = text.lines().any(|line| foreign::action(line) == Some("D"));
        let line = if issued {
            foreign::blkparse_issued
        } else {
            foreign::blkparse_queued
        };
        return format("blkparse", Lines::Foreign(line), true);
    }
    None
}

/// The format of a line with commas.
fn csv_of(line: &str) -> Option<(&'static str, ParseLine)> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let is_number =
        |field: &str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
    let is_time = |field: &str| field.parse::<f64>().is_ok();
    let is_letter = |field: &str| matches!(field, "R" | "W" | "r" | "w");
    match fields.as_slice() {
        [at, _, _, kind, ..] if fields.len() == 7 && is_number(at) && !is_letter(kind) => {
            Some(("msr", foreign::msr))
        }
        [at, _, kind, ..]
            if fields.len() == 6 && is_time(at) && (kind.is_empty() || is_letter(kind)) =>
        {
            Some(("systor", foreign::systor))
        }
        [device, kind, ..] if fields.len() == 5 && is_number(device) && is_letter(kind) => {
            Some(("alibaba", foreign::alibaba))
        }
        [asu, place, len, kind, at, ..]
            if is_letter(kind) && is_time(at) && [asu, place, len].iter().all(|f| is_number(f)) =>
        {
            Some(("spc", foreign::spc))
        }
        [.., kind, _]
            if fields.len() == 5
                && ["0", "1"].contains(kind)
                && fields.iter().all(|f| is_number(f)) =>
        {
            Some(("tencent", foreign::tencent))
        }
        _ => None,
    }
}

/// Parses a trace of any known format.
///
/// # Errors
/// The first line that is invalid; commands of several devices.
pub fn parse(text: &str) -> Result<Trace, TraceError> {
    parse_of(text, None)
}

/// The same of one device.
///
/// # Errors
/// The first line that is invalid; there is no such device, or no device is chosen among several.
pub fn parse_of(text: &str, device: Option<&str>) -> Result<Trace, TraceError> {
    let (mut trace, _) = parse_all(text, device)?;
    let start = trace.arrivals.first().map_or(0, |first| first.at);
    for arrival in &mut trace.arrivals {
        arrival.at -= start;
    }
    Ok(trace)
}

/// The version in the first line of our format.
fn version(text: &str) -> Result<u8, TraceError> {
    let first = text.lines().next().unwrap_or_default().trim();
    let version = first
        .strip_prefix(NAME)
        .and_then(|number| number.parse().ok());
    version
        .filter(|version| (1..=VERSION).contains(version))
        .ok_or_else(|| TraceError {
            line: 1,
            why: format!(
                "`{first}` is a version that is not known: this reads `{NAME}1` and `{HEADER}`"
            ),
        })
}

/// The same with unchanged times, and the completion time of each command, if present.
///
/// # Errors
/// Those of [`parse`].
pub(crate) fn parse_with_due(text: &str) -> Result<(Trace, Vec<Option<u64>>), TraceError> {
    parse_all(text, None)
}

fn parse_all(text: &str, chosen: Option<&str>) -> Result<(Trace, Vec<Option<u64>>), TraceError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let format = format_of(text).ok_or_else(|| TraceError {
        line: 1,
        why: format!("this is no trace: {}", not_a_trace(text)),
    })?;
    let (skip, version) = match format.lines {
        Lines::Own => (1, version(text)?),
        Lines::Foreign(_) => (format.header, 0),
        Lines::Iolog(version) => (format.header + 1, version),
    };
    let mut waited = 0;
    let mut devices: BTreeMap<&str, u64> = BTreeMap::new();
    let mut compounds = Vec::new();
    let mut all: Vec<(Arrival, Option<u64>)> = Vec::new();
    for (line, content) in (1..).zip(text.lines()).skip(skip) {
        let content = content.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let wrong = |why| TraceError { line, why };
        let read = match format.lines {
            Lines::Own => own::line(content, version, &mut compounds)
                .map(|(arrival, due)| Some((arrival, due, ""))),
            Lines::Foreign(read) => read(content).map(of_device),
            Lines::Iolog(version) => foreign::iolog(content, version, &mut waited).map(of_device),
        };
        let Some((arrival, due, device)) = read.map_err(wrong)? else {
            continue;
        };
        // A flush may be for all devices, and has no place.
        if arrival.op.kind != Kind::Flush {
            *devices.entry(device).or_default() += 1;
        }
        if chosen.is_some_and(|chosen| chosen != device) {
            continue;
        }
        check(&arrival.op).map_err(wrong)?;
        let last = all.last().map_or(0, |(last, _)| last.at);
        if arrival.at < last && !format.unordered {
            return Err(wrong(format!(
                "the time falls from {last} to {}",
                arrival.at
            )));
        }
        all.push((arrival, due));
    }
    one_device(&devices, chosen)?;
    if all.is_empty() {
        return Err(TraceError {
            line: text.lines().count().max(1),
            why: "the trace has no command".into(),
        });
    }
    // A stable sort: arrivals at the same time keep their order.
    all.sort_by_key(|(arrival, _)| arrival.at);
    let (arrivals, due) = all.into_iter().unzip();
    let trace = Trace {
        format: format.name,
        arrivals,
        compounds,
    };
    Ok((trace, due))
}

fn of_device(found: Option<(Arrival, &str)>) -> Option<(Arrival, Option<u64>, &str)> {
    let (arrival, device) = found?;
    Some((arrival, None, device))
}

/// Devices that an error names at most.
const DEVICES: usize = 10;

/// Rejects commands of several devices, and a choice that has none.
fn one_device(devices: &BTreeMap<&str, u64>, chosen: Option<&str>) -> Result<(), TraceError> {
    let mut named: Vec<String> = devices
        .iter()
        .take(DEVICES)
        .map(|(device, count)| format!("{device} ({count} commands)"))
        .collect();
    if devices.len() > DEVICES {
        named.push(format!("{} more", devices.len() - DEVICES));
    }
    let named = named.join(", ");
    let why = match chosen {
        Some(chosen) if !devices.contains_key(chosen) => {
            format!("the trace has no device {chosen}: it has {named}")
        }
        None if devices.len() > 1 => {
            let most = devices.iter().max_by_key(|(_, count)| **count);
            let most = most.map_or("", |(device, _)| device);
            format!(
                "the trace has commands of several devices ({named}), and a simulation has one drive: choose one with --device {most}"
            )
        }
        _ => return Ok(()),
    };
    Err(TraceError { line: 1, why })
}

fn check(op: &Op) -> Result<(), String> {
    let Op { offset, len, .. } = *op;
    if op.kind == Kind::Flush || op.kind.is_of_keys() {
        return Ok(());
    }
    if len == 0 || !len.is_multiple_of(512) || !offset.is_multiple_of(512) {
        return Err(format!(
            "{len} bytes at {offset} are no whole blocks of 512 bytes"
        ));
    }
    match offset.checked_add(len) {
        Some(_) => Ok(()),
        None => Err(format!("{len} bytes at {offset} have no end")),
    }
}

/// Writes arrivals in our format; `compounds` are the parts of their compound commands.
///
/// # Errors
/// Those of `out`.
pub fn write<'a>(
    out: &mut impl Write,
    arrivals: impl IntoIterator<Item = &'a Arrival>,
    compounds: &[Vec<KvOp>],
) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    for arrival in arrivals {
        put(out, arrival, compounds, None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
