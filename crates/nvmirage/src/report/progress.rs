//! A line that moves while somebody waits: on a terminal only, and on standard error.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use driver::workload::{Phase, Progress};
use indicatif::{ProgressBar, ProgressStyle};

/// How long nothing is shown.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a line moves that only tells the time.
const TICK: Duration = Duration::from_millis(100);
/// Steps of the bar.
const LENGTH: u64 = 1000;

/// Shows how far a job is.
#[derive(Debug)]
pub(crate) struct Line {
    bar: ProgressBar,
    runtime_ns: u64,
}

impl Line {
    /// A line for a job that takes `runtime` and a little.
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

    /// A line for so many commands.
    pub(crate) fn of_commands(title: &str, commands: usize) -> Self {
        let line = Self::new(title, Duration::ZERO);
        line.bar.set_length(commands as u64);
        line
    }

    /// So many commands were submitted.
    pub(crate) fn reached(&self, commands: usize) {
        self.bar.set_position(commands as u64);
    }

    /// Shows where the job is.
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

    /// Takes the line away.
    pub(crate) fn clear(self) {
        self.bar.finish_and_clear();
    }
}

/// A line with the time that has passed, for what takes long without telling how far it is: it
/// comes after a second, and goes with this.
#[derive(Debug)]
pub(crate) struct Waiting {
    ended: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Begins to wait for something.
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
    // who cannot be shown anything waits all the same
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
            // the line is gone before anything else is written
            let _ = thread.join();
        }
    }
}

/// Says on standard error what is being done, where no moving line can: a log of the run has it,
/// too.
pub(crate) fn note(text: &str) {
    // nobody may be there to read it
    let _ = writeln!(std::io::stderr(), "{text}");
}
