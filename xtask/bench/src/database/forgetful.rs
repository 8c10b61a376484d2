//! A page cache that keeps nothing for long, as on a machine whose memory is small beside its data.
//!
//! Only the files of one folder are forgotten, so that no other program on the machine has to read
//! anything again. What is not written back yet stays.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

/// How often the files are forgotten.
const STEP: Duration = Duration::from_millis(200);

/// A thread that has the page cache forget the files of a folder.
pub(super) struct Forgetful {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Forgetful {
    pub(super) fn start(folder: PathBuf) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let thread = thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                forget(&folder);
                thread::sleep(STEP);
            }
        });
        Self { ends, thread }
    }

    pub(super) fn stop(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread does not panic");
    }
}

/// Forgets what is there now: databases make and remove files meanwhile.
fn forget(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => forget(&entry.path()),
            Ok(kind) if kind.is_file() => {
                if let Ok(file) = File::open(entry.path()) {
                    // It is advice: a file that does not take it stays where it is.
                    let _ = fadvise(&file, 0, None, Advice::DontNeed);
                }
            }
            _ => {}
        }
    }
}
