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
//! Traces of other programs are recognized by their first line: MSR Cambridge (CSV), blkparse's
//! text, MQSim's. Invalid input is rejected with its line. Not included: changes of times; a trace
//! runs as fast as it was recorded.

mod foreign;
mod own;

use std::io::{self, Write};

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

/// A line of a trace; `None` if it contains no command.
type Parsed = Result<Option<Arrival>, String>;

/// Parser of a format's lines.
#[derive(Clone, Copy)]
enum Lines {
    /// Our format; the first line has the version.
    Own,
    Foreign(fn(&str) -> Parsed),
}

/// The formats.
#[derive(Clone, Copy)]
struct Format {
    name: &'static str,
    lines: Lines,
    /// Whether several processors wrote it, so that lines are not quite in order.
    unordered: bool,
}

/// Whether a text is a trace, according to its first line.
#[must_use]
pub fn is_trace(text: &str) -> bool {
    format_of(text).is_some()
}

fn format_of(text: &str) -> Option<Format> {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let format = |name, lines, unordered| {
        Some(Format {
            name,
            lines,
            unordered,
        })
    };
    if first.starts_with(NAME.trim_end()) {
        return format("nvmirage", Lines::Own, false);
    }
    let numbers = || {
        first
            .split_whitespace()
            .map(|word| word.parse::<u64>().is_ok())
    };
    if first.split(',').count() == 7 && !first.contains(char::is_whitespace) {
        return format("msr", Lines::Foreign(foreign::msr), true);
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

/// Parses a trace of any known format.
///
/// # Errors
/// The first line that is invalid.
pub fn parse(text: &str) -> Result<Trace, TraceError> {
    let (mut trace, _) = parse_with_due(text)?;
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
    let format = format_of(text).ok_or_else(|| TraceError {
        line: 1,
        why: format!(
            "this is no trace: one begins with `{HEADER}`, or is MSR Cambridge's, blkparse's or MQSim's"
        ),
    })?;
    let (skip, version) = match format.lines {
        Lines::Own => (1, version(text)?),
        Lines::Foreign(_) => (0, 0),
    };
    let mut compounds = Vec::new();
    let mut all: Vec<(Arrival, Option<u64>)> = Vec::new();
    for (line, content) in (1..).zip(text.lines()).skip(skip) {
        let content = content.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let wrong = |why| TraceError { line, why };
        let read = match format.lines {
            Lines::Own => own::line(content, version, &mut compounds).map(Some),
            Lines::Foreign(read) => read(content).map(|arrival| Some((arrival?, None))),
        };
        let Some((arrival, due)) = read.map_err(wrong)? else {
            continue;
        };
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
