//! A progress line on standard error, only on a terminal.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

/// Delay before the line appears.
const PATIENCE: Duration = Duration::from_secs(1);
/// Update interval of a line without progress.
const TICK: Duration = Duration::from_millis(100);

/// A line with the elapsed time, for operations without measurable progress. It appears after a
/// second, and disappears when this is dropped.
#[derive(Debug)]
pub struct Waiting {
    ended: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts to show that an operation is in progress.
pub fn waiting(title: &str) -> Waiting {
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
pub fn note(text: &str) {
    // standard error may be closed
    let _ = writeln!(std::io::stderr(), "{text}");
}
