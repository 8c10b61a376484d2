//! A calibration: which points take part, what is found, how sure it is, and how well it foretells the others.

use model::{Kind, Moment, Parameters, Value};

use super::fit::{self, Solution};
use super::forward::{Case, Effort, Forward};
use super::steady::steady_state;
use super::unknowns::{self, Unknown};
use super::{Direction, Sample, float, whole};

/// No measurement of a drive is better than that: its noise, as a share, at least.
const NOISE_LEAST: f64 = 0.003;
/// What it is taken for where there are not more points than unknowns.
const NOISE_UNKNOWN: f64 = 0.05;
/// A standard error, as a share, from which on nothing is known.
const ERROR_MAX: f64 = 0.25;
/// By how much less well the points may be met for a value to be possible: 95 % for one unknown.
const POSSIBLE: f64 = 3.84;
/// How far, in logarithms, a value is moved to see whether it matters: 55 times.
const FAR: f64 = 4.0;
/// Of the points that can be spared each of so many is held out.
const HELD_OUT_OF: usize = 2;
/// The least share by which a point changes with an unknown that it says something of.
const SENSITIVE: f64 = 0.1;
/// Width of differences, as a share: of an exact model, and of one in which commands meet by chance.
const WIDTH: f64 = 0.03;
const WIDTH_FLASH: f64 = 0.1;

/// What a calibration begins with.
pub(crate) struct Given<'a> {
    pub(crate) samples: &'a [Sample],
    /// Where the search begins: shape, and all that was not measured. `None`: a drive of kind nvm of which nothing is known.
    pub(crate) like: Option<Parameters>,
    /// What a host's software adds to each command.
    pub(crate) host_ns: u64,
    /// How much is computed of each point: 1 is enough for about half a per cent.
    pub(crate) effort: u64,
}

/// How well a parameter is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Standing {
    /// Within a factor of this to both sides.
    Known(f64),
    /// It is not less than this share of its value; more changes nothing that was measured.
    AtLeast(f64),
    /// It is not more than that.
    AtMost(f64),
    /// Nothing that was measured tells it.
    NotIdentifiable,
}

/// What was found of one unknown.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// Its parameters.
    pub(crate) names: Vec<&'static str>,
    pub(crate) standing: Standing,
    /// What would tell it, where it is not known.
    pub(crate) sweep: &'static str,
    pub(crate) known: Vec<Known>,
}

/// A parameter with what its interval is.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) value: Value,
    pub(crate) low: Option<Value>,
    pub(crate) high: Option<Value>,
}

/// A point, and what the result says of it.
#[derive(Clone, Debug)]
pub(crate) struct Foretold {
    pub(crate) sample: Sample,
    pub(crate) mean_ns: f64,
}

impl Foretold {
    /// By what share it is wrong.
    pub(crate) fn error(&self) -> f64 {
        self.mean_ns / self.sample.mean_ns - 1.0
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Calibration {
    pub(crate) parameters: Parameters,
    pub(crate) findings: Vec<Finding>,
    /// Noise of the points, as a share.
    pub(crate) noise: f64,
    pub(crate) fitted: Vec<Foretold>,
    pub(crate) held_out: Vec<Foretold>,
    /// Steady state, of a small drive of the same kind.
    pub(crate) sustained: Vec<Foretold>,
}

/// The search, while it goes on.
struct Search<'a> {
    forward: Forward,
    start: Parameters,
    points: Vec<&'a Sample>,
    cases: Vec<Case>,
    settled: Vec<Settled>,
    open: Vec<Unknown>,
}

/// An unknown that the search is done with.
struct Settled {
    unknown: Unknown,
    /// Where it is put, as a logarithm; infinite where there is no such limit.
    at: f64,
    /// Where the search had it.
    own: f64,
    standing: Standing,
}

/// Finds the parameters of a drive.
///
/// # Errors
/// There is too little to begin with; the message says what is missing.
pub(crate) fn calibrate(given: &Given<'_>) -> Result<Calibration, String> {
    let plain: Vec<&Sample> = given.samples.iter().filter(|s| !s.sustained).collect();
    let start = start(given, &plain)?;
    let unknowns = unknowns::of_kind(start.kind()).ok_or_else(|| {
        format!(
            "drives of kind {} are not calibrated: nvm and flash are",
            start.kind().name()
        )
    })?;
    let (points, spared) = split(&plain);
    let effort = Effort {
        commands: given.effort * if start.kind() == Kind::Nvm { 200 } else { 3000 },
        per_depth: given.effort * if start.kind() == Kind::Nvm { 8 } else { 60 },
    };
    let measured = |direction| plain.iter().any(|s| s.direction == direction);
    let mut search = Search {
        forward: Forward::new(&start, given.host_ns, effort)?,
        cases: points.iter().map(|s| Case::of(s)).collect(),
        settled: Vec::new(),
        open: Vec::new(),
        start,
        points,
    };
    for unknown in unknowns {
        let is_there = !unknown.present(&search.start).is_empty();
        match unknown.direction.is_none_or(measured) {
            _ if !is_there => {}
            true => search.open.push(*unknown),
            false => search.settled.push(Settled {
                unknown: *unknown,
                at: 0.0,
                own: 0.0,
                standing: Standing::NotIdentifiable,
            }),
        }
    }
    let noise = search.settle()?;
    search.told(given, noise, &spared)
}

/// Where the search begins.
fn start(given: &Given<'_>, plain: &[&Sample]) -> Result<Parameters, String> {
    for direction in [Direction::Read, Direction::Write] {
        let none = !plain.iter().any(|s| s.direction == direction);
        if none && given.like.is_none() {
            return Err(format!(
                "nothing was measured of {}s: measure them, or take what is missing from a preset with --like",
                direction.name()
            ));
        }
    }
    if plain.is_empty() {
        return Err("nothing was measured that is of use".to_owned());
    }
    let mut start = match &given.like {
        Some(like) => like.clone(),
        None => {
            let none = ["1us", "none", "none", "1us", "none", "none", "exact"];
            let names = Kind::Nvm.parameters().filter(|p| p.name != "arithmetic");
            let values = names.map(|p| p.name).chain(["arithmetic"]).zip(none);
            Parameters::given(Kind::Nvm, 1 << 40, values).map_err(|error| error.to_string())?
        }
    };
    if let Parameters::Nvm(nvm) = &mut start {
        let samples: Vec<Sample> = plain.iter().map(|s| (*s).clone()).collect();
        unknowns::start_of(&mut nvm.read, &samples, Direction::Read);
        unknowns::start_of(&mut nvm.write, &samples, Direction::Write);
        nvm.arithmetic = model::Arithmetic::Exact;
    }
    Ok(start)
}

/// Points that take part, and those that are held out: some of those that lie well within a sweep.
fn split<'a>(plain: &[&'a Sample]) -> (Vec<&'a Sample>, Vec<&'a Sample>) {
    let mut points = plain.to_vec();
    points.sort_by_key(|s| (s.direction, s.random, s.block_bytes, s.depth));
    let like = |a: &Sample, b: &Sample| a.direction == b.direction && a.random == b.random;
    let can_be_spared = |sample: &Sample| {
        let of_size: Vec<u32> = plain
            .iter()
            .filter(|s| like(s, sample) && s.block_bytes == sample.block_bytes)
            .map(|s| s.depth)
            .collect();
        let of_depth: Vec<u32> = plain
            .iter()
            .filter(|s| like(s, sample) && s.depth == sample.depth)
            .map(|s| s.block_bytes)
            .collect();
        // Two to each side, so that the others still show the way between.
        let inside = |all: &[u32], own: u32| {
            let below = all.iter().filter(|other| **other < own).count();
            below >= 2 && all.iter().filter(|other| **other > own).count() >= 2
        };
        inside(&of_size, sample.depth) || inside(&of_depth, sample.block_bytes)
    };
    let mut count = 0;
    points.into_iter().partition(|sample| {
        let spare = can_be_spared(sample);
        count += usize::from(spare);
        !(spare && count.is_multiple_of(HELD_OUT_OF))
    })
}

impl Search<'_> {
    /// The parameters with the open unknowns at these logarithms.
    fn parameters(&self, at: &[f64]) -> Option<Parameters> {
        let mut parameters = self.start.clone();
        let settled = self.settled.iter().map(|s| (&s.unknown, s.at));
        for (unknown, at) in settled.chain(self.open.iter().zip(at.iter().copied())) {
            match at.is_finite() {
                true => unknown.scale(&self.start, at.exp(), &mut parameters).ok()?,
                // There is no such limit.
                false => unknown.lift(&mut parameters).ok()?,
            }
        }
        parameters.check().is_ok().then_some(parameters)
    }

    /// Residuals for a noise of 1: the logarithms themselves.
    fn residuals(&mut self, at: &[f64]) -> Option<Vec<f64>> {
        let parameters = self.parameters(at)?;
        let means = self.forward.means(&parameters, &self.cases).ok()?;
        let pairs = means.iter().zip(&self.points);
        Some(
            pairs
                .map(|(mean, point)| (mean / point.mean_ns).ln())
                .collect(),
        )
    }

    fn solve(&mut self) -> Result<Solution, String> {
        let count = self.open.len();
        let width = match self.start.kind() {
            Kind::Nvm => WIDTH,
            _ => WIDTH_FLASH,
        };
        let solved = fit::solve(count, width, &mut |at| {
            let mut all = self.residuals(at)?;
            all.iter_mut().for_each(|r| *r /= NOISE_LEAST);
            Some(all)
        });
        solved.ok_or_else(|| {
            "no model is near what was measured: is it the kind of drive that --like says?"
                .to_owned()
        })
    }

    /// Noise of the points, as a share, and the degrees of freedom that it is from.
    fn noise(&self, solution: &Solution) -> (f64, f64) {
        match self.points.len().checked_sub(self.open.len()) {
            None | Some(0) => (NOISE_UNKNOWN, 1.96),
            Some(freedom) => {
                let noise = NOISE_LEAST * (solution.cost / float(freedom as u64)).sqrt();
                match noise > NOISE_LEAST {
                    true => (noise, fit::ninety_five(freedom)),
                    false => (NOISE_LEAST, 1.96),
                }
            }
        }
    }

    /// How much less well the points are met, in squares of `noise`, with one unknown elsewhere; `None` where that makes nothing.
    fn worse(&mut self, solution: &Solution, noise: f64, which: usize, to: f64) -> Option<f64> {
        let mut at = solution.at.clone();
        at[which] = to;
        let squares = self.cost(&at)?;
        Some((squares - solution.cost * NOISE_LEAST * NOISE_LEAST) / (noise * noise))
    }

    fn is_possible(&mut self, solution: &Solution, noise: f64, which: usize, to: f64) -> bool {
        let worse = self.worse(solution, noise, which, to);
        worse.is_some_and(|worse| worse < POSSIBLE)
    }

    /// Settles all unknowns; returns the noise.
    fn settle(&mut self) -> Result<f64, String> {
        self.settle_limits()?;
        loop {
            let solution = self.solve()?;
            let (noise, times) = self.noise(&solution);
            if let Some((which, at, standing)) = self.unbound(&solution, noise) {
                let unknown = self.open.remove(which);
                self.settled.push(Settled {
                    unknown,
                    at,
                    own: solution.at[which],
                    standing,
                });
                continue;
            }
            let all = std::mem::take(&mut self.open);
            for (which, unknown) in all.into_iter().enumerate() {
                let error = solution.errors[which] * noise / NOISE_LEAST;
                let standing = match error < ERROR_MAX {
                    _ if unknown.needs_sizes && self.one_size(&solution, which) => {
                        Standing::AtLeast(1.0)
                    }
                    true => Standing::Known((times * error).exp()),
                    false => Standing::NotIdentifiable,
                };
                let at = solution.at[which];
                self.settled.push(Settled {
                    unknown,
                    at,
                    own: at,
                    standing,
                });
            }
            return Ok(noise);
        }
    }

    /// Limits without which everything is met as well: nothing has reached them.
    fn settle_limits(&mut self) -> Result<(), String> {
        let mut which = 0;
        while which < self.open.len() {
            if !self.open[which].limit {
                which += 1;
                continue;
            }
            let with = self.solve()?;
            let (noise, _) = self.noise(&with);
            let unknown = self.open.remove(which);
            let place = self.settled.len();
            self.settled.push(Settled {
                unknown,
                at: f64::INFINITY,
                own: with.at[which],
                standing: Standing::NotIdentifiable,
            });
            let without = self.solve()?;
            let worse = (without.cost - with.cost) * (NOISE_LEAST / noise).powi(2);
            if worse >= POSSIBLE {
                let settled = self.settled.remove(place);
                self.open.insert(which, settled.unknown);
                which += 1;
                continue;
            }
            // As low as it can be, with all others where they are.
            let (mut outside, mut inside) = (with.at[which] - FAR, with.at[which] + FAR);
            for _ in 0..12 {
                let middle = (inside + outside) / 2.0;
                self.settled[place].at = middle;
                match self.cost(&without.at).is_some_and(|cost| {
                    (cost - without.cost * NOISE_LEAST.powi(2)) / noise.powi(2) < POSSIBLE
                }) {
                    true => inside = middle,
                    false => outside = middle,
                }
            }
            let settled = &mut self.settled[place];
            settled.own = inside;
            settled.standing = Standing::AtLeast(1.0);
            settled.at = f64::INFINITY;
        }
        Ok(())
    }

    /// Sum of the squares of the logarithms.
    fn cost(&mut self, at: &[f64]) -> Option<f64> {
        let all = self.residuals(at)?;
        Some(all.iter().map(|r| r * r).sum())
    }

    /// Whether all points that say something of an unknown have commands of one size.
    fn one_size(&self, solution: &Solution, which: usize) -> bool {
        let slopes = solution.slopes[which].iter().zip(&self.points);
        let mut sizes = slopes
            .filter(|(slope, _)| slope.abs() * NOISE_LEAST > SENSITIVE)
            .map(|(_, point)| point.block_bytes);
        let first = sizes.next();
        sizes.all(|size| Some(size) == first)
    }

    /// An unknown that may be far off to one side and nothing would show it, with where it is put.
    fn unbound(&mut self, solution: &Solution, noise: f64) -> Option<(usize, f64, Standing)> {
        for which in 0..self.open.len() {
            let own = solution.at[which];
            let up = self.is_possible(solution, noise, which, own + FAR);
            let down = self.is_possible(solution, noise, which, own - FAR);
            let standing = match (down, up) {
                (true, true) => Standing::NotIdentifiable,
                (false, true) => {
                    let low = self.edge(solution, noise, which, -FAR);
                    Standing::AtLeast(low.exp())
                }
                (true, false) => {
                    let high = self.edge(solution, noise, which, FAR);
                    Standing::AtMost(high.exp())
                }
                (false, false) => continue,
            };
            // What matters nowhere is as it was to begin with.
            let fits = self.is_possible(solution, noise, which, 0.0);
            return Some((which, if fits { 0.0 } else { own }, standing));
        }
        None
    }

    /// How far an unknown can go towards `to`, from where it is.
    fn edge(&mut self, solution: &Solution, noise: f64, which: usize, to: f64) -> f64 {
        let own = solution.at[which];
        let (mut inside, mut outside) = (0.0, to);
        for _ in 0..10 {
            let middle = (inside + outside) / 2.0;
            match self.is_possible(solution, noise, which, own + middle) {
                true => inside = middle,
                false => outside = middle,
            }
        }
        inside
    }

    /// The result.
    fn told(
        mut self,
        given: &Given<'_>,
        noise: f64,
        spared: &[&Sample],
    ) -> Result<Calibration, String> {
        let mut parameters = self
            .parameters(&[])
            .ok_or("what was found makes no drive")?;
        let mut findings: Vec<Finding> = Vec::new();
        for settled in &self.settled {
            rounded(settled, &self.start, &mut parameters);
            findings.push(found(settled, &self.start, &parameters));
        }
        let order = |finding: &Finding| {
            let mut all = parameters.kind().parameters();
            all.position(|p| p.name == finding.names[0])
        };
        findings.sort_by_key(order);
        let fitted = self.foretell(&parameters, &self.points.clone())?;
        let held_out = self.foretell(&parameters, spared)?;
        let steady: Vec<&Sample> = given.samples.iter().filter(|s| s.sustained).collect();
        let mut sustained = Vec::new();
        if parameters.kind() == Kind::Flash {
            let (finding, told) = steady_state(&mut parameters, given.host_ns, &steady, noise);
            findings.push(finding);
            sustained = told;
        }
        Ok(Calibration {
            parameters,
            findings,
            noise,
            fitted,
            held_out,
            sustained,
        })
    }

    fn foretell(
        &mut self,
        parameters: &Parameters,
        samples: &[&Sample],
    ) -> Result<Vec<Foretold>, String> {
        let cases: Vec<Case> = samples.iter().map(|s| Case::of(s)).collect();
        let means = self.forward.means(parameters, &cases)?;
        let all = samples.iter().zip(means);
        Ok(all
            .map(|(sample, mean_ns)| Foretold {
                sample: (*sample).clone(),
                mean_ns,
            })
            .collect())
    }
}

impl Unknown {
    /// There is no such limit.
    fn lift(&self, parameters: &mut Parameters) -> Result<(), model::InvalidParameter> {
        let mut names = self.names.iter();
        names.try_for_each(|name| parameters.set(name, "none", Moment::Creation))
    }
}

/// What was found has no more digits than count.
fn rounded(settled: &Settled, start: &Parameters, parameters: &mut Parameters) {
    let exact = parameters.clone();
    for name in settled.unknown.present(start) {
        if let (Ok(value), true) = (parameters.get(name), settled.at != 0.0) {
            let raw = digits(value.raw);
            let text = Value { raw, ..value }.to_string();
            // One that does not fit the others so stays as it is.
            let set = parameters.set(name, &text, Moment::Creation);
            if set.is_err() || parameters.check().is_err() {
                *parameters = exact.clone();
            }
        }
    }
}

/// What is said of an unknown.
fn found(settled: &Settled, start: &Parameters, parameters: &Parameters) -> Finding {
    let Settled {
        unknown,
        own,
        standing,
        ..
    } = *settled;
    let names = unknown.present(start);
    let known = names.iter().filter_map(|name| {
        let value = parameters.get(name).ok()?;
        let from = float(start.get(name).ok()?.raw) * own.exp();
        let bound = |factor: f64| {
            let raw = digits(whole(from * factor));
            Some(Value { raw, ..value })
        };
        let (low, high) = match standing {
            Standing::Known(factor) => (bound(1.0 / factor), bound(factor)),
            Standing::AtLeast(share) => (bound(share), None),
            Standing::AtMost(share) => (None, bound(share)),
            Standing::NotIdentifiable => (None, None),
        };
        Some(Known { value, low, high })
    });
    Finding {
        known: known.collect(),
        names,
        standing,
        sweep: unknown.sweep,
    }
}

/// The four first digits of a number; the others are noise.
pub(super) fn digits(raw: u64) -> u64 {
    let mut scale = 1;
    while raw / scale >= 10_000 {
        scale *= 10;
    }
    (raw + scale / 2) / scale * scale
}
