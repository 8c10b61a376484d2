//! Fits the parameters of a model to measurements of a drive.
//!
//! The models themselves predict, in virtual time, the measurements of a candidate ([`forward`]);
//! least squares of the logarithms finds the parameters whose predictions come closest to the
//! measurements ([`fit`]). A parameter is reported as known only if the measurements bound it on
//! both sides while all others vary; the rest is reported as not identifiable, with the sweep that
//! would help ([`sweeps`]). Some points are held out of the fit, and show how well it predicts.
//!
//! Reading order: [`samples`], [`formats`], [`unknowns`], [`start`], [`forward`], [`fit`],
//! [`search`], [`units`], [`steady`], [`result`].
//!
//! Not included: the shape of a drive. Channels, dies, pages, cells and zones are those of the
//! given preset.

mod findings;
mod fio;
mod fit;
mod formats;
mod forward;
mod points;
mod result;
mod samples;
mod search;
mod start;
mod steady;
mod sweeps;
mod units;
mod unknowns;

#[cfg(test)]
mod tests;

pub(crate) use findings::{Calibration, Finding, Foretold, Given, Standing};
pub(crate) use formats::read;
pub(crate) use result::calibrate;
pub(crate) use samples::{Act, Sample};
pub(crate) use sweeps::{Sweep, needed};

/// Conversion for calculations whose results do not depend on the last bit.
#[expect(clippy::cast_precision_loss, reason = "a fit has four digits")]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

/// The nearest whole number, saturating at the maximum.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is rounded, and bounded by the types"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value.round() as u64
}
