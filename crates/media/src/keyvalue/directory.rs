//! Which keys have the same hash: the way to a key that is there, in two looks at memory however
//! many there are.
//!
//! A bucket names its first entry, and each entry the next one of its bucket. The hash is seeded,
//! so that no host can choose keys that meet.
//!
//! It does NOT know entries or compare keys: the index does.

use std::hash::{BuildHasher, RandomState};
use std::io;

/// The first entries of all buckets, as many as there may be keys at least.
#[derive(Debug)]
pub(super) struct Directory {
    /// Entries count from 1; 0 is none, so that memory which nobody has used yet is none.
    firsts: Vec<u32>,
    hasher: RandomState,
}

impl Directory {
    /// For up to `max` keys. Memory is taken from the system as it is used.
    ///
    /// # Errors
    /// There is no memory for so many.
    pub(super) fn new(max: u32) -> io::Result<Self> {
        let buckets = (max as usize).checked_next_power_of_two();
        let buckets = buckets.ok_or(io::ErrorKind::OutOfMemory)?;
        // Whoever makes it of zeros cannot be told that there is no memory, so this asks.
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
        // A power of two of them, far fewer than 2^64.
        hash as usize & (self.firsts.len() - 1)
    }

    /// The first entry of a bucket.
    pub(super) fn first(&self, bucket: usize) -> Option<u32> {
        self.firsts[bucket].checked_sub(1)
    }

    /// Another first entry of a bucket, or none.
    pub(super) fn set_first(&mut self, bucket: usize, entry: Option<u32>) {
        self.firsts[bucket] = entry.map_or(0, |entry| entry + 1);
    }

    /// All buckets are empty.
    pub(super) fn clear(&mut self) {
        let buckets = self.firsts.len();
        self.firsts = Vec::new();
        self.firsts = vec![0; buckets];
    }
}
