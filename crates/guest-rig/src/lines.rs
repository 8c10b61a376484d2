//! The lines that a child process prints, collected by a thread of its own and waited for with a
//! bound.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Why no line came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLine {
    /// The process closed its output: it has ended, or is about to.
    Ended,
    /// The bound passed.
    Late,
}

impl std::fmt::Display for NoLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ended => "its output ended",
            Self::Late => "the bound passed",
        })
    }
}

/// Lines from one output.
#[derive(Debug)]
pub struct Lines {
    shared: Arc<Shared>,
    /// The line that the next [`Lines::wait_for`] looks at first.
    next: usize,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    /// Collects lines from `output` until it ends.
    pub fn collect(output: impl Read + Send + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let writer = Arc::clone(&shared);
        thread::spawn(move || writer.read(BufReader::new(output)));
        Self { shared, next: 0 }
    }

    /// Waits for a line that contains `text`, and returns it. Lines up to it are not looked at
    /// again.
    ///
    /// # Errors
    /// The output ended without one, or `bound` passed.
    pub fn wait_for(&mut self, text: &str, bound: Duration) -> Result<String, NoLine> {
        let deadline = Instant::now() + bound;
        let mut state = self.shared.lock();
        loop {
            if let Some(found) = state.lines[self.next..]
                .iter()
                .position(|line| line.contains(text))
            {
                self.next += found + 1;
                return Ok(state.lines[self.next - 1].clone());
            }
            self.next = state.lines.len();
            if state.ended {
                return Err(NoLine::Ended);
            }
            state = self.shared.wait(state, deadline).ok_or(NoLine::Late)?;
        }
    }

    /// Waits until the output ends. Whether it did before `bound` passed.
    #[must_use]
    pub fn wait_for_end(&self, bound: Duration) -> bool {
        let deadline = Instant::now() + bound;
        let mut state = self.shared.lock();
        while !state.ended {
            match self.shared.wait(state, deadline) {
                Some(again) => state = again,
                None => return false,
            }
        }
        true
    }

    /// The lines so far.
    #[must_use]
    pub fn so_far(&self) -> Vec<String> {
        self.shared.lock().lines.clone()
    }
}

impl Shared {
    fn read(&self, mut from: impl BufRead) {
        let mut line = Vec::new();
        // An error on the pipe is its end: the process is gone either way.
        while from
            .read_until(b'\n', &mut line)
            .is_ok_and(|bytes| bytes > 0)
        {
            let text = String::from_utf8_lossy(&line)
                .trim_end_matches(['\r', '\n'])
                .to_owned();
            line.clear();
            self.lock().lines.push(text);
            self.changed.notify_all();
        }
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change; none where the deadline has passed.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Instant,
    ) -> Option<MutexGuard<'a, State>> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        Some(
            self.changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0,
        )
    }
}

/// A kernel's last words begin with these.
pub(crate) const PANIC: &str = "Kernel panic";

/// The last `lines` lines of the log `name`, under a heading; nothing where it is empty. A kernel's
/// panic is shown from where it begins, however long its trace is.
pub(crate) fn tail(name: &str, log: &str, lines: usize) -> String {
    let all: Vec<_> = log.lines().collect();
    let panic = all.iter().position(|line| line.contains(PANIC));
    let from = all.len().saturating_sub(lines);
    let last = &all[panic.map_or(from, |panic| panic.min(from))..];
    if last.is_empty() {
        return String::new();
    }
    format!("\n--- the last lines of the {name}:\n{}", last.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn lines_are_waited_for_in_order() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut lines = Lines::collect(reader);
        writer
            .write_all(b"a 1\r\nb\na 2\nno end of line yet")
            .unwrap();
        assert_eq!(lines.wait_for("a", LONG).unwrap(), "a 1");
        assert_eq!(lines.wait_for("a", LONG).unwrap(), "a 2");
        assert_eq!(lines.wait_for("b", SHORT), Err(NoLine::Late));
        assert!(!lines.wait_for_end(SHORT));
        drop(writer);
        assert_eq!(lines.wait_for("b", LONG), Err(NoLine::Ended));
        assert!(lines.wait_for_end(LONG));
        assert_eq!(lines.so_far(), ["a 1", "b", "a 2", "no end of line yet"]);
    }

    #[test]
    fn a_tail_begins_no_later_than_a_panic() {
        assert_eq!(tail("log", "", 2), "");
        assert!(tail("log", "a\nb\nc", 2).ends_with(":\nb\nc"));
        let long = format!("a\nKernel panic - not syncing{}", "\ntrace".repeat(50));
        assert!(tail("log", &long, 2).contains("log:\nKernel panic"));
    }
}
