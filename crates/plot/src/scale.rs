//! Where values lie on an axis, which of them are written there, and how.

use crate::{Axis, Scale};

/// Numbers at an axis, at most.
const TICKS_MAX: usize = 9;

/// An axis with the range of what it shows.
#[derive(Debug)]
pub(crate) struct Ruler<'a> {
    axis: &'a Axis,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl<'a> Ruler<'a> {
    /// Of an axis and all values that it has to show. `air`: the part of it that stays free behind the last value.
    pub(crate) fn new(axis: &'a Axis, values: impl Iterator<Item = f64>, air: f64) -> Self {
        let of_powers = matches!(axis.scale, Scale::Doublings | Scale::Decades);
        let fit = values.filter(|value| value.is_finite() && (!of_powers || *value > 0.0));
        let (least, most) = fit.fold(
            (f64::INFINITY, f64::NEG_INFINITY),
            |(least, most), value| (least.min(value), most.max(value)),
        );
        let (least, most) = if least > most {
            (1.0, 1.0)
        } else {
            (least, most)
        };
        let wide = |from: f64, to: f64| {
            if to > from {
                (from, to)
            } else {
                (from, from + 1.0)
            }
        };
        let (from, to) = match &axis.scale {
            Scale::FromZero(at_least) => {
                let top = (most * (1.0 + air)).max(*at_least);
                wide(least.min(0.0), if top > 0.0 { top } else { 1.0 })
            }
            Scale::Fitted => {
                let margin = (most - least).max(most.abs() * 1e-3) * 0.05;
                wide(least - margin, most + margin)
            }
            Scale::Doublings => (least / 1.2, most * 1.25),
            Scale::Decades => (least / 1.5, most * 1.8),
            Scale::Places(names) => (-0.5, names.len().max(1) as f64 - 0.5),
        };
        let ticks = match &axis.scale {
            Scale::FromZero(_) | Scale::Fitted => even(from, to),
            Scale::Doublings => powers(from, to, 2.0, &[1.0]),
            Scale::Decades => powers(from, to, 10.0, &[1.0, 2.0, 5.0]),
            Scale::Places(names) => (0..names.len()).map(|at| at as f64).collect(),
        };
        Self {
            axis,
            from,
            to,
            ticks,
        }
    }

    /// Which part of the axis lies before this value; `None`: it is not on it.
    pub(crate) fn part(&self, value: f64) -> Option<f64> {
        let part = match self.axis.scale {
            Scale::Doublings | Scale::Decades => {
                (value / self.from).log2() / (self.to / self.from).log2()
            }
            _ => (value - self.from) / (self.to - self.from),
        };
        (-1e-9..=1.0 + 1e-9).contains(&part).then_some(part)
    }

    /// Where bars begin.
    pub(crate) fn ground(&self) -> f64 {
        self.part(0.0).unwrap_or(0.0)
    }

    /// The values that are written, and how.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let step = match self.ticks[..] {
            [first, second, ..] => second - first,
            _ => 1.0,
        };
        self.ticks.iter().enumerate().map(move |(at, value)| {
            let name = match (&self.axis.scale, self.axis.format) {
                (Scale::Places(names), _) => names[at].clone(),
                (_, Some(format)) => format(*value),
                (Scale::FromZero(_) | Scale::Fitted, None) => digits(*value, step),
                (Scale::Doublings | Scale::Decades, None) => short(*value),
            };
            (*value, name)
        })
    }
}

/// Multiples of one, two or five times a power of ten.
fn even(from: f64, to: f64) -> Vec<f64> {
    let raw = (to - from) / (TICKS_MAX - 1) as f64;
    let power = 10_f64.powf(raw.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| *step >= raw * (1.0 - 1e-9));
    let step = step.unwrap_or(raw);
    let (first, last) = ((from / step - 1e-9).ceil(), (to / step + 1e-9).floor());
    (0..=(last - first).max(0.0) as usize)
        .map(|at| (first + at as f64) * step)
        .collect()
}

/// Powers of a base, each times all of `between` where there is room for that.
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

/// With as many digits behind the point as tell steps apart.
fn digits(value: f64, step: f64) -> String {
    let places = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.places$}");
    match text
        .trim_start_matches('-')
        .chars()
        .all(|c| matches!(c, '0' | '.'))
    {
        true => text.trim_start_matches('-').to_owned(),
        false => text,
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
