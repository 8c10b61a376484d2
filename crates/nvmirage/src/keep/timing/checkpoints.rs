//! The thread that writes the state of drives' timing while they work.
//!
//! Now and then it asks the reactor that serves a medium for the state of its drive. The reactor
//! takes that a part in each turn, and goes on serving; this thread makes it bytes and writes them.
//! Nothing is asked of a drive that has not changed. One medium at a time: a state has some bytes
//! for each page of the drive.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use media::Medium;

use super::file::StateFile;

/// Hands a reactor memory for the state of a medium's drive, to be answered with it.
pub(crate) type Ask = Box<dyn Fn(Asked) -> anyhow::Result<()> + Send>;

/// How long a reactor may take for a state: some turns for each megabyte of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a reactor is asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Memory for the state; without it only the count of changes is asked for.
    pub(crate) room: Option<Box<model::Room>>,
    /// Where the answer goes; that is none where there is no such drive.
    pub(crate) answer: mpsc::SyncSender<Option<Taken>>,
}

/// What a reactor answers.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The count of changes of the drive: its state is the same as long as this is.
    pub(crate) changes: u64,
    /// Its state then, where there was memory for it.
    pub(crate) snapshot: Option<Box<model::Snapshot>>,
}

/// A medium whose drive's state is written while it works.
pub(crate) struct Watched {
    /// Its name.
    pub(crate) name: String,
    /// The medium.
    pub(crate) medium: Arc<Medium>,
    /// Where its state goes.
    pub(crate) file: Arc<Mutex<StateFile>>,
    /// How often.
    pub(crate) interval: Duration,
    /// Asks the reactor that has it.
    pub(crate) ask: Ask,
}

enum Message {
    Watch(Box<Watched>),
    /// Watch it no longer, and answer when nothing is being written.
    Forget(String, mpsc::SyncSender<()>),
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

    /// Writes the state of a medium's drive from now on.
    pub(crate) fn watch(&self, watched: Watched) {
        // without the thread a state is written at a clean stop alone
        let _ = self.sender.send(Message::Watch(Box::new(watched)));
    }

    /// Watches a medium no longer; when this returns nothing of it is being written.
    pub(crate) fn forget(&self, name: &str) {
        let (answer, answered) = mpsc::sync_channel(1);
        if self
            .sender
            .send(Message::Forget(name.to_owned(), answer))
            .is_ok()
        {
            // an end of the thread answers, too
            let _ = answered.recv();
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
    next: Instant,
    /// The drive's count of changes when its state was taken last.
    since: Option<u64>,
    /// The last checkpoint failed, which the log has said.
    failing: bool,
}

fn run(receiver: &mpsc::Receiver<Message>) {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let next = entries.iter().map(|entry| entry.next).min();
        let message = match next {
            Some(next) => receiver.recv_timeout(next.saturating_duration_since(Instant::now())),
            None => receiver.recv().map_err(RecvTimeoutError::from),
        };
        match message {
            Ok(Message::Watch(watched)) => entries.push(Entry {
                next: Instant::now() + watched.interval,
                watched: *watched,
                since: None,
                failing: false,
            }),
            Ok(Message::Forget(name, answer)) => {
                entries.retain(|entry| entry.watched.name != name);
                // who asked may have given up
                let _ = answer.send(());
            }
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let due = entries.iter_mut().min_by_key(|entry| entry.next);
                if let Some(entry) = due {
                    entry.checkpoint();
                    entry.next = Instant::now() + entry.watched.interval;
                }
            }
        }
    }
}

impl Entry {
    fn checkpoint(&mut self) {
        let name = &self.watched.name;
        match self.watched.checkpoint(self.since) {
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
    /// Writes the state of the drive, where it has changed since the count `since`; gives its count
    /// of changes.
    fn checkpoint(&self, since: Option<u64>) -> anyhow::Result<Option<u64>> {
        let now = self.ask_for(None)?;
        if now.is_none_or(|now| Some(now.changes) == since) {
            return Ok(None);
        }
        let room = self.medium.snapshot_room()?;
        let taken = self.ask_for(room.map(Box::new))?;
        let Some((changes, snapshot)) = taken.and_then(|t| Some((t.changes, t.snapshot?))) else {
            return Ok(None);
        };
        let bytes = snapshot.into_bytes();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write(&bytes)?;
        Ok(Some(changes))
    }

    fn ask_for(&self, room: Option<Box<model::Room>>) -> anyhow::Result<Option<Taken>> {
        let (answer, answered) = mpsc::sync_channel(1);
        (self.ask)(Asked { room, answer })?;
        let taken = answered.recv_timeout(PATIENCE);
        taken.context("the reactor that serves it does not respond")
    }
}
