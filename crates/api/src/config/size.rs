//! Sizes, ranges and times as people write them: `64GiB`, `0GiB..16GiB`, `50us`.
//!
//! Numbers may have decimals, where the result is a whole number of bytes or nanoseconds.
//!
//! A size always has a unit. `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024; `kB`, `MB`, `GB`, `TB`
//! are powers of 1000, as drive makers count; a bare `k`, `m`, `g`, `t` is binary, as in fio and
//! QEMU.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Units by name, each with its number of bytes. Longer names come first.
const UNITS: &[(&str, u64)] = &[
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("b", 1),
];

/// Divides text behind its number.
fn number_and_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_' && c != '.');
    text.split_at(end.unwrap_or(text.len()))
}

/// Decimal number, exact: `digits / 10^places`.
#[derive(Clone, Copy, Debug)]
struct Decimal {
    digits: u128,
    places: u32,
}

/// Why a decimal number of a unit is no whole number of its smallest unit.
#[derive(Clone, Copy, Debug)]
enum Inexact {
    TooMuch,
    Fraction,
}

impl Decimal {
    /// Maximum number of digits.
    const MAX_DIGITS: usize = 24;

    /// Reads digits, at most one point between them, and underscores; `None` for anything else.
    fn parse(text: &str) -> Option<Self> {
        let text = text.replace('_', "");
        let (whole, part) = text.split_once('.').unwrap_or((&text, "0"));
        let all = format!("{whole}{part}");
        if whole.is_empty() || part.is_empty() || all.len() > Self::MAX_DIGITS {
            return None;
        }
        Some(Decimal {
            digits: all.parse().ok()?,
            places: u32::try_from(part.len()).ok()?,
        })
    }

    /// This many units of `unit`.
    fn times(self, unit: u64) -> Result<u64, Inexact> {
        let product = self.digits.checked_mul(u128::from(unit));
        let product = product.ok_or(Inexact::TooMuch)?;
        let divisor = 10_u128.pow(self.places);
        if !product.is_multiple_of(divisor) {
            return Err(Inexact::Fraction);
        }
        u64::try_from(product / divisor).map_err(|_| Inexact::TooMuch)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (number, unit) = number_and_unit(text);
        let decimal = Decimal::parse(number).ok_or_else(|| {
            format!(
                "`{text}` is not a size: write a number and a unit, as in 8GiB, 1.5GiB, 512MiB or 4096B"
            )
        })?;
        let unit = unit.trim().to_ascii_lowercase();
        if unit.is_empty() {
            return Err(format!(
                "`{text}` has no unit: write {number}GiB, {number}MiB, {number}KiB or {number}B"
            ));
        }
        let (_, bytes) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| {
                format!(
                    "`{text}` has an unknown unit `{unit}`: use B, KiB, MiB, GiB, TiB, kB, MB, GB or TB"
                )
            })?;
        match decimal.times(*bytes) {
            Ok(bytes) => Ok(Size(bytes)),
            Err(Inexact::TooMuch) => Err(format!("`{text}` is more than 16 EiB")),
            Err(Inexact::Fraction) => Err(format!("`{text}` is not a whole number of bytes")),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, bytes) in [
            ("TiB", 1u64 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
        ] {
            if self.0 >= bytes && self.0.is_multiple_of(bytes) {
                return write!(f, "{}{unit}", self.0 / bytes);
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// Byte range `start..end`, the end excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: Size,
    /// One past the last byte.
    pub end: Size,
}

impl Range {
    /// Bytes in the range.
    #[expect(clippy::len_without_is_empty, reason = "no range is empty")]
    pub fn len(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether the two share a byte.
    pub fn overlaps(self, other: Range) -> bool {
        self.start < other.end && other.start < self.end
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (start, end) = text.split_once("..").ok_or_else(|| {
            format!("`{text}` is not a range: write start..end, as in 0GiB..16GiB")
        })?;
        let range = Range {
            start: start.parse()?,
            end: end.parse()?,
        };
        if range.start >= range.end {
            return Err(format!(
                "range `{text}` is empty: write an end above the start"
            ));
        }
        Ok(range)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// Time span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (number, unit) = number_and_unit(text);
        let decimal = Decimal::parse(number).ok_or_else(|| {
            format!("`{text}` is not a time: write a number and a unit, as in 50us, 0.5ms or 5s")
        })?;
        let nanos: u64 = match unit.trim() {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err(format!("`{text}` has no unit: use ns, us, ms, s, min or h")),
            other => {
                return Err(format!(
                    "`{text}` has an unknown unit `{other}`: use ns, us, ms, s, min or h"
                ));
            }
        };
        match decimal.times(nanos) {
            Ok(ns) => Ok(Span(Duration::from_nanos(ns))),
            Err(Inexact::TooMuch) => Err(format!("time `{text}` is too long")),
            Err(Inexact::Fraction) => Err(format!("`{text}` is not a whole number of nanoseconds")),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        match ns {
            _ if ns.is_multiple_of(1_000_000_000) => write!(f, "{}s", ns / 1_000_000_000),
            _ if ns.is_multiple_of(1_000_000) => write!(f, "{}ms", ns / 1_000_000),
            _ if ns.is_multiple_of(1_000) => write!(f, "{}us", ns / 1_000),
            _ => write!(f, "{ns}ns"),
        }
    }
}

/// Gives a type that has `FromStr` and `Display` the same form in TOML and JSON: a string.
macro_rules! serde_as_text {
    ($($type:ty => $what:literal),+) => {$(
        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Text;
                impl ::serde::de::Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str($what)
                    }
                    fn visit_str<E: ::serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                from.deserialize_any(Text)
            }
        }

        impl ::utoipa::PartialSchema for $type {
            fn schema() -> ::utoipa::openapi::RefOr<::utoipa::openapi::schema::Schema> {
                ::utoipa::openapi::ObjectBuilder::new()
                    .schema_type(::utoipa::openapi::Type::String)
                    .description(Some($what))
                    .into()
            }
        }

        impl ::utoipa::ToSchema for $type {}
    )+};
}

pub(crate) use serde_as_text;

serde_as_text!(
    Size => "a size in quotes with a unit, as in \"8GiB\"",
    Range => "a range in quotes, as in \"0GiB..16GiB\"",
    Span => "a time in quotes with a unit, as in \"50us\""
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("64GiB", 64 << 30),
            ("8 GiB", 8 << 30),
            ("1_024B", 1024),
            ("4k", 4096),
            ("1m", 1 << 20),
            ("8.5GiB", 17 << 29),
            ("1.5 kB", 1500),
            ("0.1GB", 100_000_000),
            ("1TB", 1_000_000_000_000),
            ("960GB", 960_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for wrong in [
            "",
            "GiB",
            "12",
            "-1GiB",
            "1.5B",
            "0.1KiB",
            "1.GiB",
            ".5GiB",
            "1.2.3GiB",
            "1.5",
            "1XB",
            "99999999999TiB",
        ] {
            let message = wrong.parse::<Size>().unwrap_err();
            assert!(message.contains(wrong), "{message}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for bytes in [0, 1, 512, 4096, 1000, 1 << 30, (1 << 30) + 512, u64::MAX] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
        for (text, ns) in [
            ("0.05ms", 50_000),
            ("1.5us", 1_500),
            ("0.5h", 1_800_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_nanos(ns))), "{text}");
        }
        for wrong in ["0.5ns", "1.ms", ".5ms", "1.5", "1.2.3s", "ms"] {
            let message = wrong.parse::<Span>().unwrap_err();
            assert!(message.contains(wrong), "{message}");
        }
        for span in ["1ns", "50us", "2ms", "5s", "1min", "2h"] {
            let span: Span = span.parse().unwrap();
            assert_eq!(span.to_string().parse(), Ok(span));
        }
    }

    #[test]
    fn ranges_have_a_start_before_their_end() {
        let range: Range = "1GiB..16GiB".parse().unwrap();
        assert_eq!(range.len(), 15 << 30);
        assert!("16GiB..1GiB".parse::<Range>().is_err());
        assert!("1GiB..1GiB".parse::<Range>().is_err());
        assert!("1GiB".parse::<Range>().is_err());
        assert!(range.overlaps("15GiB..20GiB".parse().unwrap()));
        assert!(!range.overlaps("16GiB..20GiB".parse().unwrap()));
    }
}
