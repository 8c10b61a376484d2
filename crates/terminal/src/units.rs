//! Numbers with units, with three significant digits to fit into a column.

/// Three significant digits: `12.3`, `123` or `1.23`.
fn three_digits(value: f64) -> String {
    if value >= 99.95 {
        format!("{value:.0}")
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A rate of commands: `830`, `12.3 K`, `2.31 M`.
pub fn rate(per_second: f64) -> String {
    if per_second >= 999_500.0 {
        format!("{} M", three_digits(per_second / 1e6))
    } else if per_second >= 999.5 {
        format!("{} K", three_digits(per_second / 1e3))
    } else {
        format!("{per_second:.0}")
    }
}

/// A time: `850 ns`, `12.3 us`, `4.56 ms`, `1.20 s`.
pub fn nanoseconds(ns: f64) -> String {
    if ns >= 999_500_000.0 {
        format!("{} s", three_digits(ns / 1e9))
    } else if ns >= 999_500.0 {
        format!("{} ms", three_digits(ns / 1e6))
    } else if ns >= 999.5 {
        format!("{} us", three_digits(ns / 1e3))
    } else {
        format!("{ns:.0} ns")
    }
}

/// A rate of data in MiB/s: `4.56`, `45.6`, `456`, `4567`.
pub fn mib_s(value: f64) -> String {
    three_digits(value)
}

/// A mean count: whole from 10 on, else with one digit behind the point; `0` only for none.
pub fn count(value: f64) -> String {
    match value {
        value if value <= 0.0 => "0".to_owned(),
        value if value >= 9.95 => format!("{value:.0}"),
        value => format!("{:.1}", value.max(0.1)),
    }
}

/// A number of bytes, rounded: `8.00 GiB`.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn bytes(count: u64) -> String {
    let value = count as f64;
    for (unit, size) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        let unit_len = (1u64 << size) as f64;
        if value >= unit_len {
            return format!("{} {unit}", three_digits(value / unit_len));
        }
    }
    format!("{count} B")
}

/// A block size in its largest whole unit: `512 B`, `4 KiB`, `128 KiB`.
pub fn block(bytes: u32) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count_and_units_change_where_they_round() {
        for (value, shown) in [
            (0.0, "0"),
            (830.4, "830"),
            (999.6, "1.00 K"),
            (12_345.0, "12.3 K"),
            (999_499.0, "999 K"),
            (999_600.0, "1.00 M"),
            (2_314_000.0, "2.31 M"),
        ] {
            assert_eq!(rate(value), shown);
        }
        for (value, shown) in [
            (850.0, "850 ns"),
            (999.7, "1.00 us"),
            (12_340.0, "12.3 us"),
            (99_960.0, "100 us"),
            (4_560_000.0, "4.56 ms"),
            (1_200_000_000.0, "1.20 s"),
        ] {
            assert_eq!(nanoseconds(value), shown);
        }
        assert_eq!(mib_s(4_567.2), "4567");
        for (value, shown) in [
            (0.0, "0"),
            (0.01, "0.1"),
            (3.12, "3.1"),
            (9.97, "10"),
            (31.6, "32"),
        ] {
            assert_eq!(count(value), shown);
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes(8 << 30), "8.00 GiB");
        assert_eq!(bytes(100), "100 B");
        assert_eq!(block(4096), "4 KiB");
        assert_eq!(block(512), "512 B");
        assert_eq!(block(1536), "1536 B");
        assert_eq!(block(2 << 20), "2 MiB");
    }
}
