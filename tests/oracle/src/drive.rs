//! The driver: commands with arrival times are given to a model, by the rule of the README.

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Result, ensure};
use model::{Admission, Due, Model, Parameters, Timing as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::document::{Command, Document};

/// Bins of the histogram of valid pages in full lines.
const BINS: usize = 16;

/// How long after the last command the counters are looked at.
const AFTERWARDS_NS: u64 = 1_000_000_000;

/// Outcome of all commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Of each command, in the order in which they were done.
    pub done: Vec<Ended>,
    /// Of the drive at the end.
    pub counters: Value,
}

/// Outcome of a command: its id, and when it was admitted and done. In JSON, three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 3]", into = "[u64; 3]")]
pub struct Ended {
    /// Which.
    pub id: u64,
    /// After all its stalls.
    pub admitted: u64,
    /// At the end.
    pub done: u64,
}

impl From<[u64; 3]> for Ended {
    fn from([id, admitted, done]: [u64; 3]) -> Self {
        Self { id, admitted, done }
    }
}

impl From<Ended> for [u64; 3] {
    fn from(ended: Ended) -> Self {
        [ended.id, ended.admitted, ended.done]
    }
}

/// Runs all commands of a document to their ends.
///
/// # Errors
/// The parameters make no drive, or commands never end.
pub fn drive(document: &Document) -> Result<Outcome> {
    let mut model = Model::new(&document.parameters)?;
    let mut waiting: VecDeque<&Command> = document.commands.iter().collect();
    let mut streams: BTreeMap<u64, VecDeque<&Command>> = BTreeMap::new();
    let mut admitted = BTreeMap::new();
    let mut due = Vec::new();
    let mut parts = Vec::new();
    let mut changes = document.changes.iter().peekable();
    loop {
        let arrival = waiting.front().map(|command| command.t);
        let change = changes.peek().map(|change| change.t);
        let times = [arrival, change, model.next_event()];
        let Some(now) = times.into_iter().flatten().min() else {
            break;
        };
        model.advance(now, &mut due);
        while let Some(change) = changes.next_if(|change| change.t <= now) {
            model.retune(&change.parameters)?;
        }
        while let Some(command) = waiting.pop_front_if(|command| command.t <= now) {
            streams
                .entry(command.stream)
                .or_default()
                .push_back(command);
        }
        let mut stalled = Vec::new();
        while let Some(command) = next(&streams, &stalled) {
            let op = command.ask.op(&mut parts);
            let room = model.has_room(&op);
            let admission = model.submit(now, command.id, &op);
            ensure!(
                room == (admission == Admission::Accepted),
                "whether there was room for {command:?}: {room}, and {admission:?}"
            );
            match admission {
                Admission::Stall => stalled.push(command.stream),
                Admission::Accepted => {
                    admitted.insert(command.id, now);
                    streams.entry(command.stream).or_default().pop_front();
                    stalled.clear(); // it may have made room for others
                }
            }
        }
    }
    ensure!(
        due.len() == document.commands.len(),
        "of {} commands {} are done when nothing is due any more",
        document.commands.len(),
        due.len()
    );
    // The drive's own work goes on: the counters are those of one time.
    let last = due.iter().map(|due| due.at).max().unwrap_or_default();
    model.advance(last + AFTERWARDS_NS, &mut Vec::new());
    let ended = |due: Due| Ended {
        id: due.id,
        admitted: admitted.get(&due.id).copied().unwrap_or_default(),
        done: due.at,
    };
    Ok(Outcome {
        done: due.into_iter().map(ended).collect(),
        counters: counters(&model, &document.parameters),
    })
}

/// Of the streams that have not stalled at this time, the first command with the least id.
fn next<'a>(
    streams: &BTreeMap<u64, VecDeque<&'a Command>>,
    stalled: &[u64],
) -> Option<&'a Command> {
    let tried = streams.iter().filter(|(name, _)| !stalled.contains(name));
    tried
        .filter_map(|(_, queue)| queue.front().copied())
        .min_by_key(|command| command.id)
}

fn counters(model: &Model, parameters: &Parameters) -> Value {
    match (model, parameters) {
        (Model::Zones(zones), Parameters::Zones(parameters)) => {
            let buffers = match parameters.zone_buffer_bytes {
                0 => 1,
                _ => parameters.flash.size_bytes / parameters.zone_size_bytes,
            };
            let used: u64 = (0..)
                .zip(0..buffers)
                .map(|(zone, _)| zones.buffer_used(zone))
                .sum();
            json!({ "buffer_used_bytes": used })
        }
        (Model::Flash(flash), _) => {
            let (counters, wear) = (flash.counters(), flash.wear());
            json!({
                "host_pages": counters.host_pages,
                "collected_pages": counters.collected_pages,
                "erased_lines": counters.erased_lines,
                "free_lines": flash.free_lines(),
                "erases_least": wear.least,
                "erases_most": wear.most,
                "lines": wear.lines,
                "valid_histogram": flash.valid_histogram(BINS),
                "buffer_used_bytes": flash.buffer_used(),
                "folded_pages": counters.folded_pages,
                "map_misses": counters.map_misses,
            })
        }
        _ => json!({}),
    }
}
