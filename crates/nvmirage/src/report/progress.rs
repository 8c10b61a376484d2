//! A progress line on standard error, only on a terminal.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use driver::workload::{Phase, Progress};
use indicatif::{ProgressBar, ProgressStyle};

/// Delay before the line appears.
const PATIENCE: Duration = Duration::from_secs(1);
/// Update interval of a line without progress.
const TICK: Duration = Duration::from_millis(100);
/// Steps of the progress bar.
const LENGTH: u64 = 1000;

/// Progress of a job.
#[derive(Debug)]
pub(crate) struct Line {
    bar: ProgressBar,
    runtime_ns: u64,
}

impl Line {
    /// Progress of a job that takes slightly longer than `runtime`.
    pub(crate) fn new(title: &str, runtime: Duration) -> Self {
        // hidden where standard error is no terminal
        let bar = ProgressBar::new(LENGTH);
        if let Ok(style) = ProgressStyle::with_template("{prefix:32} {bar:30} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(title.to_owned());
        let runtime_ns = u64::try_from(runtime.as_nanos()).unwrap_or(u64::MAX);
        Line { bar, runtime_ns }
    }

    /// Progress of a number of commands.
    pub(crate) fn of_commands(title: &str, commands: usize) -> Self {
        let line = Self::new(title, Duration::ZERO);
        line.bar.set_length(commands as u64);
        line
    }

    /// Updates the number of submitted commands.
    pub(crate) fn reached(&self, commands: usize) {
        self.bar.set_position(commands as u64);
    }

    /// Updates the progress of the job.
    pub(crate) fn update(&self, progress: Progress) {
        let what = match progress.phase {
            Phase::Fill => "filling",
            Phase::Measure => "measuring",
            Phase::Verify => "reading back",
        };
        if progress.phase == Phase::Measure {
            let part = u128::from(progress.elapsed_ns) * u128::from(LENGTH)
                / u128::from(self.runtime_ns.max(1));
            self.bar
                .set_position(u64::try_from(part).map_or(LENGTH, |p| p.min(LENGTH)));
        }
        self.bar
            .set_message(format!("{what}, {} commands", progress.commands));
    }

    /// Removes the line.
    pub(crate) fn clear(self) {
        self.bar.finish_and_clear();
    }
}

/// A line with the elapsed time, for operations without measurable progress. It appears after a
/// second, and disappears when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    ended: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts to show that an operation is in progress.
pub(crate) fn waiting(title: &str) -> Waiting {
    let none = Waiting {
        ended: None,
        thread: None,
    };
    if !std::io::stderr().is_terminal() {
        return none;
    }
    let (ended, end) = mpsc::channel();
    let title = title.to_owned();
    let show = move || {
        let begun = Instant::now();
        if end.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let bar = ProgressBar::new_spinner();
        while end.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            bar.set_message(format!("{title}, {} s", begun.elapsed().as_secs()));
            bar.tick();
        }
        bar.finish_and_clear();
    };
    // without the thread, only the line is missing
    match std::thread::Builder::new().spawn(show) {
        Ok(thread) => Waiting {
            ended: Some(ended),
            thread: Some(thread),
        },
        Err(_) => none,
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.thread.take() {
            // remove the line before anything else is written
            let _ = thread.join();
        }
    }
}

/// Writes a note to standard error where no progress line can be shown, so that a log of the run
/// has it.
pub(crate) fn note(text: &str) {
    // standard error may be closed
    let _ = writeln!(std::io::stderr(), "{text}");
}
