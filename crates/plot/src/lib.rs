//! Figures of measurements as SVG, with a common style for the whole project.
//!
//! A [`Picture`] has one or several [`Panel`]s in columns; a panel has two [`Axis`]es and
//! [`Series`] of points: lines, dots or bars. The name of a series is beside its panel and never on
//! it, colours are distinguishable for readers with impaired colour vision, and the background is
//! white.
//!
//! The library `plotters` draws (ADR 27).
//!
//! Invariants: the same picture gives the same text; numbers that are not finite, beyond 10^15, or
//! not above 10^-15 on a logarithmic scale, are not drawn; drawing never fails.
//!
//! Not included: the meaning of values, computations, access to files or fonts, and text
//! measurement: widths are estimated generously.
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
    /// Title above the panels; empty: none.
    pub title: String,
    /// Number of panels side by side; 0 counts as 1.
    pub columns: usize,
    /// Width and height of a panel in pixels, with the names beside it.
    pub panel: (u32, u32),
    /// Panels, from left to right, from top to bottom.
    pub panels: Vec<Panel>,
    /// Notes for the reader: paragraphs below the panels.
    pub notes: Vec<String>,
}

/// A part of a figure with its own axes.
#[derive(Clone, Debug, Default)]
pub struct Panel {
    /// Title above it; empty: none.
    pub title: String,
    /// The horizontal axis.
    pub across: Axis,
    /// The vertical axis.
    pub up: Axis,
    /// The data.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// Its quantity, with the unit.
    pub name: String,
    /// Its scale.
    pub scale: Scale,
    /// Format of its numbers; `None`: as many digits as distinguish them.
    pub format: Option<fn(f64) -> String>,
}

/// Scale of an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Linear, from zero to the largest value, or at least to this one.
    FromZero(f64),
    /// Linear, from the smallest value to the largest.
    Fitted,
    /// Logarithmic, by powers of two.
    Doublings,
    /// Logarithmic, by powers of ten.
    Decades,
    /// The values 0, 1, 2 ... have these names.
    Places(Vec<String>),
}

/// Points that belong together.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Its name; empty: none.
    pub name: String,
    /// Its style.
    pub mark: Mark,
    /// Series with the same number have the same colour; `None`: the colour of its index in the
    /// panel.
    pub color: Option<usize>,
    /// Points, in the order in which they are joined.
    pub points: Vec<Point>,
}

/// Style of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Joined: computed values, or complete courses.
    #[default]
    Line,
    /// Separate: measured values.
    Dots,
    /// Joined dots.
    LineAndDots,
    /// Bars from zero, beside those of the panel's other bar series.
    Bars,
}

/// A point, in the units of the axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Horizontal position.
    pub at: f64,
    /// Vertical position.
    pub value: f64,
    /// Minimum and maximum.
    pub range: Option<(f64, f64)>,
    /// Label above it.
    pub label: Option<String>,
}

impl Default for Scale {
    fn default() -> Self {
        Scale::FromZero(0.0)
    }
}

impl Axis {
    /// A linear axis that begins at zero.
    #[must_use]
    pub fn from_zero(name: impl Into<String>) -> Self {
        Self::of(name, Scale::FromZero(0.0))
    }

    /// An axis of names.
    #[must_use]
    pub fn places(name: impl Into<String>, places: Vec<String>) -> Self {
        Self::of(name, Scale::Places(places))
    }

    /// An axis with this scale.
    #[must_use]
    pub fn of(name: impl Into<String>, scale: Scale) -> Self {
        Self {
            name: name.into(),
            scale,
            format: None,
        }
    }

    /// Sets the format of its numbers.
    #[must_use]
    pub fn written(self, format: fn(f64) -> String) -> Self {
        Self {
            format: Some(format),
            ..self
        }
    }
}

impl Series {
    /// A series of points without ranges and labels.
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

    /// Sets the colour number.
    #[must_use]
    pub fn colored(self, color: usize) -> Self {
        Self {
            color: Some(color),
            ..self
        }
    }
}

impl Point {
    /// Sets the range.
    #[must_use]
    pub fn between(self, least: f64, most: f64) -> Self {
        Self {
            range: Some((least, most)),
            ..self
        }
    }

    /// Sets the label.
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
