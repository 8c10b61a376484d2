//! Threads that allocate the memory of media with `preallocate` ahead of its first use.
//!
//! Invariant: a thread keeps no medium alive that has no other owner.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

use api::config::Size;
use media::Medium;
use rustix::process::nice;

/// Priority, as of `nice`: reactors come first.
const PRIORITY: i32 = 10;
/// Longest rest. A thread rests for as long as it worked, so that it takes at most half of the
/// time of what it shares with reactors: a processor, and the machine's memory.
const REST_MAX: Duration = Duration::from_millis(50);
/// How long a thread waits until reactors have chosen a NUMA node for the memory.
const PLACING: Duration = Duration::from_millis(500);

/// Starts to allocate the memory of a medium. `name`: the medium's, for the log.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn start(medium: &Arc<Medium>, name: &str) -> io::Result<()> {
    medium.expect_preallocation();
    let (medium, name) = (Arc::downgrade(medium), name.to_owned());
    thread::Builder::new()
        .name("preallocate".to_owned())
        .spawn(move || run(&medium, &name))?;
    Ok(())
}

fn run(medium: &Weak<Medium>, name: &str) {
    if let Err(error) = nice(PRIORITY) {
        tracing::debug!(
            media = name,
            "its memory is allocated with full priority: {error}"
        );
    }
    thread::sleep(PLACING);
    let began = Instant::now();
    loop {
        let slice = Instant::now();
        let Some(medium) = medium.upgrade() else {
            return;
        };
        let is_more = medium.allocate_more();
        let done = Size(medium.preallocated().unwrap_or(0));
        drop(medium);
        match is_more {
            Ok(true) => thread::sleep(slice.elapsed().min(REST_MAX)),
            Ok(false) => {
                let seconds = began.elapsed().as_secs_f64();
                tracing::info!(
                    media = name,
                    "{done} allocated in advance, in {seconds:.1} s"
                );
                return;
            }
            Err(error) => {
                tracing::warn!(
                    media = name,
                    "only {done} are allocated in advance, the rest as it is written: {error}"
                );
                return;
            }
        }
    }
}
