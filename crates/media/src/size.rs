//! Human-readable sizes.

use std::fmt;

/// A number of bytes; shows the largest binary unit that divides it, and the bytes themselves
/// where that hides nothing (`64 GiB`, `1049088 bytes`).
#[derive(Clone, Copy)]
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        for (shift, unit) in UNITS {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{} {unit}", self.0 >> shift);
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn the_largest_unit_that_loses_nothing() {
        let shown = [
            0,
            1,
            511,
            1024,
            1536,
            1 << 20,
            5 << 30,
            (1 << 20) + 512,
            1 << 42,
        ]
        .map(|bytes| Bytes(bytes).to_string());
        let expected = [
            "0 bytes",
            "1 bytes",
            "511 bytes",
            "1 KiB",
            "1536 bytes",
            "1 MiB",
            "5 GiB",
            "1049088 bytes",
            "4 TiB",
        ];
        assert_eq!(shown, expected);
    }
}
