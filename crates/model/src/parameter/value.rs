//! Values with units, as text and back: `8us`, `3360MiB/s`, `550K/s`, `7%`, `4MiB`, `true`,
//! `greedy`.
//!
//! Text that [`Value`] writes reads back as the same number. People may write fractions where the
//! result is whole: `0.5us` is 500 ns.

use std::fmt;

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Time,
    /// Bytes per second; 0 is `none`, not limited.
    Bandwidth,
    /// Commands per second; 0 is `none`, not limited.
    Rate,
    /// Bytes.
    Size,
    /// Things.
    Count,
    /// Tenths of a percent.
    Percent,
    /// 0 is `false`, 1 is `true`.
    Flag,
    /// An index into words.
    Word(&'static [&'static str]),
}

/// A number with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its unit.
    pub unit: Unit,
    /// How many, in the unit that [`Unit`] names.
    pub raw: u64,
}

type Scale = (&'static str, u64);

const TIMES: &[Scale] = &[
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("ns", 1),
];

const SIZES: &[Scale] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

const RATES: &[Scale] = &[("M", 1_000_000), ("K", 1_000), ("", 1)];

/// Name of the value of a bandwidth or a rate that is not limited.
const NONE: &str = "none";

impl Unit {
    /// The value that `text` writes.
    ///
    /// # Errors
    /// What to write instead.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        let raw = match self {
            Unit::Time => {
                scaled(text, TIMES, Fraction::Refused).map_err(|why| why.say("8us, 350ns or 3ms"))
            }
            Unit::Size => {
                scaled(text, SIZES, Fraction::Refused).map_err(|why| why.say("4MiB or 32KiB"))
            }
            Unit::Bandwidth if text == NONE => Ok(0),
            Unit::Bandwidth => per_second(text)
                .and_then(|text| scaled(text, SIZES, Fraction::Dropped))
                .map_err(|why| why.say("2400MB/s, 3360MiB/s or none")),
            Unit::Rate if text == NONE => Ok(0),
            Unit::Rate => per_second(text)
                .and_then(|text| scaled(text, RATES, Fraction::Refused))
                .map_err(|why| why.say("550K/s or none")),
            Unit::Percent => text
                .strip_suffix('%')
                .ok_or(Wrong::Unit)
                .and_then(|text| scaled(text, &[("", 10)], Fraction::Refused))
                .map_err(|why| why.say("7% or 6.5%")),
            Unit::Count => scaled(text, &[("", 1)], Fraction::Refused).map_err(|why| why.say("8")),
            Unit::Flag => match text {
                "false" => Ok(0),
                "true" => Ok(1),
                _ => Err("write true or false".to_owned()),
            },
            Unit::Word(words) => words
                .iter()
                .position(|word| *word == text)
                .and_then(|index| u64::try_from(index).ok())
                .ok_or_else(|| format!("write {}", words.join(" or "))),
        }?;
        Ok(Value { unit: self, raw })
    }

    /// Name of a number of this unit, for tables: `time`, `bandwidth`, `true, false`.
    pub fn name(self) -> String {
        match self {
            Unit::Time => "time".to_owned(),
            Unit::Bandwidth => "bandwidth".to_owned(),
            Unit::Rate => "rate".to_owned(),
            Unit::Size => "size".to_owned(),
            Unit::Count => "count".to_owned(),
            Unit::Percent => "percent".to_owned(),
            Unit::Flag => "true, false".to_owned(),
            Unit::Word(words) => words.join(", "),
        }
    }
}

/// Why text is no value.
enum Wrong {
    Number,
    Unit,
    NotWhole,
    TooLarge,
}

impl Wrong {
    fn say(&self, example: &str) -> String {
        match self {
            Wrong::Number => format!("that is no number: write {example}"),
            Wrong::Unit => format!("write it with its unit, as in {example}"),
            Wrong::NotWhole => {
                format!("that is no whole number of the smallest unit: write {example}")
            }
            Wrong::TooLarge => format!("that is too much: write {example}"),
        }
    }
}

/// Treatment of a part of the smallest unit.
#[derive(Clone, Copy, PartialEq)]
enum Fraction {
    Refused,
    /// Of a bandwidth: no whole byte a second is lost, and published figures such as 2.4 GiB/s are
    /// not whole.
    Dropped,
}

fn per_second(text: &str) -> Result<&str, Wrong> {
    text.strip_suffix("/s").ok_or(Wrong::Unit)
}

/// A decimal number and the name of a scale.
fn scaled(text: &str, scales: &[Scale], fraction: Fraction) -> Result<u64, Wrong> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '_' && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.replace('_', "");
    let is_number = !whole.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    // Nine digits behind the point are more than any unit here has.
    if !is_number || part.len() > 9 || number.ends_with('.') {
        return Err(Wrong::Number);
    }
    let digits: u64 = format!("{whole}{part}")
        .parse()
        .map_err(|_| Wrong::TooLarge)?;
    let unit = unit.trim();
    let (_, scale) = scales
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        .ok_or(Wrong::Unit)?;
    let divisor = part.bytes().fold(1u128, |divisor, _| divisor * 10);
    let scaled = u128::from(digits) * u128::from(*scale);
    if !scaled.is_multiple_of(divisor) && fraction == Fraction::Refused {
        return Err(Wrong::NotWhole);
    }
    u64::try_from(scaled / divisor).map_err(|_| Wrong::TooLarge)
}

/// The number with the largest scale of which it is a whole multiple.
fn shown(f: &mut fmt::Formatter<'_>, raw: u64, scales: &[Scale], behind: &str) -> fmt::Result {
    let whole = scales
        .iter()
        .filter(|(_, scale)| raw.is_multiple_of(*scale));
    let largest = match raw {
        0 => scales.last(),
        _ => whole.min_by_key(|(_, scale)| raw / scale),
    };
    let (unit, scale) = largest.copied().unwrap_or(("", 1));
    write!(f, "{}{unit}{behind}", raw / scale)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = self.raw;
        match self.unit {
            Unit::Time => shown(f, raw, TIMES, ""),
            Unit::Size => shown(f, raw, SIZES, ""),
            Unit::Bandwidth | Unit::Rate if raw == 0 => f.write_str(NONE),
            Unit::Bandwidth => shown(f, raw, SIZES, "/s"),
            Unit::Rate => shown(f, raw, RATES, "/s"),
            Unit::Percent if raw.is_multiple_of(10) => write!(f, "{}%", raw / 10),
            Unit::Percent => write!(f, "{}.{}%", raw / 10, raw % 10),
            Unit::Count => write!(f, "{raw}"),
            Unit::Flag => write!(f, "{}", raw != 0),
            Unit::Word(words) => {
                let word = usize::try_from(raw).ok().and_then(|index| words.get(index));
                f.write_str(word.copied().unwrap_or_default())
            }
        }
    }
}
