//! A calibration as JSON, and as a preset's file.

use std::collections::BTreeMap;

use model::Parameters;
use serde::Serialize;

use crate::calibrate::{Calibration, Finding, Foretold, Sample, Standing, Sweep, needed};
use crate::config::Size;
use crate::config::drive::{Drive, FILE_VERSION, FileValue, PresetFile};

/// All that is told.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) kind: &'static str,
    /// Points that took part.
    pub(super) points: usize,
    /// Their noise, as a share.
    pub(super) noise: f64,
    pub(super) sweeps: Vec<Sweep>,
    pub(super) parameters: Vec<Row>,
    pub(super) fitted: Vec<Point>,
    pub(super) held_out: Vec<Point>,
    /// Steady state, of a small drive of the same kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) sustained: Vec<Point>,
    /// What was of no use, and why.
    pub(super) passed_over: Vec<String>,
    /// The file that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) written: Option<String>,
}

/// A parameter that was looked for.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) identifiable: bool,
    /// Bounds of 95 %; one alone where there is no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) low: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) high: Option<String>,
    /// The sweep that tells it.
    pub(super) sweep: &'static str,
}

/// A point that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) what: String,
    pub(super) measured_ns: f64,
    pub(super) model_ns: f64,
    pub(super) error_percent: f64,
}

/// What all that was not measured is from.
#[derive(Clone, Copy)]
pub(super) struct Like<'a> {
    pub(super) drive: &'a Drive,
    /// What is known to differ: `NAME=VALUE`.
    pub(super) set: &'a [String],
}

impl Like<'_> {
    fn source(&self, name: &str) -> Option<String> {
        let mut set = self.set.iter().filter_map(|change| change.split_once('='));
        if set.any(|(of, _)| of == name) {
            return Some("set: when it was calibrated".to_owned());
        }
        let (like, given) = (self.drive.name(), self.drive.given(name)?);
        Some(format!("that of {like} ({})", given.source))
    }
}

fn point(foretold: &Foretold) -> Point {
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    Point {
        what: foretold.sample.title(),
        measured_ns: rounded(foretold.sample.mean_ns),
        model_ns: rounded(foretold.mean_ns),
        error_percent: rounded(foretold.error() * 100.0),
    }
}

fn rows(finding: &Finding) -> impl Iterator<Item = Row> {
    let all = finding.names.iter().zip(&finding.known);
    all.map(|(name, known)| Row {
        name,
        value: known.value.to_string(),
        identifiable: matches!(finding.standing, Standing::Known(_)),
        low: known.low.map(|value| value.to_string()),
        high: known.high.map(|value| value.to_string()),
        sweep: finding.sweep,
    })
}

impl Row {
    /// What is known of it, in words.
    pub(super) fn interval(&self) -> String {
        match (&self.low, &self.high) {
            (Some(low), Some(high)) => format!("{low} to {high}"),
            (Some(low), None) => format!("not identifiable: at least {low}"),
            (None, Some(high)) => format!("not identifiable: at most {high}"),
            (None, None) => "not identifiable".to_owned(),
        }
    }
}

impl Document {
    pub(super) fn new(
        found: &Calibration,
        samples: &[Sample],
        mut passed_over: Vec<String>,
    ) -> Self {
        passed_over.extend_from_slice(&found.passed_over);
        let points = |all: &[Foretold]| all.iter().map(point).collect();
        Document {
            kind: found.parameters.kind().name(),
            points: found.fitted.len(),
            noise: (found.noise * 1e5).round() / 1e5,
            sweeps: needed(found.parameters.kind(), samples),
            parameters: found.findings.iter().flat_map(rows).collect(),
            fitted: points(&found.fitted),
            held_out: points(&found.held_out),
            sustained: points(&found.sustained),
            passed_over,
            written: None,
        }
    }

    /// The drive, as a file has it.
    pub(super) fn preset(
        &self,
        found: &Calibration,
        name: &str,
        like: Option<Like<'_>>,
        size: Size,
    ) -> PresetFile {
        let kind = found.parameters.kind();
        let values = kind
            .parameters()
            .filter(|p| !p.is_extra() || is_on(p, &found.parameters));
        let parameters: BTreeMap<String, FileValue> = values
            .map(|parameter| {
                let value = parameter.get(&found.parameters).to_string();
                let row = self
                    .parameters
                    .iter()
                    .find(|row| row.name == parameter.name);
                let file = FileValue {
                    value,
                    source: source(row, parameter.name, like, self.points),
                    interval: row.and_then(|row| Some([row.low.clone()?, row.high.clone()?])),
                };
                (parameter.name.to_owned(), file)
            })
            .collect();
        let like = like.map_or_else(String::new, |like| {
            format!("; what was not: {}", like.drive.name())
        });
        PresetFile {
            nvmirage_preset: FILE_VERSION,
            name: name.to_owned(),
            about: format!(
                "calibrated from {} points that were measured{like}",
                self.points
            ),
            kind: kind.name().to_owned(),
            size,
            parameters,
        }
    }
}

fn is_on(parameter: &model::parameter::Parameter, parameters: &Parameters) -> bool {
    parameter.get(parameters).raw != 0
}

/// Where a value is from.
fn source(row: Option<&Row>, name: &str, like: Option<Like<'_>>, points: usize) -> String {
    let other = || {
        let source = like.and_then(|like| like.source(name));
        source.unwrap_or_else(|| "assumed".to_owned())
    };
    match row {
        Some(row) if row.identifiable => format!("measured: fitted to {points} points"),
        Some(row) if row.value == "none" => format!("{}; none taken", row.interval()),
        Some(row) => format!("{}; {}", row.interval(), other()),
        None => other(),
    }
}
