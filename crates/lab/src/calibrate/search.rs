//! The search for parameters: least squares, the confidence of each unknown, and the rounded
//! result.

use model::{Kind, Moment, Parameters, Value};

use super::findings::{Calibration, Finding, Foretold, Given, Known, Standing};
use super::fit::{self, Solution};
use super::forward::{Case, Effort, Forward};
use super::steady::steady_state;
use super::unknowns::{self, Unknown};
use super::{Sample, float, whole};

/// Minimum noise of points, as a fraction: no measurement of a drive is better.
const NOISE_LEAST: f64 = 0.003;
/// Minimum noise where commands collide at random, which makes the predictions noisy too.
const NOISE_OF_CHANCE: f64 = 0.005;
/// Noise assumed if there are no more points than unknowns.
const NOISE_UNKNOWN: f64 = 0.05;
/// Standard error, as a fraction, from which on a parameter counts as unknown.
const ERROR_MAX: f64 = 0.25;
/// Increase of the sum of squares up to which a value is possible: 95 % for one unknown.
pub(super) const POSSIBLE: f64 = 3.84;
/// Distance, in logarithms, by which an unknown is moved to see whether it matters: a factor of 55.
const FAR: f64 = 4.0;
/// Minimum relative change of a point with an unknown for the point to say something about it.
const SENSITIVE: f64 = 0.1;
/// Relative width of differences: for an exact model, and for one with random collisions.
const WIDTH: f64 = 0.03;
const WIDTH_FLASH: f64 = 0.1;

/// State of the search.
pub(super) struct Search<'a> {
    forward: Forward,
    start: Parameters,
    points: Vec<&'a Sample>,
    cases: Vec<Case>,
    settled: Vec<Settled>,
    open: Vec<Unknown>,
}

/// An unknown that the search has finished with.
#[derive(Clone)]
struct Settled {
    unknown: Unknown,
    /// Its final value, as a logarithm; infinite for a limit that does not exist.
    at: f64,
    /// Its value in the search.
    own: f64,
    standing: Standing,
}

impl<'a> Search<'a> {
    /// A search from `start` with the points of the fit; `plain` are all measured points.
    ///
    /// # Errors
    /// The model cannot compute the points.
    pub(super) fn new(
        given: &Given<'_>,
        start: Parameters,
        points: Vec<&'a Sample>,
        plain: &[&Sample],
    ) -> Result<Search<'a>, String> {
        let kind = start.kind();
        let (commands, per_depth) = match kind {
            Kind::Nvm => (200, 8),
            Kind::Flash => (3000, 60),
            // A zone is on few dies, and a key on one unit: commands collide there at random.
            Kind::Zns | Kind::Kv => (3000, 300),
        };
        let effort = Effort {
            commands: given.effort * commands,
            per_depth: given.effort * per_depth,
        };
        let mut search = Search {
            forward: Forward::new(&start, given.host_ns, effort)?,
            cases: points.iter().map(|s| Case::of(s)).collect(),
            settled: Vec::new(),
            open: Vec::new(),
            start,
            points,
        };
        for unknown in unknowns::of_kind(kind) {
            let is_there = !unknown.present(&search.start).is_empty();
            let measured = |s: &&Sample| unknown.acts.contains(&s.act);
            match plain.iter().any(measured) {
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
        Ok(search)
    }

    /// Start of the search.
    pub(super) fn start(&self) -> &Parameters {
        &self.start
    }

    /// The same search from another start, with the effort divided by `of_effort`.
    pub(super) fn beginning_at(&self, start: Parameters, of_effort: u64) -> Search<'a> {
        Search {
            forward: self.forward.like(of_effort),
            start,
            points: self.points.clone(),
            cases: self.cases.clone(),
            settled: self.settled.clone(),
            open: self.open.clone(),
        }
    }

    /// Cost of the best fit with nothing settled, and the factor that converts sums of squares into
    /// units of the estimated noise.
    pub(super) fn fitness(mut self) -> Option<(f64, f64)> {
        let solution = self.solve().ok()?;
        let (noise, _) = self.noise(&solution);
        Some((solution.cost, (NOISE_LEAST / noise).powi(2)))
    }

    /// The parameters for these logarithms of the open unknowns.
    pub(super) fn parameters(&self, at: &[f64]) -> Option<Parameters> {
        let mut parameters = self.start.clone();
        let settled = self.settled.iter().map(|s| (&s.unknown, s.at));
        for (unknown, at) in settled.chain(self.open.iter().zip(at.iter().copied())) {
            if at.is_finite() {
                unknown.scale(&self.start, at.exp(), &mut parameters).ok()?
            } else {
                unknown.lift(&mut parameters).ok()?
            }
        }
        parameters.check().is_ok().then_some(parameters)
    }

    /// Residuals for a noise of 1, which are the logarithms themselves.
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

    pub(super) fn solve(&mut self) -> Result<Solution, String> {
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

    /// Noise of the points, as a fraction, and its degrees of freedom.
    fn noise(&self, solution: &Solution) -> (f64, f64) {
        match self.points.len().checked_sub(self.open.len()) {
            None | Some(0) => (NOISE_UNKNOWN, 1.96),
            Some(freedom) => {
                let noise = NOISE_LEAST * (solution.cost / float(freedom as u64)).sqrt();
                let least = match self.start.kind() {
                    Kind::Nvm => NOISE_LEAST,
                    Kind::Flash | Kind::Zns | Kind::Kv => NOISE_OF_CHANCE,
                };
                if noise > least {
                    (noise, fit::ninety_five(freedom))
                } else {
                    (least, 1.96)
                }
            }
        }
    }

    /// Increase of the sum of squares, in units of `noise`, if one unknown is moved to `to`; `None`
    /// if that gives no valid model.
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
    pub(super) fn settle(&mut self) -> Result<f64, String> {
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

    /// Settles limits that no measurement reached: without them, the fit is as good.
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
            // The lowest possible value of the limit, with all other unknowns unchanged.
            let (mut outside, mut inside) = (with.at[which] - FAR, with.at[which] + FAR);
            for _ in 0..12 {
                let middle = (inside + outside) / 2.0;
                self.settled[place].at = middle;
                if self.cost(&without.at).is_some_and(|cost| {
                    (cost - without.cost * NOISE_LEAST.powi(2)) / noise.powi(2) < POSSIBLE
                }) {
                    inside = middle
                } else {
                    outside = middle
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

    /// Whether all points that depend on an unknown have commands of one size.
    fn one_size(&self, solution: &Solution, which: usize) -> bool {
        let slopes = solution.slopes[which].iter().zip(&self.points);
        let mut sizes = slopes
            .filter(|(slope, _)| slope.abs() * NOISE_LEAST > SENSITIVE)
            .map(|(_, point)| point.block_bytes);
        let first = sizes.next();
        sizes.all(|size| Some(size) == first)
    }

    /// An unknown that could move far to one side without a visible effect, with its value.
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
            // An unknown that matters nowhere returns to its start.
            let fits = self.is_possible(solution, noise, which, 0.0);
            return Some((which, if fits { 0.0 } else { own }, standing));
        }
        None
    }

    /// Distance that an unknown can move from its value towards `to`.
    fn edge(&mut self, solution: &Solution, noise: f64, which: usize, to: f64) -> f64 {
        let own = solution.at[which];
        let (mut inside, mut outside) = (0.0, to);
        for _ in 0..10 {
            let middle = (inside + outside) / 2.0;
            if self.is_possible(solution, noise, which, own + middle) {
                inside = middle
            } else {
                outside = middle
            }
        }
        inside
    }

    /// Assembles the result.
    pub(super) fn told(
        mut self,
        given: &Given<'_>,
        noise: f64,
        spared: &[&Sample],
        steady: &[&Sample],
    ) -> Result<Calibration, String> {
        let mut parameters = self
            .parameters(&[])
            .ok_or("what was found makes no drive")?;
        let mut findings: Vec<Finding> = Vec::new();
        for settled in &self.settled {
            rounded(settled, &self.start, &mut parameters);
            findings.push(found(settled, &self.start, &parameters));
        }
        let fitted = self.foretell(&parameters, &self.points.clone())?;
        let held_out = self.foretell(&parameters, spared)?;
        let mut sustained = Vec::new();
        if parameters.kind() == Kind::Flash {
            let (finding, told) = steady_state(&mut parameters, given.host_ns, steady, noise);
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
            passed_over: Vec::new(),
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

/// Rounds the results to their significant digits.
fn rounded(settled: &Settled, start: &Parameters, parameters: &mut Parameters) {
    let exact = parameters.clone();
    for name in settled.unknown.present(start) {
        if let (Ok(value), true) = (parameters.get(name), settled.at != 0.0) {
            let raw = digits(value.raw);
            let text = Value { raw, ..value }.to_string();
            // If the rounded value violates a constraint, the exact one stays.
            let set = parameters.set(name, &text, Moment::Creation);
            if set.is_err() || parameters.check().is_err() {
                *parameters = exact.clone();
            }
        }
    }
}

/// Reports one unknown.
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

/// A number rounded to its first four digits; the others are noise.
fn digits(raw: u64) -> u64 {
    let mut scale = 1;
    while raw / scale >= 10_000 {
        scale *= 10;
    }
    (raw + scale / 2) / scale * scale
}
