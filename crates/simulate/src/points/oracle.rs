//! What the oracle has said of the points of every preset, recorded: whoever compares needs no
//! Python then.
//!
//! `tests/oracle` writes the file, and its tests ask the oracle anew.

use std::collections::BTreeMap;

use super::Latencies;

const RECORDED: &str = include_str!("oracle.json");

/// Its answers for a preset, of its full name, by the names of points.
#[must_use]
pub fn recorded(preset: &str) -> BTreeMap<String, Latencies> {
    let all: BTreeMap<String, BTreeMap<String, Latencies>> =
        serde_json::from_str(RECORDED).expect("a test reads it");
    all.get(preset).cloned().unwrap_or_default()
}
