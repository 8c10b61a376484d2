//! Values that a key accepts, beyond those of its type.

use std::time::Duration;

use serde_json::Value;

use crate::config::{Size, Span};

/// Longest name of anything.
const MAX_NAME_LEN: usize = 64;

/// Values that a key accepts. Rules that need another key are in the objects' `validate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// All values of the type.
    Any,
    /// Whole numbers from the first to the last; without a maximum, up to `u64::MAX`.
    Whole(u64, u64),
    /// The same, for numbers that are usually hexadecimal.
    Hex(u64, u64),
    /// One of these numbers.
    OneOf(&'static [u64]),
    /// Sizes in bytes, from the first to the last.
    Bytes(u64, u64),
    /// Sizes that are a power of two, from the first to the last.
    PowerOfTwo(u64, u64),
    /// Sizes that are a multiple of the first, from the second to less than the last.
    MultipleOf(u64, u64, u64),
    /// One of these sizes.
    OneSizeOf(&'static [u64]),
    /// Times in nanoseconds, from the first to the last.
    Time(u64, u64),
    /// Times of less than this, in nanoseconds.
    Below(u64),
    /// Name of an object, which fits into paths, URLs and tables.
    Name,
    /// Up to so many printable ASCII characters.
    Ascii(usize),
    /// So many hexadecimal digits, not all zero.
    Digits(usize),
}

impl Bounds {
    /// The accepted values in words; empty where the type says everything.
    pub fn words(self) -> String {
        let size = |bytes: u64| match bytes {
            0 => Size(bytes).to_string(),
            _ if bytes.is_multiple_of(1 << 60) => format!("{}EiB", bytes >> 60),
            _ => Size(bytes).to_string(),
        };
        let time = |ns: u64| Span(Duration::from_nanos(ns)).to_string();
        match self {
            Bounds::Any => String::new(),
            Bounds::Whole(least, most) => range(least, most, |number| number.to_string()),
            Bounds::Hex(least, most) => range(least, most, |number| format!("{number:#x}")),
            Bounds::OneOf(all) => one_of(all, |number| number.to_string()),
            Bounds::OneSizeOf(all) => one_of(all, size),
            Bounds::MultipleOf(step, least, end) => format!(
                "a multiple of {}, at least {} and less than {}",
                size(step),
                size(least),
                size(end)
            ),
            Bounds::Bytes(1, u64::MAX) | Bounds::Time(1, u64::MAX) => "more than 0".to_owned(),
            Bounds::Bytes(least, most) => range(least, most, size),
            Bounds::PowerOfTwo(least, most) => {
                format!("a power of two, {}", range(least, most, size))
            }
            Bounds::Time(0, most) => format!("up to {}", time(most)),
            Bounds::Time(least, most) => range(least, most, time),
            Bounds::Below(most) => format!("less than {}", time(most)),
            Bounds::Name => format!("1 to {MAX_NAME_LEN} letters, digits, `.`, `_` or `-`"),
            Bounds::Ascii(most) => format!("1 to {most} printable ASCII characters"),
            Bounds::Digits(count) => format!("{count} hexadecimal digits, not all zero"),
        }
    }

    /// The smallest and the largest number, where the values are numbers.
    pub fn numbers(self) -> Option<(u64, u64)> {
        match self {
            Bounds::Whole(least, most) | Bounds::Hex(least, most) => Some((least, most)),
            _ => None,
        }
    }

    /// Whether it accepts a value, in JSON.
    pub fn hold(self, value: &Value) -> bool {
        let number = || value.as_u64().unwrap_or_default();
        let text = || value.as_str().unwrap_or_default();
        let bytes = || text().parse().map_or(0, |size: Size| size.0);
        let ns = || text().parse().map_or(0, |span: Span| span.0.as_nanos());
        match self {
            Bounds::Any => true,
            Bounds::Whole(least, most) | Bounds::Hex(least, most) => {
                (least..=most).contains(&number())
            }
            Bounds::OneOf(all) => all.contains(&number()),
            Bounds::Bytes(least, most) => (least..=most).contains(&bytes()),
            Bounds::PowerOfTwo(least, most) => {
                bytes().is_power_of_two() && (least..=most).contains(&bytes())
            }
            Bounds::MultipleOf(step, least, end) => {
                bytes().is_multiple_of(step) && (least..end).contains(&bytes())
            }
            Bounds::OneSizeOf(all) => all.contains(&bytes()),
            Bounds::Time(least, most) => (least.into()..=most.into()).contains(&ns()),
            Bounds::Below(most) => ns() < most.into(),
            Bounds::Name => is_name(text()),
            Bounds::Ascii(most) => {
                let printable = text().bytes().all(|b| (0x20..0x7f).contains(&b));
                printable && (1..=most).contains(&text().len())
            }
            Bounds::Digits(count) => {
                let digits = text().bytes().all(|b| b.is_ascii_hexdigit());
                digits && text().len() == count && text().bytes().any(|b| b != b'0')
            }
        }
    }
}

fn is_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    text.bytes().all(fits) && (1..=MAX_NAME_LEN).contains(&text.len())
}

fn one_of(all: &[u64], shown: impl Fn(u64) -> String) -> String {
    let all: Vec<String> = all.iter().copied().map(shown).collect();
    all.join(" or ")
}

fn range(least: u64, most: u64, shown: impl Fn(u64) -> String) -> String {
    match most {
        u64::MAX => format!("at least {}", shown(least)),
        most => format!("{} to {}", shown(least), shown(most)),
    }
}
