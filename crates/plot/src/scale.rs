//! Positions of values on an axis, and its ticks with their labels: a coordinate of the library for
//! each [`Scale`].

use plotters::coord::combinators::{IntoLogRange as _, LogCoord};
use plotters::coord::ranged1d::{
    BoldPoints, KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter,
};
use plotters::coord::types::RangedCoordf64;

use crate::text::{self, SMALL};
use crate::{Axis, Scale};

/// Maximum number of ticks of an axis.
const TICKS_MAX: usize = 9;

/// An axis with the range of its values.
pub(crate) struct Ruler {
    line: Line,
    pub(crate) ticks: Vec<Tick>,
}

/// A labelled value of an axis.
#[derive(Clone, Debug)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    /// Its label: one or several lines.
    pub(crate) lines: Vec<String>,
}

/// The library's coordinate.
enum Line {
    Even(RangedCoordf64),
    Powers(LogCoord<f64>),
}

/// Maximum of values, and on logarithmic scales the reciprocal of the minimum: the library counts
/// in steps from one end of an axis to the other, and indistinguishable numbers are no steps.
const LARGEST: f64 = 1e15;

/// Whether an axis with that scale can show a value.
fn fits(scale: &Scale, value: f64) -> bool {
    value.abs() <= LARGEST && (value >= 1.0 / LARGEST || !is_of_powers(scale))
}

const fn is_of_powers(scale: &Scale) -> bool {
    matches!(scale, Scale::Doublings | Scale::Decades)
}

impl Ruler {
    /// A ruler for an axis and all of its values. `air`: the part that stays free after the last
    /// value.
    pub(crate) fn new(axis: &Axis, values: impl Iterator<Item = f64>, air: f64) -> Self {
        let (least, most) = values.filter(|value| fits(&axis.scale, *value)).fold(
            (f64::INFINITY, f64::NEG_INFINITY),
            |(least, most), value| (least.min(value), most.max(value)),
        );
        let (least, most) = if least > most {
            (1.0, 1.0)
        } else {
            (least, most)
        };
        let (from, to) = match &axis.scale {
            Scale::FromZero(at_least) => (least.min(0.0), (most * (1.0 + air)).max(*at_least)),
            Scale::Fitted => {
                let margin = (most - least).max(most.abs() * 1e-3) * 0.05;
                (least - margin, most + margin)
            }
            Scale::Doublings => (least / 1.2, most * 1.25),
            Scale::Decades => (least / 1.5, most * 1.8),
            Scale::Places(names) => (-0.5, names.len().max(1) as f64 - 0.5),
        };
        let to = if to - from <= from.abs().max(1.0) / LARGEST.sqrt() && !is_of_powers(&axis.scale)
        {
            from + 1.0
        } else {
            to
        };
        let even = RangedCoordf64::from(from..to);
        let values = match &axis.scale {
            Scale::FromZero(_) | Scale::Fitted => even.key_points(BoldPoints(TICKS_MAX)),
            Scale::Doublings => powers(from, to, 2.0, &[1.0]),
            Scale::Decades => powers(from, to, 10.0, &[1.0, 2.0, 5.0]),
            Scale::Places(names) => (0..names.len()).map(|at| at as f64).collect(),
        };
        let line = if is_of_powers(&axis.scale) {
            Line::Powers((from..to).log_scale().into())
        } else {
            Line::Even(even)
        };
        let ticks = named(axis, &values);
        Self { line, ticks }
    }

    /// Whether a value has a position on it.
    pub(crate) fn shows(&self, value: f64) -> bool {
        let range = self.range();
        (range.start..=range.end).contains(&value)
    }

    /// Breaks names of places, and omits numbers, that would overlap on an axis of this length in
    /// pixels.
    pub(crate) fn along(mut self, axis: &Axis, pixels: i32) -> Self {
        if let Scale::Places(names) = &axis.scale {
            let each = pixels / i32::try_from(names.len().max(1)).unwrap_or(i32::MAX);
            for (tick, name) in self.ticks.iter_mut().zip(names) {
                tick.lines = text::wrapped(name, SMALL, each);
            }
        }
        let mut free = i32::MIN;
        let places: Vec<i32> = self
            .ticks
            .iter()
            .map(|t| self.map(&t.value, (0, pixels)))
            .collect();
        let mut places = places.into_iter();
        self.ticks.retain(|tick| {
            let widths = tick.lines.iter().map(|line| text::width(line, SMALL));
            let (half, at) = (widths.max().unwrap_or(0) / 2, places.next().unwrap_or(0));
            let is_free = at - half >= free;
            if is_free {
                free = at + half + 3;
            }
            is_free
        });
        self
    }
}

impl Ranged for Ruler {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, pixels: (i32, i32)) -> i32 {
        match &self.line {
            Line::Even(line) => line.map(value, pixels),
            Line::Powers(line) => line.map(value, pixels),
        }
    }

    /// The labelled values. The library also requests lines between them; there are none.
    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            Vec::new()
        } else {
            self.ticks.iter().map(|tick| tick.value).collect()
        }
    }

    fn range(&self) -> std::ops::Range<f64> {
        match &self.line {
            Line::Even(line) => line.range(),
            Line::Powers(line) => line.range(),
        }
    }
}

impl ValueFormatter<f64> for Ruler {
    /// The first line of a value's label.
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|tick| tick.value == *value);
        tick.and_then(|tick| tick.lines.first().cloned())
            .unwrap_or_default()
    }
}

fn named(axis: &Axis, values: &[f64]) -> Vec<Tick> {
    let step = match values {
        [first, second, ..] => second - first,
        _ => 1.0,
    };
    let name = |at: usize, value: f64| match (&axis.scale, axis.format) {
        (Scale::Places(names), _) => names[at].clone(),
        (_, Some(format)) => format(value),
        (Scale::FromZero(_) | Scale::Fitted, None) => digits(value, step),
        (Scale::Doublings | Scale::Decades, None) => short(value),
    };
    let tick = |(at, value): (usize, &f64)| Tick {
        value: *value,
        lines: vec![name(at, *value)],
    };
    values.iter().enumerate().map(tick).collect()
}

/// Powers of a base, each multiplied by all of `between` if there is room: the library has no axis
/// with 1, 2, 5, 10.
fn powers(from: f64, to: f64, base: f64, between: &[f64]) -> Vec<f64> {
    let first = from.log(base).floor() as i32;
    let last = to.log(base).ceil() as i32;
    let all = |between: &[f64]| -> Vec<f64> {
        let values = (first..=last).flat_map(|power| {
            let value = base.powi(power);
            between.iter().map(move |factor| value * factor)
        });
        values.filter(|value| (from..=to).contains(value)).collect()
    };
    let fine = all(between);
    if fine.len() <= TICKS_MAX + 1 {
        return fine;
    }
    let coarse = all(&[1.0]);
    let by = coarse.len().div_ceil(TICKS_MAX + 6);
    coarse.into_iter().step_by(by).collect()
}

/// A number with as many decimals as distinguish steps.
fn digits(value: f64, step: f64) -> String {
    let places = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.places$}");
    if text
        .trim_start_matches('-')
        .chars()
        .all(|c| matches!(c, '0' | '.'))
    {
        text.trim_start_matches('-').to_owned()
    } else {
        text
    }
}

/// `20`, `5 K`, `2 M`.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, " G"),
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e3 => (v / 1e3, " K"),
        v => (v, ""),
    };
    let text = format!("{value:.3}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}
