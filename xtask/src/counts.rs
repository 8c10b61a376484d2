//! How many tests passed and failed, read from what the runners print.

use std::ops::AddAssign;

/// Tests that were run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Those that passed.
    pub(crate) passed: u32,
    /// Those that failed, or were ended.
    pub(crate) failed: u32,
    /// Those that were not run although no filter excluded them.
    pub(crate) ignored: u32,
}

impl Counts {
    /// One thing that passed.
    pub(crate) const ONE: Self = Self {
        passed: 1,
        failed: 0,
        ignored: 0,
    };
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// Sums the closing lines of libtest (`test result: ok. 3 passed; 0 failed; 0 ignored; …`) in
/// `output`.
pub(crate) fn libtest(output: &str) -> Counts {
    let mut sum = Counts::default();
    for line in output.lines() {
        let Some((_, rest)) = line.split_once("test result: ") else {
            continue;
        };
        let number = |word| before(rest, word);
        sum += Counts {
            passed: number("passed"),
            failed: number("failed"),
            ignored: number("ignored"),
        };
    }
    sum
}

/// Reads the closing line of nextest (`Summary [ 1.2s] 5 tests run: 3 passed (1 slow), 1 failed, 1
/// timed out, 2 skipped`) in `output`. What it skips was filtered out on purpose.
pub(crate) fn nextest(output: &str) -> Counts {
    let mut sum = Counts::default();
    for line in output.lines() {
        let Some((_, rest)) = line.split_once("Summary [") else {
            continue;
        };
        let rest = rest.split_once(" run:").map_or("", |(_, rest)| rest);
        let failed = ["failed", "timed out", "exec failed"]
            .iter()
            .map(|word| before(rest, word))
            .sum();
        sum += Counts {
            passed: before(rest, "passed"),
            failed,
            ignored: 0,
        };
    }
    sum
}

/// Sums the closing lines of node's test runner (`# pass 3`, `# fail 1`, `# cancelled 0`, …) in
/// `output`. A test that is skipped or to be done does not run.
pub(crate) fn tap(output: &str) -> Counts {
    let mut sum = Counts::default();
    for line in output.lines() {
        let words = line
            .strip_prefix("# ")
            .and_then(|line| line.split_once(' '));
        let Some((word, Ok(number))) = words.map(|(word, rest)| (word, rest.parse::<u32>())) else {
            continue;
        };
        match word {
            "pass" => sum.passed += number,
            "fail" | "cancelled" => sum.failed += number,
            "skipped" | "todo" => sum.ignored += number,
            _ => {}
        }
    }
    sum
}

/// The number right before `words` in a list such as `3 passed, 1 timed out`; 0 where there is
/// none.
fn before(list: &str, words: &str) -> u32 {
    list.split([',', ';', '.', '(', ')'])
        .find_map(|part| part.trim().strip_suffix(words)?.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_libtest_are_summed() {
        let output = "running 2 tests\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 5 filtered out; finished in 0.00s\n\
                      test result: FAILED. 3 passed; 4 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s\n";
        assert_eq!(
            libtest(output),
            Counts {
                passed: 5,
                failed: 4,
                ignored: 1
            }
        );
        assert_eq!(libtest("error: could not compile"), Counts::default());
    }

    #[test]
    fn the_closing_line_of_nextest_is_read() {
        let good = "     Summary [   0.005s] 14 tests run: 14 passed (2 slow), 7 skipped\n";
        assert_eq!(
            nextest(good),
            Counts {
                passed: 14,
                failed: 0,
                ignored: 0
            }
        );
        let bad =
            "     Summary [  10.005s] 4/9 tests run: 1 passed, 1 failed, 2 timed out, 7 skipped\n";
        assert_eq!(
            nextest(bad),
            Counts {
                passed: 1,
                failed: 3,
                ignored: 0
            }
        );
        assert_eq!(nextest("error: no tests to run"), Counts::default());
    }

    #[test]
    fn the_closing_lines_of_nodes_runner_are_read() {
        let output = "TAP version 13\n# Subtest: one\nok 1 - one\n# pass the salt\n1..4\n# tests 6\n# suites 0\n# pass 2\n# fail 1\n# cancelled 1\n# skipped 1\n# todo 1\n# duration_ms 5.5\n";
        assert_eq!(
            tap(output),
            Counts {
                passed: 2,
                failed: 2,
                ignored: 2
            }
        );
        assert_eq!(tap("Error: Cannot find module"), Counts::default());
    }
}
