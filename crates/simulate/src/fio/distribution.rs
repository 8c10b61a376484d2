//! Distributions of random places, as `random_distribution` names them (fio's HOWTO).

use super::values::{by_kind, decimal, extent, number};
use crate::job::{Distribution, Extent};

/// Maximum number of ranges, as in fio.
const RANGES_MAX: usize = 256;

/// fio's defaults: a theta of 1.1, and a power of 0.2.
const THETA: u64 = 1_100_000;
const POWER: u64 = 200_000;

/// A distribution, and its center in millionths.
pub(super) fn parse(value: &str) -> Result<(Distribution, Option<u64>), String> {
    let unknown = || {
        format!(
            "`{value}` is none of random, zipf[:THETA[:CENTER]], pareto[:H[:CENTER]], normal:DEVIATION[:CENTER], zoned:SHARE/PART:..., zoned_abs:SHARE/SIZE:..."
        )
    };
    let at = value.find([':', '=']).unwrap_or(value.len());
    let (name, rest) = value.split_at(at);
    let rest = (!rest.is_empty()).then(|| &rest[1..]);
    if name == "zoned" || name == "zoned_abs" {
        let ranges = rest.ok_or_else(unknown)?;
        let one = |text: &str| zoned(text, name == "zoned_abs");
        return Ok((Distribution::Zoned(by_kind(ranges, &all(), one)?), None));
    }
    let mut numbers = rest.into_iter().flat_map(|rest| rest.split(':'));
    let first = numbers.next();
    let center = numbers.next().map(|text| decimal(text, 1, 0)).transpose()?;
    if numbers.next().is_some() {
        return Err(unknown());
    }
    let distribution = match (name, first) {
        ("random", None) => Distribution::Uniform,
        ("zipf", None) => Distribution::Zipf(THETA),
        ("zipf", Some(theta)) => Distribution::Zipf(decimal(theta, 5, 1)?),
        ("pareto", None) => Distribution::Pareto(POWER),
        ("pareto", Some(power)) => match decimal(power, 1, 1)? {
            power @ 1..1_000_000 => Distribution::Pareto(power),
            _ => return Err(format!("`{power}` is no number between 0 and 1, as in 0.2")),
        },
        // In per cent.
        ("normal", Some(deviation)) => match decimal(deviation, 100, 1)? / 100 {
            0 => return Err(format!("`{deviation}` is too small a deviation")),
            deviation => Distribution::Normal(deviation),
        },
        _ => return Err(unknown()),
    };
    Ok((distribution, center))
}

/// One range of everything.
fn all() -> Vec<(u8, Extent)> {
    vec![(100, Extent::Percent(100))]
}

/// `60/10:30/20:10/70`, with lengths in per cent or in bytes.
fn zoned(value: &str, absolute: bool) -> Result<Vec<(u8, Extent)>, String> {
    let mut ranges = Vec::new();
    for part in value.split(':') {
        let wrong = || format!("`{part}` is no range: write SHARE/LENGTH, as in 60/10");
        let (share, len) = part.split_once('/').ok_or_else(wrong)?;
        let share = number(share.trim_end_matches('%'), 0, 100)? as u8;
        let len = if absolute {
            match extent(len)? {
                Extent::Bytes(bytes) => Extent::Bytes(bytes),
                _ => return Err(wrong()),
            }
        } else {
            Extent::Percent(number(len.trim_end_matches('%'), 0, 100)? as u8)
        };
        ranges.push((share, len));
    }
    let shares: u64 = ranges.iter().map(|(share, _)| u64::from(*share)).sum();
    let parts = ranges.iter().map(|(_, len)| match len {
        Extent::Percent(percent) => u64::from(*percent),
        _ => 0,
    });
    let parts: u64 = parts.sum();
    if shares != 100 || parts > 100 || (!absolute && parts != 100) {
        return Err(format!(
            "`{value}`: shares of {shares} % in all, and parts of {parts} %: each sum is 100"
        ));
    }
    if ranges.len() > RANGES_MAX {
        return Err(format!("more than {RANGES_MAX} ranges"));
    }
    Ok(ranges)
}
