//! Number of parallel units of a key-value drive: a whole number, found by trial.
//!
//! The fewer units there are, the more often commands for random keys collide on one: a
//! difference between one command at a time and many.

use model::{Kind, Moment, Parameters, Value};

use super::findings::{Finding, Known, Standing};
use super::search::{POSSIBLE, Search};
use super::start;
use super::unknowns::DEPTHS;

/// Numbers that are tried first.
const FIRST: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Divisor of the effort: the number shows in the change over depth, far above the noise.
const LESS: u64 = 4;

/// The numbers tried so far, with the cost of each fit.
struct Tried {
    all: Vec<(u32, f64)>,
    /// The best fit, from which further numbers start.
    best: (Parameters, f64),
}

impl Tried {
    fn with(&mut self, search: &Search<'_>, units: u32) -> f64 {
        if let Some((_, cost)) = self.all.iter().find(|(number, _)| *number == units) {
            return *cost;
        }
        let mut search = search.beginning_at(start::with_units(&self.best.0, units), LESS);
        let solved = search.solve().ok();
        let cost = solved.as_ref().map_or(f64::INFINITY, |found| found.cost);
        let parameters = solved.and_then(|found| search.parameters(&found.at));
        if let Some(parameters) = parameters.filter(|_| cost < self.best.1) {
            self.best = (parameters, cost);
        }
        self.all.push((units, cost));
        self.all.sort_unstable_by_key(|(number, _)| *number);
        cost
    }

    fn best(&self) -> u32 {
        let best = self.all.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(1, |(number, _)| *number)
    }

    /// The tried numbers next to `units`: below and above.
    fn beside(&self, units: u32) -> (Option<u32>, Option<u32>) {
        let numbers = || self.all.iter().map(|(number, _)| *number);
        let below = numbers().rfind(|number| *number < units);
        (below, numbers().find(|number| *number > units))
    }
}

/// Finds the number of units, and sets it in the search; returns its finding. `None` for drives
/// without units.
pub(super) fn settle(search: &mut Search<'_>) -> Option<Finding> {
    if search.start().kind() != Kind::Kv {
        return None;
    }
    let name = "units";
    let own = search.start().get(name).ok()?;
    let value = |units: u32| Value {
        raw: units.into(),
        ..own
    };
    let mut tried = Tried {
        all: Vec::new(),
        best: (search.start().clone(), f64::INFINITY),
    };
    for units in FIRST {
        tried.with(search, units);
    }
    // Narrow the range around the best number.
    loop {
        let best = tried.best();
        let (below, above) = tried.beside(best);
        let between = |a: u32, b: u32| (a.abs_diff(b) > 1).then(|| a.midpoint(b));
        let next = [below, above].into_iter().flatten();
        let next: Vec<u32> = next.filter_map(|other| between(other, best)).collect();
        if next.is_empty() {
            break;
        }
        for units in next {
            tried.with(search, units);
        }
    }
    let best = tried.best();
    let solution = search.beginning_at(start::with_units(&tried.best.0, best), LESS);
    let (cost, share) = solution.fitness()?;
    let possible = |other: f64| (other - cost) * share < POSSIBLE;
    let mut numbers = tried.all.iter().filter(|(_, cost)| possible(*cost));
    let (low, _) = *numbers.next()?;
    let high = numbers.next_back().map_or(low, |(number, _)| *number);
    let (first, last) = (FIRST[0], FIRST[FIRST.len() - 1]);
    let standing = match (low == first, high == last) {
        (false, false) => Standing::Known(f64::from(high) / f64::from(low)),
        (true, false) => Standing::AtMost(1.0),
        (false, true) => Standing::AtLeast(1.0),
        (true, true) => Standing::NotIdentifiable,
    };
    // If the preset's number fits as well as any, it stays.
    let own_fits = u32::try_from(own.raw).is_ok_and(|own| (low..=high).contains(&own));
    let is_known = matches!(standing, Standing::Known(_));
    let units = match u32::try_from(own.raw) {
        Ok(own) if own_fits && !is_known => own,
        _ => best,
    };
    let mut start = start::with_units(search.start(), units);
    start
        .set(name, &value(units).to_string(), Moment::Creation)
        .ok()?;
    *search = search.beginning_at(start, 1);
    Some(Finding {
        names: vec![name],
        standing,
        sweep: DEPTHS,
        known: vec![Known {
            value: value(units),
            low: (low > first).then(|| value(low)),
            high: (high < last).then(|| value(high)),
        }],
    })
}
