//! The oracle's answers at the points where drives are compared, which `simulate::points` keeps.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use model::Parameters;
use model::preset::{self, Preset};
use serde_json::{Value, json};
use simulate::points::{self, Command, Latencies, Measured, Phase, Points, REST_NS};

use crate::document::Drive;
use crate::python;

/// By preset and point.
pub type Answers = BTreeMap<String, BTreeMap<String, Latencies>>;

/// Where they are recorded.
pub fn file() -> PathBuf {
    python::folder().join("../../crates/simulate/src/points/oracle.json")
}

/// Asks the oracle of every point of the presets whose full names begin with `only`, and whose
/// names of points have `part` in them.
///
/// # Errors
/// There is no Python, or a preset makes no drive.
pub fn ask(only: &str, part: &str) -> Result<Answers> {
    let chosen = |preset: &&Preset| preset.full_name().starts_with(only);
    let presets: Vec<&Preset> = preset::presets().filter(chosen).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut answers = Answers::new();
        while let Some(preset) = presets.get(next.fetch_add(1, Ordering::Relaxed)) {
            answers.insert(preset.full_name(), ask_of(preset, part)?);
        }
        anyhow::Ok(answers)
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut answers = Answers::new();
        for worker in workers {
            answers.extend(worker.join().expect("a worker does not panic")?);
        }
        Ok(answers)
    })
}

/// The same for one preset.
fn ask_of(preset: &Preset, part: &str) -> Result<BTreeMap<String, Latencies>> {
    let shape = preset.parameters(preset.size_bytes, None)?;
    let points = points::of(&shape);
    let drive = Drive(preset.parameters(points.size_bytes, None)?);
    let chosen = points.measured.iter();
    let chosen: Vec<&Measured> = chosen.filter(|m| m.point.name().contains(part)).collect();
    let mut documents = String::new();
    for measured in &chosen {
        writeln!(documents, "{}", document(&drive, &points, measured)?)?;
    }
    let answer = python::ask(&["loops"], &documents).with_context(|| preset.full_name())?;
    let answer: Vec<BTreeMap<String, u64>> = serde_json::from_slice(&answer)?;
    ensure!(answer.len() == chosen.len(), "an answer to each point");
    let of_point = |(measured, answer): (&&Measured, BTreeMap<String, u64>)| {
        let number = |name: &str| answer.get(name).copied().context("a number is missing");
        let recorded = [number("sum_ns")?, number("count")?, number("elapsed_ns")?];
        Ok((measured.point.name(), Latencies::from(recorded)))
    };
    chosen.iter().zip(answer).map(of_point).collect()
}

fn document(drive: &Drive, points: &Points, measured: &Measured) -> Result<Value> {
    let phases = [&points.prepare, &measured.before, &measured.program];
    Ok(json!({
        "parameters": serde_json::to_value(drive)?,
        "rest_ns": REST_NS,
        "phases": phases.map(|phase| phase_of(phase, drive)),
    }))
}

fn phase_of(phase: &Phase, drive: &Drive) -> Value {
    let workers = phase.workers.iter();
    let workers = workers.map(|commands| commands.iter().map(|c| command_of(c, drive)).collect());
    let workers: Vec<Vec<Value>> = workers.collect();
    json!({ "depth": phase.depth, "workers": workers })
}

fn command_of(command: &Command, drive: &Drive) -> Value {
    let part = |kind: &str, number: u64, len: u32| {
        let digits = points::key(number);
        let hex: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
        json!({ "kind": kind, "key": hex, "len": len })
    };
    let kv = |kind: &str, number: u64, len: u32| {
        let mut all = part(kind, number, len);
        all["op"] = json!("kv");
        all
    };
    match *command {
        Command::Read { offset, len } => json!({ "op": "read", "offset": offset, "len": len }),
        Command::Write { offset, len } => {
            json!({ "op": "write", "offset": offset, "len": len, "fua": false })
        }
        Command::WriteFua { offset, len } => {
            json!({ "op": "write", "offset": offset, "len": len, "fua": true })
        }
        Command::Deallocate { offset, len } => {
            json!({ "op": "deallocate", "offset": offset, "len": len })
        }
        Command::Flush => json!({ "op": "flush" }),
        // No point has appends, and the oracle refuses the word.
        Command::Append { len, .. } => json!({ "op": "append", "len": len }),
        Command::ResetZone { offset } => {
            json!({ "op": "zone", "action": "reset", "zone": offset / zone_size(drive) })
        }
        Command::Store { key, len } => kv("store", key, len),
        Command::Retrieve { key, len } => kv("retrieve", key, len),
        Command::StoreTogether { key, count, len } => {
            let keys = key..key + u64::from(count);
            let parts: Vec<Value> = keys.map(|key| part("store", key, len)).collect();
            json!({ "op": "compound", "parts": parts })
        }
    }
}

fn zone_size(Drive(parameters): &Drive) -> u64 {
    match parameters {
        Parameters::Zones(zones) => zones.zone_size_bytes,
        _ => 1,
    }
}

/// Asks of everything and records it.
///
/// # Errors
/// Those of [`ask`]; the file cannot be written.
pub fn record() -> Result<()> {
    let mut text = String::from("{\n");
    let answers = ask("", "")?;
    let last = answers.len();
    for (preset, (name, answers)) in (1..).zip(&answers) {
        writeln!(text, "  {}: {{", json!(name))?;
        for (point, (name, recorded)) in (1..).zip(answers) {
            let comma = if point < answers.len() { "," } else { "" };
            writeln!(text, "    {}: {}{comma}", json!(name), json!(recorded))?;
        }
        writeln!(text, "  }}{}", if preset < last { "," } else { "" })?;
    }
    text.push_str("}\n");
    let file = file();
    std::fs::write(&file, text).with_context(|| file.display().to_string())
}

/// Answers that differ from those that are recorded, in words.
///
/// # Errors
/// Those of [`ask`].
pub fn differing(only: &str, part: &str) -> Result<Vec<String>> {
    let mut differing = Vec::new();
    for (preset, answers) in ask(only, part)? {
        let recorded = points::recorded(&preset);
        for (point, answer) in answers {
            let before = recorded.get(&point);
            if before != Some(&answer) {
                differing.push(format!(
                    "{preset}, {point}: {answer:?}, recorded {before:?}"
                ));
            }
        }
    }
    Ok(differing)
}
