//! Arrivals over time: what a drive was asked for, and when.
//!
//! The format of our own, version 1, is text: a first line `nvmirage-trace 1`, then a line for each command:
//!
//! ```text
//! TIME OP OFFSET LEN [QUEUE [DUE]]
//! ```
//!
//! with the time in nanoseconds from any start, `R` (read), `W` (write), `WF` (write, FUA), `D` (deallocate), `F` (flush, with 0 and
//! 0) or `Z` (reset of the zone that begins there) for the operation, offset and length in bytes, the queue it came through, 0 where
//! there is none, and when it was done, of which [`crate::recording`] tells and which nothing is made of here. Lines that begin with `#`
//! and empty ones are passed over. Times do not fall.
//!
//! Traces of others are told by their first line: MSR Cambridge (CSV), blkparse's text, MQSim's. What cannot be read is
//! refused with its line. It does NOT change times: a trace runs as fast as it was recorded.

mod foreign;

use std::io::{self, Write};

use crate::job::{Kind, Op};

/// First line of our format.
pub const HEADER: &str = "nvmirage-trace 1";

/// The most queues of a trace.
pub const QUEUES_MAX: u16 = 64;

/// A command and when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Nanoseconds since the first one.
    pub at: u64,
    /// The command.
    pub op: Op,
    /// The queue, counted from 0.
    pub queue: u16,
}

/// All arrivals, in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Which format they were in.
    pub format: &'static str,
    /// Them.
    pub arrivals: Vec<Arrival>,
}

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TraceError {
    /// Where, counted from 1.
    pub line: usize,
    /// What.
    pub why: String,
}

/// A line of a trace, or none where it says nothing of a command.
type Parsed = Result<Option<Arrival>, String>;

/// The formats, each with how its lines are read.
#[derive(Clone, Copy)]
struct Format {
    name: &'static str,
    line: fn(&str) -> Parsed,
    /// Lines that stand before the first one.
    skip: usize,
    /// It was written by several processors, so not quite in order.
    unordered: bool,
}

/// Whether a text is a trace, as its first line tells.
#[must_use]
pub fn is_trace(text: &str) -> bool {
    format_of(text).is_some()
}

fn format_of(text: &str) -> Option<Format> {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let format = |name, line, skip, unordered| {
        Some(Format {
            name,
            line,
            skip,
            unordered,
        })
    };
    if first.starts_with("nvmirage-trace") {
        return format("nvmirage", own, 1, false);
    }
    let numbers = || {
        first
            .split_whitespace()
            .map(|word| word.parse::<u64>().is_ok())
    };
    if first.split(',').count() == 7 && !first.contains(char::is_whitespace) {
        return format("msr", foreign::msr, 0, true);
    }
    if numbers().count() == 5 && numbers().all(|is| is) {
        return format("mqsim", foreign::mqsim, 0, false);
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
        return format("blkparse", line, 0, true);
    }
    None
}

/// Reads a trace of any format that is known.
///
/// # Errors
/// The first line that cannot be read.
pub fn parse(text: &str) -> Result<Trace, TraceError> {
    let format = format_of(text).ok_or_else(|| TraceError {
        line: 1,
        why: format!(
            "this is no trace: one begins with `{HEADER}`, or is MSR Cambridge's, blkparse's or MQSim's"
        ),
    })?;
    let first_line = text.lines().next().unwrap_or_default().trim();
    if format.skip > 0 && first_line != HEADER {
        return Err(TraceError {
            line: 1,
            why: format!("`{first_line}` is a version that is not known: this reads `{HEADER}`"),
        });
    }
    let mut arrivals: Vec<Arrival> = Vec::new();
    for (line, content) in (1..).zip(text.lines()).skip(format.skip) {
        let content = content.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let wrong = |why| TraceError { line, why };
        let Some(arrival) = (format.line)(content).map_err(wrong)? else {
            continue;
        };
        check(&arrival.op).map_err(wrong)?;
        let last = arrivals.last().map_or(0, |last| last.at);
        if arrival.at < last && !format.unordered {
            return Err(wrong(format!(
                "the time falls from {last} to {}",
                arrival.at
            )));
        }
        arrivals.push(arrival);
    }
    // A stable sort: what came at the same time keeps its order.
    arrivals.sort_by_key(|arrival| arrival.at);
    let start = arrivals.first().map_or(0, |first| first.at);
    for arrival in &mut arrivals {
        arrival.at -= start;
    }
    if arrivals.is_empty() {
        return Err(TraceError {
            line: text.lines().count().max(1),
            why: "the trace has no command".into(),
        });
    }
    Ok(Trace {
        format: format.name,
        arrivals,
    })
}

fn check(op: &Op) -> Result<(), String> {
    let Op { offset, len, .. } = *op;
    if op.kind == Kind::Flush {
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

/// A line of our own format.
fn own(line: &str) -> Parsed {
    let mut words = line.split_whitespace();
    let number = |what: &str, word: Option<&str>| -> Result<u64, String> {
        let word =
            word.ok_or_else(|| format!("there is no {what}: write TIME OP OFFSET LEN [QUEUE]"))?;
        word.parse()
            .map_err(|_| format!("the {what} `{word}` is no whole number"))
    };
    let at = number("time", words.next())?;
    let (kind, fua) = match words.next() {
        Some("R") => (Kind::Read, false),
        Some("W") => (Kind::Write, false),
        Some("WF") => (Kind::Write, true),
        Some("D") => (Kind::Trim, false),
        Some("F") => (Kind::Flush, false),
        Some("Z") => (Kind::Reset, false),
        other => {
            return Err(format!(
                "`{}` is no operation: write R, W, WF, D, F or Z",
                other.unwrap_or_default()
            ));
        }
    };
    let offset = number("offset", words.next())?;
    let len = number("length", words.next())?;
    let queue = match words.next() {
        Some(word) => number("queue", Some(word))?,
        None => 0,
    };
    if let Some(word) = words.next() {
        number("due time", Some(word))?;
    }
    if queue >= QUEUES_MAX.into() {
        return Err(format!(
            "queue {queue}: there are {QUEUES_MAX}, counted from 0"
        ));
    }
    if let Some(more) = words.next() {
        return Err(format!("`{more}` stands behind what belongs there"));
    }
    Ok(Some(Arrival {
        at,
        op: Op {
            kind,
            offset,
            len,
            fua,
        },
        queue: queue as u16,
    }))
}

/// Writes arrivals in our format.
///
/// # Errors
/// Those of `out`.
pub fn write<'a>(
    out: &mut impl Write,
    arrivals: impl IntoIterator<Item = &'a Arrival>,
) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    for Arrival { at, op, queue } in arrivals {
        let name = match (op.kind, op.fua) {
            (Kind::Read, _) => "R",
            (Kind::Write, false) => "W",
            (Kind::Write, true) => "WF",
            (Kind::Trim, _) => "D",
            (Kind::Flush, _) => "F",
            (Kind::Reset, _) => "Z",
        };
        write!(out, "{at} {name} {} {}", op.offset, op.len)?;
        match queue {
            0 => writeln!(out)?,
            _ => writeln!(out, " {queue}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
