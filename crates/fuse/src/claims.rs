//! Claims of blocks by writes.
//!
//! A write that covers a block in part reads the block first and then writes all of it. A write to
//! the same block in between would be lost, so such a write claims its blocks exclusively, and
//! others wait. Writes of whole blocks do not wait for each other: their order is the programs'
//! responsibility, as on any drive.
//!
//! Invariant: claims that exclude each other are granted in order of arrival.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The claims of a mount.
#[derive(Debug, Default)]
pub(super) struct Claims {
    claims: Mutex<Table>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    /// In order of arrival, including those that wait.
    claims: Vec<Entry>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    file: u64,
    blocks: Range<u64>,
    exclusive: bool,
}

impl Entry {
    fn excludes(&self, other: &Entry) -> bool {
        (self.exclusive || other.exclusive)
            && self.file == other.file
            && self.blocks.start < other.blocks.end
            && other.blocks.start < self.blocks.end
    }
}

/// The right to write to blocks, until it is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Arc<Claims>,
    id: u64,
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims blocks of a file, exclusively or shared. Waits up to `timeout` for conflicting
    /// claims; `None` after that.
    pub(super) fn claim(
        self: &Arc<Self>,
        file: u64,
        blocks: Range<u64>,
        exclusive: bool,
        timeout: Duration,
    ) -> Option<Claim> {
        let mut table = self.lock();
        let id = table.next;
        table.next += 1;
        table.claims.push(Entry {
            id,
            file,
            blocks,
            exclusive,
        });
        // released also when the wait times out
        let claim = Claim {
            claims: self.clone(),
            id,
        };
        let mut deadline = None;
        while !table.is_granted(id) {
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + timeout);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(table);
                drop(claim);
                return None;
            }
            let waited = self.released.wait_timeout(table, left);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(claim)
    }
}

impl Table {
    /// Whether no earlier claim conflicts with a claim.
    fn is_granted(&self, id: u64) -> bool {
        let at = self.claims.iter().position(|entry| entry.id == id);
        let at = at.expect("a claim is in the table until it is dropped");
        let (before, after) = self.claims.split_at(at);
        !before.iter().any(|entry| entry.excludes(&after[0]))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims
            .lock()
            .claims
            .retain(|entry| entry.id != self.id);
        self.claims.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn at_once(
        claims: &Arc<Claims>,
        file: u64,
        blocks: Range<u64>,
        exclusive: bool,
    ) -> Option<Claim> {
        claims.claim(file, blocks, exclusive, Duration::ZERO)
    }

    #[test]
    fn whole_blocks_go_beside_each_other_and_parts_alone() {
        let claims = Arc::new(Claims::default());
        let whole = at_once(&claims, 1, 0..8, false).unwrap();
        let also = at_once(&claims, 1, 4..9, false).unwrap();
        assert!(at_once(&claims, 1, 7..8, true).is_none());
        assert!(at_once(&claims, 2, 7..8, true).is_some(), "of another file");
        let behind = at_once(&claims, 1, 9..10, true).unwrap();
        assert!(at_once(&claims, 1, 9..10, false).is_none());
        drop((whole, also, behind));
        let part = at_once(&claims, 1, 7..8, true).unwrap();
        assert!(at_once(&claims, 1, 0..8, false).is_none());
        drop(part);
        assert!(at_once(&claims, 1, 0..8, false).is_some());
        assert!(claims.lock().claims.is_empty());
    }

    #[test]
    fn who_waits_is_next() {
        let claims = Arc::new(Claims::default());
        let first = at_once(&claims, 1, 0..1, false).unwrap();
        let waiting = {
            let claims = claims.clone();
            thread::spawn(move || claims.claim(1, 0..1, true, LONG).unwrap())
        };
        while claims.lock().claims.len() < 2 {
            thread::yield_now();
        }
        assert!(at_once(&claims, 1, 0..1, false).is_none(), "it came later");
        drop(first);
        drop(waiting.join().unwrap());
        assert!(at_once(&claims, 1, 0..1, false).is_some());
    }
}
