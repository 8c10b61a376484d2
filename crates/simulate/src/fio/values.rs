//! Values in fio's notation.

use crate::job::Extent;
use crate::places::THETA_UNIT;

/// A switch: without value, or 0 or 1.
pub(super) fn flag(value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("" | "1") => Ok(true),
        Some("0") => Ok(false),
        Some(other) => Err(format!("`{other}` is neither 0 nor 1")),
    }
}

/// A whole number in a range.
pub(super) fn number(value: &str, least: u64, most: u64) -> Result<u64, String> {
    match value.parse::<u64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!(
            "`{value}` is no whole number from {least} to {most}"
        )),
    }
}

/// A number of bytes, as fio reads it with its default `kb_base` of 1024: `k`, `kb` are 1024 and,
/// for compatibility with old job files, `ki`, `kib` are 1000 (HOWTO, "Parameter types").
pub(super) fn bytes(value: &str) -> Result<u64, String> {
    let wrong = || format!("`{value}` is no size: write a whole number, as in 4096, 4k or 1g");
    if let Some(digits) = value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16).map_err(|_| wrong());
    }
    let (number, unit) = parts(value);
    let unit = unit.to_ascii_lowercase();
    let (base, power) = match unit.strip_suffix('b').unwrap_or(&unit) {
        "" => (1, 0),
        "k" => (1024, 1),
        "m" => (1024, 2),
        "g" => (1024, 3),
        "t" => (1024, 4),
        "p" => (1024, 5),
        "ki" => (1000, 1),
        "mi" => (1000, 2),
        "gi" => (1000, 3),
        "ti" => (1000, 4),
        "pi" => (1000, 5),
        _ => {
            return Err(format!(
                "`{value}` has an unknown unit: write k, m, g or t, which are powers of 1024, or bytes"
            ));
        }
    };
    let number: Option<u64> = number.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(u64::pow(base, power)));
    bytes.ok_or_else(wrong)
}

/// One value for all kinds, or up to three: for reads, writes and trims. A part that is left empty
/// is the default, and a value that no comma ends applies to the rest (HOWTO, `blocksize`).
pub(super) fn by_kind<T: Clone>(
    value: &str,
    default: &T,
    each: impl Fn(&str) -> Result<T, String>,
) -> Result<[T; 3], String> {
    let given: Vec<&str> = value.split(',').map(str::trim).collect();
    if given.len() > 3 {
        return Err(format!("`{value}` has more than three parts"));
    }
    let mut all = [(); 3].map(|()| default.clone());
    for (at, slot) in all.iter_mut().enumerate() {
        let text = given[at.min(given.len() - 1)];
        if given.len() == 1 || !text.is_empty() {
            *slot = each(text)?;
        }
    }
    Ok(all)
}

/// Bytes, a percentage of the drive, or a number of zones.
pub(super) fn extent(value: &str) -> Result<Extent, String> {
    match value.strip_suffix('%') {
        Some(percent) => Ok(Extent::Percent(number(percent, 0, 100)? as u8)),
        None => match value.strip_suffix('z') {
            Some(zones) => Ok(Extent::Zones(number(zones, 0, u64::from(u32::MAX))?)),
            None => bytes(value).map(Extent::Bytes),
        },
    }
}

/// A duration in nanoseconds; `unit_ns` is the unit of a bare number.
pub(super) fn time_ns(value: &str, unit_ns: u64) -> Result<u64, String> {
    let (number, unit) = parts(value);
    let unit_ns = match unit {
        "" => unit_ns,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => {
            return Err(format!(
                "`{value}` has an unknown unit: write us, ms, s, m, h or d"
            ));
        }
    };
    let number: Option<u64> = number.parse().ok();
    let time = number.and_then(|number| number.checked_mul(unit_ns));
    time.ok_or_else(|| format!("`{value}` is no time: write a whole number, as in 30s or 500us"))
}

/// A decimal number up to `most`, in millionths, of which there are at least `least`.
pub(super) fn decimal(value: &str, most: u64, least: u64) -> Result<u64, String> {
    let wrong = || match least {
        0 => format!("`{value}` is no number from 0 to {most}, as in 0.5"),
        _ => format!("`{value}` is no number above 0 and up to {most}, as in 0.5"),
    };
    let (whole, part) = value.split_once('.').unwrap_or((value, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 6 || whole.len() > 3 {
        return Err(wrong());
    }
    let text = format!("{whole}{part:0<6}");
    let value: u64 = text.parse().map_err(|_| wrong())?;
    if (least..=most * THETA_UNIT).contains(&value) {
        Ok(value)
    } else {
        Err(wrong())
    }
}

/// One of several words.
pub(super) fn choice<T: Clone>(value: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == value);
    found.map(|(_, value)| value.clone()).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        format!(
            "`{value}` is not taken; one of these is: {}",
            names.join(", ")
        )
    })
}

fn parts(value: &str) -> (&str, &str) {
    let digits = value.find(|c: char| !c.is_ascii_digit());
    value.split_at(digits.unwrap_or(value.len()))
}
