//! The inputs of a calibration, and what it finds: parameters with their confidence, and points
//! with their prediction.

use model::{Parameters, Value};

use super::Sample;

/// Inputs of a calibration.
pub(crate) struct Given<'a> {
    pub(crate) samples: &'a [Sample],
    /// Start of the search, with the shape and every value that was not measured. `None`: a drive
    /// of kind nvm, or kv if keys were measured, without further knowledge.
    pub(crate) like: Option<Parameters>,
    /// Time that a host's software adds to each command.
    pub(crate) host_ns: u64,
    /// Amount of computation per point: 1 gives about half a percent.
    pub(crate) effort: u64,
}

/// How well a parameter is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Standing {
    /// Within this factor to both sides.
    Known(f64),
    /// At least this share of its value; a higher value changes no measurement.
    AtLeast(f64),
    /// At most this share of its value; a lower value changes no measurement.
    AtMost(f64),
    /// No measurement identifies it.
    NotIdentifiable,
}

/// Result for one unknown.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// The parameters of the unknown.
    pub(crate) names: Vec<&'static str>,
    pub(crate) standing: Standing,
    /// The sweep that would identify it, if it is not known.
    pub(crate) sweep: &'static str,
    pub(crate) known: Vec<Known>,
}

/// A parameter with its interval.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) value: Value,
    pub(crate) low: Option<Value>,
    pub(crate) high: Option<Value>,
}

/// A point with its prediction.
#[derive(Clone, Debug)]
pub(crate) struct Foretold {
    pub(crate) sample: Sample,
    pub(crate) mean_ns: f64,
}

impl Foretold {
    /// Relative error of the prediction.
    pub(crate) fn error(&self) -> f64 {
        self.mean_ns / self.sample.mean_ns - 1.0
    }
}

/// Result of a calibration.
#[derive(Debug)]
pub(crate) struct Calibration {
    pub(crate) parameters: Parameters,
    pub(crate) findings: Vec<Finding>,
    /// Noise of the points, as a fraction.
    pub(crate) noise: f64,
    pub(crate) fitted: Vec<Foretold>,
    pub(crate) held_out: Vec<Foretold>,
    /// Steady-state points, predicted by a small drive of the same kind.
    pub(crate) sustained: Vec<Foretold>,
    /// Points that do not apply to such a drive, with the reasons.
    pub(crate) passed_over: Vec<String>,
}
