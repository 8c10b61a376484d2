//! The watchdog: it notifies the service manager as long as every reactor answers.
//!
//! A separate thread asks the reactors, so that neither the control socket nor a long request
//! interferes. If one reactor does not answer in time, the manager is not notified, and restarts
//! the whole process: hosts of the other reactors would otherwise hang on media that they share
//! with it. With a holder, that is the one who is notified, and who replaces the process.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reactor::Pulse;
use sd_notify::NotifyState;

/// The notification interval is the manager's time limit divided by this (sd_watchdog_enabled(3)
/// recommends half of the limit).
const PART: u32 = 3;

/// The watchdog thread, which runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// Dropped to end the thread.
    stop: Option<mpsc::SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread if the manager has a watchdog; otherwise `None`.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(crate) fn start(reactors: Vec<Pulse>) -> std::io::Result<Option<Self>> {
        let Some(bound) = sd_notify::watchdog_enabled() else {
            return Ok(None);
        };
        let (stop, stopped) = mpsc::sync_channel(0);
        let thread = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || {
                let every = bound / PART;
                while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                    match silent(&reactors, every) {
                        None => super::tell(&[NotifyState::Watchdog]),
                        Some(reactor) => tracing::error!(
                            "reactor {reactor} has not responded within {every:?}: the watchdog of the service manager is not notified"
                        ),
                    }
                }
            })?;
        Ok(Some(Watchdog {
            stop: Some(stop),
            thread: Some(thread),
        }))
    }
}

/// The first reactor that does not answer within `bound`. All are asked at once.
fn silent(reactors: &[Pulse], bound: Duration) -> Option<usize> {
    let deadline = Instant::now() + bound;
    let asked: Vec<_> = reactors.iter().map(Pulse::ask).collect();
    asked.into_iter().position(|answer| {
        let left = deadline.saturating_duration_since(Instant::now());
        answer.is_none_or(|answer| answer.within(left).is_none())
    })
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.take();
        // the thread ends after one more check of the reactors, which is bounded
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the watchdog panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::Mode;
    use reactor::handle::ReactorHandle;

    use super::*;

    #[test]
    fn a_reactor_that_does_not_answer_is_named() {
        let reactor = ReactorHandle::start(0, None, Mode::Interrupt).unwrap();
        let bound = Duration::from_secs(30);
        assert_eq!(silent(&[reactor.pulse(), reactor.pulse()], bound), None);
        let (unread, _mailbox) = Pulse::unread();
        let soon = Duration::from_millis(50);
        assert_eq!(silent(&[reactor.pulse(), unread], soon), Some(1));
    }
}
