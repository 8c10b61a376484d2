//! Cases that were worked out by hand from the page.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::document::{Change, Command, Document, Drive};
use crate::drive::Ended;
use crate::python::folder;

#[derive(Deserialize)]
struct File {
    bases: BTreeMap<String, Value>,
    vectors: Vec<Written>,
}

#[derive(Deserialize)]
struct Written {
    name: String,
    base: String,
    #[serde(default)]
    change: Value,
    working: String,
    commands: Vec<Command>,
    #[serde(default)]
    changes: Vec<WrittenChange>,
    done: Vec<Ended>,
}

/// A change at some time.
#[derive(Deserialize)]
struct WrittenChange {
    t: u64,
    change: Value,
}

/// One case.
#[derive(Debug)]
pub struct Vector {
    /// Its subject.
    pub name: String,
    /// How the times come about.
    pub working: String,
    /// The drive, and its commands.
    pub document: Document,
    /// When commands are done.
    pub done: Vec<Ended>,
}

/// Reads `vectors.json`.
///
/// # Errors
/// It is not as it should be.
pub fn read() -> Result<Vec<Vector>> {
    let path = folder().join("vectors.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let file: File = serde_json::from_str(&text)?;
    let vector = |written: Written| {
        let mut parameters = file
            .bases
            .get(&written.base)
            .context("no such base")?
            .clone();
        change(&mut parameters, written.change);
        let Drive(made) = serde_json::from_value(parameters.clone())?;
        let mut changes = Vec::new();
        for written in written.changes {
            change(&mut parameters, written.change);
            let Drive(parameters) = serde_json::from_value(parameters.clone())?;
            changes.push(Change {
                t: written.t,
                parameters,
            });
        }
        Ok(Vector {
            name: format!("{}: {}", written.base, written.name),
            working: written.working,
            document: Document {
                parameters: made,
                commands: written.commands,
                changes,
            },
            done: written.done,
        })
    };
    file.vectors.into_iter().map(vector).collect()
}

/// Puts what is changed into the base; objects within are merged likewise.
fn change(base: &mut Value, change: Value) {
    match (base, change) {
        (Value::Object(base), Value::Object(changes)) => {
            for (name, value) in changes {
                self::change(base.entry(name).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => (),
        (base, value) => *base = value,
    }
}
