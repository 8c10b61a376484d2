//! The thread that reports failures of media, with a log line and an event when a cause begins and
//! when it has passed.
//!
//! Channels count failures ([`media::Troubles`]), and the first failure of a cause wakes this
//! thread; while all media work, it sleeps. A cause has passed once a request of the failed kind
//! has succeeded (for a full file system, and it has free space) and none has failed for
//! [`QUIET`]. A disk that is full intermittently therefore gets two lines per such period, not two
//! per request.
//!
//! The thread does not log errors of hosts, and no command waits for it.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use api::What;
use media::{Trouble, TroubleLook, Troubles};

use crate::events;

/// Time without failures after which a cause has passed.
const QUIET: Duration = Duration::from_secs(2);
/// Interval of checks while a cause is reported.
const LOOK: Duration = Duration::from_millis(500);

/// A watched medium.
#[derive(Debug)]
struct Entry {
    name: String,
    troubles: Arc<Troubles>,
    reports: [Report; Trouble::ALL.len()],
}

impl Entry {
    fn is_read_only(&self) -> bool {
        let mut all = Trouble::ALL.into_iter().zip(&self.reports);
        all.any(|(trouble, report)| trouble == Trouble::ReadOnly && report.since.is_some())
    }
}

/// State of a cause.
#[derive(Clone, Copy, Debug, Default)]
struct Report {
    /// Failures so far, and failures before the current report.
    count: u64,
    before: u64,
    /// Time at which the cause last failed or was current, while a report is open.
    since: Option<Instant>,
}

/// A message to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Say {
    Begins,
    /// Number of failures.
    Passed(u64),
}

impl Report {
    /// Updates the state, and returns a message if there is one.
    fn take(&mut self, look: TroubleLook, now: Instant) -> Option<Say> {
        let before = std::mem::replace(&mut self.count, look.count);
        let is_more = look.count != before;
        match self.since {
            None if is_more || look.is_current => {
                (self.before, self.since) = (before, Some(now));
                Some(Say::Begins)
            }
            Some(_) if is_more || look.is_current => {
                self.since = Some(now);
                None
            }
            Some(since) if now.duration_since(since) >= QUIET => {
                self.since = None;
                Some(Say::Passed(look.count - self.before))
            }
            _ => None,
        }
    }
}

type Entries = Mutex<Vec<Entry>>;

/// The thread.
#[derive(Debug)]
pub(crate) struct Reporter {
    entries: Arc<Entries>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Woken repeatedly while a medium rejects writes as read-only.
    read_only: Arc<OnceLock<Thread>>,
}

impl Reporter {
    /// Starts it.
    pub(crate) fn start() -> io::Result<Self> {
        let entries = Arc::<Entries>::default();
        let ends = Arc::<AtomicBool>::default();
        let read_only = Arc::<OnceLock<Thread>>::default();
        let (its, its_end) = (Arc::downgrade(&entries), Arc::clone(&ends));
        let to_wake = Arc::clone(&read_only);
        let thread = thread::Builder::new()
            .name("media errors".into())
            .spawn(move || run(&its, &its_end, &to_wake))?;
        Ok(Reporter {
            entries,
            ends,
            thread: Some(thread),
            read_only,
        })
    }

    /// Registers the thread that is woken repeatedly while a medium rejects writes as read-only.
    /// Only the first registration counts.
    pub(crate) fn wake_for_read_only(&self, thread: Thread) {
        // A further thread would do the same.
        let _ = self.read_only.set(thread);
    }

    /// Starts to report failures of a medium, if it can have some.
    pub(crate) fn watch(&self, name: &str, medium: &media::Medium) {
        let (Some(troubles), Some(thread)) = (medium.troubles(), &self.thread) else {
            return;
        };
        troubles.watch(thread.thread().clone());
        lock(&self.entries).push(Entry {
            name: name.to_owned(),
            troubles: Arc::clone(troubles),
            reports: Default::default(),
        });
        // It may have failed already.
        thread.thread().unpark();
    }

    /// Stops reporting a medium, after reporting what has happened.
    pub(crate) fn forget(&self, name: &str) {
        let mut entries = lock(&self.entries);
        look(&mut entries, Instant::now());
        entries.retain(|entry| entry.name != name);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread that reports errors of media panicked");
            }
        }
    }
}

fn lock(entries: &Entries) -> MutexGuard<'_, Vec<Entry>> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(entries: &Weak<Entries>, ends: &AtomicBool, read_only: &OnceLock<Thread>) {
    while !ends.load(Relaxed) {
        let Some(entries) = entries.upgrade() else {
            return;
        };
        let stands = look(&mut lock(&entries), Instant::now());
        let is_read_only = lock(&entries).iter().any(Entry::is_read_only);
        drop(entries);
        if let (true, Some(thread)) = (is_read_only, read_only.get()) {
            thread.unpark();
        }
        if stands {
            thread::park_timeout(LOOK)
        } else {
            thread::park()
        }
    }
}

/// Reports changes; whether a report is open.
fn look(entries: &mut [Entry], now: Instant) -> bool {
    let mut stands = false;
    for Entry {
        name,
        troubles,
        reports,
    } in entries
    {
        troubles.look_for_room();
        let looks = Trouble::ALL.into_iter().zip(troubles.look());
        for ((trouble, look), report) in looks.zip(reports) {
            if let Some(say) = report.take(look, now) {
                tell(name, trouble, look, say);
            }
            stands |= report.since.is_some();
        }
    }
    stands
}

fn tell(media: &str, trouble: Trouble, look: TroubleLook, say: Say) {
    let cause = trouble.name();
    match say {
        Say::Begins => {
            let error = look.os_error.map(io::Error::from_raw_os_error);
            let error = error.map_or(String::new(), |error| format!(" ({error})"));
            tracing::warn!(
                media,
                cause,
                "{}{error}; {}",
                what(trouble),
                remedy(trouble)
            );
            events::tell_cause(What::MediaError, "media", media, cause);
        }
        Say::Passed(count) => {
            tracing::info!(
                media,
                cause,
                "the medium works again; {count} requests to it had failed"
            );
            events::tell_cause(What::MediaRecovered, "media", media, cause);
        }
    }
}

/// Description of a failure.
pub(crate) fn what(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::NoSpace => "writes fail: no space is left where the medium lies",
        Trouble::FileSize => "writes fail: the file would exceed a limit on its size",
        Trouble::ReadOnly => "writes fail: the medium has become read-only",
        Trouble::Gone => "requests fail: the medium was removed or became shorter",
        Trouble::Read => "reads fail",
        Trouble::Write => "writes fail",
    }
}

/// The next step.
fn remedy(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::NoSpace => {
            "hosts get Capacity Exceeded (081h) until there is room: free some, or enlarge the file system or quota"
        }
        Trouble::FileSize => {
            "raise the limit of the service (LimitFSIZE=, ulimit -f) and restart it, or use a smaller size"
        }
        Trouble::ReadOnly => "make it writable again (`blockdev --setrw`, `mount -o remount,rw`)",
        Trouble::Gone => "restore it and restart the server",
        Trouble::Read | Trouble::Write => "check the disk (`dmesg`, `smartctl`)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(count: u64, is_current: bool) -> TroubleLook {
        TroubleLook {
            count,
            is_current,
            os_error: None,
        }
    }

    #[test]
    fn a_cause_is_reported_once_however_often_it_fails_and_again_when_it_has_passed() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut report = Report::default();
        assert_eq!(report.take(seen(0, false), at(0)), None);
        assert_eq!(report.take(seen(3, true), at(0)), Some(Say::Begins));
        assert_eq!(report.take(seen(50_000, true), at(5_000)), None);
        // A write succeeds now and then, but the disk is as full as before.
        assert_eq!(report.take(seen(50_000, false), at(6_000)), None);
        assert_eq!(report.take(seen(50_001, false), at(7_500)), None);
        assert_eq!(report.take(seen(50_001, false), at(9_000)), None);
        let passed = report.take(seen(50_001, false), at(9_500));
        assert_eq!(passed, Some(Say::Passed(50_001)));
        assert_eq!(report.take(seen(50_001, false), at(20_000)), None);
        let again = report.take(seen(50_002, true), at(21_000));
        assert_eq!(again, Some(Say::Begins));
        let passed = report.take(seen(50_002, false), at(30_000));
        assert_eq!(passed, Some(Say::Passed(1)));
    }

    #[test]
    fn a_cause_that_nothing_has_ended_has_not_passed() {
        let start = Instant::now();
        let mut report = Report::default();
        report.take(seen(1, true), start);
        let later = start + Duration::from_secs(3600);
        assert_eq!(report.take(seen(1, true), later), None);
    }
}
