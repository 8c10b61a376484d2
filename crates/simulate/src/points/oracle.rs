//! Recorded answers of the oracle for the points of every preset, so that comparisons need no
//! Python.
//!
//! `tests/oracle` writes the file, and its tests query the oracle again.

use std::collections::BTreeMap;

use super::Latencies;

const RECORDED: &str = include_str!("oracle.json");

/// The answers for a preset, given by its full name, by name of the point.
#[must_use]
pub fn recorded(preset: &str) -> BTreeMap<String, Latencies> {
    let all: BTreeMap<String, BTreeMap<String, Latencies>> =
        serde_json::from_str(RECORDED).expect("a test reads it");
    all.get(preset).cloned().unwrap_or_default()
}
