//! How a command speaks to a person: results as tables or JSON, units, progress while waiting, and
//! errors; and how the operator ends it.
//!
//! It does NOT know what is printed: no drive, server or measurement.
#![forbid(unsafe_code)]

pub mod complete;
pub mod error;
pub mod hangup;
pub mod interrupt;
pub mod progress;
pub mod table;
pub mod units;

use std::io::{self, Write};

use anyhow::Context;
use serde::Serialize;

/// Writes a result to standard output. A closed pipe, as with `| head`, is not an error.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// Writes a result to standard output as JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}
