//! Allocation of a medium's memory ahead of its first use.
//!
//! The system allocates and clears a page when it is first touched. A command that touches it waits
//! for that, and in a virtual machine whose own host has to find the memory, for much longer.
//!
//! Not included: the moment, and the rests between, which the caller chooses.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use memory::Store;

/// Bytes allocated at a time: a huge page. The system has that many cleared in some hundred
/// microseconds, and other threads wait no longer for it.
const SLICE: u64 = 2 << 20;

/// Progress of an allocation.
#[derive(Debug, Default)]
pub(crate) struct Preallocation {
    /// Bytes from the start of the medium that were allocated.
    allocated: AtomicU64,
}

impl Preallocation {
    /// Bytes from the start of the medium that were allocated.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated.load(Relaxed)
    }

    /// Allocates the next bytes of a store; no byte changes. False where all are.
    ///
    /// # Errors
    /// The system's; nothing has changed.
    pub(crate) fn advance(&self, store: &Store) -> io::Result<bool> {
        let done = self.allocated();
        let len = SLICE.min(store.len() - done);
        if len == 0 {
            return Ok(false);
        }
        match store.populate(done, len) {
            Ok(()) => self.allocated.store(done + len, Relaxed),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_to_the_end_and_changes_no_bytes() {
        const LEN: u64 = 3 * SLICE + 512;
        let store = Store::new(LEN).unwrap();
        store.write_bytes(SLICE, b"written before");
        let alone = Preallocation::default();
        for end in [SLICE, 2 * SLICE, 3 * SLICE, LEN] {
            assert!(alone.advance(&store).unwrap());
            assert_eq!(alone.allocated(), end);
        }
        assert!(!alone.advance(&store).unwrap());
        let mut bytes = [0; 15];
        store.read_bytes(SLICE, &mut bytes);
        assert_eq!(&bytes, b"written before\0");
    }
}
