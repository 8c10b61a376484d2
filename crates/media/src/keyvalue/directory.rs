//! Hash table of keys: finds an existing key in two memory accesses, however many keys there are.
//!
//! A bucket has the index of its first entry, and each entry that of the next one in its bucket.
//! The hash is seeded, so that no host can choose colliding keys.
//!
//! Not included: entries and the comparison of keys, which the index has.

use std::hash::{BuildHasher, RandomState};
use std::io;

/// The first entry of each bucket, at least as many as the maximum number of keys.
#[derive(Debug)]
pub(super) struct Directory {
    /// Entries count from 1; 0 means none, so that unused zeroed memory is valid.
    firsts: Vec<u32>,
    hasher: RandomState,
}

impl Directory {
    /// Creates a directory for up to `max` keys. The system provides memory as it is used.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(super) fn new(max: u32) -> io::Result<Self> {
        let buckets = (max as usize).checked_next_power_of_two();
        let buckets = buckets.ok_or(io::ErrorKind::OutOfMemory)?;
        // Zeroed allocation cannot report a lack of memory, so this tests it.
        let mut asks = Vec::<u32>::new();
        asks.try_reserve_exact(buckets)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        drop(asks);
        Ok(Directory {
            firsts: vec![0; buckets],
            hasher: RandomState::new(),
        })
    }

    /// The bucket of a key.
    pub(super) fn bucket(&self, key: &[u8]) -> usize {
        let hash = self.hasher.hash_one(key);
        // The number of buckets is a power of two far below 2^64.
        hash as usize & (self.firsts.len() - 1)
    }

    /// The first entry of a bucket.
    pub(super) fn first(&self, bucket: usize) -> Option<u32> {
        self.firsts[bucket].checked_sub(1)
    }

    /// Sets the first entry of a bucket.
    pub(super) fn set_first(&mut self, bucket: usize, entry: Option<u32>) {
        self.firsts[bucket] = entry.map_or(0, |entry| entry + 1);
    }

    /// Empties all buckets.
    pub(super) fn clear(&mut self) {
        let buckets = self.firsts.len();
        self.firsts = Vec::new();
        self.firsts = vec![0; buckets];
    }
}
