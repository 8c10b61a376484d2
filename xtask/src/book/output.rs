//! Whether what a page shows is what its commands print.
//!
//! Lines that are shown are found one after the other in what came, wherever they begin. `…` (or
//! `...`) stands for anything within a line, and alone on a line for any lines. How many spaces
//! there are does not matter: a column is as wide as its widest entry. Where numbers vary, any
//! number, with any unit or none, is as good as the one that is shown, and so is the remark on
//! it: how near two CPUs are to each other.

/// Words behind a number that change with it.
const UNITS: &[&str] = &[
    "%", "B", "B/s", "G", "GB", "GiB", "GiB/s", "K", "KiB", "KiB/s", "M", "MB", "MiB", "MiB/s",
    "T", "TiB", "kB", "min", "ms", "ns", "s", "us", "µs",
];
/// Remarks that follow a number.
const REMARKS: &[&str] = &["near", "far"];
/// A number that may be any.
const NUMBER: &str = "0";
/// What stands for anything.
const ANYTHING: &str = "…";

/// What of `shown` is not in `came`: the first line that is missing.
///
/// # Errors
/// A line is missing, which is returned.
pub(crate) fn compare(shown: &str, came: &str, numbers_vary: bool) -> Result<(), String> {
    let form = |line: &str| normal(line, numbers_vary);
    let wanted: Vec<_> = shown.lines().map(form).collect();
    let there: Vec<_> = came.lines().map(form).collect();
    let mut furthest = 0;
    for start in 0..=there.len() {
        match matched(&wanted, &there[start..]) {
            Ok(()) => return Ok(()),
            Err(at) => furthest = furthest.max(at),
        }
    }
    let missing = shown.lines().nth(furthest).unwrap_or_default();
    Err(missing.trim().to_owned())
}

/// Whether `there` begins with the wanted lines; else how many of them it begins with.
fn matched(wanted: &[String], there: &[String]) -> Result<(), usize> {
    let Some((first, rest)) = wanted.split_first() else {
        return Ok(());
    };
    if first == ANYTHING {
        let mut furthest = 0;
        for skip in 0..=there.len() {
            match matched(rest, &there[skip..]) {
                Ok(()) => return Ok(()),
                Err(at) => furthest = furthest.max(at),
            }
        }
        return Err(furthest + 1);
    }
    match there.split_first() {
        Some((line, after)) if like(first, line) => matched(rest, after).map_err(|at| at + 1),
        _ => Err(0),
    }
}

/// Whether a line matches the pattern, in which `…` stands for any text.
fn like(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split(ANYTHING);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// A line with single spaces, and with all numbers alike where they vary.
fn normal(line: &str, numbers_vary: bool) -> String {
    let line = line.replace("...", ANYTHING);
    let mut words: Vec<String> = Vec::new();
    let mut unit_may_come = false;
    for word in line.split_whitespace() {
        if !numbers_vary {
            words.push(word.to_owned());
            continue;
        }
        if unit_may_come && UNITS.contains(&word.trim_end_matches([',', ';', ':'])) {
            // the number takes it, so that it may be another one
            unit_may_come = false;
            continue;
        }
        if REMARKS.contains(&word) && words.last().is_some_and(|word| word.contains(NUMBER)) {
            continue;
        }
        unit_may_come = word.contains(|c: char| c.is_ascii_digit());
        words.push(numbers(word));
    }
    words.join(" ")
}

/// The word with each of its numbers alike, and a unit that follows without a space.
fn numbers(word: &str) -> String {
    let mut text = String::new();
    let mut rest = word;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        text += &rest[..at];
        text += NUMBER;
        let number = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let letters = number.len()
            - number
                .trim_start_matches(|c: char| c.is_alphabetic() || c == '/')
                .len();
        rest = if UNITS.contains(&&number[..letters]) {
            &number[letters..]
        } else {
            number
        };
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_found_wherever_it_begins() {
        let came = "log\nname  size\na     1 GiB\nend\n";
        assert_eq!(compare("name size\na 1 GiB\n", came, false), Ok(()));
        assert_eq!(compare("", came, false), Ok(()));
        assert_eq!(
            compare("name size\nb 1 GiB\n", came, false),
            Err("b 1 GiB".into())
        );
        // lines in between were not shown
        assert_eq!(
            compare("log\na 1 GiB\n", came, false),
            Err("a 1 GiB".into())
        );
        assert_eq!(compare("end\nmore\n", came, false), Err("more".into()));
        assert!(compare("a", "", false).is_err());
    }

    #[test]
    fn dots_stand_for_anything() {
        let came = "serial NVM12\na\nb\nc\n";
        assert_eq!(compare("serial …\n…\nc\n", came, false), Ok(()));
        assert_eq!(compare("serial …12\n...\n", came, false), Ok(()));
        assert!(compare("serial …13\n", came, false).is_err());
        assert!(compare("…\nd\n", came, false).is_err());
        assert!(like("a…b…c", "axbyc") && !like("a…b…c", "axyc") && !like("ab…b", "ab"));
    }

    #[test]
    fn numbers_vary_and_words_do_not() {
        let shown = "4 KiB randread, QD 1  74.3 K  290  13.5 us  at 12%\n";
        let came = "4 KiB randread, QD 1  1.00 M  3909  999 ns  at 3%\n";
        assert_eq!(compare(shown, came, true), Ok(()));
        assert!(compare(shown, came, false).is_err());
        let other = "4 KiB randwrite, QD 1  1.00 M  3909  999 ns  at 3%\n";
        assert!(compare(shown, other, true).is_err());
        assert_eq!(compare("took 10us", "took 7ms", true), Ok(()));
        assert_eq!(
            compare("line 430 ns  far", "line 68 ns  near", true),
            Ok(())
        );
        assert!(compare("it is far", "it is near", true).is_err());
        assert!(compare("nvme0: 1", "disk0: 1", true).is_err());
    }
}
