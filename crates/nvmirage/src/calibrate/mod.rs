//! From what was measured of a drive to the parameters of a model of it.
//!
//! What a candidate would have shown is computed with the models themselves, in virtual time
//! ([`forward`]); the parameters with which that comes nearest to what was measured are searched by
//! least squares of the logarithms ([`fit`]). A parameter is told as known only where the
//! measurements bound it on both sides, also when all others move with it; the rest is told as not
//! identifiable, with the sweep that would help ([`sweeps`]). Some points take no part, and say how
//! well the others foretell them.
//!
//! Reading order: [`samples`], [`formats`], [`unknowns`], [`start`], [`forward`], [`fit`],
//! [`result`], [`units`], [`steady`].
//!
//! What it does NOT do: find the shape of a drive. Channels, dies, pages, cells and zones are those
//! of the preset that is given.

mod fit;
mod formats;
mod forward;
mod result;
mod samples;
mod start;
mod steady;
mod sweeps;
mod units;
mod unknowns;

#[cfg(test)]
mod tests;

pub(crate) use formats::read;
pub(crate) use result::{Calibration, Finding, Foretold, Given, Standing, calibrate};
pub(crate) use samples::{Act, Sample};
pub(crate) use sweeps::{Sweep, needed};

/// A number for mathematics that no result depends on to the last bit.
#[expect(clippy::cast_precision_loss, reason = "a fit has four digits")]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

/// The nearest whole number, and the greatest for what is more.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is rounded, and bounded by the types"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value.round() as u64
}
