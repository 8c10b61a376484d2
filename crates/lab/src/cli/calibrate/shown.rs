//! Text output of a calibration.

use std::fmt::Write as _;

use terminal::table::{Align, Table};
use terminal::units;

use super::document::{Document, Point, points_in_words};

pub(super) fn text(document: &Document) -> String {
    let mut text = format!(
        "A drive of kind {}, from {}, {} held out; noise {:.2} %\n",
        document.kind,
        points_in_words(document.points),
        document.held_out.len(),
        document.noise * 100.0
    );
    for why in &document.passed_over {
        let _ = writeln!(text, "passed over: {why}");
    }
    let parts = [
        ("Sweeps", sweeps(document)),
        ("Parameters", parameters(document)),
        ("Points that took part", points(&document.fitted, false)),
        ("Points held out", points(&document.held_out, true)),
        (
            "Steady state, of a small drive of the same kind",
            points(&document.sustained, true),
        ),
    ];
    for (heading, part) in parts {
        if !part.is_empty() {
            let _ = write!(text, "\n{heading}\n{part}");
        }
    }
    if let Some(path) = &document.written {
        let _ = writeln!(text, "\nwritten: {path}");
    }
    text
}

fn sweeps(document: &Document) -> String {
    let mut table = Table::new(&[
        ("sweep", Align::Left),
        ("of", Align::Left),
        ("", Align::Left),
        ("determines", Align::Left),
    ]);
    let mut missing = String::new();
    for sweep in &document.sweeps {
        let state = if sweep.present { "there" } else { "missing" };
        table.row(vec![
            sweep.name.into(),
            sweep.direction.into(),
            state.into(),
            sweep.tells.into(),
        ]);
        if !sweep.present {
            let _ = writeln!(missing, "missing: {}", sweep.command);
            if let Some(or) = &sweep.or {
                let _ = writeln!(missing, "     or: {or}");
            }
        }
    }
    format!("{table}{missing}")
}

fn parameters(document: &Document) -> String {
    let mut table = Table::new(&[
        ("parameter", Align::Left),
        ("value", Align::Right),
        ("95 % interval", Align::Left),
        ("from", Align::Left),
    ]);
    for row in &document.parameters {
        table.row(vec![
            row.name.into(),
            row.value.clone(),
            row.interval(),
            row.sweep.into(),
        ]);
    }
    table.to_string()
}

/// All points one by one, or only a summary of their errors.
fn points(points: &[Point], each: bool) -> String {
    if points.is_empty() {
        return String::new();
    }
    let worst = points
        .iter()
        .map(|p| p.error_percent.abs())
        .fold(0.0, f64::max);
    let count = f64::from(u32::try_from(points.len()).unwrap_or(u32::MAX));
    let mean = points.iter().map(|p| p.error_percent.abs()).sum::<f64>() / count;
    let sum = format!(
        "{}, off by {mean:.2} % on the average, {worst:.2} % at most\n",
        points_in_words(points.len())
    );
    if !each {
        return sum;
    }
    let mut table = Table::new(&[
        ("point", Align::Left),
        ("measured", Align::Right),
        ("model", Align::Right),
        ("error", Align::Right),
    ]);
    for point in points {
        table.row(vec![
            point.what.clone(),
            units::nanoseconds(point.measured_ns),
            units::nanoseconds(point.model_ns),
            format!("{:+.2} %", point.error_percent),
        ]);
    }
    format!("{table}{sum}")
}
