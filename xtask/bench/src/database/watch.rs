//! What a block device did over time, from the kernel's counters.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How often the counters are read.
const STEP: Duration = Duration::from_millis(100);

/// What was done up to a moment, since the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moment {
    /// Since the start.
    pub(super) at_s: f64,
    /// How long it is since the one before.
    pub(super) for_s: f64,
    pub(super) mib_s: f64,
    /// Requests in flight, on average.
    pub(super) queue_depth: f64,
}

impl Moment {
    pub(super) fn in_json(&self) -> Value {
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        json!({
            "at_s": rounded(self.at_s),
            "mib_s": rounded(self.mib_s),
            "queue_depth": rounded(self.queue_depth),
        })
    }
}

/// The mean of a figure over all moments, each as long as it is.
pub(super) fn mean(moments: &[Moment], of: impl Fn(&Moment) -> f64) -> f64 {
    let time: f64 = moments.iter().map(|moment| moment.for_s).sum();
    let sum: f64 = moments.iter().map(|moment| of(moment) * moment.for_s).sum();
    if time > 0.0 { sum / time } else { 0.0 }
}

/// Counters of a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counters {
    sectors: u64,
    /// Time that requests were in flight, summed over all of them.
    busy_ms: u64,
}

/// Reads `/sys/block/*/stat` (Documentation/block/stat.rst of Linux): sectors of 512 bytes read and
/// written are fields 3 and 7, the time that all requests were in flight field 11, counted from 1.
fn parse(text: &str) -> Option<Counters> {
    let fields: Vec<u64> = text
        .split_whitespace()
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    Some(Counters {
        sectors: fields.get(2)? + fields.get(6)?,
        busy_ms: *fields.get(10)?,
    })
}

fn moment(since: Counters, now: Counters, at_s: f64, for_s: f64) -> Moment {
    let sectors = now.sectors.saturating_sub(since.sectors);
    let busy_ms = now.busy_ms.saturating_sub(since.busy_ms);
    Moment {
        at_s,
        for_s,
        mib_s: sectors as f64 / 2048.0 / for_s,
        queue_depth: busy_ms as f64 / 1000.0 / for_s,
    }
}

/// A thread that reads the counters.
pub(super) struct Watch {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Moment>>,
}

impl Watch {
    pub(super) fn start(stat: PathBuf) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let thread = thread::spawn(move || look(&stat, &told));
        Self { ends, thread }
    }

    pub(super) fn stop(self) -> Vec<Moment> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watcher does not panic")
    }
}

fn look(stat: &Path, ends: &AtomicBool) -> Vec<Moment> {
    let read = || {
        let text = fs::read_to_string(stat).unwrap_or_default();
        parse(&text).unwrap_or_default()
    };
    let start = Instant::now();
    let (mut before, mut then) = (read(), 0.0);
    let mut moments = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        thread::sleep(STEP);
        let (now, at_s) = (read(), start.elapsed().as_secs_f64());
        moments.push(moment(before, now, at_s, at_s - then));
        (before, then) = (now, at_s);
    }
    moments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        // reads, merged, sectors, ms; writes, merged, sectors, ms; in flight, ms busy, ms of all;
        // of discards and flushes, too
        let text = "  100 1 2048 30   50 2 4096 70   3 90 500   1 0 8 0 5 6\n";
        let counters = Counters {
            sectors: 6144,
            busy_ms: 500,
        };
        assert_eq!(parse(text), Some(counters));
        assert_eq!(parse("1 2 x"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_moment_is_what_was_done_since_the_one_before() {
        let now = Counters {
            sectors: 2048 * 10,
            busy_ms: 1500,
        };
        let half = moment(Counters::default(), now, 0.5, 0.5);
        assert_eq!((half.mib_s, half.queue_depth), (20.0, 3.0));
        let idle = moment(now, now, 2.0, 1.5);
        assert_eq!(mean(&[half, idle], |m| m.mib_s), 5.0);
        assert_eq!(mean(&[], |m| m.mib_s), 0.0);
    }
}
