//! Output of results: tables for people, JSON for programs, and progress while waiting.

pub(crate) mod identity;
pub(crate) mod job;
pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod units;

use std::io::{self, Write};

use anyhow::Context;
use serde::Serialize;

/// Writes a result to standard output. A closed pipe, as with `| head`, is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// Writes a result to standard output as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}
