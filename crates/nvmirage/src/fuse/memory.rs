//! Memory shared with the drive, for the data of requests.
//!
//! Buffers are of a few sizes and used again. Memory that no request has needed yet takes no pages.
//!
//! Invariant: there is a buffer of every size for as many requests as there can be in flight.

use std::sync::{Mutex, PoisonError};

use driver::DriverError;
use memory::{Buffer, HostMemory};

/// Largest block that a drive may have, and so the room of each edge.
pub(super) const EDGE_LEN: usize = 64 << 10;
/// Most bytes of a request of the kernel.
pub(super) const REQUEST_LEN: u32 = 1 << 20;
/// Buffers' sizes: most requests, longer ones, and the longest, which may begin and end inside of a
/// block. Edges have the middle one.
const SIZES: [usize; 3] = [16 << 10, 2 * EDGE_LEN, REQUEST_LEN as usize + 2 * EDGE_LEN];
/// Queues, doorbells, and the admin queue's data.
const SPARE_LEN: usize = 32 << 20;
const PAGE: usize = 4096;

/// Bytes to share with the drive where so many requests may be in flight.
pub(super) fn memory_len(requests: usize) -> usize {
    let each = SIZES.iter().sum::<usize>() + 2 * EDGE_LEN;
    // and lists of pages of each command: one page holds those of 2 MiB
    SPARE_LEN + requests * (each + 2 * PAGE)
}

/// Where buffers come from.
#[derive(Debug)]
pub(super) struct Pool {
    memory: HostMemory,
    free: Mutex<[Vec<Buffer>; SIZES.len()]>,
}

impl Pool {
    pub(super) fn new(memory: HostMemory) -> Self {
        Pool {
            memory,
            free: Mutex::default(),
        }
    }

    /// A buffer of at least `len` bytes; what is in it is anything.
    ///
    /// # Errors
    /// [`DriverError::NoMemory`], also for more than a request can have.
    pub(super) fn take(&self, len: usize) -> Result<Buffer, DriverError> {
        let none = DriverError::NoMemory { wanted: len };
        let Some(size) = SIZES.iter().position(|size| *size >= len) else {
            return Err(none);
        };
        let free = self.free().get_mut(size).and_then(Vec::pop);
        match free {
            Some(buffer) => Ok(buffer),
            None => self.memory.alloc(SIZES[size], PAGE).ok_or(none),
        }
    }

    /// Gives a buffer back that the drive does not use any more.
    pub(super) fn give_back(&self, buffer: Buffer) {
        let size = SIZES.iter().position(|size| *size == buffer.len());
        let size = size.expect("buffers of a pool have its sizes");
        self.free()[size].push(buffer);
    }

    fn free(&self) -> std::sync::MutexGuard<'_, [Vec<Buffer>; SIZES.len()]> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_suffice() {
        let requests = 4;
        let memory = HostMemory::new(memory_len(requests)).unwrap();
        let pool = Pool::new(memory);
        let first = pool.take(4096).unwrap();
        let at = first.offset();
        pool.give_back(first);
        assert_eq!(pool.take(512).unwrap().offset(), at);
        let mut all = Vec::new();
        for len in [512, 64 << 10, 1 << 20, 2 * EDGE_LEN] {
            all.extend((0..requests).map(|_| pool.take(len).unwrap()));
        }
        assert!(all.iter().all(|buffer| buffer.offset() % 4096 == 0));
        assert!(pool.take((1 << 20) + 2 * EDGE_LEN + 1).is_err());
    }
}
