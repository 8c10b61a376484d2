//! A calibration: the points of the fit and those held out, the search, and the order of findings.

use super::findings::{Calibration, Finding, Given};
use super::search::Search;
use super::{Sample, start, units};

/// One of this many points that can be spared is held out.
const HELD_OUT_OF: usize = 2;

/// Finds the parameters of a drive.
///
/// # Errors
/// Too few measurements; the message says which are missing.
pub(crate) fn calibrate(given: &Given<'_>) -> Result<Calibration, String> {
    let kind = start::kind(given);
    let (samples, passed_over) = start::usable(kind, given.samples);
    let (steady, plain): (Vec<&Sample>, Vec<&Sample>) = samples.iter().partition(|s| s.sustained);
    let start = start::parameters(given, kind, &plain)?;
    let (points, spared) = split(&plain);
    let mut search = Search::new(given, start, points, &plain)?;
    let units = units::settle(&mut search);
    let noise = search.settle()?;
    let mut found = search.told(given, noise, &spared, &steady)?;
    found.findings.extend(units);
    let order = |finding: &Finding| {
        let mut all = kind.parameters();
        all.position(|p| p.name == finding.names[0])
    };
    found.findings.sort_by_key(order);
    found.passed_over = passed_over;
    Ok(found)
}

/// Points of the fit, and held-out points: some of those well inside a sweep.
fn split<'a>(plain: &[&'a Sample]) -> (Vec<&'a Sample>, Vec<&'a Sample>) {
    let mut points = plain.to_vec();
    points.sort_by_key(|s| (s.act, s.random, s.block_bytes, s.depth));
    let like = |a: &Sample, b: &Sample| a.act == b.act && a.random == b.random;
    // More writers with as many commands in flight each form a sweep, as does one writer with more.
    let each = |s: &Sample| s.depth / s.writers.count;
    let by_depth = |a: &Sample, b: &Sample| {
        like(a, b)
            && a.block_bytes == b.block_bytes
            && (a.writers.count == b.writers.count || each(a) == each(b))
    };
    let by_size = |a: &Sample, b: &Sample| {
        like(a, b) && a.depth == b.depth && a.writers.count == b.writers.count
    };
    let can_be_spared = |sample: &Sample| {
        let others = |beside: &dyn Fn(&Sample, &Sample) -> bool, of: fn(&Sample) -> u32| {
            let others = plain.iter().filter(|s| beside(s, sample));
            others.map(|s| of(s)).collect::<Vec<u32>>()
        };
        let of_size = others(&by_depth, |s| s.depth);
        let of_depth = others(&by_size, |s| s.block_bytes);
        // Two others on each side, so that the fit still sees the course between them.
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
