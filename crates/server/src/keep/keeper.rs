//! The keeper thread, which writes sidecars: reactors send it records and learn when these are on
//! stable storage.
//!
//! It has at most one record of a subsystem at a time. A failed write is retried for as long as a
//! host can wait. Then the reactor learns that the record is not saved, and later sends a newer
//! one.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holder::Holder;
use reactor::message::{Ended, Keep};
use subsystem::{CurrentReservation, Record};

use super::sidecar::{Basis, Place, Sidecar};
use crate::survival;

/// Pause between attempts to write a record.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest time for which writing a record is retried; a host's command waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where and when a subsystem's records are written.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// Its sidecar.
    pub(crate) place: Place,
    /// The configuration with which it is served.
    pub(crate) basis: Basis,
    /// Its record without any changes, which need not be saved; `None`: every record is saved.
    pub(crate) plain: Option<Record>,
    /// Keeper of state that only another process with the same hosts needs.
    pub(crate) holder: Option<Arc<Holder>>,
}

enum Message {
    /// A subsystem is served, or its configuration has changed.
    Serve { subsystem: String, kept: Kept },
    /// It is no longer served.
    End { subsystem: String },
    /// Save this record.
    Keep {
        subsystem: String,
        record: Record,
        ended: Ended,
    },
    /// End the thread.
    Stop,
}

/// Sends records to the thread.
#[derive(Clone, Debug)]
pub(crate) struct Sender(mpsc::Sender<Message>);

impl Keep for Sender {
    fn keep(&self, subsystem: &str, record: Record, ended: Ended) {
        let message = Message::Keep {
            subsystem: subsystem.to_owned(),
            record,
            ended,
        };
        if let Err(mpsc::SendError(Message::Keep { ended, .. })) = self.0.send(message) {
            ended(false);
        }
    }
}

impl Sender {
    /// A subsystem is served, or its configuration has changed; later records are saved with this.
    pub(crate) fn serve(&self, subsystem: &str, kept: Kept) {
        self.send(Message::Serve {
            subsystem: subsystem.to_owned(),
            kept,
        });
    }

    /// A subsystem is no longer served.
    pub(crate) fn end(&self, subsystem: &str) {
        self.send(Message::End {
            subsystem: subsystem.to_owned(),
        });
    }

    fn send(&self, message: Message) {
        // without the thread, every record is reported as not saved
        let _ = self.0.send(message);
    }
}

/// The thread. When this is dropped, the thread tries each remaining record once more.
#[derive(Debug)]
pub(crate) struct Keeper {
    sender: Sender,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts it.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("keeper".into())
            .spawn(move || Work::default().run(&receiver))?;
        Ok(Keeper {
            sender: Sender(sender),
            thread: Some(thread),
        })
    }

    /// A sender of records.
    pub(crate) fn sender(&self) -> Sender {
        self.sender.clone()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.sender.send(Message::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(
                "the thread that saves changes by hosts panicked; their last changes may be lost"
            );
        }
    }
}

struct Subsystem {
    kept: Kept,
    /// The file exists, so it is written even without changes.
    exists: bool,
    /// The last write failed, and was logged.
    failing: bool,
    /// Reservations that the holder keeps, if this process has sent any.
    reservations: Option<Vec<CurrentReservation>>,
}

struct Job {
    record: Record,
    ended: Ended,
    since: Instant,
    next: Instant,
}

#[derive(Default)]
struct Work {
    subsystems: BTreeMap<String, Subsystem>,
    jobs: BTreeMap<String, Job>,
}

impl Work {
    fn run(mut self, receiver: &mpsc::Receiver<Message>) {
        loop {
            let next = self.jobs.values().map(|job| job.next).min();
            let wait = next.map(|next| next.saturating_duration_since(Instant::now()));
            let message = match wait {
                Some(wait) => receiver.recv_timeout(wait),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            let due: Vec<String> = self
                .jobs
                .iter()
                .filter(|(_, job)| job.next <= now)
                .map(|(name, _)| name.clone())
                .collect();
            for name in due {
                self.try_job(&name);
            }
        }
        for job in self.jobs.into_values() {
            (job.ended)(false);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Serve { subsystem, kept } => {
                let exists = kept.place.path().exists();
                let before = self.subsystems.remove(&subsystem);
                let (failing, reservations) = before
                    .map(|before| (before.failing, before.reservations))
                    .unwrap_or_default();
                let served = Subsystem {
                    kept,
                    exists,
                    failing,
                    reservations,
                };
                self.subsystems.insert(subsystem, served);
            }
            Message::End { subsystem } => {
                if let Some(gone) = self.subsystems.remove(&subsystem)
                    && let Some(holder) = gone.kept.holder
                    && let Err(error) = holder.forget(&survival::reservations_name(&subsystem))
                {
                    tracing::warn!(subsystem, "reservations are not forgotten: {error}");
                }
            }
            Message::Keep {
                subsystem,
                record,
                ended,
            } => {
                let now = Instant::now();
                let job = Job {
                    record,
                    ended,
                    since: now,
                    next: now,
                };
                if let Some(before) = self.jobs.insert(subsystem, job) {
                    (before.ended)(false);
                }
            }
            Message::Stop => {}
        }
    }

    fn try_job(&mut self, name: &str) {
        let Some(mut job) = self.jobs.remove(name) else {
            return;
        };
        let Some(subsystem) = self.subsystems.get_mut(name) else {
            return (job.ended)(false);
        };
        match subsystem.keep(name, &job.record) {
            Ok(()) => (job.ended)(true),
            Err(_) if job.since.elapsed() >= PATIENCE => (job.ended)(false),
            Err(_) => {
                job.next = Instant::now() + PAUSE;
                self.jobs.insert(name.to_owned(), job);
            }
        }
    }
}

impl Subsystem {
    fn keep(&mut self, name: &str, record: &Record) -> io::Result<()> {
        self.write(name, record)?;
        let Some(holder) = &self.kept.holder else {
            return Ok(());
        };
        if self.reservations.as_ref() != Some(&record.reservations) {
            let bytes = serde_json::to_vec(&record.reservations)?;
            holder
                .keep_bytes(&survival::reservations_name(name), &bytes)
                .map_err(io::Error::other)?;
            self.reservations = Some(record.reservations.clone());
        }
        Ok(())
    }

    fn write(&mut self, name: &str, record: &Record) -> io::Result<()> {
        // without a holder, no other process completes commands of this one
        let answers = match self.kept.holder {
            Some(_) => record.answers.clone(),
            None => Vec::new(),
        };
        let record = &Record {
            reservations: Vec::new(),
            answers,
            ..record.clone()
        };
        if !self.exists && self.kept.plain.as_ref() == Some(record) {
            return Ok(());
        }
        let Kept {
            place,
            basis,
            plain,
            holder: _,
        } = &self.kept;
        let sidecar = Sidecar::new(
            name.to_owned(),
            basis.clone(),
            record.clone(),
            plain.as_ref(),
        );
        match place.write(&sidecar) {
            Ok(()) => {
                self.exists = true;
                if std::mem::take(&mut self.failing) {
                    tracing::info!(
                        subsystem = name,
                        "{} is written again",
                        place.path().display()
                    );
                }
                Ok(())
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(
                        subsystem = name,
                        "cannot write {}: {error}; free space or make it writable: changes by hosts wait for it and fail after {} s",
                        place.path().display(),
                        PATIENCE.as_secs()
                    );
                }
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use subsystem::{ControllerId, KeptAnswer};

    use super::*;

    const BOUND: Duration = Duration::from_secs(60);

    struct Rig {
        dir: tempfile::TempDir,
        keeper: Keeper,
        place: Place,
    }

    impl Rig {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let place = Place::new(&dir.path().join("state"), "one", "one").unwrap();
            let keeper = Keeper::start().unwrap();
            let kept = Kept {
                place: place.clone(),
                basis: Basis::default(),
                plain: Some(Record::default()),
                holder: None,
            };
            keeper.sender().serve("one", kept);
            Rig { dir, keeper, place }
        }

        fn keep(&self, created: u64) -> mpsc::Receiver<bool> {
            self.keep_record(Record {
                created,
                ..Record::default()
            })
        }

        fn keep_record(&self, record: Record) -> mpsc::Receiver<bool> {
            let (sender, receiver) = mpsc::channel();
            let ended = Box::new(move |kept| sender.send(kept).unwrap());
            self.keeper.sender().keep("one", record, ended);
            receiver
        }

        fn created(&self) -> Option<u64> {
            Some(self.place.read().unwrap()?.record.created)
        }
    }

    #[test]
    fn what_differs_is_written_and_what_does_not_only_over_a_file() {
        let rig = Rig::new();
        rig.place.prepare().unwrap();
        assert!(rig.keep(0).recv_timeout(BOUND).unwrap());
        assert!(!rig.place.path().exists());
        assert!(rig.keep(1).recv_timeout(BOUND).unwrap());
        assert_eq!(rig.created(), Some(1));
        assert!(rig.keep(0).recv_timeout(BOUND).unwrap());
        assert_eq!(rig.created(), Some(0));
    }

    #[test]
    fn answers_are_kept_only_where_another_process_may_need_them() {
        let rig = Rig::new();
        rig.place.prepare().unwrap();
        let answer = KeptAnswer {
            controller: ControllerId(1),
            name: 1,
            dw0: 0,
        };
        let record = Record {
            answers: vec![answer],
            ..Record::default()
        };
        assert!(rig.keep_record(record).recv_timeout(BOUND).unwrap());
        assert!(!rig.place.path().exists());
    }

    #[test]
    fn a_write_that_fails_is_tried_again_and_given_up() {
        let rig = Rig::new();
        // the folder does not exist, and cannot be created
        fs::write(rig.dir.path().join("state"), "in the way").unwrap();
        let began = Instant::now();
        assert!(!rig.keep(1).recv_timeout(BOUND).unwrap());
        assert!(began.elapsed() >= PATIENCE);
        let later = rig.keep(2);
        fs::remove_file(rig.dir.path().join("state")).unwrap();
        rig.place.prepare().unwrap();
        assert!(later.recv_timeout(BOUND).unwrap());
        assert_eq!(rig.created(), Some(2));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let rig = Rig::new();
        rig.keeper.sender().end("one");
        assert!(!rig.keep(1).recv_timeout(BOUND).unwrap());
        let sender = rig.keeper.sender();
        drop(rig);
        let (ended, receiver) = mpsc::channel();
        let ended = Box::new(move |kept| ended.send(kept).unwrap());
        sender.keep("one", Record::default(), ended);
        assert!(!receiver.recv_timeout(BOUND).unwrap());
    }
}
