//! The media of a controller that may move, and their locks, which two servers have in turn.

use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use media::Medium;
use transport::vfio_user::Custody;

/// Called with the name of a controller, and whether this server has its media now. It must not
/// wait.
pub type Announce = fn(controller: &str, is_here: bool);

/// The files of media, as far as another server can compare them with its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Identifier of this start of the machine; files of two machines cannot be compared.
    pub boot: String,
    /// Device and inode of each file.
    pub files: String,
}

/// The media of one controller.
#[derive(Debug)]
pub struct Locks {
    controller: String,
    place: Place,
    announce: Announce,
    media: Vec<Arc<Medium>>,
    /// Only the controller's reactor takes it.
    sync: Mutex<Sync>,
}

/// A flush of all media, on a thread of its own: it may block for as long as a disk does.
#[derive(Debug, Default)]
struct Sync {
    /// Its result comes here. Where the request that waited for it has ended, the result is void.
    running: Option<Receiver<Result<(), String>>>,
    /// The one that is asked for was not begun.
    refused: Option<String>,
}

impl Locks {
    /// The locks of these media, which no other controller uses.
    #[must_use]
    pub fn new(
        controller: String,
        media: Vec<Arc<Medium>>,
        place: Place,
        announce: Announce,
    ) -> Self {
        Self {
            controller,
            place,
            announce,
            media,
            sync: Mutex::default(),
        }
    }

    fn sync(&self) -> MutexGuard<'_, Sync> {
        self.sync.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes everything durable that was written.
fn sync_all(media: &[Arc<Medium>]) -> Result<(), String> {
    let mut media = media.iter();
    media.try_for_each(|medium| medium.sync().map_err(|error| error.to_string()))
}

impl Custody for Locks {
    fn is_here(&self) -> bool {
        self.media.iter().all(|medium| medium.is_held())
    }

    fn place(&self) -> String {
        format!("{}\n{}", self.place.boot, self.place.files)
    }

    fn compare(&self, place: &str) -> Result<(), String> {
        let ours = &self.place;
        match place.split_once('\n') {
            Some((boot, files)) if boot == ours.boot && files != ours.files => Err(format!(
                "it is {files:?}, and this server has {:?}: name the same file in both configurations",
                ours.files
            )),
            _ => Ok(()),
        }
    }

    fn begin_sync(&self) {
        let mut sync = self.sync();
        let running = sync.running.as_ref().map(Receiver::try_recv);
        if let Some(Err(TryRecvError::Empty)) = running {
            // One thread at most, however often a host asks; and that one began before what was
            // written since.
            sync.refused = Some("an earlier flush has not ended".to_owned());
            return;
        }
        let (send, result) = sync_channel(1);
        let media = self.media.clone();
        let thread = thread::Builder::new().name("durable".into());
        // The request may have ended by then.
        match thread.spawn(move || drop(send.send(sync_all(&media)))) {
            Ok(_) => sync.running = Some(result),
            Err(error) => sync.refused = Some(format!("cannot start a thread: {error}")),
        }
    }

    fn synced(&self) -> Option<Result<(), String>> {
        let mut sync = self.sync();
        if let Some(reason) = sync.refused.take() {
            return Some(Err(reason));
        }
        let result = match sync.running.as_ref()?.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err("the flush has panicked".to_owned()),
        };
        sync.running = None;
        Some(result)
    }

    fn release(&self) {
        let were_here = self.is_here();
        self.media.iter().for_each(|medium| medium.release());
        if were_here {
            tracing::info!(controller = self.controller, "its media are released");
            (self.announce)(&self.controller, false);
        }
    }

    fn claim(&self) -> Result<(), String> {
        if self.is_here() {
            return Ok(());
        }
        for medium in &self.media {
            if let Err(error) = medium.claim() {
                self.media.iter().for_each(|medium| medium.release());
                return Err(error.to_string());
            }
        }
        tracing::info!(controller = self.controller, "its media are here");
        (self.announce)(&self.controller, true);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use media::{Direct, FileIo, MediumKind, MediumSpec};

    use super::*;

    fn medium(path: &Path) -> Arc<Medium> {
        let kind = MediumKind::File {
            path: path.into(),
            size: Some(1 << 20),
            direct: Direct::Auto,
            io: FileIo {
                migrates: true,
                ..FileIo::default()
            },
        };
        Medium::open(&MediumSpec { kind }).unwrap()
    }

    fn locks(folder: &Path, names: &[&str]) -> Locks {
        let media = names.iter().map(|name| medium(&folder.join(name)));
        let place = Place {
            boot: "1".to_owned(),
            files: names.join("; "),
        };
        Locks::new("c".to_owned(), media.collect(), place, |_, _| {})
    }

    fn sync(locks: &Locks) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        locks.begin_sync();
        loop {
            if let Some(result) = locks.synced() {
                return result;
            }
            assert!(Instant::now() < deadline, "it does not end");
            thread::yield_now();
        }
    }

    #[test]
    fn all_media_are_taken_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let here = locks(folder.path(), &["a", "b"]);
        assert!(here.is_here());
        here.release();
        assert!(!here.is_here());
        let other = locks(folder.path(), &["b"]);
        assert!(other.is_here());
        let refused = here.claim().unwrap_err();
        assert!(refused.contains("is in use"), "{refused}");
        let first = locks(folder.path(), &["a"]);
        assert!(first.is_here(), "the first one is free");
        drop((first, other));
        here.claim().unwrap();
        assert!(here.is_here());
    }

    #[test]
    fn a_flush_has_its_result_once() {
        let folder = tempfile::tempdir().unwrap();
        let here = locks(folder.path(), &["a", "b"]);
        assert_eq!(here.synced(), None);
        for _ in 0..3 {
            assert_eq!(sync(&here), Ok(()));
            assert_eq!(here.synced(), None);
        }
    }

    #[test]
    fn a_flush_that_runs_is_no_flush_of_what_was_written_since() {
        let folder = tempfile::tempdir().unwrap();
        let here = locks(folder.path(), &["a"]);
        let (end, running) = sync_channel(1);
        here.sync().running = Some(running);
        let refused = sync(&here).unwrap_err();
        assert!(refused.contains("an earlier flush"), "{refused}");
        end.send(Ok(())).unwrap();
        assert_eq!(sync(&here), Ok(()), "another one");
    }

    #[test]
    fn files_of_one_machine_are_compared() {
        let folder = tempfile::tempdir().unwrap();
        let here = locks(folder.path(), &["a"]);
        assert_eq!(here.compare(&here.place()), Ok(()));
        let refused = here.compare("1\nb").unwrap_err();
        assert!(refused.contains("name the same file"), "{refused}");
        assert_eq!(here.compare("2\nb"), Ok(()), "of another machine");
    }
}
