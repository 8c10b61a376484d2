//! Over-provisioning of a drive, derived from its rate of random writes in steady state.

use model::{FlashParameters, Moment, Parameters, Value};

use super::findings::{Finding, Foretold, Known, Standing};
use super::unknowns::STEADY;
use super::{Act, Sample, float, forward, whole};

/// Deviation of the mean time of so many writes from the long-term mean, as a fraction: half the
/// width of an interval.
const STEADY_NOISE: f64 = 0.06;
/// Relative tolerance of the search, and its maximum number of steps.
const NEAR: f64 = 0.02;
const STEPS: u32 = 6;
/// Derivative of a write's time by the space, both as logarithms: first guess, then its bounds.
const SLOPE: f64 = -1.0;
const SLOPES: [f64; 2] = [-1.5, -0.5];
/// Minimum distance of two spaces that determine the derivative.
const APART: f64 = 0.1;
/// Upper bound of the over-provisioning of any drive, in thousandths.
const SPARE_MAX: u64 = 2000;

/// Search for the over-provisioning with which a drive in steady state reaches the measured rate of
/// random writes. The search uses a small drive; the large drive then gets the same ratio of space
/// that can hold data to data.
struct Steady<'a> {
    flash: &'a FlashParameters,
    depth: u32,
    host_ns: u64,
}

impl Steady<'_> {
    fn with(&self, permille: u64) -> Option<FlashParameters> {
        Some(FlashParameters {
            overprovisioning_permille: u32::try_from(permille).ok()?,
            ..self.flash.clone()
        })
    }

    /// The logarithm of the mean time of a write to a small drive with this over-provisioning.
    fn tried(&self, permille: f64) -> Option<f64> {
        let mean =
            forward::sustained(&self.with(whole(permille))?, self.depth, self.host_ns).ok()?;
        Some(mean.ln())
    }

    /// The over-provisioning at which writes to a small drive take `mean_ns`, and the derivative
    /// there. Uses the secant of the last two trials, because each trial takes long.
    fn small(&self, mean_ns: f64) -> Option<(f64, f64)> {
        let wanted = mean_ns.ln();
        let bound = |permille: f64| permille.clamp(10.0, float(SPARE_MAX) / 2.0);
        let mut permille = bound(f64::from(self.flash.overprovisioning_permille));
        let mut slope = SLOPE;
        let mut last: Option<(f64, f64)> = None;
        for _ in 0..STEPS {
            let Some(mean) = self.tried(permille) else {
                // Too little: no line is spare.
                permille = bound(permille * 1.5);
                continue;
            };
            if let Some((other, other_mean)) =
                last.filter(|(other, _)| (permille / other).ln().abs() > APART)
            {
                slope = (mean - other_mean) / (permille / other).ln();
                slope = slope.clamp(SLOPES[0], SLOPES[1]);
            }
            if (mean - wanted).abs() < NEAR {
                return Some(((permille.ln() + (wanted - mean) / slope).exp(), slope));
            }
            last = Some((permille, mean));
            permille = bound((permille.ln() + (wanted - mean) / slope).exp().round());
        }
        let (permille, mean) = last?;
        // The limit of the possible range.
        let rest = (wanted - mean) / slope;
        (rest.abs() < 2.0 * STEADY_NOISE).then(|| ((permille.ln() + rest).exp(), slope))
    }

    /// The smallest over-provisioning for which `holds` is true; `holds` must be monotonic.
    fn least(&self, holds: impl Fn(u64) -> bool) -> Option<u64> {
        let (mut low, mut high) = (0, SPARE_MAX);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if holds(middle) {
                high = middle
            } else {
                low = middle
            }
        }
        (high < SPARE_MAX).then_some(high)
    }

    /// The over-provisioning of a drive of the real size whose ratio equals that of a small drive
    /// with `small`.
    fn large(&self, small: f64) -> Option<u64> {
        let wanted = forward::spare(&forward::steady(&self.with(whole(small))?).ok()?).ok()?;
        let spare = |permille| forward::spare(&self.with(permille)?).ok();
        self.least(|p| spare(p).is_some_and(|spare| spare >= wanted))
    }
}

/// Finds and sets the parameters that only the steady state shows; returns them with the
/// predictions of those points.
pub(super) fn steady_state(
    parameters: &mut Parameters,
    host_ns: u64,
    points: &[&Sample],
    noise: f64,
) -> (Finding, Vec<Foretold>) {
    let name = "overprovisioning";
    let own = parameters.get(name).ok();
    let finding = |known: Option<Known>, standing| Finding {
        names: vec![name],
        standing,
        sweep: STEADY,
        known: known.into_iter().collect(),
    };
    let unknown = own.map(|value| Known {
        value,
        low: None,
        high: None,
    });
    let random_page = |s: &&&Sample| s.act == Act::Write && s.random && s.block_bytes == 4096;
    let point = points.iter().find(random_page);
    let (Some(own), Some(point), Parameters::Flash(flash)) = (own, point, &*parameters) else {
        return (finding(unknown, Standing::NotIdentifiable), Vec::new());
    };
    let steady = Steady {
        flash,
        depth: point.depth,
        host_ns,
    };
    let share = 1.0 + 2.0 * noise.max(STEADY_NOISE);
    let all = match steady.small(point.mean_ns) {
        Some((small, slope)) => [share, 1.0, 1.0 / share]
            .map(|share| steady.large((small.ln() + share.ln() / slope).exp())),
        None => [None; 3],
    };
    let [Some(low), Some(best), Some(high)] = all else {
        return (finding(unknown, Standing::NotIdentifiable), Vec::new());
    };
    let value = |raw| Value { raw, ..own };
    let text = value(best).to_string();
    if parameters.set(name, &text, Moment::Creation).is_err() {
        return (finding(unknown, Standing::NotIdentifiable), Vec::new());
    }
    let known = Known {
        value: value(best),
        low: Some(value(low)),
        high: Some(value(high)),
    };
    let factor = float(high) / float(best.max(1));
    (
        finding(Some(known), Standing::Known(factor)),
        foretold(parameters, host_ns, points),
    )
}

/// Predictions of steady-state points by a small drive of the same kind.
fn foretold(parameters: &Parameters, host_ns: u64, points: &[&Sample]) -> Vec<Foretold> {
    let Parameters::Flash(flash) = parameters else {
        return Vec::new();
    };
    let steady = Steady {
        flash,
        depth: 1,
        host_ns,
    };
    let wanted = forward::spare(flash).unwrap_or(0.0);
    let spare = |permille| forward::spare(&forward::steady(&steady.with(permille)?).ok()?).ok();
    let small = steady.least(|p| spare(p).is_some_and(|spare| spare >= wanted));
    let small = small.and_then(|permille| steady.with(permille));
    let all = points.iter().filter_map(|sample| {
        let mean_ns = forward::sustained(small.as_ref()?, sample.depth, host_ns).ok()?;
        let sample = (*sample).clone();
        Some(Foretold { sample, mean_ns })
    });
    all.collect()
}
