//! Cases, both sides of each, and the first difference.

use std::fmt::Write as _;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result, bail};
use model::{Kind, preset};
use serde::Deserialize;

use crate::document::{Command, Document, Drive};
use crate::drive::{Ended, Outcome, drive};
use crate::python;

/// A drive, or a shape of drives of which the seed makes one.
#[derive(Clone, Debug)]
pub struct Case {
    /// A preset's or a shape's.
    pub name: String,
    /// Of a preset; a shape's are generated.
    drive: Option<Drive>,
    /// The drive is made small first, so that it is written over many times.
    scaled: bool,
}

impl Case {
    /// Its name for `--only`.
    pub fn label(&self) -> String {
        if self.scaled {
            format!("{}, small", self.name)
        } else {
            self.name.clone()
        }
    }
}

/// Bytes of a drive of a preset: enough for its geometry, and not more than the oracle can hold.
const SIZE_BYTES: u64 = 8 << 30;

/// All shapes, and each preset as it is and made small.
///
/// # Errors
/// There is no Python, or a preset makes no drive.
pub fn cases() -> Result<Vec<Case>> {
    let shapes: Vec<String> = serde_json::from_slice(&python::ask(&["shapes"], "")?)?;
    let shape = |name| Case {
        name,
        drive: None,
        scaled: false,
    };
    let mut cases: Vec<Case> = shapes.into_iter().map(shape).collect();
    for preset in preset::presets() {
        let name = preset.full_name();
        let parameters = preset
            .parameters(SIZE_BYTES, None)
            .with_context(|| name.clone())?;
        let case = |scaled| Case {
            name: name.clone(),
            drive: Some(Drive(parameters.clone())),
            scaled,
        };
        cases.push(case(false));
        if matches!(preset.kind, Kind::Flash | Kind::Zns) {
            cases.push(case(true));
        }
    }
    Ok(cases)
}

/// Result of a case.
#[derive(Debug)]
pub struct Compared {
    /// [`Case::label`] and the seed.
    pub label: String,
    /// Commands.
    pub commands: usize,
    /// Of them, those that are not admitted and done when the oracle says, or not in that order; 1
    /// where only the counters differ.
    pub differing: usize,
    /// The first difference, in words.
    pub first: Option<String>,
}

/// The oracle's answer to `case`.
#[derive(Deserialize)]
struct Answer {
    #[serde(flatten)]
    document: Document,
    expected: Outcome,
}

/// Runs one case on both sides.
///
/// # Errors
/// One of the sides fails.
pub fn compare(case: &Case, seed: u64, commands: u64) -> Result<Compared> {
    let (seed, count) = (seed.to_string(), commands.to_string());
    let mut arguments = vec![
        "case",
        "--name",
        &case.name,
        "--seed",
        &seed,
        "--commands",
        &count,
    ];
    if case.scaled {
        arguments.push("--scaled");
    }
    let input = serde_json::to_string(&case.drive)?;
    let answer: Answer = serde_json::from_slice(&python::ask(&arguments, &input)?)?;
    let label = format!("{}, seed {seed}", case.label());
    let ours = drive(&answer.document).with_context(|| label.clone())?;
    Ok(Compared {
        label,
        commands: answer.document.commands.len(),
        differing: differing(&ours, &answer.expected),
        first: first(&answer.document, &ours, &answer.expected)?,
    })
}

fn differing(ours: &Outcome, expected: &Outcome) -> usize {
    let lines = ours.done.iter().zip(&expected.done);
    let done =
        lines.filter(|(a, b)| a != b).count() + ours.done.len().abs_diff(expected.done.len());
    done.max(usize::from(ours.counters != expected.counters))
}

/// How many commands are shown before and after the first that differs.
const AROUND: usize = 6;

fn first(document: &Document, ours: &Outcome, expected: &Outcome) -> Result<Option<String>> {
    if ours == expected {
        return Ok(None);
    }
    let by_id = |outcome: &Outcome| {
        let mut done = outcome.done.clone();
        done.sort_by_key(|ended| ended.id);
        done
    };
    let (mine, theirs) = (by_id(ours), by_id(expected));
    let mut text = String::new();
    let mut pairs: Vec<(&Ended, &Ended)> = mine.iter().zip(&theirs).collect();
    // The first to be admitted is nearest to the cause.
    pairs.sort_by_key(|(_, expected)| (expected.admitted, expected.id));
    if let Some(at) = pairs.iter().position(|(a, b)| a != b) {
        writeln!(
            text,
            "drive: {}",
            serde_json::to_string(&Drive(document.parameters.clone()))?
        )?;
        for (ours, expected) in &pairs[at.saturating_sub(AROUND)..(at + AROUND).min(pairs.len())] {
            let command = document
                .commands
                .iter()
                .find(|command| command.id == ours.id);
            let command = serde_json::to_string::<Option<&Command>>(&command)?;
            write!(
                text,
                "  {command}: admitted {}, done {}",
                expected.admitted, expected.done
            )?;
            if ours != expected {
                write!(text, "; the model: {}, {}", ours.admitted, ours.done)?;
            }
            writeln!(text)?;
        }
    } else if let Some((a, b)) = ours.done.iter().zip(&expected.done).find(|(a, b)| a != b) {
        writeln!(
            text,
            "all times agree, and not the order: {b:?} is next, the model: {a:?}"
        )?;
    }
    if ours.counters != expected.counters {
        writeln!(text, "counters: {}", expected.counters)?;
        writeln!(text, "   model: {}", ours.counters)?;
    }
    Ok(Some(text))
}

/// Runs cases by seed, as many at a time as there are processors, and prints a line for each;
/// whether none differs.
///
/// # Errors
/// A side fails.
pub fn run(cases: &[Case], seeds: &[u64], commands: u64) -> Result<bool> {
    let work: Vec<(&Case, u64)> = cases
        .iter()
        .flat_map(|case| seeds.iter().map(move |seed| (case, *seed)))
        .collect();
    if work.is_empty() {
        bail!("no case has such a name");
    }
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    println!("{:<44} {:>9} {:>9}", "drive", "commands", "differing");
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((case, seed)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = compare(case, *seed, commands);
                    if let Ok(Compared {
                        label,
                        commands,
                        differing,
                        ..
                    }) = &result
                    {
                        println!("{label:<44} {commands:>9} {differing:>9}");
                    }
                    results
                        .lock()
                        .expect("no thread panics with it")
                        .push(result);
                }
            });
        }
    });
    let mut equal = true;
    let mut all = 0;
    for result in results.into_inner().expect("no thread panics with it") {
        let compared = result?;
        all += compared.commands;
        if let Some(first) = compared.first {
            equal = false;
            println!("\n{}: the first difference\n{first}", compared.label);
        }
    }
    println!("{} drives, {all} commands", work.len());
    Ok(equal)
}
