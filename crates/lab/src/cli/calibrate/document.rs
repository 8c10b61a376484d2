//! JSON and preset file of a calibration.

use std::collections::BTreeMap;

use api::config::Size;
use api::config::drive::{Drive, FILE_VERSION, FileValue, PresetFile};
use model::Parameters;
use serde::Serialize;

use crate::calibrate::{Calibration, Finding, Foretold, Sample, Standing, Sweep, needed};

/// Complete result of a calibration.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) kind: &'static str,
    /// Points used by the fit.
    pub(super) points: usize,
    /// Their noise, as a fraction.
    pub(super) noise: f64,
    pub(super) sweeps: Vec<Sweep>,
    pub(super) parameters: Vec<Row>,
    pub(super) fitted: Vec<Point>,
    pub(super) held_out: Vec<Point>,
    /// Steady-state points, predicted by a small drive of the same kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) sustained: Vec<Point>,
    /// Measurements that were not usable, with the reasons.
    pub(super) passed_over: Vec<String>,
    /// The preset file, if one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) written: Option<String>,
}

/// A parameter that the fit looked for.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) identifiable: bool,
    /// Bounds of the 95 % interval; only one of them if the other side is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) low: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) high: Option<String>,
    /// The sweep that identifies the parameter.
    pub(super) sweep: &'static str,
}

/// A measured point.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) what: String,
    pub(super) measured_ns: f64,
    pub(super) model_ns: f64,
    pub(super) error_percent: f64,
}

/// Source of every value that was not measured.
#[derive(Clone, Copy)]
pub(super) struct Like<'a> {
    pub(super) drive: &'a Drive,
    /// Values known to differ: `NAME=VALUE`.
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
    /// The interval in words.
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

    /// Preset file of the calibrated drive.
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
            about: format!("calibrated from {}{like}", measured(self.points)),
            kind: kind.name().to_owned(),
            size,
            parameters,
        }
    }
}

fn is_on(parameter: &model::parameter::Parameter, parameters: &Parameters) -> bool {
    parameter.get(parameters).raw != 0
}

/// `1 point`, `2 points`.
pub(super) fn points_in_words(count: usize) -> String {
    match count {
        1 => "1 point".to_owned(),
        _ => format!("{count} points"),
    }
}

/// `1 measured point`, `2 measured points`.
fn measured(count: usize) -> String {
    points_in_words(count).replacen(' ', " measured ", 1)
}

/// Source of a value, as the preset names it.
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
