//! Pictures of measurements, as SVG: all that this project draws looks as this crate says.
//!
//! A [`Picture`] is one or several [`Panel`]s in columns; a panel has two [`Axis`]es and [`Series`]
//! of points: lines, dots or bars. What a series is called stands beside its panel and never on it,
//! colours are such as people who see few of them can tell apart, the ground is white.
//!
//! The library `plotters` draws (ADR 27).
//!
//! Invariants: the same picture gives the same text; numbers that are not finite, beyond 10^15, or
//! not above 10^-15 where a scale is of powers, are not drawn; nothing fails.
//!
//! What it does NOT do: know what is measured, compute anything of it, read or write files or
//! fonts, or measure text: widths are guessed, on the wide side.
#![forbid(unsafe_code)]

mod draw;
mod scale;
mod text;

#[cfg(test)]
mod tests;

pub use draw::svg;

/// One picture.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Stands above all; empty: nothing does.
    pub title: String,
    /// Panels beside each other; 0 is 1.
    pub columns: usize,
    /// Width and height of a panel in pixels, with what stands beside it.
    pub panel: (u32, u32),
    /// From left to right, from top to bottom.
    pub panels: Vec<Panel>,
    /// What must be known to read it: paragraphs below all.
    pub notes: Vec<String>,
}

/// A part of a picture with axes of its own.
#[derive(Clone, Debug, Default)]
pub struct Panel {
    /// Stands above it; empty: nothing does.
    pub title: String,
    /// The axis from left to right.
    pub across: Axis,
    /// The axis upwards.
    pub up: Axis,
    /// What is shown.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// What it is of, with its unit.
    pub name: String,
    /// How values lie on it.
    pub scale: Scale,
    /// How its numbers are written; `None`: with as many digits as tell them apart.
    pub format: Option<fn(f64) -> String>,
}

/// How values lie on an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Evenly, from zero up to the largest value, and at least to this one.
    FromZero(f64),
    /// Evenly, from the least value to the largest.
    Fitted,
    /// Each power of two as far from the next.
    Doublings,
    /// Each power of ten as far from the next.
    Decades,
    /// Values are 0, 1, 2 ..., and have these names.
    Places(Vec<String>),
}

/// What belongs together.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// What it is called; empty: it is not named.
    pub name: String,
    /// How it is drawn.
    pub mark: Mark,
    /// Series with the same number here have the same colour; `None`: that of its place among the
    /// panel's.
    pub color: Option<usize>,
    /// In the order in which they are joined.
    pub points: Vec<Point>,
}

/// How the points of a series are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Joined: what is computed, or all of a course.
    #[default]
    Line,
    /// Alone: what was measured.
    Dots,
    /// Joined dots.
    LineAndDots,
    /// Bars from zero, beside those of the panel's other series of bars.
    Bars,
}

/// A point, in the units of the axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Across.
    pub at: f64,
    /// Upwards.
    pub value: f64,
    /// The least and the most beside it.
    pub range: Option<(f64, f64)>,
    /// What stands above it.
    pub label: Option<String>,
}

impl Default for Scale {
    fn default() -> Self {
        Scale::FromZero(0.0)
    }
}

impl Axis {
    /// An axis that begins at zero.
    #[must_use]
    pub fn from_zero(name: impl Into<String>) -> Self {
        Self::of(name, Scale::FromZero(0.0))
    }

    /// An axis of names.
    #[must_use]
    pub fn places(name: impl Into<String>, places: Vec<String>) -> Self {
        Self::of(name, Scale::Places(places))
    }

    /// An axis of that scale.
    #[must_use]
    pub fn of(name: impl Into<String>, scale: Scale) -> Self {
        Self {
            name: name.into(),
            scale,
            format: None,
        }
    }

    /// The same, with its numbers written so.
    #[must_use]
    pub fn written(self, format: fn(f64) -> String) -> Self {
        Self {
            format: Some(format),
            ..self
        }
    }
}

impl Series {
    /// Points without more.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        mark: Mark,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self {
            name: name.into(),
            mark,
            color: None,
            points: points.into_iter().map(Point::from).collect(),
        }
    }

    /// The same, in the colour of that number.
    #[must_use]
    pub fn colored(self, color: usize) -> Self {
        Self {
            color: Some(color),
            ..self
        }
    }
}

impl Point {
    /// The same, with its least and most.
    #[must_use]
    pub fn between(self, least: f64, most: f64) -> Self {
        Self {
            range: Some((least, most)),
            ..self
        }
    }

    /// The same, with what stands above it.
    #[must_use]
    pub fn labelled(self, label: impl Into<String>) -> Self {
        Self {
            label: Some(label.into()),
            ..self
        }
    }
}

impl From<(f64, f64)> for Point {
    fn from((at, value): (f64, f64)) -> Self {
        Self {
            at,
            value,
            range: None,
            label: None,
        }
    }
}
