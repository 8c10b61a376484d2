//! Traces of controllers, from the rings of their lanes into files.
//!
//! Each trace has its own thread, which takes records out of the rings
//! ([`controller::flight::TraceRings`]) and writes them ([`trace_file`]). Reactors do not know
//! about the thread: they overwrite records that it did not take in time, which are counted as
//! lost.
//!
//! Invariants:
//! - This process has created the file, and the file never exceeds its maximum size.
//! - Errors of the file never affect hosts: the trace ends and reports the reason.
//! - A trace that ends by itself first turns recording off in its controller's lanes, so that their
//!   commands have no further cost.

mod recorder;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
pub(crate) use recorder::{Reason, Recorder, Start, unix_ns};

/// Records of a controller's rings together; at most so many of one queue.
const RECORDS: usize = 1 << 20;
const RECORDS_OF_QUEUE: usize = 1 << 16;

/// Traces that the server lists, and how many of them may be active.
pub(crate) const TRACES: usize = 64;
pub(crate) const GOING_ON: usize = 8;

/// Size of each queue's ring, of a controller with `queues` queues.
pub(crate) fn ring_entries(queues: u16) -> usize {
    let each = RECORDS / usize::from(queues.max(1));
    each.min(RECORDS_OF_QUEUE)
}

/// Creates a trace's file, readable only by its user.
pub(crate) fn create(path: &Path) -> anyhow::Result<(File, PathBuf)> {
    let path = std::path::absolute(path)?;
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    let file = made.with_context(|| {
        format!(
            "cannot create {}: the file must not exist, and the server needs write permission for the folder",
            path.display()
        )
    })?;
    Ok((file, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers agree with the book.
    #[test]
    fn rings_have_room_by_the_number_of_queues() {
        let entries = [1, 16, api::config::MAX_QUEUES].map(ring_entries);
        assert_eq!(entries, [65_536, 65_536, 16_384]);
    }
}
