//! The thread that saves the state of timing models while their drives work.
//!
//! At each medium's interval, and before another process takes over, it requests the state from the
//! medium's reactor. The reactor captures a part in each turn and continues to serve; this thread
//! serializes and writes the state. A drive that has not changed is skipped. One medium at a time
//! is saved, because a state has some bytes for each page of the drive.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use media::Medium;
use reactor::answer::answer;
use reactor::snapshots::{Ask, Asked, Taken};

use super::Place;

/// Longest time for a snapshot, which takes a reactor some turns per megabyte.
const PATIENCE: Duration = Duration::from_secs(60);

/// A medium whose state is saved periodically.
pub(crate) struct Watched {
    /// Its name.
    pub(crate) name: String,
    /// The medium.
    pub(crate) medium: Arc<Medium>,
    /// Where the state is saved.
    pub(crate) place: Arc<Mutex<Place>>,
    /// Interval; without one, only on request.
    pub(crate) interval: Option<Duration>,
    /// Requests the state from the medium's reactor.
    pub(crate) ask: Ask,
}

enum Message {
    Watch(Box<Watched>),
    /// Stop watching the medium, and answer once no write is in progress.
    Forget(String, mpsc::SyncSender<()>),
    /// Save the state of all media by this time, and answer.
    SaveAll(Instant, mpsc::SyncSender<()>),
    Stop,
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    sender: mpsc::Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Starts it.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("checkpoints".into())
            .spawn(move || run(&receiver))?;
        Ok(Checkpoints {
            sender,
            thread: Some(thread),
        })
    }

    /// Saves the state of a medium's drive periodically from now on.
    pub(crate) fn watch(&self, watched: Watched) {
        // without the thread, the state is saved at a clean stop only
        let _ = self.sender.send(Message::Watch(Box::new(watched)));
    }

    /// Stops watching a medium. When this returns, no write is in progress.
    pub(crate) fn forget(&self, name: &str) {
        let (answer, answered) = mpsc::sync_channel(1);
        if self
            .sender
            .send(Message::Forget(name.to_owned(), answer))
            .is_ok()
        {
            // the end of the thread is an answer, too
            let _ = answered.recv();
        }
    }

    /// Saves the state of all media now. Where one is not saved within `patience`, its last
    /// checkpoint counts.
    pub(crate) fn save_all(&self, patience: Duration) {
        let (answer, answered) = mpsc::sync_channel(1);
        let message = Message::SaveAll(Instant::now() + patience, answer);
        let sent = self.sender.send(message);
        if sent.is_err() || answered.recv_timeout(patience).is_err() {
            tracing::error!(
                "the states of timing models are not saved within {patience:?}: their last checkpoints count"
            );
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        let _ = self.sender.send(Message::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of checkpoints panicked");
        }
    }
}

struct Entry {
    watched: Watched,
    /// When it is due next.
    next: Option<Instant>,
    /// The drive's change count at the last checkpoint.
    since: Option<u64>,
    /// The last checkpoint failed, and was logged.
    failing: bool,
}

fn run(receiver: &mpsc::Receiver<Message>) {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let next = entries.iter().filter_map(|entry| entry.next).min();
        let message = match next {
            Some(next) => receiver.recv_timeout(next.saturating_duration_since(Instant::now())),
            None => receiver.recv().map_err(RecvTimeoutError::from),
        };
        match message {
            Ok(Message::Watch(watched)) => entries.push(Entry {
                next: watched.interval.map(|interval| Instant::now() + interval),
                watched: *watched,
                since: None,
                failing: false,
            }),
            Ok(Message::Forget(name, answer)) => {
                entries.retain(|entry| entry.watched.name != name);
                // the caller may have stopped waiting
                let _ = answer.send(());
            }
            Ok(Message::SaveAll(until, answer)) => {
                for entry in &mut entries {
                    let left = until.saturating_duration_since(Instant::now());
                    entry.checkpoint(left);
                }
                // the caller may have stopped waiting
                let _ = answer.send(());
            }
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let due = entries.iter_mut().filter(|entry| entry.next.is_some());
                if let Some(entry) = due.min_by_key(|entry| entry.next) {
                    entry.checkpoint(PATIENCE);
                    let interval = entry.watched.interval;
                    entry.next = interval.map(|interval| Instant::now() + interval);
                }
            }
        }
    }
}

impl Entry {
    fn checkpoint(&mut self, patience: Duration) {
        let name = &self.watched.name;
        match self.watched.checkpoint(self.since, patience) {
            Ok(None) => {}
            Ok(Some(changes)) => {
                self.since = Some(changes);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(media = name, "the state of its timing model is saved again");
                }
            }
            Err(error) if !std::mem::replace(&mut self.failing, true) => tracing::error!(
                media = name,
                "the state of its timing model cannot be saved: {error:#}; after a crash an older state is used"
            ),
            Err(_) => {}
        }
    }
}

impl Watched {
    /// Saves the state of the drive if it has changed since the count `since`; returns the new
    /// count.
    fn checkpoint(&self, since: Option<u64>, patience: Duration) -> anyhow::Result<Option<u64>> {
        let until = Instant::now() + patience;
        let at = holder::monotonic();
        let lock = || self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(now) = self.ask_for(None, until)? else {
            return Ok(None);
        };
        if Some(now.changes) == since {
            lock().renew(at)?;
            return Ok(None);
        }
        let room = self.medium.snapshot_room()?;
        let at = holder::monotonic();
        let taken = self.ask_for(room.map(Box::new), until)?;
        let Some((changes, snapshot)) = taken.and_then(|t| Some((t.changes, t.snapshot?))) else {
            return Ok(None);
        };
        let bytes = snapshot.into_bytes();
        lock().write(&bytes, at)?;
        Ok(Some(changes))
    }

    fn ask_for(
        &self,
        room: Option<Box<model::Room>>,
        until: Instant,
    ) -> anyhow::Result<Option<Taken>> {
        let (answer, answered) = answer();
        (self.ask)(Asked { room, answer })?;
        let left = until.saturating_duration_since(Instant::now());
        let taken = answered.within(left);
        taken.context("the reactor that serves it does not respond")
    }
}
