//! A progress line of a job on standard error, only on a terminal.

use std::time::Duration;

use driver::workload::{Phase, Progress};
use indicatif::{ProgressBar, ProgressStyle};

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
        drop(self);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
