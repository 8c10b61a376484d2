//! What a person sees of running stages: a line for each, which moves while it runs where the
//! output is a terminal.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stdout};
use std::time::{Duration, Instant};

use crate::counts::Counts;

/// The longest that a moving line may be; longer ones would wrap and stay.
const WIDTH: usize = 100;
/// The longest name of a stage.
pub(crate) const NAME_WIDTH: usize = 11;
/// How often the line moves.
const PACE: Duration = Duration::from_millis(200);

/// A stage's line.
pub(crate) struct Line {
    name: String,
    start: Instant,
    moves: bool,
    moved: Instant,
}

impl Line {
    /// Begins the line of the stage `name`.
    pub(crate) fn begin(name: &str) -> Self {
        let start = Instant::now();
        let moves = stdout().is_terminal();
        let line = Self {
            name: name.to_owned(),
            start,
            moves,
            moved: start,
        };
        if !moves {
            line.print(&format!("{name:<NAME_WIDTH$} …\n"));
        }
        line
    }

    /// Shows what the stage is at, where the line moves.
    pub(crate) fn at(&mut self, what: &str) {
        if !self.moves || self.moved.elapsed() < PACE {
            return;
        }
        self.moved = Instant::now();
        let seconds = self.start.elapsed().as_secs();
        let text: String = format!("{:<NAME_WIDTH$} {seconds:>4} s  {what}", self.name)
            .chars()
            .take(WIDTH)
            .collect();
        self.print(&format!("\r\x1b[K{text}"));
    }

    /// Prints a line of its own, which stays.
    pub(crate) fn note(&self, text: &str) {
        let clear = if self.moves { "\r\x1b[K" } else { "" };
        self.print(&format!(
            "{clear}{:<NAME_WIDTH$} {:>6.1} s  {text}\n",
            self.name,
            self.start.elapsed().as_secs_f64()
        ));
    }

    /// Ends the line, and says how long the stage took.
    pub(crate) fn end(self, counts: Counts) -> Duration {
        let word = if counts.failed == 0 { "ok" } else { "FAILED" };
        self.note(word);
        self.start.elapsed()
    }

    fn print(&self, text: &str) {
        // The output that would show an error is the one that is gone.
        let _ = stdout().write_all(text.as_bytes());
        let _ = stdout().flush();
    }
}

/// The table of stages: name, seconds, counts.
pub(crate) fn table(rows: &[(String, Duration, Counts)]) -> String {
    let mut text = format!(
        "\n{:<NAME_WIDTH$} {:>8} {:>7} {:>7}\n",
        "stage", "seconds", "passed", "failed"
    );
    let mut row = |name: &str, time: Duration, counts: Counts| {
        let seconds = time.as_secs_f64();
        let _ = writeln!(
            text,
            "{name:<NAME_WIDTH$} {seconds:>8.1} {:>7} {:>7}",
            counts.passed, counts.failed
        );
    };
    let mut sum = Counts::default();
    for (name, time, counts) in rows {
        row(name, *time, *counts);
        sum += *counts;
    }
    row("all", rows.iter().map(|(_, time, _)| *time).sum(), sum);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_sums_its_rows() {
        let one = |name: &str, passed, failed| {
            (
                name.to_owned(),
                Duration::from_millis(1500),
                Counts {
                    passed,
                    failed,
                    ignored: 0,
                },
            )
        };
        let text = table(&[one("fmt", 1, 0), one("unit", 20, 3)]);
        let last: Vec<_> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last, ["all", "3.0", "21", "3"]);
    }
}
