//! What the rate of random writes in steady state tells: the space beyond what hosts see.

use model::{FlashParameters, Moment, Parameters, Value};

use super::result::{Finding, Foretold, Known, Standing};
use super::unknowns::STEADY;
use super::{Act, Sample, float, forward};

/// How far a steady state that was written down, of a small drive, may be from one that was come to, as a share: half of an interval.
const STEADY_NOISE: f64 = 0.06;
/// More space, in thousandths, than any drive has.
const SPARE_MAX: u64 = 2000;

/// Finds the space beyond what hosts see with which a drive in steady state does as many random writes as were measured, and sets it.
/// Tried on a small drive: the large one is given as much space that can hold data for its data.
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

    /// Mean time of a write, and the space, of a small drive with so much of it.
    fn tried(&self, permille: u64) -> Option<(f64, f64)> {
        forward::sustained(&self.with(permille)?, self.depth, self.host_ns).ok()
    }

    /// The least space with which `holds`, which holds for all that is more.
    fn least(&self, holds: impl Fn(u64) -> bool) -> Option<u64> {
        let (mut low, mut high) = (0, SPARE_MAX);
        while high - low > 1 {
            let middle = (low + high) / 2;
            match holds(middle) {
                true => high = middle,
                false => low = middle,
            }
        }
        (high < SPARE_MAX).then_some(high)
    }

    /// The space of a drive of the real size on which writes take at most so long.
    fn space(&self, mean_ns: f64) -> Option<u64> {
        let small = self.least(|p| self.tried(p).is_some_and(|(mean, _)| mean <= mean_ns))?;
        let (_, wanted) = self.tried(small)?;
        let spare = |permille| forward::spare(&self.with(permille)?).ok();
        self.least(|p| spare(p).is_some_and(|spare| spare >= wanted))
    }
}

/// Finds what of a drive shows in steady state, and sets it; with what the result says of those points.
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
    let all = [share, 1.0, 1.0 / share].map(|share| steady.space(point.mean_ns * share));
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

/// What a small drive of the same kind says of points of steady state.
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
        let (mean_ns, _) = forward::sustained(small.as_ref()?, sample.depth, host_ns).ok()?;
        let sample = (*sample).clone();
        Some(Foretold { sample, mean_ns })
    });
    all.collect()
}
